"""Do an interval and a sweep hold what the ranges of a product's figures allow?"""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

import committed_pages
from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.errors import ConfigError
from ascendsim.profile import Figure, list_products
from ascendsim.profile.records import ranged_figures
from ascendsim.report.headline import short
from ascendsim.report.overview import products_table
from ascendsim.report.words import interval_line
from ascendsim.studies.records import FigureEffect, Interval, ModelError, PlanRisk
from ascendsim.studies.sweep import (
    Sweep,
    end_moves,
    ends,
    moved_together,
    times,
    variables,
)
from ascendsim.studies.uncertainty import DRAWS, draws, interval, interval_size, plan_risk
from tests.helpers.toy_machines import PLAN, made_up_call, made_up_sweep

# --- Does the interval of a run hold what the ranges of its product's figures allow? -------------------

# One kernel of the cube, and what a call has besides: an interval times it some 160 times.
ONE = (True, False, False)
PROBLEM = ConvProblem((1, 16, 6, 6), (32, 16, 3, 3), padding=1)
WORDS = ("--input", "1,16,6,6", "--weight", "32,16,3,3", "--padding", "1")
WORDS += ("--mask", "input", "--cycles-only")


def call(profile, plans):
    return estimate(PROBLEM, product=profile, tiling=plans, output_mask=ONE)


def made_up(monkeypatch, figures, time):
    """The interval of a made-up product, and what it told of its progress."""
    told = []
    return interval("toy", made_up_call(monkeypatch, figures, time)[0], told.append), told


def test_the_least_cycles_need_not_be_those_of_the_shortest_call(monkeypatch):
    # Launches take time and no cycles: the call of the least time is that of the shortest launch.
    figures = {"rate": (2, (1, 4)), "launch": (30, (10, 70))}
    timed, _ = made_up_call(monkeypatch, figures, lambda rate, launch: 10 / rate + launch)

    def call(profile, plans):
        made = timed(profile, plans)
        made.cycles = round(100 / profile.values["rate"])
        return made

    made = interval("toy", call)
    assert (made.least_cycles, made.most_cycles) == (100 / 4, 100 / 1)
    assert made.shortest_us < 10 / 2 + 30


def test_an_interval_is_of_figures_alone_and_of_draws_of_all(monkeypatch):
    # 10 / rate + wait: 10 / 2 + 3 = 8 as it is; 10 / 4 + 1 = 3.5 at best, 10 / 1 + 7 = 17 at worst: corners
    # that draws come near.
    figures = {"rate": (2, (1, 4)), "wait": (3, (1, 7))}
    made, told = made_up(monkeypatch, figures, lambda rate, wait: 10 / rate + wait)
    assert 3.5 <= made.shortest_us == min(made.draws_us) < 4.5
    assert 15 < made.longest_us == max(made.draws_us) <= 17
    assert made.least_cycles == round(10 * made.shortest_us)
    assert made.figures == 2
    assert told == [
        "rate",
        "rate",
        "wait",
        "wait",
        *(f"draw {number + 1} of {DRAWS}" for number in range(DRAWS)),
    ]
    # Alone, the rate moves 8 to 5.5 and 13; the wait to 6 and 12.
    assert [(effect.figure, effect.shortest, effect.longest) for effect in made.effects] == [
        ("rate", (5.5, 4), (13.0, 1)),
        ("wait", (6.0, 1), (12.0, 7)),
    ]


def test_the_widest_span_comes_first(monkeypatch):
    figures = {"little": (1, (0, 2)), "much": (1, (0, 2)), "some": (1, (0, 2))}
    made, _ = made_up(monkeypatch, figures, lambda little, much, some: little + 9 * much + 3 * some)
    assert [(effect.figure, effect.span_us) for effect in made.effects] == [
        ("much", 18),
        ("some", 6),
        ("little", 2),
    ]


def test_a_figure_that_moves_nothing_is_no_effect(monkeypatch):
    made, _ = made_up(monkeypatch, {"idle": (5, (1, 9))}, lambda idle: 4.0)  # noqa: ARG005
    assert (made.shortest_us, made.longest_us, made.effects) == (4.0, 4.0, ())


