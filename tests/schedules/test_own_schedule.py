"""Can a user bring a loop nest, or a program, of their own, and does the check say what is wrong?"""

import re
import runpy
from ast import literal_eval
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from ascendsim import (
    ConvProblem,
    MatmulProblem,
    Plan,
    Schedule,
    Tiling,
    check_schedule,
    convolution_backward,
    estimate,
    estimate_matmul,
    load_profile,
)
from ascendsim.errors import AclnnError, CapacityError, ConfigError, ProgramError
from ascendsim.instructions.movers import CopyGmToL1
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.plan import shares
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.schedules import Axis, Dgrad, DgradTiles, Nest, NestProgram, Writeback
from ascendsim.ops.schedules.base import SCHEDULES, schedule_named
from ascendsim.program.waits import HAZARDS
from ascendsim.report.document import plan_entry
from ascendsim.timing.kernel import time_kernel
from tests.helpers.conv_cases import assert_same_bits, call_of, run, tensors_of
from tests.helpers.toy_machines import toy_split, toy_unified
from tests.schedules.test_own_wgrad import Forgetful

# --- Can a user bring a loop nest of their own, in one file, and get the same bits with its own cycles?

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
        walk = sorted(self.tasks.tasks, key=lambda task: (task.pixels, task.columns, task.image))
        return [walk[share.start : share.stop] for share in shares(len(walk), self.tiling.used_cores)]

    def program(self, tasks):
        return NestProgram(TogetherNest(self), tasks, self.hazards)


class TogetherNest(Nest):
    """One box of taps, one kernel depth, and one copy of everything."""

    def __init__(self, schedule, tiles_of=DgradTiles):
        super().__init__(schedule.profile, schedule.name)
        cut, tiling, gemm = schedule.tasks, schedule.tiling, schedule.gemm
        m, n, size, tiles = tiling.base_m, tiling.base_n, gemm.sliding.itemsize, tiles_of(self, cut)
        most = int(cut.left_bytes.max())
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


# --- Does the check of a user's schedule pass what is right, and say of what is wrong what it is? ------

FEW = load_profile("910B2", {"cores.cube": 3})
SMALL = ConvProblem((2, 20, 6, 7), (24, 20, 3, 3), 1, 1)
FLAT = ConvProblem((3, 16, 8, 8), (16, 16, 1, 1))


@pytest.mark.parametrize("name", ["dgrad", "dgrad_columns_outer", "wgrad", WeightsStay, Forgetful])
def test_what_is_right_passes(name):
    to_input, to_weight = Tiling(32, 16, 16, 2, 3, used_cores=2), Tiling(16, 32, 16, 2, 2, used_cores=2)
    tiling = replace(to_weight, k_split=2) if schedule_named(name).makes == "grad_weight" else to_input
    found = check_schedule(name, SMALL, product=FEW, tiling=tiling, orders=2)
    assert found.orders == ("program", "seed 0", "seed 1", "arrival")
    assert found.plan.schedule is name
    assert found.cycles > 0
    assert found.instructions > 100


def test_every_format_is_checked_by_its_own_definition():
    for dtype, mode in (("bfloat16", 0), ("float32", 0), ("float32", 3)):
        assert check_schedule("dgrad", FLAT, dtype, mode, product=FEW, orders=0).cycles > 0
    with pytest.raises(AclnnError, match="grad_output is float8_e5m2"):
        check_schedule("dgrad", FLAT, "float8_e5m2", product=FEW)


# --- what is wrong


class Backwards(Dgrad):
    """The blocks from the last one to the first."""

    def sequence(self):
        return self.tasks.tasks[::-1]


class Forgotten(Dgrad):
    """All blocks but one."""

    def sequence(self):
        return self.tasks.tasks[1:]


