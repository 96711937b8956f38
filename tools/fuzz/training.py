"""Whether the doors of training scripts are right: gradients without timing, layers under the torch mode."""

from __future__ import annotations

import numpy as np

from ascendsim import AclnnError, convolution_backward
from fuzz.draws import any_problem, described
from fuzz.judge import must
from fuzz.values import ATTRIBUTES, MANY, MOST, PLACES, any_options, bits, near_float64, some_mask
from tests.helpers.calls import OUTPUTS, random_array

MODELS = (
    *("seq:RNE", "seq:RZ", "block:4:RNE", "block:16:RNE", "tree:16:halves:RNE"),
    *("exact:RNE", "exact-mmad:RZ"),
)
# What torch computes on the processor and the simulator takes as an operand.
TORCH_DTYPES = ("float32", "float16", "bfloat16")


def gradients_only(pick):
    """Compare a call without timing on one thread with the same on two, and with float64."""
    problem = any_problem(pick, MOST if pick.random() < 0.01 else MANY)
    product, rules = pick.choice(PLACES)
    dtype = pick.choice(TORCH_DTYPES)
    call = described(problem, dtype, some_mask(pick), pick.randrange(4))
    shapes = (problem.grad_output, problem.input, problem.weight)
    held = [random_array(shape, dtype, pick.randrange(10**6)) for shape in shapes]
    attributes = [getattr(call, name) for name in ATTRIBUTES]
    options = any_options(pick, call.output_mask)
    if pick.random() < 0.3:
        options["accumulation"] = pick.choice(MODELS)
    where = {"product": product, "rules": rules, "timing": False, **options}
    try:
        one, two = (convolution_backward(*held, *attributes, threads=n, **where) for n in (1, 2))
    except AclnnError as error:
        return str(error.status)
    for name, wanted in zip(OUTPUTS, call.output_mask, strict=True):
        must((getattr(one, name) is not None) == wanted, name)
        if wanted:
            must(bits(getattr(one, name)) == bits(getattr(two, name)), f"{name} differs by threads")
    if options.get("accumulation") is None:
        near_float64(problem, held, one, call.output_mask, one.compute_dtype, dtype)
    return "ran"


def torch_layers(pick):
    """Compare the gradients of a layer under the torch mode with the operator's."""
    try:
        import torch
    except ImportError:
        return "no torch"
    from ascendsim.torch import Simulation

    problem = any_problem(pick, MANY // 4)
    if len(problem.padding) > problem.rank:
        return "no layer pads two sides differently"
    product, rules = pick.choice(PLACES)
    dtype, mathematics = pick.choice(TORCH_DTYPES), pick.randrange(4)
    leaves = [_leaf(torch, pick, shape, dtype) for shape in (problem.input, problem.weight)]
    given = _leaf(torch, pick, problem.grad_output, dtype).detach()
    where = {"product": product, "rules": rules}
    try:
        with Simulation(cube_math_type=mathematics, errors="never", **where):
            _layer(torch, problem, *leaves).backward(given)
    except AclnnError as error:
        return str(error.status)
    p, held = problem, [_array(tensor, dtype) for tensor in (given, *leaves)]
    attributes = (p.stride, p.padding, p.dilation, p.transposed, p.output_padding, p.groups)
    direct = convolution_backward(
        *held, [0], *attributes, (True, True, False), mathematics, timing=False, **where
    )
    for leaf, name in zip(leaves, OUTPUTS, strict=False):
        must(bits(_array(leaf.grad, dtype)) == bits(getattr(direct, name)), name)
    return "ran"


def _layer(torch, problem, image, weight):
    p, axes = problem, problem.rank
    if p.transposed:
        function = getattr(torch.nn.functional, f"conv_transpose{axes}d")
        return function(image, weight, None, p.stride, p.padding, p.output_padding, p.groups, p.dilation)
    function = getattr(torch.nn.functional, f"conv{axes}d")
    return function(image, weight, None, p.stride, p.padding, p.dilation, p.groups)


def _leaf(torch, pick, shape, dtype):
    """Return a leaf of random values, now and then one whose elements do not lie row after row."""
    values = np.random.default_rng(pick.randrange(10**6)).standard_normal(shape, np.float32)
    tensor = torch.from_numpy(values).to(getattr(torch, dtype))
    if pick.random() < 0.3:
        order = pick.sample(range(tensor.ndim), tensor.ndim)
        tensor = tensor.permute(order).contiguous().permute(*np.argsort(order).tolist())
    return tensor.requires_grad_()


def _array(tensor, dtype):
    """Return the values as numpy holds them; a bfloat16 is the upper half of a float32."""
    tensor = tensor.detach().contiguous()
    if dtype != "bfloat16":
        return tensor.numpy()
    import ml_dtypes
    import torch

    return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
