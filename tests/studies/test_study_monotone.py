"""Is a design that has all that another has never slower, and is the best of all plans what is taken?"""

import json
from random import Random

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
from ascendsim.studies.hardware.plans import AS_IT_IS, Family, Way
from ascendsim.studies.hardware.records import StudiedLayer
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
