"""Is what a user leaves open of a plan filled in by the rules, and does the whole fit?"""

from math import prod

import pytest

from ascendsim import ConvProblem, MatmulProblem, Plan, Tiling, estimate, estimate_matmul
from ascendsim.errors import CapacityError, ConfigError
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.plan import GRID
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.tiling.given import tilings_given
from ascendsim.ops.tiling.request import PartialPlan
from ascendsim.profile import load_profile
from tests.helpers.conv_cases import SPLIT, assert_same_bits, call_of, run, tensors_of
from tests.helpers.requests import chosen_plan, plans_of

LAYER = ConvProblem((32, 128, 28, 28), (128, 128, 3, 3), 1, 1)
DEEP = ConvProblem((1, 64, 4, 16, 16), (64, 64, 3, 3, 3), 1, 1)
# No rule is known for groups of images on the 910B.
GROUPED = ConvProblem((32, 64, 28, 28), (64, 32, 3, 3), 1, 1, groups=2)
BOTH = ("grad_input", "grad_weight")
ONLY = {"grad_input": (True, False, False), "grad_weight": (False, True, False)}
NEW, OLD, WIDE = load_profile("910B2"), load_profile("910A"), load_profile("950PR_9599")
# One machine of each way to choose: by whole images, by our search, by the operator's blocks, by the library.
WAYS = {
    "whole images": (LAYER, OLD, "float16"),
    "search": (GROUPED, NEW, "float16"),
    "shares": (DEEP, NEW, "float16"),
    "library": (LAYER, NEW, "float16"),
}


def plan(gradient, part, problem=LAYER, profile=NEW, dtype="float16", **more):
    """The plan of one gradient when a part of it is given."""
    tilings = tilings_given({gradient: part}, BOTH)
    return plans_of(problem, [gradient], dtype, profile, tilings, {}, **more)[gradient]


def usual(gradient, problem=LAYER, profile=NEW, dtype="float16"):
    return chosen_plan(problem, gradient, dtype, profile)


# --- what is given stands, the rest is chosen


@pytest.mark.parametrize("gradient", BOTH)
@pytest.mark.parametrize("way", WAYS)
def test_what_the_rules_choose_anyway_changes_nothing(way, gradient):
    chosen = usual(gradient, *WAYS[way])
    values = chosen.to_dict()
    for name in ("schedule", "base_m", "step_kb", "used_cores"):
        assert plan(gradient, {name: values[name]}, *WAYS[way]) == chosen, name


@pytest.mark.parametrize("gradient", BOTH)
@pytest.mark.parametrize("way", WAYS)
def test_a_given_field_stands_and_every_buffer_holds_the_tiles(way, gradient):
    problem, profile, dtype = WAYS[way]
    for part in ({"base_m": 256}, {"base_n": 16}, {"step_kb": 2}, {"cl0_buffers": 2}, {"al1_buffers": 1}):
        made = plan(gradient, part, problem, profile, dtype)
        [(name, value)] = part.items()
        assert getattr(made.tiling, name) == value
        # An estimate builds every program, and each of them reserves its slots.
        timed = estimate(problem, dtype, product=profile, output_mask=ONLY[gradient], tiling=made)
        assert timed.cycles > 0


def test_so_many_blocks_are_planned_as_on_a_machine_of_so_many_cores():
    # 32 images on 8 cores: the operators of the first generation give each core four of them.
    made = plan("grad_input", {"block_dim": 8}, profile=OLD)
    assert (made.tiling.batch_dim, made.tiling.used_cores) == (8, 8)
    few = load_profile("910A", {"cores.cube": 8})
    assert made == chosen_plan(LAYER, "grad_input", "float16", few)
    assert (
        plan("grad_input", {"block_dim": 6}).tiling
        == chosen_plan(LAYER, "grad_input", "float16", load_profile("910B2", {"cores.cube": 6})).tiling
    )


@pytest.mark.parametrize("gradient", BOTH)
@pytest.mark.parametrize("way", ["whole images", "search", "library"])
def test_what_is_given_beside_a_number_of_blocks_takes_no_more_cores(way, gradient):
    # Smaller blocks would be tasks enough for all 24 or 30 cores.
    made = plan(gradient, {"block_dim": 6, "base_m": 32}, *WAYS[way]).tiling
    assert (made.base_m, made.used_cores) == (32, 6)


def test_more_blocks_than_cores_take_turns_where_a_grid_numbers_them():
    # 32 blocks of an image each on 30 cores, in two rounds: block b goes to core b modulo 30.
    thirty = load_profile("910A", {"cores.cube": 30})
    made = plan("grad_input", {"block_dim": 32}, profile=thirty).tiling
    assert (prod(max(1, getattr(made, axis)) for axis in GRID), made.used_cores) == (32, 30)
    with pytest.raises(ConfigError, match=r"block_dim is 25, but 910B2 has 24 cores, .* take at most 24, or"):
        plan("grad_input", {"block_dim": 25}, GROUPED)


