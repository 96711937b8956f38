"""Instructions: one command on one pipe, that says once what it uses, what it means and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from inspect import getattr_static, getdoc
from math import prod
from operator import attrgetter
from re import DOTALL, MULTILINE, search
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from ascendsim.errors import ProgramError
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.walk import SLOT_BITS, Axis, Number

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.places import CoreMemory


# The scalar unit issues for all others. M is the cube; MTE1 feeds it from L1, MTE2 reads GM, MTE3 writes it
# from UB and FIX from L0C; V is the vector unit. Tables and ties go in this order.
PIPES = ("S", "M", "MTE1", "MTE2", "MTE3", "FIX", "V")


class Traffic(NamedTuple):
    """Bytes that an instruction moves between a core and global memory.

    `kind` is "read", "write" or "atomic"; `peak_bytes_per_cycle` is what the core's own port can do.
    `occupied_bytes` is how much of L2's rate the bytes take up if that is more than they are, as for requests
    that fetch less than they could. `in_turn`: copies of a core come one at a time, and cores that read the
    same bytes are not slowed by each other. `direction` is "read" or "write": an atomic add goes out like
    a write.
    """

    tensor: GmTensor
    kind: str
    bytes: int
    peak_bytes_per_cycle: Fraction | int
    occupied_bytes: Fraction | int = 0
    in_turn: bool = False

    @property
    def direction(self) -> str:
        """Whether the bytes come to the core or leave it."""
        return "read" if self.kind == "read" else "write"


class Cost(NamedTuple):
    """The cost of an instruction, in cycles of the cube clock.

    `cycles` hold the pipe before any traffic flows, `traffic` holds it while the bytes flow over shared
    links, and `latency_cycles` pass after that until the result is visible, with the pipe free again. All in
    all the pipe is held for `least_cycles`, which does not delay the result. `pace_cycles` is what the
    instruction takes by itself before its latency, if that is more; the pipe does not wait for that. Under
    the unit flag a result is handed over piece by piece: who trails another takes `piece_cycles` for the last
    piece, from when that one's result is visible; of who is trailed the first piece is ready after
    `lead_cycles`.

    An example: CopyGmToL1 of 1000 bytes where the path GM_L1 does 64 bytes a cycle after a head of 4, results
    are visible 100 later, and L2 hands out sectors of 128 bytes. It costs
    Cost(cycles=4, latency_cycles=100, traffic=1024 bytes at 64 a cycle). Alone it holds MTE2 for
    4 + 1024 / 64 = 20 cycles, the next copy follows at 20, and the tile can be read at 20 + 100 = 120. With
    `least_cycles` of 30 the next copy follows at 30, the tile is still there at 120. With `pace_cycles` of 50
    the next copy follows at 20 again, but the tile is there at 50 + 100 = 150.
    """

    cycles: int
    latency_cycles: int = 0
    traffic: Traffic | None = None
    least_cycles: int = 0
    pace_cycles: int = 0
    piece_cycles: int = 0
    lead_cycles: int = 0


# A protocol, so that a test or a study may bring instructions that only cost, without any of the classes
# here.
class Instruction(Protocol):
    """One command on one pipe; `Command` is the usual base of the classes that are.

    `shape` holds everything the cost depends on: two instructions of one class with equal shapes cost the
    same. `drains` says that the instruction starts only when every result of its pipe is visible (a barrier).
    `trails` says that it takes what it reads piece by piece while that is made.
    """

    @property
    def pipe(self) -> str:
        """Name of the pipe that runs it."""
        ...

    @property
    def drains(self) -> bool:
        """Whether it waits until its own pipe has delivered everything before it."""
        ...

    @property
    def trails(self) -> bool:
        """Whether it takes up its pipe without waiting for what it reads, and ends after that."""
        ...

    @property
    def reads(self) -> tuple[Slot, ...]:
        """Slots that it reads."""
        ...

    @property
    def writes(self) -> tuple[Slot, ...]:
        """Slots that it writes, wholly or in part."""
        ...

    @property
    def gm(self) -> Gm | None:
        """The slice of global memory that it moves, if it moves one."""
        ...

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        ...

    def execute(self, memory: CoreMemory) -> None:
        """Do to `memory` what the instruction means."""
        ...

    def cost(self, profile: Profile) -> Cost:
        """Return the cost of the instruction on one product."""
        ...


WIDTH = "bytes of an element"


class Told(NamedTuple):
    """What an instruction says of the tiles in some slots, in a field of its own.

    unit   "elements", "bytes" or WIDTH of each tile; "bytes at least": of a tile that may be filled up
    """

    field: str
    said: int
    slots: tuple[Slot, ...]
    unit: str = "elements"


class Command:
    """Base of most instructions: no drain, no slots unless they say so, and `src` and `dst`.

    `where` names the buffers of its slots, by field: an instruction is refused on another. What it says of
    sizes a checked run holds against its tiles (`checked.py`); what it does not say is not looked at.
    """

    __slots__ = ()
    drains: ClassVar[bool] = False
    # It waits for what it reads. An attribute, as it is asked of every instruction.
    trails: bool = False
    where: ClassVar[Mapping[str, str]] = {}

    @property
    def told(self) -> tuple[Told, ...]:
        """What it says of its tiles; the bytes of a slice in GM are looked at without this."""
        return ()

    def width(self, given: int, shape: tuple[int, ...]) -> int:
        """Return the bytes of an element of the tile that it makes, from those of what it reads."""
        del shape
        return given

    def tile_bytes(self, shape: tuple[int, ...], width: int) -> int:
        """Return the bytes that the tile which it makes takes in its slot."""
        return prod(shape) * width

    def cost_unknown(self, profile: Profile) -> str:
        """Return the names of its costs that nobody has published, and what stands for them; "" for none."""
        del profile
        return ""

    @property
    def reads(self) -> tuple[Slot, ...]:
        """No slot."""
        return ()

    @property
    def writes(self) -> tuple[Slot, ...]:
        """No slot."""
        return ()

    @property
    def touched_bytes(self) -> tuple[int, ...]:
        """Bytes of each slot that it reads, then of each that it writes: whole slots, unless a class says."""
        return tuple([slot.size_bytes for slot in (*self.reads, *self.writes)])

    @property
    def gm(self) -> Gm | None:
        """The source or the destination, whichever lies in global memory."""
        # At most one of the two is in global memory: no instruction copies from GM to GM.
        src = getattr(self, "src", None)
        if isinstance(src, Gm):
            return src
        dst = getattr(self, "dst", None)
        return dst if isinstance(dst, Gm) else None


class ToSlot(Command):
    """An instruction that writes the slot `dst`."""

    __slots__ = ()
    dst: Slot

    @property
    def writes(self) -> tuple[Slot, ...]:
        """The destination."""
        return (self.dst,)


class SlotToSlot(ToSlot):
    """An instruction that reads the slot `src` and writes the slot `dst`, and uses nothing else."""

    __slots__ = ()
    src: Slot
    # Both are slots. An attribute, as it is asked of every instruction.
    gm: ClassVar[None] = None

    @property
    def reads(self) -> tuple[Slot, ...]:
        """The source."""
        return (self.src,)


class SlotOntoSlot(SlotToSlot):
    """An instruction that changes the slot `dst` by `src`, as an addition does, so that it reads both."""

    __slots__ = ()

    @property
    def reads(self) -> tuple[Slot, ...]:
        """The slot that is added to, and the one that is added."""
        return (self.dst, self.src)


class Entry(NamedTuple):
    """An instruction as a row of the table of all, as its class says it.

    pipe            its pipe; "told": each says its own
    reads, writes   the fields that name the slots, or the slice of GM, that it reads and writes
    """

    name: str
    pipe: str
    fields: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    meaning: str
    cost: str

    def __str__(self) -> str:
        moved = f", {', '.join(self.reads)} -> {', '.join(self.writes)}" * bool(self.reads or self.writes)
        return f"{self.name} ({self.pipe}{moved}): {self.meaning}"


def instructions() -> list[Entry]:
    """Return the table of all instructions whose modules are imported, one's own among them, by name."""
    kinds: list[Any] = [Command]
    for kind in kinds:
        kinds += kind.__subclasses__()
    # What has no meaning, no cost or no fields of its own is a base of others.
    made = {kind for kind in kinds if all(hasattr(kind, name) for name in ("execute", "cost", "_fields"))}
    return sorted(map(_entry, made))


