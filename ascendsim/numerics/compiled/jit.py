"""Compile numeric kernels, and keep the machine code in a folder that can never be stale.

The compiler's own cache key covers the file of a kernel but not the files of the helpers it calls. So the
folder is named after a hash of every source of `numerics` and `native`: one changed character gives an empty
folder. The sources of `compiled` and what it imports would do today, but a constant imported from a neighbour
would then go stale.
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

from ascendsim import native, numerics
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.native.folder import mark_used, remove_unused, usable_folder
from ascendsim.native.telling import tell_of

Function = TypeVar("Function", bound=Callable[..., Any])

# Kernels count no references (`_nrt=False`): they get all their memory from the caller, and counting
# references to arrays that go from function to function takes longer than the arithmetic of a panel.
# numpy's error model: a division by zero gives an infinity, without a check and a branch.
_OPTIONS: Final = {"error_model": "numpy", "_nrt": False}
_njit: Any = numba.njit
_config: Any = numba.config
tell_of(numerics.__name__)


def kernel(function: Function) -> Function:
    """Compile a function at its first call, without the interpreter lock, and cache the machine code.

    It runs under the default arithmetic, whatever the calling thread has set: nearest, ties to even, with
    subnormals. It must not make or slice arrays, nor be called by compiled code. Others who use the compiler
    in this process keep the cache folder that they have set.
    """
    # The compiler reads its folder when a function is decorated, and has one setting for the whole process.
    theirs = _config.CACHE_DIR
    _config.CACHE_DIR = str(cache_folder())
    try:
        compiled = _njit(function, cache=True, nogil=True, **_OPTIONS)
    finally:
        _config.CACHE_DIR = theirs
    return default_arithmetic(compiled)  # type: ignore[return-value]


def inlined(function: Function) -> Function:
    """Copy a function into every one that calls it, before anything is compiled."""
    return _njit(function, inline="always", **_OPTIONS)  # type: ignore[no-any-return]


def called(function: Function) -> Function:
    """Compile a function that kernels call."""
    return _njit(function, **_OPTIONS)  # type: ignore[no-any-return]


@cache
def cache_folder() -> Path:
    """Return a folder for machine code of exactly these sources, readable and writable by this user alone.

    The folders of other sources that nobody has used for a day are removed.
    """
    name = f"numba-{sources_hash(Path(numerics.__path__[0]), Path(native.__path__[0]))}"
    folder = usable_folder(name, _config.CACHE_DIR)
    if folder is not None:
        mark_used(folder)
        # Also what a process has left that ended while it removed one.
        others = {*folder.parent.glob("numba-*"), *folder.parent.glob("removed-*")} - {folder}
        remove_unused(others)
        return folder
    # Nowhere to keep it: compile for this process, and leave nothing behind.
    folder = Path(tempfile.mkdtemp(prefix="ascendsim-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def sources_hash(*folders: Path) -> str:
    """Return a short hash of all sources of packages, file names included."""
    # Names too, and a zero byte behind each part: a line that moves to another file changes the hash.
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder).as_posix()
            digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