@pytest.mark.parametrize(
    ("gradient", "given", "grid"),
    [
        # 24 cores: four parts of the images leave six, which go to the pixels.
        ("grad_input", {"batch_dim": 4}, (4, 6, 1, 0)),
        # Twelve are left for the images: three each, so that eleven parts have work.
        ("grad_input", {"n_dim": 2}, (11, 1, 2, 0)),
        # Of grad_weight the rows of an image come before the channels, which cost a second load.
        ("grad_weight", {"batch_dim": 4}, (4, 1, 1, 6)),
        # 1152 columns in four parts.
        ("grad_weight", {"batch_dim": 2, "m_dim": 3, "k_dim": 1}, (2, 3, 4, 1)),
        ("grad_weight", dict.fromkeys(GRID, 2), (2, 2, 2, 2)),
    ],
)
def test_parts_of_a_grid_that_are_not_given_take_the_cores_that_are_left(gradient, given, grid):
    made = plan(gradient, given).tiling
    assert tuple(getattr(made, axis) for axis in GRID) == grid
    assert made.used_cores == min(24, prod(max(1, parts) for parts in grid))
    assert made.k_split == 1


def test_a_base_block_is_no_larger_than_its_cell():
    # 784 pixels in 7 parts are 112 each; 128 channels in 4 parts are 32.
    made = plan("grad_input", {"m_dim": 7, "n_dim": 4, "batch_dim": 1}).tiling
    assert made.base_m <= 112
    assert made.base_n <= 32


def test_one_step_of_grad_weight_is_that_of_both_operands():
    made = plan("grad_weight", {"step_ka": 3}).tiling
    assert (made.step_ka, made.step_kb) == (3, 3)


def test_cores_without_work_are_not_counted():
    # 128 channels and 1152 columns in blocks of 128: 9 base blocks, in two parts 18 tasks for 24 cores.
    assert plan("grad_weight", {"base_m": 128, "base_n": 128, "k_split": 2}).tiling.used_cores == 18


def test_parts_of_a_reduction_come_without_the_grid_that_would_cut_it_itself():
    assert usual("grad_weight").tiling.has_grid
    made = plan("grad_weight", {"k_split": 2}).tiling
    assert (made.k_split, made.has_grid) == (2, False)


def test_a_nest_alone_gets_the_plan_of_its_own_rules():
    # By default a 910_95 takes the search's plan; its operator's rules know the nest that deals shares.
    made = plan("grad_input", {"schedule": "dgrad_shares"}, DEEP, WIDE)
    assert made.schedule == "dgrad_shares"
    assert made.tiling.task_order
    # An operator's plan says fields that the plain nest does not read: there the search chooses.
    assert plan("grad_input", {"schedule": "dgrad"}, DEEP) == Plan(
        "dgrad", chosen_plan(DEEP, "grad_input", "float16", NEW, strategy="search").tiling
    )


def test_the_bits_are_those_of_the_definition():
    problem = ConvProblem((3, 20, 9, 10), (24, 20, 3, 3), 1, 1)
    tensors = tensors_of(problem, data="wide")
    for part in ({"base_m": 32, "base_n": 16}, {"batch_dim": 2, "m_dim": 2}, {"k_split": 2}):
        given = tilings_given(dict.fromkeys(BOTH, part), BOTH)
        call = call_of(problem, profile=SPLIT, tilings=given)
        made, _ = run(call, tensors, 3, (True, True, False))
        want = reference_gradients(call, **tensors, mask=(True, True, False))
        for gradient in BOTH:
            assert_same_bits(made[gradient], want[gradient])


def test_a_matrix_product_takes_a_part_too():
    problem = MatmulProblem(1024, 512, 1024)
    [kernel] = estimate_matmul(problem, tiling={"base_m": 64}).kernels
    assert kernel.plan.tiling.base_m == 64
    assert estimate_matmul(problem, tiling={"used_cores": 3}).kernels[0].cores_used == 3


# --- how it is told


def test_who_chose_the_rest_is_said():
    assert plan("grad_input", {"base_m": 64}, GROUPED).chosen_by == "user, rest search"
    assert plan("grad_input", {"base_m": 64}, profile=OLD).chosen_by == "user, rest product"
    told = estimate(GROUPED, tiling={"grad_input": {"base_m": 64}}).notes
    assert "Plans of grad_input are given in part, the rest by this simulator's search." in told


def test_one_table_of_fields_is_for_the_one_gradient():
    part = {"base_m": 64, "cl0_buffers": 2}
    one = estimate(LAYER, output_mask=ONLY["grad_input"], tiling=part)
    named = estimate(LAYER, output_mask=ONLY["grad_input"], tiling={"grad_input": part})
    assert one.kernels == named.kernels
    assert one.plans["grad_input"].tiling.base_m == 64
    with pytest.raises(ConfigError, match="tiling is one PartialPlan, but the call computes grad_input and"):
        estimate(LAYER, tiling=part)


