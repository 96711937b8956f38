"""Has a call without timing the bits of the executor, and is what it remembers of the right call?"""

import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascendsim import ConvProblem, conv_tbc_backward, convolution_backward
from ascendsim.errors import ConfigError
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.factor import Threads, Values
from ascendsim.ops.gradients import call as memory
from ascendsim.ops.gradients import filters as parts_memory
from ascendsim.ops.gradients.call import Gradients, can_follow, followed, says_more
from ascendsim.ops.gradients.filters import PixelSide, ReductionSides, _together, reductions
from ascendsim.ops.gradients.images import image_gradient
from ascendsim.ops.gradients.layouts import PixelPlanes, Planes
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.orders import DgradOrder, WgradOrder
from ascendsim.ops.problems.sliding import Sliding
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from tests.helpers.calls import as_carrier, calls, gradients
from tests.helpers.conv_cases import assert_same_bits, call_of, split, tensors_of
from tests.helpers.format_samples import check_against_the_executor

# --- Has a call without timing the bits of the executor, whatever it is asked for? ---------------------
# The executor follows the plan instruction by instruction. The gradients without instructions follow the
# order of the additions that the schedule names. Both must give the same bits on random calls of every
# kind.

ALL = (True, True, True)
USUAL = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


# --- the bits


