"""Reserving: the slots that a program takes of the buffers of its cores, and the rings of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendsim.errors import CapacityError
from ascendsim.program.places import Slot
from ascendsim.program.posts import pipe_on

if TYPE_CHECKING:
    from ascendsim.profile import Profile


MOST_SLOTS = 1 << 16


class Ring:
    """Tiles of slots that are used in turn (ping-pong); a tile is one slot, or `width` of them.

    A program that is appended instruction by instruction asks it for the next slot. A loop nest only names
    it: its walk knows for every core whose turn it is, and what the tiles hold.
    """

    def __init__(self, slots: tuple[Slot, ...], width: int = 1) -> None:
        self.slots = slots
        self.width = width
        self.first = slots[0].index
        self.count = len(slots) // width
        self._turn = -1

    @property
    def name(self) -> str:
        """The name of its tiles."""
        return self.slots[0].name.partition("[")[0]

    @property
    def last(self) -> Slot:
        """The first slot of the tile whose turn it was last."""
        return self.slots[self._turn * self.width]

    @property
    def turn(self) -> int:
        """The number of that tile, from 0."""
        return self._turn

    def next(self) -> Slot:
        """Return the next slot in turn."""
        self._turn = (self._turn + 1) % self.count
        return self.last


class Reserved:
    """What is reserved of the buffers of one core, or of a cube core and the vector cores beside it."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.slots_reserved: list[Slot] = []
        self.used_bytes: dict[str, int] = {}

    def slots(
        self, buffer: str, size_bytes: int, name: str, copies: int = 1, on: int = 0
    ) -> tuple[Slot, ...]:
        """Reserve `copies` slots of one buffer of core `on`.

        Raises   CapacityError naming buffer, need and capacity, or the buffers that the product has
        """
        figures = self.profile.buffers.get(buffer)
        if figures is None:
            raise CapacityError(
                f"{self.profile.variant} has no buffer {buffer}; it has {', '.join(self.profile.buffers)}"
            )
        alignment = figures.alignment_bytes
        size = -(-size_bytes // alignment) * alignment
        own = pipe_on(on, buffer)
        need = self.used_bytes.get(own, 0) + copies * size
        if need > figures.capacity_bytes:
            raise CapacityError(
                f"{own} of {self.profile.variant} holds {figures.capacity_bytes} bytes, but {name} "
                f"({copies} x {size}) brings the need to {need}; take a smaller tile or fewer copies",
                buffer,
            )
        self.used_bytes[own] = need
        return self._made(buffer, size, name, copies)

    def room(self, buffer: str) -> int:
        """Return the bytes of a buffer of core 0 that are not reserved yet."""
        return self.capacity(buffer) - self.used_bytes.get(buffer, 0)

    def capacity(self, buffer: str) -> int:
        """Return the bytes of a buffer."""
        return self.profile.buffers[buffer].capacity_bytes

    def _made(self, buffer: str, size: int, name: str, copies: int) -> tuple[Slot, ...]:
        # A row of a nest names a slot by 16 bits.
        if len(self.slots_reserved) + copies > MOST_SLOTS:
            raise CapacityError(f"{name}: a core has at most {MOST_SLOTS} slots; take fewer copies", buffer)
        made = []
        for copy in range(copies):
            label = f"{name}[{copy}]" if copies > 1 else name
            made.append(Slot(buffer, size, label, len(self.slots_reserved)))
            self.slots_reserved.append(made[-1])
        return tuple(made)

    def ring(
        self, buffer: str, size_bytes: int, name: str, copies: int = 1, on: int = 0, width: int = 1
    ) -> Ring:
        """Reserve tiles of core `on` that are used in turn, each of `width` slots of so many bytes.

        Raises   CapacityError as `slots`
        """
        return Ring(self.slots(buffer, size_bytes, name, copies * width, on), width)

    def handover(self, size_bytes: int, name: str, copies: int = 1) -> Ring:
        """Name pieces of a workspace in global memory that cores of this program use in turn.

        A slot of it stands for its piece: who writes the piece writes the slot, who reads it reads the slot
        (`ProgramBuilder.add`), and so they wait for each other. `Ring.turn` tells which piece it is.
        """
        return Ring(self._made("GM", size_bytes, name, copies))
