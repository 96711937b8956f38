"""Do the tests notice a change of the arithmetic that nobody has chosen?  Draw places to change by a seed."""

import ast
import os
import subprocess
import sys

import pytest

import mutant_places as places
import mutants

EVERY = places.every_mutant()
# The parts for which `mutant_tests.py` names tests.
JUDGED = EVERY + places.every_mutant(["ops/lowering", "ops/tiling", "cube", "vector", "rules"])


def test_a_seed_draws_the_same_mutants_again_and_another_one_others():
    first = [mutant.name for mutant in places.drawn(1)[:50]]
    assert first == [mutant.name for mutant in places.drawn(1)[:50]]
    assert first != [mutant.name for mutant in places.drawn(2)[:50]]


def test_every_file_that_computes_has_mutants():
    paths = [path for path in (places.PACKAGE / "numerics").rglob("*.py") if path.name != "__init__.py"]
    files = {path.relative_to(places.PACKAGE).as_posix().removesuffix(".py") for path in paths}
    # One holds texts alone.
    assert {mutant.file for mutant in EVERY} == files - {"numerics/metric_columns"}


def test_every_file_of_a_part_that_is_judged_has_tests_that_exist():
    for file in {mutant.file for mutant in JUDGED}:
        for name in (word for run in mutants.tests_of(file) for word in run if word.startswith("tests/")):
            assert (places.ROOT / name).is_file(), (file, name)


def test_equal_lines_of_a_file_have_mutants_of_different_names(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "PACKAGE", tmp_path)
    file = tmp_path / "module.py"
    file.write_text("x = 3 < 4\n\nx = 3 < 4\n")
    found = [mutant.name for mutant in places.Places(file).found() if mutant.old == "<"]
    assert found == ["module: x = 3 < 4 [6: < -> <=]", "module: x = 3 < 4 #2 [6: < -> <=]"]


def test_names_tell_mutants_apart():
    names = [mutant.name for mutant in JUDGED]
    assert len(names) == len(set(names))


def test_a_mutant_is_one_change_that_can_be_read_as_python():
    for mutant in EVERY[::50]:
        text = (places.PACKAGE / f"{mutant.file}.py").read_text()
        assert text[mutant.start : mutant.stop] == mutant.old != mutant.new
        begin = text.rindex(mutant.line, 0, mutant.start + len(mutant.line)) + mutant.column
        assert begin == mutant.start
        changed = text[: mutant.start] + mutant.new + text[mutant.stop :]
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))


def test_texts_types_and_errors_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "PACKAGE", tmp_path)
    file = tmp_path / "module.py"
    file.write_text(
        '"""A text: 1 + 2."""\n'
        "def function(x: Literal[1]) -> Literal[2]:\n"
        '    """Return 1 + 2."""\n'
        "    if x < 3:\n"
        '        raise ValueError(f"{x + 1} is below 3")\n'
        "    return x\n"
    )
    found = {(mutant.old, mutant.new) for mutant in places.Places(file).found()}
    assert found == {("<", "<="), ("3", "2"), ("3", "4"), ("x < 3", "not (x < 3)")}


def test_what_is_listed_as_equivalent_exists_once_and_has_a_reason():
    names = [mutant.name for mutant in JUDGED]
    for name, reason in mutants.equivalents().items():
        assert names.count(name) == 1, name
        assert len(reason) > 20


def test_tests_that_fail_without_any_change_judge_no_mutant(monkeypatch):
    asked = []
    monkeypatch.setattr(mutants, "fate", lambda mutant, *_: asked.append(mutant) or "killed")
    with pytest.raises(SystemExit, match="tell nothing of a mutant"):
        mutants.run(seed=1, count=1, workers=1)
    assert asked == [None]


def test_a_mutant_that_computes_for_ever_is_ended():
    endless = mutants.limited([sys.executable, "-c", "while True: pass"], seconds=1)
    assert subprocess.run(endless, capture_output=True).returncode < 0


@pytest.mark.slow
def test_of_120_mutants_95_in_a_hundred_are_killed():
    # About half a minute of processor time each: most of the compiled models are compiled anew.
    killed, survivors = mutants.run(seed=20261124, count=120, workers=os.cpu_count() or 1)
    assert killed >= mutants.LEAST_KILLED * 120, [mutant.name for mutant in survivors]
