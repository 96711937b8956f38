"""Whether gradients are right: the bits of the ordered definition, both doors alike, near float64."""

from __future__ import annotations

import numpy as np

from ascendsim import AclnnError, ConvProblem, Tiling, conv_tbc_backward, convolution_backward
from ascendsim.numerics.casts import decode
from ascendsim.ops.reference.float64 import gradients_float64
from fuzz.draws import any_problem, any_view, described
from fuzz.judge import must
from tests.helpers.calls import (
    LAYS,
    OUTPUTS,
    ApiCall,
    arguments_of,
    check_against_reference,
    first_phase,
    random_array,
)

PLACES = (
    ("910B", "documented"),
    ("910_93", "shipped"),
    ("910_95", "shipped"),
    ("310P", "shipped"),
    ("910", "shipped"),
)
# Relative distance of neighbouring values, times what a long sum may lose.
TOLERANCE = {"float32": 2.0**-12, "float16": 2.0**-8, "bfloat16": 2.0**-6}
FEW, MANY, MOST = 3 * 10**4, 10**6, 10**8
ATTRIBUTES = (
    *("bias_sizes", "stride", "padding", "dilation", "transposed", "output_padding", "groups"),
    *("output_mask", "cube_math_type"),
)


def bits(array):
    """Return the bytes of an array, of hifloat8 those of its codes."""
    return np.asarray(getattr(array, "codes", array)).tobytes()


def some_mask(pick):
    """Return a mask that mostly asks for everything."""
    return tuple(pick.random() < 0.8 for _ in range(3))


def definition(pick):
    """Compare a small call with the ordered definition, bit for bit."""
    product, rules = pick.choice(PLACES)
    case = ApiCall(
        any_problem(pick, FEW),
        tuple(pick.choice(("float16", "float32", "bfloat16")) for _ in range(3)),
        pick.randrange(4),
        product,
        some_mask(pick),
        lays=tuple(pick.choice(LAYS) for _ in range(3)),
        deterministic=pick.choice((None, True)),
        rules=pick.choice((rules, "hardware")),
        seed=pick.randrange(10**6),
    )
    try:
        check_against_reference(case)
    except AclnnError as error:
        return str(error.status)
    return "ran"


def any_options(pick, mask):
    """Return options that change bits, cycles, or neither; a plan of grad_weight only where it is made."""
    options = {}
    if pick.random() < 0.2:
        options["accumulation"] = pick.choice(("seq:RNE", "block:8:RNE", "tree:8:adjacent:RNE"))
    if pick.random() < 0.3:
        options["order"] = pick.choice(("arrival", 1, 2, "program"))
    if pick.random() < 0.2 and mask[1]:
        options["tiling"] = {"grad_weight": Tiling(16, 16, 16, k_split=pick.choice((2, 4)), used_cores=4)}
    options["l2_start"] = pick.choice(("step", "chained", "input,weight", "warm", "cold", "handed"))
    options["layout"] = pick.choice(("NCHW", "NC1HWC0"))
    options["deterministic"] = pick.choice((None, False, True))
    return options


def two_phases(pick):
    """Compare the two-phase interface with the operator, and both with float64."""
    problem = any_problem(pick, MOST if pick.random() < 0.01 else MANY)
    product, rules = pick.choice(PLACES)
    dtype = pick.choice(("float32", "float16", "bfloat16"))
    call = described(problem, dtype, some_mask(pick), pick.randrange(4))
    given, options = arguments_of(call), any_options(pick, call.output_mask)
    try:
        size, executor = first_phase(call, given, product=product, rules=rules, options=options)
    except AclnnError as error:
        return str(error.status)
    result = executor.run(size)
    held = [given[name].array for name in ("grad_output", "input", "weight")]
    attributes = [getattr(call, name) for name in ATTRIBUTES]
    direct = convolution_backward(*held, *attributes, product=product, rules=rules, **options)
    for name, wanted in zip(OUTPUTS, call.output_mask, strict=True):
        if wanted:
            must(bits(getattr(result, name)) == bits(getattr(direct, name)) == bits(given[name].array), name)
    if options.get("accumulation") is None:
        near_float64(problem, held, result, call.output_mask, executor.decision.compute_dtype, dtype)
    return "ran"


