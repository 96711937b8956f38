"""Print numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any


def bounds(figure_range: Sequence[Any] | None) -> str:
    """Print the range of a figure: low .. high for numbers, the alternatives for texts."""
    if not figure_range:
        return ""
    # Numbers lie anywhere between the ends, a text is one of those named.
    texts = any(isinstance(bound, str) for bound in figure_range)
    return (" | " if texts else " .. ").join(value(bound) for bound in figure_range)


def value(figure: Any) -> str:
    """Print a figure's value."""
    if isinstance(figure, list | tuple):
        return ", ".join(value(item) for item in figure)
    # Python's True is an int, and years and sizes such as 2048 read better without a comma.
    if isinstance(figure, int) and not isinstance(figure, bool):
        return f"{figure:,}" if abs(figure) >= 100_000 else str(figure)
    if isinstance(figure, Fraction | float):
        return f"{float(figure):.7g}"
    return str(figure)


def percent(share: float) -> str:
    """Print a share as a percentage without decimals; what is not zero is not printed as 0%."""
    # "0%" of a pipe that works a little would read as if it did not work at all.
    if 0 < share < 0.005:
        return "<1%"
    return f"{100 * share:.0f}%"


def known(figure: float, form: str) -> str:
    """Print a number in a form; an empty cell where it is not known (NaN)."""
    return "" if figure != figure else format(figure, form)


def microseconds(time_us: float) -> str:
    """Print a time with two decimals, a long one without."""
    return f"{time_us:,.2f}" if time_us < 1000 else f"{time_us:,.0f}"


def size(count: int) -> str:
    """Print a number of bytes with a binary unit."""
    if count < 1024:
        return f"{count} B"
    amount = count / 1024
    for unit in ("KiB", "MiB"):
        if amount < 1024:
            return f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} GiB"
