"""Is a plan that a study publishes as a winner faster under every start of L2 that it was scored on?

Each is timed again from its file, by the door that anybody would use and event by event (SimPy), not by what
the study kept.
"""

from dataclasses import replace
from itertools import product

import pytest

from ascendsim import ConvProblem, estimate, read_plans
from ascendsim.report.studies.tiling import plan_text, tiling_sentence
from ascendsim.studies.engine.measure import planned
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.tuning.records import SCORES, TilingQuestion
from ascendsim.studies.tuning.study import study_tiling

LAYERS = {
    "1x1": ConvProblem((4, 64, 28, 28), (128, 64, 1, 1)),
    "3x3": ConvProblem((4, 64, 14, 14), (64, 64, 3, 3), padding=1),
    "3x3, stride 2": ConvProblem((2, 64, 28, 28), (64, 64, 3, 3), stride=2, padding=1),
    "5x5, few channels": ConvProblem((2, 8, 24, 24), (24, 8, 5, 5), padding=2),
    "depthwise": ConvProblem((2, 32, 28, 28), (32, 1, 3, 3), padding=1, groups=32),
    "small and deep": ConvProblem((2, 512, 7, 7), (512, 512, 3, 3), padding=1),
}
PRODUCTS = ("910B2", "950PR_9589", "310P", "910A")
GRADIENTS = ("grad_input", "grad_weight")
# Layers, products and gradients that have winners among so few plans: of both kinds of cores.
QUICK = [
    ("1x1", "910B2", "grad_weight"),
    ("3x3", "310P", "grad_weight"),
    ("3x3, stride 2", "950PR_9589", "grad_input"),
    ("3x3", "910A", "grad_input"),
]


def studied(layer, product, gradient, **options):
    options = {"trials": 12, "doubt": False, "starts": ("warm", "handed", "cold")} | options
    asked = TilingQuestion("a test", product, LAYERS[layer], gradient, **options)
    return study_tiling(asked, Engine(Store(), 1), Budget())[0]


def timed_again(answer, plan, start):
    """Microseconds of the kernels on which a plan has a say, from the call itself."""
    asked = answer.question
    result = estimate(
        asked.problem,
        output_mask=asked.gradients,
        product=asked.product,
        tiling={asked.gradient: plan},
        l2_start=start,
        engine="simpy",
    )
    return sum(kernel.time_us for kernel in planned(result))


def check(answer, folder):
    """Time both plans again under every start that was scored; return whether a winner was published."""
    (folder / "best.toml").write_text(plan_text(answer))
    published = read_plans(folder / "best.toml").plans[answer.question.gradient]
    for start in answer.question.starts:
        before, after = (timed_again(answer, plan, start) for plan in (answer.usual.plan, published))
        assert (before, after) == (answer.usual.times_us[start], answer.best.times_us[start])
        assert after < before or not answer.wins
    return answer.wins


@pytest.mark.parametrize("case", QUICK, ids=" ".join)
def test_no_published_winner_loses_under_a_start_it_was_scored_on(case, tmp_path):
    assert check(studied(*case), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_no_published_winner_of_many_loses_under_a_start_it_was_scored_on(name, score, tmp_path):
    cases = list(product(LAYERS, GRADIENTS))
    answers = [studied(layer, name, gradient, trials=40, score=score) for layer, gradient in cases]
    # At least a quarter of all calls has a winner, so that there is something to hold.
    assert sum(check(answer, tmp_path) for answer in answers) >= len(cases) // 4


def test_a_plan_that_loses_under_one_start_is_no_winner_and_is_said_to_lose():
    answer = studied("3x3", "310P", "grad_weight", trials=2)
    times = {start: us / 2 for start, us in answer.usual.times_us.items()}
    times["handed"] = 1.25 * answer.usual.times_us["handed"]
    judged = replace(answer, best=replace(answer.best, times_us=times))
    assert not judged.wins
    assert tiling_sentence(judged).endswith(
        "saves 50.0 % with L2 warm and costs 25.0 % with L2 handed and saves 50.0 % with L2 cold; it is no "
        "winner, as it loses with L2 handed."
    )
