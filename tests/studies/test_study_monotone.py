"""Is a design that has all that another has never slower, and is the best of all plans what is taken?"""

import json
from random import Random
from types import SimpleNamespace

import pytest

from ascendsim import ConvProblem, Plan, Tiling, load_profile
from ascendsim.frozen import FrozenMap
from ascendsim.ops.convolution_backward import plans_of_call
from ascendsim.profile import Change, contradiction, parse_changes
from ascendsim.studies.engine.measure import PointAnswer
from ascendsim.studies.engine.point import StudyPoint, plan_values
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.hardware.figures import better_value, fits_inside, held_to, sense
from ascendsim.studies.hardware.gains import Asking
from ascendsim.studies.hardware.plans import AS_IT_IS, Best, Family, Way, _mixed, _parted, gradient_us
from ascendsim.studies.hardware.records import (
    OVER_BUDGET,
    Design,
    DesignAnswer,
    Doubt,
    Gain,
    LayerGain,
    StudiedLayer,
)
from ascendsim.studies.verdicts import Condition
from ascendsim.workloads import load_workload
from tests.helpers.report_samples import BOTH, answered, question

L1, L0C = "buffers.L1.capacity_bytes", "buffers.L0C.capacity_bytes"
PROFILE = load_profile("910B2")
MEMORY = "links.memory.nominal_tb_per_s"

# ---- Which design fits inside which


@pytest.mark.parametrize(
    ("small", "large", "fits"),
    [
        ({}, {}, True),
        ({L1: 1 << 17}, {}, True),
        ({}, {L1: 1 << 17}, False),
        # Half the latency is faster, so that the product as it is fits inside.
        ({}, {"scalar.start_us": 0.1}, True),
        ({"scalar.start_us": 0.1}, {}, False),
        # More of one and less of another: neither fits.
        ({L1: 1 << 20}, {L0C: 1 << 18}, False),
        ({L1: 1 << 20}, {L1: 1 << 20, L0C: 1 << 18}, True),
        # Another one, but neither better nor worse.
        ({"deterministic_default": True}, {}, False),
        ({}, {"deterministic_default": True}, False),
        ({}, {"core_structure": "another"}, False),
    ],
)
def test_a_design_fits_inside_one_that_has_all_it_has(small, large, fits):
    assert fits_inside(small, large, PROFILE) is fits


def test_what_is_made_better_holds_the_product_as_it_is():
    for product in ("910", "910B2", "910_95", "310P"):
        profile = load_profile(product)
        for path, figure in profile.figures.items():
            better = better_value(path, figure.value)
            if better not in (None, figure.value):
                assert fits_inside({}, {path: better}, profile)
                assert not fits_inside({path: better}, {}, profile)


def test_what_is_left_unused_are_sizes_alone():
    values = {"cores.cube": 48, "cores.vector": 96, L1: 1 << 20, MEMORY: 3.2}
    every, *kinds = held_to(values, {}, PROFILE)
    assert every == {"cores.cube": 24, "cores.vector": 48, L1: 1 << 19}
    # Cores of one kind may stay idle and those of the other work.
    assert kinds == [{**every, "cores.cube": 48}, {**every, "cores.vector": 96}]
    assert held_to(values, values, PROFILE) == []
    # The vector cores would follow the cube cores.
    assert held_to({}, {"cores.cube": 12}, PROFILE) == [{"cores.cube": 12, "cores.vector": 48}]


# ---- The best of all plans, of answers that are made up


def made_up(kernels):
    """Answer points by the base_m of their plans: microseconds of each gradient's kernels, or no fit."""

    def asking(points):
        return {name: answer(point) for name, point in points.items()}

    def answer(point):
        rows, plans = [], {}
        for name, plan in point.tiling.items():
            us = kernels(point, name, plan.tiling.base_m)
            if us is None:
                return PointAnswer(json.dumps({"reason": "does not fit"}))
            rows.append({"kernel": name, "cycles": us, "time_us": us})
            plans[name] = plan_values(plan)
        return PointAnswer(json.dumps({"records": rows, "plans": plans}))

    return asking


