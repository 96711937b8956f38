"""A phase's programs as tables for the compiled engine: forms of instructions, rows, and transfers for L2.

A form stands for rows of equal cost and equal use of slots.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.errors import ProgramError
from ascendsim.frozen import cached_property
from ascendsim.program import walk as w
from ascendsim.program.instruction import PIPES, Instruction, Traffic
from ascendsim.program.kernel import Core
from ascendsim.program.nest import Nest
from ascendsim.program.places import HOME, VECTOR_CORES, Slot
from ascendsim.program.program import NestProgram, Program, walk_memory
from ascendsim.program.waits import ordering
from ascendsim.program.walk import SLOT_BITS
from ascendsim.timing import compiled_flows as f
from ascendsim.timing.l2.phase import L2Outcome, comparable, next_place
from ascendsim.timing.links import Flow, Spreading, Transfer, fixed_rate
from ascendsim.timing.times import checked, depths_of, no_queue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile

    Table = NDArray[np.int64]
    Words = NDArray[np.int64]


class SlotUses(NamedTuple):
    """An instruction: its slots (2 * number, 1 more if written), whether it trails others and moves bytes."""

    slots: Iterable[int]
    trails: bool
    moves: bool


def require_known_begins(rows: Iterable[SlotUses]) -> None:
    """Refuse a program that trails what moves bytes, or that moves bytes and trails what trails others.

    The compiled engine learns when an instruction that trails has begun from the end of what that trails.
    Whether bytes move, and so share a link, has to be known earlier.

    rows   all its instructions, in order

    Raises   ProgramError
    """
    writers: dict[int, SlotUses] = {}
    for at, row in enumerate(rows):
        uses = list(row.slots)
        read = [use >> 1 for use in uses if row.trails and not use & 1]
        for trailed in [writers[slot] for slot in read if slot in writers]:
            if trailed.moves or (row.moves and trailed.trails):
                what = "one that moves bytes"
                if not trailed.moves:
                    what = "one that itself trails another, and moves bytes"
                raise ProgramError(
                    f"instruction {at} of the code trails {what}; only the engine simpy obeys this: the "
                    "compiled one would learn too late when the bytes began to move"
                )
        writers |= {use >> 1: row for use in uses if use & 1}


NUMBERS = {pipe: number for number, pipe in enumerate(PIPES)}
# A slot of a row, how many slots behind it, whether it is written.
Use = tuple[int, int, bool]


class NestForms(NamedTuple):
    """The forms of a nest.

    first     the number of its first form among those of all nests
    traffics  the traffic of each form by number; -1 where it moves nothing
    cores     the core of each form
    """

    first: int
    traffics: NDArray[np.int32]
    cores: NDArray[np.int32]


class FormBook:
    """The forms and costs of the programs of one kernel; lives for one timing run."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self.traffics: list[Traffic] = []
        # Of each the pipes on which it moves, as bits; and of all of them, those of further cores included.
        self.pipes_of: list[int] = []
        self.movers = 0
        self._depths: dict[str, dict[str, int]] = {}
        # By price: what the engine reads, the pipe, and the traffic (-1: none).
        self._prices = array("q")
        self._pipes: list[int] = []
        self._moved: list[int] = []
        # A program repeats few shapes many times; working out a cost, in fractions, is what is slow.
        self._numbers: dict[tuple[type, str, Hashable], int] = {}
        self._traffics: dict[Traffic, int] = {}
        # By form: price, core, whether it trails others, uses.
        self._forms: list[tuple[int, int, bool, tuple[Use, ...]]] = []
        self._known: dict[Hashable, int] = {}
        self._nests: dict[int, tuple[Nest, NestForms]] = {}

    def check(self, program: Program, kind: str) -> None:
        """Refuse a program with a pipe that this kind of core lacks, waits of its own, or a late begin.

        Raises   ProgramError
        """
        if not program.usual:
            raise ProgramError(
                "a program leaves out waits that follow from its slots, or has others; only the engine simpy "
                "obeys them"
            )
        if kind not in self._depths:
            self._depths[kind] = depths_of(self._profile, kind)
        if isinstance(program, NestProgram):
            self._check_nest(program, kind)
            return
        depths = self._depths[kind]
        for pipe in program.used:
            if pipe not in depths:
                raise no_queue(program, program.pipes.index(pipe), kind, self._profile)
        if any(made.trails for made in program.instructions):
            require_known_begins(self._rows(program))

    def _check_nest(self, program: NestProgram, kind: str) -> None:
        """Check what a nest may emit; what it does is looked at only where a pipe is missing."""
        depths, nest = self._depths[kind], program.nest
        if not program.pipes_possible <= depths.keys():
            for pipe in program.used:
                if pipe not in depths:
                    raise no_queue(program, program.pipes.index(pipe), kind, self._profile)
        moved = {ring for own in nest.streams if own.moves for ring in own.writes}
        trailed = {ring for own in nest.streams if own.trails for ring in own.writes}
        # Tiles of a ring that bytes move into may be trailed: whether they are the program itself says.
        if any(
            own.trails and (own.reads & moved or (own.moves and own.reads & trailed)) for own in nest.streams
        ):
            require_known_begins(self._rows(program))

    def _rows(self, program: Program) -> Iterable[SlotUses]:
        """Yield the slots each instruction uses, as `require_known_begins` takes them."""
        for at, made in enumerate(program.instructions):
            post = program.posts.get(at, HOME)
            reads, writes = ordering(made, post, program.own_slots)
            uses = [2 * slot.index for slot in reads] + [2 * slot.index + 1 for slot in writes]
            yield SlotUses(uses, made.trails, self._moved[self.price(made)] >= 0)

    def of_nest(self, nest: Nest) -> NestForms:
        """Return the forms of a nest; they are entered when it is met first."""
        # Nests that differ in the sizes of their slots have one list of forms.
        known = self._nests.get(id(nest.forms))
        if known is None:
            first = len(self._forms)
            for made, core, uses in nest.forms:
                # One by one, as the walk counts them: equal ones are not entered once.
                self._enter(made, core, uses)
            prices = [price for price, _, _, _ in self._forms[first:]]
            traffics = np.array([self._moved[price] for price in prices], np.int32)
            cores = np.array([core for _, core, _, _ in self._forms[first:]], np.int32)
            known = self._nests[id(nest.forms)] = nest, NestForms(first, traffics, cores)
        return known[1]

    def of(self, made: Instruction, core: int, uses: tuple[Use, ...]) -> int:
        """Return the number of the form of an instruction that names its slots itself."""
        key = self.price(made), core, made.trails, uses
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = self._enter(made, core, uses)
        return number

    def _enter(self, made: Instruction, core: int, uses: tuple[Use, ...]) -> int:
        price = self.price(made)
        if self._moved[price] >= 0:
            self.movers |= 1 << self._pipes[price] + f.UNIT * core
        self._forms.append((price, core, made.trails, uses))
        return len(self._forms) - 1

    def traffic(self, form: int) -> int:
        """Return the number of the traffic of a form; -1: it moves no bytes."""
        return self._moved[self._forms[form][0]]

    def core(self, form: int) -> int:
        """Return the core of its program on which a form runs."""
        return self._forms[form][1]

    def price(self, made: Instruction) -> int:
        """Return the number of the cost of an instruction."""
        key = made.__class__, made.pipe, made.shape
        number = self._numbers.get(key)
        return self._price(made, key) if number is None else number

    def _price(self, instruction: Instruction, key: tuple[type, str, Hashable]) -> int:
        """Append a cost to the tables; return its number."""
        priced = checked(key, instruction.cost(self._profile), instruction.drains)
        cycles, latency, moved, drains, least, pace, piece, lead = priced
        traffic = -1
        if moved is not None:
            traffic = self._traffics.setdefault(moved, len(self.traffics))
            if traffic == len(self.traffics):
                self.traffics.append(moved)
                self.pipes_of.append(0)
            self.pipes_of[traffic] |= 1 << NUMBERS[key[1]]
        self._prices.extend((cycles, latency, traffic, drains, least, pace, piece, lead))
        self._pipes.append(NUMBERS[key[1]])
        self._moved.append(traffic)
        self._numbers[key] = len(self._moved) - 1
        return len(self._moved) - 1

    def tables(self) -> tuple[Table, Table, int]:
        """Return the tables `forms` and `prices` (`compiled_flows.py`), and the most slots of a form."""
        most = max([len(uses) for *_, uses in self._forms], default=0)
        forms = np.zeros((len(self._forms), f.USE + most), np.int64)
        if self._forms:
            forms[:, : f.USE] = [
                (price, self._pipes[price] + f.UNIT * core, self._moved[price] >= 0, trails, len(uses))
                for price, core, trails, uses in self._forms
            ]
        for row, (*_, uses) in zip(forms, self._forms, strict=True):
            row[f.USE : f.USE + len(uses)] = [_packed(*use) for use in uses]
        return forms, np.array(self._prices, np.int64), most


