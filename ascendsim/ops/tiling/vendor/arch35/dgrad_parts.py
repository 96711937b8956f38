"""What one pass of grad_input on 910_95 reduces: all taps, a row of them, one, or those of one phase."""

from __future__ import annotations

from dataclasses import dataclass

from ascendsim.ops.tiling.vendor.layer import FRACTAL, Layer, Machine, align, ceil_div, floor_to
from ascendsim.ops.tiling.vendor.windows import dgrad_channel_bytes

# What one load3d can say of a padding or of a gap between taps.
MOST_BYTE = 255
# L1 must have room for so many pixels of one C0 group under all taps, beside the weights of a fractal.
PIXELS_OF_ALL_TAPS = 1024
# With one tap at a time no window is needed around a run of pixels, and a tile in L1 has so many of them.
PIXELS_OF_ONE_TAP = 256
C04_CHANNELS = 4
# Reductions from these lengths on are cut into segments of channels, added in float32 in global memory.
LONG_REDUCTION, LONG_PASS, LONG_PLAIN_FP32 = 32768, 8192, 2048


@dataclass(frozen=True)
class Part:
    """A layer reduced to what one pass works on.

    layer      its kernel, stride and sizes are those of the pass
    taps       "all", "c04", "kh" or "khkw": see VendorPlan
    split      "", "h" or "hw": the axes along which the stride splits the kernel
    passes     tasks for each tile of the result, of which each makes other rows
    smallest   taps of the smallest of the kernels that a split makes; 0: all are alike
    pixels     of the whole result: what its rows are counted in
    far        whether the kernel reaches further beyond the image than one load3d can say
    cut        whether a long reduction is added in segments
    """

    layer: Layer
    machine: Machine
    taps: str = "all"
    split: str = ""
    passes: int = 1
    smallest: int = 0
    pixels: int = 0
    far: bool = False
    cut: bool = False

    @property
    def window(self) -> int:
        """Reduction that one C0 group of channels adds; with 4 channels a tap, the whole."""
        layer = self.layer
        return align(C04_CHANNELS * layer.taps) if self.taps == "c04" else layer.taps * layer.c0

    @property
    def segment(self) -> int:
        """Channels whose products are added before a partial result leaves L0C; 0: all of them."""
        layer, reduction = self.layer, self.layer.co * self.layer.taps
        if not self.cut:
            return 0
        limit = LONG_REDUCTION if self.taps in ("all", "c04") else LONG_PASS
        if layer.itemsize == 4 and layer.layouts.input == layer.layouts.grad_output == "NCDHW":
            limit = min(limit, LONG_PLAIN_FP32)
        return max(floor_to(limit // layer.taps, layer.c0), layer.c0) if reduction >= limit else 0

    @property
    def channel_groups(self) -> int:
        """C0 groups of channels in a reduction."""
        if self.taps == "c04":
            return 1
        return ceil_div(self.segment or self.layer.co, self.layer.c0)

    @property
    def reduction(self) -> int:
        """Length of a reduction at one kernel depth."""
        return self.channel_groups * self.window

    @property
    def images(self) -> int:
        """Independent products of the same size: images, depths and groups."""
        return self.layer.batch * self.layer.input[0] * self.layer.groups

    def channel_bytes(self, pixels: int) -> int:
        """Return the bytes of one window's channels of grad_output in L1, for so many pixels."""
        layer = self.layer
        if self.taps == "khkw":
            return PIXELS_OF_ONE_TAP * layer.c0 * layer.itemsize
        whole = dgrad_channel_bytes(layer, pixels)
        return whole * C04_CHANNELS // layer.c0 if self.taps == "c04" else whole


def part_of(layer: Layer, machine: Machine) -> Part:
    """Return the pass of a layer whose kernel is not split by the stride: as many taps as L1 can serve."""
    pixels = layer.in_pixels
    unit_stride = max(*layer.stride[1:], *layer.dilation[1:]) == 1
    if layer.co <= C04_CHANNELS and layer.itemsize == 2 and unit_stride and layer.layouts.plain:
        return Part(layer, machine, "c04", pixels=pixels)
    pads = [_backward_pads(layer, axis) for axis in (1, 2)]
    high, wide = (max(*pad, gap) <= MOST_BYTE for pad, gap in zip(pads, layer.dilation[1:], strict=True))
    if high and wide and _holds(layer, machine):
        return Part(layer, machine, "all", pixels=pixels)
    far = max(map(max, pads)) > MOST_BYTE
    one_row = layer._replace(kernel=(layer.kernel[0], 1, layer.kernel[2]))
    # A load3d of one row of taps still has to say how far that reaches beyond the image, and its gaps.
    if wide and _holds(one_row, machine):
        return Part(one_row, machine, "kh", pixels=pixels, far=far)
    one_tap = layer._replace(kernel=(layer.kernel[0], 1, 1))
    return Part(one_tap, machine, "khkw", pixels=pixels, far=far)


def _holds(layer: Layer, machine: Machine) -> bool:
    """Tell whether L1 has room for the least that all taps of a layer need."""
    weights = layer.taps * layer.c0 * FRACTAL * layer.itemsize
    return dgrad_channel_bytes(layer, PIXELS_OF_ALL_TAPS) + weights <= machine.l1


def _backward_pads(layer: Layer, axis: int) -> tuple[int, int]:
    """Return the padding along one axis, before and after, of the convolution that grad_input is."""
    before = layer.spans[axis] - 1 - layer.pads[axis][0]
    expanded = (layer.output[axis] - 1) * layer.stride[axis] + 1
    return before, layer.input[axis] - expanded + layer.spans[axis] - 1 - before


def split_part(layer: Layer, machine: Machine) -> Part | None:
    """Return the pass of a layer whose kernel the stride splits, so that no zeros are multiplied; or None.

    Each phase of the stride meets a kernel of its own. Along H and W all phases of a tile are one task;
    along H alone each is a task of its own, and zeros stay between columns.
    """
    (_, height, width), (_, kh, kw), (_, sh, sw) = layer.input, layer.kernel, layer.stride
    symmetric = all(before == after for before, after in layer.pads)
    if max(layer.dilation[1:]) > 1 or not symmetric:
        return None
    split_width = ceil_div(width, 2)
    plain = layer.groups == 1 and layer.layouts.input == layer.layouts.grad_output == "NCDHW"
    if (sh, sw) == (2, 2) and kh == kw <= 4 and plain and split_width >= NARROW and _worth(layer):
        half = layer._replace(
            input=(layer.input[0], ceil_div(height, 2), split_width),
            kernel=(layer.kernel[0], ceil_div(kh, 2), ceil_div(kw, 2)),
            stride=(layer.stride[0], 1, 1),
        )
        smallest = max(kh // 2, 1) * max(kw // 2, 1)
        return Part(half, machine, split="hw", smallest=smallest, pixels=half.in_pixels)
    channels = min(layer.ci, layer.co) * layer.groups
    if sh >= 2 and sh <= kh <= MOST_SPLIT_TAPS and channels >= FRACTAL and width >= LEAST_SPLIT_WIDTH:
        rows = layer._replace(
            input=(layer.input[0], ceil_div(height, sh), width),
            kernel=(layer.kernel[0], ceil_div(kh, sh), kw),
            stride=(layer.stride[0], 1, sw),
        )
        return Part(rows, machine, "all", "h", sh, kh // sh * kw, layer.in_pixels)
    return None


# Narrower phases of a kernel split along H and W are not worth their interleaving.
NARROW = 12
MOST_SPLIT_TAPS, LEAST_SPLIT_WIDTH = 16, 32
# What "large" means for a kernel of one tap is not known; this many pixels fill every core of the product.
LARGE_PIXELS = 16384


def _worth(layer: Layer) -> bool:
    """Tell whether splitting pays: a kernel of one tap has only zeros to save where others add."""
    return layer.taps > 1 or layer.in_pixels >= LARGE_PIXELS
