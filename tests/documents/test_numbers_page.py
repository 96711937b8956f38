"""Does docs/numbers.md define every number as the code does, and name every table that is printed?"""

import json
import re

import pytest

from ascendsim.cli import main
from ascendsim.profile.schema import CONFIDENCES
from ascendsim.report.markdown import markdown_table
from ascendsim.report.products import products_table
from ascendsim.report.tables import (
    CALL,
    ERRORS,
    GRADIENT,
    KERNEL,
    LAYER,
    TextTable,
    busy_table,
    bytes_table,
    gradient_table,
    layer_table,
    time_table,
)
from tests.documents.test_readme import ROOT
from tests.helpers.report_entries import GRADIENT as ENTRY
from tests.helpers.report_entries import NETWORK, PRODUCT

PAGE = ROOT / "docs" / "numbers.md"
HEADING = "## Names and definitions\n"
PLACES = (
    ("A call on a product (`products`)", CALL),
    ("A kernel (`products.kernels`)", KERNEL),
    ("A layer of a network (`products.layers`)", LAYER),
    ("A gradient (`products.gradients`)", (*GRADIENT, *ERRORS)),
)


def definitions():
    """The tables of all columns, as the page has them."""
    parts = [HEADING]
    for title, columns in PLACES:
        rows = tuple((c.heading, f"`{c.name}`", c.unit, c.definition) for c in columns)
        headings = ("in the tables", "in result.json", "unit", "meaning")
        parts.append(f"### {title}\n\n{markdown_table(TextTable('', headings, frozenset(range(4)), rows))}\n")
    return "\n".join(parts)


def test_every_number_is_defined_as_in_the_code(update):
    text = PAGE.read_text()
    before = text.partition(HEADING)[0]
    if update:
        PAGE.write_text(before + definitions())
        text = PAGE.read_text()
    assert text == before + definitions(), "`pytest THIS_TEST --update` rewrites the tables"


@pytest.mark.parametrize(
    "table",
    [
        products_table([PRODUCT, PRODUCT | {"interval": None}]),
        time_table(PRODUCT),
        busy_table(PRODUCT),
        bytes_table(PRODUCT),
        gradient_table(PRODUCT | {"gradients": [ENTRY]}),
        layer_table(NETWORK),
    ],
    ids=lambda table: table.title[:20],
)
def test_every_table_of_the_terminal_is_explained(table):
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    explained = [line.split("|")[1].strip() for line in lines]
    beginnings = [title.partition(" ...")[0] for title in explained]
    assert any(table.title.startswith(beginning) for beginning in beginnings if beginning), table.title


# Names that the file takes from elsewhere: pipes, buffers, confidences, figures of a product file.
TAKEN = {"S", "M", "V", "MTE1", "MTE2", "MTE3", "FIX", "L2", *CONFIDENCES}


def names_in(value, path=""):
    """Every name of a document, but for those under which it says values by figure or by field of a plan."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield name
            if path not in ("plan", "definitions") and name not in ("plan", "definitions"):
                of_figures = each.values() if name == "assumed_figures" else [each]
                for one in of_figures:
                    yield from names_in(one, name)
    elif isinstance(value, list):
        for each in value:
            yield from names_in(each, path)


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--input", "1,16,6,6", "--weight", "16,16,3,3", "--padding", "1", "--interval"),
        ("run", "--network", "alexnet", "--cycles-only"),
    ],
    ids=["a layer", "a network"],
)
def test_every_name_of_a_result_is_on_the_page(words, tmp_path, capsys):
    assert main([*words, "--no-trace", "--out", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    text = PAGE.read_text()
    found = set(names_in(json.loads((tmp_path / "out" / "result.json").read_text())))
    assert {"assumed_figures", "cube_mhz", "kernels"} <= found
    assert [name for name in sorted(found - TAKEN) if not re.search(rf"`[\w.]*\b{name}`", text)] == []
