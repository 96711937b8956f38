"""Is the bias gradient of few and of many pixels the same sum, and does it cost what its instructions say?"""

from itertools import pairwise

import numpy as np
import pytest

from ascendsim import ConvProblem, convolution_backward, estimate
from ascendsim.functional import run_kernel
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.ops.lowering.graph import GraphBuilder
from ascendsim.ops.lowering.vector import VectorKernels
from ascendsim.ops.reference.ordered import bias_gradient
from ascendsim.ops.schedules.vector.channel_sums import bias_parts
from ascendsim.program.places import GmTensor
from ascendsim.timing.kernel import time_kernel
from ascendsim.vector.instructions import AddLanes, AddRows, CopyGmToUb, SumPixels
from tests.helpers.conv_cases import assert_same_bits
from tests.helpers.strict_memory import strict
from tests.helpers.toy_profiles import toy_split, toy_unified


class Tiles:
    """UB as a dictionary."""

    def __init__(self, **tiles):
        self.tiles = {name: np.array(tile, np.float32) for name, tile in tiles.items()}

    def tile(self, slot):
        return self.tiles[slot]

    def new_tile(self, slot, shape):
        self.tiles[slot] = np.empty(shape, np.float32)
        return self.tiles[slot]


def test_rows_are_added_from_the_first():
    # 2**24 + 1 + 1 in float32 is 2**24, whatever the second row is; 1 + 1 + 2**24 is 2**24 + 2.
    tiles = Tiles(sum=[0.0, 0.0], rows=[[2**24, 1], [1, 1], [1, 2**24]])
    AddRows("sum", "rows", 3, 2).execute(tiles)
    assert tiles.tile("sum").tolist() == [2**24, 2**24 + 2]


def test_rows_are_added_to_what_is_there():
    tiles = Tiles(sum=[5.0], rows=[[1.0], [2.0]])
    AddRows("sum", "rows", 2, 1).execute(tiles)
    assert tiles.tile("sum").tolist() == [8.0]


def test_pixels_meet_as_lanes_do():
    # Lanes 0 and 32 meet first, then 0 and 16: with 33 pixels, big at 0, ones at 16 and 32. 2**24 + 1 loses
    # the one at 32, then the one at 16. With the ones at 16 and 48 out of reach of 33 pixels, 16 and 24 meet
    # each other only after 16 has met 0: still lost. Two ones at 1 and 17 meet and count.
    row = np.zeros(33, np.float32)
    row[[0, 16, 32]] = 2**24, 1, 1
    other = np.zeros(33, np.float32)
    other[[0, 1, 17]] = 2**24, 1, 1
    tiles = Tiles(pixels=np.concatenate([row, other]))
    SumPixels("sums", "pixels", 2, 33).execute(tiles)
    assert tiles.tile("sums").tolist() == [2**24, 2**24 + 2]


def test_each_row_waits_for_the_one_before():
    # toy: head 2, binary repeat 2, cast repeat 1, latency 10. 100 elements are 2 repeats: 2 + 4 for the sum
    # and 2 + 2 for the cast of a row, three rows, two waits.
    assert AddRows("a", "b", 3, 100).cost(toy_split()).cycles == 3 * 10 + 2 * 10
    assert AddRows("a", "b", 1, 64).cost(toy_split()).cycles == 7
    assert SumPixels("a", "b", 5, 9).cost(toy_split()).cycles == 2 + 5 * 3


