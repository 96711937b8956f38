"""Held instructions of a program: they wait for a transfer, pipe by pipe, each pipe in order.

A pipe goes on with the instruction that it has held for the longest. This one may go on when all held
instructions before it in the program have let go of its slots. Tickets show which ones came before: a slot
counts the uses of it that were held so far and those that are over, and an instruction that is held notes
how many came before its own.
"""

from __future__ import annotations

from typing import Any

from ascendsim.timing import compiled_flows as f


def slot_of(use: int, named: int) -> int:
    """Return the slot of a use, of the slots that a row has named."""
    return (named >> (use >> 32) & 0xFFFF) + (use >> 1 & 0x7FFFFFFF)


def uses_held(m: Any, core: int, pipe: int, row: int, named: int, trails: int) -> bool:
    """Return whether an instruction has to wait for any that is held, by the slots that both use.

    One that `trails` others does not wait for what it reads before it starts.
    """
    c = m[f.AT_CORES] + core * f.CORES
    if m[c + f.HELD_PIPES] == 0:
        return False
    slots = m[f.AT_SLOTS] + m[c + f.SLOT] * f.SLOTS
    for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
        w = slots + slot_of(m[use], named) * f.SLOTS
        if trails and m[use] & 1 == 0:
            continue
        late = m[w + f.WRITES_HELD] != m[w + f.WRITES_OVER]
        if late or (m[use] & 1 and m[w + f.READS_HELD] != m[w + f.READS_OVER]):
            m[w + f.WAKES] |= 1 << pipe
            return True
    return False


def entered(m: Any, core: int, pipe: int, row: int, named: int, time: int, index: int) -> int:
    """Describe an instruction in the next free row of what its pipe holds, with tickets; return the row."""
    c = m[f.AT_CORES] + core * f.CORES
    p = m[f.AT_PIPES] + (core * m[f.PIPES] + pipe) * f.PIPE_COLUMNS
    entry = entry_at(m, core, pipe, m[p + f.TAIL])
    m[entry + f.FORM_AT], m[entry + f.NAMED] = row, named
    m[entry + f.ISSUE], m[entry + f.INDEX] = time, index
    m[entry + f.CLASS], m[entry + f.FLIES] = -1, 0
    if m[row + f.MOVES]:
        outcome = 0
        if m[c + f.FIRST_OUTCOME] >= 0:
            outcome = m[m[f.AT_OUTCOMES] + m[c + f.FIRST_OUTCOME] + m[c + f.MOVED]]
        m[c + f.MOVED] += 1
        traffic = m[m[f.AT_PRICES] + m[row + f.PRICE] * f.PRICES + f.TRAFFIC]
        # Beside a cube core are vector cores.
        kind = m[c + f.KIND] if pipe < f.UNIT else 1
        known = (kind * m[f.TRAFFICS] + traffic) * m[f.OUTCOMES] + outcome
        m[entry + f.CLASS] = m[m[f.AT_CLASSES] + known]
    slots, ticket = m[f.AT_SLOTS] + m[c + f.SLOT] * f.SLOTS, entry + f.TICKETS
    for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
        w = slots + slot_of(m[use], named) * f.SLOTS
        m[ticket], m[ticket + 1] = m[w + f.WRITES_HELD], m[w + f.READS_HELD]
        ticket += 2
    return int(entry)


def entry_at(m: Any, core: int, pipe: int, number: int) -> int:
    """Return the row of an instruction that a pipe holds, by its number among all that it has held."""
    rows = (core * m[f.PIPES] + pipe) * m[f.HELD] + (number & (m[f.HELD] - 1))
    return int(m[f.AT_ENTRIES] + rows * m[f.ENTRY])


def ready(m: Any, core: int, pipe: int, row: int, named: int, entry: int, trails: int) -> bool:
    """Return whether all that is held and came before a held instruction has let go of its slots.

    If not, its pipe is woken when one of the slots for which that does not hold has been let go of once more.
    """
    slots = m[f.AT_SLOTS] + m[m[f.AT_CORES] + core * f.CORES + f.SLOT] * f.SLOTS
    ticket = entry + f.TICKETS
    for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
        w = slots + slot_of(m[use], named) * f.SLOTS
        if m[use] & 1:
            late = m[w + f.WRITES_OVER] != m[ticket] or m[w + f.READS_OVER] != m[ticket + 1]
        else:
            late = not trails and m[w + f.WRITES_OVER] != m[ticket]
        if late:
            m[w + f.WAKES] |= 1 << pipe
            return False
        ticket += 2
    return True


