"""Both engines behind one function, and the kernels and random nests on which they are compared."""

import re

import pytest

from ascendsim import (
    ConvProblem,
    MatmulProblem,
    Tiling,
    estimate,
    estimate_matmul,
    legal_tilings,
    load_profile,
)
from ascendsim.errors import AscendSimError, ProgramError
from ascendsim.timing import kernel as door
from ascendsim.timing.kernel import measure_kernel
from ascendsim.timing.kernel import time_kernel as time_in_one_engine
from ascendsim.timing.timeline import arrivals, times_of
from ascendsim.workloads import load_workload
from tests.helpers.oracles_timing import spans_of

# -------------------------------------------------------------------------------------------------------
# Both engines behind one function: what a test reckons for one holds for the other, to the last span.
# -------------------------------------------------------------------------------------------------------


def time_kernel(kernel, profile, **options):
    """Return the timeline of a kernel as SimPy makes it, after comparing the compiled engine's with it."""
    try:
        timeline = door.time_kernel(kernel, profile, engine="simpy", **options)
    except ProgramError as error:
        # Waits in a circle cannot follow from slots, and others the compiled engine refuses.
        told = "only the engine simpy obeys" if "circle" in str(error) else re.escape(str(error))
        with pytest.raises(ProgramError, match=told):
            door.time_kernel(kernel, profile, engine="compiled", **options)
        raise
    compiled = door.time_kernel(kernel, profile, engine="compiled", **options)
    assert_same_spans(compiled, timeline)
    assert door.measure_kernel(kernel, profile, engine="compiled", **options) == times_of(timeline)
    return timeline


def assert_same_spans(one, other):
    """Compare two timelines, which may be of programs that were built twice."""
    assert (one.kernel, one.cycles, one.bytes) == (other.kernel, other.cycles, other.bytes)
    assert [(p.name, p.begin, p.end) for p in one.phases] == [(p.name, p.begin, p.end) for p in other.phases]
    for mine, theirs in zip(one.phases, other.phases, strict=True):
        for a, b in zip(mine.cores, theirs.cores, strict=True):
            assert a.cores == b.cores
            assert spans_of(a) == spans_of(b), (mine.name, a.cores[0])


# -------------------------------------------------------------------------------------------------------
# Kernels on which both engines are compared: layers, matrix products, random calls and random tilings.
# -------------------------------------------------------------------------------------------------------

PRODUCTS = ("910B2", "910_9382", "950PR_9589", "310P3", "910A")
# The others multiply fewer formats.
SPLIT = PRODUCTS[:3]
FLOATS = ("float16", "bfloat16", "float32")


def assert_engines_agree(kernels, profile, l2_start="warm", *, spans=True, folded=(True,)):
    """Compare everything that the engines say of some kernels: times, bytes, spans, the order of arrivals."""
    for kernel in kernels:
        for fold in folded:
            options = {"folded": fold, "l2_start": l2_start}
            timeline = time_in_one_engine(kernel, profile, engine="simpy", **options)
            assert measure_kernel(kernel, profile, engine="compiled", **options) == times_of(timeline)
            if spans:
                compiled = time_in_one_engine(kernel, profile, engine="compiled", **options)
                assert_same_spans(compiled, timeline)
                if kernel.name == "grad_weight":
                    assert arrivals(kernel, compiled) == arrivals(kernel, timeline)


def layer_kernels(layer, product, batch):
    """The kernels of a layer of ResNet-50."""
    layers = {each.name: each for each in load_workload("resnet50").convolutions}
    problem = ConvProblem(**layers[layer].problem_options(batch))
    return [result.kernel for result in estimate(problem, product=load_profile(product)).kernels]


def matmul_kernels(problem, product, **options):
    """The kernels of a matrix product."""
    made = estimate_matmul(problem, product=load_profile(product), **options)
    return [result.kernel for result in made.kernels]


def random_matmul(rng):
    """The kernels of a random matrix product, most cores of which make several tiles, and its product."""
    while True:
        base_m, base_n = rng.choice((16, 32, 48)), rng.choice((16, 32, 64))
        m, k, n = (
            base_m * rng.randint(2, 7) - rng.choice((0, 5)),
            rng.choice((64, 130, 256)),
            base_n * rng.randint(2, 7),
        )
        problem = MatmulProblem(m, k, n, rng.choice((1, 1, 3)), rng.random() < 0.5, rng.random() < 0.5)
        tiling = Tiling(
            *(base_m, base_n, rng.choice((16, 32, 64)), rng.choice((1, 2)), rng.choice((1, 2))),
            al1_buffers=rng.choice((1, 2)),
            bl1_buffers=rng.choice((1, 2)),
            used_cores=rng.choice((1, 2, 3, 5, 8)),
            swizzle=rng.choice((1, 2, 3)),
            panels=rng.choice(("rows", "columns")),
            reuse_l1=rng.random() < 0.7,
        )
        try:
            product = rng.choice(PRODUCTS)
            return matmul_kernels(problem, product, tiling=tiling), load_profile(product)
        except AscendSimError:
            # A tiling that this product has no room for.
            continue


