"""Can a user bring a loop nest of their own, in one file, and get the same bits with its own cycles?"""

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ascendsim import (
    ConvProblem,
    MatmulProblem,
    Plan,
    Schedule,
    Tiling,
    convolution_backward,
    estimate,
    estimate_matmul,
)
from ascendsim.errors import CapacityError, ConfigError
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.plan import shares
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.schedules import Axis, Dgrad, DgradTiles, Nest, NestProgram, Writeback
from ascendsim.ops.schedules.base import SCHEDULES, schedule_named
from ascendsim.report.document import plan_entry
from ascendsim.timing.kernel import time_kernel
from tests.helpers.conv_cases import assert_same_bits, call_of, run, tensors_of
from tests.helpers.toy_profiles import toy_split, toy_unified

FILE = Path(__file__).parents[2] / "examples" / "04_your_own_schedule.py"
WeightsStay = runpy.run_path(str(FILE))["WeightsStay"]
ONLY_INPUT = (True, False, False)
# A few cores, and an L1 that holds the weights of one column block.
SPLIT = toy_split(**{"cores.cube": 3, "buffers.L1.capacity_bytes": 65536})
UNIFIED = toy_unified(**{"cores.cube": 3, "buffers.L1.capacity_bytes": 65536})
PROBLEMS = [
    ConvProblem((2, 40, 9, 10), (20, 40, 3, 3), 1, 1),
    ConvProblem((2, 40, 9, 10), (20, 40, 3, 2), 2, 1),
    ConvProblem((2, 20, 7, 6), (20, 40, 2, 2), 2, transposed=True),
    ConvProblem((1, 36, 4, 5, 5), (18, 36, 2, 1, 2)),
    ConvProblem((1, 40, 30), (24, 20, 3), groups=2),
]


def product_of(result):
    """Return the one kernel that follows a plan; the others change layouts."""
    (kernel,) = (kernel for kernel in result.kernels if kernel.plan)
    return kernel


def planned(problem, schedule, profile=SPLIT, k_split=1, dtype="float16"):
    """A call with a plan of two column blocks where there are so many columns, under a schedule."""
    call = call_of(problem, dtype, profile=profile)
    plan = Tiling(32, 16, 16, 2, 3, used_cores=2, k_split=k_split)
    return replace(call, plans=call.plans | {"grad_input": Plan(schedule, plan)})


def test_it_is_one_file_of_less_than_150_lines():
    assert len(FILE.read_text().splitlines()) < 150


@pytest.mark.parametrize("order", ["program", "arrival", 5])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_bits_are_those_of_the_definition_in_any_order(problem, order):
    call, tensors = planned(problem, WeightsStay), tensors_of(problem, data="wide")
    made, _ = run(call, tensors, order, ONLY_INPUT)
    want = reference_gradients(call, **tensors, mask=ONLY_INPUT)
    assert_same_bits(made["grad_input"], want["grad_input"])


@pytest.mark.parametrize("profile", [SPLIT, UNIFIED], ids=lambda profile: profile.variant)
def test_parts_are_added_as_by_the_usual_nest(profile):
    problem = ConvProblem((1, 24, 6, 6), (40, 24, 3, 3), 1, 1)
    tensors = tensors_of(problem, data="wide")
    usual, own = (
        run(planned(problem, name, profile, 2), tensors, mask=ONLY_INPUT)[0]
        for name in ("dgrad", WeightsStay)
    )
    assert_same_bits(own["grad_input"], usual["grad_input"])


