"""Calls that are all right, for the fuzzers to run as they are or to spoil."""

from __future__ import annotations

import numpy as np

from ascendsim import ConvProblem
from tests.helpers.calls import conv, tbc

RULES = ("documented", "documented-001", "documented-002", "documented-004", "shipped", "hardware")
PRODUCTS = (
    *("910_95", "910_93", "910B", "310P", "910", "310B", "310", "950PR_9589", "A2"),
    *("910B3", "910B", "910B", "910B", "910_93"),  # what most rule sets support comes more often
)
DTYPES = ("float32", "float16", "bfloat16", "hifloat8", "float8_e4m3fn", "float8_e5m2")


def any_call(pick):
    """Describe a call that is all right, but perhaps for product and rules; one in five of conv_tbc."""
    dtype = pick.choice(("float32", "float16", "float16", "bfloat16", *DTYPES))
    if pick.random() < 0.2:
        return any_tbc(pick, dtype)
    axes, groups, transposed = pick.randrange(1, 4), pick.choice((1, 1, 2, 3)), pick.random() < 0.4
    sizes = [pick.randrange(3, 7) for _ in range(axes)]
    taps = [pick.randrange(1, 4) for _ in range(axes)]
    big, small = groups * pick.randrange(1, 4), groups * pick.randrange(1, 4)
    batch = pick.choice((1, 2, 2, 0))
    return conv(
        (batch, small if transposed else big, *sizes),
        (small, big // groups, *taps),
        stride=pick.choice((1, 2)),
        padding=0 if transposed else pick.choice((0, 1)),
        dilation=1,
        transposed=transposed,
        groups=groups,
        dtype=dtype,
        mask=tuple(pick.random() < 0.7 for _ in range(3)),
        cube_math_type=pick.choice((0, 1, pick.randrange(4))),
    )


def any_tbc(pick, dtype):
    """Describe a call of conv_tbc that is all right, but perhaps for product and rules."""
    sizes = {"time": pick.randrange(3, 9), "batch": pick.randrange(3), "taps": pick.randrange(4)}
    return tbc(**sizes, dtype=dtype, layout=pick.choice(("ND", "NCL")), cube_math_type=pick.randrange(4))


def any_problem(pick, most_macs):
    """Return a random convolution of at most so many multiply-adds."""
    while True:
        axes = pick.choice((1, 2, 2, 3))
        groups, transposed = pick.choice((1, 1, 1, 2, 3, 5)), pick.random() < 0.35
        channels = [groups * pick.choice((1, 2, 3, 7, 16, 17, 40)) for _ in range(2)]
        sizes = [pick.choice((1, 2, 3, 5, 8, 14, 33)) for _ in range(axes)]
        taps = [pick.choice((1, 1, 2, 3, 3, 5)) for _ in range(axes)]
        stride = [pick.choice((1, 1, 2, 3)) for _ in range(axes)]
        dilation = [pick.choice((1, 1, 2)) for _ in range(axes)]
        padding = [pick.choice((0, 1, 2)) for _ in range(axes)]
        if axes == 2 and pick.random() < 0.2:
            padding = [pick.randrange(3) for _ in range(4)]
        spare = [pick.randrange(step) for step in stride] if transposed else [0] * axes
        first, second = channels
        image, weight = (pick.choice((1, 2, 4)), first, *sizes), (second, first // groups, *taps)
        if transposed:
            weight = (first, second // groups, *taps)
        try:
            problem = ConvProblem(image, weight, stride, padding, dilation, transposed, spare, groups)
        except ValueError:  # the kernel is larger than the image
            continue
        if problem.macs <= most_macs:
            return problem


def described(problem, dtype, mask, cube_math_type):
    """Describe the call of a convolution."""
    p = problem
    return conv(
        p.input,
        p.weight,
        p.stride,
        p.padding,
        p.dilation,
        p.transposed,
        p.output_padding,
        p.groups,
        mask,
        cube_math_type,
        dtype,
        p.grad_output,
    )


def any_view(pick, array):
    """Return the same values as a view with gaps, turned round, with other axes innermost, or as they lie."""
    kind = pick.randrange(5)
    if kind == 0:
        return np.asfortranarray(array)
    if kind == 1:
        order = pick.sample(range(array.ndim), array.ndim)
        return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))
    if kind == 2:
        steps = tuple(slice(None, None, pick.choice((-1, 1))) for _ in array.shape)
        return array[steps].copy()[steps]
    if kind == 3:
        wide = np.zeros([extent * pick.choice((1, 2, 3)) for extent in array.shape], array.dtype)
        steps = tuple(
            slice(None, None, big // max(1, own)) for big, own in zip(wide.shape, array.shape, strict=True)
        )
        view = wide[steps] if array.size else array
        view[...] = array
        return view
    return array
