"""Is a gain called one only where it holds at every end, and is its break-even where the gain says?"""

import pytest

from ascendsim.profile import Figure
from ascendsim.studies import sweep, verdicts
from ascendsim.studies.verdicts import condition_words, judged


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
