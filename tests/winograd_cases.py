"""Small convolutions that Winograd may compute, and what the tests of it share."""

from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.winograd import Clusters
from ascendsim.ops.schedules.order import WinogradOrder

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
