"""Does a plan say what it sets, and an error about one what is wrong, where, and what it pads?"""

import json
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

from ascendsim import ConvProblem, convolution_backward, estimate, matmul, read_plans
from ascendsim.cli import main
from ascendsim.errors import CapacityError, ConfigError
from ascendsim.ops.plan import (
    OF_ONE_BASE_BLOCK,
    UNCUT,
    Plan,
    Tiling,
    require_obeyed,
    require_whole_units,
    shares,
)
from ascendsim.ops.problems.products import WgradGemm
from ascendsim.ops.schedules.base import TILES
from ascendsim.ops.schedules.wgrad.cut import narrowed_to
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from ascendsim.profile import load_profile
from tests.helpers.toy_machines import toy_split

# --- Does a plan say what it sets, and is it refused where a schedule would obey it in part? -----------

BASE = Tiling(16, 32, 64)
FOUR = toy_split(**{"cores.cube": 4})


def test_a_tiling_is_a_value():
    assert Tiling(base_m=16, base_n=32, base_k=64) == BASE
    assert len({BASE, Tiling(16, 32, 64), replace(BASE, base_m=32)}) == 2
    with pytest.raises(FrozenInstanceError):
        BASE.base_m = 32


def test_a_block_of_a_core_is_one_base_block_unless_it_is_told():
    assert (BASE.block_m, BASE.block_n) == (16, 32)
    told = replace(BASE, single_core_m=48, single_core_n=96)
    assert (told.block_m, told.block_n) == (48, 96)
    defaults = {field.name: field.default for field in fields(Tiling) if field.type == "int"}
    assert {name for name, default in defaults.items() if default == 0} == {*OF_ONE_BASE_BLOCK, *UNCUT}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, {}),  # base sizes have no default, so they are never news
        ({"base_m": 48}, {}),
        ({"cl0_buffers": 2}, {"cl0_buffers": 2}),
        ({"cl0_buffers": 1}, {}),  # 1 is its default
        ({"swizzle": 3, "unit_flag": True}, {"swizzle": 3, "unit_flag": True}),
        ({"reuse_l1": True, "panels": "columns"}, {"panels": "columns"}),
    ],
)
def test_the_fields_that_are_set_are_those_that_left_their_default(changes, found):
    assert replace(BASE, **changes).set_fields() == found


def test_what_a_schedule_does_not_read_is_refused_by_name():
    require_obeyed("grad_input", "dgrad", BASE, frozenset())  # nothing is set
    told = replace(BASE, swizzle=2)
    require_obeyed("matmul", "matmul", told, frozenset(["swizzle"]))
    with pytest.raises(
        ConfigError, match=r"tiling of grad_input: swizzle is 2, but schedule dgrad does not read it; leave"
    ):
        require_obeyed("grad_input", "dgrad", told, TILES)


def test_every_nest_reads_at_least_the_sizes_that_have_no_default():
    names = [field.name for field in fields(Tiling)]
    assert set(names[:3]) == {"base_m", "base_n", "base_k"} <= TILES <= set(names)


@pytest.mark.parametrize(
    ("tiling", "message"),
    [
        (Tiling(16, 24, 64), "tiling of x: base_n is 24, which is no multiple of 16; take 32"),
        (Tiling(16, 32, 8), "base_k is 8, which is no multiple of 16; take 16"),
        (replace(BASE, used_cores=5), "used_cores is 5, but toy_split has 4 cores; take no more"),
    ],
)
def test_whole_units_and_no_more_cores_than_there_are(tiling, message):
    units = {"base_n": 16, "base_k": 16}
    require_whole_units("x", replace(BASE, used_cores=4), units, FOUR)
    with pytest.raises(ConfigError, match=message):
        require_whole_units("x", tiling, units, FOUR)


def test_shares_by_hand():
    # 7 = 3 + 2 + 2: the first core takes the one more; two tasks are for two cores only.
    assert shares(7, 3) == [range(3), range(3, 5), range(5, 7)]
    assert shares(2, 5) == [range(1), range(1, 2)]
    assert shares(0, 5) == []


