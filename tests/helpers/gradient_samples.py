"""Random calls for the gradients without instructions: problems, plans, models and data."""

import random
from dataclasses import replace

import numpy as np

from ascendsim.numerics.quick_casts import as_carrier, is_stored
from ascendsim.ops.gradients.call import Gradients
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.tiling.legal.tilings import legal_tilings
from tests.helpers.conv_cases import (
    DATA,
    GRADIENTS,
    MODES,
    SPLIT,
    UNIFIED,
    assert_same_bits,
    call_of,
    run,
    tensors_of,
)

# A machine that adds the parts of a deterministic grad_weight as a tree, and one that adds them in order.
TREE = replace(SPLIT, generation=SPLIT.generation._replace(deterministic_sum="tree"))
KINDS = (
    "seq:{r}",
    "seq-muladd:{r}",
    "block:{k}:{r}",
    "block:{k}:{r}",
    "block-add:{k}:{r}:{s}",
    "tree:{t}:adjacent:{r}",
    "tree:{t}:halves:{r}",
    "align:{k}:F{f}:{r}:acc",
    "align:{k}:F{f}:{r}",
    "fp16-acc(block:{k}:{r})",
    "fp16-acc(seq:{r})",
    "exact-mmad:{r}",
)
SWITCHES = ("", "", "", "+split3", "+ftz-in", "+ftz-acc", "+saturate", "+ftz-in+ftz-acc+saturate")


def some_model(rng):
    """Draw an accumulation model of any kind that is followed, with its switches."""
    text = rng.choice(KINDS).format(
        r=rng.choice(("RNE", "RNE", "RNA", "RZ")),
        s=rng.choice(("RNE", "RZ")),
        k=rng.choice((1, 3, 4, 7, 8, 16, 32, 48, "cube_k")),
        t=rng.choice((2, 4, 8, 16)),
        f=rng.choice((10, 24, 25)),
    )
    return text + rng.choice(SWITCHES)


def some_problem(rng):
    """Draw a small convolution of any rank, with groups, transposed or not."""
    rank = rng.choice((1, 2, 2, 2, 3))
    transposed, groups = rng.random() < 0.4, rng.choice((1, 1, 1, 2, 3))
    axes = []
    for _ in range(rank):
        kernel, stride, dilation = rng.randint(1, 4), rng.randint(1, 3), rng.randint(1, 2)
        padding, span = rng.randint(0, 3), dilation * (kernel - 1) + 1
        least = max(1, -(-(2 * padding + 1 - span) // stride) + 1 if transposed else span - 2 * padding)
        spare = rng.randint(0, max(stride, dilation) - 1) if transposed else 0
        axes.append((least + rng.randint(0, (30, 9, 3)[rank - 1]), kernel, stride, padding, dilation, spare))
    sizes, kernels, strides, paddings, dilations, spares = zip(*axes, strict=True)
    batch, inputs, outputs = rng.randint(1, 4), rng.choice((1, 3, 17, 33)), rng.choice((1, 2, 16, 37))
    weight = (inputs * groups, outputs) if transposed else (outputs * groups, inputs)
    shape = (batch, inputs * groups, *sizes)
    return ConvProblem(shape, (*weight, *kernels), strides, paddings, dilations, transposed, spares, groups)


def some_call(rng):
    """Draw a call with plans of any kind: nests, tilings, parts of the reductions and their sums."""
    problem, (dtype, cube_math_type) = some_problem(rng), rng.choice(MODES)
    profile = rng.choice((SPLIT, SPLIT, TREE, UNIFIED))
    call = call_of(
        problem,
        dtype,
        cube_math_type,
        profile=profile,
        deterministic=rng.random() < 0.5,
        accumulation=some_model(rng),
    )
    plans = {}
    for gradient in GRADIENTS[:2]:
        legal = legal_tilings(problem, gradient, profile, call.compute_dtype)
        (tiling,) = legal.sample(1, seed=rng.randrange(10**6))
        name = rng.choice(("dgrad", "dgrad_columns_outer")) if gradient == "grad_input" else "wgrad"
        if tiling.has_grid and gradient == "grad_input":
            name = "dgrad"  # the other one deals no cells
        plans[gradient] = Plan(name, tiling)
    return replace(call, plans=plans), tensors_of(problem, dtype, rng.choice(DATA), rng.randrange(10**6))


def check_against_the_executor(seed):
    """Compare all gradients of a random call with those of its instructions."""
    call, tensors = some_call(random.Random(seed))
    gradients = Gradients(call, tensors, "program")
    assert gradients.possible((True, True, True)) == (True, True, True)
    made = gradients.make((True, True, True))
    want, _ = run(call, tensors)
    for name in GRADIENTS:
        assert_same_bits(
            made[name], want[name], f"{name} of {call.problem}, {call.accumulation}, {call.plans}"
        )
    check_as_stored(call, tensors, want)


def check_as_stored(call, tensors, want):
    """Give those tensors of a call that are binary16 as they are stored, and compare its gradients again."""
    given = {
        name: values.astype(np.float16) if call.dtypes[name] == "float16" else values
        for name, values in tensors.items()
    }
    made = Gradients(call, given, "program").make((True, True, True))
    stores = any(map(is_stored, given.values()))
    for name, values in made.items():
        assert is_stored(values) == (stores and call.dtypes[name] == "float16")
        assert_same_bits(as_carrier(values), want[name], f"{name} as stored of {call.problem}, {call.plans}")
