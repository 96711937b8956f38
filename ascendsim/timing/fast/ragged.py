"""Rows of many sizes, end to end in one array: which numbers the rows of some of them have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = NDArray[np.int64]


def numbers_of(firsts: Table, sizes: Table) -> Table:
    """Return the numbers from each of `firsts` on, each time so many, one after the other."""
    ends = np.cumsum(sizes)
    numbers: Table = np.arange(sizes.sum()) + np.repeat(firsts - (ends - sizes), sizes)
    return numbers
