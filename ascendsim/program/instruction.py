"""Instructions: one command on one pipe, that says once what it uses, what it means and what it costs."""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from ascendsim.program.places import Gm, GmTensor, Slot

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.memory import CoreMemory

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
        """All that the cost depends on."""
        ...

    def execute(self, memory: CoreMemory) -> None:
        """Do to `memory` what the instruction means."""
        ...

    def cost(self, profile: Profile) -> Cost:
        """Return what it costs on one product."""
        ...


class Command:
    """Base of most instructions: no drain, no slots unless they say so, and `src` and `dst`."""

    __slots__ = ()
    drains: ClassVar[bool] = False
    # It waits for what it reads. An attribute, as it is asked of every instruction.
    trails: bool = False

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
