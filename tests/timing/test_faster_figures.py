"""When does a faster figure cost no cycles, and how many can it cost a call?"""

import re
from pathlib import Path

import pytest

from ascendsim import ConvProblem, MatmulProblem, Tiling, estimate, estimate_matmul
from ascendsim.profile import load_profile, parse_changes
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.hardware.figures import better_value, enlargings
from ascendsim.studies.hardware.gains import study_hardware
from ascendsim.studies.hardware.records import Question, StudiedLayer
from ascendsim.timing.kernel import time_kernel
from ascendsim.workloads import load_workload
from tests.timing.test_peaks import copies, run
from tools.enlarged import SAMPLE, SAMPLE_STARTS, SAMPLE_TITLE, changes_of, slower_of

# --- At a fixed program, when does a faster figure cost no cycles, and how many can it cost elsewhere? -
# It cannot cost any where nothing is shared (`links.py` says why): no link is asked for more than its
# total, no two pipes of a core use one link, and no instruction's cost rises when a figure gets faster. So
# every figure of a product that is a time or a rate is made faster, one after the other, and real kernels
# are timed again as they are. What decides what a program looks like or what L2 holds is no such figure.
#
# Where kernels do share links, with unequal cores, misses and write-back, a faster figure may cost
# something; `docs/timing.md` says how little that has been, and the tests that it stays so.

UNEVEN = ConvProblem(input=(3, 72, 15, 13), weight=(40, 72, 3, 3), stride=2, padding=1)
# Less L2 than the kernels touch, so that they miss and write back.
SMALL_L2 = {"l2.capacity_bytes": 100_000}
# What a figure may cost where links are shared: a share of a kernel's cycles, and in which share of cases.
MOST, OFTEN = 0.01, 0.02


def test_figures_are_made_faster_in_the_right_direction():
    assert better_value("scalar.issue_cycles", 4) == 2
    assert better_value("paths.GM_L1.bytes_per_cycle", 174) == 348
    assert better_value("links.memory.efficiency", 0.95) == 1.0
    assert better_value("links.memory.nominal_tb_per_s", 1.5) == 3.0
    assert better_value("vector.repeat_cycles.unary", 1) == 1
    assert better_value("paths.L0C_UB.m_stall_share", 0.5) == 0.25
    # A fraction of a cycle is halved as it is: rounded down, 0.2 would be nothing.
    assert better_value("vector.pixel_block_cycles", 0.2) == 0.1
    assert better_value("queues.cube.M", 16) == 32
    assert better_value("launch.base_us", 0.4) == 0.2
    none = {"cores.cube": 24, "npu_arch": "2201", "l2.line_bytes": 512}
    assert [better_value(path, value) for path, value in none.items()] == [None] * 3


def figures_of(product):
    """Paths and faster values of all figures of speed that a file gives."""
    profile = load_profile(product)
    alone = [change.figures for change in enlargings(profile) if len(change.figures) == 1]
    values = {path: value for figures in alone for path, value in figures.items()}
    speeds = {path for path in values if better_value(path, profile.figures[path].value) is not None}
    return {path: value for path, value in values.items() if path in speeds}


def test_sizes_are_doubled_and_what_belongs_together_changes_together():
    made = {change.name: change.figures for change in enlargings(load_profile("910B2"))}
    # 24 cube cores have two vector cores each; both clocks are one.
    assert made["cores.cube=48+cores.vector=96"] == {"cores.cube": 48, "cores.vector": 96}
    assert made["clock.cube_mhz=3600+clock.vector_mhz=3600"] == {
        "clock.cube_mhz": 3600,
        "clock.vector_mhz": 3600,
    }
    assert made["buffers.L0C.capacity_bytes=262144"] == {"buffers.L0C.capacity_bytes": 2 * 128 * 1024}
    # What follows from other figures is none: 4096 multiply-adds a cycle are 16 x 16 x k0.
    assert not [name for name in made if "macs_per_cycle" in name or "barrier_cycles" in name]


@pytest.mark.parametrize("product", ["910B", "910_93", "910_95", "310P", "910"])
def test_every_enlarging_is_a_change_that_the_product_takes(product):
    profile = load_profile(product)
    for change in enlargings(profile):
        values = load_profile(product, overrides=dict(change.on(profile))).figures
        assert all(values[path].value == value for path, value in change.figures.items())
        # What the table names can be asked for by that name: 402653184 bytes, not 4.02653e+08.
        (said,) = parse_changes(change.name)
        assert said.figures == pytest.approx(change.figures, rel=1e-11)


