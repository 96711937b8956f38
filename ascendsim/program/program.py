"""The program of one core, or of a cube core with the vector cores beside it, in program order.

A schedule says what a core does as a loop nest (`nest.py`), which is walked for the tasks of the core; or a
`ProgramBuilder` collects instruction after instruction. A `Kernel` (`kernel.py`) says which core runs which
program, phase after phase.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.errors import ProgramError
from ascendsim.frozen import cached_property
from ascendsim.program import walk as w
from ascendsim.program.flags import bound, require_flag, signal_of
from ascendsim.program.instruction import Instruction
from ascendsim.program.nest import Nest
from ascendsim.program.places import HOME, VECTOR_CORES, Post, Reserved, Slot, core_of, pipe_on
from ascendsim.program.waits import HAZARDS, Derived, Waits, derive
from ascendsim.program.walk import unmixed

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ascendsim.profile import Profile

    Words = NDArray[np.int64]

# Rows that are walked at once, and instructions that a nest remembers to have made.
CHUNK = 4096
REMEMBERED = 1 << 16


class Program:
    """Instructions of one core, or of a cube core and its vector cores, in program order.

    `posts` are those of the instructions that have one, by index (`Post` in `places.py`). `hazards` are the
    classes of waits between its pipes that hold. `buffer_bytes` is what the slots reserve of each buffer,
    `profile` the product that it was written for, if that is known. Where a program has flags of its own,
    `own_slots` counts the slots of its tiles, which order nothing; those behind them are flags. Else: -1.
    """

    def __init__(
        self,
        instructions: Sequence[Instruction],
        slots: tuple[Slot, ...],
        buffer_bytes: Mapping[str, int],
        hazards: frozenset[str] = HAZARDS,
        waits: Derived | None = None,
        posts: Mapping[int, Post] | None = None,
        profile: Profile | None = None,
        own_slots: int = -1,
    ) -> None:
        self.instructions = tuple(instructions)
        self.slots, self.buffer_bytes, self.hazards = slots, buffer_bytes, hazards
        self.posts: Mapping[int, Post] = posts or {}
        self._given, self.profile, self.own_slots = waits, profile, own_slots

    def __len__(self) -> int:
        return len(self.instructions)

    def expanded(self) -> Iterator[Instruction]:
        """Yield all instructions in order."""
        yield from self.instructions

    @cached_property
    def pipes(self) -> Sequence[str]:
        """The name of every instruction's pipe, which names its core, too."""
        names = [made.pipe for made in self.instructions]
        for at, post in self.posts.items():
            names[at] = pipe_on(post.core, names[at])
        return tuple(names)

    @cached_property
    def used(self) -> tuple[str, ...]:
        """The names of all pipes that it uses, in the order in which they are met."""
        return tuple(dict.fromkeys(self.pipes))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of instructions on each core: one number if the program runs on one core only."""
        if not self.posts:
            return (len(self),)
        cores = [core_of(pipe) for pipe in self.pipes]
        return tuple([cores.count(core) for core in range(1 + max(cores))])

    @property
    def cores(self) -> int:
        """The number of cores that the program runs on."""
        return 1 + max([post.core for post in self.posts.values()], default=0)

    def core_of(self, index: int) -> int:
        """Return the core of an instruction."""
        return self.posts.get(index, HOME).core

    @cached_property
    def _waits(self) -> Derived:
        if self._given is not None:
            return self._given
        return derive(self.instructions, len(self.slots), self.hazards, self.posts, self.own_slots)

    @property
    def tile_slots(self) -> int:
        """The number of its slots that hold tiles; those behind them are flags of its own."""
        return len(self.slots) if self.own_slots < 0 else self.own_slots

    @property
    def usual(self) -> bool:
        """Whether its waits are those that follow from its slots, all classes of them."""
        return self._given is None and self.hazards == HAZARDS

    @property
    def done_back(self) -> tuple[tuple[int, ...], ...]:
        """For each instruction how far back those lie whose results must be visible before it starts."""
        return self._waits.done_back

    @property
    def end_back(self) -> tuple[tuple[int, ...], ...]:
        """For each instruction how far back those lie that must have left their pipe before it starts."""
        return self._waits.end_back

    @property
    def trail_back(self) -> Mapping[int, tuple[int, ...]]:
        """For instructions that trail others how far back those lie."""
        return self._waits.trail_back

    @property
    def after_done(self) -> Waits:
        """For each instruction the indices whose results must be visible before it starts."""
        return Waits(self.done_back)

    @property
    def after_end(self) -> Waits:
        """For each instruction the indices that must have left their pipe before it starts."""
        return Waits(self.end_back)

    def trailed(self, index: int) -> tuple[int, ...]:
        """Return the indices of the instructions that one trails; mostly there are none."""
        return tuple([index - back for back in self.trail_back.get(index, ())])

    def counted(self) -> list[tuple[Instruction, int]]:
        """Return instructions, each with how often one comes that moves as many bytes."""
        return [(made, 1) for made in self.instructions]

    def digest(self, known: dict[Hashable, int]) -> Hashable:
        """Return a digest of all that decides the cost; programs with equal digests have equal costs.

        known   numbers of the parts of programs, one table for all that are compared
        """
        forms, slices = [], []
        places: dict[str, int] = {}
        for at, made in enumerate(self.instructions):
            post = self.posts.get(at, HOME)
            reads, writes = ([slot.index for slot in own] for own in (made.reads, made.writes))
            told = made.__class__, made.pipe, made.shape, tuple(reads), tuple(writes), _told(post)
            forms.append(known.setdefault(told, len(known)))
            # Slices of GM are numbered by first use: a slice that is used again may be in L2.
            if made.gm is not None:
                slices.append(places.setdefault(str(made.gm), len(places)))
        return tuple(forms), tuple(slices), self._given


class NestProgram(Program):
    """A loop nest for the tasks of one core: its instructions are made when somebody asks for them.

    tasks   a row for each, with the columns that `Nest.task` names

    Raises   ProgramError for rows with other columns or indices; as instructions are made: one costs
             something else, or uses its slots in another way, than the row that stands for it, since the
             axes of the nest say that both are alike
    """

    def __init__(self, nest: Nest, tasks: ArrayLike, hazards: frozenset[str] = HAZARDS) -> None:
        self.nest = nest
        self.tasks = nest.require_tasks(tasks)
        self.slots, self.buffer_bytes, self.hazards = tuple(nest.slots_reserved), nest.used_bytes, hazards
        self._given, self.profile, self.own_slots = None, nest.profile, -1

    def __reduce__(self) -> tuple[Any, ...]:
        # What makes instructions are functions, some of them made inside of others.
        return Program, (self.instructions, self.slots, self.buffer_bytes, self.hazards, None, self.posts)

    def __len__(self) -> int:
        return self._length

    @cached_property
    def _length(self) -> int:
        return sum([len(rows) for rows in self.walked(w.ROWS)])

    def walked(self, mode: int) -> Iterator[Words]:
        """Yield its rows, some thousand at once; `mode` says what of them (`walk.py`)."""
        width = 3 if mode == w.PLACED else 2
        rows = np.empty(CHUNK * width, np.int64)
        memory, (at,) = walk_memory([self])
        while end := w.WALKER(memory, 0, at, rows, 0, len(rows), mode):
            yield rows[:end].reshape(-1, width)

    def expanded(self) -> Iterator[Instruction]:
        """Yield all instructions in order; of a nest those without a slice are kept for the next time."""
        for made, _ in self.placed():
            yield made

    def placed(self) -> Iterator[tuple[Instruction, Post]]:
        """Yield all instructions in order, each with its post."""
        remembered = self.nest.remembered
        for rows in self.walked(w.PLACED):
            for row in rows.tolist():
                told = tuple(row)
                known = remembered.get(told)
                if known is None:
                    known = self._made(*told)
                    # What moves bytes has a slice of its own nearly every time.
                    if known[0].gm is None and len(remembered) < REMEMBERED:
                        remembered[told] = known
                yield known

    def _made(self, of: int, operands: int, place: int) -> tuple[Instruction, Post]:
        """Return the instruction of a row, and its post."""
        form, emitter = self.nest.forms[of & ((1 << w.FORM_BITS) - 1)], self.nest.emitters[of >> w.FORM_BITS]
        slots: list[Slot] = []
        firsts = []
        for number, count in enumerate(emitter.spans):
            first = operands >> w.SLOT_BITS * number & ((1 << w.SLOT_BITS) - 1)
            firsts.append(first)
            slots += self.slots[first : first + max(1, count)]
        indices = unmixed(place, emitter.extents)
        own, reads, writes = emitter.handed(slots)
        made = emitter.make(*own, *indices)
        self.nest.require_like(emitter, indices, made, form.instruction)
        assert made is not None
        used = [slot.index for slot in (*made.reads, *reads, *made.writes, *writes)]
        if used != [firsts[operand] + behind for operand, behind, _ in form.uses]:
            raise ProgramError(
                f"nest {self.nest.name}: {emitter.named(indices)} makes {made}, which uses other slots of "
                f"its row than {form.instruction}; let `Axis.costs` separate these indices"
            )
        post = HOME if not form.core and not reads and not writes else Post(form.core, reads, writes)
        return made, post

    @cached_property
    def cores(self) -> int:
        """The number of cores that the program runs on."""
        core_of = np.array([form.core for form in self.nest.forms], np.int64)
        if not core_of.any():
            return 1
        # One on which the nest may emit takes no part where the tasks give it nothing.
        return 1 + max([int(core_of[rows[:, 0]].max()) for rows in self.walked(w.ROWS)], default=0)

    @cached_property
    def pipes_possible(self) -> set[str]:
        """The names of all pipes on which its nest emits anything."""
        return {pipe_on(form.core, form.instruction.pipe) for form in self.nest.forms}

    def counted(self) -> list[tuple[Instruction, int]]:
        """Return an instruction of each emitter and form, as the nest has them, and how often it comes."""
        counts: Counter[int] = Counter()
        some: dict[int, list[int]] = {}
        for rows in self.walked(w.PLACED):
            kinds, first, count = np.unique(rows[:, 0], return_index=True, return_counts=True)
            counts.update(dict(zip(kinds.tolist(), count.tolist(), strict=True)))
            some = {**dict(zip(kinds.tolist(), rows[first].tolist(), strict=True)), **some}
        return [(self._made(*some[kind])[0], counts[kind]) for kind in sorted(some)]

    def digest(self, known: dict[Hashable, int]) -> Hashable:
        """Return a digest of all that decides the cost, read off the rows."""
        rows = np.concatenate([np.empty((0, 3), np.int64), *[rows.copy() for rows in self.walked(w.PLACED)]])
        moved = [rows[:, 1].copy() for rows in self.walked(w.TRANSFERS)]
        # Slices are numbered by first use: a slice that is used again may be in L2.
        named = np.concatenate([np.empty(0, np.int64), *moved])
        _, first, slices = np.unique(named, return_index=True, return_inverse=True)
        ranks = np.argsort(np.argsort(first))[slices]
        return self._kinds(rows, known).tobytes(), rows[:, 1].tobytes(), ranks.tobytes(), self.hazards

    def _kinds(self, rows: Words, known: dict[Hashable, int]) -> Words:
        """Return a number for each row: equal ones are instructions of one shape, which is known by it."""
        kinds = np.empty(len(rows), np.int64)
        emitters = rows[:, 0] >> w.FORM_BITS
        for number in np.unique(emitters).tolist():
            own = np.flatnonzero(emitters == number)
            place, told = rows[own, 2], np.zeros(len(own), np.int64)
            # An index that only says where has no part in a shape.
            for axis in reversed(self.nest.emitters[number].axes):
                place, index = np.divmod(place, axis.extent)
                if axis.costs is not None:
                    told = told * axis.extent + index
            _, some, kind = np.unique(told, return_index=True, return_inverse=True)
            shapes = []
            for row in rows[own[some]].tolist():
                made, post = self._made(*row)
                uses = self.nest.forms[row[0] & ((1 << w.FORM_BITS) - 1)].uses
                shapes.append(
                    known.setdefault((made.__class__, made.pipe, made.shape, post.core, uses), len(known))
                )
            kinds[own] = np.array(shapes, np.int64)[kind]
        return kinds

    def check_slices(self) -> None:
        """Refuse a nest that numbers slices of global memory otherwise than they are: L2 would find others.

        Raises   ProgramError
        """
        moved = [number for rows in self.walked(w.TRANSFERS) for number in rows[:, 1].tolist()]
        slices = [made for made in self.instructions if made.gm is not None]
        numbers: dict[str, int] = {}
        places: dict[int, str] = {}
        for number, made in zip(moved, slices, strict=True):
            assert made.gm is not None
            place = f"{made.gm.tensor.name}{list(made.gm.index)}"
            other = places.setdefault(number, place)
            if other != place or numbers.setdefault(place, number) != number:
                what = f"and {other} have one number" if other != place else "has several numbers"
                raise ProgramError(
                    f"nest {self.nest.name}: slice {place} of global memory {what}; let `slice_at` of `emit` "
                    "distinguish slices of a tensor, and nothing else"
                )

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions in order."""
        return tuple([made for made, _ in self._all])

    @cached_property
    def posts(self) -> Mapping[int, Post]:
        """The posts of all instructions that have one, by index."""
        return {at: post for at, (_, post) in enumerate(self._all) if post is not HOME}

    @cached_property
    def _all(self) -> tuple[tuple[Instruction, Post], ...]:
        return tuple(self.placed())


