"""A cube core together with its vector cores: each has a scalar unit of its own, which issues its own part.

One pass goes through the program for all of them. What a scalar unit cannot issue yet is held without an
issue, and so is everything of that core after it; the pass goes on with the other cores. So whoever comes
later finds what those before it have written, or finds it held.
"""

from __future__ import annotations

from typing import Any

from ascendsim.timing.fast import state as f
from ascendsim.timing.fast.cores import begin, entered, hold, issue_time, next_code, nothing_before, uses_held


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


def issue_all(m: Any, core: int) -> None:
    """Issue instructions until the program ends or no scalar unit knows when it goes on."""
    c = m[f.AT_CORES] + core * f.CORES
    everybody = (1 << m[c + f.OF_CORES]) - 1
    while m[c + f.STALLED] != everybody:
        at = next_code(m, core)
        if at < 0:
            return
        if m[c + f.HOLDS] == m[f.HELD]:
            m[f.SHORT] = 1
            return
        row, index = m[f.AT_CODE] + at * f.CODE, m[c + f.COUNT]
        pipe = m[row + f.PIPE]
        m[c + f.AT], m[c + f.COUNT] = at + 1, index + 1
        entry = entered(m, core, at, row, -1, index)
        if (
            issued(m, core, pipe, entry)
            and m[c + f.HELD_PIPES] >> pipe & 1 == 0
            and not uses_held(m, core, row, m[row + f.TRAILS])
            and begin(m, core, pipe, row, entry)
        ):
            continue
        m[c + f.HOLDS] += 1
        hold(m, core, pipe, row)
        if nothing_before(m, core, m[row + f.BEHIND]):
            return
