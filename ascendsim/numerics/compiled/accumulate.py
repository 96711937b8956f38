"""Make cube products under a named model: the compiled models behind one door.

`accumulate` adds the product of one Mmad; `product_of` makes a product whose reduction was cut into many.
Importing this module is light; the compiler and the one kernel a model needs are loaded at its first product.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from ascendsim.errors import ConfigError, ShapeError, UnsupportedError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.accumulation import MAX_BLOCK, AccumulationModel
from ascendsim.numerics.factor import (
    ALONE,
    Cuts,
    Factor,
    FactorRange,
    Floats,
    Places,
    Threads,
    Values,
    cuts_of,
    matrix_factor,
)

if TYPE_CHECKING:
    from ascendsim.numerics.compiled.lines import LineRuns
    from ascendsim.numerics.compiled.workspace import KernelModel

    Runs = tuple[LineRuns, LineRuns]


FloatArray = npt.NDArray[np.float32]
Kernel = Callable[[FloatArray, FloatArray, FloatArray], None]

_FLOAT32 = np.dtype(np.float32)
NOTHING: Final = Values(np.empty(0, np.float32))  # of a factor whose elements are of no interest
_LOW_HALF_BITS = np.int32(0xFFF)
_ALL = 1 << 30  # more products than any k, and as many as a long integer can add without a carry


@default_arithmetic
def accumulate(model: AccumulationModel, a: FloatArray, b: FloatArray, c: FloatArray) -> None:
    """Add a product to `c` in place, bit for bit as the model's twin defines it.

    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous (a and b are copied if they are not)
    Types    float32 carriers
    Order    blocks begin at k = 0 of this call; `exact` is meant to get its whole reduction in one call
             (`models.products_of`)
    Special  as `twins` says; the payload of a NaN is not promised
    Modes    of the processor (rounding, flush to zero) that the calling thread has set change nothing
    Raises   ShapeError if the sizes differ, UnsupportedError for another dtype or a c that cannot be written
             in place, ConfigError if the model's block is still `cube_k`
    """
    a, b = _checked(a, b, c)
    if c.size == 0 or a.shape[1] == 0:
        return
    if model.ftz_in:
        a, b = _flushed(a, model.ftz_in_exponent), _flushed(b, model.ftz_in_exponent)
    if model.ftz_acc:
        c[:] = _flushed(c, model.accumulator.min_exponent)
    # Where one side has no low halves, no product of two is left out; kernels without that term are faster.
    split = model.product == "split3" and _has_low_halves(a) and _has_low_halves(b)
    _kernel(model, split)(a, b, c)
    if model.overflow == "saturate":
        largest = np.float32(model.accumulator.max_finite)
        c[np.isnan(c)] = 0.0
        np.clip(c, -largest, largest, out=c)


def _checked(a: FloatArray, b: FloatArray, c: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return operands that a kernel can take, or raise an error with the reason."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0] or c.shape != (a.shape[0], b.shape[1]):
        raise ShapeError(f"accumulate: a {a.shape}, b {b.shape}, c {c.shape} do not fit (m,k) (k,n) -> (m,n)")
    if not a.dtype == b.dtype == c.dtype == _FLOAT32:
        raise UnsupportedError(f"accumulate: a {a.dtype}, b {b.dtype}, c {c.dtype}; carriers are float32")
    if not c.flags.carray:
        raise UnsupportedError("accumulate: c must be C-contiguous and writeable, it is changed in place")
    # A read-only array has a type of its own, for which every kernel would be compiled anew: copy it as well.
    return a if a.flags.carray else np.array(a, order="C"), b if b.flags.carray else np.array(b, order="C")


def _flushed(x: FloatArray, min_exponent: int) -> FloatArray:
    # A zero of the same sign, as the twin has it; NaN is not below anything and stays.
    return np.where(np.abs(x) < np.float32(2.0**min_exponent), np.copysign(np.float32(0), x), x)


def _has_low_halves(x: FloatArray) -> bool:
    return bool(np.any(x.view(np.int32) & _LOW_HALF_BITS))


@lru_cache(maxsize=64)
def _kernel(model: AccumulationModel, split: bool) -> Kernel:
    """Choose the compiled function for a model and products that are split or not."""
    if not isinstance(model.block, int):
        raise ConfigError(f"accumulation model {model}: resolve cube_k to a number before computing")
    from ascendsim.numerics.compiled.panel_rounding import MODES, Rounding
    from ascendsim.numerics.compiled.panels import CAN_CUT
    from ascendsim.numerics.compiled.workspace import KernelModel, plain

    kind = model.kind
    # A block of one product is a chain, and the root of a tree of one leaf is the rounded product.
    if model.block == 1:
        kind = {"block": "seq", "tree": "seq-muladd"}.get(kind, kind)
    chained = kind in ("seq", "seq-muladd")
    # Chains have blocks only to be measured, which nobody reads; `exact` has one block, whatever k is.
    block = MAX_BLOCK if chained else _ALL if kind in ("exact", "exact-mmad") else model.block
    separate = kind in ("block-add", "seq-muladd")
    modes = {model.rounding, model.add_rounding} if kind == "block-add" else {model.rounding}
    # The processor's own mode serves where everything is cut, and into binary32 without more ado.
    cuts = CAN_CUT and modes == {"RZ"} and kind != "align" and not model.half and not model.ftz_acc
    flush = 2.0**model.accumulator.min_exponent if model.ftz_acc else 0.0
    how = Rounding(MODES[model.rounding], model.half, flush, cuts)
    add = how._replace(mode=MODES[model.add_rounding])
    parameters = KernelModel(block, how, separate, add, split)
    if chained:
        return _chain(parameters)
    if kind == "tree":
        from ascendsim.numerics.compiled.align_kernels import tree

        return lambda a, b, c: tree(a, b, c, parameters, model.pairing == "halves")
    if kind == "align":
        from ascendsim.numerics.compiled.align_kernels import align

        return lambda a, b, c: align(a, b, c, parameters, model.fraction_bits, model.with_accumulator)
    if kind not in ("exact", "exact-mmad", "block", "block-add"):
        raise AssertionError(f"_kernel does not know the accumulation model kind {kind!r}")
    from ascendsim.numerics.compiled.block_kernels import block as sum_blocks

    fields = plain(parameters)
    return lambda a, b, c: sum_blocks(a, b, c, fields)


def _chain(parameters: "KernelModel") -> Kernel:
    """Choose the function for a chain: the processor's own arithmetic where it rounds as the model does."""
    from ascendsim.numerics.compiled.block_kernels import chain
    from ascendsim.numerics.compiled.panel_rounding import RNE, RZ
    from ascendsim.numerics.compiled.panels import CAN_CUT

    how, fused = parameters.sum, not parameters.separate
    own = how.mode == RNE or (how.mode == RZ and CAN_CUT)
    if not own or how.flush_below > 0.0 or parameters.split:
        return lambda a, b, c: chain(a, b, c, parameters)
    if not how.half:
        from ascendsim.numerics.compiled.block_kernels import seq

        return lambda a, b, c: seq(a, b, c, fused, how.cuts)
    from ascendsim.numerics.compiled.block_kernels import cut_half_chain, half_chain

    def half_or_any(a: FloatArray, b: FloatArray, c: FloatArray) -> None:
        if not half_chain(a, b, c, fused):
            chain(a, b, c, parameters)

    return half_or_any if how.mode == RNE else lambda a, b, c: cut_half_chain(a, b, c, fused)


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
    planned = PlannedProducts.of(model, a, b, cuts_of_products(model, ends, counts))
    return planned.made(a.values, b.values, threads)


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


