"""The walker of loop nests: it goes on with the nest of one core until a buffer of rows is full.

To be compiled, inside the engine and alone; plain Python gives the same rows. A nest is a flat program of
integers (`nest.py` writes it). The place of a core in it, its registers, and what its rings hold are numbers
in one array `m`, so that a walk stops after any row and goes on from there.

    code        the steps, each an operation and its operands
    data        tables over indices, end to end: numbers, and numbers of forms
    registers   what indices, variables and look-ups are at the moment; register 0 is always 0
    rings       of each ring: its first slot, how many tiles it has, slots of a tile, where `tiles` has its
                tiles, and whose turn it was last
    tiles       the key of the tile that each place of a ring holds; -1: nothing

A sum of registers is written as its constant, the number of its terms, and a register and a factor for each.

`Step` is a step as a nest writes it down; `flat` makes the flat program of a list of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ascendsim.errors import ProgramError
from ascendsim.native import Native
from ascendsim.program.places import Ring

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.int64]


# Steps.
FOR, END, LET, GET, NEXT, TURN, HOLD, EMIT, WHEN, FORGET, STOP = range(11)
# The walk of one core: where its tables lie in the array, which of its tasks come, and where it is in the
# code (-1: before a task). FORM is the number of the nest's first form among all that the reader knows, and
# MOVES is the place where each form says whether it moves bytes (1) or not (0).
CODE, DATA, TASKS, COLUMNS, TASK, LAST_TASK, PC, REGISTERS, TILES, RINGS, FORM, MOVES = range(12)
WALK: Final = 12
# One ring.
R_FIRST, R_COUNT, R_WIDTH, R_TILES, R_TURN = range(5)
RING: Final = 5
# What is written for each row: its form and its slots, for the engine; of rows that move bytes alone the form
# and the slice, for L2; or the form with the number of what emits it, its slots, and its place.
ROWS, TRANSFERS, PLACED = range(3)
# Bits of a slot in a row, and of the number of a form beside that of what emits it.
SLOT_BITS: Final = 16
FORM_BITS: Final = 32
# The most slots that a row names.
OPERANDS: Final = 4


def total(m: Any, at: int, registers: int) -> int:
    """Return the sum of registers that stands at a place of the code."""
    value, terms = m[at], m[at + 1]
    at += 2
    for _ in range(terms):
        value += m[at + 1] * m[registers + m[at]]
        at += 2
    return int(value)


def walk(m: Any, base: int, at: int, rows: Any, begin: int, end: int, mode: int) -> int:
    """Write the next rows of a core from `rows[begin]` on, at most up to `rows[end]`; return where they end.

    Nothing is written where there are no more. All tables of walks lie in `m` from `base` on, and `at` says
    where the walk of the core stands among them; `mode` says what is written (`ROWS`, `TRANSFERS`, `PLACED`).
    """
    w, n = base + at, begin
    code, data, columns, moves = base + m[w + CODE], base + m[w + DATA], m[w + COLUMNS], base + m[w + MOVES]
    registers, tiles, rings = base + m[w + REGISTERS], base + m[w + TILES], base + m[w + RINGS]
    pc = m[w + PC]
    while True:
        if pc < 0:
            if m[w + TASK] == m[w + LAST_TASK]:
                break
            task = base + m[w + TASKS] + columns * m[w + TASK]
            for column in range(columns):
                m[registers + 1 + column] = m[task + column]
            m[w + TASK] += 1
            pc = 0
        p = code + pc
        step = m[p]
        if step == EMIT:
            # next step, emitter, four registers of slots, where the sums of place and slice stand; form
            pc = m[p + 1]
            form = m[data + total(m, p + 9, registers)]
            if form < 0 or (mode == TRANSFERS and m[moves + form] == 0):
                continue
            if mode == TRANSFERS:
                rows[n], rows[n + 1] = form, total(m, code + m[p + 8], registers)
                n += 2
            else:
                rows[n + 1] = (
                    m[registers + m[p + 3]]
                    | m[registers + m[p + 4]] << SLOT_BITS
                    | m[registers + m[p + 5]] << 2 * SLOT_BITS
                    | m[registers + m[p + 6]] << 3 * SLOT_BITS
                )
                if mode == ROWS:
                    rows[n] = m[w + FORM] + form
                    n += 2
                else:
                    rows[n] = form | m[p + 2] << FORM_BITS
                    rows[n + 2] = total(m, code + m[p + 7], registers)
                    n += 3
            if n + 3 > end:
                break
        elif step == NEXT:
            ring = rings + m[p + 2]
            turn = m[ring + R_TURN] + 1
            if turn == m[ring + R_COUNT]:
                turn = 0
            m[ring + R_TURN] = turn
            # Whatever it held is held no longer.
            m[tiles + m[ring + R_TILES] + turn] = -1
            m[registers + m[p + 1]] = m[ring + R_FIRST] + turn * m[ring + R_WIDTH]
            pc += 3
        elif step == END:
            index = m[registers + m[p + 1]] + 1
            m[registers + m[p + 1]] = index
            if index < m[registers + m[p + 2]]:
                pc = m[p + 3]
            else:
                pc += 4
        elif step == GET:
            m[registers + m[p + 2]] = m[data + total(m, p + 3, registers)]
            pc = m[p + 1]
        elif step == LET:
            m[registers + m[p + 2]] = total(m, p + 3, registers)
            pc = m[p + 1]
        elif step == HOLD:
            # next step, register, ring, step behind the body; key
            ring = rings + m[p + 3]
            key, found, held = total(m, p + 5, registers), -1, tiles + m[ring + R_TILES]
            for place in range(m[ring + R_COUNT]):
                if m[held + place] == key:
                    found = place
            pc = m[p + 4]
            if found < 0:
                found = m[ring + R_TURN] + 1
                if found == m[ring + R_COUNT]:
                    found = 0
                m[ring + R_TURN] = found
                m[held + found] = key
                pc = m[p + 1]
            m[registers + m[p + 2]] = m[ring + R_FIRST] + found * m[ring + R_WIDTH]
        elif step == TURN:
            # next step, ring; number of the tile that comes next
            ring = rings + m[p + 2]
            count = m[ring + R_COUNT]
            m[ring + R_TURN] = (total(m, p + 3, registers) + count - 1) % count
            pc = m[p + 1]
        elif step == FOR:
            # next step, index, register of its end, step behind the body, whether that moves nothing; begin
            index = total(m, p + 6, registers)
            m[registers + m[p + 2]] = index
            pc = m[p + 1]
            if index >= m[registers + m[p + 3]] or (mode == TRANSFERS and m[p + 5]):
                pc = m[p + 4]
        elif step == WHEN:
            if m[registers + m[p + 1]]:
                pc += 3
            else:
                pc = m[p + 2]
        elif step == FORGET:
            ring = rings + m[p + 1]
            for place in range(m[ring + R_COUNT]):
                m[tiles + m[ring + R_TILES] + place] = -1
            pc += 2
        else:
            pc = -1
    m[w + PC] = pc
    return n


# For type checkers a plain function is no FunctionType.
_total: Any = total
FUNCTIONS: Any = (total, walk)
_ARGUMENTS: Final = ("int64[]", "int64", "int64", "int64[]", "int64", "int64", "int64")
WALKER: Final = Native(FUNCTIONS, _ARGUMENTS, (_total,))


class Axis:
    """Indices from 0 to `extent` - 1; indices with equal `costs` have equal costs.

    costs   by index the number of its class of costs; None: an index is a place only, and all costs are equal
    """

    # What most axes have, so that these are made fast. Of each class the first index that belongs to it.
    costs: Words | None = None
    first_of: Sequence[int] = (0,)

    def __init__(self, extent: int, costs: Sequence[int] | None = None) -> None:
        self.extent = extent
        if costs is not None:
            if len(costs) != extent:
                raise ProgramError(f"an axis of {extent} indices has {len(costs)} costs; give one for each")
            numbers = alike(costs)
            # From the last index to the first, so that the first of each class stays.
            first = dict(zip(reversed(numbers), reversed(range(extent)), strict=True))
            if len(first) > 1:
                self.costs = np.array(numbers, np.int64)
                self.first_of = [first[number] for number in range(len(first))]

    @classmethod
    def of(cls, extent: int | Axis) -> Axis:
        """Return an axis as it is, or one whose indices only say where."""
        return extent if isinstance(extent, Axis) else cls(extent)


def alike(told: Sequence[Hashable]) -> list[int]:
    """Return a number for each of some things, equal ones for equal things."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(each, len(known)) for each in told]


