"""Are the pages under reports/ what the code makes today? `make reports` rewrites them."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from ablation import ablations
from ascendsim.cli.validate import CLASSES
from ascendsim.profile import Figure, ShippedProduct, list_products, load_profile
from ascendsim.report.folder import OUTSIDE, validation_page
from ascendsim.report.pictures import plot_scatter
from ascendsim.report.validation import quoted_part, unmeasured
from ascendsim.studies.records import FigureEffect
from ascendsim.validate.run import Validation, compare_rows, quoted_rows
from ascendsim.validate.schema import read_rows
from committed_pages import (
    LAYER_NAME,
    PRODUCTS,
    constants_part,
    profiles_page,
    sensitivity,
    sensitivity_page,
)

# --- Are the pages under reports/ what the code makes today? `make reports` rewrites them. -------------

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
def test_what_the_ranges_of_figures_move(update):
    # Some 300 estimates of a layer: a minute or two.
    effects = {product: sensitivity(product) for product in PRODUCTS}
    expect("sensitivity.md", sensitivity_page(LAYER_NAME, effects), update)


@pytest.mark.slow
def test_the_quoted_part_of_the_validation(quoted, update):
    if update:
        pytest.skip("rewritten with the rows at hand")
    committed = (REPORTS / "validation.md").read_text()
    made = validation_page(quoted, quoted, [])
    assert committed.partition(OUTSIDE)[0] == made.partition(OUTSIDE)[0]


def test_the_quick_ones_of_the_quoted_rows(update):
    """All but the largest matrix products, which take most of half a minute: a line of the page each."""
    if update:
        pytest.skip("rewritten with the rows at hand")
    committed = (REPORTS / "validation.md").read_text().partition(OUTSIDE)[0].splitlines()
    quick = [row for row in quoted_rows() if not row.id.startswith("ad-mm8192-")]
    made = quoted_part(compare_rows(quick, CLASSES))
    lines = [line for part in made for line in part.splitlines()]
    shown = [line for line in lines if any(line.startswith(f"| {row.id} ") for row in quick)]
    assert len(shown) >= 20
    assert [line for line in shown if line not in committed] == []


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
    assert unmeasured() in (REPORTS / name).read_text()


def test_no_measured_number_of_an_outside_row_is_committed():
    # The part after the mark has statistics, not the rows: no table with a column "measured".
    outside = (REPORTS / "validation.md").read_text().partition(OUTSIDE)[2]
    assert "| row | on |" not in outside
    assert "| measured |" not in outside


def test_every_product_has_its_constants_listed():
    outside = (REPORTS / "validation.md").read_text().partition(OUTSIDE)[2]
    for product in PRODUCTS:
        assert f"**{product}**" in outside


# -------------------------------------------------------------------------------------------------------
# Are the pages under reports/ true to records made by hand? `test_reports_committed` makes the real ones.
# -------------------------------------------------------------------------------------------------------


def effect(figure, low_us, high_us, value=10, low=0, high=20):
    return FigureEffect(figure, value, low, high, 100.0, low_us, high_us)


def test_the_largest_effect_comes_first_and_small_ones_are_named():
    effects = (
        effect("b.little", 99.94, 100.0),
        effect("a.still", 100.0, 100.04),  # less than the 0.05 % that count
        effect("c.much", 90.0, 125.0),
        effect("d.limited", None, 110.0, value=0.5, low=0.25, high=[1, 2]),
    )
    text = sensitivity_page("a layer", {"toy": effects})
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows == [
        "| `c.much` | 10 | 0 | 20 | -10.0% | +25.0% |",
        "| `d.limited` | 0.5 | 0.25 | 1 2 | not possible | +10.0% |",
        "| `b.little` | 10 | 0 | 20 | -0.1% | +0.0% |",
    ]
    assert "No effect here: `a.still`." in text
    assert "both gradients of a layer." in text
    assert text.index("| figure |") < text.index("No effect")


def test_equal_effects_come_by_name():
    effects = (effect("b", 90.0, 100.0), effect("a", 100.0, 110.00000000000001))
    rows = [line for line in sensitivity_page("x", {"toy": effects}).splitlines() if line.startswith("| `")]
    assert [row[:5] for row in rows] == ["| `a`", "| `b`"]


def test_a_product_whose_every_figure_counts_says_so():
    text = sensitivity_page("x", {"one": (effect("a", 90.0, 110.0),), "two": (effect("b", 100.0, 100.0),)})
    first, _, second = text.partition("**two**")
    assert "Every figure with a range moves it." in first
    assert "No effect here: `b`." in second


def test_a_constant_is_shown_with_and_without():
    item = SimpleNamespace(
        path="cube.head",
        value=9,
        without=0,
        rows=("x-1", "y"),
        count=12,
        kept=(0.01, 0.02),
        dropped=(0.3, 0.25),
    )
    parts = constants_part({"toy": [item], "bare": []})
    assert "| `cube.head` | 9 | 0 | x-1, y | 12 | 1.0%, 2.0% | 30.0%, 25.0% |" in parts[2]
    assert parts[3] == "**bare**: none; there is nothing to fit them on."


def test_products_stand_side_by_side():
    def toy(product, **figures):
        return SimpleNamespace(
            product=product, variant=f"{product}1", evidence=f"of {product}", figures=figures
        )

    sourced = {"source": "s", "confidence": "measured"}
    assumed = {"source": "s", "confidence": "assumed"}
    one = toy(
        "one",
        rate=Figure(1.5, **sourced),
        size=Figure(65536, **assumed, range=(1024, 131072)),
        model=Figure("a", **assumed, range=("a", "b")),
        strict=Figure(True, **sourced),
    )
    two = toy("two", rate=Figure(2.0, **sourced), steps=Figure([1, 2], **sourced))
    text = profiles_page([one, two], [ShippedProduct("one", "one1", ("one1", "one2"), "")])
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows == [
        "| `model` | a* (a or b) |  |",
        "| `rate` | 1.5 | 2 |",
        "| `size` | 65,536* (1,024 to 131,072) |  |",
        "| `steps` |  | 1 2 |",
        "| `strict` | yes |  |",
    ]
    assert "| one | one1 | one1, one2 |" in text
    assert "| two | of two |" in text


def test_a_validation_without_outside_rows_still_marks_where_they_would_come():
    empty = Validation((), ())
    text = validation_page(empty, empty, ["## Constants"])
    assert text.index("## Rows that are quoted") < text.index(OUTSIDE) < text.index("## Constants")
