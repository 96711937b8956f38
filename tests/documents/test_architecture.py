"""Is docs/architecture.md true: its code, its functions, its rooms, and every instruction with its pipe?"""

import ast
import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import ascendsim
from ascendsim.program.instruction import PIPES
from ascendsim.program.places import Slot

ROOT = Path(ascendsim.__file__).parent
TESTS = ROOT.parent / "tests"
PAGE = (ROOT.parent / "docs" / "architecture.md").read_text()
ROOMS, INSTRUCTIONS = (PAGE.split(f"## {title}")[1] for title in ("The rooms", "All instructions"))
ROWS = {
    cells[0].strip("` "): [cell.strip() for cell in cells[1:]]
    for line in INSTRUCTIONS.splitlines()
    if line.startswith("| `")
    for cells in [line.strip("|").split("|")]
}


def test_the_page_prints_what_it_says():
    done = doctest.testfile(str(ROOT.parent / "docs" / "architecture.md"), module_relative=False)
    assert done.attempted > 20
    assert done.failed == 0


def defined_in(path):
    """The names of the functions, classes and methods of a file."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{own.name}" for own in node.body if isinstance(own, ast.FunctionDef)}
    return names


def test_what_a_call_goes_through_is_where_the_page_says():
    way = PAGE.split("## From the door to the trace")[1].split("\n## ")[0]
    steps = [row.split(" | ")[-1] for row in re.findall(r"^\| \d+ \| (.*) \|$", way, re.M)]
    assert len(steps) == 10
    for step in steps:
        named = re.findall(r"\[`([\w.]+)`\]\(\.\./([\w/.]+)\)", step)
        assert named
        for name, path in named:
            assert name in defined_in(ROOT.parent / path), (name, path)


def instruction_classes():
    """Every public class of cube/ and vector/ that has a meaning and a cost."""
    found = {}
    for room in ("cube", "vector"):
        for path in sorted((ROOT / room).glob("*.py")):
            module = import_module(f"ascendsim.{room}.{path.stem}")
            for name, kind in inspect.getmembers(module, inspect.isclass):
                own = kind.__module__ == module.__name__ and not name.startswith("_")
                if own and hasattr(kind, "execute") and hasattr(kind, "cost"):
                    found[name] = kind
    return found


CLASSES = instruction_classes()


def test_the_table_lists_the_instructions_that_there_are():
    assert set(ROWS) == set(CLASSES)


@pytest.mark.parametrize("name", CLASSES)
def test_a_row_names_pipes_and_places(name):
    pipes, reads, writes, meaning, cost = ROWS[name]
    assert set(pipes.split(", ")) <= set(PIPES)
    declared = inspect.getattr_static(CLASSES[name], "pipe", None)
    if isinstance(declared, str):
        assert pipes == declared
    places = {"GM", "L1", "L0A", "L0B", "L0C", "UB", ""}
    assert set(reads.split(", ")) | set(writes.split(", ")) <= places
    assert meaning
    assert cost


@pytest.mark.parametrize("name", ["CopyGmToL1", "LoadL0A", "Mmad", "Fixpipe", "CopyUbToGm", "Add"])
def test_a_row_names_as_many_buffers_as_the_instruction_reads_and_writes_slots(name):
    kind = CLASSES[name]
    slots = {field: Slot("L1", 32, field, at) for at, field in enumerate(kind._fields)}
    in_gm = {"dst"} if ROWS[name][2] == "GM" else {"src"} if ROWS[name][1] == "GM" else set()
    named = {"dst", "src", "a", "b"} - in_gm
    made = kind(*(slots[field] if field in named else 0 for field in kind._fields))
    for column, touched in zip(ROWS[name][1:3], (made.reads, made.writes), strict=True):
        buffers = {place for place in column.split(", ") if place not in ("", "GM")}
        touched = {slot.name for slot in touched if isinstance(slot, Slot)}
        # Two tiles of one buffer are named once: Add reads both in UB.
        assert bool(buffers) == bool(touched)
        assert len(buffers) <= len(touched)


def test_the_rooms_are_those_at_the_top():
    named = set(re.findall(r"`([a-z_]+)(?:/[a-z_]+)?`", "".join(re.findall(r"^\| (`[^|]*)\|", ROOMS, re.M))))
    files = [path for path in ROOT.iterdir() if path.is_dir() or path.suffix == ".py"]
    there = {path.stem for path in files if not path.name.startswith("_") and path.name != "configs"}
    assert there - named <= {"errors", "arguments"}
    assert named <= there


def test_the_table_of_tests_has_every_folder_with_the_question_that_it_asks():
    rows = dict(re.findall(r"^\| \[(\w+)\]\(\.\./tests/\1\) \| (.+) \|$", PAGE, re.M))
    told = {path.parent.name: path.read_text() for path in TESTS.glob("*/__init__.py")}
    assert told == {name: f'"""{name.capitalize()}: {asks}"""\n' for name, asks in rows.items()}
    # A test beside the folders would be found by nobody who looks for its question.
    assert {path.name for path in TESTS.glob("*.py")} == {"__init__.py", "conftest.py"}


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((\.\.?/[^)#]+)\)", PAGE):
        assert (ROOT.parent / "docs" / target).exists(), target
