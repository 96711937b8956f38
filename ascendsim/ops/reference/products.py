"""A gradient that is one matrix product, by definition: Mmad after Mmad along its reduction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ascendsim.ops.problems.as_product import GradientProduct

if TYPE_CHECKING:
    from ascendsim.ops.reference.ordered import Floats, Reduce
    from ascendsim.ops.schedules.order import MatmulOrder


def ordered_product(
    product: GradientProduct, operands: Mapping[str, Floats], order: MatmulOrder, reduce: Reduce
) -> Floats:
    """Return the accumulators (m, n) of left x right, added in slices of base_k.

    operands   tensors of the call by name, on the grid that the cube multiplies, of any shape
    """
    p = product.problem
    a = operands[product.left].reshape(p.stored_a)[0]
    b = operands[product.right].reshape(p.stored_b)[0]
    a, b = (a.T if p.transpose_a else a), (b.T if p.transpose_b else b)
    firsts = range(0, p.k, order.base_k)
    slices = [(a[:, at : at + order.base_k], b[at : at + order.base_k]) for at in firsts]
    return reduce(slices, (p.m, p.n))
