"""Keep object code in a folder under a name that can never be stale."""

import hashlib
import os
import tempfile
from pathlib import Path
from types import FunctionType, ModuleType

import numpy as np

from ascendsim.native.folder import mark_used, remove_unused, usable_folder
from ascendsim.native.processor import ObjectCode, identity


def cache_file(functions: tuple[FunctionType, ...], arguments: tuple[str, ...], bounds: bool) -> Path | None:
    """Return where the object code of these functions is kept, once it is made; None if nowhere.

    The name covers all that the code is made of: the whole source files of the functions, what they read of
    their globals, the types, the processor, and how this room compiles.
    """
    folder = usable_folder("native", os.environ.get("NUMBA_CACHE_DIR", ""))
    sources = {Path(function.__code__.co_filename) for function in functions}
    if folder is None or not all(path.is_file() for path in sources):
        return None
    digest = hashlib.sha256()
    for path in [*sorted(Path(__file__).parent.glob("*.py")), *sorted(sources)]:
        digest.update(path.read_bytes() + b"\0")
    for function in functions:
        digest.update(f"{function.__module__} {function.__qualname__} {_constants(function)}\0".encode())
    digest.update(f"{arguments} {bounds} {identity()}".encode())
    return folder / f"{functions[-1].__name__}-{digest.hexdigest()[:32]}"


def read(path: Path) -> ObjectCode | None:
    """Return what `write` has put into a file; None if there is no file, or it is not whole."""
    try:
        digest, symbol, code = path.read_bytes().split(b"\n", 2)
    except (OSError, ValueError):
        return None
    if digest != _digest(symbol, code):
        return None
    mark_used(path)
    return ObjectCode(symbol.decode(), code)


def write(path: Path, object_code: ObjectCode) -> None:
    """Keep object code in a file, all at once; where that fails, leave nothing behind.

    Files of the same name, made of other sources, that nobody has used for a day are removed.
    """
    symbol = object_code.symbol.encode()
    try:
        handle, part = tempfile.mkstemp(dir=path.parent)
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(b"\n".join((_digest(symbol, object_code.code), symbol, object_code.code)))
        # Others read the old file or the new one, never a part of it.
        Path(part).replace(path)
    except OSError:
        Path(part).unlink(missing_ok=True)
    name, _, _ = path.name.rpartition("-")
    remove_unused(other for other in path.parent.glob(f"{name}-*") if other != path)


def _digest(symbol: bytes, code: bytes) -> bytes:
    return hashlib.sha256(symbol + b"\n" + code).hexdigest().encode()


def _constants(function: FunctionType) -> str:
    """Return the values of the globals and closed-over names of a function; the compiler copies them."""
    found = {
        name: function.__globals__[name]
        for name in function.__code__.co_names
        if name in function.__globals__
    }
    cells = function.__closure__ or ()
    found |= {
        name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, cells, strict=True)
    }
    # Constants that are read through the module that holds them.
    for name, value in list(found.items()):
        if isinstance(value, ModuleType):
            del found[name]
            found |= {f"{name}.{inner}": held for inner, held in vars(value).items() if inner.isupper()}
    return " ".join(
        f"{name}={value.dtype}{value.shape}{value.tobytes()!r}"
        if isinstance(value, np.ndarray)
        else f"{name}={value!r}"
        for name, value in sorted(found.items())
        if isinstance(value, bool | int | float | str | tuple | np.generic | np.ndarray)
    )
