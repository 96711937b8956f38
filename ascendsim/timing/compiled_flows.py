"""The state of the compiled engine, and the links between cores and memory: what each flow gets, until when.

All tables are flat arrays of 64-bit integers. A row begins at its number times the width of the table; the
constants here are the columns. Plain arrays and not objects, because that is what a compiler makes fast.

The rule of the links is that of `links.py`. The flows that are under way on a link are the rows of its table,
in any order.
"""

from __future__ import annotations

from typing import Any

from ascendsim.program.instruction import PIPES as PIPE_NAMES


def next_event(m: Any) -> int:
    """Return the next cycle in which a flow ends or a transfer begins."""
    waiting, now = m[AT_WAITING], NEVER
    if m[waiting]:
        now = m[m[AT_FLIGHTS] + m[waiting + m[waiting]] * FLIGHT + F_BEGIN]
    for link in range(LINKS):
        now = min(now, m[NEXT + link])
    return int(now)


def settle(m: Any, now: int) -> int:
    """End the flows and begin the transfers of a cycle; return the links whose sharing that changes, as bits.

    Transfers whose last flow has ended are listed for `land`.
    """
    dirty = 0
    for link in range(LINKS):
        if m[NEXT + link] != now:
            continue
        first = m[AT_FLOWS] + link * m[ROOM] * FLOWING
        row = first
        while row < first + m[UNDER_WAY + link] * FLOWING:
            if m[row + END] == now:
                leave(m, link, row)
                dirty |= 1 << link
            else:
                row += FLOWING
    waiting = m[AT_WAITING]
    while m[waiting]:
        flight = m[waiting + m[waiting]]
        if m[m[AT_FLIGHTS] + flight * FLIGHT + F_BEGIN] != now:
            break
        m[waiting] -= 1
        dirty |= join(m, flight, now)
    return dirty


def join(m: Any, flight: int, now: int) -> int:
    """Let the flows of a transfer begin; return their links as bits."""
    place = m[AT_FLIGHTS] + flight * FLIGHT
    flow = m[AT_TRANSFERS] + m[place + F_TRANSFER] * TRANSFERS + FLOW
    links = 0
    for _ in range(m[place + F_LEFT]):
        link = m[flow + LINK]
        row = m[AT_FLOWS] + (link * m[ROOM] + m[UNDER_WAY + link]) * FLOWING
        m[UNDER_WAY + link] += 1
        m[row + F_FLIGHT], m[row + LEFT], m[row + SINCE] = flight, m[flow + SIZE], now
        # It has no rate before the link is shared, so until then nothing flows.
        m[row + RATE], m[row + END] = 0, NEVER
        m[row + F_PEAK], m[row + F_CAP], m[row + F_CROSSES] = (
            m[flow + PEAK],
            m[flow + CAP],
            m[flow + CROSSES],
        )
        m[place + F_ON + link] += 1
        if m[place + F_ON + link] == 1:
            m[port_of(m, link, flight) + MOVING] += 1
        links |= 1 << link
        flow += FLOW_COLUMNS
    return links


def leave(m: Any, link: int, row: int) -> None:
    """Take a flow out that is through; the last row of the table takes its place."""
    flight = m[row + F_FLIGHT]
    place = m[AT_FLIGHTS] + flight * FLIGHT
    m[place + F_ON + link] -= 1
    if m[place + F_ON + link] == 0:
        m[port_of(m, link, flight) + MOVING] -= 1
    m[place + F_LEFT] -= 1
    if m[place + F_LEFT] == 0:
        landed = m[AT_LANDED]
        m[landed] += 1
        m[landed + m[landed]] = flight
    m[UNDER_WAY + link] -= 1
    last = m[AT_FLOWS] + (link * m[ROOM] + m[UNDER_WAY + link]) * FLOWING
    for column in range(FLOWING):
        m[row + column] = m[last + column]