def test_a_figure_whose_worst_is_between_its_ends_keeps_the_call_as_the_longest(monkeypatch):
    # 10 - (size - 3)^2: as it is, at 3, it takes longest; the end of 0 shortens it to 1, that of 4 to 9.
    made, _ = made_up(monkeypatch, {"size": (3, (0, 4))}, lambda size: 10.0 - (size - 3) ** 2)
    (effect,) = made.effects
    assert effect.longest == (10.0, None)
    assert effect.shortest == (1.0, 0)
    assert (made.shortest_us, made.longest_us) == (1.0, 10.0)


def test_an_end_at_the_value_and_a_text_are_not_tried(monkeypatch):
    figures = {
        "low": (1, (1, 2)),
        "model": ("a", ("a", "b")),
        "none": (1, None),
        "spread": ([1, 2], ([0, 1], [2, 3])),
    }
    made, told = made_up(monkeypatch, figures, lambda low, **_: float(low))
    assert told[:3] == ["low", "spread", "spread"]
    assert len(told) == 3 + DRAWS
    assert (made.shortest_us, made.longest_us) == (1.0, 2.0)
    assert made.figures == 2  # a model and a figure without a range are not moved


def test_a_report_names_the_ends_that_are_left_out(record, tmp_path):
    # 16 KiB of L1 hold no tile of the plan that 512 KiB have made.
    own = tmp_path / "own.toml"
    own.write_text(
        'product = "own"\nbase = "910B2"\n[buffers.L1]\ncapacity_bytes = '
        '{ value = 524288, source = "tried", confidence = "assumed", range = [1024, 524288] }\n'
    )
    [entry] = record(*WORDS, "--interval", "--product", str(own))["products"]
    assert entry["interval"]["left_out"] == ["buffers.L1.capacity_bytes=1024"]
    assert "left out, as this plan cannot be timed there: buffers.L1.capacity_bytes=1024." in interval_line(
        entry
    )


def test_draws_that_contradict_themselves_have_no_time(monkeypatch):
    # The two must add up to at least 6, which some draws do not.
    def time(first, second):
        if first + second < 6:
            raise ConfigError("too small")
        return 2.0 * first + second

    made, _ = made_up(monkeypatch, {"first": (5, (2, 5)), "second": (5, (1, 5))}, time)
    assert 0 < made.draws_us.count(None) < DRAWS
    known = [us for us in made.draws_us if us is not None]
    # Alone, the first at its low end gives 2 * 2 + 5.
    assert made.shortest_us == min(9.0, *known)
    assert made.longest_us == 15.0


def test_an_end_that_is_impossible_alone_is_left_out(monkeypatch):
    def time(size):
        if size < 2:
            raise ConfigError("too small")
        return float(size)

    made, _ = made_up(monkeypatch, {"size": (3, (1, 4))}, time)
    # Draws are whole, as the figure is: 2 is the least of those that can be timed.
    assert (made.shortest_us, made.longest_us) == (2.0, 4.0)
    assert made.left_out == ("size=1",)


@pytest.mark.parametrize("product", ["910B", "910"])
def test_a_real_interval_holds_the_call_and_each_effect_is_that_of_the_figure(product):
    usual = estimate(PROBLEM, product=product, output_mask=ONE)
    made = interval(product, call)
    assert made.shortest_us < usual.time_us < made.longest_us
    assert made.figures == len(ranged_figures(load_profile(product)))
    largest = made.effects[0]
    assert largest.usual_us == usual.time_us
    other = load_profile(product, overrides={largest.figure: largest.longest[1]})
    again = call(other, {k.name: k.plan for k in usual.kernels if k.macs})
    assert again.time_us == largest.longest[0] <= made.longest_us


def test_a_call_that_has_been_timed_is_not_timed_again(monkeypatch):
    figures = {"rate": (2, (1, 4)), "wait": (3, (1, 7))}
    call, asked = made_up_call(monkeypatch, figures, lambda rate, wait: 10 / rate + wait)
    usual = interval("toy", call)
    assert asked.count((None, None)) == 1
    known = call(SimpleNamespace(overrides=None, values={"rate": 2, "wait": 3}), None)
    asked.clear()
    assert interval("toy", call, usual=known) == usual
    # Two ends of each of two figures, then the draws.
    assert len(asked) == 4 + DRAWS
    assert all(plans == {"grad_input": PLAN} for _, plans in asked)


