"""Do the pages say what the code says: names, numbers, rules and nests?"""

import doctest
import json
import re
from pathlib import Path

import pytest

import ascendsim.ops.schedules
from ascendsim.cli import main
from ascendsim.errors import STATUS_NAMES
from ascendsim.ops.plan import Tiling
from ascendsim.ops.schedules.base import SCHEDULES, schedule_named
from ascendsim.profile import list_products
from ascendsim.profile.records import DERIVED
from ascendsim.profile.schema import ABOUT_TABLES, TREE, ByClock, Each, Kind, Maybe
from ascendsim.program.nest import Nest
from ascendsim.rules import load_rules, rule_set_names
from ascendsim.rules.arguments import ARGUMENT_CHECKS
from ascendsim.rules.resolve import TBC_CHECKS, with_cube
from ascendsim.rules.shapes import EMPTY_CHECKS, INNER_CHECKS, RELATED_EMPTY_CHECKS, SHAPE_CHECKS
from tests.helpers.calls import answer, conv

# --- Do the documents say what the code says? ----------------------------------------------------------

DOCS = Path(__file__).parents[2] / "docs"
NAME = re.compile(r"`([^`]+)`(\??)")


def written():
    """Return the rows of the table "What a file holds": beginning of the table's name -> its words."""
    section = (DOCS / "profiles.md").read_text().partition("## What a file holds")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", section, re.MULTILINE)[1:]
    return {(NAME.findall(name) or [("", "")])[0][0].partition("<")[0]: words for name, words in rows}


def named(words):
    """Return name -> whether it may be absent, of everything in a row that is written as code."""
    return {name: bool(mark) for name, mark in NAME.findall(words)}


def tables(node, name=""):
    """Yield (beginning of the name, figures) of each table of figures in the schema.

    Tables that are alike count once, under what their names have in common; figures of one kind under free
    names are a table without figures of its own.
    """
    if isinstance(node, Maybe):
        yield from tables(node.entry, name)
    elif isinstance(node, ByClock):
        yield f"{name}.", None
    elif isinstance(node, Each):
        if isinstance(node.entry, Kind):
            yield f"{name}.", {key: key not in node.required for key in node.keys}
        elif isinstance(node.entry, Each):
            yield f"{name}.", None
        else:
            yield from tables(node.entry, f"{name}.")
    else:
        plain = {key: entry.entry if isinstance(entry, Maybe) else entry for key, entry in node.items()}
        if len({str(sorted(below)) if isinstance(below, dict) else key for key, below in plain.items()}) == 1:
            yield from tables(next(iter(plain.values())), f"{name}.")
            return
        yield name, {key: isinstance(node[key], Maybe) for key, e in plain.items() if isinstance(e, Kind)}
        for key, below in plain.items():
            if not isinstance(below, Kind):
                yield from tables(below, name + key if name.endswith(".") or not name else f"{name}.{key}")


SCHEMA = dict(tables(TREE))


def test_the_tables_of_the_document_are_those_of_a_product_file():
    assert set(written()) == {*SCHEMA, *(f"{name}." for name in ABOUT_TABLES if name == "variants")}


@pytest.mark.parametrize("table", [name for name, figures in SCHEMA.items() if figures])
def test_a_row_names_every_figure_of_its_table(table):
    told = named(written()[table])
    if table == "vector.repeat_cycles.":  # the row itself says which kinds may be absent
        assert set(told) == set(SCHEMA[table])
    elif told or not table.endswith("."):  # figures under free names, such as dtypes, are told in words
        assert told == SCHEMA[table]


def test_the_document_names_the_right_bound_of_cores():
    assert f"at most {TREE['cores']['cube'].expected.split()[-1]}" in written()["cores"]


def test_the_document_names_every_derived_figure():
    for figure in DERIVED:
        assert re.search(rf"`[^`]*\b{figure}`", (DOCS / "profiles.md").read_text()), figure


def test_the_document_names_every_product_and_what_it_means():
    text = (DOCS / "profiles.md").read_text()
    for product in list_products():
        assert f"| {product.name} | {product.default_variant} |" in text


# --- Is the page about schedules true: its code, and the nests, fields and words that it names? --------

PAGE = Path(__file__).parents[2] / "docs" / "schedules.md"
TEXT = PAGE.read_text()
# The name of each nest and what is said of it.
NESTS = dict(re.findall(r"^\*\*(\w+)\*\*: (.*?)(?=\n\*\*|\n## )", TEXT, re.MULTILINE | re.DOTALL))


def test_the_page_prints_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it writes a trace
    done = doctest.testfile(str(PAGE), module_relative=False)
    assert done.attempted > 20
    assert done.failed == 0
    assert (tmp_path / "trace.json").read_text().startswith('{"displayTimeUnit"')


def test_the_page_for_kernel_writers_prints_what_it_says():
    done = doctest.testfile(str(PAGE.parent / "from_ascendc.md"), module_relative=False)
    assert done.attempted > 10
    assert done.failed == 0


def test_something_is_said_of_every_nest_by_name():
    assert list(NESTS) == list(SCHEDULES)


@pytest.mark.parametrize("name", SCHEDULES)
def test_what_is_said_of_a_nest_names_fields_that_it_reads(name):
    known = set(Tiling.__dataclass_fields__)
    named = {word for word in re.findall(r"\w+", NESTS[name]) if word in known}
    # One loop moves out of another there, and no size says so.
    assert bool(named) == (name != "dgrad_columns_outer")
    assert named <= schedule_named(name).reads


def test_the_nests_that_are_printed_are_those_of_the_three_products():
    begun = re.findall(r"^(\w+): for each task \((.*)\):$", TEXT, re.MULTILINE)
    assert [name for name, _ in begun] == ["matmul", "dgrad", "grad_weight"]


def test_what_is_needed_is_there_to_be_imported():
    imports = re.findall(r"from ascendsim.ops.schedules import (.+)", TEXT)
    assert imports
    for names in imports:
        assert set(names.split(", ")) <= set(ascendsim.ops.schedules.__all__)


def test_a_nest_has_the_words_that_its_table_names():
    table = TEXT.partition("## The words")[2].partition("## ")[0]
    named = {
        name
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)", row)
    }
    own = {name for name, word in vars(Nest).items() if callable(word) and not name.startswith("_")}
    # All words but what asks a nest whether it is right.
    own -= {"check_axes", "require_like", "require_tasks"}
    assert named == own | {"ring", "slots", "room", "capacity", "handover"}


# --- Are the words of docs/interface.md true? ----------------------------------------------------------

RULES_PAGE = (Path(__file__).parents[2] / "docs" / "interface.md").read_text()


def section(title):
    """Return the text under a heading."""
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", RULES_PAGE, re.S | re.M)[1]


def block(language):
    """Return the only block of code in a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", RULES_PAGE, re.S)
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
    commands = re.findall(r"^    ascendsim (check .*)$", RULES_PAGE, re.M)
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
    items = re.findall(r"^\| (27\.\d+) ", section("Empty tensors"), re.M)
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
    headings = re.findall(r"^#+ (.*)$", RULES_PAGE, re.M)
    anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", RULES_PAGE)) <= anchors
