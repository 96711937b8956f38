"""Does the example of a program of one's own do what it says?"""

import re
import runpy
from ast import literal_eval
from pathlib import Path

import pytest

from ascendsim import load_profile

FILE = Path(__file__).parents[2] / "examples" / "06_your_own_program.py"


@pytest.fixture(scope="module")
def said():
    """What the example prints, line by line."""
    lines = []
    runpy.run_path(str(FILE), {"print": lambda *words: lines.append(" ".join(map(str, words)))}, "__main__")
    return lines


def test_it_reads_doubles_and_writes_every_row_in_two_slots(said):
    # 1000 rows of three instructions; two slots of 512 float32.
    assert said[0] == "3000 instructions in 4096 bytes of UB"


def test_the_rows_are_doubled(said):
    assert said[1] == "right: True"


def found(said):
    return literal_eval(said[2].removeprefix("cycles: "))


def test_both_engines_find_the_same_cycles(said):
    assert found(said)["compiled"] == found(said)["simpy"] > 0


def test_where_the_cycles_went_adds_up(said):
    line = re.compile(r"(\w+): busy (\d+), waiting ({.*}), idle (\d+)")
    told = [line.fullmatch(words).groups() for words in said[3:]]
    assert [pipe for pipe, *_ in told] == ["S", "MTE2", "MTE3", "V"]
    for _, busy, waiting, idle in told:
        assert int(busy) + sum(literal_eval(waiting).values()) + int(idle) == found(said)["compiled"]


def test_every_row_is_a_slice_of_its_own():
    made = runpy.run_path(str(FILE), run_name="example")
    program = made["double_rows"](load_profile("910B2"))
    read = [i.src.index[0] for i in program.instructions if type(i).__name__ == "CopyGmToUb"]
    assert read == list(range(1000))