def plans(**sizes):
    return FrozenMap({name: Plan("s", Tiling(size, 16, 16)) for name, size in sizes.items()})


CALL = StudyPoint(ConvProblem((1, 16, 4, 4), (16, 16, 1, 1)), "910B2")


def best_of(own, kernels, *texts):
    changes = [change for text in texts for change in parse_changes(text)]
    family = Family("910B2", (AS_IT_IS, *changes), {"here": (CALL,)})
    own = {(design, "here"): sets for design, sets in enumerate(own)}
    return [best for _, best in sorted(family.best(own, made_up(kernels)).items())]


OLD, NEW = plans(grad_input=16, grad_weight=16), plans(grad_input=32, grad_weight=32)


def test_each_gradient_takes_its_best_plan():
    times = {("grad_input", 16): 5, ("grad_weight", 16): 9, ("grad_input", 32): 7, ("grad_weight", 32): 8}

    def kernels(point, name, size):
        # The new plans of the larger L1 do not fit the product as it is.
        return None if size == 32 and not point.changes else times[name, size]

    usual, large = best_of([[OLD], [OLD, NEW]], kernels, f"{L1}=x2")
    assert (usual.time_us, usual.way.plans) == (14, OLD)
    assert (large.time_us, large.way.plans) == (13, plans(grad_input=16, grad_weight=32))


def test_of_plans_that_do_not_fit_together_the_one_that_fits_is_tried():
    def kernels(point, name, size):
        if not point.changes and (name, size) == ("grad_input", 32):
            return None
        return 10 - size / 16

    usual, large = best_of([[OLD], [OLD, NEW]], kernels, f"{L1}=x2")
    assert usual.way.plans == plans(grad_input=16, grad_weight=32)
    assert large.way.plans == NEW


def test_what_a_larger_design_fills_for_nothing_is_left_unused():
    # The loops fill what L1 has, whatever the plan says, and take longer for it.
    usual, small, large = best_of(
        [[OLD], [OLD], [OLD]], lambda point, *_: point.changes.get(L1, 1 << 19) / 1024, f"{L1}=x0.25,x4"
    )
    assert usual.time_us == small.time_us == large.time_us == 256
    assert usual.way.unused == large.way.unused == {L1: 1 << 17}
    assert not small.way.unused


def test_a_faster_part_that_costs_time_is_held_back():
    usual, fast = best_of([[OLD], [OLD]], lambda point, *_: 3 if point.changes else 2, f"{MEMORY}=x2")
    assert usual.time_us == fast.time_us == 4
    assert (fast.way, fast.speed_us) == (usual.way, 6)


def test_plans_stay_where_others_are_no_faster():
    _, large = best_of([[OLD], [OLD, NEW]], lambda *_: 1, f"{L1}=x2")
    assert large.way.plans == OLD


# ---- What was slower for having more


def at_batch(name, batch, *changes, **options):
    problem = ConvProblem(**load_workload("resnet50").layer(name).problem_options(batch))
    return answered(question(*changes, layers=(StudiedLayer(name, problem, BOTH),), **options)).gains


def test_more_of_l1_is_never_slower_than_less():
    quarter, eighth = at_batch("s2b0_1x1b", 8, f"{L1}=x0.25,x0.125", starts=("warm",))
    assert eighth.better_us >= quarter.better_us >= quarter.unchanged_us
    # One product: what it does without a change is the same beside all changes.
    assert quarter.unchanged_us == eighth.unchanged_us


def test_more_cores_with_more_of_l1_are_never_slower_than_more_cores():
    cores, both = at_batch(
        "s3b1_3x3", 8, "cores.cube=28", f"cores.cube=28+{L1}=x2", starts=("warm",), tilings=8
    )
    assert both.better_us <= cores.better_us
    assert both.tuned_us[1] <= cores.tuned_us[1] <= cores.tuned_us[0]