@pytest.mark.parametrize("product", ["910B", "310P", "910_95"])
def test_an_order_of_ones_own_is_followed_where_the_product_would_choose_a_grid(product):
    # The cells of a grid have their own order, so such a nest is given none.
    assert not check_schedule(Backwards, SMALL, product=product, orders=1).plan.tiling.has_grid
    with pytest.raises(
        ConfigError, match=r"schedule Forgotten must deal each of its \d+ tasks once; it leaves out 1"
    ):
        check_schedule(Forgotten, SMALL, product=product, orders=1)


@dataclass(frozen=True)
class Hasty(Dgrad):
    """Claims to add its products in two parts, which it does not."""

    name: ClassVar[str] = "hasty"

    def order(self):
        right = super().order()
        return replace(right, parts=(1, len(right.slices) - 1))


def test_another_order_of_additions_is_told():
    plan = {"grad_input": Tiling(32, 16, 8, used_cores=2)}
    message = (
        r"schedule hasty: grad_input in program order differs from the definition in [\d,]+ of 1,680 "
        r"elements, first at \(\d, \d+, \d, \d\): got .*, due .*; a product is left out, comes twice, or in"
    )
    # In float32, where sums show their last bit.
    with pytest.raises(ProgramError, match=message):
        check_schedule(Hasty, SMALL, "float32", product=FEW, tiling=plan)


class Hurried(Dgrad):
    """Lets a load into a slot begin before the slot has been read."""

    name = "hurried"

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "hazards", HAZARDS - {"WAR"})


def test_a_wait_too_few_is_told():
    # In program order every tile is still there when it is read; in some legal order the next one has come.
    even = ConvProblem((3, 32, 8, 8), (32, 32, 1, 1))
    plan = {"grad_input": Tiling(16, 16, 16, used_cores=1)}
    message = (
        r"schedule hurried: grad_input in seed \d+ order differs .*; an instruction reads or writes what it"
    )
    with pytest.raises(ProgramError, match=message):
        check_schedule(Hurried, even, product=FEW, orders=20, tiling=plan)
    # Where the next tile has another shape the machine itself sees it.
    with pytest.raises(ProgramError, match="a wait is missing"):
        check_schedule(Hurried, SMALL, product=FEW, orders=20, tiling=plan)


class Alike(ImagesTogether):
    """Has a signature that does not tell its cores apart."""

    name = "alike"
    signature = Dgrad.signature


class OneForAll(Dgrad):
    """Has one signature for all cores."""

    name = "one_for_all"

    def dealt(self):
        return super().dealt()[::-1]

    def signature(self, _):
        return 0


def test_a_signature_that_tells_too_little_is_told():
    # Two images and one on two cores differ in their instructions, which is noticed as they are timed.
    with pytest.raises(ProgramError, match="have equal signatures, but 11 and 12 instructions"):
        check_schedule(Alike, FLAT, product=FEW, tiling={"grad_input": Tiling(32, 16, 16, used_cores=3)})
    # 64 pixels in tiles of 16 and 48 are as many instructions each, of which those of the second take longer.
    one_image = ConvProblem((1, 16, 8, 8), (16, 16, 1, 1))
    uneven = {"grad_input": Tiling(48, 16, 16, used_cores=2)}
    message = r"one_for_all: [\d,]+ cycles if cores of equal signatures are timed as one, [\d,]+ if each by"
    with pytest.raises(ProgramError, match=message):
        check_schedule(OneForAll, one_image, product=FEW, tiling=uneven)


class AlikeTiles(DgradTiles):
    """Takes all column tiles for alike, of however many channels they are."""

    def __init__(self, nest, cut):
        super().__init__(nest, cut)
        self.columns = Axis(self.columns.extent)


class Careless(ImagesTogether):
    """Says of its column tiles that all cost the same."""

    name = "careless"

    def program(self, tasks):
        return NestProgram(TogetherNest(self, AlikeTiles), tasks, self.hazards)


