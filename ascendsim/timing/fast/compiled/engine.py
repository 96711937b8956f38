"""One phase of a kernel, all cores together: from event to event, until nothing moves any more."""

from __future__ import annotations

from typing import Any

from ascendsim.timing.fast.compiled import state as f
from ascendsim.timing.fast.compiled.cluster import issue_all, issue_held
from ascendsim.timing.fast.compiled.cores import go_on, issue, next_row
from ascendsim.timing.fast.compiled.flows import next_event, settle, share
from ascendsim.timing.fast.compiled.needs import note_needs


def advance(m: Any, rows: Any, core: int) -> None:
    """Let a core do all that it can before another transfer lands."""
    if m[m[f.AT_CORES] + core * f.CORES + f.OF_CORES] > 1:
        while go_on(m, core) or issue_held(m, core):
            pass
        issue_all(m, rows, core)
    else:
        go_on(m, core)
        issue(m, rows, core)


def land(m: Any, rows: Any, now: int) -> None:
    """Let the cores go on whose transfers have ended."""
    landed = m[f.AT_LANDED]
    for number in range(landed + 1, landed + 1 + m[landed]):
        flight = m[number]
        m[m[f.AT_PIPES] + flight * f.PIPE_COLUMNS + f.LANDED] = now
        m[m[f.AT_CORES] + flight // m[f.PIPES] * f.CORES + f.WOKEN] |= 1 << flight % m[f.PIPES]
    while m[landed]:
        flight = m[landed + m[landed]]
        m[landed] -= 1
        # Of several transfers of a core the first one that is met takes care of all.
        if m[m[f.AT_PIPES] + flight * f.PIPE_COLUMNS + f.LANDED] >= 0:
            advance(m, rows, flight // m[f.PIPES])


def run(m: Any, rows: Any) -> int:
    """Run a phase; `m` holds all tables (`state.py`), `rows` those of instructions, and room for the others.

    Returns  FINISHED; STUCK if something waits for ever; FULL if HELD is too small; STOPPED once a transfer
             is under way after the cycle STOP
    """
    for core in range(m[f.TEAMS]):
        c = m[f.AT_CORES] + core * f.CORES
        if m[c + f.WALK_AT] < 0:
            note_needs(m, rows, m[c + f.AT], m[c + f.LAST_AT])
    for link in range(f.LINKS):
        m[f.NEXT + link] = f.NEVER
    for core in range(m[f.TEAMS]):
        advance(m, rows, core)
    while not m[f.PASSED]:
        now = next_event(m)
        if now == f.NEVER or m[f.SHORT]:
            break
        if now > m[f.STOP]:
            m[f.PASSED] = 1
            break
        dirty = settle(m, now)
        land(m, rows, now)
        for link in range(f.LINKS):
            if dirty >> link & 1:
                share(m, link, now)
    if m[f.PASSED]:
        return f.STOPPED
    if m[f.SHORT]:
        return f.FULL
    for core in range(m[f.TEAMS]):
        if m[m[f.AT_CORES] + core * f.CORES + f.HELD_PIPES] or next_row(m, rows, core) >= 0:
            return f.STUCK
    return f.FINISHED
