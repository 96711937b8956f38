"""Numbers out of the cells of a case; what is none is refused with its name and what stood there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ascendsim.arguments import whole
from ascendsim.errors import DataError

# Nothing that a source could have measured is larger; floats hold all whole numbers up to here.
MOST = 1 << 40
# 128 GiB of half precision; the largest memory of a product is 144 GB.
MOST_ELEMENTS = 1 << 36


def whole_of(values: Mapping[str, Any], key: str) -> int:
    """Return a size or a count: 1 or more.

    Raises   DataError for anything else
    """
    return whole_number(values.get(key), key)


def whole_number(value: Any, name: str, least: int = 1) -> int:
    """Return a value that a cell gives under a name, a whole number.

    Raises   DataError for anything else, or less than `least`
    """
    number = whole(value)
    if number is None or not least <= number <= MOST:
        raise DataError(f"its {name} is {value!r}; it must be a whole number from {least} to 2^40")
    return number


def refuse_beyond_memory(elements: int) -> None:
    """Check that a tensor could have been on a chip: the model would take as long as its tiles are many.

    Raises   DataError if not
    """
    if elements > MOST_ELEMENTS:
        raise DataError(f"its sizes make a tensor of {elements:,} elements; no chip's memory holds that")


def number_of(values: Mapping[str, Any], key: str) -> float:
    """Return a positive measurement.

    Raises   DataError for anything else
    """
    value: Any = values.get(key)
    if not is_number(value) or value <= 0:
        raise DataError(f"its {key} is {value!r}; it must be a positive number up to 2^40")
    return float(value)


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite number; truth values are none."""
    return type(value) in (int, float) and -MOST <= value <= MOST


def refuse_odd_extents(values: Mapping[str, Any], key: str, count: int) -> None:
    """Check a cell such as "128x64x256", if it is there.

    Raises   DataError if it is not that many positive numbers
    """
    value = values.get(key)
    if value is not None and not re.fullmatch("x".join(["[1-9][0-9]{0,8}"] * count), str(value)):
        raise DataError(f"its {key} is {value!r}; it must be {count} positive numbers with an x between them")
