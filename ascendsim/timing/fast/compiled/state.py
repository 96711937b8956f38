"""The state of the compiled engine: tables of integers, and the meanings of their columns.

All tables are flat arrays of 64-bit integers. A row begins at its number times the width of the table; the
constants here are the columns. Plain arrays and not objects, because that is what a compiler makes fast.
"""

from __future__ import annotations

from ascendsim.program.instruction import PIPES as PIPE_NAMES

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
