"""Add one cube product to accumulators under a named model: the compiled models behind one function.

Importing this module is light; the compiler and the one kernel a model needs are loaded at its first product.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ascendsim.errors import ConfigError, ShapeError, UnsupportedError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.accumulation.models import MAX_BLOCK, AccumulationModel

if TYPE_CHECKING:
    from ascendsim.numerics.compiled.workspace import KernelModel

FloatArray = npt.NDArray[np.float32]
Kernel = Callable[[FloatArray, FloatArray, FloatArray], None]

_FLOAT32 = np.dtype(np.float32)
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