def test_a_plan_holds_a_name_or_a_class():
    assert Plan("dgrad", BASE) == Plan("dgrad", Tiling(16, 32, 64)) != Plan("wgrad", BASE)
    assert Plan(int, BASE).schedule is int


# --- Does an error about a plan name its gradient and its file, and does a result say what a plan pads?

P = ConvProblem((1, 64, 14, 14), (64, 64, 3, 3), padding=1)
BOTH = (True, True, False)
WIDE = Tiling(512, 512, 512)  # 512 x 512 float32 sums are 1 MiB, L0C has 128 KiB


def written(tmp_path, made, plan, name="plan.json"):
    path = tmp_path / name
    path.write_text(json.dumps({made: plan}))
    return path


@pytest.mark.parametrize(("gradient", "nest"), [("grad_input", "dgrad"), ("grad_weight", "wgrad")])
@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_a_whole_plan_that_does_not_fit_names_its_gradient(gradient, nest, engine):
    with pytest.raises(CapacityError, match=rf"^tiling of {gradient}: L0[ABC] of 910B2 holds") as told:
        estimate(P, output_mask=BOTH, tiling={gradient: Plan(nest, WIDE)}, engine=engine)
    assert told.value.buffer in ("L0A", "L0B", "L0C")


def test_so_does_one_that_is_executed_without_cycles():
    # Parts that arrive in some order have to be executed: no product in one go says their bits.
    tensors = [np.zeros(shape, np.float16) for shape in (P.grad_output, P.input, P.weight)]
    rest = None, 1, 1, 1, False, 0, 1, (False, True, False), 0
    with pytest.raises(CapacityError, match=r"^tiling of grad_weight: L0"):
        convolution_backward(*tensors, *rest, tiling=WIDE, timing=True, order=3)


def test_so_does_a_matrix_product():
    with pytest.raises(CapacityError, match=r"^tiling of matmul: L1"):
        matmul(np.zeros((512, 512), np.float16), np.zeros((512, 512), np.float16), tiling=WIDE)


@pytest.mark.parametrize(
    ("gradient", "nest", "field"),
    [
        ("grad_input", "dgrad_shares", "single_core_n"),
        ("grad_input", "dgrad_split", "single_core_n"),
        ("grad_weight", "wgrad_shares", "single_core_m"),
        ("grad_weight", "wgrad_stream", "single_core_m"),
    ],
)
def test_tasks_end_where_groups_of_channels_end(gradient, nest, field):
    def of(size):
        return estimate(P, output_mask=BOTH, tiling={gradient: {"schedule": nest, field: size}})

    with pytest.raises(ConfigError, match=rf"{gradient}: {field} is 24, which is no multiple of 16; take 32"):
        of(24)
    # Of 64 channels these are all.
    for size in (32, 64, 100):
        assert getattr(of(size).plans[gradient].tiling, field) == size


