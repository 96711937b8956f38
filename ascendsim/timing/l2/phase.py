"""One phase for compiled code: its lanes as arrays, sent through L2, and what L2 makes of every transfer."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ascendsim.native import Native
from ascendsim.program.instruction import Traffic
from ascendsim.program.places import Gm
from ascendsim.timing.l2 import slices as c
from ascendsim.timing.l2.held import L2Stack
from ascendsim.timing.l2.lru import WALK, words_of
from ascendsim.timing.l2.slices import (
    BEGIN,
    CLASSIFY,
    CORES,
    END,
    FUNCTIONS,
    KIND,
    LANE,
    ROW,
    TENSOR,
    TRAFFIC,
    Ints,
    accessing,
    cut,
    measure,
)
from ascendsim.timing.times import PricedProgram

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = NDArray[np.int64]
    Transfers = NDArray[np.int32]


Share = Fraction | int


class L2Outcome(NamedTuple):
    """The outcome of a transfer in L2, as parts of its bytes.

    `fetched` of them cross the link from main memory for this core, which waits for `readers` times as many:
    the others cross for other cores that wait for these bytes. `pushed_out` as many dirty bytes leave on the
    way. The part `together` is read by several cores in one round.

    An example: in a cold L2 four equal cores read the same slice of 4000 bytes in one round, then all of them
    read it again, then each reads 1000 bytes of its own while 2000 bytes that were written before have to go.
    The first read is Outcome(fetched=1/4, readers=4, together=1): the 4000 bytes come once, 1000 on behalf of
    each core, and each waits for all of them. The second is Outcome(together=1): a hit in company. The third
    is Outcome(fetched=1). All of them also have pushed_out=1/18: the 2000 dirty bytes leave beside the
    4 * (4000 + 4000 + 1000) bytes that are read, wherever in the phase the room was needed.
    """

    fetched: Share = 0
    pushed_out: Share = 0
    readers: Share = 1
    together: Share = 0

    @property
    def uses_memory(self) -> bool:
        """Whether any byte crosses the link to main memory."""
        return bool(self.fetched or self.pushed_out)


HIT = L2Outcome()
# Instruction -> what L2 makes of its traffic, where that is not a plain hit.
Outcomes = Mapping[int, L2Outcome]


class PhaseOutcomes(NamedTuple):
    """Outcomes in L2 of all transfers of a phase: for each lane the number of every transfer's outcome.

    Types    `numbers` int32, each naming one of `outcomes`, which are distinct; number 0 is a plain hit
    """

    numbers: tuple[NDArray[np.int32], ...]
    outcomes: tuple[L2Outcome, ...]

    def of_lane(self, lane: int, instructions: Sequence[int]) -> Outcomes:
        """Return the outcomes of a lane that are no plain hits, by the numbers of their instructions."""
        numbers = self.numbers[lane]
        return {instructions[at]: self.outcomes[numbers[at]] for at in np.flatnonzero(numbers).tolist()}


class Met(NamedTuple):
    """Inputs of the outcome of a class of transfers: the columns of `classes`."""

    company: int
    carries: int
    cores: int
    tensor: int
    bytes: int
    fetched: int
    sharers: int
    readers: int
    own: int

    def outcome(self, apart: int, parts: int, pushed: Share) -> L2Outcome:
        """Return the outcome, the mean over the cores of the group; `pushed` is what a byte carries.

        Of the slices of the tensor that are not known, `apart` of `parts` are no known ones.
        """
        # The program is one for all cores of a group, so each of its transfers has the mean of their
        # outcomes. So many of them access the known slice, in parts of a core; the others one of their own.
        accessing = parts + (self.cores - 1) * (parts - apart)
        together = _share(accessing, self.cores * parts) if self.company else 0
        carried = pushed if self.carries else 0
        if not self.fetched and not self.own:
            return L2Outcome(0, carried, 1, together)
        # In parts of a byte, so many that all are whole: bytes that come for the known slice, and for others.
        known, own, moved = self.fetched * accessing, self.own, self.cores * self.bytes
        if known:
            own, moved = own * self.sharers, moved * self.sharers
        # A core waits for all that those wait for who came with it; nobody comes with it for its own.
        waited = known * self.readers + own * parts
        return L2Outcome(_share(known + own, moved), carried, _share(waited, (known + own) * parts), together)


def _share(part: int, of: int) -> Share:
    """Return a part as a fraction, or as an int where it is one; ints are faster."""
    return part // of if part % of == 0 else Fraction(part, of)


# A team of cores as L2 needs it: how many equal ones, and the program of one of them.
Group = tuple[int, PricedProgram]


class Lane(NamedTuple):
    """The transfers of one group of `cores` equal cores, in issue order.

    Shapes   `traffics` and `slices` (transfers)
    Types    `traffics` int32, numbers of `PhaseLanes.traffics`; `slices` int64, any numbers: equal ones name
             the same slice of global memory, and each belongs to one tensor
    """

    cores: int
    traffics: NDArray[np.int32]
    slices: NDArray[np.int64]


class PhaseLanes(NamedTuple):
    """All transfers of one phase; `traffics` are the distinct ones that its lanes name by number."""

    traffics: tuple[Traffic, ...]
    lanes: tuple[Lane, ...]


def lanes_of(groups: Sequence[Group]) -> PhaseLanes:
    """Return the transfers of priced programs; slices are numbered in the order in which they are met."""
    traffics: dict[Traffic, int] = {}
    slices: dict[Hashable, int] = {}
    lanes = tuple([_lane(cores, priced, traffics, slices) for cores, priced in groups])
    return PhaseLanes(tuple(traffics), lanes)


def _lane(
    cores: int, priced: PricedProgram, traffics: dict[Traffic, int], slices: dict[Hashable, int]
) -> Lane:
    """Return the transfers of one program; give new traffics and slices the next numbers."""
    newest: dict[str, int] = {}
    numbers: list[int] = []
    named: list[int] = []
    # Equal prices are one object, so its identity finds the number without looking at the figures.
    known: dict[int, int] = {}
    instructions, prices = priced.program.instructions, priced.prices
    for index in priced.moving:
        traffic = prices[index].traffic
        assert traffic is not None
        number = known.get(id(traffic))
        if number is None:
            number = known[id(traffic)] = traffics.setdefault(traffic, len(traffics))
        place = _place(instructions[index].gm)
        if place is None:
            place = next_place(traffic, newest)
        numbers.append(number)
        # Slices that overlap but differ count as two: to find what they have in common takes time for each
        # pair. `slices.py` corrects the sum of their bytes.
        named.append(slices.setdefault((traffic.tensor.name, place), len(slices)))
    return Lane(cores, np.array(numbers, np.int32), np.array(named, np.int64))


def next_place(traffic: Traffic, newest: dict[str, int]) -> tuple[int, int]:
    """Return the slice of a transfer that names none: it goes on through its tensor, and then again."""
    begin = newest.get(traffic.tensor.name, 0)
    if begin + traffic.bytes > traffic.tensor.size_bytes:
        begin = 0
    newest[traffic.tensor.name] = begin + traffic.bytes
    return begin, traffic.bytes


def _place(gm: Gm | None) -> Hashable:
    """Return the slice of a tensor as something that can be compared."""
    if gm is None:
        return None
    return tuple([comparable(part) for part in gm.index])


def comparable(part: Any) -> Hashable:
    """Return a part of an index as something that can be compared and hashed."""
    # Slices can be hashed from Python 3.12 on; the package runs on 3.11.
    return (part.start, part.stop, part.step) if isinstance(part, slice) else part


# `room`, a row for each group: the groups that go on, in order; then what the transfers of a round do, each
# by its key, and the first and last group that does it; and behind each group the next with this key.
ACTIVE, KEY, FIRST, LAST, NEXT, ROOM = range(6)


def prepare(
    lanes: Ints, traffics: Ints, slices: Ints, table: Ints, rows: Ints, tensors: Ints, own: Ints,
    newest: Ints, moved: Ints, room: Ints, sequence: Ints, owners: Ints, begins: Ints, readers: Ints,
    sizes: Ints, lane_count: int, tensor_count: int,
) -> int:  # fmt: skip
    """Cut the slices of a phase, and put its transfers into the order of their accesses.

    Transfers of one round with one action on one slice access it together: access a is made by the transfers
    `sequence[begins[a]:begins[a + 1]]` of the groups `owners`. `readers` says for each transfer how many
    cores are with it, in parts of a core. `sizes` has the number of slices, and receives those of residencies
    and of accesses.
    """
    sizes[1] = measure(
        lanes, lane_count, traffics, slices, table, rows, tensors, own, newest, moved, sizes[0]
    )
    cut(rows, tensors, tensor_count, sizes[0], sizes[1])
    count = 0
    for lane in range(lane_count):
        if lanes[LANE * lane + BEGIN] < lanes[LANE * lane + END]:
            room[ROOM * count + ACTIVE] = lane
            count += 1
    accesses = filled = number = 0
    while count:
        chains = _round(number, count, lanes, traffics, slices, table, room)
        for chain in range(chains):
            begins[accesses] = filled
            lane, total = room[ROOM * chain + FIRST], 0
            tensor = rows[ROW * slices[lanes[LANE * lane + BEGIN] + number] + TENSOR]
            while lane >= 0:
                sequence[filled] = lanes[LANE * lane + BEGIN] + number
                owners[filled] = lane
                total += accessing(lanes[LANE * lane + CORES], tensor, tensors)
                filled += 1
                lane = room[ROOM * lane + NEXT]
            for at in range(begins[accesses], filled):
                readers[sequence[at]] = total
            accesses += 1
        number += 1
        going = 0
        for at in range(count):
            lane = room[ROOM * at + ACTIVE]
            if lanes[LANE * lane + BEGIN] + number < lanes[LANE * lane + END]:
                room[ROOM * going + ACTIVE] = lane
                going += 1
        count = going
    begins[accesses] = filled
    sizes[2] = accesses
    return accesses


def _round(
    number: int, count: int, lanes: Ints, traffics: Ints, slices: Ints, table: Ints, room: Ints
) -> int:
    """Chain the groups whose transfer `number` has one action on one slice; return the number of chains."""
    chains = 0
    for at in range(count):
        lane = room[ROOM * at + ACTIVE]
        index = lanes[LANE * lane + BEGIN] + number
        key = 3 * slices[index] + table[TRAFFIC * traffics[index] + KIND]
        chain = 0
        while chain < chains and room[ROOM * chain + KEY] != key:
            chain += 1
        if chain == chains:
            chains += 1
            room[ROOM * chain + KEY] = key
            room[ROOM * chain + FIRST] = lane
        else:
            room[ROOM * room[ROOM * chain + LAST] + NEXT] = lane
        room[ROOM * chain + LAST] = lane
        room[ROOM * lane + NEXT] = -1
    return chains


_FUNCTIONS: Final[Any] = (*FUNCTIONS, _round, prepare)
_TRANSFERS, _ROWS = "int32[]", "int64[]"
PREPARE: Final = Native(
    _FUNCTIONS,
    (
        _ROWS,
        *[_TRANSFERS] * 2,
        *[_ROWS] * 3,
        _TRANSFERS,
        *[_ROWS] * 3,
        *[_TRANSFERS] * 3,
        *[_ROWS] * 2,
        *["int64"] * 2,
    ),
)


KINDS = {"read": c.READ, "write": c.WRITE, "atomic": c.ATOMIC}


class Accesses(NamedTuple):
    """The transfers of one phase, cut into slices and put into the order of their accesses to L2.

    `slices.py` names the columns of the arrays; the last four are of the last walk.
    """

    lanes: Table
    traffics: Transfers
    slices: Transfers
    table: Table
    rows: Table
    tensors: Table
    own: Transfers
    moved: Table
    sequence: Transfers
    owners: Transfers
    begins: Transfers
    readers: Table
    sizes: Table
    sharing: Table
    fetches: Table
    joined: Transfers
    alone: Table

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of lanes and tensors."""
        return len(self.lanes) // c.LANE, len(self.tensors) // c.TENSOR_ROW

    def added_to(self) -> list[int]:
        """Return the numbers of the tensors that the phase adds to, in rising order."""
        table = self.table.reshape(-1, c.TRAFFIC)
        # The table may have traffics of other phases, too.
        here = np.bincount(self.traffics, minlength=len(table)) > 0
        return sorted(set(table[here & (table[:, c.KIND] == c.ATOMIC), c.OF_TENSOR].tolist()))


