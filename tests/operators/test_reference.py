"""Is the ordered reference the definition it claims to be?

Whole numbers tell whether the right products are summed (float64 is exact on them); a few values whose sum
depends on the order tell whether they are summed in the right order: 2^24 + 1 + 1 is 2^24 one by one in
float32, and 2^24 + 2 if the ones meet first.
"""

import numpy as np
import pytest

from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.orders import WgradOrder
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.reference.float64 import gradients_float64
from ascendsim.ops.reference.ordered import (
    DgradOrder,
    add_as_tree,
    add_in_order,
    bias_gradient,
    im2col,
    ordered_dgrad,
    ordered_wgrad,
    reduction_by_groups,
    reduction_of,
    sources,
)
from ascendsim.profile import load_profile
from tests.helpers.conv_cases import (
    GRADIENTS,
    assert_same_bits,
    call_of,
    filter_schedule,
    grid_2d,
    image_schedule,
    other_ranks,
    run,
    tensors_of,
)

BIG = 2.0**24
SEQ, BLOCK = AccumulationModel.parse("seq:RNE"), AccumulationModel.parse("block:16:RNE")
TWIN, COMPILED = 0, 10**9


def floats(values, shape):
    return np.array(values, np.float32).reshape(shape)


def image(problem, grad_output, weight, slices, *, c0=16, model=SEQ):
    order = DgradOrder(c0, slices)
    a, w = floats(grad_output, problem.grad_output), floats(weight, problem.weight)
    return ordered_dgrad(problem, a, w, order, reduction_of(model, TWIN))


def filter_(problem, grad_output, input, order, *, model=SEQ):
    a, x = floats(grad_output, problem.grad_output), floats(input, problem.input)
    return ordered_wgrad(problem, a, x, order, reduction_of(model, TWIN))


# --- the right products


@pytest.mark.parametrize("case", [*grid_2d()[::7], *other_ranks()], ids=str)
def test_whole_numbers_give_the_gradients_of_float64(case):
    call = call_of(case.problem, "float32", profile=case.profile, deterministic=True)
    tensors = tensors_of(case.problem, "float32", "integers", case.seed)
    want = gradients_float64(case.problem, **tensors)
    got = reference_gradients(call, **tensors)
    for name, exact in zip(GRADIENTS, want, strict=True):
        assert np.array_equal(got[name], exact), name


def test_where_outputs_read_along_an_axis():
    # 5 pixels, kernel 2 with dilation 2, stride 2, padding 1: outputs 0, 1, 2 see -1, 1, 3 and 1, 3, 5
    problem = ConvProblem((1, 1, 5), (1, 1, 2), 2, 1, 2)
    assert sources(problem, 2, forward=True).tolist() == [[-1, 1, 3], [1, 3, -1]]
    # the other way round: pixel 1 is seen by output 1 under tap 0 and by output 0 under tap 1; even pixels
    # are seen by nobody
    assert sources(problem, 2, forward=False).tolist() == [[-1, 1, -1, 2, -1], [-1, 0, -1, 1, -1]]


def test_im2col_is_written_out_tap_by_tap():
    plane = floats([1, 2, 3, 4], (1, 2, 2))
    rows, cols = np.array([[0, 1]]), np.array([[0, 1], [1, -1]])
    assert im2col(plane, rows, cols).tolist() == [[[[1, 2, 3, 4], [2, 0, 4, 0]]]]


def test_missing_channels_of_a_group_are_zeros():
    values = floats(range(1, 7), (3, 1, 2, 1))  # 3 channels, 2 taps
    # groups of 2: (channels 0, 1 at tap 0), (0, 1 at tap 1), (2, - at tap 0), (2, - at tap 1)
    assert reduction_by_groups(values, 2).ravel().tolist() == [1, 3, 2, 4, 5, 0, 6, 0]


# --- the right order of grad_input


def test_grad_input_walks_rows_and_columns_from_the_last_tap():
    # One pixel in the middle of a 1 x 3 kernel: taps 2, 1, 0 bring grad_output 0, 1, 2.
    problem = ConvProblem((1, 1, 1, 1), (1, 1, 1, 3), padding=(0, 1))
    assert image(problem, [1], [1, 1, 1], (3,)).ravel().tolist() == [1]
    wide = ConvProblem((1, 1, 1, 3), (1, 1, 1, 3), padding=(0, 1))
    # pixel 1 sees grad_output 0 under tap 2, 1 under tap 1, 2 under tap 0
    assert image(wide, [BIG, 1, 1], [1, 1, 1], (3,))[0, 0, 0, 1] == BIG  # BIG first, then the ones are lost
    assert image(wide, [1, 1, BIG], [1, 1, 1], (3,))[0, 0, 0, 1] == BIG + 2