class PlannedProducts(NamedTuple):
    """What products of known places have in common, whatever their elements are.

    a, b    factors of whole panels, without elements
    begins  accumulators are written once only, by those who add to them
    m, n    lines of the factors as they were given
    runs    of both factors, where a kernel reads them
    """

    model: AccumulationModel
    a: Factor
    b: Factor
    cuts: Cuts
    begins: bool
    m: int
    n: int
    runs: "Runs | None"

    @classmethod
    def of(cls, model: AccumulationModel, a: Factor, b: Factor, cuts: Cuts) -> Self:
        """Plan products of factors whose elements are not looked at, and are not kept."""
        rows, columns = _panel(model)
        # Whole panels where panels are filled: what is over repeats the last line, and is cut off again.
        left, right = (
            one._replace(values=NOTHING).filled(unit).unlocked() for one, unit in ((a, rows), (b, columns))
        )
        begins = bool(np.diff(cuts.firsts).min() > 1)
        runs = _runs_of(model, left, right, cuts.places) if cuts.longest else None
        return cls(model, left, right, cuts, begins, len(a.lines), len(b.lines), runs)

    def made(self, a: Values, b: Values, threads: Threads = ALONE) -> Floats:
        """Return the accumulators, (products, m, n), of factors with these elements."""
        model, cuts, begins = self.model, self.cuts, self.begins
        count = len(cuts.firsts) - 1
        if not cuts.longest:
            return np.zeros((count, self.m, self.n), np.float32)
        left, right = self.a._replace(values=a), self.b._replace(values=b)
        c = np.empty((count, len(left.lines), len(right.lines)), np.float32)
        product = prepared(model, left, right, cuts.places, self.runs)
        # Shared along the axis that has more panels, so that all threads have some.
        panel = _panel(model)
        axis = _longer_axis(c.shape[1:], panel)

        def add(own: slice) -> None:
            part, whole = FactorRange(own.start, own.stop), FactorRange(0, c.shape[2 - axis])
            rows, columns = (whole, part) if axis else (part, whole)
            if not begins:
                c[:, slice(*rows), slice(*columns)] = 0.0
            product.add(rows, columns, cuts, c, begins)

        threads.share(add, c.shape[1 + axis], panel[axis])
        return c[:, : self.m, : self.n]