def test_a_run_says_it_when_asked(record_of, answer):
    assert record_of()["interval"] is None
    made = record_of("--interval")
    assert made["interval"]["shortest_us"] <= made["time_us"] <= made["interval"]["longest_us"]
    text = " ".join(answer("run", *WORDS, "--interval").split())
    assert interval_line(made) in text
    assert "Interval:" not in answer("run", *WORDS)


def test_products_side_by_side_have_their_intervals(record_of):
    made = record_of("--interval")
    table = products_table([made, made])
    assert table.headings[-2:] == ("us", "80 % interval")
    low, high = (short(made["interval"][which]) for which in ("low_us", "high_us"))
    assert table.rows[0][-1] == f"{low} .. {high}"
    assert products_table([made | {"interval": None}]).headings[-1] == "us"


@pytest.mark.slow
def test_an_interval_is_of_the_tensors_as_they_are(record):
    words = (*WORDS[:-1], "--dtype", "float32", "--interval")
    whole, cycles = (record(*words, *more)["products"][0]["interval"] for more in ((), ("--cycles-only",)))
    assert whole == cycles


def test_each_product_is_moved_by_figures_of_its_own(record):
    made = record(*WORDS, "--interval", "--product", "910B", "--product", "910_95")["products"]
    (alone,) = record(*WORDS, "--interval", "--product", "910_95")["products"]
    assert made[1]["interval"] == alone["interval"] != made[0]["interval"]


@pytest.mark.slow
def test_an_interval_does_not_depend_on_the_number_of_workers(record):
    one, two = (
        record(*WORDS, "--product", "310P", "--interval", "--workers", workers)["products"][0]
        for workers in ("1", "2")
    )
    assert one == two
    assert one["interval"] is not None


def test_a_network_has_no_interval(refusal):
    assert "--interval is of one layer" in refusal("run", "--interval")


@pytest.fixture
def record_of(record):
    """Run the small convolution and return its product."""
    return lambda *words: record(*WORDS, *words)["products"][0]


# --- Do the figures of one source move together, and all of them in draws? -----------------------------


@pytest.mark.slow
def test_a_measured_range_moves_the_call_as_an_assumed_one_does():
    problem = ConvProblem((4, 128, 28, 28), (128, 128, 3, 3), padding=1)
    made = interval("910B2", lambda profile, plans: estimate(problem, product=profile, tiling=plans))
    spans = {effect.figure: effect.span_us for effect in made.effects}
    # 0.06 to 0.29 us for each core is most of what nobody knows of it; the other two are measured as well.
    assert made.effects[0].figure == "launch.per_core_us"
    assert spans["launch.per_core_us"] > 0.5 * made.usual_us
    assert spans["scalar.start_us"] > 0.1 * made.usual_us
    assert spans["vector.tap_block_cycles"] > 0
    assert made.shortest_us < 0.9 * made.usual_us
    assert made.longest_us > 1.5 * made.usual_us


def test_figures_of_one_source_move_once(monkeypatch):
    figures = {"a.head_cycles": (2, (1, 3)), "b.head_cycles": (2, (1, 3)), "b.latency": (5, (1, 9))}
    same = {"a.head_cycles": "a probe", "b.head_cycles": "a probe", "b.latency": "a probe"}
    call, asked = made_up_call(
        monkeypatch, figures, lambda **values: 1.0 + sum(values.values()), same.items()
    )
    made = interval("toy", call)
    # Heads are one quantity of one source; latencies are another.
    assert [(e.figure, e.together, e.low_us, e.high_us) for e in made.effects] == [
        ("b.latency", (), 6.0, 14.0),
        ("a.head_cycles", ("b.head_cycles",), 8.0, 12.0),
    ]
    assert [moved for moved, _ in asked[1:3]] == [
        {"a.head_cycles": 1, "b.head_cycles": 1},
        {"a.head_cycles": 3, "b.head_cycles": 3},
    ]
    for moved, _ in asked[5:]:
        assert moved["a.head_cycles"] == moved["b.head_cycles"]


