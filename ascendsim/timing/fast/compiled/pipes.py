"""The pipes of a core: an instruction starts, works, moves its bytes and ends (rules 2 to 4)."""

from __future__ import annotations

from typing import Any

from ascendsim.timing.fast.compiled import state as f
from ascendsim.timing.fast.compiled.held import slot_of


def start(m: Any, core: int, pipe: int, row: int, named: int, issued: int) -> int:
    """Start an instruction whose waits are all over (rule 2); return the cycle."""
    c, pipes = m[f.AT_CORES] + core * f.CORES, m[f.PIPES]
    p = m[f.AT_PIPES] + (core * pipes + pipe) * f.PIPE_COLUMNS
    ready = max(issued, m[p + f.FREE])
    time = ready
    after, cause, newest = -1, -1, -1
    known = m[f.AT_KNOWN] + (core * pipes + pipe) * pipes
    slots = m[f.AT_SLOTS] + m[c + f.SLOT] * f.SLOTS
    for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
        w = slots + slot_of(m[use], named) * f.SLOTS
        writes = m[use] & 1
        if m[w + f.W_INDEX] >= 0 and m[w + f.W_PIPE] != pipe and (writes or not m[row + f.TRAILS]):
            # Of waits that end together the newest instruction is the cause.
            on = m[w + f.W_INDEX]
            # What an instruction before it has trailed is known without the flag of a wait.
            new = not m[f.TRAILED] or know(m, core, pipe, m[w + f.W_PIPE], on)
            if new and (m[w + f.W_DONE] > after or (m[w + f.W_DONE] == after and on > newest)):
                after, cause, newest = m[w + f.W_DONE], m[w + f.W_PIPE], on
        if writes and m[w + f.READERS]:
            readers, other = m[w + f.READERS], 0
            r = m[f.AT_READERS] + (m[c + f.SLOT] + slot_of(m[use], named)) * pipes * f.READER
            while readers:
                if readers & 1 and other != pipe:
                    on = m[r + f.R_INDEX]
                    new = not m[f.TRAILED] or on > m[known + other]
                    if new and (m[r + f.R_END] > after or (m[r + f.R_END] == after and on > newest)):
                        after, cause, newest = m[r + f.R_END], other, on
                readers >>= 1
                other += 1
                r += f.READER
    if after >= 0 and after + m[f.FLAG_CYCLES] > time:
        time = after + m[f.FLAG_CYCLES]
    if m[m[f.AT_PRICES] + m[row + f.PRICE] * f.PRICES + f.DRAINS] and m[p + f.VISIBLE] >= time:
        # Of two causes that end together the pipe itself comes first.
        time, cause = m[p + f.VISIBLE], pipe
    if time > ready:
        m[m[f.AT_WAITS] + (core * pipes + pipe) * pipes + cause] += time - ready
    queue = m[f.QUEUE]
    m[m[f.AT_STARTS] + (core * pipes + pipe) * queue + (m[p + f.STARTED] & (queue - 1))] = time
    m[p + f.STARTED] += 1
    return int(time)


def know(m: Any, core: int, pipe: int, other: int, on: int) -> bool:
    """Note that a pipe knows the result of an instruction to be there; tell whether that is new to it."""
    known = m[f.AT_KNOWN] + (core * m[f.PIPES] + pipe) * m[f.PIPES] + other
    new = bool(on > m[known])
    if new:
        m[known] = on
    return new


