"""Is a gain called one only where it holds at every end, and is its break-even where the gain says?"""

import pytest

from ascendsim.profile import Figure
from ascendsim.studies import sweep, verdicts
from ascendsim.studies.verdicts import GainVerdict, condition_words, judged


def figure(value, *ends):
    return Figure(value, "nobody", "assumed", list(ends))


FIGURES = {"launch_us": figure(0.1, 0.0, 0.3), "queue": figure(4, 1, 16), "flag": figure(False, False, True)}


def linear(share, **slopes):
    """A gain that each figure moves by its slope for each unit; what is asked is counted."""

    def gains(moves):
        gains.asked += len(moves)
        return [
            share + sum(slopes.get(path, 0.0) * (value - FIGURES[path].value) for path, value in move.items())
            for move in moves
        ]

    gains.asked = 0
    return gains


def test_a_gain_at_every_end_holds():
    found = judged(linear(0.2, launch_us=-0.5), FIGURES, 0.2, 0.05)
    assert found.holds
    assert (found.low, found.high) == pytest.approx((0.1, 0.25))
    assert (found.figures, condition_words(found)) == (1, "")


def test_a_gain_that_an_end_turns_is_told_with_its_break_even():
    # 0.2 - (x - 0.1) = 0.05 at x = 0.25.
    found = judged(linear(0.2, launch_us=-1.0), FIGURES, 0.2, 0.05)
    assert (found.gains, found.holds) == (True, False)
    (one,) = found.conditions
    assert (one.figure, one.relation) == ("launch_us", "<")
    assert 0.25 <= one.at <= 0.25 + 0.3 * 0.01
    assert one.share == pytest.approx(0.0)


def test_what_gains_at_an_end_alone_is_told_where():
    # 0 - 2 (x - 0.1) = 0.05 at x = 0.075.
    found = judged(linear(0.0, launch_us=-2.0), FIGURES, 0.0, 0.05)
    assert not found.gains
    (one,) = found.conditions
    assert (one.relation, one.share) == ("<", pytest.approx(0.2))
    assert 0.075 <= one.at <= 0.075 + 0.3 * 0.01


def test_a_whole_figure_breaks_even_at_a_whole_number():
    # 0.1 - 0.02 (x - 4) = 0 at x = 9: there is no gain at 9, and one at 8.
    found = judged(linear(0.1, queue=-0.02), FIGURES, 0.1)
    assert [(one.relation, one.at) for one in found.conditions] == [("<", 9)]
    assert condition_words(found) == "queue < 9"


def test_alternatives_are_named():
    assert condition_words(judged(linear(0.1, flag=-0.2), FIGURES, 0.1)) == "flag is not True"
    assert condition_words(judged(linear(-0.1, flag=0.2), FIGURES, -0.1)) == "flag is True"


def test_several_conditions_must_all_hold_for_a_gain_and_one_is_enough_without():
    told = condition_words(judged(linear(0.1, queue=-0.02, flag=-0.2), FIGURES, 0.1))
    assert told == "queue < 9 and flag is not True"
    told = condition_words(judged(linear(-0.1, queue=0.05, flag=0.2), FIGURES, -0.1))
    assert told == "queue > 6 or flag is True"


def test_an_end_that_cannot_be_timed_is_told():
    def gains(moves):
        return [None if move.get("queue") == 1 else 0.1 for move in moves]

    found = judged(gains, FIGURES, 0.1)
    assert found.holds
    assert found.untimed == ("queue=1",)


def test_the_ends_of_more_than_two_alternatives_are_the_first_and_the_last():
    figure = Figure(8, "nobody", "assumed", (4, 8, 16))
    assert sweep.ends(figure) == (4, 16)
    assert verdicts._ends(figure) == [4, 16]


def test_a_break_even_below_the_figure_is_told_as_one_above():
    # 0.1 + 0.05 (x - 4) = 0 at x = 2: a gain from 3 on. 0.2 + 2 (x - 0.1) = 0.06 at x = 0.03.
    (one,) = judged(linear(0.1, queue=0.05), FIGURES, 0.1).conditions
    assert (one.figure, one.relation, one.at) == ("queue", ">", 2)
    (one,) = judged(linear(0.2, launch_us=2.0), FIGURES, 0.2, 0.06).conditions
    assert (one.figure, one.relation) == ("launch_us", ">")
    assert 0.03 - 0.3 * 0.01 <= one.at <= 0.03
    # Where there is none as it is: -0.1 - 0.05 (x - 4) = 0 at x = 2, so that 1 gains and 2 does not.
    (one,) = judged(linear(-0.1, queue=-0.05), FIGURES, -0.1).conditions
    assert (one.relation, one.at, one.share) == ("<", 2, pytest.approx(0.05))


def test_a_gain_of_just_the_margin_is_none():
    assert not judged(linear(0.25), FIGURES, 0.25, 0.25).gains
    assert judged(linear(0.25), FIGURES, 0.25).gains
    # At an end it is none either: 0.5 - 1.25 x (0.3 - 0.1) = 0.25.
    found = judged(lambda moves: [0.25 if "queue" in move else 0.5 for move in moves], FIGURES, 0.5, 0.25)
    assert {one.figure for one in found.conditions} == {"queue"}


def test_each_figure_is_asked_at_both_ends_and_then_by_halves():
    # From 4 to 16 by 10, 7, 8, 9 or 13 and so on: four more questions; a truth value has no middle.
    gains = linear(0.1, queue=-0.02, flag=-0.2)
    judged(gains, FIGURES, 0.1)
    assert gains.asked == 2 + 2 + 1 + 4


ENDS = (("a", 1, 0.1), ("a", 2, 0.05), ("b", 1, 0.2), ("c", 1, 0.3), ("c", 0, None), ("d", 1, 0.15))
ENDS = (*ENDS, ("d", 2, 0.15))


def test_the_worst_and_the_best_end_of_each_figure():
    found = GainVerdict(0.2, True, ENDS)
    assert (found.low, found.high, found.figures, found.most) == (0.05, 0.3, 3, "a")
    # Of equal ends the first; none of what makes it no less, or cannot be timed.
    assert found.worst() == {"a": 2, "d": 1}
    assert found.worst(best=True) == {"c": 1}
    assert found.untimed == ("c=0",)
    still = GainVerdict(0.2, True, ENDS[2:3])
    assert (still.low, still.high, still.figures, still.most) == (0.2, 0.2, 0, "")
    assert still.worst() == still.worst(best=True) == {}
