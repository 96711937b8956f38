"""One phase of a kernel, all cores together: from event to event, until nothing moves any more.

The life of an instruction
    1   `next_row` takes it from its core's program, `issue_time` gives it a place in the queue of its pipe
    2   one that needs nothing unknown starts and ends at once (`begin`, `work`, `finish`)
    3   any other is held (`entered`, `hold`) until a transfer lands: `go_on` looks at it again (`revisit`)
    4   a transfer flies (`send`) until `land` notes its end, and its core goes on (`advance`)
A core with one scalar unit issues in order (`issue`); one with several lets each go on alone (`issue_all`).

Names    m: all tables in one array; c, p, entry, row: where the columns of a core, a pipe, a held instruction
         and an instruction's form begin in it; f: the columns (`compiled_flows.py`); named: the slots of an
         instruction in one word
"""

from __future__ import annotations

from typing import Any

from ascendsim.native import Native
from ascendsim.program.walk import ROWS, total, walk
from ascendsim.timing import compiled_flows as f
from ascendsim.timing.compiled_flows import (
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
from ascendsim.timing.compiled_held import (
    behind,
    entered,
    entry_at,
    finish,
    hold,
    know,
    let_go,
    note_needs,
    outdone,
    ready,
    send,
    slot_of,
    sources_of,
    start,
    uses_held,
    want,
)


def next_row(m: Any, rows: Any, core: int) -> int:
    """Return where the next row of a core stands, or -1 at the end of its program."""
    c = m[f.AT_CORES] + core * f.CORES
    if m[c + f.AT] == m[c + f.LAST_AT]:
        if m[c + f.WALK_AT] < 0:
            return -1
        first = m[c + f.BUFFER]
        last = walk(m, m[f.AT_WALKS], m[c + f.WALK_AT], rows, first, first + m[f.CHUNK], ROWS)
        if last == first:
            return -1
        note_needs(m, rows, first, last)
        m[c + f.AT], m[c + f.LAST_AT] = first, last
    return int(m[c + f.AT])


def begin(m: Any, core: int, pipe: int, row: int, named: int, entry: int) -> bool:
    """Start an instruction; return whether it is over (else its bytes are under way)."""
    m[entry + f.START], m[entry + f.LAST] = start(m, core, pipe, row, named, m[entry + f.ISSUE]), -1
    m[entry + f.FLIES] = f.TRAILING
    return work(m, core, pipe, row, named, entry)


def work(m: Any, core: int, pipe: int, row: int, named: int, entry: int) -> bool:
    """Let a started instruction work, unless it trails something held; return whether it is over."""
    begun = m[entry + f.START]
    began = begun
    if m[row + f.TRAILS]:
        if not ready(m, core, pipe, row, named, entry, 0):
            return False
        began = behind(m, core, pipe, row, named, begun, entry)
    free, late = began + m[m[f.AT_PRICES] + m[row + f.PRICE] * f.PRICES + f.CYCLES], 0
    if m[entry + f.CLASS] >= 0:
        transfer = m[f.AT_TRANSFERS] + m[entry + f.CLASS] * f.TRANSFERS
        if m[transfer + f.LASTS] < 0:
            m[entry + f.FLIES], m[entry + f.BEGUN] = f.FLYING, began
            send(m, core * m[f.PIPES] + pipe, m[entry + f.CLASS], free)
            return False
        free, late = free + m[transfer + f.LASTS], m[transfer + f.LINK_LATENCY]
        if free > m[f.STOP]:
            m[f.PASSED] = 1
    finish(m, core, pipe, row, named, m[entry + f.INDEX], begun, began, max(free, m[entry + f.LAST]), late)
    return True


def go_on(m: Any, core: int) -> bool:
    """Let woken pipes go on with the instructions that they hold; return whether any of these is over."""
    c, over = m[f.AT_CORES] + core * f.CORES, False
    while m[c + f.WOKEN]:
        woken, pipe = m[c + f.WOKEN], 0
        m[c + f.WOKEN] = 0
        while woken:
            if woken & 1:
                p = m[f.AT_PIPES] + (core * m[f.PIPES] + pipe) * f.PIPE_COLUMNS
                while m[p + f.HEAD] != m[p + f.TAIL]:
                    entry = entry_at(m, core, pipe, m[p + f.HEAD])
                    row, named = m[entry + f.FORM_AT], m[entry + f.NAMED]
                    if not revisit(m, core, pipe, row, named, entry):
                        break
                    let_go(m, core, pipe, row, named)
                    over = True
            woken >>= 1
            pipe += 1
    return over


def revisit(m: Any, core: int, pipe: int, row: int, named: int, entry: int) -> bool:
    """Look at the instruction that a pipe has held for the longest; return whether it is over now."""
    if m[entry + f.ISSUE] < 0:
        return False
    if m[entry + f.FLIES] == f.TRAILING:
        return work(m, core, pipe, row, named, entry)
    if m[entry + f.FLIES] == f.FLYING:
        p = m[f.AT_PIPES] + (core * m[f.PIPES] + pipe) * f.PIPE_COLUMNS
        if m[p + f.LANDED] < 0:
            return False
        late = m[m[f.AT_TRANSFERS] + m[entry + f.CLASS] * f.TRANSFERS + f.LINK_LATENCY]
        free = max(m[p + f.LANDED], m[entry + f.LAST])
        m[p + f.LANDED] = -1
        finish(
            m, core, pipe, row, named, m[entry + f.INDEX], m[entry + f.START], m[entry + f.BEGUN], free, late
        )
        return True
    return ready(m, core, pipe, row, named, entry, m[row + f.TRAILS]) and begin(
        m, core, pipe, row, named, entry
    )


def issue(m: Any, rows: Any, core: int) -> None:
    """Issue the instructions of a core with one scalar unit, until a full queue has no known end."""
    c, pipes = m[f.AT_CORES] + core * f.CORES, m[f.PIPES]
    scalar = m[f.AT_PIPES] + core * pipes * f.PIPE_COLUMNS + f.FREE
    while not m[f.PASSED]:
        at = next_row(m, rows, core)
        if at < 0:
            return
        row, named = m[f.AT_FORMS] + (rows[at] & 0xFFFFFFFF) * m[f.FORM], rows[at + 1]
        pipe = m[row + f.PIPE]
        time = issue_time(m, core, pipe, 0, m[scalar])
        if time < 0:
            return
        m[scalar], m[c + f.AT] = time, at + 2
        index = m[c + f.COUNT]
        m[c + f.COUNT] = index + 1
        if m[c + f.RECORD] >= 0:
            m[m[f.AT_SPANS] + 4 * (m[c + f.RECORD] + index)] = time
        if m[c + f.HELD_PIPES] >> pipe & 1 == 0 and not uses_held(
            m, core, pipe, row, named, m[row + f.TRAILS]
        ):
            if not m[row + f.MOVES] and not m[row + f.TRAILS]:
                # The usual instruction is over at once.
                begun = start(m, core, pipe, row, named, time)
                free = begun + m[m[f.AT_PRICES] + m[row + f.PRICE] * f.PRICES + f.CYCLES]
                finish(m, core, pipe, row, named, index, begun, begun, free, 0)
                continue
            if begin(m, core, pipe, row, named, entered(m, core, pipe, row, named, time, index)):
                continue
        else:
            entered(m, core, pipe, row, named, time, index)
        hold(m, core, pipe, row, named)
        if nothing_before(m, core, rows[at] >> 32):
            return


def issue_time(m: Any, core: int, pipe: int, scalar: int, before: int) -> int:
    """Issue an instruction to a pipe; return the cycle, or -1 if nobody knows yet when its queue has room.

    `scalar` is the pipe of the scalar unit, which has issued up to the cycle `before`.
    """
    c, pipes, queue = m[f.AT_CORES] + core * f.CORES, m[f.PIPES], m[f.QUEUE]
    p = m[f.AT_PIPES] + (core * pipes + pipe) * f.PIPE_COLUMNS
    time = before + m[f.ISSUE_CYCLES]
    ahead = m[p + f.ISSUED] - m[m[f.AT_DEPTHS] + m[c + f.KIND] * pipes + pipe]
    if ahead >= 0:
        if m[p + f.STARTED] <= ahead:
            return -1
        room = m[m[f.AT_STARTS] + (core * pipes + pipe) * queue + (ahead & (queue - 1))]
        if room > time:
            m[m[f.AT_WAITS] + (core * pipes + scalar) * pipes + pipe] += room - time
            time = room
    m[p + f.ISSUED] += 1
    return int(time)


def nothing_before(m: Any, core: int, needing: int) -> bool:
    """Return whether no further transfer of a core can begin before one that is under way has landed.

    The instruction just issued is held, and with it the next transfers of the pipes in `needing`. To look at
    what comes after it now would only find instructions that are held as well.
    """
    held = m[m[f.AT_CORES] + core * f.CORES + f.HELD_PIPES] | needing
    return bool(m[f.MOVERS] & ~held == 0)


def issued(m: Any, core: int, pipe: int, entry: int) -> bool:
    """Issue an instruction that is held; return whether its scalar unit could."""
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
    """Issue held instructions that lack an issue, as far as the scalar units can; return whether any was."""
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
    """Issue the instructions of a core with several scalar units, until none of these can go on."""
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
    """Run a phase; `m` holds all tables (`compiled_flows.py`), `rows` those of instructions, with room.

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


# Of each function those that it calls come before it.
_FUNCTIONS: Any = [slot_of, know, start, finish, outdone, behind, send]
_FUNCTIONS += [entry_at, uses_held, entered, ready, hold, let_go]
_FUNCTIONS += [total, walk, want, sources_of, note_needs]
_FUNCTIONS += [next_row, work, begin, revisit, go_on, issue_time, nothing_before, issue]
_FUNCTIONS += [issued, next_unissued, issue_held, issue_all, advance]
_FUNCTIONS += [port_of, join, leave, own_level, level, limits, share, settle, next_event, land, run]
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
