"""A cube core together with its vector cores: each has a scalar unit of its own, which issues its own part.

One pass goes through the program for all of them. What a scalar unit cannot issue yet is held without an
issue, and so is everything of that core after it; the pass goes on with the other cores. So whoever comes
later finds what those before it have written, or finds it held.
"""

from __future__ import annotations

from typing import Any

from ascendsim.timing.fast.compiled import state as f
from ascendsim.timing.fast.compiled.cores import begin, issue_time, next_row, nothing_before
from ascendsim.timing.fast.compiled.held import entered, entry_at, hold, uses_held


def issued(m: Any, core: int, pipe: int, entry: int) -> bool:
    """Issue an instruction that is held; tell whether its scalar unit could."""
    c, unit = m[f.AT_CORES] + core * f.CORES, pipe // f.UNIT
    if m[c + f.STALLED] >> unit & 1:
        return False
    scalar = unit * f.UNIT
    newest = m[f.AT_PIPES] + (core * m[f.PIPES] + scalar) * f.PIPE_COLUMNS + f.FREE
    time = issue_time(m, core, pipe, scalar, m[newest])
    if time < 0:
        m[c + f.STALLED] |= 1 << unit
        return False
    m[newest] = m[entry + f.ISSUE] = time
    if m[c + f.RECORD] >= 0:
        m[m[f.AT_SPANS] + 4 * (m[c + f.RECORD] + m[entry + f.INDEX])] = time
    return True


def issue_held(m: Any, core: int) -> bool:
    """Issue what is held without an issue, as far as the scalar units can; tell whether any was."""
    c, some = m[f.AT_CORES] + core * f.CORES, False
    m[c + f.STALLED] = 0
    for unit in range(m[c + f.OF_CORES]):
        pipe = next_unissued(m, core, unit)
        while pipe >= 0:
            p = m[f.AT_PIPES] + (core * m[f.PIPES] + pipe) * f.PIPE_COLUMNS
            if not issued(m, core, pipe, entry_at(m, core, pipe, m[p + f.UNISSUED])):
                break
            m[p + f.UNISSUED] += 1
            m[c + f.WOKEN] |= 1 << pipe
            some = True
            pipe = next_unissued(m, core, unit)
    return some


def next_unissued(m: Any, core: int, unit: int) -> int:
    """Return the pipe of what a scalar unit has to issue next of what is held, or -1."""
    found, first = -1, f.NEVER
    for pipe in range(unit * f.UNIT, unit * f.UNIT + f.UNIT):
        p = m[f.AT_PIPES] + (core * m[f.PIPES] + pipe) * f.PIPE_COLUMNS
        if m[p + f.UNISSUED] != m[p + f.TAIL]:
            index = m[entry_at(m, core, pipe, m[p + f.UNISSUED]) + f.INDEX]
            if index < first:
                found, first = pipe, index
    return found


def issue_all(m: Any, rows: Any, core: int) -> None:
    """Issue instructions until the program ends or no scalar unit knows when it goes on."""
    c = m[f.AT_CORES] + core * f.CORES
    everybody = (1 << m[c + f.OF_CORES]) - 1
    while m[c + f.STALLED] != everybody:
        at = next_row(m, rows, core)
        if at < 0:
            return
        row, named = m[f.AT_FORMS] + (rows[at] & 0xFFFFFFFF) * m[f.FORM], rows[at + 1]
        index = m[c + f.COUNT]
        pipe = m[row + f.PIPE]
        p = m[f.AT_PIPES] + (core * m[f.PIPES] + pipe) * f.PIPE_COLUMNS
        if m[p + f.TAIL] - m[p + f.HEAD] == m[f.HELD]:
            m[f.SHORT] = 1
            return
        m[c + f.AT], m[c + f.COUNT] = at + 2, index + 1
        entry = entered(m, core, pipe, row, named, -1, index)
        if (
            issued(m, core, pipe, entry)
            and m[c + f.HELD_PIPES] >> pipe & 1 == 0
            and not uses_held(m, core, pipe, row, named, m[row + f.TRAILS])
            and begin(m, core, pipe, row, named, entry)
        ):
            continue
        hold(m, core, pipe, row, named)
        if nothing_before(m, core, rows[at] >> 32):
            return