def hold(m: Any, core: int, pipe: int, row: int, named: int) -> None:
    """Hold the instruction that was entered last for a pipe."""
    c = m[f.AT_CORES] + core * f.CORES
    m[c + f.HELD_PIPES] |= 1 << pipe
    p = m[f.AT_PIPES] + (core * m[f.PIPES] + pipe) * f.PIPE_COLUMNS
    if m[entry_at(m, core, pipe, m[p + f.TAIL]) + f.ISSUE] >= 0:
        m[p + f.UNISSUED] = m[p + f.TAIL] + 1
    m[p + f.TAIL] += 1
    slots = m[f.AT_SLOTS] + m[c + f.SLOT] * f.SLOTS
    for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
        m[slots + slot_of(m[use], named) * f.SLOTS + (f.WRITES_HELD if m[use] & 1 else f.READS_HELD)] += 1


def let_go(m: Any, core: int, pipe: int, row: int, named: int) -> None:
    """Let go of the instruction that a pipe has held for the longest: it is over."""
    c = m[f.AT_CORES] + core * f.CORES
    p = m[f.AT_PIPES] + (core * m[f.PIPES] + pipe) * f.PIPE_COLUMNS
    m[p + f.HEAD] += 1
    if m[p + f.HEAD] == m[p + f.TAIL]:
        m[c + f.HELD_PIPES] &= ~(1 << pipe)
    slots = m[f.AT_SLOTS] + m[c + f.SLOT] * f.SLOTS
    for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
        w = slots + slot_of(m[use], named) * f.SLOTS
        m[w + (f.WRITES_OVER if m[use] & 1 else f.READS_OVER)] += 1
        m[c + f.WOKEN] |= m[w + f.WAKES]
        m[w + f.WAKES] = 0


# How many instructions before a transfer are looked at.
BACK = 8


def note_needs(m: Any, rows: Any, first: int, last: int) -> None:
    """Note at each row from `first` to `last` which pipes' next transfers need it, or a later one there."""
    # From the end: from an instruction that a transfer needs back to the transfer before it on that pipe,
    # all on the pipe of the former are needed.
    needed, pipes = m[f.AT_NEEDED], m[f.PIPES]
    for pipe in range(pipes):
        m[needed + pipe] = 0
    transfer, sources, bit = last, 0, 0
    for at in range(last - f.ROW, first - f.ROW, -f.ROW):
        row = m[f.AT_FORMS] + (rows[at] & 0xFFFFFFFF) * m[f.FORM]
        pipe = m[row + f.PIPE]
        back = (transfer - at) // f.ROW
        if back <= BACK and sources >> back & 1:
            m[needed + pipe] |= bit
        rows[at] = (rows[at] & 0xFFFFFFFF) | m[needed + pipe] << 32
        if m[row + f.MOVES]:
            bit = 1 << pipe
            for other in range(pipes):
                m[needed + other] &= ~bit
            transfer, sources = at, sources_of(m, rows, first, at)


def sources_of(m: Any, rows: Any, first: int, at: int) -> int:
    """Return the newest instruction on each pipe that an instruction needs, as bits: how far back it lies."""
    wanted = m[f.AT_WANTED]
    count, found, pipes = want(m, rows, at, 0), 0, 0
    for back in range(1, min(BACK, (at - first) // f.ROW) + 1):
        if count == 0:
            break
        before = at - back * f.ROW
        row, named = m[f.AT_FORMS] + (rows[before] & 0xFFFFFFFF) * m[f.FORM], rows[before + 1]
        for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
            if m[use] & 1 == 0:
                continue
            slot, seen = slot_of(m[use], named), 0
            while seen < count and m[wanted + seen] != slot:
                seen += 1
            if seen < count:
                if not pipes >> m[row + f.PIPE] & 1:
                    pipes |= 1 << m[row + f.PIPE]
                    found |= 1 << back
                count = want(m, rows, before, count)
                break
    return found


def want(m: Any, rows: Any, at: int, count: int) -> int:
    """Add what an instruction reads to the `count` slots that are wanted; return how many there are."""
    row, named = m[f.AT_FORMS] + (rows[at] & 0xFFFFFFFF) * m[f.FORM], rows[at + 1]
    for use in range(row + f.USE, row + f.USE + m[row + f.USES]):
        if m[use] & 1 == 0:
            m[m[f.AT_WANTED] + count] = slot_of(m[use], named)
            count += 1
    return count


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
    """Note that a pipe knows the result of an instruction; return whether this is new to it."""
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
    """Return when an instruction that trails others begins; store its earliest end in LAST."""
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
    """Return whether an instruction also reads a result that the same pipe makes later than `index`.

    Then it trails the later result alone.
    """
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