@pytest.mark.parametrize("seed", range(60))
def test_random_plans_and_models_give_the_bits_of_the_executor(seed):
    check_against_the_executor(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_many_random_plans_and_models_give_the_bits_of_the_executor(seed):
    for part in range(50):
        check_against_the_executor(seed * 1000 + part)


def untimed(case):
    """Make a call of the interface without timing."""
    sizes = [case.problem.grad_output[1]]
    rest = sizes, *case.attributes, case.mask, case.cube_math_type
    return convolution_backward(*case.arrays(), *rest, order=case.order, timing=False, **case.options)


@USUAL
@given(case=calls())
def test_random_calls_give_the_bits_and_formats_of_the_timed_call(case):
    for got, want in zip(gradients(untimed(case)), gradients(case.run()), strict=True):
        assert (got is None) == (want is None)
        if got is not None:
            assert got.dtype == want.dtype
            assert_same_bits(as_carrier(got), as_carrier(want))


@settings(USUAL, max_examples=15)
@given(case=calls(), order=st.sampled_from(("arrival", 5)))
def test_an_order_of_execution_is_kept(case, order):
    case = replace(case, order=order, deterministic=False)
    for got, want in zip(gradients(untimed(case)), gradients(case.run()), strict=True):
        if got is not None:
            assert_same_bits(as_carrier(got), as_carrier(want))


def test_a_time_major_convolution_gives_the_bits_of_the_timed_call():
    # Time 9, batch 3, channels 5 and 7, three taps, padding 2: 9 + 4 + 1 - 3 = 11 steps come out.
    rng = np.random.default_rng(3)
    shapes = (11, 3, 7), (9, 3, 5), (3, 5, 7), (7,)
    tensors = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    timed, plain = (conv_tbc_backward(*tensors, 2, 0, product="910B2", timing=t) for t in (True, False))
    for got, want in zip(gradients(plain), gradients(timed), strict=True):
        assert (got.shape, got.tobytes()) == (want.shape, want.tobytes())
        assert got.flags.c_contiguous


def test_an_empty_batch_has_gradients_of_zeros():
    tensors = [np.zeros(shape, np.float16) for shape in ((0, 4, 5, 5), (0, 3, 5, 5), (4, 3, 3, 3))]
    rest = [4], 1, 1, 1, False, 0, 1, ALL, 0
    timed, plain = (convolution_backward(*tensors, *rest, product="910B2", timing=t) for t in (True, False))
    for got, want in zip(gradients(plain), gradients(timed), strict=True):
        assert (got.shape, got.dtype, got.tobytes()) == (want.shape, want.dtype, want.tobytes())


# --- what is left to the executor

PROBLEM = ConvProblem((2, 20, 6, 5), (18, 20, 3, 3), 1, 1)


def possible(call, order="program"):
    return Gradients(call, tensors_of(call.problem), order).possible(ALL)


def test_parts_that_arrive_in_another_order_are_for_the_executor():
    call = split(call_of(PROBLEM), 0, 3)
    assert possible(call) == ALL
    assert possible(call, "arrival") == possible(call, 5) == (True, False, True)
    assert possible(replace(call, deterministic=True), "arrival") == ALL


def test_a_model_that_nobody_has_thought_about_is_for_the_executor():
    # `exact` rounds when a product is done, of which it is not known here how far it goes.
    assert possible(call_of(PROBLEM, accumulation="exact:RNE")) == (False, False, True)


class Backwards(Wgrad):
    """Deals the last part of the reduction to the first core, so that it arrives first."""

    name = "backwards"

    def sequence(self):
        """Return all tasks, the last one first."""
        return self.tasks.tasks[::-1]


def test_a_schedule_that_adds_its_last_part_first_is_followed_by_the_executor():
    call = split(call_of(PROBLEM), 0, 3)
    plan = replace(call.plans["grad_weight"], schedule=Backwards)
    call = replace(call, plans=call.plans | {"grad_weight": plan})
    assert possible(call) == (True, False, True)
    assert possible(replace(call, deterministic=True)) == ALL


@pytest.mark.parametrize(
    ("order", "more"),
    [
        (DgradOrder(16, (1, 2)), False),  # `parts` stands at its default
        (DgradOrder(16, (1, 2), (1, 1)), True),
    ],
)
def test_a_field_that_nobody_has_thought_about_must_stand_at_its_default(order, more):
    assert says_more(order, {"c0", "slices"}) is more
    assert says_more(order, {"c0", "parts"})  # `slices` has no default
    assert not says_more(order, {"c0", "slices", "parts"})


@dataclass(frozen=True)
class Zigzag(DgradOrder):
    """An order that says something more."""

    every_other_group_backwards: bool = True


class Elsewhere(Dgrad):
    """A nest whose order nobody here can know."""

    name = "elsewhere"

    def order(self):
        """Return the usual order and one thing more."""
        usual = super().order()
        return Zigzag(usual.c0, usual.slices, usual.parts)


def test_an_order_of_another_kind_is_for_the_executor_which_makes_the_gradient():
    call = call_of(PROBLEM)
    plan = replace(call.plans["grad_input"], schedule=Elsewhere)
    assert possible(replace(call, plans=call.plans | {"grad_input": plan})) == (False, True, True)
    rng = np.random.default_rng(0)
    shapes = PROBLEM.grad_output, PROBLEM.input, PROBLEM.weight
    tensors = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    rest = [18], 1, 1, 1, False, 0, 1, ALL, 0
    timed, plain = (
        convolution_backward(*tensors, *rest, product="910B2", schedule=Elsewhere, timing=t)
        for t in (True, False)
    )
    for got, want in zip(gradients(plain), gradients(timed), strict=True):
        assert got.tobytes() == want.tobytes()
    assert plain.kernels == ()


def test_parts_that_are_added_atomically_begin_with_the_zero_in_global_memory():
    # +0 and -0 make +0, where parts that are kept apart have nothing but -0 to add.
    parts = [np.full((1, 2), -0.0, np.float32)] * 2
    assert not np.signbit(_together(parts, atomic=True, tree=False)).any()
    assert np.signbit(_together(parts, atomic=False, tree=False)).all()


# --- threads


def test_threads_share_the_work_and_change_no_bit():
    one, three = small_result(), small_result(threads=3)
    assert one.grad_input.tobytes() == three.grad_input.tobytes()
    call, tensors = call_of(PROBLEM), tensors_of(PROBLEM, data="wide")
    want, got = (Gradients(call, tensors, "program", Threads(count)).make(ALL) for count in (1, 4))
    for name, values in want.items():
        assert_same_bits(got[name], values, name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "threads is 0; it must be a whole number from 1 to 1024"),
        ({"threads": 1.5}, "threads is 1.5; it must be"),
        ({"threads": 2, "timing": True}, "threads is 2, but only a call with timing=False"),
    ],
)
def test_threads_without_a_meaning_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        small_result(**options)


# --- what a result without timing says


def small_result(**options):
    tensors = [np.ones(shape, np.float16) for shape in ((1, 2, 3, 3), (1, 2, 3, 3), (2, 2, 1, 1))]
    rest = None, 1, 0, 1, False, 0, 1, (True, True, False), 0
    return convolution_backward(*tensors, *rest, product="910B2", **{"timing": False, **options})


