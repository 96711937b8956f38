"""Operand formats of studies: those of the products, and others that no product's cube takes.

    float16, ...   a format of the products, by its name
    eEmM           E exponent and M fraction bits, as IEEE 754 would have them: subnormals, Inf and NaN
    scaled(F)      F times one power of two for the whole tensor, the least that leaves no value beyond F
    mxfp4, ...     a format of OCP MX v1.0 (`MX`): a power of two for each 32 values along the reduction
                   brings the largest of them into the largest binade of the element's format

`eEmM` overflows to Inf; elements of `scaled` and of MX saturate. All but the first are studies: they say what
an operand would lose, not what a product does. Accumulators see the values, so that a scale costs nothing.

The MX standard leaves three things open. A block that holds NaN, Inf or a value beyond float32 becomes NaN,
by the scale's code for it. A scale below 2^-127 becomes 2^-127. MXINT8 leaves its code for -2 unused.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.errors import ConfigError, refusal, whole
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.casts import round_to
from ascendsim.numerics.dtypes import dtype
from ascendsim.numerics.format_rounding import narrow_to_odd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float64 = NDArray[np.float64]
    Floats = NDArray[np.float32]

MX_BLOCK = 32
ROUNDINGS = ("nearest", "stochastic")
# Of a shared scale, which is a power of two in 8 bits.
SCALE_EXPONENTS = (-127, 127)
BEYOND_FLOAT32 = 2.0**128


@dataclass(frozen=True)
class StudyFormat:
    """A format by what rounding needs: carriers are float32.

    text            its name
    min_exponent    of the smallest normal
    mantissa_bits   fraction bits
    max_finite      largest value
    overflow        what a value beyond that becomes: Inf, NaN or the largest
    scale           "" (none), "tensor" or "block"
    signed_zero     whether a value that rounds to zero keeps its sign
    product         whether a product's cube takes it
    """

    text: str
    min_exponent: int
    mantissa_bits: int
    max_finite: float
    overflow: float = math.inf
    scale: str = ""
    product: bool = False
    signed_zero: bool = True

    def __str__(self) -> str:
        """Return its name."""
        return self.text


def format_of(text: str) -> StudyFormat:
    """Return a format by its name.

    Raises   ConfigError for a text without a meaning, UnsupportedError for an unknown name
    """
    if not isinstance(text, str):
        raise refusal("format", text, "a name, such as float16, e4m3 or mxfp8_e4m3")
    return _format_of(text)


def _mx(name: str, min_exponent: int, mantissa_bits: int, largest: float) -> StudyFormat:
    return StudyFormat(name, min_exponent, mantissa_bits, largest, largest, "block")


# Each by its element: exponent of the smallest normal, fraction bits, largest value. Elements of MXFP8 alone
# have codes for Inf or NaN, which no finite value is rounded to.
MX = {
    fmt.text: fmt
    for fmt in (
        _mx("mxfp4", 0, 1, 6.0),
        _mx("mxfp6_e2m3", 0, 3, 7.5),
        _mx("mxfp6_e3m2", -2, 2, 28.0),
        _mx("mxfp8_e4m3", -6, 3, 448.0),
        _mx("mxfp8_e5m2", -14, 2, 57344.0),
        # Whole numbers of -127 .. 127 in steps of 2^-6: the same step below 1 and above.
        replace(_mx("mxint8", 0, 6, 127 / 64), signed_zero=False),
    )
}


@lru_cache
def _format_of(text: str) -> StudyFormat:
    if text.lower().startswith("mx"):
        if text.lower() not in MX:
            raise ConfigError(f"format {text!r}: the formats of OCP MX v1.0 are {', '.join(MX)}")
        return MX[text.lower()]
    inner = re.fullmatch(r"scaled\((.+)\)", text)
    if inner:
        e = format_of(inner[1])
        if e.scale or e.text == "hifloat8":
            raise ConfigError(f"format {text!r}: a scale goes over eEmM or a product's format, not {e.text}")
        return StudyFormat(text, e.min_exponent, e.mantissa_bits, e.max_finite, e.max_finite, "tensor")
    free = re.fullmatch(r"e(\d+)m(\d+)", text)
    if free:
        exponent, mantissa = int(free[1]), int(free[2])
        if not (2 <= exponent <= 8 and 0 <= mantissa <= 23):
            raise ConfigError(f"format {text!r}: E must be in 2..8 and M in 0..23, so that float32 holds it")
        bias = (1 << (exponent - 1)) - 1
        return StudyFormat(text, 1 - bias, mantissa, math.ldexp(2 - 2.0**-mantissa, bias))
    k = dtype(text)
    overflow = math.inf if k.has_infinity else math.nan
    return StudyFormat(k.name, k.min_exponent, k.mantissa_bits, k.max_finite, overflow, product=True)


@default_arithmetic
def quantise(
    values: Float64, fmt: StudyFormat, axis: int = 0, rounding: str = "nearest", seed: int = 0
) -> Floats:
    """Round float64 values once into a format.

    axis       along which a reduction runs, and blocks of a shared scale lie
    rounding   "nearest" (ties to even; hifloat8 away) or "stochastic": away from zero with a probability that
               is the distance to the value nearer to zero, in steps; `seed` fixes the draws
    Special    NaN stays NaN; Inf is an overflow, as for any value beyond the largest; in MX both make their
               block NaN
    Raises     ConfigError for another rounding, or a stochastic one of hifloat8
    """
    require_rounding(rounding, seed)
    if not isinstance(fmt, StudyFormat):
        raise refusal("quantise: fmt", fmt, 'a format, such as format_of("e4m3")')
    if not isinstance(values, np.ndarray) or values.dtype != np.float64:
        raise refusal("quantise: values", values, "an array of float64")
    place = whole(axis)
    if place is None or not -values.ndim <= place < max(1, values.ndim):
        raise refusal("quantise: axis", axis, f"one of the {values.ndim} axes of values")
    if fmt.product and rounding == "nearest":
        return _cast(values, fmt)
    if fmt.text == "hifloat8":
        raise ConfigError("stochastic rounding of hifloat8 is not described anywhere; take another format")
    scale = _scales(values, fmt, axis)
    noise = np.random.default_rng(seed).random(values.shape) if rounding == "stochastic" else None
    rounded = _rounded(np.abs(values) / scale, fmt, noise)
    rounded = np.where(rounded > fmt.max_finite, fmt.overflow, rounded) * scale
    signed = np.copysign(rounded, values)
    return (signed if fmt.signed_zero else signed + 0.0).astype(np.float32)


def require_rounding(rounding: str, seed: int) -> None:
    """Refuse a rounding without a name, and a seed that is no whole number of 0 or more.

    Raises   ConfigError
    """
    if not isinstance(rounding, str) or rounding not in ROUNDINGS:
        raise refusal("rounding", rounding, f"one of {', '.join(ROUNDINGS)}")
    number = whole(seed)
    if number is None or number < 0:
        raise refusal("seed", seed, "a whole number of 0 or more")


def _cast(values: Float64, fmt: StudyFormat) -> Floats:
    """Round to nearest into a format of the products."""
    if fmt.text == "float32":
        with np.errstate(over="ignore", under="ignore"):
            return values.astype(np.float32)
    # Through an odd float32, which is on the same side of every tie as the value.
    return round_to(narrow_to_odd(values), fmt.text)


def _rounded(size: Float64, fmt: StudyFormat, noise: Float64 | None) -> Float64:
    """Round magnitudes to the format's steps, as if exponents went on."""
    # frexp gives 0.5 .. 1 times a power of two; steps below the smallest normal are those of the subnormals.
    finite = np.where(np.isfinite(size), size, 0.0)
    exponent = np.maximum(np.frexp(finite)[1] - 1, fmt.min_exponent) - fmt.mantissa_bits
    steps = np.ldexp(finite, -exponent)  # exact: a power of two
    whole = np.rint(steps) if noise is None else np.floor(steps + noise)
    return np.where(np.isfinite(size), np.ldexp(whole, exponent), size)