def cycles(kernels, profile, starts):
    return [time_kernel(one, profile, l2_start=start).cycles for one in kernels for start in starts]


def rises(product, kernels, overrides, starts=("warm",)):
    """By which share of a kernel's cycles a faster figure has made it slower, for every figure and kernel."""
    before = cycles(kernels, load_profile(product, overrides=overrides), starts)
    for path, value in figures_of(product).items():
        if path in overrides:  # faster already than twice the product's own
            continue
        after = cycles(kernels, load_profile(product, overrides=overrides | {path: value}), starts)
        for new, old in zip(after, before, strict=True):
            yield new / old - 1, path


def kernels_of(product, problem):
    return [kernel for kernel in all_of(product, problem) if kernel.op_type != "TransData"]


def all_of(product, problem):
    return [result.kernel for result in estimate(problem, product=product).kernels]


def wide(product):
    """Overrides by which no link is short: a thousand times the rate for all cores, the same for each."""
    figures = load_profile(product).figures
    return {
        path: 1000.0 * float(figure.value)
        for path, figure in figures.items()
        if path.startswith("links.") and path.endswith("nominal_tb_per_s")
    }


def check_alone(product, kernels):
    """Where no link is short and L2 holds everything no figure may cost a cycle."""
    for rise, path in rises(product, kernels, wide(product)):
        assert rise <= 0, path


def check_shared(product, kernels):
    """Where links are short a figure may cost little, and few of them anything."""
    made = [rise for l2 in ({}, SMALL_L2) for rise, _ in rises(product, kernels, l2, ("warm", "cold"))]
    assert max(made) <= MOST
    assert sum(rise > 0 for rise in made) <= OFTEN * len(made)


def test_enough_figures_are_tried():
    tried = figures_of("910B")
    assert len(tried) > 70
    assert {"links.memory.per_core_bytes_per_cycle", "sync.barrier_us", "paths.GM_UB.least_cycles"} <= set(
        tried
    )


def test_no_faster_figure_costs_cycles_where_nothing_is_shared():
    check_alone("910B", kernels_of("910B", UNEVEN))


def test_a_faster_figure_costs_a_change_of_layout_one_cycle_at_most():
    # Not none: with shared_efficiency at 1 one of them takes 6,288 cycles instead of 6,287. Why is not known.
    changes = [kernel for kernel in all_of("910B", UNEVEN) if kernel.op_type == "TransData"]
    assert len(changes) == 6
    # By kernel, for a share of a long one hides several cycles of a short one.
    for change in changes:
        [before] = cycles([change], load_profile("910B", overrides=wide("910B")), ("warm",))
        for rise, path in rises("910B", [change], wide("910B")):
            assert round(rise * before) <= 1, path


def test_a_faster_figure_costs_next_to_nothing_where_links_are_shared():
    check_shared("910B", kernels_of("910B", UNEVEN))


@pytest.mark.parametrize("product", ["910B", "910_95"])
def test_no_faster_figure_costs_cycles_with_the_unit_flag(product):
    plan = Tiling(64, 128, 64, 2, 2, used_cores=4, unit_flag=True)
    estimated = estimate_matmul(MatmulProblem(200, 300, 500), product=product, tiling=plan)
    check_alone(product, [result.kernel for result in estimated.kernels])


def test_a_faster_way_out_of_ub_does_not_cost_cycles_where_the_link_binds():
    # 64 KiB of each of 48 vector cores: the far side drains slower than UB, and the link slower than both.
    programs = [copies("UB_GM", core, 1, 64 * 1024) for core in range(48)]
    twice = load_profile("910B", overrides={"paths.UB_GM.bytes_per_cycle": 202.0})
    before, after = (run(programs, p, "vector").cycles for p in (load_profile("910B"), twice))
    assert after <= before


@pytest.mark.slow
@pytest.mark.parametrize("product", ["910_93", "910_95", "310P", "910"])
def test_no_faster_figure_costs_cycles(product):
    kernels = kernels_of(product, UNEVEN)
    check_alone(product, kernels)
    check_shared(product, kernels)


@pytest.mark.slow
@pytest.mark.parametrize("product", ["910B", "910_95", "310P"])
def test_no_faster_figure_costs_cycles_on_a_larger_problem(product):
    kernels = kernels_of(product, ConvProblem(input=(4, 96, 28, 28), weight=(128, 96, 3, 3), padding=1))
    check_alone(product, kernels)
    check_shared(product, kernels)


