"""The compiled engine as machine code: all of its functions in one."""

from __future__ import annotations

from typing import Any

from ascendsim.native import Native
from ascendsim.program.walk import total, walk
from ascendsim.timing.fast.compiled.cluster import issue_all, issue_held, issued, next_unissued
from ascendsim.timing.fast.compiled.cores import (
    begin,
    go_on,
    issue,
    issue_time,
    next_row,
    nothing_before,
    revisit,
    work,
)
from ascendsim.timing.fast.compiled.engine import advance, land
from ascendsim.timing.fast.compiled.engine import run as run_tables
from ascendsim.timing.fast.compiled.flows import (
    join,
    leave,
    level,
    limits,
    next_event,
    own_level,
    port_of,
    settle,
    share,
)
from ascendsim.timing.fast.compiled.held import entered, entry_at, hold, let_go, ready, slot_of, uses_held
from ascendsim.timing.fast.compiled.needs import note_needs, sources_of, want
from ascendsim.timing.fast.compiled.pipes import behind, finish, know, outdone, send, start

# Of each function those that it calls come before it.
_FUNCTIONS: Any = [slot_of, know, start, finish, outdone, behind, send]
_FUNCTIONS += [entry_at, uses_held, entered, ready, hold, let_go]
_FUNCTIONS += [total, walk, want, sources_of, note_needs]
_FUNCTIONS += [next_row, work, begin, revisit, go_on, issue_time, nothing_before, issue]
_FUNCTIONS += [issued, next_unissued, issue_held, issue_all, advance]
_FUNCTIONS += [port_of, join, leave, own_level, level, limits, share, settle, next_event, land, run_tables]
# What runs for every instruction, or every transfer.
_INLINE: Any = (
    slot_of,
    total,
    entry_at,
    uses_held,
    ready,
    start,
    finish,
    nothing_before,
    entered,
    issue_time,
    port_of,
    join,
    leave,
    level,
    limits,
)
ENGINE = Native(tuple(_FUNCTIONS), ("int64[]", "int64[]"), _INLINE)
