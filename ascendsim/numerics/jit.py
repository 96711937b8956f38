"""Compile numeric kernels, and keep the machine code in a folder that can never be stale.

The compiler's own cache key covers the file of a kernel but not the files of the helpers it calls. So the
folder is named after a hash of every source in this package: one changed character gives an empty folder.
"""

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


# Kernels count no references (`_nrt=False`): they get all their memory from the caller, and counting references
# to arrays that are handed from function to function takes longer than the arithmetic of a panel.


def kernel(function: Function) -> Function:
    """Compile a function at its first call, without the interpreter lock, and cache the machine code.

    It must not make or slice arrays. Only the folder is ours: other users of the compiler in this process keep
    the cache folder they have set.
    """
    theirs = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_folder())
    try:
        compiled: Function = numba.njit(function, cache=True, nogil=True, error_model="numpy", _nrt=False)
    finally:
        numba.config.CACHE_DIR = theirs
    return compiled


def inlined(function: Function) -> Function:
    """Compile a function into every kernel that calls it."""
    compiled: Function = numba.njit(function, forceinline=True, error_model="numpy", _nrt=False)
    return compiled


def called(function: Function) -> Function:
    """Compile a function that kernels call; without the option it would be inlined like its callers."""
    compiled: Function = numba.njit(function, forceinline=False, error_model="numpy", _nrt=False)
    return compiled


@cache
def cache_folder() -> Path:
    """Return a folder for machine code of exactly these sources, readable and writable by this user alone."""
    name = f"numba-{sources_hash()}"
    for base in _cache_bases():
        folder = base / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    folder = Path(tempfile.mkdtemp(prefix="ascendsim-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def sources_hash() -> str:
    """Return a short hash of all sources of this package, file names included."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _cache_bases() -> list[Path]:
    """Return where a user's caches belong on this system, best first."""
    if numba.config.CACHE_DIR:
        return [Path(numba.config.CACHE_DIR) / "ascendsim"]
    if os.environ.get("XDG_CACHE_HOME"):
        return [Path(os.environ["XDG_CACHE_HOME"]) / "ascendsim"]
    try:
        home = Path.home()
    except RuntimeError:
        return []
    if sys.platform == "win32":
        return [Path(os.environ.get("LOCALAPPDATA", home)) / "ascendsim" / "cache"]
    return [home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "ascendsim"]
