"""Are measured cases run and compared by the right statistics, and how near do estimates come?"""

import math
from dataclasses import replace

import pytest

from ablation import ablations, fitted
from ascendsim import MatmulProblem, estimate_matmul
from ascendsim.profile import load_profile
from ascendsim.timing.kernel import time_kernel
from ascendsim.validate.compare import (
    TARGETS,
    MeasuredCase,
    bounds_of,
    busiest,
    grouped,
    quantile,
    rank_correlation,
    reached,
    summarise,
)
from ascendsim.validate.kernels import active_cycles, core_active_cycles, plan_of
from ascendsim.validate.run import compare, compare_rows, quoted_rows
from ascendsim.validate.schema import MeasuredRow, Unusable, read_rows
from committed_pages import sensitivity
from tests.helpers.outside_records import made

# --- Are measured cases run as their columns say, and compared by the right statistics? ----------------

# --- statistics ---------------------------------------------------------------------------------------------


def case(measured, estimated, name="x", **values):
    return MeasuredCase(name, "matmul", "group", "910B1", "us", measured, estimated, "a table", **values)


def test_the_error_is_relative_to_the_measurement():
    assert case(200, 150).error == -0.25
    assert case(200, 250).error == 0.25


@pytest.mark.parametrize(("share", "value"), [(0, 1), (0.5, 2.5), (1, 4), (0.95, 3.85)])
def test_a_quantile_lies_straight_between_its_neighbours(share, value):
    assert quantile([1, 2, 3, 4], share) == pytest.approx(value)


def test_a_quantile_of_one_number_is_that_number():
    assert quantile([7.0], 0.95) == 7.0


@pytest.mark.parametrize(
    ("one", "other", "rank"),
    [
        ([1, 2, 3], [10, 20, 90], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 3, 2, 4], 0.8),
        # Ties share the mean of their ranks: 1.5, 1.5, 3 and 1, 2, 3.
        ([5, 5, 9], [1, 2, 3], math.sqrt(3) / 2),
    ],
)
def test_rank_correlation_is_spearmans(one, other, rank):
    assert rank_correlation(one, other) == pytest.approx(rank)


@pytest.mark.parametrize(("one", "other"), [([1, 2], [1, 2]), ([1, 1, 1], [1, 2, 3])])
def test_there_is_no_rank_correlation_of_too_little(one, other):
    assert math.isnan(rank_correlation(one, other))


def test_a_summary_takes_absolute_errors_and_names_the_worst():
    found = summarise([case(100, 90, "a"), case(100, 130, "b"), case(100, 102, "c")])
    assert (found.count, found.worst_id) == (3, "b")
    assert (found.median, found.mean, found.worst) == pytest.approx((0.1, 0.14, 0.3))


def test_pipes_within_seven_percent_of_the_busiest_are_all_busiest():
    assert busiest({"M": 100, "MTE1": 93.1, "MTE2": 92.9}) == {"M", "MTE1"}
    assert busiest({}) == frozenset()


@pytest.mark.parametrize(
    ("measured", "estimated", "right"),
    [("M", "M", True), (("M", "MTE2"), "MTE2", True), ("M", "MTE1", False), ((), "M", None), ("M", (), None)],
)
def test_a_bound_is_right_if_both_name_a_common_pipe(measured, estimated, right):
    bounds = (
        frozenset((measured,) if isinstance(measured, str) else measured),
        frozenset((estimated,) if isinstance(estimated, str) else estimated),
    )
    assert case(1, 1, bounds=bounds).bound_right is right


def test_groups_come_by_class_and_then_as_they_came():
    cases = [
        replace(case(1, 1, name), kind=kind, group=group)
        for name, kind, group in (
            ("a", "matmul", "late"),
            ("b", "primitives", "copies"),
            ("c", "matmul", "early"),
            ("d", "matmul", "late"),
        )
    ]
    found = [(group.name, [case.id for case in group.cases]) for group in grouped(cases)]
    assert found == [("copies", ["b"]), ("late", ["a", "d"]), ("early", ["c"])]