def test_it_reads_the_weights_once_and_the_image_more_often_in_cycles_of_its_own():
    # One core, two column blocks, two images of one pixel tile each: the usual nest reads an image once and
    # the weights for every tile, as L1 has room for one copy of them; this one the other way round.
    call = call_of(ConvProblem((2, 32, 8, 8), (16, 32, 1, 1)), profile=SPLIT)
    plan = Tiling(64, 16, 16, bl1_buffers=1, al0_buffers=1, used_cores=1)
    found = {}
    for name in ("dgrad", WeightsStay):
        planned = replace(call, plans={"grad_input": Plan(name, plan)})
        found[name] = time_kernel(lower(planned, ONLY_INPUT).kernels[0], SPLIT)
    image, weights = 2 * 64 * 16 * 2, 16 * 32 * 2
    assert found["dgrad"].bytes["l2_read"] == image + 2 * weights
    assert found[WeightsStay].bytes["l2_read"] == 2 * image + weights
    assert found["dgrad"].cycles != found[WeightsStay].cycles


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_equal_cores_are_folded_into_one_without_a_change(problem):
    (kernel,) = lower(planned(problem, WeightsStay), ONLY_INPUT).kernels
    folded, plain = (time_kernel(kernel, SPLIT, folded=flag).cycles for flag in (True, False))
    assert folded == plain


# --- how it is asked for

PROBLEM = ConvProblem((2, 32, 8, 8), (16, 32, 3, 3), 1, 1)


def cycles(**options):
    kernels = estimate(PROBLEM, output_mask=(True, True, False), **options).kernels
    return {kernel.name: kernel.cycles for kernel in kernels}


def test_a_schedule_says_itself_what_it_makes():
    usual = cycles()
    assert cycles(schedule="dgrad") == cycles(schedule={"grad_weight": "wgrad"}) == usual
    assert cycles(schedule=["wgrad", "dgrad"]) == usual
    own = cycles(schedule=WeightsStay)
    assert own == cycles(schedule={"grad_input": WeightsStay})
    assert own["grad_weight"] == usual["grad_weight"]


def test_a_plan_of_one_call_serves_another():
    first = estimate(PROBLEM, output_mask=ONLY_INPUT, schedule=WeightsStay)
    again = estimate(PROBLEM, output_mask=ONLY_INPUT, tiling=product_of(first).plan)
    assert again.cycles == first.cycles
    assert product_of(again).plan.schedule is WeightsStay


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("dgrat", r"schedule is 'dgrat'; did you mean dgrad\? A class derived from"),
        (3, "schedule is 3; it must be one of dgrad, .* or a class derived from ascendsim.Schedule"),
        (int, "or a class derived from ascendsim.Schedule"),
        ("matmul", "schedule is 'matmul', which makes matmul, but the call computes grad_input"),
        (["dgrad", "dgrad_columns_outer"], "'dgrad_columns_outer'; both make grad_input: give one"),
        ({"grad_input": "wgrad"}, "schedule of grad_input is 'wgrad', which makes grad_weight"),
        ({"grad_bias": "dgrad"}, r"schedule has keys \['grad_bias'\]; it takes grad_input and grad_weight"),
    ],
)
def test_a_schedule_without_a_meaning_is_refused(schedule, message):
    with pytest.raises(ConfigError, match=message):
        cycles(schedule=schedule)


def test_a_matrix_product_takes_a_schedule_too():
    usual, named = (
        estimate_matmul(MatmulProblem(64, 64, 64), schedule=name).cycles for name in (None, "matmul")
    )
    assert usual == named
    with pytest.raises(ConfigError, match="which makes grad_input, but the call computes matmul"):
        estimate_matmul(MatmulProblem(64, 64, 64), schedule="dgrad")


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_by_name_says_what_it_makes_and_reads(name):
    kind = schedule_named(name)
    assert kind.name == name
    assert kind.makes in ("grad_input", "grad_weight", "matmul")
    assert kind.reads <= set(Tiling.__dataclass_fields__)
    assert issubclass(kind, Schedule)


def test_an_infeasible_choice_of_a_user_names_the_buffer():
    plan = Tiling(512, 512, 512)
    with pytest.raises(
        CapacityError, match=r"L1 of 910B2 holds 524288 bytes, but weights .* take a smaller tile"
    ):
        estimate(
            ConvProblem((1, 512, 32, 32), (512, 512, 1, 1)),
            output_mask=ONLY_INPUT,
            tiling=plan,
            schedule=WeightsStay,
        )


