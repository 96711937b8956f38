"""HiFloat8 tensors: numpy has no dtype for the format, so a small class carries the codes."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ascendsim.errors import UnsupportedError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.dtypes import HIFLOAT8, NAN_CODE, DType, fraction_bits, positive_values
from ascendsim.numerics.format_rounding import (
    MAGNITUDE,
    OVERFLOWS,
    SIGN,
    Float32Array,
    Mask,
    Uint32Array,
    decode_codes,
    encode_codes,
    require_choice,
    require_float32,
)

HYBRIDS = ("doc-literal", "strict")
HIFLOAT8_ROUNDINGS = ("ROUND", *(f"HYBRID:{variant}" for variant in HYBRIDS))

_FRACTION = np.uint32(0x7FFFFF)
_SMALLEST = np.float32(2.0**-22)
_LARGEST = np.float32(32768.0)
_BEYOND = np.float32(2.0**17).view(np.uint32)


class _Widths(NamedTuple):
    """By float32 exponent field: the rounding of this binade to HiFloat8."""

    kept: Uint32Array  # fraction bits kept
    tie_only: Mask  # exponents -3..3: hybrid rounding is ROUND here


@default_arithmetic
def round_hifloat8(values: Float32Array, rounding: str, overflow: str) -> Float32Array:
    """Round float32 values to HiFloat8: ROUND, HYBRID:doc-literal or HYBRID:strict.

    Raises  UnsupportedError for another mode (no conversion to HiFloat8 has one) or overflow rule
    """
    require_choice(overflow, OVERFLOWS, "rounding to hifloat8")
    if rounding == "HYBRID":
        raise UnsupportedError(
            "rounding to hifloat8: HYBRID is documented in a way that can be read twice; "
            f"say which one is meant: {' or '.join(HIFLOAT8_ROUNDINGS[1:])}"
        )
    require_choice(rounding, HIFLOAT8_ROUNDINGS, "rounding to hifloat8")
    if rounding == "ROUND":
        return _round_away(values, overflow)
    return round_hybrid(values, rounding.removeprefix("HYBRID:"), overflow=overflow)


@default_arithmetic
def round_hybrid(
    values: npt.ArrayLike, variant: str, source: str = "float32", overflow: str = "ieee"
) -> Float32Array:
    """Round to HiFloat8 by the hybrid rule.

    values   float32 carriers; of source float16 they must be float16 values
    variant  doc-literal: away from zero when the 14 bits are >= the threshold; strict: not when both are zero
    source   which rule: float32 compares 14 bits, float16 two bits with {lowest bit, 1}
    """
    require_choice(variant, HYBRIDS, "hybrid rounding")
    require_choice(source, ("float32", "float16"), "hybrid rounding: source")
    array = require_float32(values, "hybrid rounding")
    # Everything from 2**17 on overflows alike; unlimited, an Inf would carry into the sign.
    bits = np.minimum(array.view(np.uint32) & MAGNITUDE, _BEYOND)
    widths = _widths()
    kept = widths.kept[bits >> np.uint32(23)]
    fraction, threshold = _compared(bits, kept, source)
    away = fraction >= threshold
    if variant == "strict":
        away = away & (fraction > 0)
    drop = np.uint32(23) - kept
    unit = np.uint32(1) << drop
    # A carry out of the fraction runs into the exponent field, which is the next power of two: also a value.
    hybrid = np.asarray((bits >> drop << drop) + away * unit)
    below = bits >> np.uint32(23) == 127 - 23  # exponent -23: the smallest value or nothing
    np.copyto(hybrid, away * _SMALLEST.view(np.uint32), where=below)
    np.copyto(hybrid, 0, where=bits >> np.uint32(23) < 127 - 23)
    rounded = hybrid.astype(np.uint32).view(np.float32)
    # The page exempts the binades that keep three bits: there the hybrid rounding is ROUND.
    near = np.asarray(widths.tie_only[bits >> np.uint32(23)])
    return np.where(near, _round_away(array, overflow), _finish(array, rounded, overflow))


def _compared(bits: Uint32Array, kept: Uint32Array, source: str) -> tuple[Uint32Array, Uint32Array]:
    """Return the bits behind the kept ones and the threshold they are compared with.

    At exponent -23 nothing is kept and the leading one of the significand counts as the first bit behind.
    """
    fraction = bits & _FRACTION
    below = bits >> np.uint32(23) == 127 - 23
    if source == "float32":
        width, threshold = 14, fraction & np.uint32(0x3FFF)
    else:  # a float16 value has ten fraction bits; bit 13 of the float32 pattern is the lowest of them
        width, threshold = 2, (fraction >> np.uint32(13) & np.uint32(1)) << np.uint32(1) | np.uint32(1)
    behind = fraction >> (np.uint32(23 - width) - kept) & np.uint32((1 << width) - 1)
    leading = np.uint32(1 << (width - 1)) | fraction >> np.uint32(24 - width)
    return np.where(below, leading, behind), threshold


def _round_away(values: Float32Array, overflow: str) -> Float32Array:
    """Round to nearest, ties away from zero."""
    bits = values.view(np.uint32) & MAGNITUDE
    field = bits >> np.uint32(23)
    drop = np.uint32(23) - _widths().kept[field]
    rounded = (bits + (np.uint32(1) << drop >> np.uint32(1))) >> drop << drop
    result = np.asarray(rounded.view(np.float32)).copy()
    # From 2**-23, halfway to the smallest value, it is that value; the grid above would have 2**-23 as well.
    np.copyto(result, _SMALLEST, where=field == 127 - 23)
    np.copyto(result, np.float32(0), where=field < 127 - 23)
    return _finish(values, result, overflow)


def _finish(values: Float32Array, magnitude: Float32Array, overflow: str) -> Float32Array:
    """Apply overflow, NaN and the sign; zero has none."""
    over = ~(magnitude <= _LARGEST)  # Inf and NaN inputs as well
    result = np.where(over, _LARGEST if overflow != "ieee" else np.float32(np.inf), magnitude)
    nan = np.float32(0.0 if overflow == "saturate" else np.nan)
    result = np.where(np.isnan(values), nan, result)
    negative = (values.view(np.uint32) >= SIGN) & (result != 0)
    return np.where(negative, -result, result)


@lru_cache
def _widths() -> _Widths:
    exponent = np.arange(256) - 127
    kept = fraction_bits(exponent)
    return _Widths(kept.astype(np.uint32), kept == 3)


Codes = npt.NDArray[np.uint8]


class HiFloat8Array:
    """Hold a tensor of hifloat8 codes.

    codes   uint8 array of any shape, kept as it is (no copy); every one of the 256 codes is a value
    Use     `HiFloat8Array.from_float32(x)` rounds, `.to_float32()` and `numpy.asarray` give the values;
            indexing, reshape and transpose work as in numpy and share the codes
    ==      compares values elementwise: NaN differs from itself, 0 has one code only
    Raises  UnsupportedError when the codes are not uint8
    """

    __slots__ = ("codes",)
    __hash__ = None  # type: ignore[assignment]  # elementwise ==, as numpy arrays

    def __init__(self, codes: npt.ArrayLike) -> None:
        array = np.asarray(codes)
        if array.dtype != np.uint8:
            raise UnsupportedError(
                f"HiFloat8Array: codes are uint8, got {array.dtype.name}; values go through from_float32"
            )
        self.codes: Codes = array

    @classmethod
    @default_arithmetic
    def from_float32(
        cls, values: npt.ArrayLike, rounding: str = "ROUND", overflow: str = "ieee"
    ) -> "HiFloat8Array":
        """Round float32 values and keep their codes; modes as in `hifloat8_rounding`."""
        array = require_float32(values, "HiFloat8Array.from_float32")
        return cls(encode_codes(round_hifloat8(array, rounding, overflow), HIFLOAT8))

    def to_float32(self) -> Float32Array:
        """Return the values; exact."""
        return decode_codes(self.codes, HIFLOAT8)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        # numpy 2 asks for `copy=False` when it must not copy, and expects this error.
        if copy is False:
            raise ValueError("HiFloat8Array: values are decoded, so a view of them is not possible")
        return self.to_float32().astype(dtype or np.float32, copy=False)

    @property
    def dtype(self) -> DType:
        """Return the format's record; it is not a numpy dtype."""
        return HIFLOAT8

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the length of every axis."""
        return self.codes.shape

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return self.codes.ndim

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return self.codes.size

    @property
    def nbytes(self) -> int:
        """Return the bytes of all elements, one each."""
        return self.codes.nbytes

    def reshape(self, *shape: Any) -> "HiFloat8Array":
        """Return the elements in another shape."""
        return HiFloat8Array(self.codes.reshape(*shape))

    def transpose(self, *axes: Any) -> "HiFloat8Array":
        """Return the elements with their axes reordered."""
        return HiFloat8Array(self.codes.transpose(*axes))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Any) -> "HiFloat8Array":
        return HiFloat8Array(self.codes[index])

    def __float__(self) -> float:
        return float(self.to_float32())

    def __eq__(self, other: object) -> npt.NDArray[np.bool_]:  # type: ignore[override]
        equal: npt.NDArray[np.bool_] = np.equal(self.to_float32(), np.asarray(other))
        return equal

    def __ne__(self, other: object) -> npt.NDArray[np.bool_]:  # type: ignore[override]
        return ~(self == other)

    def __repr__(self) -> str:
        values = np.array2string(self.to_float32(), separator=", ", prefix="HiFloat8Array(")
        codes = np.array2string(
            self.codes, separator=", ", prefix="  codes=", formatter={"int": lambda code: f"0x{code:02X}"}
        )
        return f"HiFloat8Array({values}, shape={self.shape},\n  codes={codes})"


@default_arithmetic
def value_ranks(codes: npt.ArrayLike) -> npt.NDArray[np.int16]:
    """Return each code's place in value order: 0 for zero, 1..126 rising, 127 for Inf, negative below zero.

    Neighbouring values differ by one rank; neighbouring codes need not (0x17 is 3.75, 0x18 is 0.5).
    Raises  UnsupportedError when a NaN is among the codes: it has no place
    """
    array = np.asarray(codes, dtype=np.uint8)
    if (array == NAN_CODE).any():
        raise UnsupportedError("value_ranks: NaN has no rank; leave code 0x80 out")
    magnitude = decode_codes(array & np.uint8(0x7F), HIFLOAT8)
    # Counting the values that are not larger: zero is below all of them and has rank 0.
    ladder = np.array([*positive_values(), np.inf], np.float32)
    rank = np.searchsorted(ladder, magnitude, side="right").astype(np.int16)
    return np.where(array & np.uint8(0x80), -rank, rank)
