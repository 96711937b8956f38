"""Sizes of a gradient's convolution from the shapes that a profile lists, whichever way tensors are stored.

Images are NCHW or NCDHW, or blocked (NC1HWC0, NDC1HWC0); weights are of the same kind (FRACTAL_Z,
FRACTAL_Z_3D, whose kernel is known by the product of its sides alone: all are taken as equal).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ascendsim.validate.kinds.primitives import infer_window

Shape = tuple[int, ...]


class Sizes(NamedTuple):
    """A convolution without groups: batch, channels and sizes of the input, and those of its result.

    `kernel`, `big` and `small` are sides: depth if there is one, height, width.
    """

    batch: int
    channels: int
    out: int
    big: Shape
    small: Shape
    kernel: Shape


def gradient_sizes(
    inputs: Sequence[Shape], output: Shape, *, of_input: bool, volumes: bool
) -> dict[str, Any]:
    """Return the fields of a row: shapes, and the stride and padding that follow from them.

    of_input   whether it is grad_input: weights come in, then grad_output, and the input's gradient goes out;
               else input and grad_output come in, and the gradient of the weights goes out
    volumes    whether the kernel's operator takes depth: then five sizes are NCDHW, else NC1HWC0

    Raises   ValueError for shapes that are no convolution without groups
    """
    # The sizes of the result come in as well, as a tensor of one axis.
    shapes = [shape for shape in (*inputs, output) if len(shape) > 1]
    found = _blocked(shapes, of_input, 6 if volumes else 5) or _plain(shapes, of_input, volumes)
    if found is None:
        raise ValueError(f"shapes {[*inputs, output]} are not two images and weights, blocked or NCHW")
    if not min(found.batch, found.channels, found.out, *found.big, *found.small, *found.kernel):
        raise ValueError(f"one of the shapes {[*inputs, output]} is empty")
    # The operators of volumes run images too, of depth 1.
    if len(found.big) == 3 and found.big[0] == found.small[0] == found.kernel[0] == 1:
        found = found._replace(big=found.big[1:], small=found.small[1:], kernel=found.kernel[1:])
    fits = [infer_window(*sides) for sides in zip(found.big, found.small, found.kernel, strict=True)]
    return {
        "input_shape": (found.batch, found.channels, *found.big),
        "weight_shape": (found.out, found.channels, *found.kernel),
        "stride": tuple(fit.stride for fit in fits),
        "padding": tuple(pad for fit in fits for pad in fit.pads),
        "dilation": (1,) * len(fits),
    }


def _plain(shapes: Sequence[Shape], of_input: bool, volumes: bool) -> Sizes | None:
    """Read two images and weights as NCHW, or as NCDHW."""
    if len(shapes) != 3 or {len(shape) for shape in shapes} not in ({4}, {5} if volumes else {4}):
        return None
    weight, small, big = shapes if of_input else (shapes[2], shapes[1], shapes[0])
    if weight[1] != big[1] or small[1] != weight[0]:
        raise ValueError(f"weights {weight} do not lead from {big} to {small} without groups")
    return Sizes(big[0], big[1], weight[0], big[2:], small[2:], weight[2:])


def _blocked(shapes: Sequence[Shape], of_input: bool, axes: int) -> Sizes | None:
    """Read images in blocks of channels, of so many axes, and weights as fractals.

    The operators of volumes read blocks and may write NCDHW.
    """
    weights = [shape for shape in shapes if len(shape) == 4]
    images = [_image(shape, axes) for shape in shapes if len(shape) == axes or len(shape) == axes - 1 == 5]
    if len(images) != 2 or len(weights) != 1 or len(shapes) != 3:
        return None
    small, big = images if of_input else images[::-1]
    weight = weights[0]
    # FRACTAL_Z lists (C1 x kh x kw, Cout / 16, 16, C0), FRACTAL_Z_3D also kd in its first size.
    groups, sides = -(-big[1] // max(weight[3], 1)), axes - 3
    side = round((weight[0] // max(groups, 1)) ** (1 / sides))
    if side**sides * groups != weight[0]:
        kind = "square" if sides == 2 else "cubic"
        raise ValueError(f"weights {weight} have no {kind} kernel over {groups} groups of channels")
    return Sizes(big[0], big[1], weight[1] * weight[2], big[2:], small[2:], (side,) * sides)


def _image(shape: Shape, axes: int) -> Shape:
    """Return NC1HWC0, NDC1HWC0 or NCDHW as batch, channels and sides."""
    if len(shape) < axes:
        return shape
    if axes == 6:
        return shape[0], shape[2] * shape[5], shape[1], *shape[3:5]
    return shape[0], shape[1] * shape[4], *shape[2:4]