def prepared(phase: PhaseLanes, tensors: Mapping[str, int]) -> Accesses:
    """Cut the slices of a phase and order its accesses; `tensors` numbers all tensors of the kernel."""
    lengths = [len(lane.traffics) for lane in phase.lanes]
    ends = np.array(list(accumulate(lengths)), np.int64)
    count = sum(lengths)
    lanes = np.empty((len(lengths), c.LANE), np.int64)
    lanes[:, c.BEGIN], lanes[:, c.END] = ends - lengths, ends
    lanes[:, c.CORES] = [lane.cores for lane in phase.lanes]
    traffics = np.concatenate([np.empty(0, np.int32), *[lane.traffics for lane in phase.lanes]])
    slices, known = _dense(np.concatenate([np.empty(0, np.int64), *[lane.slices for lane in phase.lanes]]))
    # Residencies of groups of several cores, at most one for each of their transfers.
    others = sum(length for length, lane in zip(lengths, phase.lanes, strict=True) if lane.cores > 1)
    made = Accesses(
        lanes.ravel(), traffics, slices, _table(phase, tensors),
        rows=np.zeros(c.ROW * (known + others + 1), np.int64),
        tensors=np.zeros(c.TENSOR_ROW * len(tensors), np.int64),
        own=np.empty(count, np.int32),
        moved=np.zeros(c.MOVED, np.int64),
        sequence=np.empty(count, np.int32),
        owners=np.empty(count, np.int32),
        begins=np.empty(count + 1, np.int32),
        readers=np.empty(count, np.int64),
        sizes=np.array([known, 0, 0]),
        sharing=np.empty(known * words_of(len(lanes)), np.int64),
        fetches=np.empty(c.FETCH_ROW * (count + 2), np.int64),
        joined=np.zeros(count, np.int32),
        alone=np.zeros(count, np.int64),
    )  # fmt: skip
    PREPARE(
        made.lanes, traffics, slices, made.table, made.rows, made.tensors, made.own,
        np.zeros(2 * known, np.int64), made.moved, np.empty(ROOM * len(lengths), np.int64),
        made.sequence, made.owners, made.begins, made.readers, made.sizes, len(lengths), len(tensors),
    )  # fmt: skip
    return made