def test_a_result_without_timing_says_so_and_knows_no_cycles():
    result = small_result()
    assert (result.timing, result.kernels) == (False, ())
    assert any("without timing" in note for note in result.notes)
    assert not any("L2" in note for note in result.notes)
    for name in ("cycles", "time_us"):
        words = (
            f": {name} is not known, as the call was made with timing=False; leave that out, or ask for an "
            "estimate of the problem$"
        )
        with pytest.raises(ConfigError, match=words):
            getattr(result, name)


def test_a_result_without_timing_pickles():
    result, again = small_result(), pickle.loads(pickle.dumps(small_result()))
    assert again.grad_input.tobytes() == result.grad_input.tobytes()
    assert (again.timing, again.notes) == (False, result.notes)


def test_an_order_without_a_meaning_is_refused_without_timing_too():
    with pytest.raises(ConfigError, match="order is 'backwards'; it must be"):
        small_result(order="backwards")


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_gradient_that_is_a_matrix_product_lies_without_gaps(dtype):
    # One placement of the kernel; rows of 5 columns come out of panels that are longer.
    grad_output, big, weight = (np.ones(shape, dtype) for shape in ((3, 4, 1), (3, 1, 5), (4, 1, 5)))
    rest = (4,), [1], [0], [1], False, [0], 1, (True, True, False), 0
    made = convolution_backward(grad_output, big, weight, *rest, product="910B2", timing=False)
    assert made.grad_input.flags.c_contiguous
    assert made.grad_weight.flags.c_contiguous


# -------------------------------------------------------------------------------------------------------
# Is what is remembered of how gradients are made what would be found anew, and of another call another?
# -------------------------------------------------------------------------------------------------------

FOLLOWED_PROBLEM = ConvProblem((2, 20, 7, 6), (19, 20, 3, 3), padding=1)
BOTH = ("grad_input", "grad_weight")


class Own(Dgrad):
    """A schedule of the user's."""

    name = "own"


@pytest.fixture
def _no_schedule_is_known():
    memory._remembered.cache_clear()


@pytest.mark.usefixtures("_no_schedule_is_known")
@pytest.mark.parametrize("order", ["program", "arrival", 3])
@pytest.mark.parametrize("gradient", BOTH)
def test_what_is_remembered_is_what_a_call_says(gradient, order):
    for call in (
        call_of(FOLLOWED_PROBLEM),
        split(call_of(FOLLOWED_PROBLEM), 2, 3),
        call_of(FOLLOWED_PROBLEM, deterministic=True),
    ):
        schedule = call.schedule(gradient)
        for _ in range(2):
            found = followed(call, gradient, order)
            assert type(found.schedule) is type(schedule)
            assert (found.schedule.tiling, found.schedule.sums) == (schedule.tiling, schedule.sums)
            assert found.additions == schedule.order()
            assert found.possible == can_follow(call, gradient, schedule, order)
            assert found.math == call.math(gradient)


@pytest.mark.usefixtures("_no_schedule_is_known")
def test_an_equal_call_finds_the_same_schedule():
    first, again = (followed(call_of(FOLLOWED_PROBLEM), "grad_input", "program") for _ in range(2))
    assert again.schedule is first.schedule


@pytest.mark.usefixtures("_no_schedule_is_known")
def test_orders_of_execution_are_told_apart():
    # Parts that are added as they arrive can be followed in the order of the program alone.
    call = split(call_of(FOLLOWED_PROBLEM), 0, 3)
    assert followed(call, "grad_weight", "program").possible
    assert not followed(call, "grad_weight", "arrival").possible
    assert not followed(call, "grad_weight", 0).possible


@pytest.mark.usefixtures("_no_schedule_is_known")
def test_nothing_is_remembered_of_a_schedule_of_the_user():
    call = call_of(FOLLOWED_PROBLEM)
    call = replace(call, plans={**call.plans, "grad_input": Plan(Own, call.plans["grad_input"].tiling)})
    followed(call, "grad_input", "program")
    assert memory._remembered.cache_info().currsize == 0


# -------------------------------------------------------------------------------------------------------
# Is what is remembered of a grad_weight's parts what would be found anew, and of another call another?
# -------------------------------------------------------------------------------------------------------

