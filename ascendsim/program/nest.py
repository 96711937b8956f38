"""Loop nests as data: what a core does for each of its tasks, written down once in few words.

    task      the indices of a task; everything below is done for each task
    table     numbers by index, looked up where that is written; `spans` are runs of indices
    loop      an index from first to last, or those of a run
    next      the next tile of a ring, whatever it holds
    hold      the tile of a ring that holds something, and the steps that bring it there where none does
    when      steps that are taken only where a number is not 0
    let, set  a variable
    forget    the tiles of a ring: all are loaded anew
    emit      an instruction

Each index belongs to an axis, which groups its indices by equal cost. So the costs of a nest are a
few hundred, found once, and the walk (`walk.py`) writes rows of integers: which cost, which slots. One
function (the maker) makes an instruction of each class of costs and, where somebody wants instructions, that
of each row; one that costs something else than its row says is refused (`NestProgram`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from math import prod
from operator import gt
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.errors import ProgramError
from ascendsim.frozen import cached_property
from ascendsim.program import walk as w
from ascendsim.program.instruction import (
    Emitter,
    Instruction,
    Operand,
    RowForm,
    Streams,
    first_of,
    require_whole,
    shaped,
    stand_ins,
    streams_of,
)
from ascendsim.program.places import Reserved, Ring, Slot
from ascendsim.program.walk import (
    HERE,
    Axis,
    NestCode,
    Number,
    Span,
    Spans,
    Step,
    Table,
    TileNumber,
    flat,
    mixed,
    number_of,
    texts,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ascendsim.profile import Profile

    Words = NDArray[np.int64]

# Places and slices of a row are numbers of 63 bits.
MOST_PLACES = 1 << 62


class _Look(Number):
    """A table looked up at indices, in a register of its own that is filled if anybody asks for it."""

    def __init__(self, nest: Nest, base: int, at: Sequence[Number], sizes: Sequence[int], axis: Axis) -> None:
        self._nest, self._base, self._at, self._sizes = nest, base, at, sizes
        self._register = 0
        super().__init__({}, 0, axis, "")
        self.step = nest._append(w.GET)

    @property
    def terms(self) -> dict[int, int]:
        """Its register; from now on the look-up is a step of the nest, where it is written."""
        if not self._register:
            self._register = self._nest._new()
            index = mixed(self._at, self._sizes) + self._base
            self.step.words, self.step.live = [self._register, *index.words()], True
            self.step.reads = set(index.terms)
        return {self._register: 1}


class Nest(Reserved):
    """A loop nest, and what it reserves of the buffers of a core."""

    def __init__(self, profile: Profile, name: str = "nest") -> None:
        super().__init__(profile)
        self.name = name
        self.forms: list[RowForm] = []
        self.emitters: list[Emitter] = []
        self._form_numbers: dict[Hashable, int] = {}
        self._steps: list[Step] = []
        self._depth = 1
        self._registers = 1
        self._rings: list[Ring] = []
        self._tables: list[Words] = []
        self._known: dict[bytes, int] = {}
        self._size = 0
        # The extents of the indices of a task, by name.
        self._tasks: dict[str, int] = {}
        # The first slice number of each tensor, by the extents of the numbers that identify slices; and the
        # next one.
        self.spaces: dict[tuple[str, tuple[int, ...]], int] = {}
        self._slices = 0
        # Which rings each emitter takes its tiles of (`Streams`).
        self.streams: list[Streams] = []
        # Instructions that were made, by the rows that they are of (`NestProgram`).
        self.remembered: dict[tuple[int, ...], Any] = {}

    # ---- words

    def task(self, **axes: int | Axis) -> list[Number]:
        """Return the indices of a task; its columns in this order, each with its extent or its axis.

        Raises   ProgramError if it is not the first word that is said, but for tables
        """
        if self._registers > 1:
            raise ProgramError(f"{self.name}: task must come first, and once: all else is done for each task")
        own = list(map(Axis.of, axes.values()))
        self._tasks = {name: axis.extent for name, axis in zip(axes, own, strict=True)}
        registers = [self._new() for _ in axes]
        return [self._index(*each) for each in zip(registers, own, axes, strict=True)]

    def table(self, values: ArrayLike, of: int | Axis = 0, name: str = "table") -> Table:
        """Return numbers by index; they are indices of an axis, or below an extent."""
        found = np.asarray(values, np.int64)
        axis = of if isinstance(of, Axis) else Axis(max(of, int(found.max(initial=0)) + 1))
        if int(found.max(initial=0)) >= axis.extent:
            raise ProgramError(
                f"{self.name}: {name} has {int(found.max())}, but its axis ends at {axis.extent - 1}"
            )
        base = self._data(found)

        def look(at: Sequence[Number]) -> Number:
            extents = tuple([number.axis.extent for number in at])
            if len(at) != found.ndim or any(map(gt, extents, found.shape)):
                raise ProgramError(
                    f"{self.name}: {name} of shape {found.shape} is looked up at ({texts(at)}), indices of "
                    f"extents {extents}; a table has a number for each index of an axis"
                )
            made = _Look(self, base, at, found.shape, axis)
            made.cost = self._costs_at(made)
            return made

        return Table(look, name)

    def spans(self, counts: Sequence[int], of: int | Axis = 0, name: str = "spans") -> Spans:
        """Return runs of indices of an axis that follow each other, with so many each."""
        axis = of if isinstance(of, Axis) else Axis(max(of, sum(counts)))
        ends = np.cumsum([0, *counts])
        if ends[-1] > axis.extent:
            raise ProgramError(f"{self.name}: {name} have {ends[-1]} indices, but their axis {axis.extent}")
        first = self.table(ends[:-1], int(ends[-1]) + 1, f"first {name}")
        count = self.table(counts, max([*counts, 0]) + 1, f"count of {name}")
        return Spans(first, count, axis, name)

    @contextmanager
    def loop(self, over: int | Axis | Span, name: str) -> Iterator[Number]:
        """Go through indices; the body has the index."""
        if not isinstance(over, Span):
            axis = Axis.of(over)
            over = Span(0, axis.extent, axis, str(axis.extent))
        first, count = number_of(over.first), number_of(over.length)
        end, register = self._registered(first + count), self._new()
        begin = self._append(w.FOR, f"for {name} in {over.text}:", register, end, 0, 0, *first.words())
        begin.reads = {end, *first.terms}
        with self._body(begin, 4):
            start = self._append(HERE)
            yield self._index(register, over.axis, name)
            back = self._append(w.END, "", register, end, 0)
            back.goes, back.goes_at = start, 3

    def next(self, ring: Ring, name: str = "") -> TileNumber:
        """Return the first slot of the next tile of a ring."""
        register, text = self._new(), name or ring.name.lower()
        self._append(w.NEXT, f"{text} = next {ring.name}", register, self._ring(ring))
        return TileNumber(register, ring, text)

    @contextmanager
    def hold(
        self, ring: Ring, *tile: Number | int, name: str = "", place: Number | int | None = None
    ) -> Iterator[TileNumber]:
        """Return the tile of a ring that holds something, which numbers say; the body brings it there.

        place   the number in the ring, modulo its tiles, of the one that it is brought into; not given: the
                one whose turn it is
        """
        register, text = self._new(), name or ring.name.lower()
        # Numbers that all tiles share say nothing to a reader.
        told = [each for each in tile if isinstance(each, Number)] or tile
        where = "" if place is None else f", in place {texts([place])}"
        said = f"{text} = {ring.name} of ({texts(told)}); unless it is there{where}:"
        if place is not None:
            chosen = number_of(place)
            self._append(w.TURN, "", self._ring(ring), *chosen.words()).reads = set(chosen.terms)
        numbers = [number_of(each) for each in tile]
        key = self._mixed(numbers, f"tiles of {ring.name}")
        begin = self._append(w.HOLD, said, register, self._ring(ring), 0, *key.words())
        begin.reads = set(key.terms)
        with self._body(begin, 4):
            yield TileNumber(register, ring, text)

    @contextmanager
    def when(self, number: Number) -> Iterator[None]:
        """Take the steps of the body only where a number is not 0."""
        begin = self._append(w.WHEN, f"when {number.text}:", self._registered(number), 0)
        begin.reads = {begin.words[0]}
        with self._body(begin, 2):
            yield

    def let(self, value: Number | int, name: str, of: int | Axis = 0) -> Number:
        """Return a variable with a value; where it is an index, each of the axis must be its own class."""
        number, register = number_of(value), self._new()
        axis = Axis.of(of) if of else Axis(number.axis.extent)
        self._let(register, number, f"{name} = {number.text}")
        made = Number({register: 1}, 0, axis, name)
        if axis.costs is not None:
            if len(axis.first_of) != axis.extent:
                raise ProgramError(f"{self.name}: some indices of the axis of variable {name} are alike")
            # Looked up here it would be stale once the variable is set.
            made.cost = made
        return made

    def set(self, variable: Number, value: Number | int) -> None:
        """Give a variable another value.

        Raises   ProgramError for a number beyond the extent that `let` was given
        """
        number, (register,) = number_of(value), variable.terms
        # What counts itself up ends where the loop around it does.
        if number.axis.extent > variable.axis.extent and register not in number.terms and number.ring < 0:
            raise ProgramError(
                f"{self.name}: variable {variable.text} is set to {number.text}, but ends at "
                f"{variable.axis.extent - 1}; say how far it goes: let(value, name, of=extent or axis)"
            )
        self._let(register, number, f"{variable.text} = {number.text}")

    def forget(self, ring: Ring) -> None:
        """Forget which tiles a ring holds, so that all are loaded anew; turns go on."""
        self._append(w.FORGET, f"forget {ring.name}", self._ring(ring))

    def emit(
        self,
        make: Callable[..., Instruction | None],
        slots: Sequence[Operand] = (),
        at: Sequence[Number | int] = (),
        *,
        slice_at: Sequence[Number | int] | None = None,
        on: int = 0,
        reads: Sequence[Number] = (),
        writes: Sequence[Number] = (),
    ) -> None:
        """Append the instruction make(*slots, *indices); where that is None, there is none.

        slots     at most four tiles or slots; a pair (first slot, count) is handed on as a tuple of slots
        at        its indices; what it costs may depend on each by its class alone (`Axis`)
        slice_at  indices that number the slice of GM that it moves; `at`, if not given. Equal numbers are
                  equal slices, and all that moves slices of one tensor has indices of equal extents here
        on        the core of the program: 0, or 1 or 2 for a vector core beside the cube core
        reads     slots of a hand-over that it reads besides its own; `writes` that it writes

        Raises    ProgramError for more than four slots, or more places than a number holds
        """
        given = [*slots, *reads, *writes]
        if len(given) > w.OPERANDS:
            raise ProgramError(
                f"{self.name}: {make.__name__} names {len(given)} slots; a row of a nest has "
                f"{w.OPERANDS}: hand on neighbours as a pair (first, count)"
            )
        numbers = [number_of(each) for each in at]
        emitter = Emitter(
            make,
            tuple([each[1] if isinstance(each, tuple) else 0 for each in given]),
            tuple([number.axis for number in numbers]),
            tuple([None if isinstance(each, Number) else int(each) for each in at]),
            (on, len(reads), len(writes)),
        )
        form, made = self._formed(emitter, numbers)
        if not made:
            return
        tiles = [first_of(each) for each in given]
        registers = [self._registered(tile) for tile in tiles]
        registers += [0] * (w.OPERANDS - len(registers))
        place = self._mixed(numbers, make.__name__)
        told = numbers if slice_at is None else [number_of(each) for each in slice_at]
        slice_ = self._slice(made, told, place)
        # Register, const and count of a sum, and two words for each of its terms.
        form_words, place_words = form.words(), place.words()
        place_at = 9 + len(form_words)
        sums = [*form_words, *place_words, *slice_.words()]
        said = f"{type(made[0]).__name__}({texts(tiles)})" + f" at ({texts(at)})" * bool(at)
        step = self._append(
            w.EMIT, said, len(self.emitters), *registers, place_at, place_at + len(place_words), *sums
        )
        self.emitters.append(emitter)
        self.streams.append(streams_of(made, tiles))
        step.moves, step.reads = self.streams[-1].moves, {*form.terms, *slice_.terms}

    # ---- what words are made of

    @contextmanager
    def _body(self, begin: Step, goes_at: int) -> Iterator[None]:
        """Write a body; word `goes_at` of the step before it says where it ends."""
        self._depth += 1
        yield
        self._depth -= 1
        begin.goes, begin.goes_at = self._append(HERE), goes_at

    def _formed(self, emitter: Emitter, numbers: Sequence[Number]) -> tuple[Number, list[Instruction]]:
        """Return where the number of the form stands, and the instructions, one for each class of costs."""
        # A plain number stands for itself; its axis has one class.
        classes = [
            number.axis.first_of if own is None else (own,)
            for number, own in zip(numbers, emitter.fixed, strict=True)
        ]
        forms: list[int] = []
        found: list[Instruction] = []
        slots, reads, writes = emitter.handed(stand_ins(emitter.spans))
        for indices in product(*classes):
            made = emitter.make(*slots, *indices)
            forms.append(-1 if made is None else self._form(made, emitter.post[0], reads, writes))
            if made is not None:
                found.append(made)
        told = [number.cost for number in numbers if number.cost is not None]
        form = mixed(told, [cost.axis.extent for cost in told])
        form.const += self._data(np.array(forms))
        return form, found

    def _form(self, made: Instruction, core: int, reads: tuple[Slot, ...], writes: tuple[Slot, ...]) -> int:
        """Return the number of the form of an instruction."""
        require_whole(self.name, made)
        if hasattr(made, "signal"):
            raise ProgramError(
                f"{self.name}: {type(made).__name__} in a nest; the waits of a nest follow from its slots: "
                "append a program with flags of its own to a ProgramBuilder"
            )
        uses = [(slot, False) for slot in made.reads + reads]
        uses += [(slot, True) for slot in made.writes + writes]
        # Stand-ins have no buffer.
        if own := [slot for slot, _ in uses if slot.buffer]:
            raise ProgramError(
                f"{self.name}: {type(made).__name__} uses {own[0]!r}, which its maker was not handed; hand "
                "on by `slots` of `emit` what an instruction uses"
            )
        bits, rest = w.SLOT_BITS, (1 << w.SLOT_BITS) - 1
        told = tuple([(slot.index >> bits, slot.index & rest, written) for slot, written in uses])
        key = made.__class__, made.pipe, made.shape, made.drains, made.trails, core, told
        number = self._form_numbers.get(key)
        if number is None:
            number = self._form_numbers[key] = len(self.forms)
            self.forms.append(RowForm(made, core, told))
        return number

    def _index(self, register: int, axis: Axis, name: str) -> Number:
        """Return the index that stands in a register."""
        index = Number({register: 1}, 0, axis, name)
        index.cost = self._costs_at(index)
        return index

    def _costs_at(self, index: Number) -> Number | None:
        """Return the class of costs of an index, looked up here if anybody asks; None: there is one class."""
        axis = index.axis
        if axis.costs is None:
            return None
        return _Look(self, self._data(axis.costs), [index], [axis.extent], Axis(len(axis.first_of)))

    def _mixed(self, numbers: Sequence[Number], what: str) -> Number:
        """Return the one number that stands for some indices."""
        extents = [number.axis.extent for number in numbers]
        if min(extents, default=1) < 1 or prod(extents) > MOST_PLACES:
            raise ProgramError(
                f"{self.name}: {what} by ({texts(numbers)}) of extents {extents}; an index has 1 or more, "
                "and all of them together at most 2**62"
            )
        return mixed(numbers, extents)

    def _slice(self, made: Sequence[Instruction], told: Sequence[Number], place: Number) -> Number:
        """Return the number of the slice of GM that instructions move; where they move none, their place."""
        moving = [each.gm for each in made if each.gm is not None]
        if not moving:
            return place
        extents = [number.axis.extent for number in told]
        slice_ = mixed(told, extents)
        slice_.const += self._space(moving[0].tensor.name, extents)
        return slice_

    def _space(self, tensor: str, extents: Sequence[int]) -> int:
        """Return the first slice number of a tensor whose slices have numbers of these extents."""
        key = tensor, tuple(extents)
        known = self.spaces.get(key)
        if known is None:
            known, self._slices = self._slices, self._slices + prod(extents)
            self.spaces[key] = known
        if self._slices > MOST_PLACES:
            raise ProgramError(f"{self.name}: slices of {tensor} by {list(extents)} are more than 2**62")
        return known

    def _new(self) -> int:
        self._registers += 1
        return self._registers - 1

    def _data(self, values: Words) -> int:
        """Return where a table stands among all; equal ones stand once."""
        flat = np.ascontiguousarray(values, np.int64).reshape(-1)
        at = self._known.setdefault(flat.tobytes(), self._size)
        if at == self._size:
            self._tables.append(flat)
            self._size += flat.size
        return at

    def _append(self, op: int, text: str = "", *words: int) -> Step:
        if "code" in vars(self):
            raise ProgramError(f"{self.name}: a program walks this nest already; write it down first")
        # A look-up lives once somebody asks for it.
        step = Step(op, self._depth, text, words, op != w.GET)
        self._steps.append(step)
        return step

    def _ring(self, ring: Ring) -> int:
        if ring not in self._rings:
            self._rings.append(ring)
        return self._rings.index(ring) * w.RING

    def _registered(self, number: Number) -> int:
        """Return a register that holds a number."""
        if number.const == 0 and list(number.terms.values()) == [1]:
            return next(iter(number.terms))
        register = self._new()
        self._let(register, number)
        return register

    def _let(self, register: int, number: Number, text: str = "") -> None:
        self._append(w.LET, text, register, *number.words()).reads = set(number.terms)

    # ---- what is read of it

    def require_tasks(self, rows: ArrayLike) -> Words:
        """Return rows of tasks, or records with the fields that `task` names, as the walk reads them.

        Raises   ProgramError for other columns than `task` names, or an index beyond its extent
        """
        names, given = list(self._tasks), np.asarray(rows)
        fields = given.dtype.names or names
        if sorted(fields) != sorted(names):
            raise ProgramError(
                f"{self.name}: tasks have the fields {', '.join(fields)}; they must have {', '.join(names)}"
            )
        if given.dtype.names:
            given = np.stack([given[name] for name in names], axis=1)
        tasks = np.ascontiguousarray(given, np.int64)
        whole = given.dtype.kind in "iu" or bool((tasks == given).all())
        if tasks.size and not (whole and tasks.ndim == 2 and tasks.shape[1] == len(names)):
            raise ProgramError(
                f"{self.name}: tasks are {given.dtype.name} of shape {given.shape}; they must be whole "
                f"numbers, a row for each task with the columns {', '.join(names)}"
            )
        # Without a sign a negative number is beyond any extent.
        for name, column in zip(names, tasks.view(np.uint64).T if tasks.size else (), strict=False):
            if column.max() >= self._tasks[name]:
                at = int(column.argmax())
                raise ProgramError(
                    f"{self.name}: {name} of task {at} is {column.view(np.int64)[at]}; it must be from 0 to "
                    f"{self._tasks[name] - 1}, as `task` says"
                )
        return tasks

    @cached_property
    def code(self) -> NestCode:
        """It as the walk reads it; from now on no step is added."""
        code = flat([step for step in self._steps if step.live])
        rings, held = [], 0
        for ring in self._rings:
            rings.append([ring.first, ring.count, ring.width, held, -1])
            held += ring.count
        tables = np.concatenate([np.empty(0, np.int64), *self._tables])
        moves = np.array([form.instruction.gm is not None for form in self.forms], np.int64)
        ring_table = np.array(rings, np.int64).reshape(-1)
        return NestCode(
            len(self._tasks), np.array(code, np.int64), tables, moves, self._registers, held, ring_table
        )

    def require_like(
        self, emitter: Emitter, indices: Sequence[int], made: Instruction | None, like: Instruction | None
    ) -> None:
        """Refuse an instruction that costs something else than the one that stands for its indices.

        Raises   ProgramError
        """
        if made is None or like is None:
            same = made is like
        else:
            # Different shapes may have equal costs: pixels that begin elsewhere in a row, for instance.
            same = (made.__class__, made.pipe) == (like.__class__, like.pipe) and (
                made.shape == like.shape or made.cost(self.profile) == like.cost(self.profile)
            )
        if not same:
            raise ProgramError(
                f"nest {self.name}: {emitter.named(indices)} makes {shaped(made)}, which does not cost what "
                f"{shaped(like)} costs, though the axes of its indices say that both are alike; let "
                "`Axis.costs` separate indices of different costs"
            )

    def check_axes(self, most: int = 256) -> None:
        """Refuse a nest whose axes take for alike what is not: costs would be wrong, or a walk would stop.

        Each index of each emitter is tried, `most` of an axis, with the first index for the others.

        Raises   ProgramError
        """
        for emitter in self.emitters:
            slots, _, _ = emitter.handed(stand_ins(emitter.spans))
            for number, axis in enumerate(emitter.axes):
                if emitter.fixed[number] is not None:
                    continue
                # What is left over lies at the end.
                for index in {*range(0, axis.extent, -(-axis.extent // most)), axis.extent - 1}:
                    class_ = 0 if axis.costs is None else int(axis.costs[index])
                    first = [0 if fixed is None else fixed for fixed in emitter.fixed]
                    other = first.copy()
                    first[number], other[number] = axis.first_of[class_], index
                    like, made = (emitter.make(*slots, *indices) for indices in (first, other))
                    self.require_like(emitter, other, made, like)

    def __str__(self) -> str:
        said = [f"{self.name}: for each task ({', '.join(self._tasks)}):"]
        said += ["    " * step.depth + step.text for step in self._steps if step.live and step.text]
        return "\n".join(said)
