"""One phase for compiled code: its lanes as arrays, sent through L2, and what L2 makes of every transfer."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.timing.l2 import columns as c
from ascendsim.timing.l2.accesses import HIT, Met, Outcome, PhaseOutcomes
from ascendsim.timing.l2.classes import CLASSIFY
from ascendsim.timing.l2.lanes import PhaseLanes
from ascendsim.timing.l2.rounds import PREPARE, ROOM
from ascendsim.timing.l2.stack import Stack
from ascendsim.timing.l2.walk import WALK, words_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = NDArray[np.int64]
    Transfers = NDArray[np.int32]

KINDS = {"read": c.READ, "write": c.WRITE, "atomic": c.ATOMIC}


class Accesses(NamedTuple):
    """The transfers of one phase, cut into slices and put into the order of their accesses to L2.

    The arrays are those of `rounds.py` and `walk.py`; the last four are of the last walk.
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
        """How many lanes and tensors there are."""
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


def run(accesses: Accesses, stack: Stack) -> int:
    """Send a phase through L2; return how many dirty bytes are pushed out in it."""
    a, before = accesses, stack.written_bytes
    WALK(
        a.lanes, a.traffics, a.slices, a.table, a.rows, a.tensors, a.own, a.sequence, a.owners, a.begins,
        a.sizes, *stack.arrays, a.sharing, a.fetches, a.joined, a.alone, *a.counts,
    )  # fmt: skip
    return stack.written_bytes - before


def outcomes(accesses: Accesses, pushed: int = 0) -> PhaseOutcomes:
    """Say what L2 has made of every transfer; without a walk before, as if it held all bytes.

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
    known: dict[Outcome, int] = {HIT: 0}
    tensors = accesses.tensors.reshape(-1, c.TENSOR_ROW).tolist()
    numbers = []
    for row in classes[:found].tolist():
        shares = tensors[row[c.C_TENSOR]]
        numbers.append(
            known.setdefault(Met(*row).outcome(shares[c.APART], shares[c.PARTS], part), len(known))
        )
    # Different classes may come to the same.
    if len(known) < found:
        made = np.array(numbers, np.int32)[made]
    lanes = accesses.lanes.reshape(-1, c.LANE).tolist()
    return PhaseOutcomes(tuple([made[lane[c.BEGIN] : lane[c.END]] for lane in lanes]), tuple(known))
