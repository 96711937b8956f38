"""L2 between phases and kernels: of each tensor how many bytes it holds, and how many of them are dirty.

the end of a phase      `lru.end` keeps of every tensor only how much of it is here
the end of a kernel     `L2Stack.left` returns that, tensor by tensor
between two kernels     `GraphTimes` (`ops/graph_times.py`) tells the next one, in the names of its tensors
the begin of a kernel   `_begun` (`account.py`) takes what was left, or holds what a start says
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.timing.l2 import slices as c
from ascendsim.timing.l2.lru import make_room

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What L2 holds between kernels: name of the tensor -> bytes that are resident, how many of them are dirty,
# and a 1 behind these where they are spread evenly over the tensor, and are not its end.
L2State = Mapping[str, tuple[int, ...]]

# No L2 is larger, and no sum of bytes in it leaves 64 bits.
MOST = 1 << 61


class L2Stack:
    """L2 between the phases of a kernel: how much of each tensor is here, and which bytes crossed to memory.

    `tensors` are all that the kernel or the one before may name. `arrays` are those of `lru.py`.
    """

    def __init__(self, capacity_bytes: int, tensors: Sequence[str]) -> None:
        self._names = tuple(tensors)
        self._before = np.zeros(c.BEFORE * len(tensors), np.int64)
        self._listed = np.zeros(len(tensors), np.int64)
        self._state = np.zeros(c.STATE, np.int64)
        self._state[c.CAPACITY] = min(capacity_bytes, MOST)

    @property
    def arrays(self) -> tuple[NDArray[np.int64], ...]:
        """The tensors from before the phase, the order in which they came, and the state of L2."""
        return self._before, self._listed, self._state

    @property
    def read_bytes(self) -> int:
        """Bytes that came from main memory."""
        return int(self._state[c.READ_BYTES])

    @property
    def written_bytes(self) -> int:
        """Bytes that went to main memory."""
        return int(self._state[c.WRITTEN_BYTES])

    def forget_bytes(self) -> None:
        """Count bytes from zero again; keep what L2 holds."""
        self._state[c.READ_BYTES] = self._state[c.WRITTEN_BYTES] = 0

    def hold(self, tensor: str, size_bytes: int) -> None:
        """Begin with a tensor that another kernel has written, as much of it as there is room for."""
        # Clean and spread evenly, as measured kernels of training steps show: those that stream a tensor of
        # twice the size of L2 take neither the time of writing its half back, nor that of a miss all through.
        left = int(self._state[c.CAPACITY] - self._state[c.USED])
        self._put(tensor, min(size_bytes, left), 0, 1)

    def take(self, state: L2State) -> None:
        """Begin with what another kernel has left."""
        for tensor, (resident, dirty, *even) in state.items():
            self._put(tensor, resident, dirty, *even)
        # The other kernel may have run with a larger L2; what leaves here is no traffic of this kernel.
        rows = np.zeros(c.ROW, np.int64)
        make_room(rows, self._before, self._listed, self._state, 0)  # type: ignore[arg-type]
        self.forget_bytes()

    def left(self) -> L2State:
        """Return the bytes of each tensor in L2, how many of them are dirty, and whether they lie evenly."""
        listed = self._listed[: self._state[c.LISTS]].tolist()
        rows = self._before.reshape(-1, c.BEFORE).tolist()
        return {
            self._names[tensor]: (rows[tensor][c.OLD], rows[tensor][c.OLD_DIRTY], *[1] * rows[tensor][c.EVEN])
            for tensor in listed
            if rows[tensor][c.OLD]
        }

    def _put(self, tensor: str, resident: int, dirty: int, even: int = 0) -> None:
        """Let so much of a tensor be here."""
        number = self._names.index(tensor)
        self._before[c.BEFORE * number :][: c.BEFORE] = resident, dirty, 1, even
        self._listed[self._state[c.LISTS]] = number
        self._state[c.LISTS] += 1
        self._state[c.USED] += resident
