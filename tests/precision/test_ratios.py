"""Is the order of two products as sure as what they share makes it, and no surer?"""

import math
import pickle
import random
from dataclasses import replace
from itertools import combinations, product
from types import SimpleNamespace

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.ops.matmul import MatmulProblem, estimate_matmul
from ascendsim.profile import Figure, list_products
from ascendsim.report.words import own_errors_line
from ascendsim.studies import sweep, verdicts
from ascendsim.studies.records import MODEL, PLAN, ErrorShare, FigureEffect, Interval, ModelError, PlanRisk
from ascendsim.studies.sweep import Sweep, ends, variables
from ascendsim.studies.uncertainty import draws, intervals, model_error, own_errors
from ascendsim.studies.verdicts import GainVerdict, condition_words, judged, ratio, ratios

PLANS = {"grad_input": SimpleNamespace(rule="a public rule", chosen_by="rule", by_rule=True)}


def two(monkeypatch, figures, times):
    """The sweeps of two made-up products: figures by path, and the time of their values."""
    known = {
        name: SimpleNamespace(figures=own, npu_arch="2201", product=name) for name, own in figures.items()
    }

    def load(name, overrides=None):
        values = {path: figure.value for path, figure in known[name].figures.items()} | (overrides or {})
        return SimpleNamespace(**vars(known[name]), values=values)

    def call(profile, _):
        time_us = times[profile.product](**profile.values)
        return SimpleNamespace(time_us=time_us, cycles=round(10 * time_us), plans=PLANS, kernels=())

    for module in ("sweep", "uncertainty"):
        monkeypatch.setattr(f"ascendsim.studies.{module}.load_profile", load)
    return [Sweep.of(name, call) for name in figures]


def figure(value, low, high, source):
    return Figure(value, source, "measured", (low, high))


def slow_ratio(figures, times):
    """Both ends of the ratio by figures alone, from its definition: joint moves, timed anew."""
    usual = [{path: one.value for path, one in own.items()} for own in figures.values()]
    moves = [usual]
    known = [variables(SimpleNamespace(figures=own)) for own in figures.values()]
    for text in {one.shared for own in known for one in own}:
        for end in (0, 1):
            moved = [
                {path: ends(f)[end] for one in own if one.shared == text for path, f in one.figures.items()}
                for own in known
            ]
            moves.append([values | other for values, other in zip(usual, moved, strict=True)])
    moves += [
        [values | other for values, other in zip(usual, drawn, strict=True)]
        for drawn in zip(*map(draws, known), strict=True)
    ]
    a, b = times.values()
    found = [b(**second) / a(**first) for first, second in moves]
    return found[0], min(found), max(found)


def made(pick):
    """Two made-up products of three figures, some of which are the same variable of both."""
    shared = {f"f{at}": pick.random() < 0.5 for at in range(3)}
    figures, times = {}, {}
    for name in ("a", "b"):
        figures[name] = {
            path: figure(pick.uniform(2, 3), 1, 5, "both" if is_shared else name)
            for path, is_shared in shared.items()
        }
        weights = {path: pick.uniform(0.1, 3) for path in shared}
        times[name] = lambda weights=weights, **values: sum(weights[path] * values[path] for path in values)
    return figures, times


def test_a_ratio_is_what_joint_moves_of_both_products_give(monkeypatch):
    for seed in range(40):
        figures, times = made(random.Random(seed))
        with monkeypatch.context() as patch:
            found = ratio(*intervals(two(patch, figures, times)))
        assert (found.usual, found.low, found.high) == pytest.approx(slow_ratio(figures, times))
        assert found.low <= found.usual <= found.high


def test_what_both_share_orders_products_whose_intervals_overlap(monkeypatch):
    # Twice the launches and 1 or 3 us besides: 2.0 to 2.2, though a lies in 11 .. 101 and b in 23 .. 203.
    figures = {
        name: {"launch": figure(20, 10, 100, "one"), "own": figure(2, 1, 3, f"of {name}")} for name in "ab"
    }
    times = {"a": lambda launch, own: launch + own, "b": lambda launch, own: 2 * launch + own}
    a, b = intervals(two(monkeypatch, figures, times))
    assert a.high_us > 2 * b.low_us
    assert a.dominant == b.dominant == ("launch",)
    found = ratio(a, b)
    assert 1.6 < found.low < 42 / 22 < found.high < 2.1
    # Measuring the launch, which makes both times wide, would settle less than what is a's own.
    assert (found.dominant, found.of) == ("own", (0,))
    # Were they of two sources, nothing would be sure.
    figures["b"]["launch"] = figure(20, 10, 100, "another")
    other = ratio(*intervals(two(monkeypatch, figures, times)))
    assert other.low < 1 < other.high
    assert other.dominant == "launch"


