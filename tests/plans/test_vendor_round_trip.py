"""Is a plan that is written in the vendor's names the same plan when it is read again, and as fast?"""

import random
from contextlib import suppress
from dataclasses import replace
from itertools import product

import pytest

from ascendsim import (
    ConvProblem,
    Plan,
    Tiling,
    estimate,
    legal_tilings,
    load_profile,
    read_plans,
    write_plans,
)
from ascendsim.errors import AscendSimError, ConfigError
from ascendsim.ops.plan import WHOLE
from ascendsim.ops.schedules.base import SCHEDULES, schedule_named
from ascendsim.ops.tiling.request import PartialPlan
from ascendsim.ops.tiling.vendor.names import MEANS, from_vendor, to_vendor
from tests.helpers.requests import plans_of
from tests.helpers.shipped_products import VARIANTS

GRADIENTS = ("grad_input", "grad_weight")
ONE_OF_EACH = ("910A", "310P3", "910B2", "910_9382", "950PR_9589")
# By what they are; batches of 1 and more, one to three axes, groups that are merged and single ones.
LAYERS = {
    "one axis": ConvProblem((4, 32, 40), (48, 32, 3), 1, 1),
    "two axes": ConvProblem((8, 64, 14, 14), (64, 64, 3, 3), 1, 1),
    "one image": ConvProblem((1, 64, 28, 28), (32, 64, 1, 1)),
    "stride": ConvProblem((2, 64, 30, 40), (64, 64, 3, 3), 2, 1),
    "three axes": ConvProblem((2, 32, 4, 8, 8), (32, 32, 3, 3, 3), 1, 1),
    "groups": ConvProblem((2, 64, 12, 12), (64, 16, 3, 3), 1, 1, groups=4),
    "depthwise": ConvProblem((16, 48, 9, 9), (48, 1, 3, 3), 1, 1, groups=48),
    "dilation": ConvProblem((2, 32, 16, 16), (32, 32, 3, 3), 1, 2, 2),
    "transposed": ConvProblem((2, 32, 8, 8), (32, 16, 2, 2), 2, transposed=True),
    "few channels": ConvProblem((2, 3, 32, 32), (16, 3, 7, 7), 2, 3),
    "as large as the image": ConvProblem((2, 32, 5, 5), (32, 32, 5, 5)),
}


def layers_of(variant):
    """Return the layers that a product takes: those before the 910B convolve no volumes."""
    old = load_profile(variant).product in ("910", "310P")
    return {name: layer for name, layer in LAYERS.items() if not (old and layer.rank == 3)}


def through_a_file(folder, plans, form="toml"):
    """Return plans, written and read again."""
    file = folder / f"plans.{form}"
    write_plans(file, plans, names="vendor")
    return read_plans(file).plans


# A quarter of the variants, and the plain ones: 20 of 57, each with ten or eleven layers, are 400 plans.
@pytest.mark.parametrize("variant", dict.fromkeys((*ONE_OF_EACH, *VARIANTS[::4])))
def test_the_plan_of_a_call_comes_back_and_takes_the_same_time(tmp_path, variant):
    for name, problem in layers_of(variant).items():
        usual = estimate(problem, product=variant, output_mask=(True, True, False))
        back = through_a_file(tmp_path, usual.plans)
        assert (back, set(back)) == (usual.plans, set(GRADIENTS)), name
        again = estimate(problem, product=variant, output_mask=(True, True, False), tiling=back)
        assert again.kernels == usual.kernels, name


def test_a_stream_of_grad_weight_stays_one(tmp_path):
    # Read as shares of the sum, which the file then did not say it was not, it took three times as long.
    layer, only = ConvProblem((8, 512, 7, 7), (512, 512, 3, 3), 1, 1), (False, True, False)
    usual = estimate(layer, product="950PR_9589", output_mask=only)
    assert usual.plans["grad_weight"].schedule == "wgrad_stream"
    back = through_a_file(tmp_path, usual.plans)
    assert estimate(layer, product="950PR_9589", output_mask=only, tiling=back).cycles == usual.cycles


