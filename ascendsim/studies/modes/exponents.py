"""Where the exponents of a tensor lie, and how much of it a format loses below and above its range."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ascendsim.numerics.formats.dtypes import dtype
from ascendsim.studies.arithmetic.formats import format_of, quantise
from ascendsim.studies.modes.records import Histogram, Share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float64 = NDArray[np.float64]


def histogram(tensor: str, values: Float64) -> Histogram:
    """Count the values of a tensor by binade."""
    finite = np.isfinite(values)
    sizes = np.abs(values[finite & (values != 0)])
    special, zeros = int((~finite).sum()), int((values == 0).sum())
    if not sizes.size:
        return Histogram(tensor, 0, (), zeros, special)
    # frexp gives 0.5 <= m < 1: the binade of |x| begins one exponent lower.
    exponents = np.frexp(sizes)[1] - 1
    first = int(exponents.min())
    return Histogram(tensor, first, tuple(np.bincount(exponents - first).tolist()), zeros, special)


def share(tensor: str, values: Float64, name: str, loss_scale: float = 1.0) -> Share:
    """Say what a format makes of the values of a tensor times a loss scale, rounded once."""
    fmt = dtype(name)
    finite = values[np.isfinite(values) & (values != 0)] * loss_scale
    if not finite.size:
        return Share(tensor, name, loss_scale, None if fmt.tapered else 0.0, 0.0, 0.0)
    with np.errstate(over="ignore"):
        stored = quantise(finite, format_of(name))
    below = None if fmt.tapered else float(np.mean(np.abs(finite) < 2.0**fmt.min_exponent))
    lost, beyond = np.mean(stored == 0), np.mean(~np.isfinite(stored))
    return Share(tensor, name, loss_scale, below, float(lost), float(beyond))
