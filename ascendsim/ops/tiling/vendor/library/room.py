"""What the library lets a base block of its 2-D kernels take of L0, in fractals."""

from __future__ import annotations

from typing import NamedTuple

from ascendsim.cube.load3d import FRACTAL_BYTES
from ascendsim.profile import Profile

# 16 x 16 sums of float32.
RESULT_BYTES = 1024


class Room(NamedTuple):
    """Fractals that a base block may have: 128 and 64 on a 910B.

    results   of L0C, in one copy
    operand   of 512 bytes in one of two copies, in L0A and in L0B
    """

    results: int
    operand: int

    @classmethod
    def of(cls, profile: Profile) -> Room:
        """Return what the buffers of a product hold."""
        l0a, l0b, l0c = (profile.buffers[name].capacity_bytes for name in ("L0A", "L0B", "L0C"))
        return cls(l0c // RESULT_BYTES, min(l0a, l0b) // 2 // FRACTAL_BYTES)
