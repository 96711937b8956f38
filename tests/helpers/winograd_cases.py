"""Small convolutions that Winograd may compute, and what the tests of it share."""

from dataclasses import replace

from ascendsim import ConvProblem, Tiling, load_profile
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.products import Clusters
from ascendsim.ops.schedules.base import WinogradOrder
from tests.helpers.conv_cases import call_of, kernels_with_inputs

# Odd sizes end inside a tile; one image has a single row of tiles, one 17 tiles across.
PROBLEMS = {
    "padded": ConvProblem((2, 20, 9, 11), (17, 20, 3, 3), 1, 1),
    "no padding": ConvProblem((3, 8, 6, 7), (24, 8, 3, 3)),
    "uneven padding": ConvProblem((1, 5, 6, 4), (3, 5, 3, 3), 1, (3, 1)),
    "much padding": ConvProblem((1, 9, 4, 5), (8, 9, 3, 3), 1, 8),
    "one row": ConvProblem((2, 6, 2, 33), (9, 6, 3, 3), 1, 1),
    "transposed": ConvProblem((2, 12, 7, 6), (12, 9, 3, 3), 1, 1, transposed=True),
    "depth of one": ConvProblem((1, 8, 1, 9, 7), (8, 8, 1, 3, 3), 1, (0, 1, 1)),
}


def order_of(problem, parts=1, streamed=()):
    """Return the order of a problem, of which some blocks are added in parts."""
    return WinogradOrder(Clusters.of(problem.batch, problem.small_size[1:]), parts, streamed)


PR = load_profile("950PR_9589")
ONLY_WEIGHT = (False, True, False)
SMALL = Tiling(16, 16, 32, used_cores=32)
# Four cores, and 2 x 3 blocks of 16 channels at least: two of them are left for the last round.
FOUR = load_profile("950PR_9589", {"cores.cube": 4, "cores.vector": 8})
PARTS = replace(SMALL, used_cores=4, k_split=2)
STREAMED = ConvProblem((3, 40, 9, 11), (20, 40, 3, 3), 1, 1)
WIDER = ConvProblem((3, 20, 9, 11), (40, 20, 3, 3), 1, 1)


def planned(problem, tiling=SMALL, profile=PR, **options):
    """A call whose grad_weight is made by Winograd."""
    call = call_of(problem, "float32", profile=profile, **options)
    return replace(call, plans=call.plans | {"grad_weight": Plan("wgrad_winograd", tiling)})


def kernel_of(problem, tiling=SMALL, profile=PR):
    [kernel] = lower(planned(problem, tiling, profile), ONLY_WEIGHT).kernels
    return kernel


def inputs_of(call, tensors):
    """Return the kernel of grad_weight, and the tensors in GM that it begins with."""
    found = [(kernel, dict(gm)) for kernel, gm in kernels_with_inputs(call, tensors)]
    [made] = [(kernel, gm) for kernel, gm in found if kernel.name == "grad_weight"]
    return made


CASES = [(problem, SMALL, PR) for problem in PROBLEMS.values()]
CASES += [(STREAMED, PARTS, FOUR), (WIDER, PARTS, FOUR)]
# Five clusters in parts of three and two; a block of five groups of channels, of which UB holds two.
CASES += [
    (ConvProblem((5, 40, 7, 7), (20, 40, 3, 3), 1, 1), PARTS, FOUR),
    (ConvProblem((2, 40, 9, 11), (17, 40, 3, 3), 1, 1), replace(SMALL, base_n=48), PR),
]
# Odd blocks of one core: its second block runs the first one's code with its sums in other slots.
CASES += [(ConvProblem((1, 48, 12, 12), (8, 48, 3, 3), 1, 1), replace(SMALL, used_cores=1), PR)]
NAMES = [*PROBLEMS, "parts", "parts of the turned one", "uneven parts", "pieces", "odd blocks"]