def _packed(operand: int, behind: int, written: bool) -> int:
    """Return a use as the engine reads it (`held.slot_of`)."""
    return operand * SLOT_BITS << 32 | behind << 1 | written


def uses_of(reads: Sequence[Slot], writes: Sequence[Slot]) -> tuple[Use, ...]:
    """Return the uses of an instruction that names its slots itself, with those of a hand-over."""
    return tuple([(0, slot.index, False) for slot in reads] + [(0, slot.index, True) for slot in writes])


KINDS = ("cube", "vector")
# No rate is as high: what a pipe without a peak of its own could do.
NO_PEAK = 1 << 50
# A transfer has at most so many flows on one link.
ROOM_OF_A_FLIGHT = 3


class ProgramRun(NamedTuple):
    """One program of a phase, of a core or of equal ones, and what L2 makes of its transfers.

    `traffics`, `beside` and `outcomes` have for each transfer, in program order, the number of its traffic,
    of its core in the program, and of its outcome.
    """

    cores: tuple[Core, ...]
    program: Program
    traffics: NDArray[np.int32]
    beside: NDArray[np.int32]
    outcomes: NDArray[np.int32]


def transfer_tables(
    runs: Sequence[ProgramRun], outcomes: Sequence[L2Outcome], book: FormBook, profile: Profile
) -> tuple[Table, Table]:
    """Return which transfer each (kind, traffic, outcome) is that occurs, and the transfers."""
    # Cores that are vector cores, and those beside cube cores.
    vectors = sum(len(run.cores) * (run.program.cores - (run.cores[0].kind == "cube")) for run in runs)
    paired = any(run.program.cores > VECTOR_CORES for run in runs)
    spreading = Spreading(profile, in_pairs=paired or vectors > 2)
    width = len(outcomes)
    # The transfers of a program, as bytes, and the number of cores with equal programs: most are equal.
    met: dict[bytes, int] = {}
    occur = np.zeros(2 * max(1, len(book.traffics)) * width, np.bool_)
    for run in runs:
        kind: Any = KINDS.index(run.cores[0].kind)
        if run.program.cores > 1:
            kind = np.where(run.beside > 0, KINDS.index("vector"), kind)
        own = np.zeros(len(occur), np.bool_)
        own[(kind * len(book.traffics) + run.traffics) * width + run.outcomes] = True
        occur |= own
        made = own.tobytes()
        met[made] = met.get(made, 0) + len(run.cores)
    found = np.flatnonzero(occur)
    classes = np.full(len(occur), -1, np.int64)
    classes[found] = range(len(found))
    transfers, pipes = [], []
    for key in found.tolist():
        of, rest = divmod(key, len(book.traffics) * width)
        traffic, outcome = divmod(rest, width)
        transfers.append(spreading.transfer(KINDS[of], book.traffics[traffic], outcomes[outcome]))
        pipes.append(book.pipes_of[traffic])
    wide: set[str] = set()
    # Of several cores of a program each has ports of its own, and which of them moves what is not asked here.
    if all(run.program.cores == 1 for run in runs):
        teams = [(cores, classes[np.frombuffer(made, np.bool_)].tolist()) for made, cores in met.items()]
        totals = {link: fixed_rate(profile.links[link].total_bytes_per_cycle) for link in f.LINK_NAMES}
        wide = {link for link, total in totals.items() if _is_wide(link, total, transfers, pipes, teams)}
    rows = np.zeros((len(found), f.TRANSFERS), np.int64)
    for number, transfer in enumerate(transfers):
        row = _row(transfer, wide)
        rows[number, : len(row)] = row
    return classes, rows