# --- counters -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measured", "bounds"),
    [
        ({"M": 5.0, "MTE2": 3.0}, ({"M"}, {"MTE2"})),  # of the two that were measured
        ({"M": 5.0}, ({"M"}, {"M"})),
        ({}, (set(), {"MTE3"})),  # of all but S
    ],
)
def test_the_estimated_bound_is_among_the_measured_pipes_or_all_but_s(measured, bounds):
    assert bounds_of(measured, {"S": 9.0, "M": 4.0, "MTE2": 6.0, "MTE3": 8.0}) == bounds


def test_a_pipe_is_active_while_anything_of_it_is_under_way():
    """The union of start..done over the instructions of a pipe, found instant by instant."""
    kernel = estimate_matmul(MatmulProblem(100, 90, 80), product="910B").kernels[-1].kernel
    timeline = time_kernel(kernel, load_profile("910B"))
    # The last phase: vector cores bring operands into fractals in the first one.
    phase = timeline.phases[-1]
    totals = {}
    for work in phase.cores:
        covered = {}
        for instruction, start, done in zip(work.program.instructions, work.start, work.done, strict=True):
            covered.setdefault(instruction.pipe, set()).update(range(start, done))
        lengths = {pipe: len(instants) for pipe, instants in covered.items()}
        assert core_active_cycles(work) == lengths
        for pipe, cycles in lengths.items():
            totals[pipe] = totals.get(pipe, 0) + cycles * len(work.cores)
    cores = sum(len(work.cores) for work in phase.cores)
    assert active_cycles(timeline) == {pipe: total / cores for pipe, total in totals.items()}


# --- single instructions ------------------------------------------------------------------------------------


def test_an_instruction_is_compared_in_cycles():
    found = compare(made("move", group="GM->L1"))
    assert (found.kind, found.group, found.unit, found.measured) == ("primitives", "GM->L1", "cycles", 173.0)
    assert abs(found.error) < 0.05


def test_a_row_of_equal_instructions_hides_the_latency():
    """16 KiB at 256 bytes a cycle and a head of 2 on the way; alone also 20 until the result is visible."""
    row = made("move", path="L1_L0A", bytes=16384)
    alone, stream = (compare(replace(row, in_a_row=told)).estimated for told in (False, True))
    assert (alone, stream) == (2 + 64 + 20, 2 + 64)


def test_a_copy_that_turns_rows_into_fractals_has_its_own_pace():
    plain, turning = (compare(made("move", bytes=4096, relayout=told)).estimated for told in ("no", "yes"))
    assert turning > 2 * plain


@pytest.mark.parametrize(("path", "core"), [("L1_BT", "cube"), ("UB_UB", "vector"), ("UB_GM", "vector")])
def test_every_path_has_an_instruction(path, core):
    found = compare(made("move", path=path, bytes=256))
    assert found.estimated > 0, core


def test_figures_can_be_replaced():
    slow = compare_rows([made("move")], overrides=(("paths.GM_L1.latency_cycles", 2000),))
    assert slow.cases[0].estimated > 1000


# --- streams ------------------------------------------------------------------------------------------------


def test_a_stream_takes_its_bytes_over_the_rate_of_its_link():
    found = compare(made("stream", cores=64, bytes=64 << 20, moved_bytes=2048 << 20))
    link = load_profile("950DT_9582").links["l2_read"]
    # 2 GiB over what the vector cores reach together, and a little for the start.
    seconds = 2048 * (1 << 20) / (float(link.nominal_tb_per_s) * 1e12)
    assert seconds * 1e6 < found.estimated < seconds * 1e6 * 1.5


def test_copies_of_one_tile_cost_more_where_they_are_small_or_unaligned():
    sample = {"variant": "910B1", "path": "GM_L1", "cores": 24, "bytes": 1 << 24, "moved_bytes": 1 << 24}
    whole = compare(made("stream", **sample)).estimated
    assert compare(made("stream", **sample, tile_bytes=512)).estimated > whole
    rows = {"tile_bytes": 8192, "tile_rows": 64}
    lines, anywhere = (compare(made("stream", **sample, **rows, aligned=told)) for told in ("yes", "no"))
    assert anywhere.estimated > lines.estimated


