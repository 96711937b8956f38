"""Does every public function answer a mistaken argument in one line: whose, what was got, the rule?"""

from pathlib import Path

import numpy as np
import pytest

from ascendsim import (
    ConvProblem,
    PartialPlan,
    Plan,
    Tiling,
    check_schedule,
    convolution_backward,
    estimate,
    estimate_many,
    legal_tilings,
    load_profile,
    read_plans,
    write_plans,
)
from ascendsim.arguments import shown
from ascendsim.errors import AscendSimError, ConfigError, UnsupportedError
from ascendsim.ops.problems.products import MatmulProblem
from ascendsim.precision import (
    Math,
    attribute,
    error_metrics,
    format_of,
    identify,
    quantise,
    rank_by_public_figures,
    reduction_tree,
    spread,
)
from tests.helpers.requests import chosen_plan

PROBLEM = ConvProblem((1, 16, 6, 6), (16, 16, 3, 3), 1, 1)
SHAPES = {"grad_output": PROBLEM.grad_output, "input": PROBLEM.input, "weight": PROBLEM.weight}
TENSORS = {name: np.ones(shape) for name, shape in SHAPES.items()}
HALVES = [values.astype(np.float16) for values in TENSORS.values()]
B2 = load_profile("910B2")
WHOLE = Plan("dgrad", Tiling(16, 16, 16))
# No type, size or text of these means anything to the arguments that get all of them.
ODD = (
    *(None, -1, 1.5, float("nan"), "", "x", "ünï💥", "\0", "a" * 10000, b"x", (), [], {}, {1: 2}, (None,)),
    *(object(), int, np.zeros(0), np.zeros((2, 2)), np.array(1.5), 2**70, [1, [2]], range(10**12)),
    *(Path("nowhere"), ...),
)


def chosen(problem=PROBLEM, gradient="grad_input", dtype="float16", profile=B2, **given):
    return chosen_plan(problem, gradient, dtype, profile, **given)


def computed(**given):
    return convolution_backward(
        *HALVES, [16], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, (True,) * 3, 0, **({"timing": False} | given)
    )


FORMAT = format_of("e4m3")
# A function of one argument that no odd value means anything to.
ASKED = {
    "plan problem": lambda odd: chosen(problem=odd),
    "plan gradient": lambda odd: chosen(gradient=odd),
    "plan dtype": lambda odd: chosen(dtype=odd),
    "plan profile": lambda odd: chosen(profile=odd),
    "plan deterministic": lambda odd: chosen(deterministic=odd),
    "plan transposed_forward": lambda odd: chosen(transposed_forward=odd),
    "plan strategy": lambda odd: chosen(strategy=odd),
    "plan group_merge": lambda odd: chosen(group_merge=odd),
    "legal_tilings problem": lambda odd: legal_tilings(odd, "grad_input", B2),
    "legal_tilings dtype": lambda odd: legal_tilings(PROBLEM, "grad_input", B2, odd),
    "legal_tilings hf32": lambda odd: legal_tilings(PROBLEM, "grad_input", B2, hf32=odd),
    "Plan tiling": lambda odd: Plan("dgrad", odd),
    "Plan.from_dict": Plan.from_dict,
    "PartialPlan block_dim": lambda odd: PartialPlan({"base_m": 16}, block_dim=odd),
    "read_plans": read_plans,
    "write_plans plans": lambda odd: write_plans("plans.toml", {"grad_input": odd}),
    "write_plans names": lambda odd: write_plans("plans.toml", {"grad_input": WHOLE}, names=odd),
    "check_schedule orders": lambda odd: check_schedule("dgrad", PROBLEM, orders=odd),
    "check_schedule seed": lambda odd: check_schedule("dgrad", PROBLEM, seed=odd),
    "timing": lambda odd: computed(timing=odd),
    "threads": lambda odd: computed(threads=odd),
    "order": lambda odd: computed(order=odd),
    "workers": lambda odd: estimate_many([{"problem": PROBLEM}], workers=odd),
    "Math operands": lambda odd: Math(operands=odd),
    "Math accumulation": lambda odd: Math(accumulation=odd),
    "Math rounding": lambda odd: Math(rounding=odd),
    "spread problem": lambda odd: spread(odd, TENSORS, [Math()]),
    "spread tensors": lambda odd: spread(PROBLEM, odd, [Math()]),
    "spread one tensor": lambda odd: spread(PROBLEM, TENSORS | {"input": odd}, [Math()]),
    "attribute math": lambda odd: attribute(PROBLEM, TENSORS, odd),
    "error_metrics": lambda odd: error_metrics(odd, np.ones(3), "float16"),
    "format_of": format_of,
    "quantise values": lambda odd: quantise(odd, FORMAT, axis=7),
    "quantise fmt": lambda odd: quantise(TENSORS["input"], odd),
    "quantise rounding": lambda odd: quantise(TENSORS["input"], FORMAT, rounding=odd),
    "reduction_tree model": lambda odd: reduction_tree(odd, 4),
    "reduction_tree products": lambda odd: reduction_tree("seq:RNE", odd),
    "identify": identify,
    "rank_by_public_figures": lambda odd: rank_by_public_figures([odd]),
}
# What some of them do take.
MEANT = {
    "plan group_merge": (None,),
    "workers": (None, 2**70),
    "PartialPlan block_dim": (2**70,),
    "order": (2**70,),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_means_nothing_is_refused_in_one_short_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for odd in ODD:
        if any(odd is each or (type(odd) is type(each) and odd == each) for each in MEANT.get(name, ())):
            continue
        with pytest.raises(AscendSimError) as caught:
            ASKED[name](odd)
        told = str(caught.value)
        # Of paths and texts the whole is quoted, of all else the beginning.
        assert len(told) < 600 or isinstance(odd, str), (odd, told)
        assert "\n" not in told, (odd, told)


def test_a_format_that_the_cube_does_not_multiply_is_told_with_those_that_it_does():
    message = "plan: compute_dtype is 'float64', which the cube of 910B2 does not multiply; it does fl"
    with pytest.raises(UnsupportedError, match=message):
        chosen(dtype="float64")
    with pytest.raises(
        UnsupportedError, match="compute_dtype is 'hf32', which the cube of 910A does not multiply"
    ):
        chosen(dtype="float32", hf32=True, profile=load_profile("910A"))


def test_a_gradient_is_one_that_the_problem_has():
    with pytest.raises(
        ConfigError, match="gradient is 'matmul'; it must be grad_input or grad_weight of a Conv"
    ):
        chosen(gradient="matmul")
    with pytest.raises(ConfigError, match="gradient is 'grad_input'; it must be matmul of a MatmulProblem"):
        chosen(problem=MatmulProblem(16, 16, 16))


def test_a_bound_beyond_all_counts_is_none():
    free, bound = (estimate(PROBLEM, stop_above=stop).cycles for stop in (None, 2**70))
    assert free == bound


def test_an_array_is_shown_in_one_line():
    assert shown(np.zeros((2, 2))) == "array([[0., 0.], [0., 0.]])"
