"""Gradients by PyTorch in float64, and how far from them a gradient in ordered float32 arithmetic may be."""

import numpy as np
import pytest

from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype

torch = pytest.importorskip(
    "torch", reason="torch is not installed: no independent convolution to compare with"
)

torch.set_num_threads(1)  # small tensors: handing them to threads takes longer than the arithmetic

UNIT = 2.0**-24  # half the distance of neighbouring float32 values, relative
TINY = 2.0**-149


def torch_gradients(problem, grad_output, input, weight, mask=(True, True, True)):
    """Return grad_input, grad_weight and grad_bias as float64 arrays, None where masked.

    Four paddings are applied to the big side by hand, and cut off its gradient again.
    """
    given = [np.asarray(array, np.float64) for array in (grad_output, input, weight)]
    rank = problem.rank
    pads = problem.pads[3 - rank :]
    symmetric = all(before == after for before, after in pads)
    if not symmetric:
        big = 0 if problem.transposed else 1
        given[big] = np.pad(given[big], ((0, 0), (0, 0), *pads))
    made = torch.ops.aten.convolution_backward(
        *(torch.from_numpy(np.ascontiguousarray(array)) for array in given),
        [problem.grad_output[1]],
        list(problem.strides[3 - rank :]),
        [before if symmetric else 0 for before, _ in pads],
        list(problem.dilations[3 - rank :]),
        problem.transposed,
        [0] * rank if not problem.transposed else list(np.broadcast_to(problem.output_padding, rank)),
        problem.groups,
        list(mask),
    )
    grad_input, grad_weight, grad_bias = (
        gradient.numpy() if wanted else None for gradient, wanted in zip(made, mask, strict=True)
    )
    if grad_input is not None and not symmetric and not problem.transposed:
        inner = tuple(
            slice(before, before + size) for (before, _), size in zip(pads, problem.input[2:], strict=True)
        )
        grad_input = grad_input[(slice(None), slice(None), *inner)]
    return grad_input, grad_weight, grad_bias


def terms(problem):
    """Return at least as many roundings as an element of each gradient meets.

    Every product may round twice (itself and its sum), zeros of the padding and of a last group of 32
    channels included, and there are no more parts and lanes than terms.
    """
    taps = int(np.prod(problem.kernel))
    pixels = problem.batch * int(np.prod(problem.small_size))
    channels = max(problem.small_channels, problem.big_channels) + 32
    return (2 * taps * channels + 64, 2 * pixels + 64, 2 * int(np.prod(problem.grad_output)) + 64)


def rounded_by(fmt, values):
    """Return what one rounding of these values into a format may add, nearest or half a unit away."""
    fmt = lookup_dtype(fmt)
    if fmt.bits == 32:
        return np.zeros_like(values)
    least = 2.0**-22 if fmt.tapered else np.ldexp(1.0, fmt.min_exponent - fmt.mantissa_bits)
    # hifloat8 keeps at least one mantissa bit up to 2**15, and none below 2**-15
    unit = 0.5 if fmt.tapered else 2.0 ** -(fmt.mantissa_bits + 1)
    return np.abs(values) * unit + least


def bounds(problem, call, cube, given):
    """Return the largest difference from float64 of each gradient.

    Derivation   a sum of n terms with n roundings is off by at most n u / (1 - n u) times the sum of their
                 magnitudes (u = 2**-24; 2 u where a model rounds toward zero, or cuts terms 24 bits below the
                 largest), plus n times the smallest subnormal; each format on the way out rounds once more
    cube, given  the tensors as the cube multiplies them, and grad_output as it came
    """
    magnitudes = torch_gradients(problem, *(np.abs(array) for array in cube))
    magnitudes = (*magnitudes[:2], np.abs(np.asarray(given, np.float64)).sum(axis=bias_axes(problem)))
    ways = (
        (call.leaves_in("grad_input"), call.dtypes["grad_input"]),
        ("float16" if call.squeezed else "float32", call.dtypes["grad_weight"]),
        (call.leaves_in("grad_bias"), call.dtypes["grad_bias"]),
    )
    result = []
    for count, size, formats in zip(terms(problem), magnitudes, ways, strict=True):
        n = 2 * count * UNIT
        error = n / (1 - n) * size + count * TINY
        for fmt in formats:
            error = error + rounded_by(fmt, size + error)
        result.append(error)
    return result


def bias_axes(problem):
    return (0, *range(2, 2 + problem.rank))
