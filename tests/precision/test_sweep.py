"""Does a sweep move every assumed figure alone, to both ends, under the plans that the call has?"""

from types import SimpleNamespace

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.errors import ConfigError
from ascendsim.profile import Figure, list_products
from ascendsim.studies.records import FigureEffect
from ascendsim.studies.sweep import LAYER, Sweep, ends, ranged_figures, sensitivity, sweep_size
from tests.helpers.made_up_products import made_up_call, made_up_sweep

PROBLEM = ConvProblem((1, 16, 6, 6), (32, 16, 3, 3), padding=1)


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
