"""Whether the vector cores of 910_95 turn the weights of grad_input in a phase of their own."""

from __future__ import annotations

from ascendsim.cube.tile_reads import round_up
from ascendsim.ops.tiling.vendor.layer import FRACTAL, PLAIN, Layer
from ascendsim.ops.tiling.vendor.plan import VendorPlan

# From so many pixels of a block on the cube takes longer for it than the copy of the weights, which the copy
# therefore turns on the way; of plain float32 and of 16 bits under few taps from fewer.
HIDING, HIDING_FEW_TAPS, HIDING_FLOAT32 = 512, 384, 256
FEW_TAPS = 9


def turned_first(plan: VendorPlan, layer: Layer) -> bool:
    """Tell whether the weights lie turned in a workspace before the cube cores begin.

    A kernel that the stride splits has them turned unless both operands stay in L1. Else it is done where the
    cube would not hide the turning: for small blocks, or weights that come whole for every task.

    Source   host code of the public operators (ops-nn), as read. That weights which stay in L1 for all tasks
             are not turned follows from the records; what the code asks of 16-bit weights besides depths
             ("enough reuse"), and of UB, is not known and not asked here
    """
    if layer.groups > 1 or layer.layouts.weight != PLAIN or plan.taps == "c04":
        return False
    single = plan.al1_buffers == plan.bl1_buffers == 1
    if plan.kernel_split:
        return not (plan.kernel_split == "hw" and single)
    fractals = layer.ci == FRACTAL or layer.ci >= 2 * FRACTAL
    if not fractals or layer.ci <= layer.taps:
        return False
    if layer.itemsize == 2 and (layer.kernel[0] == 1 or layer.input[0] == 1):
        return False
    reduction = round_up(plan.k_segment or layer.co, layer.c0) * layer.taps
    whole = plan.step_kb * plan.base_k >= reduction
    if whole and plan.bl1_buffers == 1:
        return False
    return whole or plan.base_m < _hiding(layer)


def _hiding(layer: Layer) -> int:
    """Return from how many pixels of a block on the cube hides the turning."""
    if layer.true_fp32:
        return HIDING_FLOAT32
    return HIDING_FEW_TAPS if layer.itemsize == 2 and layer.taps <= FEW_TAPS else HIDING
