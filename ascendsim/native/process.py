"""What holds for a whole process: a fork waits for imports, freed memory is kept, the collector pauses.

A forked child has the one thread that forked. What others were in the middle of stays half done in it, and
the locks that they had are held for ever: a child that imports the same module or compiles anything would
wait for them without end. So the fork waits instead, until the work under way is complete. Python imports a
module at its first use here, and so this concerns the first calls of a process alone.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import _bootstrap
from threading import RLock, get_ident
from typing import Any, Final

# Taken by whoever makes machine code, and over forks.
COMPILING: Final = RLock()
# First words of the modules that functions import when they are called. Others may run a whole program while
# they are imported: to wait for these might take for ever.
AWAITED: Final = {
    *("ascendsim", "llvmlite", "ml_dtypes", "numpy", "rich"),
    *("concurrent", "difflib", "hashlib", "importlib", "json", "multiprocessing", "tempfile"),
}
# Python's own, without types. A Python that keeps its locks elsewhere is left as it is.
_python: Any = _bootstrap
_importing: Final[dict[str, Any]] = getattr(_python, "_module_locks", {})


class _Fork:
    """A fork: at most one at a time has the locks of those who compile."""

    def __init__(self) -> None:
        self._held = ExitStack()

    def begin(self) -> None:
        """Wait for the imports and compilations of other threads, and let none compile until `end`."""
        while True:
            for name in _awaited():
                _python._lock_unlock_module(name)
            held = ExitStack()
            for lock in _compilers():
                held.enter_context(lock)
            # An import that has begun meanwhile may need the compiler: nobody waits for it with these locks.
            if not _awaited():
                self._held = held
                return
            held.close()

    def end(self) -> None:
        """Give the locks back, in the parent and in the child."""
        self._held.close()

    def end_in_child(self) -> None:
        """Give the locks back; forget what threads of the parent have begun to import in the last moment."""
        self.end()
        for name in _imported_by_others():
            del _importing[name]
            if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
                del sys.modules[name]


def _imported_by_others() -> list[str]:
    """Return the names of the modules that other threads are importing."""
    # A copy, as others may begin imports meanwhile.
    found = [(name, lock()) for name, lock in _importing.copy().items()]
    return [name for name, lock in found if lock is not None and lock.owner != get_ident()]


def _awaited() -> list[str]:
    return [name for name in _imported_by_others() if name.partition(".")[0] in AWAITED]


def _compilers() -> list[Any]:
    """Return the locks of those who compile, in the order in which they take them."""
    numba, llvm = sys.modules.get("numba.core.compiler_lock"), sys.modules.get("llvmlite.binding.ffi")
    others = getattr(numba, "global_compiler_lock", None), getattr(getattr(llvm, "lib", None), "_lock", None)
    return [COMPILING, *(lock for lock in others if lock is not None)]


# Windows has no forks.
if hasattr(os, "register_at_fork"):
    _fork = _Fork()
    os.register_at_fork(before=_fork.begin, after_in_parent=_fork.end, after_in_child=_fork.end_in_child)


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
    import numpy as np  # not with the module: reading a product needs no arrays

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
