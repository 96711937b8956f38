"""One phase of a kernel, all cores together: from event to event, until nothing moves any more."""

from __future__ import annotations

from typing import Any

from ascendsim.timing.fast import state as f
from ascendsim.timing.fast.cluster import issue_all, issued
from ascendsim.timing.fast.cores import begin, hold, issue, next_code, uses_held, work
from ascendsim.timing.fast.flows import next_event, settle, share
from ascendsim.timing.fast.pipes import finish


def advance(m: Any, core: int) -> None:
    """Let a core do all that it can before another transfer lands."""
    c, first = m[f.AT_CORES] + core * f.CORES, m[f.AT_ENTRIES] + core * m[f.HELD] * f.ENTRY
    m[c + f.ROUND] += 1
    m[c + f.HELD_PIPES] = m[c + f.STALLED] = 0
    held, m[c + f.HOLDS] = m[c + f.HOLDS], 0
    for number in range(held):
        entry = first + number * f.ENTRY
        row = m[f.AT_CODE] + m[entry + f.CODE_AT] * f.CODE
        if not revisit(m, core, m[row + f.PIPE], row, entry):
            place = first + m[c + f.HOLDS] * f.ENTRY
            m[c + f.HOLDS] += 1
            if place != entry:
                for column in range(f.ENTRY):
                    m[place + column] = m[entry + column]
            hold(m, core, m[row + f.PIPE], row)
    if m[c + f.OF_CORES] > 1:
        issue_all(m, core)
    else:
        issue(m, core)


def revisit(m: Any, core: int, pipe: int, row: int, entry: int) -> bool:
    """Look at an instruction that was held; tell whether it is over now."""
    c = m[f.AT_CORES] + core * f.CORES
    if m[entry + f.ISSUE] < 0 and not issued(m, core, pipe, entry):
        return False
    if m[entry + f.FLIES] == f.TRAILING:
        return work(m, core, pipe, row, entry)
    if m[entry + f.FLIES] == f.FLYING:
        p = m[f.AT_PIPES] + (core * m[f.PIPES] + pipe) * f.PIPE_COLUMNS
        if m[p + f.LANDED] < 0:
            return False
        late = m[m[f.AT_TRANSFERS] + m[entry + f.CLASS] * f.TRANSFERS + f.LINK_LATENCY]
        free = max(m[p + f.LANDED], m[entry + f.LAST])
        m[p + f.LANDED] = -1
        finish(m, core, pipe, row, m[entry + f.INDEX], m[entry + f.START], m[entry + f.BEGUN], free, late)
        return True
    if m[c + f.HELD_PIPES] >> pipe & 1 or uses_held(m, core, row, m[row + f.TRAILS]):
        return False
    return begin(m, core, pipe, row, entry)


def land(m: Any, now: int) -> None:
    """Let the cores go on whose transfers have ended."""
    landed = m[f.AT_LANDED]
    for number in range(landed + 1, landed + 1 + m[landed]):
        m[m[f.AT_PIPES] + m[number] * f.PIPE_COLUMNS + f.LANDED] = now
    while m[landed]:
        flight = m[landed + m[landed]]
        m[landed] -= 1
        # Of several transfers of a core the first one that is met takes care of all.
        if m[m[f.AT_PIPES] + flight * f.PIPE_COLUMNS + f.LANDED] >= 0:
            advance(m, flight // m[f.PIPES])


def run(m: Any) -> int:
    """Run a phase; `m` holds all tables (`state.py`).

    Returns  FINISHED; STUCK if something waits for ever; FULL if HELD is too small
    """
    for core in range(m[f.TEAMS]):
        advance(m, core)
    while True:
        now = next_event(m)
        if now == f.NEVER or m[f.SHORT]:
            break
        dirty = settle(m, now)
        land(m, now)
        for link in range(f.LINKS):
            if dirty >> link & 1:
                share(m, link, now)
    if m[f.SHORT]:
        return f.FULL
    for core in range(m[f.TEAMS]):
        if m[m[f.AT_CORES] + core * f.CORES + f.HOLDS] or next_code(m, core) >= 0:
            return f.STUCK
    return f.FINISHED