def test_grad_input_walks_channels_of_a_group_before_taps():
    # 2 channels, 2 taps: (c0, tap 1), (c1, tap 1), (c0, tap 0), (c1, tap 0); pixel 1 sees grad_output 0, 1
    problem = ConvProblem((1, 1, 1, 3), (2, 1, 1, 2))
    channels_first = image(
        problem, [1, 0, 1, BIG], [1, 1, 1, 1], (2,)
    )  # channel 0: (1, 0), channel 1: (1, BIG)
    assert channels_first[0, 0, 0, 1] == BIG + 2  # 1, 1, 0, BIG
    other = image(problem, [BIG, 0, 1, 1], [1, 1, 1, 1], (2,))  # BIG, 1, 0, 1
    assert other[0, 0, 0, 1] == BIG


def test_grad_input_walks_channel_groups_after_taps():
    # C0 = 1, so every channel is a group of its own: channel 0 under both taps, then channel 1
    problem = ConvProblem((1, 1, 1, 3), (2, 1, 1, 2))
    assert image(problem, [1, 1, 0, BIG], [1, 1, 1, 1], (4,), c0=1)[0, 0, 0, 1] == BIG + 2
    assert image(problem, [1, 0, BIG, 1], [1, 1, 1, 1], (4,), c0=1)[0, 0, 0, 1] == BIG


def test_grad_input_walks_kernel_depths_forwards():
    # The middle of three depths sees grad_output depth 2 under tap 0, 1 under tap 1, 0 under tap 2.
    problem = ConvProblem((1, 1, 3, 1, 1), (1, 1, 3, 1, 1), padding=(1, 0, 0))
    assert image(problem, [1, 1, BIG], [1, 1, 1], (1,))[0, 0, 1, 0, 0] == BIG
    assert image(problem, [BIG, 1, 1], [1, 1, 1], (1,))[0, 0, 1, 0, 0] == BIG + 2


def test_the_forward_direction_of_a_transposed_convolution_walks_taps_forwards():
    problem = ConvProblem((1, 1, 1, 1), (1, 1, 1, 3), transposed=True)
    assert image(problem, [BIG, 1, 1], [1, 1, 1], (3,)).ravel().tolist() == [BIG]
    assert image(problem, [1, 1, BIG], [1, 1, 1], (3,)).ravel().tolist() == [BIG + 2]


def test_blocks_begin_anew_with_every_mmad():
    # Blocks of 2, C0 = 1, three taps that bring 1, BIG, 1 in this order: as one Mmad (1 + BIG) + 1, where
    # 1 + BIG is a tie and goes to BIG; as Mmads of one and two, 1 and then 1 + BIG + 1 in one exact block.
    problem = ConvProblem((1, 1, 1, 3), (1, 1, 1, 3), padding=(0, 1))
    model = AccumulationModel.parse("block:2:RNE")
    assert image(problem, [1, BIG, 1], [1, 1, 1], (3,), c0=1, model=model)[0, 0, 0, 1] == BIG
    assert image(problem, [1, BIG, 1], [1, 1, 1], (1, 2), c0=1, model=model)[0, 0, 0, 1] == BIG + 2


def test_missing_channels_take_their_place_in_a_block():
    # One channel in groups of 2 and blocks of 2: each tap is a block of its own. BIG, 1, 1 loses both ones;
    # without the zeros BIG + 1 and 1 would be blocks: BIG again, but 1 + 1 first in the other order.
    problem = ConvProblem((1, 1, 1, 3), (1, 1, 1, 3), padding=(0, 1))
    model = AccumulationModel.parse("block:2:RNE")
    assert image(problem, [BIG, 1, 1], [1, 1, 1], (3,), c0=2, model=model)[0, 0, 0, 1] == BIG
    assert image(problem, [BIG, 1, 1], [1, 1, 1], (1, 2), c0=1, model=model)[0, 0, 0, 1] == BIG + 2


