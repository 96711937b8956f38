"""Keep Python's garbage collector still while many objects are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector: a run makes many objects, keeps most, and the search costs 20 %.

    Whole calls are decorated with it: between two kernels of a call there is as little to find.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
