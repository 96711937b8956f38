"""A gradient that is one matrix product, in one go; `reference/products.py` defines it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.numerics.compiled.gathered.factor import Factor, Values
from ascendsim.numerics.compiled.gathered.product import product_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation.models import AccumulationModel
    from ascendsim.ops.problems.as_product import GradientProduct
    from ascendsim.ops.schedules.order import MatmulOrder

    Floats = NDArray[np.float32]


def product_gradient(
    product: GradientProduct,
    order: MatmulOrder,
    model: AccumulationModel,
    operands: Mapping[str, Floats],
    threads: int = 1,
) -> Floats:
    """Return the accumulators (m, n) of left x right, added in slices of base_k.

    operands   tensors of the call by name, on the grid that the cube multiplies, of any shape
    """
    p = product.problem
    a = _factor(operands[product.left], p.m, p.k, turned=p.transpose_a)
    b = _factor(operands[product.right], p.n, p.k, turned=not p.transpose_b)
    ends = np.array([*range(order.base_k, p.k, order.base_k), p.k])
    return product_of(model, a, b, ends, threads)


def _factor(values: Floats, lines: int, depth: int, *, turned: bool) -> Factor:
    """Return a factor that lies as (lines, depth), or turned, as (depth, lines)."""
    if turned:
        return Factor(Values(values), np.arange(lines), np.arange(depth) * lines)
    return Factor(Values(values), np.arange(lines) * depth, np.arange(depth))
