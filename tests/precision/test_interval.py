"""Does the interval of a run hold what the ranges of its product's figures allow?"""

from types import SimpleNamespace

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.errors import ConfigError
from ascendsim.report.products import products_table
from ascendsim.report.words import interval_line
from ascendsim.studies.sweep import interval, ranged_figures
from tests.helpers.made_up_products import made_up_call

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
