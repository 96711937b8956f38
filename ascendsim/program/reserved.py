"""Reserving: the slots that a program takes of the buffers of its cores, and the rings of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendsim.errors import CapacityError
from ascendsim.program.loops.rings import Ring
from ascendsim.program.places import Slot
from ascendsim.program.posts import pipe_on

if TYPE_CHECKING:
    from ascendsim.profile import Profile


class Reserved:
    """What is reserved of the buffers of one core, or of a cube core and the vector cores beside it."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._slots: list[Slot] = []
        self._used: dict[str, int] = {}
        self._rings: list[Ring] = []
        self._ring_of: dict[int, Ring] = {}
        # By slot: whether anything has been written there.
        self._written = bytearray()

    def slots(
        self, buffer: str, size_bytes: int, name: str, copies: int = 1, on: int = 0
    ) -> tuple[Slot, ...]:
        """Reserve `copies` slots of one buffer of core `on`.

        Raises   CapacityError naming buffer, need and capacity, or the buffers that the product has
        """
        figures = self._profile.buffers.get(buffer)
        if figures is None:
            raise CapacityError(
                f"{self._profile.variant} has no buffer {buffer}; it has {', '.join(self._profile.buffers)}"
            )
        alignment = figures.alignment_bytes
        size = -(-size_bytes // alignment) * alignment
        own = pipe_on(on, buffer)
        need = self._used.get(own, 0) + copies * size
        if need > figures.capacity_bytes:
            raise CapacityError(
                f"{own} of {self._profile.variant} holds {figures.capacity_bytes} bytes, but {name} "
                f"({copies} x {size}) brings the need to {need}; take a smaller tile or fewer copies",
                buffer,
            )
        self._used[own] = need
        return self._made(buffer, size, name, copies)

    def room(self, buffer: str) -> int:
        """Return the bytes of a buffer of core 0 that are not reserved yet."""
        return self.capacity(buffer) - self._used.get(buffer, 0)

    def capacity(self, buffer: str) -> int:
        """Return the bytes of a buffer."""
        return self._profile.buffers[buffer].capacity_bytes

    def _made(self, buffer: str, size: int, name: str, copies: int) -> tuple[Slot, ...]:
        made = []
        for copy in range(copies):
            label = f"{name}[{copy}]" if copies > 1 else name
            made.append(Slot(buffer, size, label, len(self._slots)))
            self._slots.append(made[-1])
            self._written.append(0)
        return tuple(made)

    def ring(
        self,
        buffer: str,
        size_bytes: int,
        name: str,
        copies: int = 1,
        on: int = 0,
        *,
        asked: bool = True,
    ) -> Ring:
        """Reserve slots of core `on` that are used in turn (ping-pong).

        `asked`: code may ask by `begins` whether a slot is used for the first time; where it never does,
        more of it is alike without.

        Raises   CapacityError as `slots`
        """
        return self._ring(Ring(self.slots(buffer, size_bytes, name, copies, on), asked=asked))

    def _ring(self, made: Ring) -> Ring:
        self._rings.append(made)
        self._ring_of.update(dict.fromkeys([slot.index for slot in made.slots], made))
        return made

    def handover(self, size_bytes: int, name: str, copies: int = 1) -> Ring:
        """Name pieces of a workspace in global memory that cores of this program use in turn.

        A slot of it stands for its piece: who writes the piece writes the slot, who reads it reads the slot
        (`ProgramBuilder.add`), and so they wait for each other. `Ring.turn` tells which piece it is.
        """
        return self._ring(Ring(self._made("GM", size_bytes, name, copies), told=True))