def known_figures(**sources):
    return SimpleNamespace(
        figures={
            path.replace("__", "."): Figure(2, source, "assumed", (1, 4)) for path, source in sources.items()
        }
    )


@pytest.mark.parametrize(
    ("sources", "count"),
    [
        ({"paths__A__head_cycles": "x", "paths__B__head_cycles": "as A"}, 1),
        ({"paths__A__head_cycles": "x", "paths__B__head_cycles": "as A", "paths__C__head_cycles": "as B"}, 1),
        ({"paths__A__head_cycles": "x", "paths__B__latency_cycles": "as A"}, 2),
        ({"paths__A__head_cycles": "as on the 910B", "paths__B__head_cycles": "as on the 910B"}, 2),
        ({"paths__A__head_cycles": "as B", "paths__B__head_cycles": "as A"}, 2),
    ],
)
def test_which_figures_are_of_one_source(sources, count):
    assert len(variables(known_figures(**sources))) == count


def test_figures_of_other_values_are_other_numbers():
    """A variable goes by one figure, whose ends are those of all: else a verdict tries only some."""
    source = {"paths.A.head_cycles": 1, "paths.B.head_cycles": 4}
    both = {path: Figure(value, "a probe", "measured", (1, 4)) for path, value in source.items()}
    one, other = variables(SimpleNamespace(figures=both))
    assert [each.at(end) for each in (one, other) for end in (0, 1)] == [
        {},
        {one.name: 4},
        {other.name: 1},
        {},
    ]
    for product in list_products():
        for own in variables(load_profile(product.name)):
            figures = [(figure.value, figure.range) for figure in own.figures.values()]
            assert all(figure == figures[0] for figure in figures)


def test_a_move_is_of_all_figures_that_are_one_number():
    source = {"paths.A.head_cycles": "a probe", "paths.B.head_cycles": "as A", "paths.C.head_cycles": "other"}
    figures = {path: Figure(2, text, "measured", (1, 4)) for path, text in source.items()}
    moved = moved_together({"paths.A.head_cycles": 3, "else": 7}, variables(SimpleNamespace(figures=figures)))
    assert moved == {"paths.A.head_cycles": 3, "paths.B.head_cycles": 3, "else": 7}


def test_two_products_have_what_they_share_at_the_same_place():
    one, other = (variables(load_profile(product)) for product in ("910B", "910_93"))
    mine, theirs = (draws(own)[7] for own in (one, other))
    shared = set(mine) & set(theirs)
    assert len(shared) > 40
    assert sum(mine[path] == theirs[path] for path in shared) > 40


def test_draws_fill_a_range_evenly_and_a_wide_one_by_orders():
    own = variables(known_figures(near="x")) + variables(
        SimpleNamespace(
            figures={"wide": Figure(10.0, "y", "measured", (1.0, 100.0)), "no": Figure(1, "z", "measured")}
        )
    )
    own[0].figures["near"] = Figure(2.0, "x", "measured", (1.0, 3.0))
    points = draws(own, 100)
    near, wide = (sorted(point[path] for point in points) for path in ("near", "wide"))
    # Each hundredth of a range has one draw.
    assert all(abs(value - (1 + 2 * place / 100)) <= 0.021 for place, value in enumerate(near))
    assert all(place <= 50 * math.log10(value) + 0.01 <= place + 1.02 for place, value in enumerate(wide))


def test_parts_join_by_their_squares_and_the_largest_is_named():
    effects = (effect(7.0, 16.0),)
    made = Interval(1, 8.0, 4.0, 16.0, 40, 160, effects)
    assert (made.low_us, made.high_us) == (pytest.approx(4.0), pytest.approx(16.0))
    assert made.dominant == ("rate",)
    full = replace(made, plan=PlanRisk("tried", 4.0), model=ModelError(0.5, 4.0, 9, "rows"))
    # In log time ln 2 below for each of three; ln 2 and ln 4 above, where a plan says nothing.
    assert full.low_us == pytest.approx(8.0 * 2 ** -(3**0.5))
    assert full.high_us == pytest.approx(8.0 * 2 ** (5**0.5))
    assert full.dominant == ("the model's own error",)
    assert replace(made, shortest_us=8.0, longest_us=8.0, effects=()).dominant == ()


