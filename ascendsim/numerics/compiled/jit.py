"""Compile numeric kernels, and keep the machine code in a folder that can never be stale.

The compiler's own cache key covers the file of a kernel but not the files of the helpers it calls. So the
folder is named after a hash of every source of `numerics`: one changed character gives an empty folder. The
sources of `compiled` alone would do today, but a constant imported from a neighbour would then go stale.
"""

import atexit
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import numba

from ascendsim import numerics
from ascendsim.native.folder import usable_folder

Function = TypeVar("Function", bound=Callable[..., Any])

# Kernels count no references (`_nrt=False`): they get all their memory from the caller, and counting
# references to arrays that go from function to function takes longer than the arithmetic of a panel.
# numpy's error model: a division by zero gives an infinity, without a check and a branch.
_OPTIONS: Final = {"error_model": "numpy", "_nrt": False}
_njit: Any = numba.njit
_config: Any = numba.config


def kernel(function: Function) -> Function:
    """Compile a function at its first call, without the interpreter lock, and cache the machine code.

    It must not make or slice arrays. Others who use the compiler in this process keep the cache folder that
    they have set.
    """
    # The compiler reads its folder when a function is decorated, and has one setting for the whole process.
    theirs = _config.CACHE_DIR
    _config.CACHE_DIR = str(cache_folder())
    try:
        return _njit(function, cache=True, nogil=True, **_OPTIONS)  # type: ignore[no-any-return]
    finally:
        _config.CACHE_DIR = theirs


def inlined(function: Function) -> Function:
    """Copy a function into every one that calls it, before anything is compiled."""
    return _njit(function, inline="always", **_OPTIONS)  # type: ignore[no-any-return]


def called(function: Function) -> Function:
    """Compile a function that kernels call."""
    return _njit(function, **_OPTIONS)  # type: ignore[no-any-return]


@cache
def cache_folder() -> Path:
    """Return a folder for machine code of exactly these sources, readable and writable by this user alone."""
    name = f"numba-{sources_hash(Path(numerics.__path__[0]))}"
    folder = usable_folder(name, _config.CACHE_DIR)
    if folder is not None:
        return folder
    # Nowhere to keep it: compile for this process, and leave nothing behind.
    folder = Path(tempfile.mkdtemp(prefix="ascendsim-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def sources_hash(folder: Path) -> str:
    """Return a short hash of all sources of a package, file names included."""
    # Names too, and a zero byte behind each part: a line that moves to another file changes the hash.
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
