"""Is what a user leaves open of a plan filled in by the rules, and are cores dealt again?"""

from itertools import product
from math import ceil, prod

import pytest

from ascendsim import ConvProblem, MatmulProblem, Plan, Tiling, estimate, estimate_matmul
from ascendsim.errors import CapacityError, ConfigError
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.plan import GRID
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.schedules.base import schedule_named
from ascendsim.ops.tiling import given as complete
from ascendsim.ops.tiling.given import dealt_again, tilings_given
from ascendsim.ops.tiling.request import PartialPlan, PlanRequest
from ascendsim.profile import load_profile
from tests.helpers.conv_cases import SPLIT, assert_same_bits, call_of, run, tensors_of
from tests.helpers.slow_tilings import chosen_plan, plans_of

# --- Is what a user leaves open of a plan filled in by the rules, and does the whole fit? --------------

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


@pytest.mark.parametrize(
    ("blocks", "parts"), [(13, 1), (14, 2), (15, 3), (16, 4), (17, 5), (18, 7), (19, 14), (20, 1), (36, 1)]
)
def test_the_last_round_is_that_of_the_blocks_given(blocks, parts):
    # Five groups of 64 rows x 4 blocks of 144 columns are 20 tasks. What 14 to 19 cores leave for a second
    # round, 6 to 1 tasks, is cut into parts of the 2 images or the 14 rows: of 3 tasks on 17 cores five each
    # (rows in threes), of one on 19 each row for itself. 13 leave more than half.
    problem = ConvProblem((2, 320, 14, 14), (320, 64, 3, 3), 1, 1, groups=5)
    given = {"grad_weight": {"block_dim": blocks}}
    made = plan("grad_weight", given["grad_weight"], problem, WIDE).tiling
    assert (made.used_cores, made.k_split) == (blocks, parts)
    timed = estimate(problem, "float16", product=WIDE, output_mask=ONLY["grad_weight"], tiling=given)
    assert timed.cycles > 0


def test_a_plan_given_in_part_keeps_the_cores_that_its_last_round_counts():
    # 29 tasks of 16 rows on 14 cores leave one, 14 rows of which go to as many cores.
    problem = ConvProblem((2, 16, 14, 14), (464, 16, 1, 1))
    part = {"schedule": "wgrad_stream", "block_dim": 14, "base_m": 16, "single_core_m": 16}
    made = plan("grad_weight", part, problem, WIDE).tiling
    assert (made.used_cores, made.k_split, made.stream_axis) == (14, 14, "height")


# --- Are cores dealt again where a user gives base blocks alone, and never to the call's harm? ---------

PROFILE = load_profile("910B2")
# 4 images of 784 pixels and 128 channels.
GRIDS_LAYER = ConvProblem((4, 128, 28, 28), (128, 128, 3, 3), 1, 1)
MAKES = {"dgrad": "grad_input", "wgrad": "grad_weight"}
MASKS = {"grad_input": (True, False, False), "grad_weight": (False, True, False)}


def again(nest, tiling, part, **more):
    request = PlanRequest(GRIDS_LAYER, MAKES[nest], "float16", PROFILE, fixed=PartialPlan(part, **more))
    return dealt_again(tiling, schedule_named(nest), request)


def grid_of(tiling):
    return tiling.batch_dim, tiling.m_dim, tiling.n_dim, tiling.k_dim


def kernel_of(gradient, tiling):
    tilings = {gradient: tiling}
    made = estimate(
        GRIDS_LAYER, product=PROFILE, output_mask=MASKS[gradient], tiling=tilings, l2_start="warm"
    )
    return next(kernel for kernel in made.kernels if kernel.macs), made.plans[gradient].tiling


def test_cells_get_whole_blocks_of_the_size_that_is_given():
    # Cells of the rules, 4 x 3 x 2, have 262 pixels and 64 channels: three 128 x 128 blocks each, half of
    # them empty. The image has 6.1 blocks, so 7, and 28 blocks on 24 cores are two each, on 14 of them.
    part = {"base_m": 128, "base_n": 128}
    made = again("dgrad", Tiling(128, 128, 48, batch_dim=4, m_dim=3, n_dim=2), part)
    assert grid_of(made) == (2, 7, 1, 0)
    # Two blocks in seven of 14 cells is as few as there can be with 14 cores, too.
    assert grid_of(again("dgrad", made, part, block_dim=14) or made) == (2, 7, 1, 0)
    # Of even parts of all pixels, which cut through images, nothing is left.
    even = again("dgrad", Tiling(128, 128, 48, pixel_dim=12, n_dim=2), part)
    assert (even.pixel_dim, grid_of(even)) == (0, (2, 7, 1, 0))