def test_gradients_through_the_door_have_the_same_bits():
    rng = np.random.default_rng(1)
    shapes = PROBLEM.grad_output, PROBLEM.input, PROBLEM.weight
    tensors = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    call = (*tensors, None, 1, 1, 1, False, 0, 1, (True, True, False), 0)
    usual, own = (convolution_backward(*call, schedule=name) for name in (None, WeightsStay))
    assert np.array_equal(usual.grad_input.view(np.uint16), own.grad_input.view(np.uint16))
    assert np.array_equal(usual.grad_weight.view(np.uint16), own.grad_weight.view(np.uint16))


# --- what a class gets wrong


class ImagesTogether(Dgrad):
    """Walks the images of one pixel tile; a core loads the weights anew for each tile that it meets."""

    name = "images_together"

    def dealt(self):
        walk = sorted(self.tasks.tasks, key=lambda task: (task.first_pixel, task.first_column, task.image))
        return [walk[share.start : share.stop] for share in shares(len(walk), self.tiling.used_cores)]

    def program(self, tasks):
        return NestProgram(TogetherNest(self), self.tasks.rows(tasks), self.hazards)


class TogetherNest(Nest):
    """One box of taps, one kernel depth, and one copy of everything."""

    def __init__(self, schedule, tiles_of=DgradTiles):
        super().__init__(schedule.profile, schedule.name)
        cut, tiling, gemm = schedule.tasks, schedule.tiling, schedule.gemm
        m, n, size, tiles = tiling.base_m, tiling.base_n, gemm.sliding.itemsize, tiles_of(self, cut)
        most = max(tile.l1_bytes for tile in cut.left_tiles.values())
        rings = ("L1", most, "A1"), ("L1", 4096, "B1")
        rings += ("L0A", m * tiling.base_k * size, "A0"), ("L0B", tiling.base_k * n * size, "B0")
        image_l1, weights_l1, l0a, l0b, l0c = (self.ring(*own) for own in (*rings, ("L0C", m * n * 4, "C0")))
        out = Writeback(self, schedule.target, m, n, gemm.sliding.c0)
        group, image, _, pixels, columns = task = tiles.task()
        with self.hold(weights_l1, pixels, columns) as b1:
            self.emit(tiles.copy_right, [b1], [group, 0, columns, 0])
        a1, c, begun = self.next(image_l1), self.next(l0c), self.let(0, "begun", Axis(2, range(2)))
        self.emit(tiles.copy_left, [a1], [group, image, 0, pixels, 0])
        with self.loop(tiles.slices, "slice") as at:
            a, b = self.next(l0a), self.next(l0b)
            self.emit(tiles.load_left, [a, a1], [pixels, at])
            self.emit(tiles.load_right, [b, b1], [columns, at])
            self.emit(tiles.barrier, (), [begun, pixels, columns])
            self.emit(tiles.mmad, [c, a, b], [begun, pixels, at, columns])
            self.set(begun, 1)
        out.write(c, task, tiles.size, tiles.output, (columns, tiles.widths))


def test_a_program_of_ones_own_is_not_timed_by_an_inherited_signature():
    # Three cores have two images of tile 0, one of each, and two of tile 1. Their tiles have equal shapes, so
    # that Dgrad's signature would take the second core for another first one, which loads weights once less.
    call = call_of(ConvProblem((3, 16, 8, 8), (16, 16, 1, 1)), profile=SPLIT)
    call = replace(call, plans={"grad_input": Plan(ImagesTogether, Tiling(32, 16, 16, used_cores=3))})
    (kernel,) = lower(call, ONLY_INPUT).kernels
    works = kernel.phases[0].work
    counts = [len(work.build()) for work in works]
    assert counts[0] == counts[2] < counts[1]
    assert works[0].signature == works[2].signature != works[1].signature
    schedule = call.schedule("grad_input")
    inherited = [Dgrad.signature(schedule, tasks) for tasks in schedule.dealt()]
    assert len(set(inherited)) == 1
    folded, plain = (time_kernel(kernel, SPLIT, folded=flag).cycles for flag in (True, False))
    assert folded == plain


def dealing(deal):
    """Return a schedule that deals tasks as `deal(tasks)` says."""

    class Dealing(Dgrad):
        name = "dealing"

        def dealt(self):
            return deal(self.tasks.tasks)

    return Dealing