def _told(post: Post) -> Hashable:
    return post.core, *[tuple([slot.index for slot in own]) for own in post[1:]]


def walk_memory(programs: Sequence[NestProgram], firsts: Sequence[int] = ()) -> tuple[Words, list[int]]:
    """Return an array for the walks of some programs, and where the walk of each stands in it.

    firsts   the number of the first form of each; none: 0
    """
    parts: list[Words] = []
    size = 0

    def put(part: Words) -> int:
        nonlocal size
        parts.append(part)
        size += len(part)
        return size - len(part)

    # Programs of one nest share what it says; each has a state of its own.
    said: dict[int, tuple[int, int, int]] = {}
    walks = []
    for number, program in enumerate(programs):
        code = program.nest.code
        if id(code) not in said:
            said[id(code)] = put(code.code), put(code.data), put(code.moves)
        walk = np.zeros(w.WALK, np.int64)
        walk[[w.CODE, w.DATA, w.MOVES]] = said[id(code)]
        walk[w.TASKS], walk[w.COLUMNS] = put(program.tasks.reshape(-1)), code.columns
        walk[w.LAST_TASK], walk[w.PC] = len(program.tasks), -1
        walk[w.REGISTERS] = put(np.zeros(code.registers, np.int64))
        walk[w.TILES], walk[w.RINGS] = put(np.full(code.held, -1, np.int64)), put(code.rings)
        walk[w.FORM] = firsts[number] if firsts else 0
        walks.append(put(walk))
    return np.concatenate([np.empty(0, np.int64), *parts]), walks