def near_float64(problem, held, result, mask, compute, dtype):
    """Compare gradients with float64, each error with the sum of the magnitudes that were added."""
    exact = gradients_float64(problem, *held, mask)
    sizes = gradients_float64(problem, *(np.abs(a) for a in held), mask)
    coarsest = max(TOLERANCE.get(name, 2.0**-8) for name in (compute, dtype))
    for name, want, size in zip(OUTPUTS, exact, sizes, strict=True):
        if want is not None:
            got = decode(getattr(result, name), dtype)
            must((np.abs(got - want) <= coarsest * size + 1e-6).all(), f"{name} is far from float64")


def views(pick):
    """Compare a call on views of random strides with the same call on dense copies."""
    problem = any_problem(pick, MANY // 10)
    product, rules = pick.choice(PLACES)
    shapes = (problem.grad_output, problem.input, problem.weight)
    dense = [random_array(shape, "float16", pick.randrange(10**6)) for shape in shapes]
    laid = [any_view(pick, array) for array in dense]
    p, mask = problem, some_mask(pick)
    attributes = (p.stride, p.padding, p.dilation, p.transposed, p.output_padding, p.groups, mask, 0)
    made = []
    for held in (dense, laid):
        try:
            made.append(
                convolution_backward(*held, [p.grad_output[1]], *attributes, product=product, rules=rules)
            )
        except AclnnError as error:
            made.append(error.status)
    if isinstance(made[0], int):
        must(made[0] == made[1], made)
        return str(made[0])
    for name in OUTPUTS:
        must(bits(getattr(made[0], name)) == bits(getattr(made[1], name)), name)
    copied = sum(kernel.name.startswith("contiguous") for kernel in made[1].kernels)
    gaps = sum(not a.flags.c_contiguous for a in laid)
    must(copied == gaps, (copied, gaps))
    return "ran"


def tbc(pick):
    """Compare conv_tbc with the convolution in 1-D that it is once its tensors are permuted."""
    time, batch, taps = pick.randrange(1, 40), pick.randrange(1, 4), pick.randrange(1, 6)
    channels, made, pad = pick.choice((1, 3, 16, 20)), pick.choice((1, 5, 16, 33)), pick.randrange(4)
    steps = time + 2 * pad + 1 - taps
    if steps < 1:
        return "no steps"
    dtype, mathematics = pick.choice(("float16", "float32", "bfloat16")), pick.randrange(4)
    product = pick.choice(("910B", "910_93"))
    seed = pick.randrange(10**6)
    shapes = ((steps, batch, made), (time, batch, channels), (taps, channels, made), (made,))
    gradient, image, weight, bias = (random_array(s, dtype, seed + i) for i, s in enumerate(shapes))
    where = {"product": product, "rules": "shipped"}
    result = conv_tbc_backward(gradient, image, weight, bias, pad, mathematics, **where)
    problem = ConvProblem((batch, channels, time), (made, channels, taps), 1, pad)
    expected = convolution_backward(
        *(gradient.transpose(1, 2, 0), image.transpose(1, 2, 0), weight.transpose(2, 1, 0), [made]),
        *(1, pad, 1, False, 0, 1, (True, True, True), mathematics),
        **where,
    )
    must(problem.grad_output == (batch, made, steps), problem)
    must(bits(result.grad_input) == bits(expected.grad_input.transpose(2, 0, 1)), "grad_input")
    must(bits(result.grad_weight) == bits(expected.grad_weight.transpose(2, 1, 0)), "grad_weight")
    must(bits(result.grad_bias) == bits(expected.grad_bias), "grad_bias")
    return "ran"
