"""Is the page about schedules true: its code, its pictures, and the nests that it names?"""

import doctest
import re
from pathlib import Path

import ascendsim.ops.schedules
from ascendsim.ops.plan import Tiling
from ascendsim.ops.schedules.catalogue import SCHEDULES, schedule_named
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.loops.rings import Ring

PAGE = Path(__file__).parents[2] / "docs" / "schedules.md"
TEXT = PAGE.read_text()
# The heading of each nest and the picture below it.
PICTURES = dict(re.findall(r"^### (\w+).*?```text\n(.*?)```", TEXT, re.MULTILINE | re.DOTALL))


def test_the_page_prints_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it writes a trace
    done = doctest.testfile(str(PAGE), module_relative=False)
    assert done.attempted > 20
    assert done.failed == 0
    assert (tmp_path / "trace.json").read_text().startswith('{"displayTimeUnit"')


def test_every_nest_by_name_has_a_picture_of_its_loops():
    assert set(PICTURES) >= set(SCHEDULES)
    assert all("for core c:" in PICTURES[name] for name in SCHEDULES)


def test_a_picture_names_fields_that_its_nest_reads():
    known = set(Tiling.__dataclass_fields__)
    for name in SCHEDULES:
        named = {word for word in re.findall(r"\w+", PICTURES[name]) if word in known}
        # Its picture shows how one loop moves out of another, and no size.
        assert bool(named) == (name != "dgrad_columns_outer"), name
        assert named <= schedule_named(name).reads, name


def test_what_is_needed_is_there_to_be_imported():
    imports = re.findall(r"from ascendsim.ops.schedules import (.+)", TEXT)
    assert imports
    for names in imports:
        assert set(names.split(", ")) <= set(ascendsim.ops.schedules.__all__)


def test_the_builder_has_what_its_table_names():
    table = TEXT.partition("## The builder")[2].partition("## ")[0]
    methods = {
        name
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)", row)
    }
    assert len(methods) >= 11
    assert all(hasattr(ProgramBuilder, name) or hasattr(Ring, name) for name in methods)
