"""A gradient that is one matrix product, by definition: Mmad after Mmad along its reduction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.ops.problems.as_product import GradientProduct

if TYPE_CHECKING:
    from ascendsim.ops.reference.ordered import Floats, Reduce
    from ascendsim.ops.schedules.order import MatmulOrder


def ordered_product(
    product: GradientProduct, operands: Mapping[str, Floats], order: MatmulOrder, reduce: Reduce
) -> Floats:
    """Return the accumulators of left x right, added in slices of base_k, in the order of the gradient.

    operands   tensors of the call by name, on the grid that the cube multiplies, of any shape
    """
    p = product.problem
    made = np.empty((p.batch, p.m, p.n), np.float32)
    for image in range(p.batch):
        a = operands[product.left].reshape(p.stored_a)[0 if p.shared_a else image]
        b = operands[product.right].reshape(p.stored_b)[image]
        a, b = (a.T if p.transpose_a else a), (b.T if p.transpose_b else b)
        firsts = range(0, p.k, order.base_k)
        slices = [(a[:, at : at + order.base_k], b[at : at + order.base_k]) for at in firsts]
        made[image] = reduce(slices, (p.m, p.n))
    return made.reshape(product.result).transpose(product.axes) if product.axes else made
