"""grad_input by definition: plain loops over NCHW tensors that add in the order in which the cube adds.

Every product of the convolution is written out as a matrix product on im2col operands and handed, slice by
slice, to the accumulation model: the Fraction twin for small problems, the compiled model for larger ones. A
model that rounds once for the whole reduction (`exact`) takes the slices of a part joined into one product.
No tile, no instruction and no executor takes part.

**Order of grad_input**, for each of its pixels: kernel depth from the first tap to the last; channels of the
other side in groups of C0 = 32 bytes; kernel rows, kernel columns; channels in the group. The backward
direction takes rows and columns from the last tap to the first (the order of the pixels that it reads); a
forward, which the grad_input of a transposed convolution is, from the first to the last. Channels that the
last group lacks, pixels in the padding, and the zeros that a stride inserts between pixels are multiplied as
+0, so that they take their place in a block and turn an infinite weight into NaN. A kernel depth that meets
no depth of the other side is left out. A plan may split the kernel by the stride (`phases.py`), or take its
taps in passes (`passes.py`).

**The part of the plan** (`DgradOrder`): where an Mmad begins, since the blocks of the accumulation model
start anew with every Mmad, and into how many parts the reduction is cut. `ordered_wgrad.py` has the other
gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.numerics.accumulation.reduction import products_of
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.sums import add_to_zeros
from ascendsim.ops.schedules.order import DgradOrder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation.models import AccumulationModel

    Floats = NDArray[np.float32]
    Slices = Sequence[tuple[Floats, Floats]]
    Reduce = Callable[[Slices, tuple[int, int]], Floats]

# Exact fractions are the definition, and some thousand times slower than the compiled model, which equals
# them bit for bit (that is tested). So small problems take the one, larger ones the other.
TWIN_LIMIT_MACS = 20_000


def reduction_of(model: AccumulationModel, macs: int) -> Reduce:
    """Return what adds the slices of one reduction to a zero of a shape, in their order.

    The Fraction twin below TWIN_LIMIT_MACS, else the compiled model.

    Raises   ConfigError if the block of the model is not a number yet
    """
    if macs < TWIN_LIMIT_MACS:
        from ascendsim.numerics.accumulation.twins import accumulate_twin as multiply
    else:
        multiply = _compiled

    def reduce(slices: Slices, shape: tuple[int, int]) -> Floats:
        c = np.zeros(shape, np.float32)
        for a, b in products_of(model, slices):
            c = multiply(model, a, b, c)
        return c

    return reduce


def _compiled(model: AccumulationModel, a: Floats, b: Floats, c: Floats) -> Floats:
    from ascendsim.numerics.compiled.accumulate import accumulate

    accumulate(model, np.ascontiguousarray(a), np.ascontiguousarray(b), c)
    return c


def sources(problem: ConvProblem, axis: int, *, forward: bool) -> NDArray[np.int_]:
    """Return where each output reads along one axis, for each kernel tap: (taps, outputs), -1 for a zero.

    `forward` slides the kernel over the big side; backward goes from the big side to the small one.
    """
    stride, dilation = problem.strides[axis], problem.dilations[axis]
    pad, taps = problem.pads[axis][0], problem.kernel[axis]
    read, made = problem.small_size[axis], problem.big_size[axis]
    if forward:
        read, made = made, read
    # A row and a column for each pair, written out: this is the definition that `Sliding` is tested against.
    table = np.full((taps, made), -1)
    for tap in range(taps):
        for out in range(made):
            if forward:
                place, rest = out * stride + tap * dilation - pad, 0
            else:
                place, rest = divmod(out + pad - tap * dilation, stride)
            if rest == 0 and 0 <= place < read:
                table[tap, out] = place
    return table


def im2col(plane: Floats, rows: NDArray[np.int_], cols: NDArray[np.int_]) -> Floats:
    """Return im2col of one plane: (C, H, W) -> (C, row taps, column taps, output pixels), -1 reading zero."""
    # One row and one column of zeros at the end: index -1 reads them, so that a zero is an element like any
    # other. It takes its place in a block, and an infinite weight times it is NaN, as on the cube.
    channels, height, width = plane.shape
    framed = np.zeros((channels, height + 1, width + 1), np.float32)
    framed[:, :height, :width] = plane
    taken = np.stack([np.stack([framed[:, r][:, :, c] for c in cols], axis=1) for r in rows], axis=1)
    return taken.reshape(channels, len(rows), len(cols), -1)


def reduction_by_groups(values: Floats, c0: int) -> Floats:
    """Bring (C, row taps, column taps, n) to (C1 * row taps * column taps * C0, n), missing channels zero."""
    # +0 takes the place of channels that the last group lacks: the cube multiplies whole groups, and a block
    # of the accumulation model counts what it multiplies.
    channels, rows, cols, n = values.shape
    groups = -(-channels // c0)
    padded = np.zeros((groups * c0, rows, cols, n), np.float32)
    padded[:channels] = values
    return padded.reshape(groups, c0, rows, cols, n).transpose(0, 2, 3, 1, 4).reshape(-1, n)


def append_slices(
    parts: Sequence[list[tuple[Floats, Floats]]],
    a: Floats,
    b: Floats,
    runs: Sequence[Sequence[int]],
    c0: int,
) -> None:
    """Append to each part its slices of both matrices, which `runs` gives in groups of C0."""
    first = 0
    for part, slices in zip(parts, runs, strict=True):
        for groups in slices:
            last = first + groups * c0
            part.append((a[:, first:last], b[first:last]))
            first = last
    assert first == len(b)


def ordered_dgrad(
    problem: ConvProblem, grad_output: Floats, weight: Floats, order: DgradOrder, reduce: Reduce
) -> Floats:
    """Return the accumulators of grad_input, before the conversion to its format.

    Shapes   grad_output and weight as `problem` says, on the grid that the cube multiplies -> as input
    """
    forward = problem.transposed
    depth_of, row_of, col_of = (sources(problem, axis, forward=forward) for axis in range(3))
    step = 1 if forward else -1
    row_of, col_of = row_of[::step], col_of[::step]
    source_size, made_size = problem.output_size, problem.input_size
    kernels = weight.reshape(problem.groups, problem.small_channels, problem.big_channels, *problem.kernel)
    kernels = (kernels.swapaxes(1, 2) if forward else kernels)[..., ::step, ::step]
    reduced, columns = kernels.shape[1:3]
    source = grad_output.reshape(problem.batch, problem.groups, reduced, *source_size)
    result = np.zeros((problem.batch, problem.groups, columns, *made_size), np.float32)
    for image, group, depth in np.ndindex(problem.batch, problem.groups, made_size[0]):
        parts: list[list[tuple[Floats, Floats]]] = [[] for _ in order.runs()]
        for tap, found in enumerate(depth_of[:, depth]):
            # Nothing is loaded for such a depth, so nothing is added: not even zeros begin a block.
            if found < 0:
                continue
            a = reduction_by_groups(im2col(source[image, group, :, found], row_of, col_of), order.c0).T
            b = reduction_by_groups(kernels[group, :, :, tap].transpose(0, 2, 3, 1), order.c0)
            append_slices(parts, a, b, order.runs(), order.c0)
        c = add_to_zeros([reduce(slices, (made_size[1] * made_size[2], columns)) for slices in parts])
        result[image, group, :, depth] = c.T.reshape(columns, *made_size[1:])
    return result.reshape(problem.input)
