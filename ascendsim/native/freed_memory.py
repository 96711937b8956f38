"""Have the C library keep freed memory for the next requests."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

import numpy as np

# Below the 32 MiB up to which glibc follows the sizes of freed blocks.
_BLOCK_BYTES: Final = 24 << 20


@cache
def keep_freed_memory() -> None:
    """Let this process keep up to 48 MiB of freed memory; the second call does nothing.

    At the end of each call glibc would give the system back what its tensors took, and at the next one the
    system would clear it again, page by page: a sixth of the time of a call of some milliseconds. What glibc
    keeps follows the largest block that has been freed so far, twice that. So one is taken and freed here,
    which is never touched and takes no memory. Another C library, or one with other settings, goes on as
    it did.

    Source   mallopt(3) of Linux: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
    """
    np.empty(_BLOCK_BYTES, np.uint8)


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