def test_axes_that_tell_too_little_are_told():
    # 40 channels in tiles of 32 are 32, and what is left of three groups of 16.
    uneven = {"grad_input": Tiling(64, 32, 16, used_cores=1)}
    message = (
        r"nest careless: copy_right\(.*\) makes .*, which does not cost what .*; let `Axis.costs` separate"
    )
    with pytest.raises(ProgramError, match=message):
        check_schedule(Careless, ConvProblem((1, 40, 8, 8), (16, 40, 1, 1)), product=FEW, tiling=uneven)


class Shapeless(CopyGmToL1):
    """Leaves what its cost depends on out of its shape."""

    __slots__ = ()
    shape = 0


class ShapelessTiles(DgradTiles):
    """Brings column tiles by copies that seem to be all alike."""

    def copy_right(self, *at):
        return Shapeless(*super().copy_right(*at))


class Unshaped(ImagesTogether):
    """Has instructions of equal shapes and unequal costs."""

    name = "unshaped"

    def program(self, tasks):
        return NestProgram(TogetherNest(self, ShapelessTiles), tasks, self.hazards)


def test_a_shape_that_leaves_out_what_costs_is_told():
    uneven = {"grad_input": Tiling(64, 32, 16, used_cores=1)}
    message = r"schedule unshaped: Shapeless of shape 0 costs Cost.* and Cost.*; instructions of equal shapes"
    with pytest.raises(ProgramError, match=message):
        check_schedule(Unshaped, ConvProblem((1, 40, 8, 8), (16, 40, 1, 1)), product=FEW, tiling=uneven)


class Nestless(Dgrad):
    """Forgets to return its nest."""

    name = "nestless"

    def nest(self, sizes):
        super().nest(sizes)


def test_a_nest_that_is_not_returned_is_told():
    with pytest.raises(ConfigError, match=r"schedule nestless: nest\(sizes\) returned None; .*`return nest`"):
        check_schedule(Nestless, SMALL, product=FEW)


def test_what_makes_no_gradient_is_refused():
    with pytest.raises(ConfigError, match="check_schedule: matmul makes matmul; it checks gradients alone"):
        check_schedule("matmul", SMALL)
    with pytest.raises(ConfigError, match="schedule is 'dgrat'; did you mean dgrad"):
        check_schedule("dgrat", SMALL)
    with pytest.raises(TypeError, match="'tilling'; did you mean tiling"):
        check_schedule("dgrad", SMALL, tilling=None)


# --- Does the example of a program of one's own do what it says? ---------------------------------------

PROGRAM_FILE = Path(__file__).parents[2] / "examples" / "06_your_own_program.py"


@pytest.fixture(scope="module")
def said():
    """What the example prints, line by line."""
    lines = []
    runpy.run_path(
        str(PROGRAM_FILE), {"print": lambda *words: lines.append(" ".join(map(str, words)))}, "__main__"
    )
    return lines


def test_it_reads_doubles_and_writes_every_row_in_two_slots(said):
    # 1000 rows of three instructions; two slots of 512 float32.
    assert said[0] == "3000 instructions in 4096 bytes of UB"


def test_the_rows_are_doubled(said):
    assert said[1] == "right: True"


def found(said):
    return literal_eval(said[2].removeprefix("cycles: "))


def test_both_engines_find_the_same_cycles(said):
    assert found(said)["compiled"] == found(said)["simpy"] > 0


def test_where_the_cycles_went_adds_up(said):
    line = re.compile(r"(\w+): busy (\d+), waiting ({.*}), idle (\d+)")
    told = [line.fullmatch(words).groups() for words in said[3:]]
    assert [pipe for pipe, *_ in told] == ["S", "MTE2", "MTE3", "V"]
    for _, busy, waiting, idle in told:
        assert int(busy) + sum(literal_eval(waiting).values()) + int(idle) == found(said)["compiled"]


def test_every_row_is_a_slice_of_its_own():
    made = runpy.run_path(str(PROGRAM_FILE), run_name="example")
    program = made["double_rows"](load_profile("910B2"))
    read = [i.src.index[0] for i in program.instructions if type(i).__name__ == "CopyGmToUb"]
    assert read == list(range(1000))