SHAPES = [
    (1, 1, 1),
    (9, 3, 1),
    (70, 5, 1),
    (4, 40, 7),
    (3, 2, 63),
    (3, 2, 64),
    (2, 3, 65),
    (2, 3, 300),
    (5, 300, 2),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("profile", [toy_split(), toy_unified()], ids=["split", "unified"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_every_space_gives_the_bits_of_the_definition(shape, profile, dtype):
    rng = np.random.default_rng(0)
    values = np.ldexp(rng.standard_normal(shape), rng.integers(-8, 8, shape)).astype(dtype).astype(np.float32)
    graph = GraphBuilder({"grad_output": GmTensor.of("grad_output", shape, dtype)})
    VectorKernels(graph, profile, AccumulationModel("exact")).grad_bias(dtype, dtype)
    (kernel,) = graph.build(("grad_bias",)).kernels
    gm = {"grad_output": values}
    run_kernel(strict(kernel, 4), gm, order=5)
    want = bias_gradient(values, bias_parts(profile, *shape[:2]))
    assert_same_bits(gm["grad_bias"].reshape(-1), want.astype(dtype).astype(np.float32))
    folded, plain = (time_kernel(kernel, profile, folded=folded).cycles for folded in (True, False))
    assert folded == plain


def test_one_pixel_images_are_read_many_at_a_time():
    # 512 images of 512 channels: 1 MiB in float32. A copy for each image would take 512 heads and latencies
    # on every core; half a piece holds some dozens of them.
    problem = ConvProblem((512, 512, 1, 1), (512, 512, 1, 1))
    (kernel,) = estimate(problem, "float32", output_mask=(False, False, True)).kernels
    copies = [
        sum(type(i).__name__ == "CopyGmToUb" for i in work.build().instructions)
        for work in kernel.kernel.phases[0].work
    ]
    assert max(copies) < 512 / 10
    assert 512 * 512 * 4 <= kernel.bytes["l2_read"] < 1.1 * 512 * 512 * 4  # rows begin inside a line


def bias_kernel(shape, dtype, product):
    problem = ConvProblem((shape[0], 1, *shape[2:]), (shape[1], 1, *[1] * len(shape[2:])))
    [kernel] = estimate(problem, dtype, product=product, output_mask=(False, False, True)).kernels
    return kernel


@pytest.mark.parametrize(("channels", "blocks"), [(256, 43), (384, 48), (192, 48), (64, 32)])
def test_cores_take_equal_numbers_of_channels(channels, blocks):
    # 48 vector cores: 256 / 48 is 6 channels each, so 43 of them work, the last with 4. The measured kernels
    # of AlexNet ran on as many blocks.
    assert bias_kernel((2, channels, 169), "float32", "910B2").kernel.blocks == blocks


def test_parts_with_30_cores_deal_32_blocks():
    # 255 channels in 32 blocks of 8: cores 0 and 1 take a second one, the others wait for them.
    kernel = bias_kernel((2, 255, 20, 20), "float16", "910B_old_1001")
    own = [work.signature[0] for work in kernel.kernel.phases[0].work]
    assert own == [(8, 8), (8, 7)] + [(8,)] * 28


def copies(kernel):
    program = kernel.kernel.phases[0].work[0].build()
    return [step for step in program.instructions if isinstance(step, CopyGmToUb)]


def test_all_channels_of_a_core_come_at_once_each_at_a_block_of_ub():
    # 6 channels of 169 float32 pixels: 676 bytes are no whole blocks of 32.
    found = copies(bias_kernel((3, 256, 169), "float32", "910B2"))
    assert [(copy.tile_shape, copy.padded_rows) for copy in found] == [((6, 169), 6)] * 3
    # 168 of them are 21 blocks.
    found = copies(bias_kernel((3, 256, 168), "float32", "910B2"))
    assert [(copy.tile_shape, copy.padded_rows) for copy in found] == [((6, 168), 0)] * 3


def test_a_row_longer_than_ub_comes_in_pieces():
    # UB has 196608 bytes. Less 32 for each of four slots, and 256 + 8 for the lanes and totals of a row, they
    # hold 766 times 64 pixels of float32.
    found = copies(bias_kernel((1, 48, 100000), "float32", "910B2"))
    assert [copy.tile_shape for copy in found] == [(1, 49024), (1, 49024), (1, 1952)]


def test_the_next_rows_come_when_these_have_been_added():
    # Nothing overlaps: no copy begins before the rows of the last one have been added.
    kernel = bias_kernel((5, 384, 169), "float32", "910B2")
    work = kernel.timeline.phases[0].cores[0]
    steps = zip(work.program.instructions, work.start, work.end, strict=True)
    spans = [
        (type(step).__name__, start, end)
        for step, start, end in steps
        if isinstance(step, CopyGmToUb | AddLanes)
    ]
    assert [name for name, _, _ in spans] == ["CopyGmToUb", "AddLanes"] * 5
    assert all(end <= start for (_, _, end), (_, start, _) in pairwise(spans))


def test_few_channels_use_all_cores():
    given = [
        np.ones((96, 2, 1, 1), np.float16),
        np.ones((96, 2, 1, 1), np.float16),
        np.ones((2, 2, 1, 1), np.float16),
    ]
    result = convolution_backward(*given, [2], 1, 0, 1, False, 0, 1, (False, False, True), 0)
    assert result.grad_bias.tolist() == [96.0, 96.0]
    assert result.kernels[0].cores_used == 48
