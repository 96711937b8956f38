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
    """The compiled conversions: from binary16 to binary32, back where that is exact, and onto its grid."""

    widened: Convert
    narrowed: Callable[[NDArray[Any], Threads], NDArray[Any] | None]
    on_half_grid: Convert


@cache
def _conversions() -> _Conversions:
    from ascendsim.numerics.compiled.gathered.halves import narrowed, on_half_grid, widened

    return _Conversions(widened, narrowed, on_half_grid)
