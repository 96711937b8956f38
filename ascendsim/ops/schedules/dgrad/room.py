"""What a tile of a dgrad needs of UB, on products where it leaves through it."""

from __future__ import annotations

from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.schedules.tiles import ACCUMULATOR_BYTES
from ascendsim.ops.schedules.zero_insertion import LEAST_BYTES
from ascendsim.profile import Profile


def inserts_in_ub(gemm: DgradGemm, profile: Profile) -> bool:
    """Tell whether zeros come between pixels in UB: unified cores have no strided copy into L1."""
    return profile.core_structure == "unified" and gemm.sliding.insert != (1, 1)


def taken_bytes(gemm: DgradGemm, profile: Profile) -> int:
    """Return the least bytes of UB that the way into L1 takes."""
    return LEAST_BYTES if inserts_in_ub(gemm, profile) else 0


def most_rows(gemm: DgradGemm, profile: Profile) -> int:
    """Return the most rows of a tile that leaves through UB in two pieces of one channel group."""
    left = profile.buffers["UB"].capacity_bytes - taken_bytes(gemm, profile)
    # In float32, in which parts of a reduction leave.
    return left // 2 // (gemm.sliding.c0 * ACCUMULATOR_BYTES)
