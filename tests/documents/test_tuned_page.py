"""Does docs/tuned.md say what its tool finds, and do its totals follow from its rows?"""

from pathlib import Path

import pytest

from ascendsim.report.markdown import markdown_table
from ascendsim.studies.engine.run import Engine, Store
from tools.tuned import kernels, table, tuned

PAGE = Path(__file__).parents[2] / "docs" / "tuned.md"


def rows():
    """The cells of each gradient."""
    lines = [line for line in PAGE.read_text().splitlines() if "| grad_" in line and line.count("|") == 12]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_gradient_of_training_is_on_the_page():
    # 23 layers, two gradients each, but no grad_input of the first.
    asked = [(layer, gradient, str(count)) for layer, gradient, count, _ in kernels(32)]
    assert len(asked) == 45
    assert [tuple(row[:3]) for row in rows()] == asked


def test_the_totals_are_those_of_the_rows():
    for gradient in ("grad_input", "grad_weight"):
        own = [row for row in rows() if row[1] == gradient]
        before, after, bound = (sum(int(row[2]) * float(row[at]) for row in own) for at in (3, 4, 6))
        # Rows have hundredths of a microsecond, and layers come up to six times.
        [line] = (line for line in PAGE.read_text().splitlines() if line.startswith(f"| {gradient} |"))
        said = [float(cell.replace(",", "")) for cell in line.strip("|").split("|")[1:]]
        assert said == pytest.approx([before, after, 100 * (1 - after / before), bound], abs=1)


def test_no_tuned_plan_is_slower_than_the_products_or_faster_than_the_bound():
    for row in rows():
        assert float(row[6]) <= float(row[4]) <= float(row[3]), row


def test_the_total_falls_by_at_least_3_percent():
    [both] = (line for line in PAGE.read_text().splitlines() if line.startswith("| both |"))
    assert float(both.split("|")[4]) >= 3


def test_a_gradient_is_found_as_the_page_has_it():
    kernel = next(each for each in kernels(32) if each[:2] == ("s2b0_1x1a", "grad_input"))
    found = tuned("910B2", kernel, 100, Engine(Store(), 1))
    line = next(line for line in PAGE.read_text().splitlines() if line.startswith("| s2b0_1x1a | grad_input"))
    # The digits of the page; the same tool wrote it.
    assert line in markdown_table(table([found]))
