"""Are the pages under reports/ what the code makes today? `make reports` rewrites them."""

from pathlib import Path

import pytest

from ascendsim.cli.validate import CLASSES
from ascendsim.profile import list_products, load_profile
from ascendsim.report.folder import (
    OUTSIDE,
    PRODUCTS,
    constants_part,
    profiles_page,
    sensitivity_page,
    validation_page,
)
from ascendsim.report.pictures import plot_scatter
from ascendsim.report.validation import UNMEASURED
from ascendsim.studies.sweep import LAYER_NAME, sensitivity
from ascendsim.validate.ablation import ablations
from ascendsim.validate.run import compare_rows, quoted_rows
from ascendsim.validate.schema import read_rows

REPORTS = Path(__file__).parents[2] / "reports"


def expect(name, text, update):
    """Compare a page with the committed one, or rewrite it."""
    if update:
        REPORTS.mkdir(exist_ok=True)
        (REPORTS / name).write_text(text)
    assert (REPORTS / name).read_text() == text, f"reports/{name} is old: `make reports` rewrites it"


@pytest.fixture(scope="module")
def quoted():
    return compare_rows(quoted_rows(), CLASSES)


def test_the_products_side_by_side(update):
    expect("profiles.md", profiles_page([load_profile(name) for name in PRODUCTS], list_products()), update)


@pytest.mark.slow
def test_what_the_assumed_figures_move(update):
    # Some 300 estimates of a layer: a minute or two.
    effects = {product: sensitivity(product) for product in PRODUCTS}
    expect("sensitivity.md", sensitivity_page(LAYER_NAME, effects), update)


def test_the_quoted_part_of_the_validation(quoted, update):
    if update:
        pytest.skip("rewritten with the rows at hand")
    committed = (REPORTS / "validation.md").read_text()
    made = validation_page(quoted, quoted, [])
    assert committed.partition(OUTSIDE)[0] == made.partition(OUTSIDE)[0]


@pytest.mark.slow
def test_the_whole_validation(quoted, measured_table, update):
    rows = read_rows(measured_table)
    outcome = compare_rows(rows, CLASSES)
    constants = constants_part({product: list(ablations(product, rows)) for product in PRODUCTS})
    expect("validation.md", validation_page(quoted, outcome, constants), update)
    if update:
        plot_scatter(REPORTS / "validation.png", outcome.cases)


@pytest.mark.parametrize("name", ["profiles.md", "sensitivity.md", "validation.md"])
def test_every_page_says_what_was_never_measured(name):
    assert UNMEASURED in (REPORTS / name).read_text()


def test_no_measured_number_of_an_outside_row_is_committed():
    # The part after the mark has statistics, not the rows: no table with a column "measured".
    outside = (REPORTS / "validation.md").read_text().partition(OUTSIDE)[2]
    assert "| row | on |" not in outside
    assert "| measured |" not in outside


def test_every_product_has_its_constants_listed():
    outside = (REPORTS / "validation.md").read_text().partition(OUTSIDE)[2]
    for product in PRODUCTS:
        assert f"**{product}**" in outside
