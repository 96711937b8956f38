"""Programs as data: what a schedule returns and both executors read.

A schedule asks a `ProgramBuilder` for slots in on-chip buffers and appends instructions that name the slots
they touch. `build()` derives every wait between pipes from those names, in program order, so a schedule never
writes a flag. A `Kernel` is a tuple of phases; inside a phase each core runs its own program and all cores
finish one phase before the next begins.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from ascendsim.errors import CapacityError, ProgramError

if TYPE_CHECKING:
    from ascendsim.functional import CoreMemory
    from ascendsim.numerics.settings import MathSettings
    from ascendsim.profile import Profile

PIPES = ("S", "M", "MTE1", "MTE2", "MTE3", "FIX", "V")
HAZARDS = frozenset({"RAW", "WAR", "WAW"})


class Core(NamedTuple):
    """One core of the chip: `kind` is "cube" (also a unified core) or "vector"."""

    kind: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here


class Slot:
    """A reserved piece of one on-chip buffer of one core; compared by identity.

    `index` numbers the slots of a program from zero, in the order they were reserved.
    """

    __slots__ = ("buffer", "index", "name", "size_bytes")

    def __init__(self, buffer: str, size_bytes: int, name: str, index: int) -> None:
        self.buffer = buffer
        self.size_bytes = size_bytes
        self.name = name
        self.index = index

    def __repr__(self) -> str:
        return f"{self.buffer}:{self.name}({self.size_bytes} B)"


@dataclass(frozen=True, slots=True, eq=False)
class GmTensor:
    """A tensor in global memory.

    Shapes   `shape` in elements, in the layout the kernel uses (NC1HWC0, say)
    Types    `dtype` is the name of the storage format; `itemsize` its bytes
    Role     "input", "output" or "workspace"; an output or workspace is written by the kernel
    Cached   whether L2 keeps what is read and written (SetL2CacheHint); if not, it passes L2 by
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    role: str = "input"
    cached: bool = True

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole tensor."""
        size = self.itemsize
        for extent in self.shape:
            size *= extent
        return size


class Gm(NamedTuple):
    """A slice of a tensor in global memory; `index` is a tuple of slices and integers."""

    tensor: GmTensor
    index: tuple[Any, ...]  # type: ignore[assignment]  # hides tuple.index


class Traffic(NamedTuple):
    """Bytes that an instruction moves between a core and global memory.

    `kind` is "read", "write" or "atomic"; `peak_bytes_per_cycle` is what the core's own port can do.
    `occupied_bytes` is how much of L2's rate the bytes take up if that is more than they are, as for requests
    that fetch less than they could.
    """

    tensor: GmTensor
    kind: str
    bytes: int
    peak_bytes_per_cycle: Fraction | int
    occupied_bytes: Fraction | int = 0


class Cost(NamedTuple):
    """What an instruction costs, in cycles of the cube clock.

    `cycles` hold the pipe before any traffic flows, `traffic` holds it while the bytes flow over shared
    links, and `latency_cycles` pass after that until the result is visible, with the pipe free again. All in
    all the pipe is held for `least_cycles`, which does not delay the result.
    """

    cycles: int
    latency_cycles: int = 0
    traffic: Traffic | None = None
    least_cycles: int = 0


class Instruction(Protocol):
    """One command on one pipe; `Command` is the usual base of the classes that are.

    `shape` holds everything the cost depends on: two instructions of one class with equal shapes cost the
    same. `drains` says that the instruction starts only when every result of its pipe is visible (a barrier).
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
        """All that the cost depends on."""
        ...

    def execute(self, memory: CoreMemory) -> None:
        """Do to `memory` what the instruction means."""
        ...

    def cost(self, profile: Profile) -> Cost:
        """Return what it costs on one product."""
        ...


class Command:
    """What most instructions have in common: no drain, no slots unless they say so, and `src` and `dst`."""

    __slots__ = ()
    drains: ClassVar[bool] = False

    @property
    def reads(self) -> tuple[Slot, ...]:
        """No slot."""
        return ()

    @property
    def writes(self) -> tuple[Slot, ...]:
        """No slot."""
        return ()

    @property
    def gm(self) -> Gm | None:
        """The source or the destination, whichever lies in global memory."""
        for place in (getattr(self, "src", None), getattr(self, "dst", None)):
            if isinstance(place, Gm):
                return place
        return None


@dataclass(frozen=True, slots=True)
class Program:
    """The instructions of one core in program order, with the waits between its pipes.

    `after_done[i]` are indices whose results must be visible before instruction i starts (it reads or
    overwrites them); `after_end[i]` are indices that must have left their pipe (they read what i overwrites).
    `buffer_bytes` is what the slots reserve of each buffer.
    """

    instructions: tuple[Instruction, ...]
    after_done: tuple[tuple[int, ...], ...]
    after_end: tuple[tuple[int, ...], ...]
    slots: tuple[Slot, ...]
    buffer_bytes: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.instructions)