# -------------------------------------------------------------------------------------------------------
# Does a better figure of a product ever make a call slower under the better of its plans, and by how much?
# -------------------------------------------------------------------------------------------------------
# `reports/enlarged.md` has all products, figures and layers; here are samples of them.

# What docs/timing.md says that a better figure cost at most, as a part of a call.
MOST_SLOWER = 0.0006
# A larger UB changes how kernels that lay tensors out anew are dealt: longer pieces, on fewer cores.
MOST_OF_UB = 0.01
PAGE = Path(__file__).parents[2] / "reports" / "enlarged.md"


def layers(*names, batch):
    found = (load_workload("resnet50").layer(name) for name in names)
    return tuple(StudiedLayer(one.name, ConvProblem(**one.problem_options(batch)), one.mask) for one in found)


def gains(product, changes, studied, start="handed"):
    asked = Question("sample", product, studied, changes, (start,), doubt=False)
    answer, _ = study_hardware(asked, Engine(Store(), 1), Budget())
    assert not answer.refused
    return answer.gains


def check(product, studied, step=1, start="handed"):
    for gain in gains(product, changes_of(load_profile(product))[::step], studied, start):
        most = MOST_OF_UB if "UB.capacity_bytes" in gain.change else MOST_SLOWER
        for layer in gain.layers:
            assert layer.speed_us <= (1 + most) * layer.base_us, (gain.change, layer.layer)
            # Where it is slower, studies hold the part back.
            assert layer.better_us <= layer.base_us


def test_no_better_figure_costs_more_than_the_page_says():
    # Every fourth figure, of a layer that suffered from more cores.
    check("910_95", layers("s2b1_1x1a", batch=32), step=4)


@pytest.mark.parametrize("start", SAMPLE_STARTS)
def test_no_better_figure_costs_more_under_other_starts(start):
    check("910B2", layers("s3b1_3x3", batch=32), step=9, start=start)


@pytest.mark.slow
@pytest.mark.parametrize("start", SAMPLE_STARTS)
@pytest.mark.parametrize("product", ["910B2", "910_93", "910_95", "310P", "910"])
def test_no_better_figure_of_any_product_costs_more_under_other_starts(product, start):
    check(product, layers(*SAMPLE, batch=32), start=start)


@pytest.mark.slow
@pytest.mark.parametrize("product", ["910B2", "910_93", "910_95", "310P", "910"])
def test_no_better_figure_of_any_product_costs_more_than_the_page_says(product):
    check(product, layers("s3b1_1x1a", "s5b1_3x3", "s2b0_1x1b", batch=32))


@pytest.mark.parametrize("product", ["910B2", "310P"])
def test_figures_that_are_left_out_change_nothing(product):
    *_, unused = changes_of(load_profile(product))
    assert "that no kernel uses" in unused.name
    (gain,) = gains(product, (unused,), layers("s3b1_3x3", "s5b0_proj", batch=2))
    assert (gain.share, gain.same_us) == (0, gain.base_us)


def test_a_slower_call_is_told_with_the_waits_that_make_it_so():
    # Where UB is smaller a change of layout has shorter pieces.
    studied = layers("s3b1_3x3", batch=32)
    (change,) = parse_changes("buffers.UB.capacity_bytes=x0.25")
    (gain,) = gains("910B2", (change,), studied)
    (one,) = slower_of("910B2", gain, studied)
    said = [int(by.replace(",", "")) for by in re.findall(r"[+-][\d,]+", one.waits)]
    # Busy, waits and idle are all of a kernel's cycles, so that their differences are its difference.
    assert sum(said) == one.after - one.before > 0
    assert one.kernel.startswith("transdata")


def test_the_page_has_no_case_above_what_timing_says():
    rows = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("| 9")]
    summary = {row[0].strip(): float(row[-1]) for row in rows}
    assert set(summary) == {"910B2", "910_93", "910_95", "910"}
    assert max(summary.values()) <= 100 * MOST_SLOWER


def test_the_page_says_which_layers_were_run_under_other_starts():
    section = PAGE.read_text().partition(SAMPLE_TITLE)[2]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines()]
    summary = {tuple(row[:2]): row for row in rows if row and row[0] in SAMPLE_STARTS}
    # Each start on at least one product, of the layers that the text names.
    assert {start for start, _ in summary} == set(SAMPLE_STARTS)
    assert f"of three layers alone: {', '.join(SAMPLE)}" in " ".join(section.split())
    for row in summary.values():
        figures, calls, most = int(row[2]), int(row[3].replace(",", "")), float(row[5])
        assert calls == figures * len(SAMPLE)
        assert most <= 100 * MOST_SLOWER
