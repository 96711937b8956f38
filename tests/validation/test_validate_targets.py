"""How near do the estimates come to measurements? The aims, with room for none of them to slip.

Rows that a source published are in the project and always compared; the others need the outside table.
"""

import pytest

from ascendsim.studies.sweep import sensitivity
from ascendsim.validate.ablation import ablations, fitted
from ascendsim.validate.compare import TARGETS, reached, summarise
from ascendsim.validate.run import compare_rows, quoted_rows
from ascendsim.validate.schema import Row, read_rows

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
    return [row for row in read_rows(measured_table) if isinstance(row, Row)]


def hold(cases, statistics=("median", "p90", "p95", "worst", "bounds")):
    found = [item for item in reached(cases) if item.target.statistic in statistics]
    for item in found:
        limit = SHORT.get(item.target.name, item.target.limit)
        assert item.value <= limit, f"{item.target.name}: {item.target.statistic} {item.value:.3f}"
    return {(item.target.name, item.target.statistic) for item in found}


def begins(rows, *prefixes):
    return [row for row in rows if row.id.startswith(prefixes)]


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
def test_assumed_figures_move_the_main_job_by_what_they_can():
    found = {effect.figure: effect for effect in sensitivity("310P")}
    # Launch counts once for each kernel: its low end is below, its high end above.
    launch = found["launch.base_us"]
    low, high = launch.changes
    assert low < 0 < high
    assert launch.largest_change == max(-low, high)
    assert found["links.memory.latency_cycles"].largest_change == 0  # everything is warm