def test_a_plan_of_no_public_rule_is_held_against_the_best_of_the_search():
    problem = ConvProblem((4, 128, 28, 28), (128, 128, 3, 3), padding=1)

    def timed(profile, plans):
        return estimate(problem, product=profile, tiling=plans)

    one, other = (plan_risk(Sweep.of(product, timed)) for product in ("910B2", "910A"))
    # grad_input of the 910B goes by our own grids, grad_weight by the library's rules.
    assert one.why.startswith("grad_input: by rules of our own")
    usual = estimate(problem, product="910B2")
    searched = estimate(problem, product="910B2", tiling={"grad_input": "search"})
    assert one.search_us == searched.time_us != usual.time_us
    assert (other.why, other.search_us) == ("by public rules", estimate(problem, product="910A").time_us)


@pytest.mark.parametrize(
    ("tiling", "why"),
    [
        ("search", "grad_input and grad_weight: found by the search"),
        ({"grad_weight": {"base_m": 32}}, "as given"),
    ],
)
def test_a_plan_that_was_asked_for_is_no_risk(tiling, why):
    def timed(profile, plans):
        return estimate(PROBLEM, product=profile, tiling=plans or tiling)

    sweep = Sweep.of("910A", timed)
    risk = plan_risk(sweep)
    assert risk.why.startswith(why)
    assert risk.search_us == sweep.usual.time_us


# --- Does a sweep move every figure with a range alone, to both ends, under the plans that the call has? ----


def effect(low_us, high_us, usual_us=8.0):
    return FigureEffect("rate", 2, 1, 4, usual_us, low_us, high_us)


def nothing(_):
    pass


def test_the_ends_of_one_figure():
    one = effect(13.0, 5.5)
    assert one.shortest == (5.5, 4)
    assert one.longest == (13.0, 1)
    assert one.span_us == 7.5
    # 13 / 8 - 1 and 5.5 / 8 - 1
    assert one.changes == (0.625, -0.3125)
    assert one.largest_change == 0.625


def test_the_call_as_it_is_may_be_the_shortest_or_the_longest():
    assert effect(8.0, 9.0).shortest == (8.0, None)
    assert effect(7.0, 7.5).longest == (8.0, None)
    still = effect(8.0, 8.0)
    assert (still.span_us, still.shortest[1], still.longest[1], still.largest_change) == (
        0.0,
        None,
        None,
        0.0,
    )


def test_an_end_that_others_contradict_has_no_time():
    one = effect(None, 10.0)
    assert one.shortest == (8.0, None)
    assert one.changes == (None, 0.25)
    assert one.largest_change == 0.25
    assert effect(None, None).largest_change == 0.0


def test_of_equal_ends_the_low_one_is_named():
    assert effect(6.0, 6.0).shortest == (6.0, 1)


def test_each_figure_is_moved_alone(monkeypatch):
    call, asked = made_up_call(monkeypatch, {"a": (2, (1, 4)), "b": (3, (3, 7))}, lambda a, b: a + 10 * b)
    found = Sweep.of("toy", call).effects(nothing)
    assert found == (
        FigureEffect("a", 2, 1, 4, 32, low_us=31, high_us=34, shared="a: source of a, (1, 4)"),
        FigureEffect("b", 3, 3, 7, 32, low_us=32, high_us=72, shared="b: source of b, (3, 7)"),
    )
    # The call as it is chooses its plans; b is at its low end already, which needs no call.
    assert asked == [
        (None, None),
        ({"a": 1}, {"grad_input": PLAN}),
        ({"a": 4}, {"grad_input": PLAN}),
        ({"b": 7}, {"grad_input": PLAN}),
    ]