class ProgramBuilder:
    """Collects the instructions of one core and derives their waits.

    `hazards` names the classes of waits to derive; all of them, except in tests that show what a missing
    class does.
    """

    def __init__(self, profile: Profile, hazards: frozenset[str] = HAZARDS) -> None:
        self._profile = profile
        self._hazards = hazards
        self._slots: list[Slot] = []
        self._used: dict[str, int] = {}
        self._instructions: list[Instruction] = []
        self._after_done: list[tuple[int, ...]] = []
        self._after_end: list[tuple[int, ...]] = []
        self._pipes: list[str] = []
        # Per slot: index of the last writer (-1: none), and the last reader since then on each pipe.
        self._writer: list[int] = []
        self._readers: list[dict[str, int]] = []
        # What each pipe has waited for so far: [pipe][other pipe] -> newest index known done, known ended.
        self._known_done: dict[str, dict[str, int]] = {pipe: {} for pipe in PIPES}
        self._known_end: dict[str, dict[str, int]] = {pipe: {} for pipe in PIPES}

    def slots(self, buffer: str, size_bytes: int, name: str, copies: int = 1) -> tuple[Slot, ...]:
        """Reserve `copies` slots (a ring for ping-pong) of one buffer.

        Raises   CapacityError naming buffer, need and capacity; UnsupportedError-like CapacityError where the
                 product has no such buffer
        """
        figures = self._profile.buffers.get(buffer)
        if figures is None:
            raise CapacityError(
                f"{self._profile.variant} has no buffer {buffer}; it has {', '.join(self._profile.buffers)}"
            )
        step = figures.alignment_bytes
        size = -(-size_bytes // step) * step
        need = self._used.get(buffer, 0) + copies * size
        if need > figures.capacity_bytes:
            raise CapacityError(
                f"{buffer} of {self._profile.variant} holds {figures.capacity_bytes} bytes, but {name} "
                f"({copies} x {size}) brings the need to {need}; take a smaller tile or fewer copies"
            )
        self._used[buffer] = need
        made = []
        for copy in range(copies):
            label = f"{name}[{copy}]" if copies > 1 else name
            made.append(Slot(buffer, size, label, len(self._slots)))
            self._slots.append(made[-1])
            self._writer.append(-1)
            self._readers.append({})
        return tuple(made)

    def add(self, instruction: Instruction) -> None:
        """Append one instruction and derive what it must wait for.

        Raises   ProgramError if it reads a slot that nothing has written
        """
        index = len(self._instructions)
        pipe = instruction.pipe
        done: dict[str, int] = {}
        end: dict[str, int] = {}
        reads, writes = instruction.reads, instruction.writes
        for slot in reads:
            writer = self._writer[slot.index]
            if writer < 0:
                raise ProgramError(
                    f"instruction {index} ({type(instruction).__name__}) reads {slot!r}, "
                    "which nothing has written"
                )
            self._wait(done, pipe, writer, "RAW")
        for slot in writes:
            writer = self._writer[slot.index]
            if writer >= 0:
                self._wait(done, pipe, writer, "WAW")
            for reader in self._readers[slot.index].values():
                self._wait(end, pipe, reader, "WAR")
        self._after_done.append(self._settle(done, pipe, self._known_done[pipe]) if done else ())
        self._after_end.append(self._settle(end, pipe, self._known_end[pipe]) if end else ())
        for slot in reads:
            self._readers[slot.index][pipe] = index
        for slot in writes:
            self._writer[slot.index] = index
            self._readers[slot.index].clear()
        self._instructions.append(instruction)
        self._pipes.append(pipe)

    def _wait(self, waits: dict[str, int], pipe: str, on: int, hazard: str) -> None:
        """Note that `pipe` must wait for instruction `on`, unless both are on one in-order pipe."""
        other = self._pipes[on]
        if other != pipe and hazard in self._hazards and on > waits.get(other, -1):
            waits[other] = on

    def _settle(self, waits: dict[str, int], pipe: str, known: dict[str, int]) -> tuple[int, ...]:
        """Drop the waits that an earlier wait of the same pipe already implies (pipes deliver in order)."""
        done = self._known_done[pipe]
        kept = []
        for other, on in waits.items():
            if on > known.get(other, -1) and on > done.get(other, -1):
                kept.append(on)
                known[other] = on
        return tuple(kept)

    def build(self) -> Program:
        """Return the finished program."""
        return Program(
            tuple(self._instructions),
            tuple(self._after_done),
            tuple(self._after_end),
            tuple(self._slots),
            dict(self._used),
        )


@dataclass(frozen=True, slots=True)
class CoreWork:
    """What one core does in a phase.

    `build` makes the program when an executor asks for it, so that a large kernel need not hold all of them
    at once. Equal `signature`s promise programs that cost the same (same pipes, shapes and waits, other
    data); the timing executor may then run one of them for all.
    """

    core: Core
    signature: Hashable
    build: Callable[[], Program]


@dataclass(frozen=True, slots=True)
class Phase:
    """Work of all cores between two barriers."""

    name: str
    work: tuple[CoreWork, ...]

    def teams(self) -> Iterator[tuple[CoreWork, ...]]:
        """Yield the work of all cores of one kind with one signature, team after team."""
        teams: dict[tuple[str, Hashable], list[CoreWork]] = {}
        for work in self.work:
            teams.setdefault((work.core.kind, work.signature), []).append(work)
        for team in teams.values():
            yield tuple(team)

    def folded(self) -> Iterator[tuple[CoreWork, tuple[Core, ...]]]:
        """Yield one representative for each signature and kind of core, with all the cores it stands for."""
        for team in self.teams():
            yield team[0], tuple(work.core for work in team)


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """What the device runs in one launch.

    `tensors` are all tensors in global memory that it touches, by name; `math` is how its arithmetic rounds;
    `macs` are the multiply-adds the problem asks for, without padding or inserted zeros (0: a vector kernel);
    `note` says in words what a reader of the report must know about it.
    """

    name: str
    phases: tuple[Phase, ...]
    tensors: Mapping[str, GmTensor]
    math: MathSettings
    macs: int = 0
    compute_dtype: str = ""
    note: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        """Blocks of the launch: cube cores, each with its vector cores; vector cores where no cube works."""
        cores = {work.core for phase in self.phases for work in phase.work}
        return sum(core.kind == "cube" for core in cores) or len(cores)

    @property
    def cores_used(self) -> int:
        """Cores that have work in at least one phase."""
        return len({work.core for phase in self.phases for work in phase.work})