# Images of 2 x 3 pixels: the small side has two channels, the big side three and a frame of one pixel.
SMALL = PixelSide(1, 12, np.arange(0, 12, 2).tobytes())
BIG = PixelSide(1, 60, np.array([0, 3, 6, 15, 18, 21]).tobytes())
# Taps lie a pixel apart: one row of the kernel.
SIDES = ReductionSides(SMALL, BIG, 2, 3, ((0, 0),), (2, 3), np.array([0, 3]).tobytes())
ORDER = WgradOrder(((0, 4), (4, 2)), base_k=3, k_split=2)
MODEL = AccumulationModel.parse("block:2:RNE")


@pytest.fixture
def _no_parts_are_known():
    parts_memory._remembered.cache_clear()


def parts(*asked):
    """Return what the parts read and where they are cut, as plain lists."""
    return [
        (some.a.steps.tolist(), some.b.steps.tolist(), [own.tolist() for own in some.cuts.each()])
        for some in reductions(*asked)
    ]


def lines_of(*asked):
    """Return where the lines of both factors begin."""
    return [(some.a.lines.tolist(), some.b.lines.tolist()) for some in reductions(*asked)]


@pytest.mark.usefixtures("_no_parts_are_known")
def test_parts_read_the_pixels_of_their_images_in_the_order_of_the_ranges():
    # Four segments (two images of two ranges), two for each part: an image each. Mmads of 3, 1 and 2 pixels:
    # one that ends in the middle of a block of two ends a piece, and so does the one of a single pixel.
    left, right = np.arange(0, 24, 2), np.array([0, 3, 6, 15, 18, 21])
    assert parts(SIDES, ORDER, MODEL) == [
        (left.tolist(), [*right, *(60 + right)], [[0, 3, 4, 6], [6, 9, 10, 12]])
    ]


@pytest.mark.usefixtures("_no_parts_are_known")
def test_parts_of_many_steps_are_made_in_several_goes(monkeypatch):
    # Six steps a part: both fit into twelve, and neither beside the other into eleven.
    (whole,) = parts(SIDES, ORDER, MODEL)
    parts_memory._remembered.cache_clear()
    monkeypatch.setattr(parts_memory, "_STEPS", 11)
    one, two = parts(SIDES, ORDER, MODEL)
    assert (one[0] + two[0], one[1] + two[1]) == whole[:2]
    # Places of cuts count from the begin of each go.
    assert one[2] == two[2] == [[0, 3, 4, 6]]


OTHERS = {
    "small side": (SIDES._replace(small=PixelSide(1, 14, SMALL.places)), ORDER, MODEL),
    "its pixels": (SIDES._replace(small=PixelSide(1, 12, np.arange(12, 0, -2).tobytes())), ORDER, MODEL),
    "big side": (SIDES._replace(big=PixelSide(2, 60, BIG.places)), ORDER, MODEL),
    "images": (SIDES._replace(batch=3), ORDER, MODEL),
    "width": (SIDES._replace(width=2), ORDER, MODEL),
    "depths": (SIDES._replace(pairs=((0, 0), (0, 0))), ORDER, MODEL),
    "channels": (SIDES._replace(lines=(3, 2)), ORDER, MODEL),
    "taps": (SIDES._replace(taps=np.array([0, 15]).tobytes()), ORDER, MODEL),
    "parts": (SIDES, replace(ORDER, k_split=1), MODEL),
    "mmads": (SIDES, replace(ORDER, base_k=2), MODEL),
    "model": (SIDES, ORDER, AccumulationModel.parse("seq:RNE")),
}


@pytest.mark.usefixtures("_no_parts_are_known")
@pytest.mark.parametrize("other", OTHERS)
def test_another_reduction_is_made_anew(other):
    want, lines = parts(*OTHERS[other]), lines_of(*OTHERS[other])
    parts_memory._remembered.cache_clear()
    reductions(SIDES, ORDER, MODEL)
    assert (parts(*OTHERS[other]), lines_of(*OTHERS[other])) == (want, lines)
    assert parts_memory._remembered.cache_info().misses == 2


@pytest.mark.usefixtures("_no_parts_are_known")
def test_an_equal_reduction_finds_the_same_arrays():
    first, again = (
        reductions(SIDES, replace(ORDER), AccumulationModel.parse("block:2:RNE")) for _ in range(2)
    )
    assert all(one.a.steps is other.a.steps for one, other in zip(first, again, strict=True))


