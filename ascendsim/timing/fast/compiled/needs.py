"""What the next transfers of a core need: noted at each row before the core runs it.

A hint, which saves time and decides nothing (`cores.nothing_before`).
"""

from __future__ import annotations

from typing import Any

from ascendsim.timing.fast.compiled import state as f
from ascendsim.timing.fast.compiled.held import slot_of

# How many instructions before a transfer are looked at.
BACK = 8


def note_needs(m: Any, rows: Any, first: int, last: int) -> None:
    """Note at each row from `first` to `last` which pipes' next transfers need it, or a later one there."""
    # From the end: from an instruction that a transfer needs back to the transfer before it on that pipe,
    # all on the pipe of the former are needed.
    needed, pipes = m[f.AT_NEEDED], m[f.PIPES]
    for pipe in range(pipes):
        m[needed + pipe] = 0
    transfer, sources, bit = last, 0, 0
    for at in range(last - f.ROW, first - f.ROW, -f.ROW):
        row = m[f.AT_FORMS] + (rows[at] & 0xFFFFFFFF) * m[f.FORM]
        pipe = m[row + f.PIPE]
        back = (transfer - at) // f.ROW
        if back <= BACK and sources >> back & 1:
            m[needed + pipe] |= bit
        rows[at] = (rows[at] & 0xFFFFFFFF) | m[needed + pipe] << 32
        if m[row + f.MOVES]:
            bit = 1 << pipe
            for other in range(pipes):
                m[needed + other] &= ~bit
            transfer, sources = at, sources_of(m, rows, first, at)


def sources_of(m: Any, rows: Any, first: int, at: int) -> int:
    """Return the newest instruction on each pipe that an instruction needs, as bits: how far back it lies."""
    wanted = m[f.AT_WANTED]
    count, found, pipes = want(m, rows, at, 0), 0, 0
    for back in range(1, min(BACK, (at - first) // f.ROW) + 1):
        if count == 0:
            break
        before = at - back * f.ROW
        row, named = m[f.AT_FORMS] + (rows[before] & 0xFFFFFFFF) * m[f.FORM], rows[before + 1]
        for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
            if m[use] & 1 == 0:
                continue
            slot, seen = slot_of(m[use], named), 0
            while seen < count and m[wanted + seen] != slot:
                seen += 1
            if seen < count:
                if not pipes >> m[row + f.PIPE] & 1:
                    pipes |= 1 << m[row + f.PIPE]
                    found |= 1 << back
                count = want(m, rows, before, count)
                break
    return found


def want(m: Any, rows: Any, at: int, count: int) -> int:
    """Add what an instruction reads to the `count` slots that are wanted; return how many there are."""
    row, named = m[f.AT_FORMS] + (rows[at] & 0xFFFFFFFF) * m[f.FORM], rows[at + 1]
    for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
        if m[use] & 1 == 0:
            m[m[f.AT_WANTED] + count] = slot_of(m[use], named)
            count += 1
    return count