def test_parts_of_grad_input_are_added_one_after_the_other_to_zero():
    # Three channels in groups of C0 = 1 on one pixel: as one sum BIG + 1 + 1 loses both ones; the parts
    # (BIG) and (1, 1) meet as BIG and 2. A part runs through all its slices before it is added.
    problem = ConvProblem((1, 1, 1, 1), (3, 1, 1, 1))

    def of(values, *parts):
        order = DgradOrder(1, (1, 1, 1), parts)
        a, w = floats(values, problem.grad_output), floats([1, 1, 1], problem.weight)
        return ordered_dgrad(problem, a, w, order, reduction_of(SEQ, TWIN)).item()

    assert of([BIG, 1, 1]) == BIG
    assert of([BIG, 1, 1], 1, 2) == BIG + 2
    assert of([BIG, 1, 1], 2, 1) == BIG


def test_a_part_of_grad_input_runs_through_all_kernel_depths():
    # Two channels as two parts, two kernel depths: the middle pixel sees depth 1 under tap 0 and depth 0
    # under tap 1. Channel 0 brings BIG and then 1, channel 1 brings 1 and 1.
    problem = ConvProblem((1, 1, 3, 1, 1), (2, 1, 2, 1, 1))
    a = floats([1, BIG, 1, 1], problem.grad_output)  # channel 0: depths (1, BIG), channel 1: (1, 1)
    w = floats([1, 1, 1, 1], problem.weight)
    whole, parts = (
        ordered_dgrad(problem, a, w, DgradOrder(1, (1, 1), cut), reduction_of(SEQ, TWIN))[0, 0, 1, 0, 0]
        for cut in ((), (1, 1))
    )
    # BIG of channel 0, then three ones that are lost one by one
    assert whole == BIG
    assert parts == BIG + 2  # (BIG + 1) and (1 + 1)


# --- zeros that are multiplied, and those that are not


def test_padding_and_inserted_zeros_multiply():
    inf = np.inf
    problem = ConvProblem((1, 1, 1, 3), (1, 1, 1, 3), padding=(0, 1))
    # pixel 0 reads grad_output 1, 0 under taps 0, 1 and padding under tap 2: 0 * inf is NaN
    assert np.isnan(image(problem, [1, 1, 1], [1, 1, inf], (3,))[0, 0, 0]).tolist() == [True, False, False]
    strided = ConvProblem((1, 1, 1, 3), (1, 1, 1, 1), (1, 2))
    # pixel 1 lies between the places of the kernel: a zero is multiplied there
    got = image(strided, [1, 1], [inf], (1,))[0, 0, 0]
    assert got[[0, 2]].tolist() == [inf, inf]
    assert np.isnan(got[1])


def test_missing_channels_are_zeros_on_both_sides():
    problem = ConvProblem((1, 1, 1, 1), (1, 1, 1, 1))
    assert image(problem, [np.inf], [1], (1,)).ravel().tolist() == [np.inf]


def test_a_kernel_depth_that_meets_nothing_is_left_out():
    problem = ConvProblem((1, 1, 2, 1, 1), (1, 1, 3, 1, 1), padding=(1, 0, 0))
    # depth 0 sees grad_output 1 under tap 0 and 0 under tap 1; tap 2 would read depth -1
    assert image(problem, [1, 2], [1, 1, np.inf], (1,))[0, 0, 0].item() == 3


def test_pixels_that_nothing_reaches_are_plus_zero():
    problem = ConvProblem((1, 1, 3, 1, 1), (1, 1, 1, 1, 1), (2, 1, 1))
    got = image(problem, [-1, -1], [np.inf], (1,))[0, 0, :, 0, 0]
    assert got.tolist() == [-np.inf, 0, -np.inf]
    assert not np.signbit(got[1])


# --- the right order of grad_weight


def test_grad_weight_walks_pixels_and_then_images():
    problem = ConvProblem((2, 1, 1, 2), (1, 1, 1, 1))
    order = WgradOrder(((0, 2),), 2)
    assert filter_(problem, [1, 1, BIG, 0], [1, 1, 1, 1], order).item() == BIG + 2
    assert filter_(problem, [BIG, 1, 1, 0], [1, 1, 1, 1], order).item() == BIG


def test_grad_weight_walks_pairs_of_depths_before_images():
    problem = ConvProblem((2, 1, 2, 1, 1), (1, 1, 1, 1, 1))
    order = WgradOrder(((0, 1),), 1)
    # image 0: depths (1, BIG), image 1: (1, 0); depth 0 of both images comes first: 1 + 1 + BIG + 0
    assert filter_(problem, [1, BIG, 1, 0], [1] * 4, order).item() == BIG + 2