# Lines and steps of matrices whose places are remembered: 2 x 128 KiB.
_KEPT_LINES: Final = 1 << 14


def planned_matrices(
    model: AccumulationModel,
    shape: tuple[int, int, int],
    turned: tuple[bool, bool],
    base_k: int,
    images: int = 1,
) -> PlannedProducts:
    """Return the product (m, k, n) of a matrix and of so many matrices side by side, in Mmads of `base_k`.

    turned   of both factors, as `matrix_factor` takes it
    """
    made = _known_matrices if sum(shape) * images <= _KEPT_LINES else _planned_matrices
    return made(model, shape, turned, base_k, images)


def _planned_matrices(
    model: AccumulationModel, shape: tuple[int, int, int], turned: Sequence[bool], base_k: int, images: int
) -> PlannedProducts:
    m, k, n = shape
    a = matrix_factor(NOTHING, m, k, turned=turned[0])
    b = matrix_factor(NOTHING, n, k, turned=turned[1], images=range(images))
    ends = np.array([*range(base_k, k, base_k), k])
    return PlannedProducts.of(model, a, b, cuts_of_products(model, ends, [len(ends)]))


_known_matrices = lru_cache(maxsize=64)(_planned_matrices)


def _longer_axis(shape: Sequence[int], panel: tuple[int, int]) -> int:
    """Return which axis of accumulators has more panels, 0 where both have as many."""
    panels = [-(-size // unit) for size, unit in zip(shape, panel, strict=True)]
    return int(panels[1] > panels[0])


def prepared(
    model: AccumulationModel, a: Factor, b: Factor, cuts: Places, runs: "Runs | None" = None
) -> GatheredProduct:
    """Return a product under a model; with a kernel here, m and n are whole multiples of its panels.

    runs   as `_runs_of` returns them, where they are known
    """
    if not _is_usual(model):
        return WrittenOut(model, a, b, cuts)
    if found := runs or _runs_of(model, a, b, cuts):
        from ascendsim.numerics.compiled.gathered_kernels import BlockProducts

        return BlockProducts(a, b, found, int(model.block))
    from ascendsim.numerics.compiled.gathered_kernels import Chain

    # A block of one product is a fused step of a chain.
    return Chain(a, b, cuts, model.kind != "seq-muladd")


def _runs_of(model: AccumulationModel, a: Factor, b: Factor, cuts: Places) -> "Runs | None":
    """Return the runs that the kernel of blocks reads; None: another one makes the product."""
    if not _is_usual(model) or model.kind != "block" or not isinstance(model.block, int) or model.block < 2:
        return None
    from ascendsim.numerics.compiled.lines import LineRuns

    return LineRuns.left(a, cuts, model.block), LineRuns.right(b)


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
        from ascendsim.numerics.compiled.lines import write_columns, write_rows

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
