"""Do the tests notice a change of the arithmetic that nobody has chosen?  Draw places to change by a seed."""

import ast
import os
import subprocess
import sys

import pytest

import mutant_places as places
import mutants

EVERY = places.every_mutant()


def test_a_seed_draws_the_same_mutants_again_and_another_one_others():
    first = [mutant.name for mutant in places.drawn(1)[:50]]
    assert first == [mutant.name for mutant in places.drawn(1)[:50]]
    assert first != [mutant.name for mutant in places.drawn(2)[:50]]


def test_every_file_that_computes_has_mutants():
    files = {path.relative_to(places.NUMERICS).as_posix().removesuffix(".py")
             for path in places.NUMERICS.rglob("*.py") if path.name != "__init__.py"}  # fmt: skip
    # One holds texts alone.
    assert {mutant.file for mutant in EVERY} == files - {"metric_columns"}
    for mutant in EVERY:
        assert mutants.tests_of(mutant.file)


def test_a_mutant_is_one_change_that_can_be_read_as_python():
    for mutant in EVERY[::50]:
        text = (places.NUMERICS / f"{mutant.file}.py").read_text()
        assert text[mutant.start : mutant.stop] == mutant.old != mutant.new
        begin = text.rindex(mutant.line, 0, mutant.start + len(mutant.line)) + mutant.column
        assert begin == mutant.start
        changed = text[: mutant.start] + mutant.new + text[mutant.stop :]
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))


def test_texts_types_and_errors_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "NUMERICS", tmp_path)
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
    names = [mutant.name for mutant in EVERY]
    for name, reason in mutants.equivalents().items():
        assert names.count(name) == 1, name
        assert len(reason) > 20


def test_tests_that_fail_without_any_change_judge_no_mutant(monkeypatch):
    asked = []
    monkeypatch.setattr(mutants, "fate", lambda mutant, _: asked.append(mutant) or "killed")
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
