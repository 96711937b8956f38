"""Are the words of docs/interface.md true?"""

import json
import re
from pathlib import Path

import pytest

from ascendsim.cli import main
from ascendsim.errors import STATUS_NAMES
from ascendsim.rules import load_rules, rule_set_names
from ascendsim.rules.convolution.arguments import ARGUMENT_CHECKS
from ascendsim.rules.convolution.empty import EMPTY_CHECKS, RELATED_EMPTY_CHECKS
from ascendsim.rules.convolution.shapes import INNER_CHECKS, SHAPE_CHECKS
from ascendsim.rules.from_cube import with_cube
from ascendsim.rules.tbc import TBC_CHECKS
from tests.helpers.rules_calls import answer, conv

PAGE = (Path(__file__).parents[2] / "docs" / "interface.md").read_text()


def section(title):
    """Return the text under a heading."""
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M)[1]


def block(language):
    """Return the only block of code in a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)
    return found


def rows(text):
    """Return the rows of the tables in a text, without their headings."""
    lines = text.splitlines()
    found = []
    for place, line in enumerate(lines):
        heading = place + 1 < len(lines) and lines[place + 1].startswith("|---")
        if line.startswith("|") and not line.startswith("|---") and not heading:
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_the_example_prints_what_it_says(capsys):
    code = block("python")
    exec(compile(code, "docs/interface.md", "exec"), {})
    said = re.search(r"print\(.*#\s*(.*)$", code, re.M)[1]
    assert capsys.readouterr().out.strip() == said


def test_the_json_example_is_accepted(tmp_path):
    path = tmp_path / "example.json"
    path.write_text(block("json"))
    assert main(("check", str(path))) == 0
    assert set(json.loads(block("json"))) == {
        key for row in rows(section("`ascendsim check`")) for key in re.findall(r"`([a-z]+)`", row[0])
    } & {"name", "api", "product", "rules", "tensors", "attributes", "outputs", "expect"}


def test_the_rule_set_example_loads(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(block("toml"))
    call = conv(dtype="bfloat16", cube_math_type=2)
    assert answer(call, "910B", path) == (0, "")
    assert answer(call, "910_93", path) == (161002, "14")


def test_the_commands_run(capsys):
    commands = re.findall(r"^    ascendsim (check .*)$", PAGE, re.M)
    for command in commands:
        if ".json" not in command:
            assert main(command.split()) in (0, 1)
    assert len(commands) == 3
    capsys.readouterr()


def test_every_status_is_in_the_table():
    table = "\n".join(" ".join(row[:2]) for row in rows(section("Status codes")))
    for status, name in STATUS_NAMES.items():
        assert str(status) in table
        assert name in table


def numbers(checks):
    return [check.number for check in checks]


def in_order(text):
    """Return the numbers of checks in the first column of a table, 27 standing for its items."""
    return [number for row in rows(text) for number in row[0].split(", ")]


def test_the_order_of_checks_is_that_of_the_code():
    convolution, _, tbc = section("Order of checks").partition("\nTBC:\n")
    code = ["0", *numbers(ARGUMENT_CHECKS), "15", *numbers(SHAPE_CHECKS), "27", *numbers(INNER_CHECKS)]
    assert in_order(convolution) == code
    assert in_order(tbc) == ["0", *numbers(TBC_CHECKS)]
    items = re.findall(r"^\| (27\.\d) ", section("Empty tensors"), re.M)
    assert [*items, "31"] == numbers((*EMPTY_CHECKS, *RELATED_EMPTY_CHECKS))


def products_of(text, known):
    """Return the products that a cell names, all of `known` where it says so."""
    named = re.findall(r"\d\w*", text)
    return known if text == "all" else [name for name in named if name in known]


@pytest.mark.parametrize("rules", rule_set_names())
def test_the_table_of_cube_math_types_is_that_of_the_rules(rules):
    tables = load_rules(rules).convolution
    said = {}
    for who, products, dtype, *outcomes in rows(section("cubeMathType")):
        if rules in re.sub(r" \(.*\)", "", who).split(", ") or who == "all":
            if rules == "documented-004" and "but for" in products:
                products = "910"
            for product in products_of(products, tables.products):
                said[product, dtype] = tuple("absent" if o == "561103" else o for o in outcomes)
    for product in tables.products:
        read = load_rules(rules)
        own = (with_cube(read, product, product) if read.from_cube else read).convolution
        for dtype in own.dtypes[product]:
            assert said[product, dtype] == own.cube_math[product][dtype], (product, dtype)


def test_the_table_of_cube_math_types_is_that_of_page_003():
    tables = load_rules("documented").tbc
    said = {row[2]: tuple(row[3:]) for row in rows(section("cubeMathType")) if "TBC of page 003" in row[0]}
    for product in tables.products:
        for dtype, outcomes in said.items():
            assert tables.cube_math[product][dtype] == outcomes


def test_the_products_are_those_of_the_rules():
    table = {row[0]: row[1:] for row in rows(section("Rule sets")) if len(row) == 7}
    columns = ("documented-004", "documented-001", "documented-002", "documented", "shipped", "hardware")
    for cells, part in ((table["products"], "convolution"), (table["products of TBC"], "tbc")):
        for cell, rules in zip(cells, columns, strict=True):
            own = set(getattr(load_rules(rules), part).products)
            five = {"910_95", "910_93", "910B", "310P", "910"}
            assert (five if "five" in cell else set(cell.split(", "))) == own


def test_links_within_the_page_lead_somewhere():
    headings = re.findall(r"^#+ (.*)$", PAGE, re.M)
    anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors
