"""Products that are tasks of their own, as of kernels of many taps: same instructions, cycles and bits?"""

import numpy as np
import pytest

from ascendsim import ConvProblem, Tiling, convolution_backward, estimate, load_profile
from ascendsim.cube.mmad import Mmad
from ascendsim.ops.schedules.dgrad import program
from ascendsim.program.frames import Frame
from tests.helpers.engine_samples import assert_engines_agree

# Kernels of 25 to 121 taps: blocks that begin anywhere in a row, gaps between pixels, groups, kernel depths,
# tiles that lie in the padding.
PROBLEMS = [
    ConvProblem((1, 3, 64, 58), (64, 3, 7, 7), stride=2, padding=3),
    ConvProblem((2, 16, 23, 23), (64, 16, 5, 5), padding=2),
    ConvProblem((1, 8, 30, 30), (32, 4, 6, 6), padding=5, groups=2),
    ConvProblem((1, 16, 6, 14, 14), (32, 16, 2, 5, 5), padding=2),
    ConvProblem((1, 4, 61, 19), (96, 4, 11, 11), stride=4, padding=2),
]
PRODUCTS = ("910B2", "910_9382", "950PR_9589")
NEVER = 10**9
ALONE = {"output_mask": (True, False, False)}


def kernels(problem, product, **options):
    return [result.kernel for result in estimate(problem, product=product, **ALONE, **options).kernels]


def times(problem, product, **options):
    return [result.times for result in estimate(problem, product=product, **ALONE, **options).kernels]


@pytest.fixture(name="many")
def _many(monkeypatch):
    """Set from how many products on they are tasks of their own."""
    return lambda count: monkeypatch.setattr(program, "MANY_PRODUCTS", count)


@pytest.mark.parametrize("start", ["warm", "cold"])
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_times_do_not_depend_on_it(problem, product, start, many):
    found = []
    for count in (1, NEVER):
        many(count)
        found.append(times(problem, product, l2_start=start))
    assert found[0] == found[1]


# A last block of fewer columns; parts of the reduction, in which a tile of L1 serves several blocks.
RAGGED = Tiling(32, 32, 16, 4, 4, used_cores=6)
PARTS = Tiling(32, 16, 16, 49, 49, al1_buffers=2, bl1_buffers=2, k_split=2, used_cores=6)


@pytest.mark.parametrize("tiling", [RAGGED, PARTS], ids=["ragged", "parts"])
@pytest.mark.parametrize("product", PRODUCTS)
def test_times_under_a_given_plan_do_not_depend_on_it(product, tiling, many):
    problem = ConvProblem((3, 40, 25, 26), (32, 40, 7, 7), padding=3)
    found = []
    for count in (1, NEVER):
        many(count)
        found.append(times(problem, product, l2_start="cold", tiling={"grad_input": tiling}))
    assert found[0] == found[1]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_instructions_do_not_depend_on_it(problem, many):
    found = []
    for count in (1, NEVER):
        many(count)
        (made,) = [kernel for kernel in kernels(problem, "910B2") if kernel.name == "grad_input"]
        found.append([str(work.build().instructions) for phase in made.phases for work in phase.work])
    assert found[0] == found[1]


@pytest.mark.parametrize("problem", PROBLEMS[:3])
def test_engines_agree(problem, many):
    many(1)
    made = [kernel for kernel in kernels(problem, "910B2") if kernel.name == "grad_input"]
    assert made
    assert_engines_agree(made, load_profile("910B2"))


@pytest.mark.parametrize("problem", PROBLEMS[:3])
def test_bits_do_not_depend_on_it(problem, many):
    rng = np.random.default_rng(2)
    shapes = problem.grad_output, problem.input, problem.weight
    given = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    found = []
    for count in (1, NEVER):
        many(count)
        p, own = problem, (False, 0, problem.groups, (True, False, False), 0)
        made = convolution_backward(
            *given, None, p.stride, p.padding, p.dilation, *own, product="910B2", order=3
        )
        found.append(made.grad_input.tobytes())
    assert found[0] == found[1]


def test_products_of_many_taps_are_written_down_once(monkeypatch, many):
    written = []
    add = Frame.add
    monkeypatch.setattr(Frame, "add", lambda self, *given: written.append(given[0]) or add(self, *given))
    counts = []
    for count in (program.MANY_PRODUCTS, NEVER):
        many(count)
        written.clear()
        times(PROBLEMS[0], "910B2")
        counts.append(sum(isinstance(each, Mmad) for each in written))
    # Of four groups of channels in each block, and blocks that are cut alike, less than half is written down.
    assert 2 * counts[0] < counts[1]