@pytest.mark.parametrize(
    ("deal", "message"),
    [
        (lambda tasks: [tasks[:-1]], "dealing must deal each of its 16 tasks once; it leaves out 1 and"),
        (lambda tasks: [tasks, tasks[:2]], "it leaves out 0 and repeats 2"),
        (lambda tasks: [list(tasks[:1]) * 16], "it leaves out 15 and repeats 15"),
        (lambda tasks: [*[[task] for task in tasks], *[[]] * 20], "deals tasks to 36 cores; 910B2 has 24"),
    ],
)
def test_tasks_that_are_dealt_wrongly_are_refused(deal, message):
    with pytest.raises(ConfigError, match=message):
        cycles(schedule=dealing(deal), tiling={"grad_input": Tiling(16, 16, 16)})


def test_any_other_walk_over_all_tasks_is_taken():
    own = cycles(schedule=dealing(lambda tasks: [tasks[::-1]]), tiling={"grad_input": Tiling(16, 16, 16)})
    assert own["grad_input"] > 0


class NamedByItsClass(Dgrad):
    """The usual loops, and no name of their own."""


@pytest.mark.parametrize(
    ("given", "nest", "chosen_by"),
    [
        ({}, "dgrad", "product"),
        ({"schedule": NamedByItsClass}, "NamedByItsClass", "user, rest product"),
        ({"schedule": WeightsStay}, "weights_stay", "user, rest product"),
        ({"schedule": NamedByItsClass, "tiling": "search"}, "NamedByItsClass", "user, rest search"),
        ({"schedule": NamedByItsClass, "tiling": {"base_m": 32}}, "NamedByItsClass", "user, rest product"),
        ({"tiling": Tiling(32, 16, 16)}, "dgrad", "user"),
        ({"tiling": {"grad_input": Plan(NamedByItsClass, Tiling(32, 16, 16))}}, "NamedByItsClass", "user"),
    ],
)
def test_a_result_says_whose_nest_and_tiling_it_has(given, nest, chosen_by):
    result = estimate(PROBLEMS[0], output_mask=ONLY_INPUT, **given)
    kernel = product_of(result)
    for said in (kernel.to_record(), plan_entry(kernel.plan)):
        assert (said["schedule"], said["chosen_by"]) == (nest, chosen_by)
    # The plan of somebody else is told as such, the user's own needs no words.
    assert any("the rest by" in note for note in result.notes) == chosen_by.startswith("user, rest")


def test_a_class_that_says_too_little_is_refused():
    class Nothing(Schedule):
        pass

    with pytest.raises(ConfigError, match="schedule Nothing does not say what it makes; give it makes = "):
        cycles(schedule=Nothing)


# --- the same idea by name


@pytest.mark.parametrize("order", ["program", 5])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_columns_outermost_gives_the_same_bits(problem, order):
    call, tensors = planned(problem, "dgrad_columns_outer"), tensors_of(problem, data="wide")
    made, _ = run(call, tensors, order, ONLY_INPUT)
    assert_same_bits(made["grad_input"], reference_gradients(call, **tensors, mask=ONLY_INPUT)["grad_input"])


def test_columns_outermost_reads_weights_once_and_images_again():
    # Four cores, 8 column blocks, 16 images of 2 pixel tiles: 256 tasks, 64 a core. A reduction of 64 fits in
    # one tile of weights, 64 x 64. Usual: each tile of pixels is loaded once, the weights for every task.
    # Columns outermost: the weights twice a core, as it has two of the blocks, the pixels for every task.
    problem, plan = ConvProblem((16, 512, 16, 16), (64, 512, 1, 1)), Tiling(128, 64, 64, used_cores=4)
    usual, outer = (
        product_of(estimate(problem, output_mask=ONLY_INPUT, tiling=plan, schedule=name)).bytes["l2_read"]
        for name in ("dgrad", "dgrad_columns_outer")
    )
    pixels, weights = 128 * 64 * 2, 64 * 64 * 2
    assert usual == 32 * pixels + 256 * weights
    assert outer == 256 * pixels + 8 * weights
