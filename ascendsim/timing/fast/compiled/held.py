"""What a program holds: instructions that have to wait for a transfer, pipe by pipe, each in order.

A pipe goes on with the instruction that it has held for the longest. That may go on when all that is held
and came before it in the program has let go of its slots. Who did come before is told by tickets: a slot
counts the uses of it that were held so far and those that are over, and an instruction that is held notes
how many came before its own.
"""

from __future__ import annotations

from typing import Any

from ascendsim.timing.fast.compiled import state as f


def slot_of(use: int, named: int) -> int:
    """Return the slot of a use, of the slots that a row has named."""
    return (named >> (use >> 32) & 0xFFFF) + (use >> 1 & 0x7FFFFFFF)


def uses_held(m: Any, core: int, pipe: int, row: int, named: int, trails: int) -> bool:
    """Tell whether an instruction has to wait for any that is held, by the slots that both use.

    One that `trails` others does not wait for what it reads before it starts.
    """
    c = m[f.AT_CORES] + core * f.CORES
    if m[c + f.HELD_PIPES] == 0:
        return False
    slots = m[f.AT_SLOTS] + m[c + f.SLOT] * f.SLOTS
    for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
        w = slots + slot_of(m[use], named) * f.SLOTS
        if trails and m[use] & 1 == 0:
            continue
        late = m[w + f.WRITES_HELD] != m[w + f.WRITES_OVER]
        if late or (m[use] & 1 and m[w + f.READS_HELD] != m[w + f.READS_OVER]):
            m[w + f.WAKES] |= 1 << pipe
            return True
    return False


def entered(m: Any, core: int, pipe: int, row: int, named: int, time: int, index: int) -> int:
    """Describe an instruction in the next free row of what its pipe holds, with tickets; return the row."""
    c = m[f.AT_CORES] + core * f.CORES
    p = m[f.AT_PIPES] + (core * m[f.PIPES] + pipe) * f.PIPE_COLUMNS
    entry = entry_at(m, core, pipe, m[p + f.TAIL])
    m[entry + f.FORM_AT], m[entry + f.NAMED] = row, named
    m[entry + f.ISSUE], m[entry + f.INDEX] = time, index
    m[entry + f.CLASS], m[entry + f.FLIES] = -1, 0
    if m[row + f.MOVES]:
        outcome = 0
        if m[c + f.FIRST_OUTCOME] >= 0:
            outcome = m[m[f.AT_OUTCOMES] + m[c + f.FIRST_OUTCOME] + m[c + f.MOVED]]
        m[c + f.MOVED] += 1
        traffic = m[m[f.AT_PRICES] + m[row + f.PRICE] * f.PRICES + f.TRAFFIC]
        # Beside a cube core are vector cores.
        kind = m[c + f.KIND] if pipe < f.UNIT else 1
        known = (kind * m[f.TRAFFICS] + traffic) * m[f.OUTCOMES] + outcome
        m[entry + f.CLASS] = m[m[f.AT_CLASSES] + known]
    slots, ticket = m[f.AT_SLOTS] + m[c + f.SLOT] * f.SLOTS, entry + f.TICKETS
    for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
        w = slots + slot_of(m[use], named) * f.SLOTS
        m[ticket], m[ticket + 1] = m[w + f.WRITES_HELD], m[w + f.READS_HELD]
        ticket += 2
    return int(entry)


def entry_at(m: Any, core: int, pipe: int, number: int) -> int:
    """Return the row of an instruction that a pipe holds, by its number among all that it has held."""
    rows = (core * m[f.PIPES] + pipe) * m[f.HELD] + (number & (m[f.HELD] - 1))
    return int(m[f.AT_ENTRIES] + rows * m[f.ENTRY])


def ready(m: Any, core: int, pipe: int, row: int, named: int, entry: int, trails: int) -> bool:
    """Tell whether all that is held and came before a held instruction has let go of its slots.

    If not, its pipe is woken when one of the slots for which that does not hold has been let go of once more.
    """
    slots = m[f.AT_SLOTS] + m[m[f.AT_CORES] + core * f.CORES + f.SLOT] * f.SLOTS
    ticket = entry + f.TICKETS
    for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
        w = slots + slot_of(m[use], named) * f.SLOTS
        if m[use] & 1:
            late = m[w + f.WRITES_OVER] != m[ticket] or m[w + f.READS_OVER] != m[ticket + 1]
        else:
            late = not trails and m[w + f.WRITES_OVER] != m[ticket]
        if late:
            m[w + f.WAKES] |= 1 << pipe
            return False
        ticket += 2
    return True


def hold(m: Any, core: int, pipe: int, row: int, named: int) -> None:
    """Hold the instruction that was entered last for a pipe."""
    c = m[f.AT_CORES] + core * f.CORES
    m[c + f.HELD_PIPES] |= 1 << pipe
    p = m[f.AT_PIPES] + (core * m[f.PIPES] + pipe) * f.PIPE_COLUMNS
    if m[entry_at(m, core, pipe, m[p + f.TAIL]) + f.ISSUE] >= 0:
        m[p + f.UNISSUED] = m[p + f.TAIL] + 1
    m[p + f.TAIL] += 1
    slots = m[f.AT_SLOTS] + m[c + f.SLOT] * f.SLOTS
    for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
        m[slots + slot_of(m[use], named) * f.SLOTS + (f.WRITES_HELD if m[use] & 1 else f.READS_HELD)] += 1


def let_go(m: Any, core: int, pipe: int, row: int, named: int) -> None:
    """Let go of the instruction that a pipe has held for the longest: it is over."""
    c = m[f.AT_CORES] + core * f.CORES
    p = m[f.AT_PIPES] + (core * m[f.PIPES] + pipe) * f.PIPE_COLUMNS
    m[p + f.HEAD] += 1
    if m[p + f.HEAD] == m[p + f.TAIL]:
        m[c + f.HELD_PIPES] &= ~(1 << pipe)
    slots = m[f.AT_SLOTS] + m[c + f.SLOT] * f.SLOTS
    for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
        w = slots + slot_of(m[use], named) * f.SLOTS
        m[w + (f.WRITES_OVER if m[use] & 1 else f.READS_OVER)] += 1
        m[c + f.WOKEN] |= m[w + f.WAKES]
        m[w + f.WAKES] = 0