def test_what_says_all_is_a_whole_plan_that_nothing_is_chosen_for():
    whole = Plan("dgrad", Tiling(64, 64, 32, used_cores=3))
    assert plan("grad_input", whole.to_dict()) == whole
    assert plan("grad_input", whole.to_dict()).chosen_by == "user"


def test_a_part_can_be_made_once_and_used_for_many():
    part = PartialPlan({"base_m": 64})
    assert plan("grad_input", part) == plan("grad_input", {"base_m": 64})
    assert hash(part) == hash(PartialPlan({"base_m": 64}))


# --- what cannot be


def test_what_is_short_is_told_of_the_largest_tile():
    # 784 pixels are a block of 512 and one of 272: 512 x 128 sums of 4 bytes, of which L0C holds half.
    layer = ConvProblem((4, 128, 28, 28), (128, 128, 3, 3), stride=1, padding=1)
    given = {"grad_input": {"base_m": 512, "base_n": 128}}
    with pytest.raises(CapacityError, match=r"L0C of 910B2 holds 131072 bytes, but .* to 262144;"):
        estimate(layer, product="910B2", output_mask=(True, False, False), tiling=given)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"base_q": 16}, "tiling of grad_input has the field 'base_q', which no tiling has; did you mean"),
        ({"baseM": 16}, "has the field 'baseM', which no tiling has; did you mean base_m?"),
        ({"stepKa": 1}, "has the field 'stepKa', which no tiling has; did you mean step_ka?"),
        ({"base_m": 0}, "tiling of grad_input: base_m is 0; it must be a positive integer"),
        (
            {"mapping": "even"},
            "tiling of grad_input: mapping is 'even'; it must be contiguous or interleaved",
        ),
        ({"block_dim": 0}, "tiling of grad_input: block_dim is 0; it must be a positive integer, the blocks"),
        ({"block_dim": 4, "m_dim": 5}, "the grid has 5 cells, but block_dim is 4; leave one of them out"),
        ({"schedule": 7}, "tiling of grad_input: schedule is 7; it must be a name or a class"),
        ({"schedule": "dgrat"}, "schedule is 'dgrat'; did you mean dgrad?"),
        ({"schedule": "wgrad"}, "schedule of grad_input is 'wgrad', which makes grad_weight"),
        ({"base_n": 24}, "base_n is 24, which is no multiple of 16; take 32"),
        ({"used_cores": 25}, "used_cores is 25, but 910B2 has 24 cores; take no more"),
        ({"swizzle": 2}, "swizzle is 2, but schedule dgrad does not read it; leave it out"),
        ({"k_split": 9}, "k_split is 9, but the reduction has 8 groups of 16 channels; take no more parts"),
    ],
)
def test_a_part_that_breaks_a_rule_is_told_which(part, message):
    with pytest.raises(ConfigError, match=message):
        plan("grad_input", part)


@pytest.mark.parametrize(
    ("gradient", "part", "buffer"),
    [
        # 512 x 128 sums of 4 bytes are 256 KiB; L0C has 128.
        ("grad_input", {"base_m": 512, "base_n": 128}, "L0C"),
        # 64 x 1024 elements of 2 bytes in two copies: 256 KiB of 64.
        ("grad_input", {"base_m": 64, "base_k": 1024, "al0_buffers": 2}, "L0A"),
        # 288 x 128, likewise: 144 KiB.
        ("grad_weight", {"base_n": 288, "base_k": 128, "bl0_buffers": 2}, "L0B"),
        # 128 channels of a row of 28 pixels under three rows of taps, 3 x 30 x 128 x 2 bytes, in 99 copies.
        ("grad_input", {"base_k": 16, "step_ka": 72, "al1_buffers": 99}, "L1"),
    ],
)
def test_a_part_that_fits_nowhere_names_the_buffer(gradient, part, buffer):
    message = rf"with .* nothing that is left open makes the tiles fit: {buffer} of 910B2 holds"
    with pytest.raises(CapacityError, match=message) as told:
        plan(gradient, part)
    assert told.value.buffer == buffer


def test_the_kernel_that_runs_has_the_plan():
    call = call_of(LAYER, profile=NEW, tilings=tilings_given({"grad_input": {"base_m": 64}}, BOTH))
    # Changes of layout, which the call runs besides, have no plan.
    plans = [kernel.facts.get("plan") for kernel in lower(call, ONLY["grad_input"]).kernels]
    assert [made.tiling.base_m for made in plans if made] == [64]


def test_one_part_of_a_reduction_is_cut_along_no_axis():
    # The operator's plan cuts lines; who asks for one part need not know along what it did.
    problem = ConvProblem((1, 16, 14, 14), (16, 16, 3, 3), 1, 1)
    profile = load_profile("950PR_9589")
    assert usual("grad_weight", problem, profile).tiling.stream_axis
    made = plan("grad_weight", {"k_split": 1}, problem, profile).tiling
    assert (made.k_split, made.stream_axis) == (1, "")
