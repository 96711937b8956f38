"""Is each estimate of many the one that `estimate` makes, however many processes work?"""

import pickle
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from rich.console import Console

import ascendsim
from ascendsim import ConvProblem, Item, Tiling, estimate, estimate_many, load_profile
from ascendsim.errors import AclnnError, CapacityError, ConfigError, UnsupportedError
from ascendsim.ops.results import Estimate
from ascendsim.report.document import Run, run_document
from tests.helpers.alike import assert_alike
from tests.program.test_pickles import OwnNest

SMALL = ConvProblem((1, 16, 6, 6), (32, 16, 3, 3), padding=1)
POINT = ConvProblem((2, 32, 4, 4), (16, 32, 1, 1))
HUGE = Tiling(base_m=4096, base_n=4096, base_k=4096)
# (item, what it gives: None for an estimate, or the kind of the error)
CASES = (
    (Item(SMALL, product="910B"), None),
    (Item(SMALL, product="910B", output_mask=(True, False, False), l2_start="cold"), None),
    (Item(SMALL, "float32", 1, product="910_95"), None),
    (Item(SMALL, product="no such product"), ConfigError),
    (Item(POINT, "float17"), UnsupportedError),
    (Item(POINT, product=load_profile("910", overrides={"scalar.issue_cycles": 9})), None),
    (Item(SMALL, "float8_e4m3fn", product="910B"), AclnnError),
    (Item(SMALL, tiling={"grad_input": HUGE}), CapacityError),
    (Item(SMALL, schedule=OwnNest), None),
    (Item(POINT, strides={"input": (512, 1, 128, 32)}), None),
    (Item("no problem"), ConfigError),
    (Item(POINT, product=Path("no/such/file.toml")), ConfigError),
    (Item(SMALL, product="910B"), None),
)
ITEMS = [item for item, _ in CASES]


@pytest.fixture(scope="module")
def answers():
    """The answers of one, two and three processes."""
    return {workers: estimate_many(ITEMS, workers=workers) for workers in (1, 2, 3)}


def alone(item):
    return estimate(item.problem, item.dtype, item.cube_math_type, **item.options)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("number", range(len(CASES)))
def test_each_answer_is_that_of_the_call_alone(answers, workers, number):
    item, kind = CASES[number]
    found = answers[workers][number]
    if kind is None:
        assert_alike(alone(item), found)
        assert found == alone(item)
        return
    # The very error that the call raises, in the place of its estimate.
    with pytest.raises(kind) as told:
        alone(item)
    assert type(found) is type(told.value)
    assert str(found) == str(told.value)
    assert found.args == told.value.args
    assert found.__notes__ == [f"item {number} of estimate_many, counted from 0"]


def test_answers_do_not_depend_on_the_number_of_workers(answers):
    for number in range(len(CASES)):
        one, *others = (found[number] for found in answers.values())
        for other in others:
            assert pickle.dumps(plain(one)) == pickle.dumps(plain(other))


def plain(answer):
    """What an answer says, in plain values; its report has every number of it."""
    if not isinstance(answer, Estimate):
        return type(answer).__name__, str(answer), answer.__notes__
    return repr(run_document("a call", {}, [Run(answer, load_profile(answer.variant))], []))


def test_a_mapping_is_an_item():
    made = estimate_many([{"problem": SMALL, "dtype": "float32", "product": "910_95"}], workers=1)
    assert made == [estimate(SMALL, "float32", product="910_95")]


def test_any_iterable_will_do_and_none_is_none():
    assert estimate_many(iter(ITEMS[:2]), workers=1) == [alone(item) for item in ITEMS[:2]]
    assert estimate_many([]) == []


def test_an_item_is_frozen_and_a_value():
    item = Item(SMALL, "float32", 1, product="910", output_mask=(True, True, False))
    assert (item.dtype, item.cube_math_type, item.product) == ("float32", 1, "910")
    assert Item(SMALL).product == "910B"  # as of `estimate`
    with pytest.raises(FrozenInstanceError):
        item.dtype = "float16"
    with pytest.raises(TypeError):
        item.options["product"] = "910B"
    assert pickle.loads(pickle.dumps(item)) == item
    assert item == Item(SMALL, "float32", 1, product="910", output_mask=(True, True, False))
    assert item != Item(SMALL, "float32", 1, product="910")
    assert replace(SMALL) == item.problem


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"problem": SMALL, "produkt": "910"},
            r"'produkt'; did you mean product\?",
        ),
        ({"dtype": "float16"}, "missing 1 required positional argument: 'problem'"),
    ],
)
def test_a_slip_in_an_item_is_told_before_anything_runs(given, words, monkeypatch):
    monkeypatch.setattr("ascendsim.ops.many.in_order", None)
    with pytest.raises(TypeError, match=words) as told:
        estimate_many([Item(SMALL), given])
    assert told.value.__notes__ == ["item 1 of estimate_many, counted from 0"]


def test_what_is_no_item_is_told_with_its_number():
    with pytest.raises(ConfigError, match=r"item 1 \(counted from 0\) is 5; it must be Item"):
        estimate_many([Item(SMALL), 5])
    with pytest.raises(ConfigError, match="workers is 0"):
        estimate_many([Item(SMALL)], workers=0)


def test_a_class_that_no_other_process_can_find_is_told():
    class Local(OwnNest):
        pass

    items = [Item(SMALL, schedule=OwnNest), Item(SMALL, schedule=Local)]
    with pytest.raises(ConfigError, match=r"item 1 cannot be sent to another process.*workers=1"):
        estimate_many(items, workers=2)
    assert estimate_many(items, workers=1)[1].cycles == estimate(SMALL, schedule=Local).cycles


def test_an_error_that_is_no_mistake_of_the_caller_is_raised(monkeypatch):
    def slip(*_, **__):
        raise ZeroDivisionError("a slip in the simulator")

    monkeypatch.setattr("ascendsim.ops.many.estimate", slip)
    with pytest.raises(ZeroDivisionError) as told:
        estimate_many([Item(SMALL)], workers=1)
    assert told.value.__notes__ == ["while working on item 0, counted from 0"]


def test_each_product_is_loaded_once(monkeypatch):
    loaded = []

    def load(name):
        loaded.append(name)
        return load_profile(name)

    monkeypatch.setattr("ascendsim.ops.many.load_profile", load)
    estimate_many([Item(SMALL, product=name) for name in ("910B", "910", "910B", "910B", "910")], workers=1)
    assert loaded == ["910B", "910"]


def test_timelines_are_not_kept_until_somebody_asks(answers):
    def held(answer):
        return [kernel.timed._made for kernel in answer.kernels]

    again = estimate_many(ITEMS[:1], workers=1)[0]
    assert set(held(again)) == {None}
    assert set(held(pickle.loads(pickle.dumps(answers[2][0])))) == {None}
    assert again.kernels[0].timeline.cycles == again.kernels[0].cycles


class Terminal:
    """Standard error, as a terminal or a pipe."""

    def __init__(self, *, terminal):
        self.text, self.terminal = "", terminal

    def isatty(self):
        return self.terminal

    def write(self, text):
        self.text += text

    def flush(self):
        pass


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_is_shown_on_a_terminal_and_not_in_a_pipe(workers, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for terminal in (True, False):
        error = Terminal(terminal=terminal)
        monkeypatch.setattr(sys, "stderr", error)
        estimate_many(ITEMS[:2], workers=workers)
        assert ("0/2" in error.text) == terminal
        assert bool(error.text) == terminal
    assert Console(stderr=True).is_terminal is False


def test_both_names_are_public():
    assert {"Item", "estimate_many"} <= set(ascendsim.__all__)
