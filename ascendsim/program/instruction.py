"""Instructions: one command on one pipe, that says once what it touches, what it means and what it costs."""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from ascendsim.program.places import Gm, GmTensor, Slot

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.memory import CoreMemory

PIPES = ("S", "M", "MTE1", "MTE2", "MTE3", "FIX", "V")


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
    all the pipe is held for `least_cycles`, which does not delay the result. `pace_cycles` is what the
    instruction takes by itself before its latency, if that is more; the pipe does not wait for that. Where it
    trails another, it takes `piece_cycles` from when that one's result is visible; where another trails it,
    the first piece of its result is ready after `lead_cycles`.
    """

    cycles: int
    latency_cycles: int = 0
    traffic: Traffic | None = None
    least_cycles: int = 0
    pace_cycles: int = 0
    piece_cycles: int = 0
    lead_cycles: int = 0


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
    def trails(self) -> bool:
        """It waits for what it reads."""
        return False

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


class SlotToSlot(Command):
    """What reads the slot `src` and writes the slot `dst`, and touches nothing else."""

    __slots__ = ()
    src: Slot
    dst: Slot

    @property
    def reads(self) -> tuple[Slot, ...]:
        """The source."""
        return (self.src,)

    @property
    def writes(self) -> tuple[Slot, ...]:
        """The destination."""
        return (self.dst,)


class SlotOntoSlot(SlotToSlot):
    """What changes the slot `dst` by the slot `src`, as an addition does, so that it reads both."""

    __slots__ = ()

    @property
    def reads(self) -> tuple[Slot, ...]:
        """What is there, and what comes to it."""
        return (self.dst, self.src)
