"""One program: it issues in order, and runs what has to wait for nothing that is still under way.

A core here is a program of the phase: mostly one core, or a cube core with its vector cores (`cluster.py`).

What has to wait for a transfer is held, and so is what uses a slot that something held uses, or comes
after something held on its pipe. All else runs as soon as it is issued: everything it needs is known by
then. When a transfer has landed the core goes through what it holds, in program order, and then issues on.
"""

from __future__ import annotations

from typing import Any

from ascendsim.timing.fast import state as f
from ascendsim.timing.fast.pipes import behind, finish, send, start


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
        if uses_held(m, core, row, 0):
            return False
        began = behind(m, core, pipe, row, begun, entry)
    free = began + m[m[f.AT_PRICES] + m[row + f.PRICE] * f.PRICES + f.CYCLES]
    if m[entry + f.CLASS] < 0:
        finish(m, core, pipe, row, m[entry + f.INDEX], begun, began, max(free, m[entry + f.LAST]), 0)
        return True
    m[entry + f.FLIES], m[entry + f.BEGUN] = f.FLYING, began
    send(m, core * m[f.PIPES] + pipe, m[entry + f.CLASS], free)
    return False


def uses_held(m: Any, core: int, row: int, trails: int) -> bool:
    """Tell whether an instruction has to wait for one that is held, by the slots that both use.

    One that `trails` others does not wait for what it reads before it starts.
    """
    c = m[f.AT_CORES] + core * f.CORES
    if m[c + f.HELD_PIPES] == 0:
        return False
    slots = m[f.AT_SLOTS] + m[c + f.SLOT] * f.SLOTS
    for use in range(m[f.AT_USES] + m[row + f.FIRST_USE], m[f.AT_USES] + m[row + f.LAST_USE]):
        w = slots + (m[use] >> 1) * f.SLOTS
        if trails and m[use] & 1 == 0:
            continue
        if m[w + f.WRITE_HELD] == m[c + f.ROUND] or (m[use] & 1 and m[w + f.READ_HELD] == m[c + f.ROUND]):
            return True
    return False


def hold(m: Any, core: int, pipe: int, row: int) -> None:
    """Note that an instruction is held: its pipe is, and so are the slots that it uses."""
    c = m[f.AT_CORES] + core * f.CORES
    m[c + f.HELD_PIPES] |= 1 << pipe
    slots = m[f.AT_SLOTS] + m[c + f.SLOT] * f.SLOTS
    for use in range(m[f.AT_USES] + m[row + f.FIRST_USE], m[f.AT_USES] + m[row + f.LAST_USE]):
        w = slots + (m[use] >> 1) * f.SLOTS
        if m[use] & 1:
            m[w + f.WRITE_HELD] = m[c + f.ROUND]
        else:
            m[w + f.READ_HELD] = m[c + f.ROUND]


def issue(m: Any, core: int) -> None:
    """Issue instructions until the program ends or a queue is full of which nobody knows when it moves on."""
    c, pipes = m[f.AT_CORES] + core * f.CORES, m[f.PIPES]
    scalar = m[f.AT_PIPES] + core * pipes * f.PIPE_COLUMNS + f.FREE
    while True:
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
        if m[c + f.HELD_PIPES] >> pipe & 1 == 0 and not uses_held(m, core, row, m[row + f.TRAILS]):
            if not m[row + f.MOVES] and not m[row + f.TRAILS]:
                # The usual instruction is over at once.
                begun = start(m, core, pipe, row, time)
                free = begun + m[m[f.AT_PRICES] + m[row + f.PRICE] * f.PRICES + f.CYCLES]
                finish(m, core, pipe, row, index, begun, begun, free, 0)
                continue
            if begin(m, core, pipe, row, entered(m, core, at, row, time, index)):
                continue
        else:
            entered(m, core, at, row, time, index)
        m[c + f.HOLDS] += 1
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


def entered(m: Any, core: int, at: int, row: int, time: int, index: int) -> int:
    """Describe an instruction in the next free row of those that its core holds; return the row."""
    c = m[f.AT_CORES] + core * f.CORES
    entry = m[f.AT_ENTRIES] + (core * m[f.HELD] + m[c + f.HOLDS]) * f.ENTRY
    m[entry + f.CODE_AT], m[entry + f.ISSUE], m[entry + f.INDEX] = at, time, index
    m[entry + f.CLASS], m[entry + f.FLIES] = -1, 0
    if m[row + f.MOVES]:
        outcome = 0
        if m[c + f.FIRST_OUTCOME] >= 0:
            outcome = m[m[f.AT_OUTCOMES] + m[c + f.FIRST_OUTCOME] + m[c + f.MOVED]]
        m[c + f.MOVED] += 1
        traffic = m[m[f.AT_PRICES] + m[row + f.PRICE] * f.PRICES + f.TRAFFIC]
        # Beside a cube core are vector cores.
        kind = m[c + f.KIND] if m[row + f.PIPE] < f.UNIT else 1
        known = (kind * m[f.TRAFFICS] + traffic) * m[f.OUTCOMES] + outcome
        m[entry + f.CLASS] = m[m[f.AT_CLASSES] + known]
    return int(entry)


def nothing_before(m: Any, core: int, needing: int) -> bool:
    """Tell whether no further transfer of a core can begin before one that is under way has landed.

    The instruction just issued is held, and with it the next transfers of the pipes in `needing`. To look at
    what comes after it now would only find instructions that are held as well.
    """
    held = m[m[f.AT_CORES] + core * f.CORES + f.HELD_PIPES] | needing
    return bool(m[f.MOVERS] & ~held == 0)