class Number:
    """A number of a nest that is known when the nest is walked: a sum of registers."""

    # Of an index of an axis with classes of costs its class. Of a slot the first one of its ring.
    cost: Number | None = None
    ring = -1

    def __init__(self, terms: dict[int, int], const: int, axis: Axis, text: str) -> None:
        self._terms, self.const, self.axis, self.text = terms, const, axis, text

    @property
    def terms(self) -> dict[int, int]:
        """The factor of each register."""
        return self._terms

    def __add__(self, other: Number | int) -> Number:
        if isinstance(other, int):
            if other < 0:
                raise ProgramError(f"{self.text} + {other}: numbers of a nest are not below 0")
            extent, text = self.axis.extent + max(other, 0), f"{self.text} + {other}" if other else self.text
            moved = Number(self.terms, self.const + other, Axis(extent), text)
            moved.ring = self.ring
            return moved
        terms = dict(self.terms)
        for register, factor in other.terms.items():
            terms[register] = terms.get(register, 0) + factor
        extent = self.axis.extent + other.axis.extent - 1
        moved = Number(terms, self.const + other.const, Axis(extent), f"{self.text} + {other.text}")
        moved.ring = max(self.ring, other.ring)
        return moved

    def __mul__(self, factor: int) -> Number:
        terms = {register: each * factor for register, each in self.terms.items()}
        extent = (self.axis.extent - 1) * factor + 1
        return Number(terms, self.const * factor, Axis(extent), f"{self.text} * {factor}")

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: object) -> bool:
        """Refuse to be compared: Python would go on with one answer for all tasks and indices.

        Raises   ProgramError
        """
        raise ProgramError(
            f"{self.text} is known only when the nest is walked; make a table of the condition by index, and "
            "take steps where it is not 0: with nest.when(table[index])"
        )

    def __bool__(self) -> bool:
        """Refuse, as `__eq__` does."""
        return self == 0

    __hash__ = object.__hash__

    def words(self) -> list[int]:
        """Return it as the walk reads it."""
        words = [self.const, 0]
        for register, factor in self.terms.items():
            if factor:
                words += register, factor
        words[1] = len(words) // 2 - 1
        return words


