"""Move tensors between what is stored and the float32 carrier, and round carriers into a format.

decode      stored elements -> carrier, exact
encode      carrier on the format's grid -> stored elements, exact
round_to    any carrier -> carrier on the grid, one rounding
hf32        what the cube makes of float32 operands when HF32 is on
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ascendsim.errors import UnsupportedError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.formats import dtypes
from ascendsim.numerics.formats.dtypes import DType
from ascendsim.numerics.formats.format_rounding import (
    INFINITY,
    MAGNITUDE,
    QUIET,
    Float32Array,
    require_choice,
    require_float32,
    round_fields,
)
from ascendsim.numerics.formats.hifloat8 import HiFloat8Array
from ascendsim.numerics.formats.hifloat8_rounding import round_hifloat8
from ascendsim.numerics.formats.tables import decode_codes, encode_codes

HF32_TIES = ("RNE", "RNA", "RZ")


@default_arithmetic
def round_to(
    values: npt.ArrayLike, dtype: "str | DType", rounding: str | None = None, overflow: str = "ieee"
) -> Float32Array:
    """Round float32 values into a format, once.

    Shapes    any -> the same; the result is a carrier (float32) and may be the input itself for float32
    rounding  RINT, ROUND, FLOOR, CEIL, TRUNC or ODD; hifloat8 has ROUND, HYBRID:doc-literal and
              HYBRID:strict; left out: RINT, for hifloat8 ROUND, which is what Fixpipe and Cast kernels use
    overflow  ieee, saturate or saturate_keep_nan (see `format_rounding.py`)
    Raises    UnsupportedError for values that are not float32, unknown modes and formats
    """
    fmt = dtypes.dtype(dtype)
    array = require_float32(values, f"round_to {fmt.name}")
    if fmt.tapered:
        return round_hifloat8(array, rounding or "ROUND", overflow)
    rounding = rounding or "RINT"
    # The usual case has short cuts, since every Fixpipe and Cast takes it; the general form gives the same.
    if rounding == "RINT" and overflow == "ieee":
        if fmt is dtypes.FLOAT32:
            return array
        # numpy's own conversion is correctly rounded, and faster on ordinary data.
        if fmt is dtypes.FLOAT16:
            with np.errstate(over="ignore", under="ignore"):
                return array.astype(np.float16).astype(np.float32)
        if fmt in (dtypes.BFLOAT16, dtypes.HF32_11, dtypes.HF32_10):
            return _cut_mantissa(array, 23 - fmt.mantissa_bits, "RNE")
    return round_fields(array, fmt, rounding, overflow)


@default_arithmetic
def hf32(values: npt.ArrayLike, mantissa_bits: int, ties: str = "RNE") -> Float32Array:
    """Round float32 operands to HF32 as the cube does on the way in from L0A and L0B.

    mantissa_bits  11 on 910B and 910_93, 10 on 910_95
    ties           RNE (CTRL[47] = 0) and RNA (CTRL[47] = 1) go to the nearest value, RZ toward zero
    Special        NaN and Inf stay; subnormals are kept; the largest values round to Inf under RNE and RNA
    Source         AscendC HF32 and SetHF32TransMode pages; RNA for bit 47 is what the shipped kernels mean
    """
    require_choice(ties, HF32_TIES, "hf32: ties")
    if not 0 < mantissa_bits < 23:
        raise UnsupportedError(
            f"hf32: {mantissa_bits} mantissa bits; HF32 has 11 (910B, 910_93) or 10 (910_95)"
        )
    return _cut_mantissa(require_float32(values, "hf32"), 23 - mantissa_bits, ties)


def _cut_mantissa(values: Float32Array, drop: int, ties: str) -> Float32Array:
    """Round away the low `drop` bits of every pattern; a carry runs into the exponent and on to Inf."""
    bits = values.view(np.uint32)
    magnitude = bits & MAGNITUDE
    low = np.uint32(drop)
    half = np.uint32(1 << (drop - 1))
    match ties:
        case "RNE":
            # Just below half, plus the last kept bit: a tie carries only from an odd one.
            rounded = magnitude + (half - np.uint32(1)) + (magnitude >> low & np.uint32(1))
        case "RNA":
            rounded = magnitude + half
        case _:
            rounded = magnitude
    rounded = np.asarray(rounded >> low << low | bits & ~MAGNITUDE)
    # A NaN could carry into the sign, or lose all its fraction and read as Inf: it is cut and made quiet.
    nan = magnitude > INFINITY
    if nan.any():
        np.copyto(rounded, (bits | QUIET) >> low << low, where=nan)
    return rounded.view(np.float32)


@default_arithmetic
def decode(array: "npt.NDArray[Any] | HiFloat8Array", dtype: "str | DType") -> Float32Array:
    """Return the carrier of stored elements: the same values as float32.

    Types   the storage of the format (hifloat8: HiFloat8Array; HF32: float32 already on its grid)
    Raises  UnsupportedError when the array's type is not the format's storage
    """
    fmt = dtypes.dtype(dtype)
    if isinstance(array, HiFloat8Array) or fmt.storage_name is None:
        if not (isinstance(array, HiFloat8Array) and fmt.tapered):
            raise UnsupportedError(f"decode: {fmt.name} is stored as {_storage_name(fmt)}, got {array.dtype}")
        return array.to_float32()
    if array.dtype != _storage(fmt):
        raise UnsupportedError(f"decode: {fmt.name} is stored as {_storage_name(fmt)}, got {array.dtype}")
    # HF32 has no storage of its own, so a buffer cannot say whether its float32 values are HF32 values.
    if fmt.bits == 32:
        return _require_on_grid(array, fmt, "decode")
    if fmt is dtypes.FLOAT16:
        return array.astype(np.float32)
    if fmt.bits == 8:
        return decode_codes(array.view(np.uint8), fmt)
    # bfloat16 is the upper half of a float32.
    return (array.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


@default_arithmetic
def encode(carrier: npt.NDArray[np.float32], dtype: "str | DType") -> "npt.NDArray[Any] | HiFloat8Array":
    """Return the stored elements of a carrier; exact, so the values must lie on the format's grid.

    Types   the storage of the format; hifloat8: a HiFloat8Array
    Raises  UnsupportedError for values off the grid: round_to comes first
    """
    fmt = dtypes.dtype(dtype)
    array = _require_on_grid(require_float32(carrier, f"encode {fmt.name}"), fmt, "encode")
    if fmt.bits == 32:
        return array
    if fmt is dtypes.FLOAT16:
        return array.astype(np.float16)
    if fmt.tapered:
        return HiFloat8Array(encode_codes(array, fmt))
    if fmt.bits == 8:
        return encode_codes(array, fmt).view(_storage(fmt))
    bits = array.view(np.uint32)
    bits = np.where(np.isnan(array), bits | QUIET, bits)  # a NaN whose payload is all cut off is no Inf
    return (bits >> np.uint32(16)).astype(np.uint16).view(_storage(fmt))


@default_arithmetic
def is_on_grid(carrier: npt.NDArray[np.float32], dtype: "str | DType") -> bool:
    """Say whether every value is one of the format's (NaN counts)."""
    fmt = dtypes.dtype(dtype)
    # Eight bits by table: a value without a code decodes to another value, cheaper than rounding it.
    rounded = decode_codes(encode_codes(carrier, fmt), fmt) if fmt.bits == 8 else round_to(carrier, fmt)
    return bool(np.all((rounded == carrier) | np.isnan(carrier)))


def _require_on_grid(array: Float32Array, fmt: DType, where: str) -> Float32Array:
    if fmt is not dtypes.FLOAT32 and not is_on_grid(array, fmt):
        raise UnsupportedError(
            f"{where}: some values are not {fmt.name} values; apply round_to(values, '{fmt.name}') first"
        )
    return array


@lru_cache
def _storage(fmt: DType) -> "np.dtype[Any]":
    storage = fmt.storage
    # A format without numpy storage is hifloat8, which its callers take out before.
    assert storage is not None
    return storage


def _storage_name(fmt: DType) -> str:
    return "HiFloat8Array" if fmt.tapered else str(fmt.storage_name)