# ---- Random pairs of designs, of which one fits inside the other

LAYERS = (
    ConvProblem((2, 64, 14, 14), (64, 64, 3, 3), padding=1),
    ConvProblem((4, 32, 14, 14), (64, 32, 1, 1)),
    ConvProblem((2, 48, 15, 15), (32, 48, 3, 3), stride=2, padding=1),
)
PRODUCTS = ("910B2", "910", "910_95", "310P")
FACTORS = (0.25, 0.5, 0.75, 1.5, 2)


def design(random, profile):
    """Draw some figures that have a better side, with the values that they become."""
    sided = [path for path, figure in profile.figures.items() if sense(path, figure.value)]
    sizes = [path for path in sided if "capacity_bytes" in path or path.startswith("cores.")]
    drawn = {}
    for path in random.sample(sizes, 2) + random.sample(sided, random.randrange(3)):
        usual = profile.figures[path].value
        drawn[path] = type(usual)(random.choice(FACTORS) * usual)
    return drawn


def worse(random, values, profile):
    """Return the design with some of its figures worse, or as the product has them where that is worse."""
    found = dict(values)
    for path, value in values.items():
        usual = profile.figures[path].value
        if (value - usual) * sense(path, usual) > 0 and random.random() < 0.7:
            del found[path]
        elif random.random() < 0.5:
            found[path] = type(usual)(value * (0.5 if sense(path, usual) > 0 else 2))
    return found


def pair(seed):
    """Draw two designs of a product that can be, the one inside the other."""
    random = Random(seed)
    product = PRODUCTS[seed % len(PRODUCTS)]
    profile = load_profile(product)
    while True:
        large = design(random, profile)
        small = worse(random, large, profile)
        try:
            changes = [Change(name, FrozenMap(v)) for name, v in (("small", small), ("large", large))]
            inner, outer = (change.on(profile) for change in changes)
        except Exception:  # a value that the figure cannot have
            continue
        possible = not contradiction(product, inner) and not contradiction(product, outer)
        if inner != outer and possible and fits_inside(inner, outer, profile):
            return product, random.choice(LAYERS), changes, random.choice(("warm", "handed", "chained"))


def slower(seed):
    """Time a pair by each alone, and as a family: whether the larger is slower alone, and in the family."""
    product, problem, changes, start = pair(seed)
    call = StudyPoint(problem, product, l2_start=start)
    family = Family(product, (AS_IT_IS, *changes), {0: (call,)})
    own = {}
    for at, values in enumerate(family.designs):
        try:
            made = plans_of_call(
                problem, output_mask=BOTH, product=load_profile(product, overrides=dict(values) or None)
            )
        except Exception:  # no plan of this product fits
            continue
        own[at, 0] = [FrozenMap(made)]
    asking = Asking(Engine(Store(), 1), Budget())
    best = family.best(own, asking)
    # A rule may also plan tiles that the smaller one's buffers do not hold, and then it has no time.
    if (1, 0) not in own or (2, 0) not in own or (1, 0) not in best:
        return None
    # Both have plans of their own here: what the larger one inherits fits it.
    small, large = (asking({0: family.points(Way(at, own[at, 0][0]), 0)[0]})[0] for at in (1, 2))
    assert best[2, 0].time_us <= best[1, 0].time_us, (seed, product, changes)
    # What is said to be its time is that of its calls.
    (answer,) = best[2, 0].answers
    (point,) = family.points(best[2, 0].way, 0)
    assert asking({0: point})[0].time_us == answer.time_us == best[2, 0].time_us
    return large.time_us > small.time_us


def test_of_random_designs_the_larger_is_never_slower():
    found = [slower(seed) for seed in range(10)]
    assert sum(one is not None for one in found) >= 8
    # Under their own plans alone some would be.
    assert any(found)