def test_cores_that_share_a_working_set_read_all_of_it():
    one, other = (compare(made("stream", cores=8, shared=told)) for told in ("no", "yes"))
    assert one.estimated > 0
    assert other.estimated > 0


# --- matrix products ----------------------------------------------------------------------------------------


def planned(variant="910B1", **columns):
    row = made("matmul", **{"m": 512, "k": 256, "n": 384} | columns)
    problem = MatmulProblem(row.m, row.k, row.n, row.batch)
    return plan_of(row, problem, load_profile(variant))


def test_split_cores_take_what_their_operator_plans():
    tiling, note = planned(m=4096, n=4096, blocks=24)
    assert (tiling.base_m, tiling.base_n, tiling.base_k) == (128, 256, 64)
    assert note.endswith("by the rules of the product's operator: basic blocks")
    assert "operator" not in planned(m=4096, n=4096, blocks=24, strategy="search")[1]
    # On some of the cores alone it is not the kernel whose rules are known.
    assert "operator" not in planned(m=4096, n=4096, blocks=4)[1]


def test_inferred_plans_bring_both_operands_for_every_tile():
    for variant in ("910B1", "910A"):
        tiling, note = planned(variant, blocks=6)
        assert not tiling.reuse_l1
        assert "both operands" in note


def test_the_measured_number_of_blocks_is_kept():
    assert planned(blocks=6)[0].used_cores <= 6
    t, _ = planned("910A", blocks=6)
    assert -(-512 // t.single_core_m) * -(-384 // t.single_core_n) == 6


def test_a_given_plan_is_kept_and_nothing_is_inferred():
    tiling, note = planned(base_m=128, base_n=256, base_k=64, step_ka=4, used_cores=24)
    assert (tiling.base_m, tiling.base_n, tiling.base_k, tiling.step_ka) == (128, 256, 64, 4)
    assert (tiling.used_cores, tiling.al1_buffers, note) == (24, 2, "")


def test_a_product_is_compared_with_its_counters():
    found = compare(made("matmul", m_us=2, mte2_us=9, inferred="batch taken as 1"))
    assert (found.measured, found.unit) == (10.0, "us")
    assert set(found.counters) == {"M", "MTE2"}
    assert found.bounds[0] == {"MTE2"}
    assert found.note.startswith("tiling inferred: ")
    assert found.note.endswith("; batch taken as 1")


def test_what_l2_holds_and_how_operands_lie_reach_the_model():
    # 100 rows of a: stored the other way round they are columns, and its rows begin at no line of L2.
    plain = compare(made("plan", m=100)).estimated
    for change in ({"l2_start": "cold"}, {"transpose_a": "yes"}, {"layout": "NZ"}, {"compute_dtype": "hf32"}):
        assert compare(made("plan", m=100, **change)).estimated != plain, change


def test_long_products_of_one_core_follow_from_two_rows_of_tiles(monkeypatch):
    # 16 rows of tiles that all cost the same: the rest follows from the second within a hundredth.
    row = made("plan", m=1024, used_cores=1, single_core_m=1024, single_core_n=256)
    whole = compare(row).estimated
    monkeypatch.setattr("ascendsim.validate.kernels.MOST_SLICES", 10)
    assert compare(replace(row, batch=1, n=256, k=256, m=1024, swizzle=2)).estimated == pytest.approx(
        whole, 0.05
    )


def test_one_pipe_of_one_core_is_compared_by_the_tiles_it_took():
    one, two = (compare(made("tiles", tiles_on_core=count)) for count in (1, 2))
    assert two.estimated == pytest.approx(2 * one.estimated, rel=0.02)
    assert two.bounds == (frozenset(), frozenset())
    # A tile is one Mmad of 8 x 8 x 16 fractals, one a cycle after the head; the pipe works until it is there.
    profile = load_profile("910B3")
    cycles = profile.cube.mmad_head_cycles + 8 * 8 * 16 + profile.cube.mmad_latency_cycles
    assert one.estimated == cycles / profile.clock.cube_mhz


# --- convolution gradients ----------------------------------------------------------------------------------


def test_a_window_may_be_told_in_full_or_where_it_is_not_usual():
    short = compare(made("grad_input", padding="1x1"))
    full = compare(made("grad_input", stride="1x1", dilation="1x1", groups=1))
    assert short.estimated == full.estimated


def test_each_gradient_is_its_own_kernel():
    assert compare(made("grad_input")).estimated != compare(made("grad_weight")).estimated


def test_three_dimensions_and_padding_that_differs_are_taken():
    deep = made("grad_weight", input_shape="2x32x4x12x10", weight_shape="48x32x3x3x3", padding="1x1x1")
    assert isinstance(compare(deep), MeasuredCase)
    uneven = made("grad_input", input_shape="2x32x24x20", stride="2x2", padding="0x1x0x1")
    assert isinstance(compare(uneven), MeasuredCase)


def test_where_the_cube_has_no_single_precision_operands_are_cast_before():
    old = {"variant": "910A"}
    single, half = (compare(made("grad_input", **old, compute_dtype=d)) for d in ("float32", "float16"))
    assert single.estimated == half.estimated


def test_a_gradient_without_counters_tells_its_estimated_bound_alone():
    found = compare(made("grad_input"))
    assert found.bounds[0] == frozenset()
    assert found.bounds[1]
    assert found.bound_right is None


# --- a whole table ------------------------------------------------------------------------------------------


def test_what_is_not_compared_is_told_with_its_reason():
    rows = [
        made("move", id="good"),
        made("move", id="old", role="skip", reason="too old"),
        made("move", id="bad", bytes="x"),
        made("move", id="unknown", kernel="copy"),
        made("matmul", id="other class", m="x"),
    ]
    told = []
    found = compare_rows(rows, ["primitives"], told.append)
    assert [case.id for case in found.cases] == ["good"]
    assert [row.id for row in found.unusable] == ["old", "bad", "unknown"]
    assert found.unusable[0] == Unusable("old", "too old", "primitives")
    assert told == [row.id for row in rows]


def test_rows_of_other_classes_are_left_out():
    assert compare_rows([made("move")], ["matmul"]) == compare_rows([], ["matmul"])


def test_a_case_keeps_what_its_row_says_of_it():
    found = compare(made("move", role="fit", quote="yes", group="copies", source="here"))
    assert (found.role, found.used_for, found.quote) == ("fit", "calibration", True)
    assert (found.group, found.source, found.variant) == ("copies", "here", "910B1")
    assert compare(made("move", role="report")).used_for == "validation"


# --- fitted figures and aims --------------------------------------------------------------------------------


def test_a_figure_of_the_base_is_fitted_there_and_not_again():
    assert "cube.mmad_head_cycles" in fitted("910B")
    assert set(fitted("910_93")) == {
        *("paths.GM_UB.latency_cycles", "paths.UB_GM.latency_cycles", "paths.UB_GM.bytes_per_cycle")
    }
    assert fitted("310P") == {}


def test_aims_take_the_groups_that_they_name():
    cases = [
        replace(case(100, 112), group="published tilings", bounds=(frozenset("M"), frozenset("M"))),
        replace(case(100, 120), group="other, first generation"),
        replace(case(100, 105), group="pipes of one core"),
        replace(case(100, 190), group="pipes of one core", role="report"),
        replace(case(100, 101), kind="primitives"),
    ]
    found = {(item.target.name, item.target.statistic): item for item in reached(cases)}
    assert found["matrix products, published tilings", "worst"].kept
    assert not found["those of the first generation", "median"].kept
    assert found["pipes of one core, runs r1, r2, r4", "worst"].value == pytest.approx(0.05)
    assert found["primitives", "p95"].value == pytest.approx(0.01)
    assert found["matrix products of this table", "bounds"].count == 1
    assert len(found) < len(TARGETS)


# --- How near do the estimates come to measurements? The aims, with room for none of them to slip. -----
# Rows that a source published are in the project and always compared; the others need the outside table.

# What is not reached, with what it may at most be: products whose plans no source tells, one counter of one
# run, and a call with merged groups of one tap.
SHORT = {
    "those of the first generation": 0.165,
    "pipes of one core, runs r1, r2, r4": 0.25,
    "3-D grad_weight calls, 910B2": 0.48,
}


# Kinds of primitives that are not within 3 %, median: their tables and kernels contradict each other, or hide
# which requests they make.
KINDS = {
    "GM->L1_TRANS": 0.08,
    "GM->L0A": 0.08,
    "load repeats GM->L0A": 0.06,
    "one copy and its wait": 0.065,
    "streams": 0.055,
}


@pytest.fixture(scope="module")
def rows(measured_table):
    return [row for row in read_rows(measured_table) if isinstance(row, MeasuredRow)]


def hold(cases, statistics=("median", "p90", "p95", "worst", "bounds")):
    found = [item for item in reached(cases) if item.target.statistic in statistics]
    for item in found:
        limit = SHORT.get(item.target.name, item.target.limit)
        assert item.value <= limit, f"{item.target.name}: {item.target.statistic} {item.value:.3f}"
    return {(item.target.name, item.target.statistic) for item in found}


def begins(rows, *prefixes):
    return [row for row in rows if row.id.startswith(prefixes)]


@pytest.mark.slow  # the committed page of the validation holds each of their figures
def test_quoted_matrix_products_are_within_their_limits():
    quoted = begins(quoted_rows(), "pto-gemm-", "ad-mm8192-")
    # The whole product on one core of the 950 takes half a minute to walk: it is in the slow test.
    held = hold(compare_rows([row for row in quoted if row.id != "ad-mm8192-case0-950"]).cases)
    assert len(held) == 3


def test_primitives_are_within_their_limits(rows):
    cases = compare_rows(rows, ["primitives"]).cases
    assert len(cases) > 1000
    assert len(hold(cases)) == 2
    # Each kind of instruction by itself, not only all together.
    groups = {}
    for case in cases:
        groups.setdefault(case.group, []).append(case)
    for name, own in groups.items():
        assert summarise(own).median <= KINDS.get(name, 0.03), name


def test_pipes_of_one_core_are_within_their_limits(rows):
    cases = compare_rows(begins(rows, "cz-")).cases
    assert hold(cases)
    # The Fixpipe of the run of a single slice falls short; everything else is within 10 %.
    near = [
        case for case in cases if not case.id.startswith("cz-r3") and case.id[:5] + case.id[-3:] != "cz-r1FIX"
    ]
    assert summarise(near).worst <= 0.10
    # Where tiles leave one by one Fixpipe is met exactly.
    alone = [case for case in cases if case.id.startswith(("cz-r2", "cz-r4")) and case.id.endswith("FIX")]
    assert summarise(alone).worst <= 0.01


@pytest.mark.slow
def test_all_matrix_products_are_within_their_limits(rows):
    held = hold(compare_rows(rows, ["matmul"]).cases)
    assert held == {(target.name, target.statistic) for target in TARGETS if target.kind == "matmul"}


def test_gradients_of_networks_are_within_their_limits(rows):
    steps = begins(rows, "msi-alex-conv", "hpm-resnet50", "hpm-yolov5", "hpm-inceptionv3")
    held = hold(compare_rows(steps, ["convolution"]).cases)
    assert held == {(target.name, target.statistic) for target in TARGETS if target.kind == "convolution"}


def test_a_constant_lowers_the_errors_of_its_rows(rows):
    found = {item.path: item for item in ablations("910_93", rows)}
    assert set(found) == set(fitted("910_93"))
    for item in found.values():
        assert item.count > 0
        assert item.kept[1] < item.dropped[1]


@pytest.mark.slow
@pytest.mark.parametrize("product", ["910", "910B", "910_95"])
def test_every_constant_lowers_an_error_of_its_rows(rows, product):
    for item in ablations(product, rows):
        assert item.kept[0] < item.dropped[0] or item.kept[1] < item.dropped[1], item.path


@pytest.mark.slow
def test_figures_with_a_range_move_the_main_job_by_what_they_can():
    found = {effect.figure: effect for effect in sensitivity("310P")}
    # Launch counts once for each kernel: its low end is below, its high end above.
    launch = found["launch.base_us"]
    low, high = launch.changes
    assert low < 0 < high
    assert launch.largest_change == max(-low, high)
    assert found["links.memory.latency_cycles"].largest_change == 0  # everything is warm