def test_pieces_and_base_k_say_where_mmads_begin():
    problem = ConvProblem((1, 1, 1, 5), (1, 1, 1, 1))
    model = AccumulationModel.parse("block:2:RNE")

    def of(values, pieces, base_k):
        return filter_(problem, values, [1] * 5, WgradOrder(pieces, base_k), model=model).item()

    values = [1, BIG, 1, 0, 0]
    assert of(values, ((0, 5),), 5) == BIG  # blocks (1, BIG), (1, 0), (0)
    assert of(values, ((0, 5),), 1) == BIG  # one by one
    assert of(values, ((0, 1), (1, 4)), 4) == BIG + 2  # (1), (BIG, 1), (0, 0)
    values = [BIG, 0, 0, 1, 1]
    assert of(values, ((0, 5),), 5) == BIG  # (BIG, 0), (0, 1), (1)
    assert of(values, ((0, 5),), 3) == BIG + 2  # (BIG, 0), (0) and (1, 1)


def test_the_parts_share_the_steps_in_order():
    # 3 images of one pixel in 2 parts: steps 0 and 1, 2; that is image 0 alone, then images 1 and 2
    problem = ConvProblem((3, 1, 1, 1), (1, 1, 1, 1))
    order = WgradOrder(((0, 1),), 1, 2)
    assert filter_(problem, [BIG, 1, 1], [1, 1, 1], order).item() == BIG + 2  # BIG + (1 + 1)
    assert filter_(problem, [1, 1, BIG], [1, 1, 1], order).item() == BIG  # 1 + (1 + BIG): twice a tie


def test_parts_are_added_in_the_order_in_which_they_arrived():
    problem = ConvProblem((3, 1, 1, 1), (1, 1, 1, 1))

    def of(*arrivals):
        order = WgradOrder(((0, 1),), 1, 3, np.array(arrivals).reshape(3, 1, 1, 1, 1))
        return filter_(problem, [BIG, 1, 1], [1, 1, 1], order).item()

    assert of(0, 1, 2) == of(1, 0, 2) == BIG
    assert of(1, 2, 0) == BIG + 2


def test_arrivals_are_those_of_each_element():
    # two input channels; the parts of channel 0 arrive as 0, 1, 2, those of channel 1 as 1, 2, 0
    problem = ConvProblem((3, 2, 1, 1), (1, 2, 1, 1))
    arrivals = np.array([[0, 1], [1, 2], [2, 0]]).reshape(3, 1, 2, 1, 1)
    order = WgradOrder(((0, 1),), 1, 3, arrivals)
    assert filter_(problem, [BIG, 1, 1], [1] * 6, order).ravel().tolist() == [BIG, BIG + 2]


def test_an_atomic_addition_starts_from_plus_zero_and_an_ordered_sum_from_part_0():
    # -2^-149 * 2^-149 underflows to -0 in every part.
    problem = ConvProblem((2, 1, 1, 1), (1, 1, 1, 1))
    tiny = 2.0**-149
    ordered = WgradOrder(((0, 1),), 1, 2)
    atomic = WgradOrder(((0, 1),), 1, 2, np.arange(2).reshape(2, 1, 1, 1, 1))
    negative = [
        np.signbit(filter_(problem, [-tiny] * 2, [tiny] * 2, order).item()) for order in (ordered, atomic)
    ]
    assert negative == [True, False]


def test_a_part_without_a_step_is_plus_zero():
    problem = ConvProblem((1, 1, 1, 1), (1, 1, 1, 1))
    assert filter_(problem, [3], [5], WgradOrder(((0, 1),), 1, 4)).item() == 15


def test_sums_are_rounded_one_by_one():
    assert add_in_order(floats([BIG, 1, 1], (3, 1))).tolist() == [BIG]
    assert add_in_order(floats([1, 1, BIG], (3, 1))).tolist() == [BIG + 2]


def test_a_tree_adds_neighbours_first():
    # (BIG + 1) + (1 + 1): the first one is lost; the others meet. An odd part waits until the end.
    assert add_as_tree(floats([BIG, 1, 1, 1], (4, 1))).tolist() == [BIG + 2]
    assert add_as_tree(floats([1, 1, BIG], (3, 1))).tolist() == [BIG + 2]
    assert add_as_tree(floats([1, 1, 1, 1, BIG], (5, 1))).tolist() == [BIG + 4]
    assert add_as_tree(floats([BIG, 1, 1, 1, 1], (5, 1))).tolist() == [BIG + 4]  # (BIG + 2) + 1 ties to even
    problem = ConvProblem((4, 1, 1, 1), (1, 1, 1, 1))
    order = WgradOrder(((0, 1),), 1, 4, tree=True)
    assert filter_(problem, [BIG, 1, 1, 1], [1] * 4, order).item() == BIG + 2