@pytest.mark.parametrize(
    ("tiling", "part"),
    [
        # Nothing about the sizes of blocks; a part of the grid; no grid; as few blocks a cell as can be.
        (Tiling(128, 128, 48, batch_dim=4, m_dim=3, n_dim=2), {"base_k": 48}),
        (Tiling(128, 128, 48, batch_dim=4, m_dim=3, n_dim=2), {"base_m": 128, "n_dim": 2}),
        (Tiling(128, 128, 48, pixel_dim=12), {"base_m": 128, "pixel_dim": 12}),
        (Tiling(128, 128, 48), {"base_m": 128}),
        (Tiling(128, 128, 48, batch_dim=2, m_dim=7, n_dim=1), {"base_m": 128}),
    ],
)
def test_a_grid_stays_where_there_is_no_reason_to_change_it(tiling, part):
    assert again("dgrad", tiling, part) is None


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("cores", [2, 5, 24])
@pytest.mark.parametrize("sizes", [(16, 16), (128, 128), (272, 64), (1024, 256)])
@pytest.mark.parametrize("nest", MAKES)
def test_no_other_grid_has_fewer_blocks_in_its_busiest_cell(nest, sizes, cores, images):
    base_m, base_n = sizes
    # 128 rows of grad_weight, and 72 groups of 16 columns; 784 pixels of grad_input, and 128 columns.
    m, n, height = (784, 128, 1) if nest == "dgrad" else (128, 1152, 28)

    def busiest(batch, m_dim, n_dim, high):
        return (
            ceil(4 / batch)
            * ceil(ceil(m / m_dim) / base_m)
            * ceil(ceil(n / n_dim) / base_n)
            * ceil(height / high)
        )

    # The slow way: every number of parts along each axis.
    # grad_weight of one part of the reduction stays of one: parts would have to be added.
    whole = nest == "wgrad" and images == 1
    ranges = [
        range(1, min(cores, most) + 1) for most in (1 if whole else 4, cores, cores, 1 if whole else height)
    ]
    least = min(busiest(*parts) for parts in product(*ranges) if prod(parts) <= cores)
    # A grid of one or two cells stays where no other is better.
    one = Tiling(base_m, base_n, 48, batch_dim=images, m_dim=1, n_dim=1)
    made = again(nest, one, {"base_m": base_m}, block_dim=cores) or one
    assert busiest(*(max(1, parts) for parts in grid_of(made))) == least
    assert made.cells <= cores


@pytest.mark.parametrize("gradient", MASKS)
def test_the_faster_of_both_grids_is_taken(gradient):
    rules, usual = kernel_of(gradient, "product")
    # For 4 images the library weighs idle cores against what the others save: 2 x 8 cells of one window each.
    assert rules.cores_used == {"grad_input": 24, "grad_weight": 16}[gradient]
    changed = 0
    for part in ({"base_m": 128, "base_n": 128}, {"base_m": 256, "base_n": 64}, {"base_m": 64, "base_n": 64}):
        kernel, tiling = kernel_of(gradient, part)
        # The same tiles under the grid of the rules.
        grid = {axis: getattr(usual, axis) for axis in ("batch_dim", "m_dim", "n_dim", "k_dim")}
        steps = {step: getattr(tiling, step) for step in ("step_ka", "step_kb")}
        before, _ = kernel_of(gradient, {**part, **grid, **steps})
        assert kernel.time_us <= before.time_us
        changed += grid_of(tiling) != tuple(grid.values())
    assert changed


@pytest.mark.parametrize(
    ("product", "layer", "base"),
    [
        # Dealt again: 64 x 64 blocks of 6 images.
        ("310P3", ConvProblem((6, 32, 7, 7), (256, 32, 3, 3), 1, 1), (64, 64)),
        # Left as they are: more parts would be sooner done, but for adding them in order.
        ("910A", ConvProblem((3, 32, 20, 20), (256, 32, 3, 3), 2, 1), (256, 256)),
        ("910A", ConvProblem((6, 32, 14, 14), (64, 32, 3, 3), 1, 1), (256, 256)),
        # Left as it is: parts of a reduction that was in one piece would be added to zeros.
        ("910A", ConvProblem((1, 64, 7, 7), (128, 64, 1, 1)), (128, 128)),
    ],
    ids=["dealt again", "strided", "padded", "in one piece"],
)
def test_a_call_whose_parts_are_added_in_order_takes_no_longer_for_it(monkeypatch, product, layer, base):
    part = dict(zip(("base_m", "base_n"), base, strict=True))
    options = {"product": product, "output_mask": MASKS["grad_weight"], "deterministic": True, "tiling": part}
    again = estimate(layer, **options)
    monkeypatch.setattr(complete, "dealt_again", lambda *_: None)
    rules = estimate(layer, **options)
    if product == "310P3":
        assert again.time_us < rules.time_us
    else:
        assert again.plans == rules.plans


@pytest.mark.parametrize(("gradient", "nest"), [("grad_input", "dgrad"), ("grad_weight", "wgrad")])
def test_the_bits_are_those_of_the_definition_grids(gradient, nest):
    problem = ConvProblem((3, 32, 9, 10), (48, 32, 3, 3), 1, 1)
    request = PlanRequest(problem, gradient, "float16", SPLIT, fixed=PartialPlan({"base_m": 32}))
    one = Tiling(32, 16, 16, batch_dim=1, m_dim=1, n_dim=1, used_cores=SPLIT.cores.cube)
    tiling = dealt_again(one, schedule_named(nest), request)
    tensors, call = tensors_of(problem, data="wide"), call_of(problem, tilings={gradient: tiling})
    made, arrivals = run(call, tensors, 3, MASKS[gradient])
    want = reference_gradients(call, **tensors, mask=MASKS[gradient], arrivals=arrivals)
    assert_same_bits(made[gradient], want[gradient])
