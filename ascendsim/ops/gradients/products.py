"""A gradient that is one matrix product, in one go; `reference/products.py` defines it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.numerics.compiled.gathered.factor import Factor, Values
from ascendsim.numerics.compiled.gathered.product import product_of
from ascendsim.numerics.compiled.gathered.threads import ALONE, Threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation.models import AccumulationModel
    from ascendsim.ops.problems.folded import GradientProduct
    from ascendsim.ops.schedules.base import MatmulOrder

    Floats = NDArray[np.float32]


def product_gradient(
    product: GradientProduct,
    order: MatmulOrder,
    model: AccumulationModel,
    operands: Mapping[str, Floats],
    threads: Threads = ALONE,
) -> Floats:
    """Return the accumulators of left x right, added in slices of base_k, in the order of the gradient.

    operands   tensors of the call by name, on the grid that the cube multiplies, of any shape
    """
    p = product.problem
    a = _factor(operands[product.left], p.m, p.k, turned=p.transpose_a)
    # All images in one go: the columns of one, then those of the next.
    b = _factor(operands[product.right], p.n, p.k, turned=not p.transpose_b, images=p.batch)
    ends = np.array([*range(order.base_k, p.k, order.base_k), p.k])
    sums = product_of(model, a, b, ends, threads)
    if not product.axes:
        return sums
    by_image = sums.reshape(p.m, p.batch, p.n).swapaxes(0, 1)
    return np.ascontiguousarray(by_image.reshape(product.result).transpose(product.axes))


def _factor(values: Floats, lines: int, depth: int, *, turned: bool, images: int = 1) -> Factor:
    """Return a factor that lies as (images, lines, depth), or turned, as (images, depth, lines)."""
    begins = np.arange(images)[:, None] * (lines * depth)
    if turned:
        return Factor(Values(values), (begins + np.arange(lines)).ravel(), np.arange(depth) * lines)
    return Factor(Values(values), (begins + np.arange(lines) * depth).ravel(), np.arange(depth))
