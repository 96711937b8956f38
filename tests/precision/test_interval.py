"""Do an interval and a sweep hold what the ranges of a product's figures allow?"""

from types import SimpleNamespace

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.errors import ConfigError
from ascendsim.profile import Figure, list_products
from ascendsim.report.overview import products_table
from ascendsim.report.words import interval_line
from ascendsim.studies.records import FigureEffect
from ascendsim.studies.sweep import LAYER, Sweep, ends, interval, ranged_figures, sensitivity, sweep_size
from tests.helpers.toy_machines import made_up_call, made_up_sweep

# --- Does the interval of a run hold what the ranges of its product's figures allow? -------------------

PROBLEM = ConvProblem((1, 16, 6, 6), (32, 16, 3, 3), padding=1)
WORDS = ("--input", "1,16,6,6", "--weight", "32,16,3,3", "--padding", "1", "--cycles-only")


def call(profile, plans):
    return estimate(PROBLEM, product=profile, tiling=plans)


def made_up(monkeypatch, figures, time):
    """The interval of a made-up product, and what it told of its progress."""
    told = []
    return interval("toy", made_up_call(monkeypatch, figures, time)[0], told.append), told


def test_all_that_shortens_and_all_that_stretches_go_together(monkeypatch):
    # 10 / rate + wait: 10 / 2 + 3 = 8 as it is; 10 / 4 + 1 = 3.5 at best, 10 / 1 + 7 = 17 at worst.
    figures = {"rate": (2, (1, 4)), "wait": (3, (1, 7))}
    made, told = made_up(monkeypatch, figures, lambda rate, wait: 10 / rate + wait)
    assert (made.shortest_us, made.longest_us) == (3.5, 17.0)
    assert (made.least_cycles, made.most_cycles, made.figures) == (35, 170, 2)
    assert told == ["rate", "rate", "wait", "wait"]
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
    assert told == ["low", "spread", "spread"]
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


def test_ends_that_contradict_each_other_are_taken_as_far_as_they_agree(monkeypatch):
    # Both low ends shorten the call, but the two must add up to at least 6: the larger effect is kept.
    def time(first, second):
        if first + second < 6:
            raise ConfigError("too small")
        return 2.0 * first + second

    made, _ = made_up(monkeypatch, {"first": (5, (2, 5)), "second": (5, (1, 5))}, time)
    assert made.shortest_us == 2.0 * 2 + 5
    assert made.longest_us == 15.0


def test_an_end_that_is_impossible_alone_is_left_out(monkeypatch):
    def time(size):
        if size < 2:
            raise ConfigError("too small")
        return float(size)

    made, _ = made_up(monkeypatch, {"size": (3, (1, 4))}, time)
    assert (made.shortest_us, made.longest_us) == (3.0, 4.0)
    assert made.left_out == ("size=1",)


@pytest.mark.parametrize("product", ["910B", "910"])
def test_a_real_interval_holds_the_call_and_each_effect_is_that_of_the_figure(product):
    usual = estimate(PROBLEM, product=product)
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
    # Two ends of each of two figures, then all that shorten and all that stretch together.
    assert len(asked) == 4 + 2
    assert all(plans == {"grad_input": "plan"} for _, plans in asked)


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
    assert table.headings[5:7] == ("us", "interval")
    low, high = (f"{made['interval'][which]:.2f}" for which in ("shortest_us", "longest_us"))
    assert table.rows[0][6] == f"{low} .. {high}"
    assert "interval" not in products_table([made | {"interval": None}]).headings


def test_an_interval_is_of_the_tensors_as_they_are(record):
    words = (*WORDS[:-1], "--dtype", "float32", "--interval")
    whole, cycles = (record(*words, *more)["products"][0]["interval"] for more in ((), ("--cycles-only",)))
    assert whole == cycles


def test_each_product_is_moved_by_figures_of_its_own(record):
    made = record(*WORDS, "--interval", "--product", "910B", "--product", "910_95")["products"]
    alone = [record(*WORDS, "--interval", "--product", name)["products"][0] for name in ("910B", "910_95")]
    assert [product["interval"] for product in made] == [product["interval"] for product in alone]