def _is_wide(
    link: str,
    total: int,
    transfers: Sequence[Transfer],
    pipes: Sequence[int],
    teams: Sequence[tuple[int, Sequence[int]]],
) -> bool:
    """Return whether a link is wide, which carries `total`.

    pipes   the pipes on which each transfer may move, as bits
    teams   how many cores make some transfers, and which, by their numbers
    """
    # What each transfer on the link asks of it.
    limits = {
        number: sum([_limit(flow) for flow in own if flow.crosses])
        for number, transfer in enumerate(transfers)
        if (own := [flow for flow in transfer.flows if flow.link == link])
    }
    asked = 0
    for cores, made in teams:
        moving = [number for number in made if number in limits]
        used = 0
        for number in moving:
            used |= pipes[number]
        if used & (used - 1):
            return False
        # A pipe moves one transfer after the other, so a core asks for no more than one of them does.
        asked += cores * max([limits[number] for number in moving], default=0)
    return asked <= total


def _limit(flow: Flow) -> int:
    """Return the rate of a flow if its core reaches the link by one pipe and the link is not full."""
    return max(1, flow.cap if flow.peak is None else min(flow.cap, flow.peak))


def _row(transfer: Transfer, wide: set[str]) -> list[int]:
    """Return a transfer as the first columns of its row; what comes behind its flows is never read."""
    links = [flow.link for flow in transfer.flows]
    # Rows of transfers, and tables of flows, have no room for more.
    assert len(links) <= f.MOST_FLOWS
    assert all(links.count(link) <= ROOM_OF_A_FLIGHT for link in links)
    lasts = max([-(-flow.size // _limit(flow)) for flow in transfer.flows]) if wide.issuperset(links) else -1
    row = [transfer.latency_cycles, lasts, len(transfer.flows)]
    for link, size, cap, peak, crosses in transfer.flows:
        row += f.LINK_NAMES.index(link), size, NO_PEAK if peak is None else peak, cap, crosses
    return row


# Rows of transfers that are walked at once.
CHUNK = 1 << 15


class ProgramTransfers(NamedTuple):
    """Transfers of a program, in program order.

    traffics, cores   the number of each transfer's traffic, and of its core
    slices            numbers that are equal where transfers move the same slice of GM
    """

    traffics: NDArray[np.int32]
    cores: NDArray[np.int32]
    slices: Words


class PhaseRows:
    """The rows of some programs: those of instructions are here, those of nests are walked by the engine.

    `memory` is what the walks need, `walks` where that of each program stands (-1: it is no nest). `rows` are
    those of the others, `ends` where they begin and end.
    """

    def __init__(self, book: FormBook, programs: Sequence[Program]) -> None:
        self.book, self.programs = book, programs
        nests = [program for program in programs if isinstance(program, NestProgram)]
        self.memory, walks = walk_memory(nests, [book.of_nest(program.nest).first for program in nests])
        found = iter(walks)
        self.walks = [next(found) if isinstance(program, NestProgram) else -1 for program in programs]
        self._forms = [
            [] if at >= 0 else self._straight(own) for at, own in zip(self.walks, programs, strict=True)
        ]
        self.ends = [2 * end for end in accumulate(map(len, self._forms), initial=0)]
        self.rows = np.zeros(self.ends[-1], np.int64)
        for forms, (first, last) in zip(self._forms, pairwise(self.ends), strict=True):
            self.rows[first:last:2] = forms

    def _straight(self, program: Program) -> list[int]:
        """Return the forms of instructions that name their slots themselves."""
        book, posts = self.book, program.posts
        forms = []
        for at, made in enumerate(program.instructions):
            post = posts.get(at, HOME)
            forms.append(book.of(made, post.core, uses_of(*ordering(made, post, program.own_slots))))
        return forms

    def met(self) -> set[int]:
        """Return the numbers of the traffics that the programs move."""
        met: set[int] = set()
        for traffics, _, _ in self._moved:
            met.update(np.flatnonzero(np.bincount(traffics)).tolist())
        return met

    @cached_property
    def _moved(self) -> list[ProgramTransfers]:
        """Transfers of each program; slices have the numbers of their nests, and none without a nest."""
        found = []
        for number, program in enumerate(self.programs):
            if not isinstance(program, NestProgram):
                found.append(self._of_straight(self._forms[number]))
                continue
            require_slices(program, self.book)
            forms, (own, places) = self.book.of_nest(program.nest), self._walked[number]
            traffics, cores = forms.traffics[own], forms.cores[own]
            moving = traffics >= 0
            if not moving.all():
                traffics, cores, places = traffics[moving], cores[moving], places[moving]
            found.append(ProgramTransfers(traffics, cores, places))
        return found

    def transfers(self, asked: frozenset[str] | None, *, apart: bool) -> list[ProgramTransfers]:
        """Return the transfers of each program.

        asked   the tensors whose slices get distinct numbers; None: all
        apart   whether each transfer has a slice of its own, so that none has to be found
        """
        tensors = [each.tensor.name for each in self.book.traffics]
        told = np.array([asked is None or name in asked for name in tensors], np.bool_)
        # A tensor as a whole stands for each of its slices.
        names = {name: number for number, name in enumerate(dict.fromkeys(tensors))}
        wholes = np.array([names[name] for name in tensors], np.int64)
        slices = _Slices(self.programs, len(names))
        found = []
        for number, (program, own) in enumerate(zip(self.programs, self._moved, strict=True)):
            traffics, cores, places = own
            if apart:
                first = slices.taken(len(traffics))
                named = np.arange(first, first + len(traffics))
            elif not told[traffics].any():
                named = wholes[traffics]
            else:
                if isinstance(program, NestProgram):
                    named = slices.of_nest(program, places)
                else:
                    named = slices.of_straight(program, self._forms[number], self.book)
                if not told.all():
                    named = np.where(told[traffics], named, wholes[traffics])
            found.append(ProgramTransfers(traffics, cores, named))
        return found

    def _of_straight(self, forms: Sequence[int]) -> ProgramTransfers:
        moving = [form for form in forms if self.book.traffic(form) >= 0]
        traffics = np.array([self.book.traffic(form) for form in moving], np.int32)
        cores = np.array([self.book.core(form) for form in moving], np.int32)
        return ProgramTransfers(traffics, cores, np.zeros(len(moving), np.int64))

    @cached_property
    def _walked(self) -> dict[int, tuple[Words, Words]]:
        """Return forms and slices of what nests may move, program by program."""
        memory, found = self.memory.copy(), {}
        rows = np.empty(2 * CHUNK, np.int64)
        for number, walk in enumerate(self.walks):
            if walk < 0:
                continue
            parts = [np.empty((0, 2), np.int64)]
            while end := w.WALKER(memory, 0, walk, rows, 0, len(rows), w.TRANSFERS):
                parts.append(rows[:end].reshape(-1, 2).copy())
            whole = np.concatenate(parts)
            found[number] = whole[:, 0], whole[:, 1]
        return found


class _Slices:
    """Numbers for the slices of all programs of a phase, from `first` on."""

    def __init__(self, programs: Sequence[Program], first: int) -> None:
        # Each nest numbers the slices of a tensor by itself; equal extents mean equal slices.
        self._spaces: dict[tuple[str, tuple[int, ...]], int] = {}
        self._next = first
        for program in programs:
            if isinstance(program, NestProgram):
                for key in program.nest.spaces:
                    if key not in self._spaces:
                        self._spaces[key] = self.taken(prod(key[1]))
        self._known: dict[Hashable, int] = {}

    def taken(self, count: int) -> int:
        """Take so many numbers; return the first one."""
        self._next += count
        return self._next - count

    def of_nest(self, program: NestProgram, places: Words) -> Words:
        """Return the numbers of slices that a nest numbers for itself."""
        spaces = program.nest.spaces
        begins = np.array(list(spaces.values()), np.int64)
        moves = np.array([self._spaces[key] for key in spaces], np.int64) - begins
        return (
            places if not moves.any() else places + moves[np.searchsorted(begins, places, side="right") - 1]
        )

    def of_straight(self, program: Program, forms: Sequence[int], book: FormBook) -> Words:
        """Return the numbers of the slices that instructions name; one without goes on from others."""
        newest: dict[str, int] = {}
        numbers = []
        for made, form in zip(program.instructions, forms, strict=True):
            number = book.traffic(form)
            if number < 0:
                continue
            traffic, gm = book.traffics[number], made.gm
            place: Hashable
            if gm is None:
                place = "from", *next_place(traffic, newest)
            else:
                place = tuple([comparable(part) for part in gm.index])
            key = traffic.tensor.name, place
            if key not in self._known:
                self._known[key] = self.taken(1)
            numbers.append(self._known[key])
        return np.array(numbers, np.int64)


def require_slices(program: NestProgram, book: FormBook) -> None:
    """Refuse a nest that moves bytes without a known place.

    Raises   ProgramError
    """
    for form, traffic in zip(program.nest.forms, book.of_nest(program.nest).traffics, strict=True):
        if traffic >= 0 and form.instruction.gm is None:
            raise ProgramError(
                f"nest {program.nest.name}: {type(form.instruction).__name__} moves bytes and names no slice "
                "of global memory (`gm`); name one, or append these instructions to a ProgramBuilder"
            )