def _entry(kind: Any) -> Entry:
    said = getdoc(kind) or ""
    told = {
        name: str(each)
        for base in kind.__mro__
        for name, each in vars(base).get("__annotations__", {}).items()
    }
    slots = {name: Slot("", 0, name, at) for at, name in enumerate(kind._fields)}
    several = {name: (slot,) if "tuple[Slot" in told[name] else slot for name, slot in slots.items()}
    one = kind(*[several[name] if "Slot" in told[name] else 0 for name in kind._fields])
    reads, writes = ([slot.name for slot in own] for own in (one.reads, one.writes))
    for name in (name for name in kind._fields if "Gm" in told[name]):
        (writes if name == "dst" else reads).append(name)
    cost = search(r"^Cost +(.*?)(?=^\S|\Z)", said, MULTILINE | DOTALL)
    pipe = getattr_static(kind, "pipe")
    return Entry(
        kind.__name__,
        pipe if isinstance(pipe, str) else "told",
        kind._fields,
        tuple(reads),
        tuple(writes),
        said.partition("\n")[0],
        " ".join(cost[1].split()) if cost else "",
    )


Operand = Number | Slot | tuple[Number, int]


class RowForm(NamedTuple):
    """Properties that rows of equal cost and equal use of slots share.

    instruction   one of them; its slots and places are some
    core          of the program on which it runs
    uses          the slots that it uses, reads first: (number of the slot in the row, how many slots behind
                  that one, whether it is written)
    """

    instruction: Instruction
    core: int
    uses: tuple[tuple[int, int, bool], ...]


