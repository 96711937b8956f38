"""Keep object code in a folder under a name that can never be stale."""

import os
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final

import numpy as np

from ascendsim.native.identity import identity
from ascendsim.native.object_code import ObjectCode
from ascendsim.native.sealed import digest_of, folder_of, mark_used, read_sealed, remove_unused, write_sealed

# What code can have copied into it.
_CONSTANT: Final = bool | int | float | str | tuple | np.generic | np.ndarray


def cache_file(functions: tuple[FunctionType, ...], arguments: tuple[str, ...], bounds: bool) -> Path | None:
    """Return where the object code of these functions is kept, once it is made; None if nowhere.

    The name covers all that the code is made of: the whole source files of the functions, what they read of
    their globals, the types, the processor, and how this room compiles.
    """
    sources = {Path(function.__code__.co_filename) for function in functions}
    if not all(path.is_file() for path in sources):
        return None
    constants = _Constants()
    told = [path.read_bytes() for path in sorted(sources)]
    told += [
        f"{function.__module__} {function.__qualname__} {constants.of(function)}".encode()
        for function in functions
    ]
    return file_of(functions[-1].__name__, [*told, f"{arguments} {bounds}".encode()])


def file_of(name: str, told: Iterable[bytes]) -> Path | None:
    """Return where the object code of this name is kept that follows from what is told; None if nowhere."""
    folder = folder_of("native", os.environ.get("NUMBA_CACHE_DIR", ""))
    if folder is None:
        return None
    # What is in the name is in the checksum, too: `sealed.py`.
    digest = digest_of(_own_sources(), *told, identity().encode())
    return folder / f"{name}-{digest.hex()}"


@cache
def _own_sources() -> bytes:
    """Return a digest of the sources of this room: how it compiles."""
    return digest_of(*(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))


def kept(path: Path | None, make: Callable[[], ObjectCode]) -> ObjectCode:
    """Return the object code of a file, which is made and kept if it is not there."""
    found = read(path) if path else None
    if found is None:
        found = make()
        if path:
            write(path, found)
    return found


def read(path: Path) -> ObjectCode | None:
    """Return what `write` has put into a file; None if there is no file, or it is not whole."""
    found = read_sealed(path)
    if found is None:
        return None
    mark_used(path)
    symbol, code = found.split(b"\n", 1)
    return ObjectCode(symbol.decode(), code)


def write(path: Path, object_code: ObjectCode) -> None:
    """Keep object code in a file, all at once; where that fails, leave nothing behind.

    Files of the same name, made of other sources, that nobody has used for a day are removed.
    """
    if write_sealed(path, object_code.symbol.encode() + b"\n" + object_code.code):
        name, _, _ = path.name.rpartition("-")
        remove_unused(other for other in path.parent.glob(f"{name}-*") if other != path)


class _Constants:
    """The values of the globals and closed-over names of functions, in words; the compiler copies them."""

    def __init__(self) -> None:
        self._of_modules: dict[str, str] = {}

    def of(self, function: FunctionType) -> str:
        """Return what one function reads."""
        held = function.__globals__
        found = {name: held[name] for name in function.__code__.co_names if name in held}
        cells = function.__closure__ or ()
        found |= {
            name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, cells, strict=True)
        }
        return " ".join(
            f"{name}={self._module(value) if isinstance(value, ModuleType) else _constant(value)}"
            for name, value in sorted(found.items())
            if isinstance(value, _CONSTANT | ModuleType)
        )

    def _module(self, module: ModuleType) -> str:
        """Return the constants of a module, which are read through it; found once for all functions."""
        if module.__name__ not in self._of_modules:
            self._of_modules[module.__name__] = " ".join(
                f"{name}={_constant(value)}"
                for name, value in sorted(vars(module).items())
                if name.isupper() and isinstance(value, _CONSTANT)
            )
        return self._of_modules[module.__name__]


def _constant(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{value.tobytes()!r}"
    return repr(value)