def test_plans_are_of_each_product_and_errors_of_one_architecture_cancel(monkeypatch):
    figures = {name: {"f": figure(2, 1, 3, "one")} for name in "ab"}
    plain = intervals(two(monkeypatch, figures, {"a": lambda f: f, "b": lambda f: 2 * f}))
    assert ratio(*plain).low == pytest.approx(2) == ratio(*plain).high

    def judged(one, family, *shares, plan=1.0):
        own = tuple(ErrorShare(kind, share, error, "910", True) for kind, share, error in shares)
        low, high = (sum(s.share * math.exp(sign * s.error) for s in own) for sign in (-1, 1))
        risk = PlanRisk("tried", one.usual_us * plan)
        return one.__class__(
            **{name: getattr(one, name) for name in one.__slots__}
            | {"plan": risk, "model": ModelError(low, high, 9, "rows", family, own)}
        )

    same = [judged(one, "2201", ("dx", 0.25, 0.4), ("dw", 0.75, 0.2)) for one in plain]
    assert (ratio(*same).low, ratio(*same).high) == pytest.approx((2, 2))
    # But for what was measured of ratios of like times.
    kept = ratio(*same, 0.2)
    assert (kept.low, kept.high) == pytest.approx((2 / 1.2, 2 * 1.2))
    assert (kept.dominant, kept.of) == (MODEL, (0, 1))
    # Other shares: at the worst corner one kind is longer and the other shorter than estimated.
    other = [same[0], judged(plain[1], "2201", ("dx", 0.75, 0.4), ("dw", 0.25, 0.2))]
    a = 0.25 * math.exp(0.4) + 0.75 * math.exp(-0.2)
    b = 0.75 * math.exp(0.4) + 0.25 * math.exp(-0.2)
    assert ratio(*other).high == pytest.approx(2 * b / a)
    assert (ratio(*other).dominant, ratio(*other).of) == (MODEL, (0, 1))
    # Of another architecture nothing cancels: the half widths join.
    apart = [same[0], judged(plain[1], "1001", ("dx", 0.25, 0.4), ("dw", 0.75, 0.2))]
    wide = math.hypot(math.log(same[0].model.high), -math.log(same[0].model.low))
    assert ratio(*apart).high == pytest.approx(2 * math.exp(wide))
    # A plan that may be half as long makes the ratio as much shorter, or longer where it is the first's.
    for at, (low, high) in ((0, (2, 4)), (1, (1, 2))):
        planned = list(plain)
        planned[at] = judged(plain[at], "2201", ("dx", 1.0, 0.0), plan=0.5)
        found = ratio(*planned)
        assert (found.low, found.high) == pytest.approx((low, high))
        assert (found.dominant, found.of) == (PLAN, (at,))


def test_the_one_measurement_that_would_settle_most_is_named(monkeypatch):
    # Eight figures of 1 us to either side are wider together than a plan, and one of them is not.
    figures = {"a": {f"f{at}": figure(10, 9, 11, "a") for at in range(8)}, "b": {}}
    times = {"a": lambda **values: sum(values.values()), "b": lambda: 80.0}
    one, other = intervals(two(monkeypatch, figures, times))
    planned = replace(one, plan=PlanRisk("tried", 0.96 * one.usual_us))
    whole, both = ratio(one, other), ratio(planned, other)
    assert whole.high / whole.low > 1 / 0.96 > 81 / 79
    assert (whole.dominant, whole.of) == ("f0", (0,))
    assert (both.dominant, both.of) == (PLAN, (0,))


def test_what_cancels_whole_settles_nothing(monkeypatch):
    figures = {name: {"f": figure(2, 1, 3, "one")} for name in "ab"}
    found = ratio(*intervals(two(monkeypatch, figures, {"a": lambda f: f, "b": lambda f: 2 * f})))
    assert (found.low, found.high, found.dominant, found.of) == (2, 2, "", ())