# Whole, in part, in the vendor's names; and one that breaks a rule of its nest.
WRONG = {
    "whole": ("grad_weight", Plan("wgrad", WIDE).to_dict(), CapacityError, "L0"),
    "part": (
        "grad_input",
        {"base_m": 128, "base_k": 1024, "al0_buffers": 2},
        CapacityError,
        "with base_m",
    ),
    "vendor": (
        "grad_input",
        {"baseM": 128, "baseK": 1024, "al0Pbuffer": 2},
        CapacityError,
        "with base_m",
    ),
    "rule": ("grad_weight", {"base_m": 100}, ConfigError, "base_m is 100, which is no multiple of 16"),
    "unread": (
        "grad_input",
        Plan("dgrad", Tiling(64, 64, 64, strip_w=8)).to_dict(),
        ConfigError,
        "strip_w",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_plan_of_a_file_names_the_file_too(name, tmp_path):
    gradient, plan, error, reason = WRONG[name]
    path = written(tmp_path, gradient, plan)
    for given in (path, read_plans(path).plans):
        with pytest.raises(error) as told:
            estimate(P, output_mask=BOTH, tiling=given, product="910_95")
        assert str(told.value).startswith(f"{path}: tiling of {gradient}: {reason}"), told.value
        assert str(told.value).count(str(path)) == 1


def test_the_file_of_an_equal_plan_before_is_not_named(tmp_path):
    # Kernels of equal calls are remembered; where their plans came from is each call's own affair.
    for name in ("first.json", "second.json"):
        path = written(tmp_path, "grad_weight", Plan("wgrad", WIDE).to_dict(), name)
        tensors = [np.zeros(shape, np.float16) for shape in (P.grad_output, P.input, P.weight)]
        rest = None, 1, 1, 1, False, 0, 1, BOTH, 0
        with pytest.raises(CapacityError) as told:
            convolution_backward(*tensors, *rest, tiling=path)
        assert str(told.value).startswith(f"{path}: tiling of grad_weight: ")


def test_the_command_line_says_it_in_one_line(tmp_path, capsys):
    path = written(tmp_path, "grad_weight", Plan("wgrad", WIDE).to_dict())
    assert main(["run", "s3b1_3x3", "--tiling", str(path)]) != 0
    assert f"{path}: tiling of grad_weight: L0" in capsys.readouterr().err


# What is padded


def notes(tiling, **options):
    return estimate(P, output_mask=(True, False, False), tiling=tiling, **options).notes


@pytest.mark.parametrize("tiling", [{"base_m": 100}, Tiling(100, 64, 64)], ids=["part", "whole"])
def test_rows_that_are_multiplied_for_nothing_are_told(tiling):
    # 100 pixels are seven fractals of 16 rows: 112, of which 12 hold nothing.
    told = [note for note in notes(tiling) if "base_m" in note]
    assert told == [
        "base_m of grad_input is 100, no multiple of 16: the cube multiplies 112 rows for a whole block, the "
        "last 12 for nothing."
    ]


@pytest.mark.parametrize("tiling", [None, "search", {"base_m": 96}, {"base_m": 196}], ids=str)
def test_nothing_is_told_of_whole_fractals_whole_images_and_plans_by_rule(tiling):
    # 14 x 14 = 196 pixels are one block: no other base_m would multiply fewer rows.
    assert not [note for note in notes(tiling) if "base_m" in note]


@pytest.mark.parametrize(
    ("gradient", "part", "told"),
    [
        ("grad_input", {"base_m": 512, "base_n": 16}, "base_m is 512 for 196 pixels of an image"),
        ("grad_weight", {"base_m": 512, "base_n": 16}, "base_m is 512 for 64 rows"),
        ("grad_weight", {"base_m": 16, "base_n": 1024}, "base_n is 1024 for 576 columns"),
        # 196 pixels begin a thirteenth fractal, which 208 fill.
        ("grad_input", {"base_m": 208}, ""),
        ("grad_input", {"base_n": 64}, ""),
    ],
)
def test_blocks_larger_than_what_they_cut_are_told(gradient, part, told):
    mask = gradient == "grad_input", gradient == "grad_weight", False
    found = [note for note in estimate(P, output_mask=mask, tiling=part).notes if "cut to what" in note]
    assert found == ([f"Blocks of {gradient} are cut to what there is: {told}."] if told else [])


# -------------------------------------------------------------------------------------------------------
# Does a user's plan that L1 has no room for say so, and do legal ones take what their tiles explain?
# -------------------------------------------------------------------------------------------------------

DEVICE = load_profile("910B2")
ASTRAY_WIDE = ConvProblem((2, 256, 56, 56), (256, 256, 3, 3), padding=1)
ONLY = (False, True, False)


def run(tiling, problem=ASTRAY_WIDE, **options):
    return estimate(problem, output_mask=ONLY, tiling=tiling, product=DEVICE, **options)


def narrow(step, problem=ASTRAY_WIDE, **fields):
    tiling = Tiling(256, 128, 64, step, step, bl1_buffers=1, used_cores=18, **fields)
    nest = Wgrad(WgradGemm.of(problem, "float16"), tiling, DEVICE, "atomic")
    return narrowed_to(nest.gemm, tiling, nest.tasks.column_blocks)


@pytest.mark.parametrize(
    ("step", "copies", "expected"),
    [
        # grad_output: copies x 256 rows x step x 64 pixels x 2 bytes. Of 512 KiB 7 steps leave 64 KiB for
        # 9 rows of 58 pixels and 2 groups of channels: 33 KiB.
        (7, 2, 0),
        # 8 steps leave nothing: what is left are single taps, 16 columns under the pixels of one row.
        (8, 2, 16),
        (8, 1, 0),
        (49, 2, 16),
    ],
)
def test_blocks_become_narrow_where_grad_output_fills_l1(step, copies, expected):
    assert narrow(step, al1_buffers=copies) == expected


def test_a_box_of_whole_kernel_rows_is_not_narrow():
    # base_n 128 are 8 taps of 9, of which a box of one group has 6 in whole rows, whatever room L1 has.
    high = ConvProblem((1, 16, 256, 256), (256, 16, 3, 3), padding=1)
    assert narrow(1, high) == 0


def test_a_whole_plan_that_goes_astray_says_so():
    told = [
        note for note in run(Tiling(256, 128, 64, 8, 8, bl1_buffers=1, used_cores=18)).notes if "L1" in note
    ]
    assert told[0].startswith(
        "L1 does not hold the tiles of grad_weight as its plan says: blocks have 16 columns, where base_n is "
        "128, over 56 pixels at a time, where steps are of 512."
    )
    fits = run(Tiling(256, 128, 64, 7, 7, bl1_buffers=1, used_cores=18))
    assert not any("does not hold" in note for note in fits.notes)


def test_it_moves_what_the_note_says():
    # 144 blocks of 16 columns load grad_output where 18 of 128 did: 8 times.
    astray, fits = (
        run(Tiling(256, 128, 64, step, step, bl1_buffers=1, used_cores=18)).kernels for step in (8, 7)
    )
    read = [next(kernel for kernel in made if kernel.plan).bytes["l2_read"] for made in (astray, fits)]
    assert 7 < read[0] / read[1] < 9


def test_nothing_is_told_of_plans_by_rule():
    large = ConvProblem((1, 64, 512, 512), (64, 64, 3, 3), padding=1)
    for strategy in ("product", "search"):
        assert not any("does not hold" in note for note in run(strategy, large).notes)


@pytest.mark.parametrize("schedule", ["wgrad", "wgrad_shares", "wgrad_stream"])
def test_a_plan_in_part_gets_steps_beside_which_its_blocks_fit(schedule):
    # The last two are nests of the operators, whose tasks have an order that no plan of the search says.
    found = run({"base_m": 256, "base_n": 128, "base_k": 64, "schedule": schedule}).plans["grad_weight"]
    # Under `wgrad` two kernel rows of three taps of 16 channels are what runs of 128 columns.
    columns = 96 if schedule == "wgrad" else 128
    assert (found.tiling.base_m, found.tiling.base_n, found.tiling.base_k) == (256, columns, 64)
    assert found.schedule == schedule
    assert not any("does not hold" in note for note in run(found).notes)


def test_a_plan_in_part_that_leaves_no_way_is_refused():
    given = {"base_m": 256, "base_n": 128, "base_k": 64, "step_ka": 8, "step_kb": 8, "k_split": 1}
    with pytest.raises(CapacityError, match=r"^tiling of grad_weight: with .* 16 columns .* base_n is 128"):
        run({**given, "al1_buffers": 2, "bl1_buffers": 1, "schedule": "wgrad"})
    # With the copies open one of grad_output makes room.
    assert run({**given, "schedule": "wgrad"}).plans["grad_weight"].tiling.al1_buffers == 1


def test_a_written_plan_of_ours_is_read_again_without_complaint():
    # Plans of the search may have such blocks, for images whose rows hardly fit: they stay legal.
    found = run("search").plans["grad_weight"]
    again = Plan(found.schedule, found.tiling)
    assert run({"grad_weight": again}).cycles == run("search").cycles
