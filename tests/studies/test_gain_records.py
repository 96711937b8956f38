"""Are shares, fronts, bars and classes of designs those of their definitions, by hand?"""

from types import SimpleNamespace

import pytest

from ascendsim.studies.hardware.records import OVER_BUDGET, Design, DesignAnswer, Doubt, Gain, LayerGain
from ascendsim.studies.verdicts import Condition

# --- What a change saves, and what its plans do ------------------------------------------------------------


def gain(*layers, doubt=None):
    return Gain("it", {}, "warm", layers, doubt)


def test_times_of_layers_count_as_often_as_they_come():
    parts = ((1.0, 2.0), (3.0, 4.0)), ((10.0, 20.0), (30.0, 40.0))
    one = LayerGain("a", 3, 100.0, 90.0, 80.0, 70.0, (60.0, 50.0), parts_us=parts[0])
    two = LayerGain("b", 1, 10.0, 9.0, 8.0, 7.0, (6.0, 5.0), parts_us=parts[1])
    found = gain(one, two)
    assert (found.base_us, found.same_us, found.anew_us, found.better_us) == (310, 279, 248, 217)
    assert found.tuned_us == (186, 155)
    assert found.parts_us == ((13.0, 26.0), (39.0, 52.0))
    assert found.share == pytest.approx(1 - 217 / 310)
    assert one.share == pytest.approx(0.3)
    # What one layer lacks, all lack.
    assert gain(one, LayerGain("b", 1, 10.0, None, 8.0, 7.0)).same_us is None
    assert gain(one, LayerGain("b", 1, 10.0, 9.0, 8.0, 7.0)).tuned_us is None


def test_what_plans_save_alone_is_not_what_the_change_saves():
    # Under another plan the unchanged product takes 80 of 100; the change saves 30 more, two thirds of it
    # under the old plan as well.
    layer = LayerGain("a", 1, 100.0, 60.0, 50.0, 50.0, new_plan=True, plan_us=80.0)
    found = gain(layer)
    assert (layer.unchanged_us, found.unchanged_us) == (80.0, 80.0)
    assert (found.plan_share, found.own_share, found.share) == pytest.approx((0.2, 0.3, 0.5))
    # The new plan saves 10 of the changed product's time, and 20 of the unchanged one's.
    assert found.needing_share == pytest.approx((60 - 50 - (100 - 80)) / 100)
    # No faster plan is none; a layer under its old plan needs none.
    assert LayerGain("a", 1, 100.0, 60.0, 50.0, 50.0, plan_us=110.0).unchanged_us == 100.0
    twice = gain(layer, LayerGain("b", 2, 50.0, None, 40.0, 40.0))
    assert twice.needing_share == pytest.approx(-10 / 200)
    assert gain(LayerGain("a", 1, 100.0, None, 50.0, 50.0, new_plan=True)).needing_share is None


@pytest.mark.parametrize(
    ("better", "ends", "told"),
    [
        (90.0, None, True),
        (110.0, None, True),
        (100.0, None, False),
        (90.0, (0.01, 0.2), True),
        (90.0, (0.0, 0.2), False),
        (110.0, (-0.2, -0.01), True),
        (110.0, (-0.2, 0.0), False),
    ],
)
def test_a_gain_is_told_where_no_end_reaches_0(better, ends, told):
    doubt = ends and Doubt(*ends, 1)
    assert gain(LayerGain("a", 1, 100.0, better, better, better), doubt=doubt).distinguishable is told


# --- Designs -----------------------------------------------------------------------------------------------


def design(name, cost, us, **more):
    return Design(name, {}, cost, us, us, **more)


def answer(*designs, margin=0.0):
    return DesignAnswer(SimpleNamespace(margin=margin), "v", "d", 0, designs)


def names(designs):
    return [one.name for one in designs]


def test_what_was_not_timed_on_all_layers_is_not_whole():
    for reason, without, whole, refused, over in (
        ("", {}, True, False, False),
        ("", {"a": "why"}, False, False, False),
        ("does not fit", {}, False, True, False),
        (OVER_BUDGET, {}, False, False, True),
    ):
        one = design("x", 1.0, 1.0, reason=reason, without=without)
        assert (one.whole, one.refused, one.over_budget) == (whole, refused, over)


def test_the_front_has_no_design_that_costs_as_much_and_is_as_fast():
    rows = ("dear", 3, 50), ("same", 2, 90), ("slow", 1, 95), ("cheap", 1, 90), ("none", None, 5)
    part = design("part", 1, 10, without={"a": "why"})
    found = answer(*(design(*row) for row in rows), part)
    assert names(found.front) == ["cheap", "dear"]
    assert answer(part).front == answer(part).untold == ()


def test_a_bar_is_as_wide_as_the_margin_and_the_doubt():
    fast, slow = design("fast", 2, 80), design("slow", 1, 100)
    assert answer(fast, slow).bar(slow) == (100, 100)
    assert answer(fast, slow, margin=0.05).bar(slow) == (95, 105)
    # The fastest saves 10 to 50 % of it: 80 of 88.9 to 160.
    doubtful = design("slow", 1, 100, behind=Doubt(0.1, 0.5, 1))
    assert answer(fast, doubtful, margin=0.05).bar(doubtful) == pytest.approx((80 / 0.9, 160))
    # All of it, or more than that, is no time at all.
    endless = design("slow", 1, 100, behind=Doubt(0.1, 1.0, 1))
    assert answer(fast, endless).bar(endless) == pytest.approx((80 / 0.9, 100))


def test_classes_are_of_designs_that_lie_in_each_other_s_bars():
    # 5 % of 100 reach 105, and of 105 less than 100; 110 lies in the bar of 105 and not in that of 100.
    steps = [design(str(us), 200 - us, us) for us in (100, 105, 110, 120)]
    assert [names(one) for one in answer(*steps, margin=0.05).classes] == [["100", "105"], ["110"], ["120"]]
    # To the end of both bars: 100 + 25 and 125 - 25.
    ends = [design("100", 2, 100), design("125", 1, 125)]
    assert [names(one) for one in answer(*ends, margin=0.25).classes] == [["100", "125"]]
    assert [names(one) for one in answer(*ends, margin=0.24).classes] == [["100"], ["125"]]
    # One alone reaches the other: no class.
    wide = [design("100", 2, 100), design("125", 1, 125, behind=Doubt(0.0, 0.5, 1))]
    assert [names(one) for one in answer(*wide, margin=0.1).classes] == [["100"], ["125"]]


@pytest.mark.parametrize(
    ("behind", "untold"),
    [
        (None, False),
        (Doubt(0.01, 0.4, 1), False),
        (Doubt(0.0, 0.4, 1), True),
        (Doubt(-0.1, 0.4, 1), True),
        (Doubt(0.01, 0.4, 1, (Condition("launch.base_us", "<", 1, 0.1),)), True),
    ],
)
def test_the_fastest_surely_beats_what_it_beats_wherever_figures_lie(behind, untold):
    fast, slow = design("fast", 2, 75), design("slow", 1, 100, behind=behind)
    assert names(answer(fast, slow).untold) == ["slow"] * untold
    # A quarter is no more than a margin of a quarter.
    assert names(answer(fast, slow, margin=0.25).untold) == ["slow"]
    assert names(answer(fast, slow, margin=0.24).untold) == ["slow"] * untold
    part = design("part", 1, 74, without={"a": "why"})
    assert names(answer(fast, slow, part).untold) == ["slow"] * untold
