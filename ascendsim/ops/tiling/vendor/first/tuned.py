"""Tuned entries of the first generation: layers whose grids no rule of the operators gives.

The operators ask a bank of entries that were tuned by trial before their own rules. The bank is not public.
What it has for ResNet-50 are grids that are fastest on a part with 32 cores, also where the kernel runs on
one with 30: few parts of the batch, and channels and lines cut instead, so that a block adds less.

Source   block counts and times of measured kernels of a 30-core 910; the search is ours
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.convolution import ConvProblem

if TYPE_CHECKING:
    from ascendsim.ops.tiling.request import PlanRequest

# The part that entries were tuned on, and the one whose kernels tell of them.
SIBLING: Final = 32
TOLD_BY: Final = ("1001", 30)
# From so many images on ResNet-50 has entries; for grad_input they are known of so many alone.
LEAST_IMAGES: Final = 32
GROUP: Final = 16


def tuned_tiling(request: PlanRequest) -> Tiling | None:
    """Return the tiling under the grid that is fastest on the sibling of 32 cores; None where none fits."""
    # Imported here, as all that times kernels is: few calls do while they are planned.
    from ascendsim.ops.schedules.catalogue import schedule_named
    from ascendsim.ops.tiling.timed import fastest_of_all
    from ascendsim.ops.tiling.vendor.first.dgrad import all_dgrads
    from ascendsim.ops.tiling.vendor.first.wgrad import all_wgrads

    gemm, cores = request.gemm, request.profile.cores
    sibling = replace(request.profile, cores=cores._replace(cube=max(SIBLING, request.blocks)))
    dgrad = request.gradient == "grad_input"
    tilings = (all_dgrads if dgrad else all_wgrads)(gemm, sibling, request.blocks)
    found = fastest_of_all(schedule_named("dgrad" if dgrad else "wgrad"), gemm, sibling, tilings)
    return found and replace(found, used_cores=min(found.used_cores, cores.cube))


def has_entry(request: PlanRequest) -> bool:
    """Tell whether the operators are known to have an entry for a layer."""
    problem, profile = request.problem, request.profile
    assert isinstance(problem, ConvProblem)
    if (profile.npu_arch, profile.cores.cube) != TOLD_BY or problem.rank != 2:
        return False
    if request.gradient == "grad_input":
        # So many blocks of whole images are those of the rules.
        told = problem.batch == LEAST_IMAGES and request.blocks != min(problem.batch, profile.cores.cube)
    else:
        told = problem.batch >= LEAST_IMAGES
    return told and _shape(problem) in _RESNET_50


def _shape(problem: ConvProblem) -> tuple[int, ...] | None:
    """Return groups of channels on both sides, rows, taps in a row and step; None of uneven layers."""
    same = (
        (problem.big_size[1], problem.kernel[1], problem.strides[1], problem.pads[1]),
        (problem.big_size[2], problem.kernel[2], problem.strides[2], problem.pads[2]),
    )
    plain = problem.groups == 1 and not problem.transposed and max(problem.dilations) == 1
    size, taps, stride, pads = same[0]
    if same[0] != same[1] or not plain or set(pads) != {taps // 2}:
        return None
    return -(-problem.big_channels // GROUP), -(-problem.small_channels // GROUP), size, taps, stride


def _resnet_50() -> Iterator[tuple[int, ...]]:
    """Yield the shapes of ResNet-50's layers, the step of a stage in its layer of three taps."""
    yield 1, 4, 224, 7, 2
    into, size = 4, 56
    for stage in range(4):
        width = 4 << stage
        step = 1 if stage == 0 else 2
        yield into, width, size, 1, 1
        yield width, width, size, 3, step
        yield into, 4 * width, size, 1, step
        into, size = 4 * width, size // step
        yield width, into, size, 1, 1
        yield into, width, size, 1, 1
        yield width, width, size, 3, 1


_RESNET_50: Final = frozenset(_resnet_50())