@pytest.mark.slow
def test_of_many_random_designs_the_larger_is_never_slower():
    found = [slower(seed) for seed in range(10, 210)]
    assert sum(one is not None for one in found) >= 140


# --- Are shares, fronts, bars and classes of designs those of their definitions? ---------------------


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


def priced(name, cost, us, **more):
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
        one = priced("x", 1.0, 1.0, reason=reason, without=without)
        assert (one.whole, one.refused, one.over_budget) == (whole, refused, over)


def test_the_front_has_no_design_that_costs_as_much_and_is_as_fast():
    rows = ("dear", 3, 50), ("same", 2, 90), ("slow", 1, 95), ("cheap", 1, 90), ("none", None, 5)
    part = priced("part", 1, 10, without={"a": "why"})
    found = answer(*(priced(*row) for row in rows), part)
    assert names(found.front) == ["cheap", "dear"]
    assert answer(part).front == answer(part).untold == ()


def test_a_bar_is_as_wide_as_the_margin_and_the_doubt():
    fast, slow = priced("fast", 2, 80), priced("slow", 1, 100)
    assert answer(fast, slow).bar(slow) == (100, 100)
    assert answer(fast, slow, margin=0.05).bar(slow) == (95, 105)
    # The fastest saves 10 to 50 % of it: 80 of 88.9 to 160.
    doubtful = priced("slow", 1, 100, behind=Doubt(0.1, 0.5, 1))
    assert answer(fast, doubtful, margin=0.05).bar(doubtful) == pytest.approx((80 / 0.9, 160))
    # All of it, or more than that, is no time at all.
    endless = priced("slow", 1, 100, behind=Doubt(0.1, 1.0, 1))
    assert answer(fast, endless).bar(endless) == pytest.approx((80 / 0.9, 100))


def test_classes_are_of_designs_that_lie_in_each_other_s_bars():
    # 5 % of 100 reach 105, and of 105 less than 100; 110 lies in the bar of 105 and not in that of 100.
    steps = [priced(str(us), 200 - us, us) for us in (100, 105, 110, 120)]
    assert [names(one) for one in answer(*steps, margin=0.05).classes] == [["100", "105"], ["110"], ["120"]]
    # To the end of both bars: 100 + 25 and 125 - 25.
    ends = [priced("100", 2, 100), priced("125", 1, 125)]
    assert [names(one) for one in answer(*ends, margin=0.25).classes] == [["100", "125"]]
    assert [names(one) for one in answer(*ends, margin=0.24).classes] == [["100"], ["125"]]
    # One alone reaches the other: no class.
    wide = [priced("100", 2, 100), priced("125", 1, 125, behind=Doubt(0.0, 0.5, 1))]
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
    fast, slow = priced("fast", 2, 75), priced("slow", 1, 100, behind=behind)
    assert names(answer(fast, slow).untold) == ["slow"] * untold
    # A quarter is no more than a margin of a quarter.
    assert names(answer(fast, slow, margin=0.25).untold) == ["slow"]
    assert names(answer(fast, slow, margin=0.24).untold) == ["slow"] * untold
    part = priced("part", 1, 74, without={"a": "why"})
    assert names(answer(fast, slow, part).untold) == ["slow"] * untold


# --- Are the ways to run a call on a design those that are said, and is the fastest found? -----------


OWN_L0C, OWN_L1 = "buffers.L0C.capacity_bytes", "buffers.L1.capacity_bytes"


def way(grad_input, grad_weight="", design=1, **unused):
    plans = {"grad_input": grad_input} | ({"grad_weight": grad_weight} if grad_weight else {})
    return Way(design, FrozenMap(plans), FrozenMap(unused))


def made(grad_input, grad_weight, cast=0.0):
    times = {"grad_input": grad_input, "cast_grad_input": cast, "grad_weight": grad_weight, "transdata": 99.0}
    return SimpleNamespace(records=[{"kernel": name, "time_us": us} for name, us in times.items()])


