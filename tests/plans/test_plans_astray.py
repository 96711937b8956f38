"""Does a user's plan that L1 has no room for say so, and do legal ones take what their tiles explain?"""

import pytest

from ascendsim import ConvProblem, Plan, Tiling, estimate
from ascendsim.errors import CapacityError
from ascendsim.ops.problems.products import WgradGemm
from ascendsim.ops.schedules.wgrad.cut import narrowed_to
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from ascendsim.profile import load_profile

DEVICE = load_profile("910B2")
WIDE = ConvProblem((2, 256, 56, 56), (256, 256, 3, 3), padding=1)
ONLY = (False, True, False)


def run(tiling, problem=WIDE, **options):
    return estimate(problem, output_mask=ONLY, tiling=tiling, product=DEVICE, **options)


def narrow(step, problem=WIDE, **fields):
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
    assert (found.tiling.base_m, found.tiling.base_n, found.tiling.base_k) == (256, 128, 64)
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