# --- grad_bias


def test_grad_bias_adds_every_64th_element_and_then_halves():
    values = np.zeros((1, 1, 200), np.float32)
    values[0, 0, [0, 64, 128]] = BIG, 1, 1  # one lane: both ones are lost
    assert bias_gradient(values, 1).tolist() == [BIG]
    values[0, 0, [0, 64, 128]] = BIG, 0, 0
    values[0, 0, [16, 48]] = 1, 1  # lanes 16 and 48 meet first (48 = 16 + 32), and then lane 0
    assert bias_gradient(values, 1).tolist() == [BIG + 2]
    values[0, 0, [16, 48]] = 0, 0
    values[0, 0, [32, 16]] = 1, 1  # lane 32 meets lane 0 first
    assert bias_gradient(values, 1).tolist() == [BIG]


def test_grad_bias_begins_every_image_at_lane_0():
    values = np.zeros((2, 1, 3), np.float32)
    values[0, 0, 0], values[1, 0, 0] = BIG, 1  # one lane
    values[1, 0, 1] = 1
    assert bias_gradient(values, 1).tolist() == [BIG]
    assert bias_gradient(values, 2).tolist() == [BIG + 2]  # the second image on its own is 2


def test_grad_bias_is_one_value_for_each_channel():
    values = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 2, 2)
    assert bias_gradient(values, 1).tolist() == values.sum(axis=(0, 2, 3)).tolist()


# --- which product, and what the plan says


@pytest.mark.parametrize("data", ["normal", "wide", "special"])
def test_twin_and_compiled_model_give_the_same_gradients(data):
    problem = ConvProblem((1, 3, 5, 6), (4, 3, 3, 2), 1, 1)
    tensors = tensors_of(problem, "float16", data)
    order, filters = DgradOrder(16, (4, 2)), WgradOrder(((0, 20), (20, 15)), 16)
    a, x, w = tensors["grad_output"], tensors["input"], tensors["weight"]
    for gradient, operands in ((ordered_dgrad, (a, w, order)), (ordered_wgrad, (a, x, filters))):
        twin, fast = (gradient(problem, *operands, reduction_of(BLOCK, macs)) for macs in (TWIN, COMPILED))
        assert_same_bits(fast, twin)


def test_the_slices_of_the_plan_must_cover_the_reduction():
    with pytest.raises(AssertionError):
        image(ConvProblem((1, 1, 1, 3), (1, 1, 1, 3)), [1], [1, 1, 1], (2,))


@pytest.mark.parametrize("case", [*grid_2d()[::5], *other_ranks()], ids=str)
def test_what_the_plan_contributes_covers_the_reduction_once(case):
    call = case.call()
    spec, order = image_schedule(call).gemm, image_schedule(call).order()
    assert sum(order.slices) == spec.channel_groups * spec.taps
    filters, pixels = filter_schedule(call).order(), filter_schedule(call).gemm.sliding.pixels
    covered = [pixel for first, count in filters.ranges for pixel in range(first, first + count)]
    assert covered == list(range(pixels))


@pytest.mark.parametrize("transposed", [False, True])
def test_each_gradient_rounds_hf32_by_its_own_rule(transposed):
    # A product whose plain convolutions break ties away: grad_input of a transposed one is one of them.
    profile = load_profile("910B", overrides={"generation.hf32_ties.convolution_forward": "RNA"})
    problem = ConvProblem((1, 8, 4, 4), (8, 8, 2, 2), transposed=transposed)
    call = call_of(problem, "float32", 3, profile=profile)
    # Half of float32's numbers with 12 fraction bits are ties between numbers with 11.
    rng = np.random.default_rng(3)
    tensors = {
        name: (rng.integers(2**12, 2**13, values.shape) / 2**12).astype(np.float32)
        for name, values in tensors_of(problem, "float32").items()
    }
    made, _ = run(call, tensors, mask=(True, True, False))
    want = reference_gradients(call, **tensors, mask=(True, True, False))
    for name in ("grad_input", "grad_weight"):
        assert_same_bits(made[name], want[name], name)
    assert call.math("grad_input").hf32_ties == ("RNA" if transposed else "RNE")
