"""Do random calls at every door come to an answer, and does the fuzzer see one that does not?"""

import random
import subprocess
import sys
from pathlib import Path

import pytest

import fuzz.__main__ as fuzzing
from ascendsim.errors import STATUS_NAMES
from fuzz.draws import any_problem, any_view
from fuzz.judge import WrongError, must
from fuzz.odd import ODD

ROOT = Path(__file__).parents[2]
# So many calls take some seconds; those that compute take longest.
CALLS = {"status": 500, "definition": 8, "two_phases": 8, "views": 15, "tbc": 15}
CALLS |= {"gradients_only": 30, "torch_layers": 30}
CALLS |= {"nasty": 1000, "call_file": 60, "rule_file": 60}


@pytest.mark.parametrize("name", fuzzing.FUZZERS)
def test_random_calls_are_answered(name):
    outcomes, failures = fuzzing.fuzz([name], seed=0, seconds=0, calls=CALLS[name])
    assert not failures, "\n".join(failures.values())
    assert outcomes[name].total() == CALLS[name]


def test_the_mixture_of_calls_is_worth_its_name():
    counts = fuzzing.fuzz(["status"], seed=7, seconds=0, calls=1000)[0]["status"]
    # Many pass; 561103, of well-formed calls that no kernel takes, is rare among random ones.
    assert counts["0"] > 80
    assert {"0", "161001", "161002"} <= set(counts) <= {"0", *map(str, STATUS_NAMES)}


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzzing.FUZZERS)
def test_many_random_calls_are_answered(name):
    _, failures = fuzzing.fuzz([name], seed=1, seconds=0, calls=40 * CALLS[name])
    assert not failures, "\n".join(failures.values())


def test_a_call_is_drawn_from_its_name_seed_and_number_alone(monkeypatch):
    drawn = []
    monkeypatch.setitem(fuzzing.FUZZERS, "tbc", lambda pick: drawn.append(pick.random()) or "ran")
    fuzzing.fuzz(["tbc"], seed=5, seconds=0, calls=4)
    fuzzing.run("tbc", 5, 3)
    fuzzing.run("tbc", 6, 3)
    assert drawn[4] == drawn[3] != drawn[5]
    assert len(set(drawn)) == 5


def out_of_bounds(pick):
    must(pick.random() < 0.5, "half of them fail")
    return [0][1 if pick.random() < 0.5 else 0] or "ran"


def test_a_failure_says_what_to_paste(monkeypatch, capsys):
    monkeypatch.setitem(fuzzing.FUZZERS, "tbc", out_of_bounds)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--only", "tbc", "--seed", "3", "--calls", "40"])
    assert fuzzing.main() == 1
    said = capsys.readouterr().out
    # Two kinds of failure, told once each, with the first call that has it.
    lines = [line for line in said.splitlines() if "To see this again" in line]
    assert len(lines) == 2
    for line, error in zip(lines, (WrongError, IndexError), strict=True):
        number = int(line.rpartition(" ")[2].rstrip("'"))
        assert line.endswith(f"make fuzz FUZZ='--only tbc --seed 3 --call {number}'")
        with pytest.raises((WrongError, IndexError)) as caught:
            fuzzing.run("tbc", 3, number)
        assert caught.type in (WrongError, IndexError), error
    assert "half of them fail" in said
    assert "IndexError" in said


def test_a_slow_or_greedy_refusal_is_a_failure(monkeypatch):
    clock = iter((0.0, 6.0, 0.0, 0.0))
    monkeypatch.setattr(fuzzing.time, "process_time", lambda: next(clock))
    monkeypatch.setitem(fuzzing.FUZZERS, "tbc", lambda _: "161002")
    with pytest.raises(WrongError, match=r"a refusal took 6\.0 s"):
        fuzzing.run("tbc", 0, 0)
    peak = iter((0, 2**30))
    monkeypatch.setattr(fuzzing, "_peak_bytes", lambda: next(peak))
    with pytest.raises(WrongError, match="a refusal took 1024 MiB"):
        fuzzing.run("tbc", 0, 0)


def test_what_was_computed_may_take_its_time(monkeypatch):
    monkeypatch.setattr(fuzzing, "MOST_SECONDS", -1.0)
    monkeypatch.setitem(fuzzing.FUZZERS, "tbc", lambda _: "ran")
    assert fuzzing.run("tbc", 0, 0) == "ran"


def test_the_command_runs():
    command = [sys.executable, "-m", "fuzz", "--calls", "2", "--only", "status", "--only", "nasty"]
    done = subprocess.run(
        command, cwd=ROOT, env={"PYTHONPATH": f"tools:{ROOT}"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("status: 2 calls: ")


def test_problems_are_of_every_kind():
    pick = random.Random(0)
    drawn = [any_problem(pick, 10**5) for _ in range(300)]
    assert {problem.rank for problem in drawn} == {1, 2, 3}
    assert {problem.transposed for problem in drawn} == {True, False}
    assert max(problem.groups for problem in drawn) > 2
    assert any(len(problem.padding) == 4 for problem in drawn)
    assert all(problem.macs <= 10**5 for problem in drawn)


def test_views_hold_the_values_they_are_made_of():
    import numpy as np

    pick, array = random.Random(0), np.arange(60.0).reshape(3, 4, 5)
    made = [any_view(pick, array) for _ in range(50)]
    assert all(np.array_equal(view, array) for view in made)
    assert sum(not view.flags.c_contiguous for view in made) > 20
    assert any(min(view.strides) < 0 for view in made)


def test_odd_values_are_many():
    assert len(ODD) > 60
