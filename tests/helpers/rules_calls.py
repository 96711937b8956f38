"""Calls that every rule set accepts, ways to break them, and what the rules answer: shared by their tests."""

from dataclasses import replace

from ascendsim.errors import AclnnError
from ascendsim.rules import ConvolutionBackwardCall, ConvTbcBackwardCall, TensorDescription, resolve

T = TensorDescription
LAYOUTS = {3: "NCL", 4: "NCHW", 5: "NCDHW"}


def conv(
    input=(2, 4, 5, 6, 7),
    weight=(6, 2, 3, 3, 3),
    stride=1,
    padding=1,
    dilation=1,
    transposed=False,
    output_padding=0,
    groups=2,
    mask=(True, True, True),
    cube_math_type=0,
    dtype="float32",
    grad_output=None,
):
    """Describe a call whose shapes fit; the default is a grouped 3-D convolution with every gradient."""
    axes = len(input) - 2
    spread = {
        name: (value,) * axes if isinstance(value, int) else tuple(value)
        for name, value in (
            *(("stride", stride), ("padding", padding), ("dilation", dilation)),
            ("output_padding", output_padding),
        )
    }
    shape = grad_output or _grad_output(input, weight, transposed, groups, **spread)
    layout = LAYOUTS[len(input)]
    return ConvolutionBackwardCall(
        T(shape, dtype, layout),
        T(input, dtype, layout),
        T(weight, dtype, layout),
        (shape[1],),
        spread["stride"],
        spread["padding"],
        spread["dilation"],
        transposed,
        spread["output_padding"],
        groups,
        mask,
        cube_math_type,
        T(input, dtype, layout),
        T(weight, dtype, layout),
        T((shape[1],), dtype, "ND"),
    )


def _grad_output(input, weight, transposed, groups, stride, padding, dilation, output_padding):
    axes = range(len(input) - 2)
    pads = padding if len(padding) == len(axes) else None
    sizes = []
    for i in axes:
        both = 2 * pads[i] if pads else padding[2 * i] + padding[2 * i + 1]
        span = dilation[i] * (weight[2 + i] - 1) + 1
        if transposed:
            sizes.append((input[2 + i] - 1) * stride[i] - both + span + output_padding[i])
        else:
            sizes.append((input[2 + i] + both - span) // stride[i] + 1)
    return (input[0], weight[1] * groups if transposed else weight[0], *sizes)


def tbc(time=7, batch=2, channels=3, taps=3, made=4, pad=1, dtype="float32", cube_math_type=0, layout="ND"):
    """Describe a call of conv_tbc backward whose shapes fit."""
    shapes = {
        "grad_output": (time + 2 * pad + 1 - taps, batch, made),
        "input": (time, batch, channels),
        "weight": (taps, channels, made),
        "bias": (made,),
    }
    given = {name: T(shape, dtype, "ND" if name == "bias" else layout) for name, shape in shapes.items()}
    return ConvTbcBackwardCall(**given, pad=pad, cube_math_type=cube_math_type).with_usual_outputs()


def changed(call, changes):
    """Return the call with fields replaced; "input.dtype" names a field of one of its tensors."""
    for path, value in changes.items():
        name, _, inner = path.partition(".")
        if inner:
            value = replace(getattr(call, name), **{inner: value})
        call = replace(call, **{name: value})
    return call


def answer(call, product="910B", rules="documented"):
    """Return (0, "") of an accepted call, else the status and the number of the check that failed."""
    try:
        resolve(call, product, rules)
    except AclnnError as error:
        return error.status, error.check.partition(" ")[0]
    return 0, ""
