"""Do the steps of the tuner reach plans with even parts of all pixels, each in one spelling?"""

from dataclasses import replace
from time import process_time

import pytest

from ascendsim import ConvProblem, Plan, Tiling, legal_tilings, load_profile
from ascendsim.errors import ConfigError
from ascendsim.ops.tiling.legal.space import Grid
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.tuning.records import TilingQuestion, Trial
from ascendsim.studies.tuning.search import Tilings, Wish, _climb, neighbours, tune
from ascendsim.studies.tuning.tune import Tuner
from ascendsim.workloads.loader import load_workload

PROFILE = load_profile("910B2")
# 28 x 28 pixels are 49 fractals of 16, and 128 channels: s3b1_3x3 of ResNet-50.
LAYER = ConvProblem((32, 128, 28, 28), (128, 128, 3, 3), padding=1)
SEARCHED = Tiling(400, 64, 32, 9, 36, used_cores=24)


@pytest.fixture(scope="module")
def tilings():
    return Tilings(PlanRequest(LAYER, "grad_input", "float16", PROFILE))


def test_tilings_are_of_one_gradient_that_has_a_nest():
    with pytest.raises(ConfigError, match="gradient is 'grad_bias'; it must be grad_input or grad_weight"):
        Tilings(PlanRequest(LAYER, "grad_bias", "float16", PROFILE))


def test_from_whole_blocks_a_step_leads_to_even_parts_and_another_back(tilings):
    near = neighbours(Plan("dgrad", SEARCHED), tilings)
    grids = {(plan.tiling.pixel_dim, plan.tiling.n_dim) for plan in near}
    # 24 cores: 24 parts of the pixels; 12, times 2 of the columns; 24, with both column blocks in turn. Two
    # blocks are in no 3 parts.
    assert grids == {(0, 0), (24, 0), (12, 2), (24, 2)}
    even = next(plan for plan in near if plan.tiling.pixel_dim)
    assert any(not plan.tiling.pixel_dim for plan in neighbours(even, tilings))
    legal = legal_tilings(LAYER, "grad_input", PROFILE)
    both = (*near, *neighbours(even, tilings))
    assert [plan for plan in both if plan.tiling not in legal] == []
    assert {plan.tiling.used_cores for plan in both if plan.tiling.pixel_dim} == {24}


def test_the_longest_block_is_the_one_that_l0_holds_in_as_many_copies(tilings):
    wish = replace(Wish.of(SEARCHED), grid=Grid(24, 0))
    # L0A: 64 KiB, two copies of m x 32 x 2 bytes: 512 rows. L0C: 128 KiB, one of m x 64 x 4 bytes: 512.
    assert tilings.longest(wish).base.m == 512
    # One copy in L0A holds 1024 rows, in L0C still 512; two in L0C 256.
    assert tilings.longest(replace(wish, copies=(2, 2, 1, 2, 1))).base.m == 512
    assert tilings.longest(replace(wish, copies=(2, 2, 2, 2, 2))).base.m == 256


def test_column_parts_are_no_more_than_column_blocks(tilings):
    wish = replace(Wish.of(SEARCHED), grid=Grid(24, 5))
    plan = tilings.plan(wish)
    # 128 channels in blocks of 64 are two.
    assert (plan.tiling.pixel_dim, plan.tiling.n_dim) == (24, 2)
    # 32 parts of 32 images end with images: ranges of whole blocks are the same.
    assert tilings.plan(replace(wish, grid=Grid(32, 0))) is None


def test_grids_of_whole_images_are_asked_for_as_ranges():
    grid = replace(SEARCHED, batch_dim=8, m_dim=3, n_dim=1)
    assert Wish.of(grid) == Wish.of(SEARCHED)


def test_even_parts_beat_the_search_by_5_percent_in_200_plans_and_20_seconds():
    # Where the search has 64 blocks along m times 2 along n, 6 rounds at most and 5.33 were they even.
    layer = ConvProblem(**load_workload("resnet50").layer("s3b1_3x3").problem_options(32))
    asked = TilingQuestion("s3b1_3x3", "910B2", layer, "grad_input", starts=("warm",), trials=200)
    tuner = Tuner(asked, Engine(Store(), 1), Budget(), "float16")
    begin = process_time()
    _, best = tune(tuner)
    assert process_time() - begin < 20
    assert len(tuner.trials) <= 200
    assert best.plan.tiling.pixel_dim
    assert tuner.score(best) <= 0.95 * tuner.score(tuner.chosen("search"))


def at(size):
    """A plan that stands for a number."""
    return Plan("wgrad", Tiling(size, 16, 16))


class Scored:
    """Stands for a tuner: the score of a plan is how far its base_m is from 100; `groups` were asked for."""

    def __init__(self, trials):
        self.trials, self.left, self.groups = {}, trials, []

    def try_all(self, plans, found_by, best):
        """Remember the plans that are new."""
        assert best == self.score(self.here)
        self.groups.append([plan.tiling.base_m for plan in plans])
        new = {plan: Trial(plan, found_by, {}) for plan in plans if plan not in self.trials}
        self.trials |= new
        self.left -= len(new)

    def neighbours(self, plan):
        """30 steps: twelve down, twelve down and one up by one, and six, of which one is up by ten."""
        self.here = Trial(plan, "steps", {})
        size = plan.tiling.base_m
        return [at(size - step) for step in (*range(1, 13), *range(13, 24), -1, 24, 25, 26, -10, 27, 28)]

    @staticmethod
    def score(trial):
        """Return how far it is."""
        return abs(100 - trial.plan.tiling.base_m)


def test_a_climb_steps_after_each_group_of_neighbours_and_ends_where_none_is_better():
    made = Scored(10_000)
    _climb(made, made.neighbours, Trial(at(78), "steps", {}))
    # Groups of 12, 12 and 6 in turn. Down is no better, so 78 stays; one up is 79, from where ten up is 89.
    # Again: 90, 100. Nothing is better than that, which three groups say.
    assert [len(group) for group in made.groups] == [12, 12, 6, 12, 12, 6, 12, 12, 6]
    assert [max(group) for group in made.groups] == [77, 79, 89, 88, 90, 100, 99, 101, 110]


def test_a_climb_ends_where_trials_do():
    # The third group begins from 51 and asks for one number again: 29 plans are new.
    made = Scored(29)
    _climb(made, made.neighbours, Trial(at(50), "steps", {}))
    assert len(made.groups) == 3