def _scales(values: Float64, fmt: StudyFormat, axis: int) -> Float64 | float:
    """Return the power of two that each value is divided by; NaN for a block of MX that has none."""
    if not fmt.scale:
        return 1.0
    if fmt.scale == "tensor":
        largest = np.abs(values).max(initial=0.0, where=np.isfinite(values))
        scale = float(_scale(np.array([largest]), fmt)[0])
        return 2 * scale if largest > fmt.max_finite * scale else scale
    moved = np.moveaxis(np.abs(values), axis, -1)
    padding = [(0, 0)] * (moved.ndim - 1) + [(0, -moved.shape[-1] % MX_BLOCK)]
    blocks = np.pad(moved, padding).reshape(*moved.shape[:-1], -1, MX_BLOCK).max(axis=-1)
    held = blocks < BEYOND_FLOAT32  # False for NaN as well
    scale_of = np.where(held, _scale(np.where(held, blocks, 0.0), fmt), np.nan)
    scales = np.repeat(scale_of, MX_BLOCK, axis=-1)[..., : moved.shape[-1]]
    return np.moveaxis(scales, -1, axis)


def _scale(largest: Float64, fmt: StudyFormat) -> Float64:
    """Return 2^(exponent of the largest value - largest exponent of the format); 1 where all are zero."""
    top = math.frexp(fmt.max_finite)[1] - 1
    exponent = np.clip(np.frexp(largest)[1] - 1 - top, *SCALE_EXPONENTS)
    return np.where(largest > 0, np.ldexp(1.0, exponent), 1.0)