def port_of(m: Any, link: int, flight: int) -> int:
    """Return the place of the port of a core on a link."""
    return int(m[AT_PORTS] + (link * m[PORTS] + flight // UNIT) * PORT)


def share(m: Any, link: int, now: int) -> None:
    """Share a link anew among the flows that are on it."""
    first = m[AT_FLOWS] + link * m[ROOM] * FLOWING
    ports = m[AT_PORTS] + link * m[PORTS] * PORT
    full = limits(m, link, first, ports) > m[TOTALS + link]
    if full:
        level(m, ports, m[TOTALS + link])
    row, ends = first, NEVER
    for _ in range(m[UNDER_WAY + link]):
        rate = m[row + LIMIT]
        if full and m[row + F_CROSSES]:
            port = port_of(m, link, m[row + F_FLIGHT])
            part = m[port + PART]
            if part >= 0:
                if m[port + MOVING] > 1:
                    part = own_level(m, link, first, m[row + F_FLIGHT] // UNIT, part)
                rate = min(rate, part)
        rate = max(1, rate)
        # What has flowed so far stays flowed. With an unchanged rate the end stays to the cycle.
        if rate != m[row + RATE]:
            m[row + LEFT] -= m[row + RATE] * (now - m[row + SINCE])
            m[row + SINCE], m[row + RATE] = now, rate
            m[row + END] = now + (m[row + LEFT] + rate - 1) // rate
        ends = min(ends, m[row + END])
        row += FLOWING
    m[NEXT + link] = ends


def limits(m: Any, link: int, row: int, ports: int) -> int:
    """Find what each flow on a link could take if it were alone; return what all cores ask for together."""
    for port in range(ports, ports + m[PORTS] * PORT, PORT):
        m[port + DEMAND], m[port + PART] = 0, -1
    asked = 0
    for _ in range(m[UNDER_WAY + link]):
        port = port_of(m, link, m[row + F_FLIGHT])
        limit = m[row + F_CAP]
        if m[port + MOVING] > 1:
            limit //= m[port + MOVING]
        limit = min(limit, m[row + F_PEAK])
        m[row + LIMIT] = limit
        if m[row + F_CROSSES]:
            m[port + DEMAND] += limit
            asked += limit * m[port + P_WEIGHT]
        row += FLOWING
    return asked


def level(m: Any, ports: int, total: int) -> None:
    """Give every core that asks for more than its part of a link that part: a water level (rule 4)."""
    last = ports + m[PORTS] * PORT
    remaining, weights = total, 0
    for port in range(ports, last, PORT):
        if m[port + DEMAND]:
            weights += m[port + P_WEIGHT]
    changed, part = True, 0
    while changed:
        part, changed = remaining // weights, False
        for port in range(ports, last, PORT):
            if 0 < m[port + DEMAND] <= part:
                remaining -= m[port + DEMAND] * m[port + P_WEIGHT]
                weights -= m[port + P_WEIGHT]
                # Who has all that it asks for asks no more.
                m[port + DEMAND] = 0
                changed = True
    for port in range(ports, last, PORT):
        if m[port + DEMAND]:
            m[port + PART] = part


def own_level(m: Any, link: int, first: int, port: int, part: int) -> int:
    """Return the level up to which a core's own flows are met from its part (rule 5)."""
    met = -1
    while True:
        remaining, count, least = part, 0, NEVER
        row = first
        for _ in range(m[UNDER_WAY + link]):
            if m[row + F_FLIGHT] // UNIT == port and m[row + F_CROSSES]:
                limit = m[row + LIMIT]
                if limit <= met:
                    remaining -= limit
                else:
                    count += 1
                    least = min(least, limit)
            row += FLOWING
        if count == 0:
            return met
        met = remaining // count
        if least > met:
            return met


# A row: the form of an instruction, with a bit above it for each pipe whose next transfer needs this
# instruction, or a later one of its pipe; and the slots that it names, 16 bits each.
ROW = 2
# A form: its price, its pipe, whether it moves bytes and trails others, and the slots that it uses: whether
# it writes the slot, how far that lies behind one that the row names, and which one (`held.slot_of`).
PRICE, PIPE, MOVES, TRAILS, USES, USE = range(6)
# What an instruction costs.
CYCLES, LATENCY, TRAFFIC, DRAINS, LEAST, PACE, PIECE, LEAD = range(8)
PRICES = 8
# A transfer: latency that the links add, for how long its bytes flow whatever others do (-1: that depends on
# them), how many flows, then the flows.
LINK_LATENCY, LASTS, FLOWS, FLOW = range(4)
LINK, SIZE, PEAK, CAP, CROSSES = range(5)
FLOW_COLUMNS, MOST_FLOWS = 5, 4
TRANSFERS = FLOW + MOST_FLOWS * FLOW_COLUMNS
# Figures of the machine and sizes of the tables. TRAILED: whether any instruction trails others; MOVERS has a
# bit for each pipe on which bytes move; SHORT: whether a pipe had no room for what it holds. HELD is how many
# rows of it there are, a power of two, and ENTRY is their width; FORM is the width of a form, and CHUNK the
# room for the rows of a core that are walked.
ISSUE_CYCLES, FLAG_CYCLES, TRAFFICS, OUTCOMES, TEAMS, PIPES = range(6)
QUEUE, HELD, ENTRY, TRAILED, MOVERS, PORTS, ROOM, SHORT = range(6, 14)
# By link: its total, how many flows are under way on it, and when the next of them ends.
# STOP: the cycle after which nobody wants to know any more; PASSED: whether anything was under way after it.
TOTALS, UNDER_WAY, NEXT, FORM, CHUNK, STOP, PASSED, MACHINE = 14, 17, 20, 23, 24, 25, 26, 27
# One program, of a core or of equal ones: where its next rows stand and end, where its walk stands among all
# (-1: all its rows are there) and the room for its rows, and which instructions it holds. STALLED has a bit
# for each of its cores whose scalar unit waits for room in a queue, WOKEN one for each pipe that may go on.
AT, LAST_AT, WALK_AT, BUFFER, COUNT = range(5)
STALLED, MOVED, FIRST_OUTCOME, KIND, WEIGHT, SLOT, RECORD, OF_CORES, HELD_PIPES, WOKEN = range(5, 15)
CORES = 15
# One pipe of a core: how many instructions have been issued to it and started, when it is free, when its
# newest result is visible, when the transfer under way has landed (-1: it has not). How many of those that it
# held are over, have been issued (those are at least as many), and how many it has held in all. In the row of
# the scalar unit FREE is when it has issued its newest instruction.
ISSUED, STARTED, FREE, VISIBLE, LANDED, HEAD, UNISSUED, TAIL = range(8)
PIPE_COLUMNS = 8
# An instruction that is held: it has to wait for a transfer, or its own is under way (FLIES), or it has not
# been issued (ISSUE is -1). From TICKETS on two numbers for each slot that it uses: how many writes of it
# were held before it, and how many reads.
FORM_AT, NAMED, ISSUE, INDEX, CLASS, FLIES, START, BEGUN, LAST, TICKETS = range(10)
# What FLIES says besides 0: it has started and trails something held, or its bytes are under way.
TRAILING, FLYING = 1, 2
# The last writer of a slot: its pipe, its number (-1: none), when its result was visible, when its first
# piece was. Who has read it since, as bits. How many writes were held so far and how many of those are over,
# and as many numbers for reads. The pipes that are to be woken when one more is over, as bits.
W_PIPE, W_INDEX, W_DONE, W_LEAD, READERS, WRITES_HELD, WRITES_OVER, READS_HELD, READS_OVER, WAKES = range(10)
SLOTS = 10
# The last reader of a slot on each pipe.
R_INDEX, R_END = range(2)
READER = 2
# A transfer under way, by core and pipe: when it begins, which it is, how many of its flows have not ended,
# and how many of those are on each link.
F_BEGIN, F_TRANSFER, F_LEFT, F_ON = range(4)
FLIGHT = 7
# A flow under way on a link.
F_FLIGHT, LEFT, RATE, SINCE, END, LIMIT, F_PEAK, F_CAP, F_CROSSES = range(9)
FLOWING = 9
# The port of a core on a link: how many of its pipes move there, what they ask for, the part that it gets
# (-1: all that it asks for), and for how many equal cores it stands.
MOVING, DEMAND, PART, P_WEIGHT = range(4)
PORT = 4
# Pipes of one core, in this order; the cores of a program follow each other.
UNIT = len(PIPE_NAMES)
LINK_NAMES = ("l2_read", "l2_write", "memory")
LINKS = len(LINK_NAMES)
NEVER = 1 << 62
# What the engine answers.
FINISHED, STUCK, FULL, STOPPED = 0, -1, -2, -3


# Tables in the order in which they lie in memory. Their places stand in the header behind the figures.
TABLES = (
    "forms", "prices", "walks", "outcomes", "classes", "transfers", "depths",
    "cores", "pipes", "starts", "known", "slots", "readers", "entries", "flights", "flows",
    "waiting", "landed", "ports", "busy", "waits", "spans", "needed", "wanted",
)  # fmt: skip
(
    AT_FORMS, AT_PRICES, AT_WALKS, AT_OUTCOMES, AT_CLASSES, AT_TRANSFERS,
    AT_DEPTHS, AT_CORES, AT_PIPES, AT_STARTS, AT_KNOWN, AT_SLOTS, AT_READERS, AT_ENTRIES, AT_FLIGHTS,
    AT_FLOWS, AT_WAITING, AT_LANDED, AT_PORTS, AT_BUSY, AT_WAITS, AT_SPANS, AT_NEEDED, AT_WANTED,
) = range(MACHINE, MACHINE + len(TABLES))  # fmt: skip
HEADER = MACHINE + len(TABLES)
