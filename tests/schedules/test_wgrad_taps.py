"""Is a grad_weight by single taps made with the bits of stream-K, from the pixels that each tap reads?"""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ascendsim import estimate
from ascendsim.errors import ConfigError
from ascendsim.ops.gradients.call import Gradients
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.sliding import Sliding, Taps
from ascendsim.ops.problems.strips import Strips, tap_tile
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.reference.ordered import sources
from ascendsim.profile import load_profile
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import assert_same_bits, call_of, run, steps_of, tensors_of
from tests.helpers.hazards import assert_each_class_is_missed, outcomes_of
from tests.helpers.requests import chosen_plan
from tests.helpers.strict_memory import assert_as_declared
from tests.helpers.toy_profiles import toy_split, toy_unified

ONLY_WEIGHT = (False, True, False)
ROOM = {"buffers.L1.capacity_bytes": 65536, "cores.cube": 4, "cores.vector": 8}
TOY = toy_split(**ROOM)
PROBLEMS = {
    "3x3": ConvProblem((2, 40, 6, 9), (40, 40, 3, 3), 1, 1),
    "far apart": ConvProblem((2, 24, 7, 9), (20, 24, 3, 2), 1, (9, 4), (9, 8)),
    "wide steps": ConvProblem((1, 20, 30, 33), (20, 20, 2, 3), (7, 4), 1),
    "padding before": ConvProblem((1, 16, 5, 6), (16, 16, 2, 2), (1, 3), (6, 12)),
    "depth": ConvProblem((2, 16, 3, 6, 5), (16, 16, 2, 3, 2), (2, 1, 1), (1, 1, 0)),
    "groups": ConvProblem((3, 32, 6, 6), (40, 16, 2, 2), 2, groups=2),
    "line": ConvProblem((3, 20, 50), (24, 20, 5), 3, 2),
    "transposed": ConvProblem((2, 20, 7, 6), (20, 40, 2, 2), 2, transposed=True),
}
BLOCKS = Tiling(
    *(16, 32, 16, 2, 2), single_core_m=16, used_cores=4, mapping="interleaved", task_order="m n d group"
)
# How the last round is cut: not at all, into images, into rows.
AXES = {"whole": (1, ""), "images": (2, "batch_depth"), "rows": (2, "height")}
everywhere = pytest.mark.parametrize("name", PROBLEMS)
by_axis = pytest.mark.parametrize("axis", AXES)


def planned(name, axis="whole", strip=0, profile=TOY, schedule="wgrad_taps", **changes):
    """A call whose grad_weight takes a tap at a time: tasks of two groups of channels with all their taps."""
    problem, (ways, along) = PROBLEMS[name], AXES[axis]
    fields = {"k_split": ways, "stream_axis": along, "strip_w": strip, "tap_loop": "khkw"}
    fields["single_core_n"] = problem.kernel[1] * problem.kernel[2] * 32
    if schedule == "wgrad_stream":
        del fields["tap_loop"]
    call = call_of(problem, profile=profile, deterministic=True)
    plan = Plan(schedule, replace(BLOCKS, **fields, **changes))
    return replace(call, plans=call.plans | {"grad_weight": plan})


def kernel_of(*args, **options):
    kernels = lower(planned(*args, **options), ONLY_WEIGHT).kernels
    return next(kernel for kernel in kernels if kernel.name == "grad_weight")


def seen(tile, pixel, image):
    """Return the value of an image (H, W) that load3d finds for a pixel of a run; padding is -1."""
    row, column = divmod(tile.first_pixel + pixel, tile.window.out_width)
    row, column = row - tile.window.top, column - tile.window.left
    inside = 0 <= row < tile.window.rows and 0 <= column < tile.window.cols
    return image[tile.rows, tile.cols][row, column] if inside and tile.rows is not None else -1


@pytest.mark.parametrize("strip", [0, 4])
@everywhere
def test_a_tap_reads_the_pixels_of_the_definition(name, strip):
    problem = PROBLEMS[name]
    strips = Strips.of(Sliding.of(problem, 2), strip)
    image = np.arange(np.prod(problem.big_size[1:])).reshape(problem.big_size[1:])
    row_of, col_of = (sources(problem, axis, forward=True) for axis in (1, 2))
    numbers = 0
    for run_ in strips.runs(11):
        for row, col in np.ndindex(*problem.kernel[1:]):
            tile = tap_tile(strips, *run_, Taps(0, 1, row, 1, col, 1))
            for pixel in range(run_[1]):
                spot = strips.strip(run_[0] + pixel)
                down, right = divmod(run_[0] + pixel - spot.first, spot.width)
                at = row_of[row, down], col_of[col, spot.left + right]
                assert seen(tile, pixel, image) == (image[at] if min(at) >= 0 else -1)
                numbers += 1
    assert numbers == np.prod(problem.small_size[1:]) * np.prod(problem.kernel[1:])


@pytest.mark.parametrize("strip", [0, 4])
@by_axis
@everywhere
def test_the_bits_are_those_of_stream_k(name, axis, strip):
    call, tensors = planned(name, axis, strip), tensors_of(PROBLEMS[name], data="special")
    want = reference_gradients(call, **tensors, mask=ONLY_WEIGHT)
    made, _ = run(call, tensors, 3, ONLY_WEIGHT)
    assert_same_bits(made["grad_weight"], want["grad_weight"])
    without = Gradients(call, tensors, "program")
    assert without.possible(ONLY_WEIGHT) == ONLY_WEIGHT
    assert_same_bits(without.make(ONLY_WEIGHT)["grad_weight"], want["grad_weight"])


