"""Keep object code in a folder under a name that can never be stale."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final

import numpy as np

from ascendsim.native.object_code import ObjectCode
from ascendsim.native.sealed import digest_of, folder_of, mark_used, read_sealed, remove_unused, write_sealed

# What the system says of a processor, without what changes from core to core or from hour to hour.
_SAID: Final = {
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
}
_PROCESSORS: Final = "/proc/cpuinfo"
# numba's own variables: who narrows the processor for numba's code means this code too.
_VARIABLES: Final = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")


def identity() -> str:
    """Name everything about this processor and its code generator that machine code depends on."""
    # A variable that is empty is not one that is missing: no features, or all that the processor has.
    told = [repr(os.environ.get(name)) for name in _VARIABLES]
    versions = [_version(package) for package in ("llvmlite", "numba")]
    return " ".join([platform.machine(), _processor(), _commands(), *told, *versions])


@cache
def _processor() -> str:
    """Return the system's description of the processor; without one, the code generator's."""
    said = said_of_processor(_read(_PROCESSORS))
    if said:
        return said
    from ascendsim.native.processor import name_and_features

    return name_and_features()


def said_of_processor(text: str) -> str:
    """Return the lines of the system's list of processors that describe the first of them, if any do."""
    first, _, _ = text.partition("\n\n")
    lines = [line.partition(":") for line in first.splitlines()]
    kept = [f"{name.strip()}: {value.strip()}" for name, _, value in lines if name.strip() in _SAID]
    # The commands that it has are what counts; without them the rest says too little.
    has_commands = any(line.startswith(("flags: ", "Features: ")) for line in kept)
    return "\n".join(kept) if has_commands else ""


def _read(path: str) -> str:
    """Return the beginning of a file, up to 16 KiB; nothing if there is none."""
    # A part, as the whole list of a machine with hundreds of cores takes milliseconds.
    try:
        with Path(path).open("rb", buffering=0) as file:
            return file.read(1 << 14).decode(errors="replace")
    except OSError:
        return ""


@cache
def _commands() -> str:
    """Return the processor features that numpy has found in this process.

    An emulator, such as valgrind, may do less than the system says of the processor.
    """
    try:
        features: dict[str, bool] = import_module("numpy._core._multiarray_umath").__cpu_features__
    except (ImportError, AttributeError):  # numpy promises neither the module nor the name
        return ""
    return " ".join(sorted(name for name, there in features.items() if there))


@cache
def _version(package: str) -> str:
    """Return the version of a package, without importing it if it has a file for its version."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return ""
    own = _read(str(Path(spec.origin).with_name("_version.py")))
    return own or str(import_module(package).__version__)


# What code can have copied into it.
_CONSTANT: Final = bool | int | float | str | tuple | np.generic | np.ndarray


def cache_file(functions: tuple[FunctionType, ...], arguments: tuple[str, ...], bounds: bool) -> Path | None:
    """Return where the object code of these functions is kept, once it is made; None if nowhere.

    The name covers all inputs of the code: the whole source files of the functions, the values they read of
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
    """Return the cache file for object code of a name and a list of inputs; None if there is no cache."""
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
    """Return the object code that `write` has put into a file; None if the file is missing or not whole."""
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
        """Return a text of the global values that a function reads."""
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