def _dense(numbers: NDArray[np.int64]) -> tuple[Transfers, int]:
    """Return slices numbered from zero, with few numbers left out, and how many numbers there are."""
    if not len(numbers):
        return numbers.astype(np.int32), 0
    low, high = int(numbers.min()), int(numbers.max())
    # Numbers that nobody uses cost a row each; to sort all numbers costs more than a few of them.
    if high - low < 2 * len(numbers) + 64:
        return (numbers - low).astype(np.int32), high - low + 1
    distinct, inverse = np.unique(numbers, return_inverse=True)
    return inverse.astype(np.int32), len(distinct)


def _table(phase: PhaseLanes, tensors: Mapping[str, int]) -> Table:
    """Return the rows of `table`, one for each traffic."""
    rows = [
        (tensors[of.name], KINDS[traffic.kind], traffic.bytes, of.cached, of.size_bytes)
        for traffic in phase.traffics
        for of in [traffic.tensor]
    ]
    return np.array(rows, np.int64).ravel()


def run(accesses: Accesses, stack: L2Stack) -> int:
    """Send a phase through L2; return how many dirty bytes are pushed out in it."""
    a, before = accesses, stack.written_bytes
    WALK(
        a.lanes, a.traffics, a.slices, a.table, a.rows, a.tensors, a.own, a.sequence, a.owners, a.begins,
        a.sizes, *stack.arrays, a.sharing, a.fetches, a.joined, a.alone, *a.counts,
    )  # fmt: skip
    return stack.written_bytes - before