def random_problem(rng):
    """Draw a convolution of any rank, with groups, transposed or not."""
    rank = rng.choice((1, 2, 2, 2, 3))
    transposed, groups = rng.random() < 0.3, rng.choice((1, 1, 1, 2, 3, 8))
    most = {1: 90, 2: 18, 3: 6}[rank]
    kernel, stride, dilation, padding = (
        tuple(rng.randint(low, high) for _ in range(rank)) for low, high in ((1, 4), (1, 3), (1, 2), (0, 2))
    )
    sizes = tuple(rng.randint(3, most) for _ in range(rank))
    small, big = (rng.choice((1, 5, 16, 33, 70)) for _ in range(2))
    return ConvProblem(
        (rng.choice((1, 2, 3, 7, 12)), groups * (small if transposed else big), *sizes),
        (groups * small, big, *kernel),
        stride,
        padding,
        dilation,
        transposed,
        tuple(rng.randrange(each) if transposed else 0 for each in stride),
        groups,
    )


def random_call(rng):
    """Draw a call that is accepted: its kernels, the product, and what L2 holds at the start."""
    while True:
        product = rng.choice(PRODUCTS)
        names, mode = rng.choice(FLOATS if product in SPLIT else FLOATS[::2]), rng.choice((0, 1, 2, 3))
        l2_start = rng.choice(("warm", "cold", "handed"))
        # Less L2 than the call touches, so that slices miss and dirty ones leave.
        small = {"l2.capacity_bytes": 60_000} if rng.random() < 0.3 else {}
        profile = load_profile(product, overrides=small)
        deterministic = rng.choice((None, True, False))
        try:
            made = estimate(
                random_problem(rng),
                names,
                mode,
                product=profile,
                deterministic=deterministic,
                l2_start=l2_start,
            )
        except AscendSimError:
            continue
        return [result.kernel for result in made.kernels], profile, l2_start


def random_tiling(rng, problems):
    """Draw a legal tiling of a gradient of one of some problems: its kernels, and the product."""
    product, gradient = rng.choice(PRODUCTS), rng.choice(("grad_input", "grad_weight"))
    profile, problem = load_profile(product), rng.choice(problems)
    (tiling,) = legal_tilings(problem, gradient, profile).sample(1, seed=rng.randrange(10**6))
    mask = (gradient == "grad_input", gradient == "grad_weight", False)
    made = estimate(problem, product=profile, tiling={gradient: tiling}, output_mask=mask)
    return [result.kernel for result in made.kernels], profile


UNIT_FLAG = Tiling(64, 128, 64, 2, 2, used_cores=4, unit_flag=True)
# Problem, product, options.
MATMULS = [
    (MatmulProblem(200, 300, 150), "910B2", {}),
    (MatmulProblem(256, 512, 384), "910B2", {"tiling": UNIT_FLAG}),
    (MatmulProblem(130, 96, 250, 3), "910B2", {"tiling": UNIT_FLAG, "l2_start": "cold"}),
    (MatmulProblem(512, 300, 512), "950PR_9589", {}),
    (MatmulProblem(100, 700, 90), "310P3", {}),
    (MatmulProblem(100, 64, 400, 2, transpose_a=True), "910_9382", {"dtype": "float32"}),
]


# -------------------------------------------------------------------------------------------------------
# Times of kernels under tilings that are drawn at random, for tests that compare two ways to find them.
# -------------------------------------------------------------------------------------------------------


def random_times(problem, gradient, profile, count, seed):
    """Times and bytes of all kernels of one gradient under so many legal tilings."""
    mask = (gradient == "grad_input", gradient == "grad_weight", False)
    drawn = legal_tilings(problem, gradient, profile).sample(count, seed=seed)
    made = [
        estimate(problem, product=profile, tiling={gradient: tiling}, output_mask=mask, l2_start="warm")
        for tiling in drawn
    ]
    return [[(kernel.times, kernel.bytes) for kernel in each.kernels] for each in made]
