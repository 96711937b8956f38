"""The casts that every tensor and tile goes through, as `formats/casts.py` defines them: binary16 compiled.

numpy converts binary16 element by element, which for a whole call takes as long as a tenth of its products.
The compiler is loaded at the first array that is long enough for it to pay; threads share long ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ascendsim.numerics.compiled.gathered.threads import ALONE, Threads
from ascendsim.numerics.formats.casts import decode, encode, round_to
from ascendsim.numerics.formats.dtypes import dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.formats.hifloat8 import HiFloat8Array

    Floats = NDArray[np.float32]
    Elements = NDArray[Any] | HiFloat8Array
    Convert = Callable[[NDArray[Any], Threads], NDArray[Any]]

HALF: Final = "float16"
LEAST: Final = 1024  # elements from which a compiled conversion is faster than numpy's, call and all


def decoded(values: Elements, dtype: str, threads: Threads = ALONE) -> Floats:
    """Return the carrier of stored elements.

    Raises   as `decode`
    """
    if _is_long(values, dtype) and getattr(values, "dtype", None) == np.float16:
        return _conversions().widened(values, threads)  # type: ignore[arg-type]
    return decode(values, dtype)


def is_stored(values: NDArray[Any]) -> bool:
    """Return whether values are binary16 as it is stored, and not carriers."""
    return values.dtype == np.float16


def as_carrier(values: NDArray[Any], threads: Threads = ALONE) -> Floats:
    """Return the carrier of binary16 as it is stored; a carrier is one already."""
    return decoded(values, HALF, threads) if is_stored(values) else values


def rounded(
    values: Floats,
    target: str,
    overflow: str = "ieee",
    rounding: str | None = None,
    threads: Threads = ALONE,
) -> Floats:
    """Return carriers on the grid of a format, rounded once.

    Special  the payload of a NaN is not promised
    Raises   as `round_to`
    """
    to_nearest = overflow == "ieee" and rounding in (None, "RINT")
    if to_nearest and _is_long(values, target) and values.dtype == np.float32:
        return _conversions().on_half_grid(values, threads)
    return round_to(values, target, rounding=rounding, overflow=overflow)


def cuts_off(values: Floats, target: str) -> bool:
    """Return whether a conversion that saturates cuts off some value: NaN, Inf, or one that is too large."""
    fmt = dtype(target)
    # NaN is not below anything, and goes the long way as well.
    if not values.size or max(values.max(), -values.min()) <= fmt.max_finite:
        return False
    return not np.isfinite(round_to(values, target)).all()


def rounded_halves(values: Floats, overflow: str = "ieee", threads: Threads = ALONE) -> NDArray[np.float16]:
    """Return carriers as stored elements of binary16, rounded once: `stored` of `rounded`, in one pass."""
    if overflow == "ieee" and _is_long(values, HALF) and values.dtype == np.float32:
        return _conversions().rounded_halves(values, threads)
    return stored(rounded(values, HALF, overflow, threads=threads), HALF, threads)  # type: ignore[return-value]


def stored(values: Floats, target: str, threads: Threads = ALONE) -> Elements:
    """Return the stored elements of carriers on the grid of a format.

    Raises   as `encode`, for values that are off the grid
    """
    if _is_long(values, target) and values.dtype == np.float32:
        made = _conversions().narrowed(values, threads)
        # What is off the grid, or has a payload of a NaN that would be lost, goes the long way.
        if made is not None:
            return made
    return encode(values, target)


def _is_long(values: Elements, dtype: str) -> bool:
    return dtype == HALF and values.size >= LEAST


class _Conversions(NamedTuple):
    """The compiled conversions: binary16 to binary32, back where that is exact, onto its grid, and both."""

    widened: Convert
    narrowed: Callable[[NDArray[Any], Threads], NDArray[Any] | None]
    on_half_grid: Convert
    rounded_halves: Convert


@cache
def _conversions() -> _Conversions:
    from ascendsim.numerics.compiled.gathered import turned

    return _Conversions(turned.widened, turned.narrowed, turned.on_half_grid, turned.rounded_halves)