def nests(variant):
    """Yield the plans of every nest and layer, in a format, where there is one."""
    profile = load_profile(variant)
    for problem, gradient, nest in product(LAYERS.values(), GRADIENTS, SCHEDULES):
        if schedule_named(nest).makes != gradient:
            continue
        given = {gradient: PartialPlan({}, nest)}
        with suppress(AscendSimError):  # no plan of this nest
            yield gradient, plans_of(problem, [gradient], "float16", profile, given, {})[gradient]


@pytest.mark.parametrize("variant", ONE_OF_EACH)
def test_the_plans_of_every_nest_come_back(tmp_path, variant):
    found = list(nests(variant))
    # Of eleven layers, each with four nests and more.
    assert len(found) > 44
    for number, (gradient, plan) in enumerate(found):
        form = ("toml", "json")[number % 2]
        assert through_a_file(tmp_path, {gradient: plan}, form) == {gradient: plan}


def test_the_plans_of_the_search_and_random_ones_come_back(tmp_path):
    cases = ((v, name, p, g) for v in ONE_OF_EACH for name, p in layers_of(v).items() for g in GRADIENTS)
    for variant, name, problem, gradient in cases:
        mask = tuple(each == gradient for each in (*GRADIENTS, "grad_bias"))
        plans = estimate(problem, product=variant, output_mask=mask, tiling="search").plans
        assert through_a_file(tmp_path, plans) == plans, (variant, name)
        for tiling in legal_tilings(problem, gradient, variant).sample(3, seed=1):
            drawn = {gradient: Plan({"grad_input": "dgrad", "grad_weight": "wgrad"}[gradient], tiling)}
            assert through_a_file(tmp_path, drawn) == drawn, (variant, name)


OTHERS = {"mapping": "interleaved", "task_order": "m n d group", "stream_axis": "height"}
OTHERS |= {"kernel_split": "hw", "tap_loop": "kh", "panels": "columns"}


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_no_field_is_lost(gradient):
    # Any values of all fields at once, those of no nest among them.
    draw = random.Random(3)
    for _ in range(200):
        values = {}
        for name, usual in vars(Tiling(1, 1, 1)).items():
            drawn = not usual if isinstance(usual, bool) else OTHERS.get(name, draw.randint(1, 9))
            values[name] = drawn if name in WHOLE or draw.random() < 0.5 else usual
        plan = Plan(draw.choice(list(SCHEDULES)), Tiling(**values))
        assert from_vendor(gradient, to_vendor(gradient, plan)) == plan


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_what_has_a_name_of_the_vendors_is_said_in_it(gradient):
    plan = Plan("dgrad_shares", Tiling(16, 32, 48, group_merge=2, single_core_m=64, transpose_first=True))
    values = to_vendor(gradient, plan)
    assert not set(MEANS[gradient].values()) & set(values)
    assert (values["baseM"], values["baseN"], values["baseK"], values["singleCoreM"]) == (16, 32, 48, 64)
    # Only entries of grad_input say how many groups are one.
    assert values.get("enlarge", values.get("group_merge")) == 2
    assert ("enlarge" in values) == (gradient == "grad_input")


def test_a_table_that_names_its_nest_may_leave_the_rest_to_the_rules():
    values = {"schedule": "wgrad_stream", "baseM": 64, "stream_axis": "height"}
    part = from_vendor("grad_weight", values)
    assert part == PartialPlan({"base_m": 64, "stream_axis": "height"}, "wgrad_stream")
    assert from_vendor("grad_weight", {**values, "block_dim": 8}) == replace(part, block_dim=8)


@pytest.mark.parametrize("name", ["base_n", "streamkType", "enableC04Flag", "baseL", "transpose_first"])
def test_a_table_that_names_its_nest_says_nothing_twice(name):
    told = rf"has the field '{name}' beside schedule; a plan that names its nest says .* leave schedule out"
    with pytest.raises(ConfigError, match=told):
        from_vendor("grad_input", {"schedule": "dgrad_shares", "baseM": 16, name: 1})