def outcomes(accesses: Accesses, pushed: int = 0) -> PhaseOutcomes:
    """Return the hits and misses of every transfer; without a walk before, as if L2 held all bytes.

    `pushed` dirty bytes are carried by the reads, or the writes if more is written.
    """
    count = len(accesses.traffics)
    # Write-back goes on in the background and belongs to no transfer, but it takes its part of the link.
    # Spread evenly over a phase it slows what moves most, and no single transfer waits for all of it.
    read, written = int(accesses.moved[c.SLICES_READ]), int(accesses.moved[c.SLICES_WRITTEN])
    reads_carry = read >= written
    part = Fraction(pushed, read if reads_carry else written) if pushed else 0
    classes = np.empty((count + 2, c.CLASS), np.int64)
    made = np.empty(count, np.int32)
    heads = np.empty(max(64, 1 << (count // 8).bit_length()), np.int64)
    a = accesses
    found = CLASSIFY(
        a.lanes, a.traffics, a.slices, a.table, a.rows, a.tensors, a.readers, a.fetches, a.joined, a.alone,
        classes.ravel(), heads, np.empty(count + 2, np.int64), made,
        bool(pushed) and reads_carry, bool(pushed) and not reads_carry, a.counts[0], len(heads),
    )  # fmt: skip
    known: dict[L2Outcome, int] = {HIT: 0}
    tensors = accesses.tensors.reshape(-1, c.TENSOR_ROW).tolist()
    numbers = []
    # Without a transfer there may be no tensor, and all there is is a hit.
    for row in classes[:found].tolist() if count else ():
        shares = tensors[row[c.C_TENSOR]]
        numbers.append(
            known.setdefault(Met(*row).outcome(shares[c.APART], shares[c.PARTS], part), len(known))
        )
    # Different classes may have equal outcomes.
    if len(known) < found:
        made = np.array(numbers, np.int32)[made]
    lanes = accesses.lanes.reshape(-1, c.LANE).tolist()
    return PhaseOutcomes(tuple([made[lane[c.BEGIN] : lane[c.END]] for lane in lanes]), tuple(known))
