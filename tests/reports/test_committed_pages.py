"""Are the pages under reports/ true to records made by hand? `test_reports_committed` makes the real ones."""

from types import SimpleNamespace

from ascendsim.profile import Figure, Product
from ascendsim.report.folder import OUTSIDE, constants_part, profiles_page, sensitivity_page, validation_page
from ascendsim.studies.records import FigureEffect
from ascendsim.validate.run import Validation


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
    assert "Every assumed figure moves it." in first
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
    text = profiles_page([one, two], [Product("one", "one1", ("one1", "one2"), "")])
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
