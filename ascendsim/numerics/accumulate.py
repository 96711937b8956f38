"""Add one cube product to accumulators under a named model: the compiled models behind one function.

Importing this module is light; the compiler and the one kernel a model needs are loaded at its first product.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ascendsim.errors import ConfigError, ShapeError, UnsupportedError
from ascendsim.numerics.models import BINARY32_MIN_EXPONENT, AccumulationModel

FloatArray = npt.NDArray[np.float32]
Kernel = Callable[[FloatArray, FloatArray, FloatArray], None]

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
    for name, array in (("a", a), ("b", b), ("c", c)):
        if array.dtype != np.float32:
            raise UnsupportedError(f"accumulate: {name} has dtype {array.dtype}, but carriers are float32")
    if not (c.flags.c_contiguous and c.flags.writeable):
        raise UnsupportedError("accumulate: c must be C-contiguous and writeable, it is changed in place")
    return _usable(a), _usable(b)


def _usable(x: FloatArray) -> FloatArray:
    return x if x.flags.c_contiguous and x.flags.writeable else np.array(x, order="C")


def _flushed(x: FloatArray, min_exponent: int) -> FloatArray:
    return np.where(np.abs(x) < np.float32(2.0**min_exponent), np.copysign(np.float32(0), x), x)


def _has_low_halves(x: FloatArray) -> bool:
    return bool(np.any(x.view(np.int32) & _LOW_HALF_BITS))


@lru_cache(maxsize=64)
def _kernel(model: AccumulationModel, split: bool) -> Kernel:
    """Choose the compiled function for a model and products that are split or not."""
    if not isinstance(model.block, int):
        raise ConfigError(f"accumulation model {model}: resolve cube_k to a number before computing")
    from ascendsim.numerics.panel_rounding import MODES, Rounding

    flush = 2.0 ** (_BINARY16_MIN_EXPONENT if model.half else BINARY32_MIN_EXPONENT) if model.ftz_acc else 0.0
    how = Rounding(MODES[model.rounding], model.half, flush)
    usual = how == Rounding(MODES["RNE"], False, 0.0) and not split
    if usual and (model.kind in ("seq", "seq-muladd") or (model.kind == "block" and model.block == 1)):
        from ascendsim.numerics.kernels_fused import seq

        return partial(_call, seq, model.kind != "seq-muladd")
    if model.kind in ("exact", "block", "block-add"):
        from ascendsim.numerics.block_sums import Rules
        from ascendsim.numerics.kernels_block import block

        add = how._replace(mode=MODES[model.add_rounding])
        size = 1 << 30 if model.kind == "exact" else model.block
        return partial(_call, block, Rules(size, how, model.kind == "block-add", add, split))
    raise UnsupportedError(f"accumulation model {model} has no compiled form yet")


def _call(function: Callable[..., None], rules: Any, a: FloatArray, b: FloatArray, c: FloatArray) -> None:
    function(a, b, c, rules)
