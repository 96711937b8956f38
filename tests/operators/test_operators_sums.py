"""Are parts of reductions and bias gradients the right sums, at the cost of their instructions?"""

from itertools import pairwise

import numpy as np
import pytest

from ascendsim import ConvProblem, Plan, Tiling, convolution_backward, estimate, load_profile
from ascendsim.aclnn import AclTensor, convolution_backward_get_workspace_size
from ascendsim.errors import AclnnError, ConfigError
from ascendsim.functional import run_kernel
from ascendsim.instructions.vector import AddLanes, AddRows, CopyGmToUb, SumPixels
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.numerics.compiled.turned import lane_sums
from ascendsim.ops.lowering.graph import GraphBuilder, VectorKernels
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.reference.ordered import LANES, add_as_tree, add_in_order, bias_gradient
from ascendsim.ops.schedules.vector.channel_sums import bias_parts
from ascendsim.ops.schedules.vector.elementwise import ordered_sum, tree_sum
from ascendsim.program.kernel import Kernel, Phase
from ascendsim.program.places import GmTensor
from ascendsim.timing.kernel import time_kernel
from tests.helpers.calls import ApiCall, as_carrier, check_against_reference, names
from tests.helpers.conv_cases import assert_same_bits
from tests.helpers.toy_machines import toy_split, toy_unified

# -------------------------------------------------------------------------------------------------------
# Are parts of a reduction added in the order of the product, and what does a sum pass on its way out?
# -------------------------------------------------------------------------------------------------------

PRODUCTS = ("910B", "910_93", "910_95", "310P", "910")


# Sums of parts


@pytest.mark.parametrize("count", range(2, 10))
@pytest.mark.parametrize("profile", [toy_split(), toy_unified()], ids=["split", "unified"])
def test_parts_are_added_as_the_tree_says(count, profile):
    rng = np.random.default_rng(count)
    parts = np.ldexp(rng.standard_normal((count, 333)), rng.integers(-12, 12, (count, 333))).astype(
        np.float32
    )
    assert_same_bits(summed(parts, tree_sum, profile), add_as_tree(parts))
    assert_same_bits(summed(parts, ordered_sum, profile), add_in_order(parts))


def summed(parts, make, profile, target="float32"):
    source = GmTensor.of("parts", parts.shape, "float32", "workspace")
    made = GmTensor.of("sum", parts.shape[1:], target, "output")
    phases = make(profile, source, made)
    phases = (phases,) if isinstance(phases, Phase) else phases
    math = MathSettings(AccumulationModel("exact"))
    kernel = Kernel("sum", phases, {"parts": source, "sum": made}, math)
    gm = {"parts": parts.copy()}
    run_kernel(kernel, gm, order=11)
    assert time_kernel(kernel, profile).cycles == time_kernel(kernel, profile, folded=False).cycles
    return gm["sum"]


def test_a_tree_of_five_doubles_its_stride():
    # ((1 + 2) + (3 + 4)) + 5 with numbers that show every step: 2**24 swallows a single 1.
    big = 2.0**24
    parts = np.array([[big], [1.0], [1.0], [-big], [1.0]], np.float32)
    # (big + 1) = big; (1 - big) = 1 - big exactly; big + (1 - big) = 1; 1 + 1 = 2. In order: 0 + 1 = 1.
    assert summed(parts, tree_sum, toy_split()).item() == 2.0
    assert summed(parts, ordered_sum, toy_split()).item() == 1.0


def test_rounds_of_a_tree_are_phases():
    source = GmTensor.of("parts", (6, 100), "float32", "workspace")
    phases = tree_sum(toy_split(), source, GmTensor.of("sum", (100,), "float32", "output"))
    assert [phase.name for phase in phases] == [f"tree sum, stride {stride}" for stride in (1, 2, 4)]


SPLIT_PLAN = Tiling(16, 16, 16, k_split=4, used_cores=4)
LONG = ConvProblem((1, 2, 9, 9), (3, 2, 3, 3), 1, 1)


ATOMIC, TREE = ["zero fill", "compute"], ["compute", "tree sum, stride 1", "tree sum, stride 2"]


@pytest.mark.parametrize(
    ("product", "rules", "deterministic", "phases"),
    [
        ("910B", "documented", True, ["compute", "ordered sum"]),
        ("910B", "documented", False, ATOMIC),
        ("910B", "documented", None, ATOMIC),  # a switch, off unless somebody sets it
        *(("910_95", "documented", switch, TREE) for switch in (None, False, True)),  # one order in any case
        ("910_95", "shipped", None, TREE),  # deterministic by default
        ("910_95", "shipped", False, ATOMIC),
        ("910_95", "hardware", False, ATOMIC),
    ],
)
def test_each_generation_adds_parts_its_own_way(product, rules, deterministic, phases):
    case = ApiCall(LONG, product=product, deterministic=deterministic, mask=(False, True, False))
    arrays = case.arrays()
    result = convolution_backward(
        *arrays,
        [3],
        *case.attributes,
        case.mask,
        0,
        tiling=SPLIT_PLAN,
        product=product,
        rules=rules,
        deterministic=deterministic,
    )
    [kernel] = [kernel.kernel for kernel in result.kernels if kernel.plan]
    assert [phase.name for phase in kernel.phases] == phases
    ignored = (rules, product, deterministic) == ("documented", "910_95", False)
    assert any("deterministic changes nothing" in note for note in result.notes) == ignored


