"""Lend memory to kernel calls, the same to one call after the other."""

from threading import local
from typing import Any, Final

import numpy as np

Array = Any

# Elements of one type: what a larger call takes is not kept.
MOST_KEPT: Final = 1 << 20


class Scratch(local):
    """The memory that the kernel calls of one thread take in turn, not initialised.

    A call is over before the next one of its thread begins, and reads nothing that it has not written. Fresh
    memory would be cleared by the system page by page, and would lie in no cache.
    """

    def __init__(self) -> None:
        self._kept: dict[type, Array] = {}

    def lend(self, count: int, element: type) -> Array:
        """Return (1, `count` or more) elements of a type."""
        # Two dimensions, as operands have: one type of array fewer to compile the kernels for.
        if count > MOST_KEPT:
            return np.empty((1, count), element)
        kept = self._kept.get(element)
        if kept is None or kept.size < count:
            kept = self._kept[element] = np.empty((1, count), element)
        return kept


# Each thread sees one of its own here.
SCRATCH: Final = Scratch()