def finish(
    m: Any,
    core: int,
    pipe: int,
    row: int,
    named: int,
    index: int,
    begun: int,
    began: int,
    free: int,
    late: int,
) -> None:
    """Let an instruction leave its pipe, and its result become visible (rules 3 and 4).

    It has started at `begun`, its work at `began`; its last byte has come at `free`, over links that add the
    latency `late`.
    """
    c, pipes = m[f.AT_CORES] + core * f.CORES, m[f.PIPES]
    p = m[f.AT_PIPES] + (core * pipes + pipe) * f.PIPE_COLUMNS
    price = m[f.AT_PRICES] + m[row + f.PRICE] * f.PRICES
    latency, pace, least = m[price + f.LATENCY] + late, m[price + f.PACE], m[price + f.LEAST]
    visible = max(m[p + f.VISIBLE], free + latency)
    if pace:
        visible = max(visible, began + pace + latency)
    # After the result: the least is how soon the next may follow, not how late this one shows.
    if free < began + least:
        free = began + least
        visible = max(visible, free)
    m[p + f.FREE], m[p + f.VISIBLE] = free, visible
    m[m[f.AT_BUSY] + core * pipes + pipe] += free - begun
    slots = m[f.AT_SLOTS] + m[c + f.SLOT] * f.SLOTS
    for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
        w = slots + slot_of(m[use], named) * f.SLOTS
        if m[use] & 1:
            m[w + f.W_PIPE], m[w + f.W_INDEX], m[w + f.W_DONE], m[w + f.READERS] = pipe, index, visible, 0
            m[w + f.W_LEAD] = begun + m[price + f.LEAD]
        else:
            r = m[f.AT_READERS] + ((m[c + f.SLOT] + slot_of(m[use], named)) * pipes + pipe) * f.READER
            m[r + f.R_INDEX], m[r + f.R_END] = index, free
            m[w + f.READERS] |= 1 << pipe
    if m[c + f.RECORD] >= 0:
        span = m[f.AT_SPANS] + 4 * (m[c + f.RECORD] + index)
        m[span + 1], m[span + 2], m[span + 3] = begun, free, visible


def behind(m: Any, core: int, pipe: int, row: int, named: int, begun: int, entry: int) -> int:
    """Return when the work of an instruction begins that trails others; note when it ends at the earliest."""
    c = m[f.AT_CORES] + core * f.CORES
    slots = m[f.AT_SLOTS] + m[c + f.SLOT] * f.SLOTS
    piece = m[m[f.AT_PRICES] + m[row + f.PRICE] * f.PRICES + f.PIECE]
    began = begun
    for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
        w = slots + slot_of(m[use], named) * f.SLOTS
        other, on = m[w + f.W_PIPE], m[w + f.W_INDEX]
        if m[use] & 1 or on < 0 or other == pipe or outdone(m, core, row, named, other, on):
            continue
        if know(m, core, pipe, other, on):
            began = max(began, m[w + f.W_LEAD])
            m[entry + f.LAST] = max(m[entry + f.LAST], m[w + f.W_DONE] + piece)
    return began


def outdone(m: Any, core: int, row: int, named: int, pipe: int, index: int) -> bool:
    """Tell whether an instruction reads a newer result of a pipe as well; then it trails that alone."""
    # An older result is visible no later, so waiting for it changes nothing; its first piece may be later.
    slots = m[f.AT_SLOTS] + m[m[f.AT_CORES] + core * f.CORES + f.SLOT] * f.SLOTS
    for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
        w = slots + slot_of(m[use], named) * f.SLOTS
        if m[use] & 1 == 0 and m[w + f.W_PIPE] == pipe and m[w + f.W_INDEX] > index:
            return True
    return False


def send(m: Any, flight: int, transfer: int, begin: int) -> None:
    """Let the bytes of a transfer flow from a cycle on, which may be a later one."""
    place = m[f.AT_FLIGHTS] + flight * f.FLIGHT
    m[place + f.F_BEGIN], m[place + f.F_TRANSFER] = begin, transfer
    m[place + f.F_LEFT] = m[m[f.AT_TRANSFERS] + transfer * f.TRANSFERS + f.FLOWS]
    # The first word of the list counts; the last of the list begins first.
    waiting = m[f.AT_WAITING]
    at = waiting + m[waiting]
    while at > waiting and m[m[f.AT_FLIGHTS] + m[at] * f.FLIGHT + f.F_BEGIN] < begin:
        m[at + 1] = m[at]
        at -= 1
    m[at + 1] = flight
    m[waiting] += 1