def test_ratios_are_of_each_pair_and_pickle(monkeypatch):
    figures, times = made(random.Random(0))
    found = intervals(two(monkeypatch, figures, times)) * 2
    pairs = ratios(found)
    assert pairs == [ratio(*pair) for pair in combinations(found, 2)]
    assert pickle.loads(pickle.dumps(pairs)) == pairs
    # Without a margin, kernels of one architecture err wholly alike.
    alike = ModelError(0.9, 1.1, 1, "", "2201", (ErrorShare("grad_input 2-D", 1.0, 0.1, "910B", True),))
    both = [replace(one, model=alike) for one in found[:2]]
    assert ratios(both) == [ratio(*both, 0.0)] != [ratio(*both, 0.5)]


def told(low_us, high_us, shared="", name="x"):
    return FigureEffect(name, 2, 1, 3, 100.0, low_us, high_us, (), shared)


def call_of(*effects, **more):
    """An interval of 100 us by hand."""
    ends = [us for one in effects for us in (one.low_us, one.high_us)]
    return Interval(
        len(effects), 100.0, min(ends, default=100.0), max(ends, default=100.0), 0, 0, effects, **more
    )


def test_what_is_no_figure_of_both_is_of_one_call_alone():
    # Each has a figure x of its own: between 100 / 125 and 100 / 80, by the first as much as by the second.
    own = ratio(call_of(told(80.0, 125.0)), call_of(told(80.0, 125.0)))
    assert (own.low, own.high) == pytest.approx((0.8, 1.25))
    assert (own.dominant, own.of) == ("x", (0,))
    # As one figure of both it moves nothing, or what the two differ by.
    same = ratio(call_of(told(80.0, 125.0, "s")), call_of(told(80.0, 125.0, "s")))
    assert (same.low, same.high, same.dominant, same.of) == (1.0, 1.0, "", ())
    both = ratio(call_of(told(80.0, 125.0, "s")), call_of(told(90.0, 110.0, "s")))
    assert (both.low, both.high) == pytest.approx((110 / 125, 90 / 80))
    assert (both.dominant, both.of) == ("x", (0, 1))
    # The second alone, the longer of two.
    alone = ratio(call_of(), call_of(told(90.0, 120.0), told(95.0, 150.0, name="y")))
    assert (alone.low, alone.high) == pytest.approx((0.9, 1.5))
    assert (alone.dominant, alone.of) == ("y", (1,))


def test_kernels_of_one_kind_err_alike_and_kinds_each_in_its_way():
    shares = [("a", 0.5, 0.2), ("b", 0.5, 0.1)], [("a", 1.0, 0.2)]
    models = [
        ModelError(0.9, 1.1, 1, "", "2201", tuple(ErrorShare(*one, "910B", True) for one in own))
        for own in shares
    ]
    found = ratio(*(call_of(model=model) for model in models), 0.05)
    # All four corners of both errors.
    reached = []
    for a, b in product((0.2, -0.2), (0.1, -0.1)):
        reached.append(a - math.log(0.5 * math.exp(a) + 0.5 * math.exp(b)))
    margin = math.log(1.05)
    assert found.low == pytest.approx(math.exp(-math.hypot(min(reached), margin)))
    assert found.high == pytest.approx(math.exp(math.hypot(max(reached), margin)))
    assert (found.dominant, found.of) == (MODEL, (0, 1))
    # Of two architectures each has its own; the ratio falls as the first takes longer.
    other = ratio(call_of(model=models[0]), call_of(model=replace(models[1], family="1001", high=1.2)))
    assert other.low == pytest.approx(math.exp(-math.hypot(math.log(1.1), math.log(1 / 0.9))))
    assert other.high == pytest.approx(math.exp(math.hypot(math.log(1 / 0.9), math.log(1.2))))
    assert (other.dominant, other.of) == (MODEL, (1,))


def test_a_plan_widens_a_ratio_on_its_side():
    # The search is a fifth faster on the first, and a quarter slower on the second: either way it is longer.
    plans = [PlanRisk("why", us) for us in (80.0, 125.0)]
    first = ratio(call_of(plan=plans[0]), call_of())
    assert (first.low, first.high) == pytest.approx((1.0, 1.25))
    assert (first.dominant, first.of) == (PLAN, (0,))
    second = ratio(call_of(), call_of(plan=plans[1]))
    assert (second.low, second.high) == pytest.approx((1.0, 1.25))
    assert (second.dominant, second.of) == (PLAN, (1,))
    both = ratio(call_of(plan=plans[0]), call_of(plan=plans[1]))
    assert both.high == pytest.approx(math.exp(math.hypot(math.log(1.25), math.log(1.25))))