@pytest.mark.usefixtures("_no_parts_are_known")
def test_no_product_changes_what_later_calls_read():
    (known,) = reductions(SIDES, ORDER, MODEL)
    first, other = (Values(np.full(200, value, np.float32)) for value in (1, np.nan))
    made = known.made(first, first)
    known.made(other, other)
    again = known.made(first, first)
    assert_same_bits(again, made)
    # Two parts, each of six pixels: two channels against two taps of three.
    assert_same_bits(made, np.full((2, 2, 6), 6, np.float32))


@pytest.mark.usefixtures("_no_parts_are_known")
def test_a_long_reduction_is_not_kept():
    # 6 pixels an image: one image more than what is kept.
    long = SIDES._replace(batch=parts_memory._KEPT_STEPS // 6 + 1)
    assert sum(len(left) for left, _, _ in parts(long, ORDER, MODEL)) == 6 * long.batch
    assert parts_memory._remembered.cache_info().currsize == 0


@pytest.mark.usefixtures("_no_parts_are_known")
def test_an_order_of_arrivals_is_not_kept():
    order = replace(ORDER, arrivals=np.zeros((2, 1, 1), int))
    assert parts(SIDES, order, MODEL) == parts(SIDES, ORDER, MODEL)
    assert parts_memory._remembered.cache_info().currsize == 1


# --- Do images that are laid out for one product hold every pixel that the other one reads? ------------

IMAGES = np.random.default_rng(0).standard_normal((2, 5, 3, 4, 6)).astype(np.float32)  # N, C, D, H, W


def sliding(out, pad, insert=(1, 1), stride=(1, 1)):
    return Sliding(out, (4, 6), (3, 3), stride, (1, 1), pad, insert, 16, 2)


def read(pixels, channels):
    """Return what lies at the places, as images (N, C, D, H, W)."""
    begins = [[pixels.image(image, depth) for depth in range(3)] for image in range(2)]
    places = np.array(begins)[:, :, None, None] + pixels.pixels[:, None] + np.arange(channels)
    return pixels.values.singles[places].reshape(2, 3, 4, 6, channels).transpose(0, 4, 1, 2, 3)


def test_pixels_alone_are_all_there():
    assert np.array_equal(read(PixelPlanes.of(IMAGES), 5), IMAGES)


@pytest.mark.parametrize(
    "kernel",
    [
        sliding((4, 6), (1, 1)),  # as far out as padding one goes
        sliding((2, 4), (0, 0)),  # without padding
        sliding((9, 13), (2, 2), insert=(2, 2)),  # zeros between the pixels
        sliding((6, 6), (2, 1)),  # other padding on each axis
    ],
)
def test_and_so_they_are_where_a_kernel_reads_all_of_them(kernel):
    # Eight channels of which the images have five: the others are zeros beside them.
    found = Planes.of(IMAGES, kernel, 8).inner()
    assert np.array_equal(read(found, 5), IMAGES)
    assert not read(found, 8)[:, 5:].any()


@pytest.mark.parametrize(
    "kernel",
    [
        sliding((2, 3), (0, 0)),  # the last column is out of reach: three outputs read five of six
        sliding((1, 4), (0, 0)),  # and the last row
        sliding((2, 4), (-1, 0)),  # a negative pad leaves the first row out
        sliding((4, 4), (1, -2)),
    ],
)
def test_where_a_kernel_skips_some_there_is_no_answer(kernel):
    assert Planes.of(IMAGES, kernel, 8).inner() is None


def laid_out(problem):
    call = call_of(problem, "float16")
    schedule = call.schedule("grad_input")
    grad, weight = (tensors_of(problem, "float16")[name] for name in ("grad_output", "weight"))
    return image_gradient(problem, schedule.gemm, schedule.order(), call.accumulation, grad, weight)[1]


def test_groups_that_are_mostly_padding_are_not_kept():
    # 16 channels of a group fill their places; one channel leaves 15 of 16 empty.
    full = ConvProblem(input=(1, 32, 8, 8), weight=(32, 16, 3, 3), padding=1, groups=2)
    depthwise = ConvProblem(input=(1, 32, 8, 8), weight=(32, 1, 3, 3), padding=1, groups=32)
    assert set(laid_out(full)) == {0, 1}
    assert laid_out(depthwise) == {}
