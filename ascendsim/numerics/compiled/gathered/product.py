"""Make a product whose reduction was cut into many Mmads."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.compiled.accumulate import accumulate
from ascendsim.numerics.compiled.gathered.factor import Cuts, Factor, FactorRange, Floats, Places, cuts_of
from ascendsim.numerics.compiled.gathered.threads import ALONE, Threads

# Long enough for the cost of a piece to vanish, short enough for its columns to stay in the nearest cache. A
# piece that is written out costs more, and its place is the next cache.
_STEPS, _WRITTEN_STEPS = 96, 160


class GatheredProduct(Protocol):
    """A product of two factors under a model, ready to be added to accumulators."""

    def add(
        self, rows: FactorRange, columns: FactorRange, cuts: Cuts, c: Floats, begins: bool = False
    ) -> None:
        """Add some rows and columns of every product to those of c (products, m, n).

        begins   whatever c holds, sums begin with +0; every product has a piece
        """


def product_of(
    model: AccumulationModel, a: Factor, b: Factor, ends: Places, threads: Threads = ALONE
) -> Floats:
    """Return the accumulators of a product: the bits of `accumulate` for one Mmad after another, from +0 on.

    Shapes   a (m, k), b (n, k), ends (Mmads,): where each Mmad ends along k -> (m, n)
    Types    float32 carriers
    Threads  share the accumulators; what one of them is does not depend on the others, nor on how many share
    Raises   as `accumulate`
    """
    made: Floats = products_of(model, a, b, ends, [len(ends)], threads)[0]
    return made


def products_of(
    model: AccumulationModel,
    a: Factor,
    b: Factor,
    ends: Places,
    counts: Sequence[int],
    threads: Threads = ALONE,
) -> Floats:
    """Return the accumulators of products whose reductions follow each other along k, each from +0 on.

    Shapes   a (m, k), b (n, k), ends (Mmads,), counts (products,): how many of the Mmads each has
             -> (products, m, n)
    Raises   as `accumulate`
    """
    return products_at(model, a, b, cuts_of_products(model, ends, counts), threads)


def cuts_of_products(model: AccumulationModel, ends: Places, counts: Sequence[int]) -> Cuts:
    """Return where the reductions of `products_of` are cut."""
    most = _STEPS if _is_usual(model) else _WRITTEN_STEPS
    cuts: list[Places] = []
    begin = first = 0
    for count in counts:
        own = ends[first : first + count]
        cuts.append(begin + cuts_of(model, own - begin, most) if count else np.array([begin]))
        begin, first = int(own[-1]) if count else begin, first + count
    return Cuts.of(cuts)


def products_at(
    model: AccumulationModel, a: Factor, b: Factor, cuts: Cuts, threads: Threads = ALONE
) -> Floats:
    """Return the result of `products_of` with known cuts."""
    m, n, count = len(a.lines), len(b.lines), len(cuts.firsts) - 1
    if not cuts.longest():
        return np.zeros((count, m, n), np.float32)
    # Whole panels where panels are filled: what is over repeats the last line, and is cut off again.
    rows, columns = _panel(model)
    a, b = a.filled(rows).unlocked(), b.filled(columns).unlocked()
    c = np.empty((count, len(a.lines), len(b.lines)), np.float32)
    product = prepared(model, a, b, cuts.places)
    # Shared along the axis that has more panels, so that all threads have some.
    axis = _longer_axis(c.shape[1:], (rows, columns))

    # Accumulators that are written once only, by those who add to them, are not written with zeros before.
    begins = bool(np.diff(cuts.firsts).min() > 1)

    def add(own: slice) -> None:
        part, whole = FactorRange(own.start, own.stop), FactorRange(0, c.shape[2 - axis])
        left, right = (whole, part) if axis else (part, whole)
        if not begins:
            c[:, slice(*left), slice(*right)] = 0.0
        product.add(left, right, cuts, c, begins)

    threads.share(add, c.shape[1 + axis], (rows, columns)[axis])
    return c[:, :m, :n]


def _longer_axis(shape: Sequence[int], panel: tuple[int, int]) -> int:
    """Return which axis of accumulators has more panels, 0 where both have as many."""
    panels = [-(-size // unit) for size, unit in zip(shape, panel, strict=True)]
    return int(panels[1] > panels[0])


def prepared(model: AccumulationModel, a: Factor, b: Factor, cuts: Places) -> GatheredProduct:
    """Return a product under a model; with a kernel here, m and n are whole multiples of its panels."""
    if not _is_usual(model):
        return WrittenOut(model, a, b, cuts)
    if model.kind == "block" and isinstance(model.block, int) and model.block > 1:
        from ascendsim.numerics.compiled.gathered.kernels import BlockProducts

        return BlockProducts(a, b, cuts, model.block)
    from ascendsim.numerics.compiled.gathered.kernels import Chain

    # A block of one product is a fused step of a chain.
    return Chain(a, b, cuts, model.kind != "seq-muladd")


def _panel(model: AccumulationModel) -> tuple[int, int]:
    """Return the rows and columns of a panel of the model's kernel."""
    if not _is_usual(model):
        return 1, 1
    from ascendsim.numerics.compiled.panels import LANES, ROWS

    return ROWS, LANES


def _is_usual(model: AccumulationModel) -> bool:
    """Return whether a model has a kernel that takes the elements from where they lie."""
    kinds = model.kind in ("seq", "seq-muladd", "block") and model.rounding == "RNE" and not model.half
    flushes = model.ftz_in or model.ftz_acc
    return kinds and not flushes and model.product == "exact" and model.overflow == "ieee"


class WrittenOut:
    """A product under any model, its factors written out piece by piece."""

    _LINES = 512  # rows at a time, so that a piece of both factors stays in the nearer caches

    def __init__(self, model: AccumulationModel, a: Factor, b: Factor, cuts: Places) -> None:
        del cuts  # of use to kernels that measure their factors beforehand
        self._model, self._a, self._b = model, a, b

    def add(
        self, rows: FactorRange, columns: FactorRange, cuts: Cuts, c: Floats, begins: bool = False
    ) -> None:
        """Add some rows and columns of every product to those of c (products, m, n)."""
        for own, cells in zip(cuts.each(), c, strict=True):
            self._add(rows, columns, own, cells, begins)

    def _add(self, rows: FactorRange, columns: FactorRange, cuts: Places, c: Floats, begins: bool) -> None:
        """Add one product, (m, n)."""
        from ascendsim.numerics.compiled.gathered.lines import write_columns, write_rows

        b = self._b.part(slice(*columns))
        for line in range(rows.start, rows.stop, self._LINES):
            some = slice(line, min(line + self._LINES, rows.stop))
            a, given = self._a.part(some), c[some, slice(*columns)]
            cells = np.zeros(given.shape, np.float32) if begins else np.ascontiguousarray(given)
            for first, last in pairwise(cuts.tolist()):
                left = np.empty((len(a.lines), last - first), np.float32)
                right = np.empty((last - first, len(b.lines)), np.float32)
                write_rows(a.elements, first, last, left)
                write_columns(b.elements, first, last, right)
                accumulate(self._model, left, right, cells)
            c[some, slice(*columns)] = cells