def test_progress_counts_the_calls(monkeypatch):
    figures = {"a": (2, (1, 4)), "b": (3, (3, 7)), "model": ("x", ("x", "y")), "none": (1, None)}
    told = []
    made_up_sweep(monkeypatch, figures, lambda a, b, **_: a + b).effects(told.append)
    assert told == ["a", "a", "b"]
    known = {path: Figure(value, path, "measured", ends) for path, (value, ends) in figures.items()}
    assert interval_size(SimpleNamespace(figures=known)) == 3 + DRAWS


class Times:
    """A call that other processes can be told: the small convolution as it is."""

    def __call__(self, profile, plans):
        return estimate(PROBLEM, product=profile, tiling=plans, output_mask=ONE)


@pytest.mark.slow
def test_effects_do_not_depend_on_the_number_of_workers():
    told = {1: [], 2: []}
    one, two = (Sweep.of("310P", Times()).effects(told[workers].append, workers) for workers in (1, 2))
    assert one == two
    assert any(effect.span_us for effect in one)
    assert told[1] == told[2]
    assert len(told[1]) == len(end_moves(variables(load_profile("310P"))))


def test_a_contradiction_is_an_answer_and_a_slip_in_a_study_is_not(monkeypatch):
    def time(size):
        if size < 2:
            raise ConfigError("too small")
        return float(size)

    sweep = made_up_sweep(monkeypatch, {"size": (3, (1, 4))}, time)
    [[contradiction, longest]] = times([sweep], [[{"size": 1}, {"size": 4}]], 1, ["size"] * 2)
    assert contradiction is None
    assert longest.time_us == 4.0
    with pytest.raises(TypeError):
        times([sweep], [[{"sise": 4}]], 1, ["sise"])


def test_a_call_that_cannot_be_timed_as_it_is_says_why(monkeypatch):
    def refuse(size):
        raise ConfigError(f"size {size} is too small")

    with pytest.raises(ConfigError, match="size 3 is too small"):
        made_up_sweep(monkeypatch, {"size": (3, (1, 4))}, refuse)


def test_the_plans_are_those_of_the_cube_kernels():
    usual = estimate(PROBLEM, product="910B")
    plans = usual.plans
    assert set(plans) == {"grad_input", "grad_weight"}
    assert estimate(PROBLEM, product="910B", tiling=plans).cycles == usual.cycles


@pytest.mark.parametrize("product", [product.name for product in list_products()])
def test_what_is_swept_has_two_ends_whatever_its_confidence(product):
    profile = load_profile(product)
    figures = ranged_figures(profile)
    for path, figure in figures.items():
        low, high = ends(figure)
        # Loading checks that the value lies between; a figure that could not move would need no range.
        assert low != high, path
    known = {path: figure for path, figure in profile.figures.items() if figure.range is not None}
    assert set(figures) == {path for path, figure in known.items() if not isinstance(figure.value, str)}
    assert {figure.confidence for figure in figures.values()} > {"assumed"}


def test_the_ends_of_alternatives_are_the_first_and_the_last():
    assert ends(Figure(2, "a test", "assumed", range=(1, 2, 4))) == (1, 4)
    assert ends(Figure([1], "a test", "assumed", range=([1], [1, 2]))) == ([1], [1, 2])


def test_the_sensitivity_is_a_sweep_of_the_main_job(monkeypatch):
    # A real sweep takes half a minute, so that the layer is timed by its multiply-adds and one figure.
    def fake(problem, *, product, output_mask, tiling):
        assert (problem, output_mask) == (committed_pages.LAYER, (True, True, False))
        plans = {"grad_input": PLAN}
        assert tiling in (None, plans)
        time_us = problem.macs + product.scalar.issue_cycles
        return SimpleNamespace(time_us=time_us, cycles=0, plans=plans, kernels=())

    monkeypatch.setattr("committed_pages.estimate", fake)
    found = {effect.figure: effect for effect in committed_pages.sensitivity("910B")}
    own = variables(load_profile("910B"))
    assert set(found) == {one.name for one in own}
    assert {path for one in own for path in one.figures} == set(ranged_figures(load_profile("910B")))
    moving = {path for path, effect in found.items() if effect.span_us}
    assert moving <= {"scalar.issue_cycles"}