def timed(*rows):
    return [(0.0, one, answers) for one, *answers in rows]


def test_the_time_of_a_gradient_has_its_casts_and_no_other_kernels():
    assert gradient_us(made(3.0, 5.0, cast=0.5), "grad_input") == 3.5
    assert gradient_us(made(3.0, 5.0, cast=0.5), "grad_weight") == 5.0


def test_the_fastest_plan_of_each_gradient_makes_a_way_where_none_has_them_all():
    one, other = way("A", "a"), way("B", "b")
    assert _mixed(timed((one, made(10, 5)), (other, made(8, 7)))) == [way("B", "a")]
    # One that has them all, or is tried already, needs no more.
    assert _mixed(timed((one, made(10, 5)), (other, made(12, 7)))) == []
    known = way("B", "a")
    assert _mixed(timed((one, made(10, 5)), (other, made(8, 7)), (known, made(9, 6)))) == []
    # The slowest of the calls that count together decides; of equal plans the first stays.
    rows = (one, made(1, 5), made(10, 5)), (other, made(8, 7), made(8, 5))
    assert _mixed(timed(*rows)) == [way("B", "a")]
    assert _mixed(timed((one, made(8, 5)), (other, made(8, 5)))) == []
    # What is left unused has no say.
    less = way("C", "c", **{OWN_L1: 1})
    assert _mixed(timed((less, made(1, 1)), (one, made(10, 5)))) == []
    assert _mixed(timed((less, made(1, 1)))) == []


def test_plans_that_do_not_fit_together_are_tried_one_by_one():
    fits, refused = way("A", "a"), way("B", "b")
    found = _parted([fits, refused], timed((fits, made(1, 1))))
    assert found == [way("B", "a"), way("A", "b")]
    # Nothing fits, or nothing is refused; a single plan has no parts; none is tried twice.
    assert _parted([refused], []) == _parted([fits], timed((fits, made(1, 1)))) == []
    assert _parted([fits, way("B")], timed((fits, made(1, 1)))) == []
    again = way("B", "a")
    assert _parted([fits, refused, again], timed((fits, made(1, 1)))) == [way("A", "b")]
    less = way("C", "c", **{OWN_L1: 1})
    assert _parted([fits, less], timed((fits, made(1, 1)))) == []
    assert _parted([fits, refused], timed((less, made(1, 1)))) == []


FIGURES = (
    {},
    {OWN_L0C: "x2"},
    {OWN_L0C: "x2", OWN_L1: "x2"},
    {OWN_L1: "x2"},
    {OWN_L0C: "x2"},
    {OWN_L0C: "x1/2"},
)
FAMILY = Family("910B2", tuple(Change(str(at), FrozenMap(own)) for at, own in enumerate(FIGURES)), {})


def test_a_design_holds_those_that_have_nothing_more_of_equal_ones_those_before():
    assert FAMILY.inside == ((5,), (0, 5), (0, 1, 3, 4, 5), (0, 5), (0, 1, 5), ())
    assert FAMILY._levels == [[5], [0], [1, 3], [4], [2]]


def test_the_fastest_way_is_the_first_of_equal_ones_unless_one_inside_is_faster():
    one, other, less = way("A"), way("B"), way("C", **{OWN_L1: 1})
    rows = [(5.0, less, ("l",)), (5.0, one, ("o",)), (7.0, other, ("x",))]
    assert FAMILY._fastest(rows, []) == Best(less, 5.0, ("l",), 5.0, one)
    assert FAMILY._fastest(rows[:1], []) == Best(less, 5.0, ("l",), 5.0, less)
    inside = [Best(way("D", design=0), us, ("d",), us, way("D")) for us in (6.0, 5.0, 4.0)]
    assert FAMILY._fastest(rows, inside[:2]).way == less
    # Its time is taken over; what parts could do at their own speed is not.
    assert FAMILY._fastest(rows, inside) == Best(way("D", design=0), 4.0, ("d",), 5.0, one)
