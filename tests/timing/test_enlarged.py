"""Does a better figure of a product ever make a call slower under the better of its plans, and by how much?

`docs/enlarged.md` has all products, figures and layers; here are samples of them.
"""

import re
from pathlib import Path

import pytest

from ascendsim import ConvProblem, load_profile
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.hardware.gains import study_hardware
from ascendsim.studies.hardware.records import Question, StudiedLayer
from ascendsim.workloads import load_workload
from tools.enlarged import SAMPLE, SAMPLE_STARTS, SAMPLE_TITLE, changes_of, slower_of

# What docs/timing.md says that a better figure cost at most, as a part of a call.
MOST = 0.0006
# A larger UB changes how kernels that lay tensors out anew are dealt: longer pieces, on fewer cores.
MOST_OF_UB = 0.01
PAGE = Path(__file__).parents[2] / "docs" / "enlarged.md"


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
        most = MOST_OF_UB if "UB.capacity_bytes" in gain.change else MOST
        for layer in gain.layers:
            assert layer.better_us <= (1 + most) * layer.base_us, (gain.change, layer.layer)


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
    # Where UB is larger a change of layout has longer pieces, and fewer cores for them.
    studied = layers("s3b1_3x3", batch=32)
    (change,) = (c for c in changes_of(load_profile("910B2")) if "UB.capacity_bytes" in c.name)
    (gain,) = gains("910B2", (change,), studied)
    (one,) = slower_of("910B2", gain, studied)
    said = [int(by.replace(",", "")) for by in re.findall(r"[+-][\d,]+", one.waits)]
    # Busy, waits and idle are all of a kernel's cycles, so that their differences are its difference.
    assert sum(said) == one.after - one.before > 0
    assert one.kernel == "transdata_grad_output"


def test_the_page_has_no_case_above_what_timing_says():
    rows = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("| 9")]
    summary = {row[0].strip(): float(row[-1]) for row in rows}
    assert set(summary) == {"910B2", "910_93", "910_95", "910"}
    assert max(summary.values()) <= 100 * MOST


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
        assert most <= 100 * MOST
