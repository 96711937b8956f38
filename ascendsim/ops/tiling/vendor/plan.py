"""The plan that an operator's own rules make, in the vendor's names."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class VendorPlan:
    """What the host side of an operator hands to its kernel.

    Sizes are elements of the product: grad_input m = pixels, n = channels of input, k = (channel, tap) of
    grad_output; grad_weight m = channels of grad_output, n = (channel, tap) of input, k = pixels.

    strategy       the rule it comes from: "basic_block", "core_grid", "basic_mk", "basic_det", "library",
                   "stream_k", "winograd", ...
    base_m, base_n, base_k
                   one L0C tile, and the reduction of one Mmad; by Winograd channels of either side and tiles,
                   at each of 16 points
    step_ka, step_kb, step_m, step_n
                   slices of base_k, and base blocks along m and n, that one tile of L1 holds
    single_core_m, single_core_n, single_core_k
                   the share of one task; 0: all of it
    *_buffers      copies of a tile: 1, or 2 for ping-pong
    used_cores     cores that the kernel is launched on; without a task they turn weights, or add parts
    tasks          shares, dealt to the cores as `mapping` says
    mapping        "contiguous" ranges, "interleaved" (task t on core t mod cores), or a "grid" of cores
    order          axes of the task's index, slowest first
    split          of grad_weight: the axes that are cut into tasks beside images and depths
    grid           parts along the axes of a core grid: "batch", "d", "m", "n", "k", "group", "dk"
    taps           "all" in one Mmad's reduction, "c04" (4 channels a tap), "kh" or "khkw" looped over outside
    kernel_split   "" or the axes along which the stride splits the kernel: "h", "hw"
    group_merge    groups that are computed as one
    k_segment      channels of the reduction that are added before a partial result leaves L0C; 0: all
    stream_ways, stream_axis
                   parts of the tasks of the last round, and what they are cut along: "batch_depth", "height",
                   or "clusters" of tiles
    strip_w        columns of grad_output that one pass takes; 0: whole rows
    transpose_first  whether vector cores turn the weights in a phase of their own
    through_gm     whether the results of a split kernel are interleaved through a workspace
    zero_first     whether the operator clears the result before, as taps are skipped or cores add to it
    host           what else the operator hands to its kernel and no loop nest here reads, by its own names
    """

    strategy: str
    base_m: int
    base_n: int
    base_k: int
    step_ka: int = 1
    step_kb: int = 1
    step_n: int = 1
    single_core_m: int = 0
    single_core_n: int = 0
    single_core_k: int = 0
    single_core_d: int = 1
    al1_buffers: int = 2
    bl1_buffers: int = 2
    al0_buffers: int = 2
    bl0_buffers: int = 2
    cl0_buffers: int = 1
    used_cores: int = 1
    tasks: int = 1
    mapping: str = "contiguous"
    order: tuple[str, ...] = ()
    split: str = ""
    grid: tuple[tuple[str, int], ...] = field(default=())
    taps: str = "all"
    kernel_split: str = ""
    group_merge: int = 1
    k_segment: int = 0
    stream_ways: int = 1
    stream_axis: str = ""
    strip_w: int = 0
    transpose_first: bool = False
    through_gm: bool = False
    zero_first: bool = False
    host: tuple[tuple[str, int], ...] = ()
    step_m: int = 1
