"""Stride and padding of a convolution of which only the sizes are told."""

from __future__ import annotations

from typing import NamedTuple

from ascendsim.errors import ShapeError

# What the instruction that gathers the taps of a kernel can step.
MOST_STRIDE = 63


class Fit(NamedTuple):
    """A stride and the padding of both sides together that lead from one size to the other."""

    stride: int
    padding: int

    @property
    def pads(self) -> tuple[int, int]:
        """Padding in front and behind, the smaller half in front."""
        return self.padding // 2, self.padding - self.padding // 2


def infer_window(big: int, small: int, kernel: int) -> Fit:
    """Return the stride and padding of one axis; dilation is 1.

    The output is small = floor((big + padding - kernel) / stride) + 1, with less than the kernel of padding a
    side. Where several strides do that, patches side by side are taken (the stride is the kernel and divides
    the sizes), else that of a usual layer: no padding, or half the kernel on both sides. Of usual ones with
    the same padding the stride that divides the sizes is taken; which one does not matter where there is one
    output.

    Raises   ShapeError if no stride leads from one size to the other, or usual layers of several do
    """
    fits = [fit for fit in (_fit(big, small, kernel, s) for s in range(1, MOST_STRIDE + 1)) if fit]
    if not fits:
        raise ShapeError(f"no stride and padding lead from {big} to {small} with a kernel of {kernel}")
    # Networks pad by nothing or to keep the size; whatever else fits is most likely a coincidence.
    usual = [fit for fit in fits if fit.padding in (0, _half(kernel))]
    if small == 1 or len(fits) == 1:
        return (usual or fits)[0]
    dividing = [fit for fit in usual if fit.stride * small == big]
    same_padding = len({fit.padding for fit in usual}) == 1
    patches = [fit for fit in dividing if fit.stride == kernel]
    chosen = patches or (dividing if same_padding and dividing else usual)
    if len(chosen) == 1:
        return chosen[0]
    told = ", ".join(f"stride {fit.stride} with padding {fit.padding}" for fit in (chosen or fits)[:4])
    raise ShapeError(
        f"from {big} to {small} with a kernel of {kernel} lead {told}: the profile does not tell which"
    )


def _fit(big: int, small: int, kernel: int, stride: int) -> Fit | None:
    """Return the padding under which a stride fits: none, half the kernel, or the least that fits.

    It is the same on both sides if it can be.
    """
    least = (small - 1) * stride + kernel - big
    # The last step of the stride may leave up to stride - 1 pixels over, and a side that is all padding would
    # add nothing.
    low, high = max(0, least), min(least + stride - 1, 2 * (kernel - 1))
    if low > high:
        return None
    if low and low <= _half(kernel) <= high:
        return Fit(stride, _half(kernel))
    return Fit(stride, low + 1 if low % 2 and low < high else low)


def _half(kernel: int) -> int:
    """Return the padding that is half the kernel on both sides."""
    return (kernel - 1) // 2 * 2
