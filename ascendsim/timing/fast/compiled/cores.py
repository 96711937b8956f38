"""One program: it issues in order, and runs what has to wait for nothing that is still under way.

A core here is a program of the phase: mostly one core, or a cube core with its vector cores (`cluster.py`).

What has to wait for a transfer is held (`held.py`), and so is what uses a slot that something held uses, or
comes after something held on its pipe. All else runs as soon as it is issued: everything it needs is known by
then. When a transfer has landed the pipes of the core go on with what they hold, and then it issues on.
"""

from __future__ import annotations

from typing import Any

from ascendsim.timing.fast.compiled import state as f
from ascendsim.timing.fast.compiled.held import entered, entry_at, hold, let_go, ready, uses_held
from ascendsim.timing.fast.compiled.pipes import behind, finish, send, start


def next_code(m: Any, core: int) -> int:
    """Return the number of the next instruction of a core in the code, or -1 at the end of its program."""
    c = m[f.AT_CORES] + core * f.CORES
    while m[c + f.AT] == m[c + f.LAST_AT]:
        if m[c + f.STEP] == m[c + f.LAST_STEP]:
            m[c + f.TIMES] -= 1
            if m[c + f.TIMES] <= 0:
                m[c + f.SEGMENT] += 1
                if m[c + f.SEGMENT] >= m[c + f.LAST_SEGMENT]:
                    m[c + f.SEGMENT], m[c + f.TIMES] = m[c + f.LAST_SEGMENT], 0
                    return -1
                m[c + f.TIMES] = m[m[f.AT_SEGMENTS] + 3 * m[c + f.SEGMENT] + 2]
            segment = m[f.AT_SEGMENTS] + 3 * m[c + f.SEGMENT]
            m[c + f.STEP], m[c + f.LAST_STEP] = m[segment], m[segment + 1]
        step = m[f.AT_STEPS] + 2 * m[c + f.STEP]
        m[c + f.STEP] += 1
        m[c + f.AT], m[c + f.LAST_AT] = m[step], m[step + 1]
    return int(m[c + f.AT])


def begin(m: Any, core: int, pipe: int, row: int, entry: int) -> bool:
    """Start an instruction; tell whether it is over, or else its bytes are under way."""
    m[entry + f.START], m[entry + f.LAST] = start(m, core, pipe, row, m[entry + f.ISSUE]), -1
    m[entry + f.FLIES] = f.TRAILING
    return work(m, core, pipe, row, entry)


def work(m: Any, core: int, pipe: int, row: int, entry: int) -> bool:
    """Let an instruction that has started work, unless it trails something held; tell whether it is over."""
    begun = m[entry + f.START]
    began = begun
    if m[row + f.TRAILS]:
        if not ready(m, core, pipe, row, entry, 0):
            return False
        began = behind(m, core, pipe, row, begun, entry)
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
    finish(m, core, pipe, row, m[entry + f.INDEX], begun, began, max(free, m[entry + f.LAST]), late)
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
                    row = m[f.AT_CODE] + m[entry + f.CODE_AT] * f.CODE
                    if not revisit(m, core, pipe, row, entry):
                        break
                    let_go(m, core, pipe, row)
                    over = True
            woken >>= 1
            pipe += 1
    return over


def revisit(m: Any, core: int, pipe: int, row: int, entry: int) -> bool:
    """Look at the instruction that a pipe has held for the longest; tell whether it is over now."""
    if m[entry + f.ISSUE] < 0:
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
    return ready(m, core, pipe, row, entry, m[row + f.TRAILS]) and begin(m, core, pipe, row, entry)


def issue(m: Any, core: int) -> None:
    """Issue instructions until the program ends or a queue is full of which nobody knows when it moves on."""
    c, pipes = m[f.AT_CORES] + core * f.CORES, m[f.PIPES]
    scalar = m[f.AT_PIPES] + core * pipes * f.PIPE_COLUMNS + f.FREE
    while not m[f.PASSED]:
        at = next_code(m, core)
        if at < 0:
            return
        row = m[f.AT_CODE] + at * f.CODE
        pipe = m[row + f.PIPE]
        time = issue_time(m, core, pipe, 0, m[scalar])
        if time < 0:
            return
        m[scalar], m[c + f.AT] = time, at + 1
        index = m[c + f.COUNT]
        m[c + f.COUNT] = index + 1
        if m[c + f.RECORD] >= 0:
            m[m[f.AT_SPANS] + 4 * (m[c + f.RECORD] + index)] = time
        if m[c + f.HELD_PIPES] >> pipe & 1 == 0 and not uses_held(m, core, pipe, row, m[row + f.TRAILS]):
            if not m[row + f.MOVES] and not m[row + f.TRAILS]:
                # The usual instruction is over at once.
                begun = start(m, core, pipe, row, time)
                free = begun + m[m[f.AT_PRICES] + m[row + f.PRICE] * f.PRICES + f.CYCLES]
                finish(m, core, pipe, row, index, begun, begun, free, 0)
                continue
            if begin(m, core, pipe, row, entered(m, core, pipe, at, row, time, index)):
                continue
        else:
            entered(m, core, pipe, at, row, time, index)
        hold(m, core, pipe, row)
        if nothing_before(m, core, m[row + f.BEHIND]):
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