class TileNumber(Number):
    """The first slot of a tile of a ring."""

    def __init__(self, register: int, ring: Ring, text: str) -> None:
        super().__init__({register: 1}, 0, Axis(ring.first + len(ring.slots)), text)
        self._ring, self.ring = ring, ring.first

    @property
    def turn(self) -> Number:
        """The number of the tile in its ring, whose tiles are of one slot.

        Raises   ProgramError for others
        """
        if self._ring.width > 1:
            raise ProgramError(f"turn of {self.text}: only tiles of one slot are numbered")
        return Number(self.terms, -self._ring.first, Axis(self._ring.count), f"turn of {self.text}")


class Table:
    """Numbers by index: `table[i, j]`; `look` looks it up at some indices."""

    def __init__(self, look: Callable[[tuple[Number, ...]], Number], name: str) -> None:
        self._look, self._name = look, name

    def __getitem__(self, at: Number | tuple[Number, ...]) -> Number:
        given = at if isinstance(at, tuple) else (at,)
        look = self._look(given)
        look.text = f"{self._name}[{texts(given)}]"
        return look


class Span(NamedTuple):
    """Indices of an axis from `first` on, so many of them."""

    first: Number | int
    length: Number | int
    axis: Axis
    text: str


class Spans:
    """Runs of indices that follow each other: `spans[i]` are those of run i."""

    def __init__(self, first: Table, count: Table, axis: Axis, name: str) -> None:
        self._first, self._count, self._axis, self._name = first, count, axis, name

    def __getitem__(self, at: Number) -> Span:
        return Span(self._first[at], self._count[at], self._axis, f"{self._name}[{at.text}]")


def number_of(value: Number | int) -> Number:
    """Return a number unchanged, or an integer as a constant number."""
    return value if isinstance(value, Number) else Number({}, value, Axis(value + 1), str(value))