@pytest.mark.parametrize("name", ["3x3", "wide steps"])
def test_unified_cores_write_a_tap_in_pieces(name):
    # 32 channels of 16 rows are 2 KiB in float32, of which half of UB holds one piece of 16 columns.
    call = planned(name, profile=toy_unified(**ROOM, **{"buffers.UB.capacity_bytes": 2048}))
    tensors = tensors_of(PROBLEMS[name])
    want = reference_gradients(call, **tensors, mask=ONLY_WEIGHT)
    made, _ = run(call, tensors, 3, ONLY_WEIGHT)
    assert_same_bits(made["grad_weight"], want["grad_weight"])


def test_a_block_has_the_channels_of_one_tap():
    # 40 channels are three groups: tasks of two and of one, with 9 taps each; 48 rows in three blocks. Two
    # images of 54 pixels are slices of 16, 16, 16 and 6, and two of them a tile. A product of zeros comes
    # before.
    found = Counter(type(step).__name__ for step in steps_of(kernel_of("3x3")))
    assert found["Fixpipe"] == 3 * 2 * 9
    assert found["Mmad"] == 3 * 2 * 9 * (1 + 2 * 4)
    sizes = {step.n for step in steps_of(kernel_of("3x3")) if type(step).__name__ == "Mmad"}
    assert sizes == {16, 32}


def test_a_copy_takes_the_pixels_of_a_tap_alone():
    # A step of 7 x 4 pixels: of 30 rows and 33 columns a tap reads 5 and 9. 32 of those 45 pixels lie in four
    # rows, the other 13 in two.
    images = [
        step
        for step in steps_of(kernel_of("wide steps"))
        if type(step).__name__ == "CopyGmToL1" and step.src.tensor.name.startswith("input")
    ]
    places = {(step.src.index[4].step, step.src.index[5].step) for step in images}
    assert places == {(7, 4)}
    pixels = {(step.window.rows, step.window.cols) for step in images}
    assert (4, 9) in pixels
    assert max(rows * cols for rows, cols in pixels) == 36
    # Each pixel is a run of bytes of its own, in each of two groups of channels.
    assert all(step.rows == 2 * step.window.rows * step.window.cols for step in images)


def test_a_tap_in_the_padding_copies_nothing_and_adds_zeros():
    # Rows of taps 9 apart over 7 rows: of three the middle one alone reads any.
    steps = steps_of(kernel_of("far apart"))
    found = Counter(type(step).__name__ for step in steps)
    assert found["FillL1"] > 0
    call, tensors = planned("far apart"), tensors_of(PROBLEMS["far apart"])
    made, _ = run(call, tensors, mask=ONLY_WEIGHT)
    assert not made["grad_weight"][:, :, [0, 2]].any()
    assert made["grad_weight"][:, :, 1].any()


@by_axis
@everywhere
def test_engines_agree_and_folded_cores_are_alike(name, axis):
    kernel = kernel_of(name, axis)
    assert time_kernel(kernel, TOY).cycles == time_kernel(kernel, TOY, folded=False).cycles


@pytest.mark.parametrize("name", ["3x3", "wide steps", "far apart", "depth"])
def test_every_instruction_touches_what_it_declares_and_fits_in_its_slot(name):
    assert_as_declared(planned(name, "rows", 4), tensors_of(PROBLEMS[name]), ONLY_WEIGHT)


def test_a_missing_class_of_waits_is_found():
    call, tensors = planned("3x3"), tensors_of(PROBLEMS["3x3"], data="integers")
    assert_each_class_is_missed(partial(outcomes_of, call, tensors, gradient="grad_weight"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tap_loop": "kh"}, "tap_loop is 'kh'; wgrad_taps takes khkw"),
        ({"tap_loop": ""}, "tap_loop is ''; wgrad_taps takes khkw"),
        ({"single_core_n": 48}, "single_core_n is 48; take whole windows of 144 columns"),
    ],
)
def test_what_it_cannot_do_is_refused(changes, why):
    call = planned("3x3")
    plan = call.plans["grad_weight"]
    plan = replace(plan, tiling=replace(plan.tiling, **changes))
    with pytest.raises(ConfigError, match=why):
        replace(call, plans=call.plans | {"grad_weight": plan}).schedule("grad_weight")


@pytest.mark.parametrize(("stride", "nest"), [(63, "wgrad_stream"), (64, "wgrad_taps")])
def test_the_product_takes_it_for_steps_beyond_load3d(stride, nest):
    layer = ConvProblem((2, 32, 200, 9), (48, 32, 3, 3), (stride, 1), 1)
    plan = chosen_plan(layer, "grad_weight", "float16", load_profile("950PR_9589"))
    assert (plan.schedule, plan.tiling.tap_loop, plan.instead) == (nest, "khkw" * (stride > 63), "")


def test_the_nest_alone_takes_a_tap_at_a_time():
    layer, device = ConvProblem((2, 32, 12, 12), (64, 32, 3, 3), 1, 1), load_profile("950PR_9589")
    for asked in ({"schedule": "wgrad_taps"}, {"tiling": {"grad_weight": {"schedule": "wgrad_taps"}}}):
        made = estimate(layer, product=device, output_mask=ONLY_WEIGHT, **asked)
        assert (made.plans["grad_weight"].schedule, made.plans["grad_weight"].tiling.tap_loop) == (
            "wgrad_taps",
            "khkw",
        )
        assert not [note for note in made.notes if "columns" in note]
