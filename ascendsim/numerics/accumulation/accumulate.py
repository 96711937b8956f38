"""Add one cube product to accumulators under a named model: the compiled models behind one function.

Importing this module is light; the compiler and the one kernel a model needs are loaded at its first product.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ascendsim.errors import ConfigError, ShapeError, UnsupportedError
from ascendsim.numerics.accumulation.models import BINARY32_MIN_EXPONENT, MAX_BLOCK, AccumulationModel

FloatArray = npt.NDArray[np.float32]
Kernel = Callable[[FloatArray, FloatArray, FloatArray], None]

_FLOAT32 = np.dtype(np.float32)
_LARGEST32 = np.finfo(np.float32).max
_LARGEST16 = np.float32(65504.0)
_BINARY16_MIN_EXPONENT = -14
_LOW_HALF_BITS = np.int32(0xFFF)


def accumulate(model: AccumulationModel, a: FloatArray, b: FloatArray, c: FloatArray) -> None:
    """Add a product to `c` in place, bit for bit as the model's twin defines it.

    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous (a and b are copied if they are not)
    Types    float32 carriers
    Order    blocks begin at k = 0 of this call
    Special  as `twins` says; the payload of a NaN is not promised
    Raises   ShapeError if the sizes differ, UnsupportedError for another dtype or a c that cannot be written
             in place, ConfigError if the model's block is still `cube_k`
    """
    a, b = _checked(a, b, c)
    if c.size == 0 or a.shape[1] == 0:
        return
    if model.ftz_in:
        a, b = _flushed(a, model.ftz_in_exponent), _flushed(b, model.ftz_in_exponent)
    if model.ftz_acc:
        c[:] = _flushed(c, _BINARY16_MIN_EXPONENT if model.half else BINARY32_MIN_EXPONENT)
    split = model.product == "split3" and _has_low_halves(a) and _has_low_halves(b)
    _kernel(model, split)(a, b, c)
    if model.overflow == "saturate":
        largest = _LARGEST16 if model.half else _LARGEST32
        c[np.isnan(c)] = 0.0
        np.clip(c, -largest, largest, out=c)


def _checked(a: FloatArray, b: FloatArray, c: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return operands that a kernel can take, or say what is wrong."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0] or c.shape != (a.shape[0], b.shape[1]):
        raise ShapeError(f"accumulate: a {a.shape}, b {b.shape}, c {c.shape} do not fit (m,k) (k,n) -> (m,n)")
    if not a.dtype == b.dtype == c.dtype == _FLOAT32:
        raise UnsupportedError(f"accumulate: a {a.dtype}, b {b.dtype}, c {c.dtype}; carriers are float32")
    if not c.flags.carray:
        raise UnsupportedError("accumulate: c must be C-contiguous and writeable, it is changed in place")
    return a if a.flags.carray else np.array(a, order="C"), b if b.flags.carray else np.array(b, order="C")


def _flushed(x: FloatArray, min_exponent: int) -> FloatArray:
    return np.where(np.abs(x) < np.float32(2.0**min_exponent), np.copysign(np.float32(0), x), x)


def _has_low_halves(x: FloatArray) -> bool:
    return bool(np.any(x.view(np.int32) & _LOW_HALF_BITS))


@lru_cache(maxsize=64)
def _kernel(model: AccumulationModel, split: bool) -> Kernel:
    """Choose the compiled function for a model and products that are split or not."""
    if not isinstance(model.block, int):
        raise ConfigError(f"accumulation model {model}: resolve cube_k to a number before computing")
    from ascendsim.numerics.compiled.job import Rules
    from ascendsim.numerics.compiled.panel_rounding import MODES, Rounding

    flush = 2.0 ** (_BINARY16_MIN_EXPONENT if model.half else BINARY32_MIN_EXPONENT) if model.ftz_acc else 0.0
    how = Rounding(MODES[model.rounding], model.half, flush)
    add = how._replace(mode=MODES[model.add_rounding])
    usual = how == Rounding(MODES["RNE"], False, 0.0) and not split
    kind = model.kind
    if model.block == 1:  # a block of one is a chain
        kind = {"block": "seq", "tree": "seq-muladd"}.get(kind, kind)
    size = MAX_BLOCK if kind in ("seq", "seq-muladd") else 1 << 30 if kind == "exact" else model.block
    rules = Rules(size, how, kind in ("block-add", "seq-muladd"), add, split)
    if kind in ("seq", "seq-muladd") and usual:
        from ascendsim.numerics.compiled.kernels_fused import seq

        return partial(_call, seq, kind == "seq")
    if kind in ("seq", "seq-muladd"):
        from ascendsim.numerics.compiled.kernels_chain import chain

        if how == Rounding(MODES["RNE"], True, 0.0) and not split:
            return partial(_half_chain, rules)
        return partial(_call, chain, rules)
    if kind == "tree":
        from ascendsim.numerics.compiled.kernels_tree import tree

        return partial(_call, tree, rules, model.pairing == "halves")
    if kind != "align":
        from ascendsim.numerics.compiled.kernels_block import block

        return partial(_call, block, rules)
    from ascendsim.numerics.compiled.kernels_align import align

    return partial(_call, align, rules, model.fraction_bits, model.with_accumulator)


def _half_chain(rules: Any, a: FloatArray, b: FloatArray, c: FloatArray) -> None:
    """Run a chain of binary16 accumulators in singles where that is exact, otherwise as any other chain."""
    from ascendsim.numerics.compiled.kernels_chain import chain
    from ascendsim.numerics.compiled.kernels_half import half_chain

    if not half_chain(a, b, c, not rules.separate):
        chain(a, b, c, rules)


def _call(function: Callable[..., None], *args: Any) -> None:
    *options, a, b, c = args
    function(a, b, c, *options)