def test_the_page_leaves_the_switch_off_whatever_a_products_figures_say():
    # A 910B that is deterministic by default: page 000 has the switch off, the operator follows the product.
    mine = load_profile("910B", {"deterministic_default": True})
    case = ConvProblem((1, 2, 9, 9), (3, 2, 3, 3), 1, 1)
    for rules, phases in (("documented", ATOMIC), ("shipped", ["compute", "ordered sum"])):
        mask = (False, True, False)
        made = estimate(case, product=mine, tiling=SPLIT_PLAN, output_mask=mask, rules=rules)
        [kernel] = [kernel.kernel for kernel in made.kernels if kernel.plan]
        assert [phase.name for phase in kernel.phases] == phases


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("deterministic", [False, True])
def test_parts_add_up_to_the_reference(product, deterministic):
    problem = ConvProblem((3, 3, 17, 16), (5, 3, 3, 3), 1, 1)
    check_against_reference(ApiCall(problem, product=product, deterministic=deterministic))


# The reduction of grad_input in parts


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
@pytest.mark.parametrize("order", ["program", "arrival", 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_grad_input_in_parts_is_added_in_order(dtype, order, transposed):
    problem = ConvProblem((1, 40, 5, 4), (40, 40, 2, 3), transposed=transposed)
    plan = Tiling(16, 16, 48, k_split=3, used_cores=2)
    case = ApiCall(problem, (dtype,) * 3, order=order, mask=(True, False, False))
    call = case.resolved()
    call.plans["grad_input"] = Plan("dgrad", plan)
    given = dict(zip(("grad_output", "input", "weight"), case.carriers(), strict=True))
    want = reference_gradients(call, **given, mask=case.mask)["grad_input"]
    result = convolution_backward(
        *case.arrays(), None, *case.attributes, case.mask, 0, tiling=plan, order=order
    )
    assert_same_bits(as_carrier(result.grad_input), want)
    [kernel] = [kernel.kernel for kernel in result.kernels if kernel.plan]
    phases = [phase.name for phase in kernel.phases]
    assert phases == ["zero fill", "compute"] + (["cast"] if dtype != "float32" else [])


def test_a_sum_of_parts_differs_from_one_sum():
    # One channel group of 16 each: 2**24, then -2**24, then 1: together 1 in any order of blocks that is
    # exact, but parts are added in float32 from the left: (2**24 + 1) - 2**24 = 0.
    grad_output = np.zeros((1, 48, 1, 1), np.float16)
    grad_output[0, [0, 16, 32], 0, 0] = 4096, 1, -4096
    weight = np.zeros((48, 1, 1, 1), np.float16)
    weight[[0, 16, 32], 0, 0, 0] = 4096, 1, 4096
    given = (grad_output, np.zeros((1, 1, 1, 1), np.float16), weight)
    options = {"accumulation": "exact:RNE"}

    def run(plan):
        result = convolution_backward(
            *given, None, 1, 0, 1, False, 0, 1, (True, False, False), 0, tiling=plan, **options
        )
        return result.grad_input.item()

    assert run(Tiling(16, 16, 48)) == 1.0
    assert run(Tiling(16, 16, 48, k_split=3)) == 0.0


def test_more_parts_than_channels_are_refused():
    case = ApiCall(ConvProblem((1, 3, 4, 4), (3, 3, 1, 1)), mask=(True, False, False))
    with pytest.raises(ConfigError, match="k_split is 2, but the reduction has 1 groups of 16 channels"):
        convolution_backward(
            *case.arrays(), None, *case.attributes, case.mask, 0, tiling=Tiling(16, 16, 16, k_split=2)
        )


# Grouped grad_weight on its way out


GROUPED = ConvProblem((1, 4, 5, 5), (4, 2, 3, 3), 1, 1, groups=2)


@pytest.mark.parametrize(
    ("product", "dtype", "grad_weight", "groups", "cube_math_type", "squeezed"),
    [
        ("910B", "float16", "float32", 2, 0, True),
        ("910_93", "bfloat16", "float32", 2, 0, True),
        ("310P", "float16", "float32", 2, 0, True),
        ("910B", "float32", "float32", 2, 2, True),  # the cube reads halves, C0 is 16
        ("910B", "float32", "float32", 2, 1, False),  # C0 is 8
        ("910B", "float16", "float16", 2, 0, False),
        ("910B", "float16", "float32", 1, 0, False),
        ("910_95", "float16", "float32", 2, 0, False),
    ],
)
def test_a_grouped_float32_grad_weight_loses_bits_before_950(
    product, dtype, grad_weight, groups, cube_math_type, squeezed
):
    problem = GROUPED if groups == 2 else ConvProblem((1, 4, 5, 5), (4, 4, 3, 3), 1, 1)
    case = ApiCall(
        problem,
        (dtype,) * 3,
        cube_math_type,
        product,
        output_dtypes=(None, grad_weight, None),
        rules="documented",
    )
    result = check_against_reference(case)
    kernels = names(result)
    assert ("squeeze_grad_weight" in kernels) is squeezed
    values = result.grad_weight
    through_half = np.array_equal(values.astype(np.float16).astype(np.float32), values)
    if grad_weight == "float32":
        assert through_half is squeezed  # sums of 25 random products are hardly ever halves
    if squeezed:
        assert kernels[-2:] == ["squeeze_grad_weight", "cast_grad_weight"]


# -------------------------------------------------------------------------------------------------------
# Is the bias gradient of few and of many pixels the same sum, and does it cost what its instructions say?
# -------------------------------------------------------------------------------------------------------


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
    (2, 13, 2011),  # of all channels of a core UB holds a part at a time
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
    run_kernel(kernel, gm, order=5)
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
    # Of float16 64 pixels take 128 bytes, and 256 for their copy in float32: 510 times.
    found = copies(bias_kernel((1, 48, 100000), "float16", "910B2"))
    assert [copy.tile_shape for copy in found] == [(1, 32640)] * 3 + [(1, 2080)]
    # Of two channels of a core half as much goes together, so that one instruction adds to both.
    found = copies(bias_kernel((1, 64, 50000), "float32", "910B2"))
    assert [copy.tile_shape for copy in found] == [(2, 24448), (2, 24448), (2, 1104)]
    # A row of the last piece that is no whole block is padded, and the others are not.
    found = copies(bias_kernel((1, 64, 49001), "float32", "910B2"))
    assert [copy.padded_rows for copy in found] == [0, 0, 2]


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


# --- Does a layer without bias pass as torch's autograd passes it, and only then? ----------------------

WEIGHTS_ALONE = (True, True, False)


def backward(bias_sizes, mask):
    tensors = (np.ones(shape, np.float16) for shape in ((1, 4, 5, 5), (1, 3, 5, 5), (4, 3, 3, 3)))
    return convolution_backward(*tensors, bias_sizes, 1, 1, 1, False, 0, 1, mask, 0)


@pytest.mark.parametrize("sizes", [[0], (0,), (np.int64(0),)])
def test_a_layer_without_bias_passes_as_torch_passes_it(sizes):
    made, usual = backward(sizes, WEIGHTS_ALONE), backward([4], WEIGHTS_ALONE)
    assert made.grad_bias is None
    # The middle pixel of the middle tap sees all 25 pixels of ones, its gradient is 25.
    assert made.grad_weight[0, 0, 1, 1] == 25
    assert made.grad_weight.tobytes() == usual.grad_weight.tobytes()


@pytest.mark.parametrize(
    ("sizes", "mask"),
    [
        ([0], (True, True, True)),  # a gradient of no bias
        ([1], WEIGHTS_ALONE),  # neither torch's nor the interface's
        ([0, 0], WEIGHTS_ALONE),
        ([False], WEIGHTS_ALONE),
        ([], WEIGHTS_ALONE),
    ],
)
def test_other_sizes_of_the_bias_stay_refused(sizes, mask):
    with pytest.raises(AclnnError, match="bias_sizes") as caught:
        backward(sizes, mask)
    assert caught.value.status == 161002


def test_the_two_phases_want_the_channels_in_any_case():
    def tensor(*shape):
        return AclTensor(np.ones(shape, np.float16), "FLOAT16", "NCHW")

    outputs = tensor(1, 3, 5, 5), tensor(4, 3, 3, 3)
    given = tensor(1, 4, 5, 5), *outputs
    attributes = [1, 1], [1, 1], [1, 1], False, [0, 0], 1, list(WEIGHTS_ALONE), 0
    with pytest.raises(AclnnError, match="21a") as caught:
        convolution_backward_get_workspace_size(*given, [0], *attributes, *outputs, None)
    assert caught.value.status == 161002


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 1), (7, 2, 63), (3, 4, 64), (2, 3, 65), (4, 2, 200)])
def test_lanes_are_summed_as_the_definition_sums_them(shape):
    values = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    values[0, 0] = -0.0
    first = shape[0] // 2
    found = lane_sums(values, range(first, shape[0]), LANES)
    assert found.tobytes() == bias_gradient(values[first:], 1).tobytes()