class Streams(NamedTuple):
    """Whether an emitter trails others and moves bytes, and the rings that it reads and writes."""

    trails: bool
    moves: bool
    reads: frozenset[int]
    writes: frozenset[int]


class Emitter(NamedTuple):
    """The maker of a row's instruction: make(*slots, *indices).

    `spans` says of each slot of the row how many are handed on with it as a tuple, 0: it alone; `axes` are
    those of the indices, and `fixed` the ones that are plain numbers. `post` is the core of the program, and
    how many of the last slots are read and written for a hand-over.
    """

    make: Callable[..., Instruction | None]
    spans: tuple[int, ...]
    axes: tuple[Axis, ...]
    fixed: tuple[int | None, ...]
    post: tuple[int, int, int]

    @property
    def extents(self) -> list[int]:
        """The extents of its indices."""
        return [axis.extent for axis in self.axes]

    def named(self, indices: Sequence[int]) -> str:
        """Return the maker's call for some indices, in words."""
        return f"{self.make.__name__}({', '.join(map(str, indices))})"

    def handed(self, slots: Sequence[Slot]) -> tuple[list[Any], tuple[Slot, ...], tuple[Slot, ...]]:
        """Return the arguments of `make` for its slots, and the slots read and written for a hand-over."""
        handed: list[Any] = []
        at = 0
        for count in self.spans:
            handed.append(tuple(slots[at : at + count]) if count else slots[at])
            at += max(1, count)
        _, reads, writes = self.post
        own = len(handed) - reads - writes
        return handed[:own], tuple(handed[own : own + reads]), tuple(handed[own + reads :])


def first_of(operand: Operand) -> Number:
    """Return the first slot of an operand."""
    if isinstance(operand, tuple):
        operand = operand[0]
    if isinstance(operand, Slot):
        return Number({}, operand.index, Axis(operand.index + 1), operand.name)
    if not isinstance(operand, Number):
        raise ProgramError(
            f"emit is given {type(operand).__name__} as a slot; give a tile, as nest.next(ring) and "
            "nest.hold(ring, ...) return it, or a slot of nest.slots(...)"
        )
    return operand


def streams_of(made: Sequence[Instruction], tiles: Sequence[Number]) -> Streams:
    """Return which rings of slots instructions read and write, made with stand-ins for their tiles."""
    rings = [tile.ring if tile.terms else tile.const for tile in tiles]
    read, written = (
        frozenset([rings[slot.index >> SLOT_BITS] for each in made for slot in own(each)])
        for own in (attrgetter("reads"), attrgetter("writes"))
    )
    moves = any(each.gm is not None for each in made)
    return Streams(any(each.trails for each in made), moves, read, written)


def shaped(made: Instruction | None) -> str:
    """Return the type and shape of an instruction, which decide its cost, in words."""
    return "nothing" if made is None else f"{type(made).__name__} of shape {made.shape!r}"


# What the executors ask of every instruction.
ASKED = ("pipe", "shape", "reads", "writes", "gm", "drains", "trails", "execute", "cost")


def require_whole(where: str, made: Instruction) -> None:
    """Refuse an instruction that lacks what the executors ask of it.

    Raises   ProgramError
    """
    # Asked of the class first: a property may need more than there is yet.
    if lacks := [name for name in ASKED if not (hasattr(type(made), name) or hasattr(made, name))]:
        raise ProgramError(
            f"{where}: instruction {type(made).__name__} has no {', '.join(lacks)}; each has "
            f"{', '.join(ASKED)}: derive it from `Command`, and define pipe, shape, execute and cost"
        )


def stand_ins(spans: Sequence[int]) -> list[Slot]:
    """Return slots for operands, end to end; their numbers say which operand, and which slot of it."""
    return [
        Slot("", 0, "", (number << SLOT_BITS) + at)
        for number, count in enumerate(spans)
        for at in range(max(1, count))
    ]
