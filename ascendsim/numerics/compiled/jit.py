"""Compile numeric kernels, and keep the machine code in a folder that can never be stale.

The compiler's own cache key covers the file of a kernel but not the files of the helpers it calls. So the
folder is named after a hash of every source of `numerics` and `native`: one changed character gives an empty
folder. The sources of `compiled` and what it imports would do today, but a constant imported from a neighbour
would then go stale.

The compiler's own files are pickles without a checksum, loaded whoever has written them. So kept code goes
through `native/cache.py` instead: a file for each function and the types of its arguments.
"""

import hashlib
import pickle
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, Final, TypeVar

import numba
from numba.core import caching
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from ascendsim import native, numerics
from ascendsim.native.build import tell_of
from ascendsim.native.cache import (
    digest_of,
    mark_used,
    read_sealed,
    remove_unused,
    usable_folder,
    write_sealed,
)
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.native.parts import part

Function = TypeVar("Function", bound=Callable[..., Any])

# Kernels count no references (`_nrt=False`): they get all their memory from the caller, and counting
# references to arrays that go from function to function takes longer than the arithmetic of a panel.
# numpy's error model: a division by zero gives an infinity, without a check and a branch.
# "forceinline" is said of each function: one that says nothing does as its caller.
_OPTIONS: Final = {"error_model": "numpy", "_nrt": False, "forceinline": False}
_njit: Any = numba.njit
_config: Any = numba.config
_dumps: Any = dumps
_Cache: Any = caching._Cache
_CompileResult: Any = CompileResult
tell_of(numerics.__name__)


def kernel(function: Function) -> Function:
    """Compile a function at its first call, without the interpreter lock, and cache the machine code.

    It runs under the default arithmetic, whatever the calling thread has set: nearest, ties to even, with
    subnormals. It must not make or slice arrays, nor be called by compiled code. Others who use the compiler
    in this process keep the cache folder that they have set.
    """
    compiled = _njit(function, nogil=True, **_OPTIONS)
    # As `cache=True` does, with another class of cache.
    compiled._cache = _Kept(compiled.py_func)
    return default_arithmetic(compiled)  # type: ignore[return-value]


def inlined(function: Function) -> Function:
    """Make a function part of the machine code of every one that calls it."""
    # The machine code's own inlining: numba's copies sources, and compiling each copy takes a third longer.
    return part(function, **{**_OPTIONS, "forceinline": True})  # type: ignore[no-any-return]


def called(function: Function) -> Function:
    """Compile a function that kernels call."""
    return part(function, **_OPTIONS)  # type: ignore[no-any-return]


class _Kept(_Cache):  # type: ignore[misc]  # numba has no types for type checkers
    """Keeps machine code of a function for the compiler, which asks before it makes any."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self._is_enabled = True

    def load_overload(self, types: object, target: Any) -> Any:
        """Return the kept code for some types of arguments; None without any."""
        target.refresh()
        path = self._path(types, target.codegen())
        found = read_sealed(path) if path else None
        return None if found is None else _CompileResult._rebuild(target, *pickle.loads(found))

    def save_overload(self, types: object, result: Any) -> None:
        """Store the code compiled for some types of arguments, unless it holds addresses of this process."""
        path = self._path(types, result.codegen)
        if path and not result.library.has_dynamic_globals:
            write_sealed(path, _dumps(result._reduce()))

    @property
    def cache_path(self) -> str:
        """The folder, for the compiler's statistics."""
        return str(cache_folder())

    def enable(self) -> None:
        """Keep and find code from now on."""
        self._is_enabled = True

    def disable(self) -> None:
        """Neither keep nor find code from now on."""
        self._is_enabled = False

    def flush(self) -> None:
        """Remove the kept code of this function, for any types."""
        folder = cache_folder()
        for path in folder.glob(f"{self._name}-*") if folder else ():
            path.unlink(missing_ok=True)

    def _path(self, types: object, generator: Any) -> Path | None:
        folder = cache_folder() if self._is_enabled else None
        source = Path(self._function.__code__.co_filename)
        # Closed-over values become part of the code, and are in no file.
        if folder is None or not source.is_file() or self._function.__closure__:
            return None
        told = numba.__version__, sys.version, types, generator.magic_tuple()
        return folder / f"{self._name}-{digest_of(source.read_bytes(), repr(told).encode()).hex()}"

    @property
    def _name(self) -> str:
        return f"{self._function.__name__}-{self._function.__code__.co_firstlineno}"


@cache
def cache_folder() -> Path | None:
    """Return a folder for machine code of exactly these sources, this user's alone; None: no place for one.

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


def sources_hash(*folders: Path) -> str:
    """Return a short hash of all sources of packages, file names included."""
    # Names too, and a zero byte behind each part: a line that moves to another file changes the hash.
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder).as_posix()
            digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
