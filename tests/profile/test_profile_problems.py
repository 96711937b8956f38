"""Does the check of a tree of figures take what is right, and place what is wrong?"""

from math import inf, nan

import pytest

from ascendsim.profile.check import Problem, problems_of
from ascendsim.profile.schema import Each, Maybe, integer, listed, number, truth, word

COUNT = integer(1, 9)


def figure(value=5, **parts):
    return {"value": value, "source": "a page", "confidence": "measured"} | parts


def problems(node, given):
    return list(problems_of(node, given))


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (integer(1), [1, 10**30], [0, -1, 1.0, True, "1", None, [1]]),
        (integer(1, 9), [1, 9], [0, 10]),
        (number(0.01), [0.01, 1, 1e300], [0.009, 0, -1.0, nan, inf, -inf, True, "1", None]),
        (number(0.01, 1), [0.01, 1, 1.0], [1.001, 0]),
        (word(), ["x", " "], ["", 1, None, True, b"x"]),
        (word("RNE", "RZ"), ["RNE", "RZ"], ["rne", "", 1, ["RNE"], {}]),
        (truth(), [True, False], [0, 1, "true", None]),
    ],
)
def test_a_kind_is_strict(kind, right, wrong):
    for value in right:
        assert problems(kind, figure(value)) == []
    for value in wrong:
        assert [problem[:2] for problem in problems(kind, figure(value))] == [(("value",), "wrong")]


def test_a_list_is_checked_item_by_item():
    kind = listed("digits", COUNT)
    assert problems(kind, figure([])) == []
    assert problems(kind, figure([1, 9])) == []
    assert problems(kind, figure((1,))) == [Problem(("value",), "wrong", (1,))]
    assert problems(kind, figure([1, 0, "1"])) == [
        Problem(("value", "1"), "wrong", 0),
        Problem(("value", "2"), "wrong", "1"),
    ]
    # Its range lists lists.
    assert problems(kind, figure([1], range=[[1], [2]])) == []
    assert problems(kind, figure([1], range=[[1], 2])) == [Problem(("range", "1"), "wrong", 2)]


def test_the_parts_of_a_figure_are_told_in_order_and_strangers_last():
    given = {"other": 1, "confidence": "sure", "source": " ", "range": [0], "fitted_on": ["a", 2], "note": ""}
    assert problems(COUNT, given) == [
        Problem(("value",), "missing"),
        Problem(("source",), "wrong", " "),
        Problem(("confidence",), "wrong", "sure"),
        Problem(("range", "0"), "wrong", 0),
        Problem(("note",), "wrong", ""),
        Problem(("fitted_on", "1"), "wrong", 2),
        Problem(("other",), "unknown"),
    ]
    assert problems(COUNT, 5) == [Problem((), "wrong", 5)]
    assert problems(COUNT, {}) == [Problem((name,), "missing") for name in ("value", "source", "confidence")]


@pytest.mark.parametrize(
    ("kind", "given", "rule"),
    [
        (COUNT, figure(confidence="assumed"), "must carry a range"),
        (COUNT, figure(range=[1, 4]), "with the value inside"),
        (COUNT, figure(range=[6, 9]), "with the value inside"),
        (COUNT, figure(range=[5]), "with the value inside"),
        (COUNT, figure(range=[1, 5, 9]), "with the value inside"),
        (word(), figure("a", range=["b", "c"]), "the value among them"),
        (truth(), figure(True, range=[False]), "the value among them"),
        (COUNT, figure(fitted_on=["a"]), "a fitted figure"),
        (COUNT, figure(without=4), "a fitted figure"),
        (COUNT, figure(without=5, fitted_on=["a"]), "a fitted figure"),
        (COUNT, figure(without=4, fitted_on=["a"], confidence="derived"), "a fitted figure"),
    ],
)
def test_the_parts_of_a_figure_must_fit_each_other(kind, given, rule):
    (problem,) = problems(kind, given)
    assert problem.place == ()
    assert problem.fault == "figure"
    assert rule in problem.rule


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (COUNT, figure(confidence="assumed", range=[5, 5])),
        (COUNT, figure(range=[1, 9])),
        (word(), figure("a", range=["b", "a"])),
        (truth(), figure(True, range=[False, True], confidence="assumed")),
        (COUNT, figure(without=4, fitted_on=["a"], note="why")),
    ],
)
def test_a_figure_may_carry_more(kind, given):
    assert problems(kind, given) == []


def test_tables_want_what_they_must_and_allow_what_they_may():
    node = {"cores": {"cube": COUNT, "spare": Maybe(COUNT)}, "queues": Each(("M", "V", "FIX"), ("M",), COUNT)}
    right = {"cores": {"cube": figure()}, "queues": {"M": figure(), "FIX": figure()}}
    assert problems(node, right) == []
    wrong = {"queues": {"V": figure(0), "X": figure()}, "more": {}}
    assert problems(node, wrong) == [
        Problem(("cores",), "missing"),
        Problem(("queues", "M"), "missing"),
        Problem(("queues", "V", "value"), "wrong", 0),
        Problem(("queues", "X"), "unknown"),
        Problem(("more",), "unknown"),
    ]
    assert problems(node, right | {"cores": [1]}) == [Problem(("cores",), "wrong", [1])]