class ProgramBuilder(Reserved):
    """Collects the instructions of one core, or of a cube core and the vector cores beside it.

    `hazards` names the classes of waits that hold; all of them, except in tests that show what a missing
    class does.
    """

    def __init__(self, profile: Any, hazards: frozenset[str] = HAZARDS) -> None:
        super().__init__(profile)
        self._hazards = hazards
        self._instructions: list[Instruction] = []
        self._posts: dict[int, Post] = {}
        self._written: set[int] = set()

    def __len__(self) -> int:
        return len(self._instructions)

    def add(
        self,
        instruction: Instruction,
        on: int = 0,
        *,
        reads: tuple[Slot, ...] = (),
        writes: tuple[Slot, ...] = (),
    ) -> None:
        """Append one instruction of core `on`: 0, or 1 or 2 for a vector core beside the cube core.

        `reads` and `writes` are slots of a hand-over, beside those that the instruction itself names.

        Raises   ProgramError if it reads a slot that nothing has written, or names what is no slot
        """
        if on or reads or writes:
            if not 0 <= on <= VECTOR_CORES:
                raise ProgramError(
                    f"instruction {len(self)} ({type(instruction).__name__}) is put on core {on}; a program "
                    f"has core 0, and beside a cube core the vector cores 1 to {VECTOR_CORES}"
                )
            self._posts[len(self)] = Post(on, reads, writes)
        for slot in (*instruction.reads, *reads, *instruction.writes, *writes):
            if not isinstance(slot, Slot):
                raise ProgramError(
                    f"instruction {len(self)} ({type(instruction).__name__}) has {slot!r} for a slot; of the "
                    "tuple that `slots` returns take one: [tile] = b.slots(...)"
                )
        for slot in (*instruction.reads, *reads):
            if slot.index not in self._written:
                raise ProgramError(
                    f"instruction {len(self)} ({type(instruction).__name__}) reads {slot!r}, which nothing "
                    "has written"
                )
        require_flag(len(self), instruction, self.profile)
        self._written.update([slot.index for slot in (*instruction.writes, *writes)])
        self._instructions.append(instruction)

    def build(self) -> Program:
        """Return the finished program.

        Raises   ProgramError for flags of its own that do not meet, and for a deadlock
        """
        slots, used = tuple(self.slots_reserved), dict(self.used_bytes)
        return program_of(self._instructions, slots, used, self._hazards, self._posts, self.profile)


def program_of(
    instructions: Sequence[Instruction],
    slots: tuple[Slot, ...],
    buffer_bytes: Mapping[str, int],
    hazards: frozenset[str],
    posts: Mapping[int, Post],
    profile: Profile | None,
    *,
    by_flags: bool = False,
) -> Program:
    """Return the program of some instructions: one that has flags of its own is ordered by them alone.

    `by_flags` says that one without any is ordered as if it had some: its tiles order nothing.

    Raises   ProgramError for flags that do not meet, and for a deadlock
    """
    if not by_flags and not any(signal_of(made) for made in instructions):
        return Program(instructions, slots, buffer_bytes, hazards, posts=posts, profile=profile)
    full, own = bound(instructions, posts, slots)
    return Program(instructions, full, buffer_bytes, hazards, None, own, profile, len(slots))
