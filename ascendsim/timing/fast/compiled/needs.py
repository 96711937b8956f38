"""What the next transfers of a core need: noted at each instruction of the code before anything runs.

A hint, which saves time and decides nothing (`cores.nothing_before`).
"""

from __future__ import annotations

from typing import Any

from ascendsim.timing.fast.compiled import state as f

# How many instructions before a transfer are looked at.
BACK = 8


def note_needs(m: Any) -> None:
    """Note at each instruction which pipes' next transfers need it, or a later one of its pipe."""
    first = 0
    for unit in range(m[f.UNITS]):
        last = m[m[f.AT_UNITS] + unit]
        note_unit(m, first, last)
        first = last


def note_unit(m: Any, first: int, last: int) -> None:
    """Do so in a unit of code."""
    # From the end: from an instruction that a transfer needs back to the transfer before it on that pipe,
    # all on the pipe of the former are needed.
    needed, pipes = m[f.AT_NEEDED], m[f.PIPES]
    for pipe in range(pipes):
        m[needed + pipe] = 0
    transfer, sources, bit = last, 0, 0
    for at in range(last - 1, first - 1, -1):
        row = m[f.AT_CODE] + at * f.CODE
        pipe = m[row + f.PIPE]
        if transfer - at <= BACK and sources >> (transfer - at) & 1:
            m[needed + pipe] |= bit
        m[row + f.BEHIND] = m[needed + pipe]
        if m[row + f.MOVES]:
            bit = 1 << pipe
            for other in range(pipes):
                m[needed + other] &= ~bit
            transfer, sources = at, sources_of(m, first, at)


def sources_of(m: Any, first: int, at: int) -> int:
    """Return the newest instruction on each pipe that an instruction needs, as bits: how far back it lies."""
    wanted = m[f.AT_WANTED]
    count, found, pipes = want(m, at, 0), 0, 0
    for back in range(1, min(BACK, at - first) + 1):
        row = m[f.AT_CODE] + (at - back) * f.CODE
        for use in range(m[row + f.FIRST_USE], m[row + f.LAST_USE]):
            slot, seen = m[m[f.AT_USES] + use] - 1, 0
            while seen < count and m[wanted + seen] != slot:
                seen += 1
            # An odd number is a write of the slot whose read is the even one before it.
            if seen < count:
                if not pipes >> m[row + f.PIPE] & 1:
                    pipes |= 1 << m[row + f.PIPE]
                    found |= 1 << back
                count = want(m, at - back, count)
                break
    return found


def want(m: Any, at: int, count: int) -> int:
    """Add what an instruction reads to the `count` slots that are wanted; return how many there are."""
    row = m[f.AT_CODE] + at * f.CODE
    for use in range(m[row + f.FIRST_USE], m[row + f.LAST_USE]):
        if m[m[f.AT_USES] + use] & 1 == 0:
            m[m[f.AT_WANTED] + count] = m[m[f.AT_USES] + use]
            count += 1
    return count