def texts(numbers: Sequence[Number | int]) -> str:
    """Return the names of numbers, with commas between them."""
    return ", ".join([each.text if isinstance(each, Number) else str(each) for each in numbers])


def mixed(numbers: Sequence[Number], extents: Sequence[int]) -> Number:
    """Return the one number that stands for some numbers below these extents."""
    terms: dict[int, int] = {}
    const, factor = 0, 1
    for number, extent in zip(reversed(numbers), reversed(extents), strict=True):
        const += number.const * factor
        for register, each in number.terms.items():
            terms[register] = terms.get(register, 0) + each * factor
        factor *= extent
    return Number(terms, const, Axis(max(1, factor)), "")


def unmixed(mixed: int, extents: Sequence[int]) -> list[int]:
    """Return the numbers that a mixed number stands for."""
    found = []
    for extent in reversed(extents):
        mixed, own = divmod(mixed, extent)
        found.append(own)
    return found[::-1]


class Step:
    """A step as it is written down: its words, the words that name other steps by their places, its text.

    live   whether anybody needs it: a look-up that nobody asks for is left out
    goes   the step that word `goes_at` names
    reads  the registers that it reads to find out what moves, and whether it moves bytes itself
    """

    __slots__ = ("depth", "goes", "goes_at", "live", "moves", "op", "reads", "text", "words")

    def __init__(self, op: int, depth: int, text: str, words: Sequence[int], live: bool) -> None:
        self.op, self.depth, self.text, self.words, self.live = op, depth, text, list(words), live
        self.goes: Step | None = None
        self.goes_at = 0
        self.reads: set[int] = set()
        self.moves = False


# A place to go on from, which is no step of the walk.
HERE = -1
# The steps whose second word says where the next one is.
_WITH_NEXT = frozenset([EMIT, FOR, LET, GET, TURN, HOLD])


class NestCode(NamedTuple):
    """A nest as the walk reads it: `registers` and `held` are how many it needs, `rings` how these begin.

    `moves` says of each form whether it may move bytes.
    """

    columns: int
    code: Words
    data: Words
    moves: Words
    registers: int
    held: int
    rings: Words


def flat(steps: Sequence[Step]) -> list[int]:
    """Return steps end to end as the walk reads them (`walk.py`)."""
    code: list[int] = []
    where: dict[int, int] = {}
    named: list[tuple[int, Step]] = []
    still = _still_loops(steps)
    for step in steps:
        where[id(step)] = at = len(code)
        if step.op == HERE:
            continue
        code.append(step.op)
        if step.op in _WITH_NEXT:
            code.append(0)
        code += step.words
        if step.op in _WITH_NEXT:
            code[at + 1] = len(code)
        if step.op == EMIT:
            code[at + 7] += at
            code[at + 8] += at
        elif step.goes is not None:
            named.append((at + step.goes_at, step.goes))
        if id(step) in still:
            code[at + 5] = 1
    code.append(STOP)
    for place, step in named:
        code[place] = where[id(step)]
    return code


def _still_loops(steps: Sequence[Step]) -> set[int]:
    """Return the loops that nobody needs who only wants to know what moves: nothing moves in them.

    Nor do they find tiles, or set a register that a needed step reads, or take tiles of a ring in which
    others are found.
    """
    place = {id(step): at for at, step in enumerate(steps)}
    reads = [step.reads if step.op != EMIT or step.moves else set() for step in steps]
    asked = set().union(*reads)
    # Rings in which tiles are found, and those whose turn decides something.
    held = {
        step.words[1] for step in steps if step.op == HOLD or (step.op == NEXT and step.words[0] in asked)
    }
    found = set()
    for first, step in enumerate(steps):
        if step.op != FOR:
            continue
        assert step.goes is not None
        last = place[id(step.goes)]
        body = steps[first + 1 : last]
        made = {each.words[0] for each in (step, *body) if each.op in (LET, GET, FOR, NEXT)}
        if not (
            any(each.op in (HOLD, FORGET) or each.moves for each in body)
            or any(each.op == NEXT and each.words[1] in held for each in body)
            or any(made & own for own in (*reads[: first + 1], *reads[last:]))
        ):
            found.add(id(step))
    return found
