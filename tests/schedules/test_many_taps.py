"""Kernels of 25 to 121 taps: are their nests as small as their tiles are different, and right?"""

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.cube.mmad import Mmad
from ascendsim.ops.reference.call import reference_gradients
from tests.helpers.conv_cases import SPLIT, assert_same_bits, call_of, run, tensors_of
from tests.helpers.engine_samples import assert_engines_agree

# Blocks that begin anywhere in a row, gaps between pixels, groups, kernel depths, tiles in the padding.
PROBLEMS = [
    ConvProblem((1, 3, 64, 58), (64, 3, 7, 7), stride=2, padding=3),
    ConvProblem((2, 16, 23, 23), (64, 16, 5, 5), padding=2),
    ConvProblem((1, 8, 30, 30), (32, 4, 6, 6), padding=5, groups=2),
    ConvProblem((1, 16, 6, 14, 14), (32, 16, 2, 5, 5), padding=2),
    ConvProblem((1, 4, 61, 19), (96, 4, 11, 11), stride=4, padding=2),
]
PRODUCTS = ("910B2", "910_9382", "950PR_9589")
ONLY_INPUT = (True, False, False)


def kernel_of(problem, product):
    made = [result.kernel for result in estimate(problem, product=product, output_mask=ONLY_INPUT).kernels]
    (kernel,) = [kernel for kernel in made if kernel.name == "grad_input"]
    return kernel


def programs_of(kernel):
    (phase,) = [phase for phase in kernel.phases if phase.name == "compute"]
    return [work.build() for work in phase.work]


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_products_cost_by_their_sizes_alone(problem, product):
    # However many taps there are, and wherever in a row a block begins: a product has a cost for each m, k
    # and n, as the first one into its accumulator and as another.
    programs = programs_of(kernel_of(problem, product))
    made = {each[3:] for program in programs for each in program.instructions if isinstance(each, Mmad)}
    heights, depths, widths = ({sizes[axis] for sizes in made} for axis in range(3))
    for program in programs:
        forms = [own.instruction[3:] for own in program.nest.forms if isinstance(own.instruction, Mmad)]
        assert len(forms) == len(set(forms)) == len(heights) * len(depths) * len(widths) * 2


@pytest.mark.parametrize("problem", PROBLEMS[:3], ids=str)
def test_engines_agree(problem):
    assert_engines_agree([kernel_of(problem, "910B2")], load_profile("910B2"))


@pytest.mark.parametrize("problem", PROBLEMS[1:4], ids=str)
def test_bits_are_those_of_the_definition(problem):
    call, tensors = call_of(problem, profile=SPLIT), tensors_of(problem, data="wide")
    made, _ = run(call, tensors, 3, ONLY_INPUT)
    want = reference_gradients(call, **tensors, mask=ONLY_INPUT)
    assert_same_bits(made["grad_input"], want["grad_input"])