def test_an_interval_does_not_depend_on_the_number_of_workers(record):
    one, two = (
        record(*WORDS, "--product", "310P", "--interval", "--workers", workers)["products"][0]
        for workers in ("1", "2")
    )
    assert one == two
    assert one["interval"] is not None


def test_a_network_has_no_interval(refusal):
    assert "--interval is of one convolution" in refusal("run", "--interval")


@pytest.fixture
def record_of(record):
    """Run the small convolution and return its product."""
    return lambda *words: record(*WORDS, *words)["products"][0]


# --- Does a sweep move every assumed figure alone, to both ends, under the plans that the call has? ----


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
        FigureEffect("a", 2, 1, 4, usual_us=32, low_us=31, high_us=34),
        FigureEffect("b", 3, 3, 7, usual_us=32, low_us=32, high_us=72),
    )
    # The call as it is chooses its plans; b is at its low end already, which needs no call.
    assert asked == [
        (None, None),
        ({"a": 1}, {"grad_input": "plan"}),
        ({"a": 4}, {"grad_input": "plan"}),
        ({"b": 7}, {"grad_input": "plan"}),
    ]


def test_progress_counts_the_calls(monkeypatch):
    figures = {"a": (2, (1, 4)), "b": (3, (3, 7)), "model": ("x", ("x", "y")), "none": (1, None)}
    told = []
    made_up_sweep(monkeypatch, figures, lambda a, b, **_: a + b).effects(told.append)
    assert told == ["a", "a", "b"]
    profile = SimpleNamespace(
        assumed=lambda: {path: SimpleNamespace(value=v, range=r) for path, (v, r) in figures.items()}
    )
    assert sweep_size(profile) == 3


class Times:
    """A call that other processes can be told: the small convolution as it is."""

    def __call__(self, profile, plans):
        return estimate(PROBLEM, product=profile, tiling=plans)


def test_effects_do_not_depend_on_the_number_of_workers():
    told = {1: [], 2: []}
    one, two = (Sweep.of("310P", Times()).effects(told[workers].append, workers) for workers in (1, 2))
    assert one == two
    assert any(effect.span_us for effect in one)
    assert told[1] == told[2]
    assert len(told[1]) == sweep_size(load_profile("310P"))


def test_a_contradiction_is_an_answer_and_a_slip_in_a_study_is_not(monkeypatch):
    def time(size):
        if size < 2:
            raise ConfigError("too small")
        return float(size)

    sweep = made_up_sweep(monkeypatch, {"size": (3, (1, 4))}, time)
    assert sweep.timed({"size": 1}) is None
    assert sweep.timed({"size": 4}).time_us == 4.0
    with pytest.raises(TypeError):
        sweep.timed({"sise": 4})


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
def test_what_is_swept_is_assumed_and_has_two_ends(product):
    profile = load_profile(product)
    figures = ranged_figures(profile)
    for path, figure in figures.items():
        assert figure.confidence == "assumed"
        low, high = ends(figure)
        # Loading checks that the value lies between; a figure that could not move would need no range.
        assert low != high, path
    texts = {path for path, figure in profile.assumed().items() if isinstance(figure.value, str)}
    assert set(figures) == set(profile.assumed()) - texts


def test_the_ends_of_alternatives_are_the_first_and_the_last():
    assert ends(Figure(2, "a test", "assumed", range=(1, 2, 4))) == (1, 4)
    assert ends(Figure([1], "a test", "assumed", range=([1], [1, 2]))) == ([1], [1, 2])


def test_the_sensitivity_is_a_sweep_of_the_main_job(monkeypatch):
    # A real sweep takes half a minute, so that the layer is timed by its multiply-adds and one figure.
    def fake(problem, *, product, output_mask, tiling):
        assert (problem, output_mask) == (LAYER, (True, True, False))
        plans = {"grad_input": "plan"}
        assert tiling in (None, plans)
        return SimpleNamespace(time_us=problem.macs + product.scalar.issue_cycles, plans=plans)

    monkeypatch.setattr("ascendsim.studies.sweep.estimate", fake)
    found = {effect.figure: effect for effect in sensitivity("910B")}
    assert set(found) == set(ranged_figures(load_profile("910B")))
    moving = {path for path, effect in found.items() if effect.span_us}
    assert moving <= {"scalar.issue_cycles"}
