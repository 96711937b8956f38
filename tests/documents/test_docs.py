"""Do the documents say what the code says?"""

import re
from pathlib import Path

import pytest

from ascendsim.profile import list_products
from ascendsim.profile.records import DERIVED
from ascendsim.profile.schema import ABOUT_TABLES, TREE, Each, Kind, Maybe

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
