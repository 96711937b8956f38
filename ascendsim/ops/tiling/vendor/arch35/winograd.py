"""The rule by which grad_weight of 910_95 is computed by Winograd F(2x2, 3x3), and its plan.

Source   host code of the public operator (ops-nn), as read: the conditions, the blocks of 64 x 64 channels
         and the clusters of 32 tiles. Assumed: that tasks of the last round are cut as those of stream-K
         are, into runs of clusters; that tiles in L1 have two copies, which is what L1 holds (the recorded
         plan says one, beside base sizes that do not fit in L0 and so say nothing)
"""

from __future__ import annotations

from typing import Final

from ascendsim.ops.problems.winograd import CLUSTER, Clusters
from ascendsim.ops.tiling.vendor.layer import Layer, Machine, ceil_div
from ascendsim.ops.tiling.vendor.plan import VendorPlan
from ascendsim.ops.tiling.vendor.stream import tail_along

# Channels of either side in a block, and how many whole blocks there must be.
SIDE: Final = 64
LEAST_BLOCKS: Final = 16
MOST_PAD: Final = 8
# Tiles of 2 x 2 pixels in all images, and the share of them that must not be all padding.
MOST_TILES: Final = 512_000
LEAST_SHARE: Final = 0.5
POINTS: Final = 16
FLOAT32: Final = 4
# Bytes of one operand of a cluster at all points, and of all sums.
OPERAND: Final = POINTS * CLUSTER * SIDE * FLOAT32
SUMS: Final = POINTS * SIDE * SIDE * FLOAT32


def takes_winograd(layer: Layer) -> bool:
    """Tell whether the operator computes a grad_weight by Winograd."""
    flat = layer.kernel == (1, 3, 3) and layer.input[0] == layer.output[0] == 1
    plain = layer.groups == 1 and max(*layer.stride, *layer.dilation) == 1 and layer.layouts.plain
    small = all(before == after <= MOST_PAD for before, after in layer.pads)
    blocks = (layer.co // SIDE) * (layer.ci // SIDE)
    if not (layer.true_fp32 and flat and plain and small and blocks >= LEAST_BLOCKS):
        return False
    tiles = ceil_div(layer.output[1], 2) * ceil_div(layer.output[2], 2)
    inside = ceil_div(layer.input[1] - 2, 2) * ceil_div(layer.input[2] - 2, 2)
    return tiles * layer.batch <= MOST_TILES and inside >= LEAST_SHARE * tiles


def winograd(layer: Layer, machine: Machine) -> VendorPlan | None:
    """Return the plan of a grad_weight by Winograd; None where L0C or L1 does not hold its blocks."""
    if machine.l0c < SUMS or machine.l1 < 2 * OPERAND:
        return None
    rows, columns = ceil_div(layer.co, SIDE), ceil_div(layer.ci, SIDE)
    clusters = len(Clusters.of(layer.batch, (layer.output[1], layer.output[2])))
    tail = tail_along({"clusters": clusters}, rows * columns, machine.cores)
    copies = 2 if machine.l1 >= 4 * OPERAND else 1
    return VendorPlan(
        *("winograd", SIDE, SIDE, CLUSTER),
        al1_buffers=copies,
        bl1_buffers=copies,
        used_cores=machine.cores,
        tasks=rows * columns,
        mapping="interleaved",
        order=("m", "n"),
        split="mn",
        stream_ways=tail.ways,
        stream_axis=tail.axis,
    )
