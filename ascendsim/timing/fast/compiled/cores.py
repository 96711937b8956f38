"""One program: it issues in order, and runs what has to wait for nothing that is still under way.

A core here is a program of the phase: mostly one core, or a cube core with its vector cores (`cluster.py`).

What has to wait for a transfer is held (`held.py`), and so is what uses a slot that something held uses, or
comes after something held on its pipe. All else runs as soon as it is issued: everything it needs is known by
then. When a transfer has landed the pipes of the core go on with what they hold, and then it issues on.
"""

from __future__ import annotations

from typing import Any

from ascendsim.program.walk import ROWS, walk
from ascendsim.timing.fast.compiled import state as f
from ascendsim.timing.fast.compiled.held import entered, entry_at, hold, let_go, ready, uses_held
from ascendsim.timing.fast.compiled.needs import note_needs
from ascendsim.timing.fast.compiled.pipes import behind, finish, send, start


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
    """Start an instruction; tell whether it is over, or else its bytes are under way."""
    m[entry + f.START], m[entry + f.LAST] = start(m, core, pipe, row, named, m[entry + f.ISSUE]), -1
    m[entry + f.FLIES] = f.TRAILING
    return work(m, core, pipe, row, named, entry)


def work(m: Any, core: int, pipe: int, row: int, named: int, entry: int) -> bool:
    """Let an instruction that has started work, unless it trails something held; tell whether it is over."""
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
    """Let pipes that are woken go on with what they hold until none is; tell whether anything is over."""
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
    """Look at the instruction that a pipe has held for the longest; tell whether it is over now."""
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
    """Issue instructions until the program ends or a queue is full of which nobody knows when it moves on."""
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
    """Tell whether no further transfer of a core can begin before one that is under way has landed.

    The instruction just issued is held, and with it the next transfers of the pipes in `needing`. To look at
    what comes after it now would only find instructions that are held as well.
    """
    held = m[m[f.AT_CORES] + core * f.CORES + f.HELD_PIPES] | needing
    return bool(m[f.MOVERS] & ~held == 0)
