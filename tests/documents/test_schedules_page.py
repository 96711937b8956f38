"""Is the page about schedules true: its code, and the nests, fields and words that it names?"""

import doctest
import re
from pathlib import Path

import pytest

import ascendsim.ops.schedules
from ascendsim.ops.plan import Tiling
from ascendsim.ops.schedules.base import SCHEDULES, schedule_named
from ascendsim.program.nest import Nest

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
    table = TEXT.partition("## The nine words")[2].partition("## ")[0]
    named = {
        name
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)", row)
    }
    own = {name for name, word in vars(Nest).items() if callable(word) and not name.startswith("_")}
    # All words but what asks a nest whether it is right.
    own -= {"check_axes", "require_like", "require_tasks"}
    assert named == own | {"ring", "slots", "room", "capacity", "handover"}