def test_draws_of_both_are_taken_pair_by_pair():
    calls = call_of(draws_us=(80.0, None, 100.0)), call_of(draws_us=(100.0, 500.0, 90.0, 900.0))
    found = ratio(*calls)
    assert (found.low, found.high) == pytest.approx((0.9, 1.25))


def test_nothing_to_do_is_not_ordered(monkeypatch):
    figures, _ = made(random.Random(0))
    found = intervals(two(monkeypatch, figures, dict.fromkeys("ab", lambda **_: 0.0)))
    assert (ratio(*found).low, ratio(*found).high, ratio(*found).dominant) == (1.0, 1.0, "")


def test_what_two_products_share_is_drawn_alike_and_all_else_is_not():
    known = {
        variant: variables(load_profile(variant))
        for variant in ("910B1", "910B2", "910B4", "910_9382", "950PR_9589", "310P3", "910A")
    }
    places = {variant: draws(own) for variant, own in known.items()}
    for one, other in combinations(known, 2):
        texts = {own.shared: own.name for own in known[one]}
        alike = [own.name for own in known[other] if own.shared in texts]
        for name in alike:
            mine, theirs = ([point[name] for point in places[of]] for of in (one, other))
            # A value is rounded as the product's own is written: whole or not.
            assert all(
                abs(a - b) <= 0.5 for a, b in zip(mine, theirs, strict=True) if not isinstance(a, list)
            )
    shared = {own.shared for own in known["910B2"]}
    assert shared == {own.shared for own in known["910B1"]}
    assert len(shared & {own.shared for own in known["910_9382"]}) == 45


@pytest.mark.parametrize("name", [product.name for product in list_products()])
def test_an_interval_says_where_no_own_error_is_known(name):
    problem, profile = ConvProblem((1, 16, 6, 6), (32, 16, 3, 3), padding=1), load_profile(name)
    model = model_error(profile, estimate(problem, product=profile))
    own = {share.kind: share.own for share in model.shares}
    measured = {"910B": {"layouts"}, "910": {"grad_input 2-D", "grad_weight 2-D"}}.get(name, set())
    assert {kind for kind, known in own.items() if known} == measured
    assert sum(share.share for share in model.shares) == pytest.approx(1)
    assert ("too few" in model.grounds) == (measured != set(own))


def test_casts_and_sums_have_the_error_of_changes_of_layout_and_none_of_their_own():
    problem, profile = ConvProblem((1, 16, 6, 6), (32, 16, 3, 3), padding=1), load_profile("910B2")
    bias = (False, False, True)
    model = model_error(profile, estimate(problem, product=profile, output_mask=bias))
    changes = own_errors()["2201", "layouts"].error
    assert [(one.kind, one.error, one.own) for one in model.shares] == [("others", changes, False)]


def test_an_error_that_stands_in_says_what_few_rows_there_are_say_of_it():
    problem, profile = ConvProblem((1, 16, 6, 6), (32, 16, 3, 3), padding=1), load_profile("910B2")
    model = model_error(profile, estimate(problem, product=profile, output_mask=(True, False, False)))
    (there,) = (one for one in own_errors().values() if (one.family, one.kind) == ("2201", "grad_input 2-D"))
    (share,) = (one for one in model.shares if one.kind == there.kind)
    assert (share.own, share.of, share.tried, share.inside) == (False, "910", there.others, there.inside)
    shares = [{name: getattr(share, name) for name in share.__slots__} for share in model.shares]
    line = own_errors_line({"variant": "910B2", "interval": {"model": {"shares": shares}}})
    assert (
        f"on 910B2 (the 910's stands in, and holds {there.inside} of {there.others} measured there)." in line
    )


def test_matrix_products_have_the_widest_error_of_all():
    profile = load_profile("910B2")
    model = model_error(profile, estimate_matmul(MatmulProblem(256, 256, 256), product=profile))
    shares = [share for share in model.shares if share.kind != "layouts"]
    assert [share.own for share in shares] == [False]
    assert shares[0].error == max(one.error for one in own_errors().values())


# --- Is a gain called one only where it holds at every end, and is its break-even where it says? -----


def ranged(value, *ends):
    return Figure(value, "nobody", "assumed", list(ends))


FIGURES = {"launch_us": ranged(0.1, 0.0, 0.3), "queue": ranged(4, 1, 16), "flag": ranged(False, False, True)}


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
