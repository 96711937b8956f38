"""Keep object code in a folder under a name that can never be stale, where only this user can have written.

Whoever writes a file of object code decides what this process executes. So a file is read only if the file,
its folder and the folder around that belong to this user, and neither group nor others may write to them.
Each is checked when it is open, and the next is opened through it: nobody can exchange one after the check.

A checksum in front covers the name of a file and its content. It finds accidents: a part of a file, a changed
bit, a file under the name of another one. On Windows there is only the checksum, as files have no owners and
modes like these.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final

import numpy as np

from ascendsim.native.object_code import ObjectCode

try:
    # To import all of hashlib takes 2 ms.
    from _blake2 import blake2b
except ImportError:  # Python promises hashlib alone
    from hashlib import blake2b

_log = logging.getLogger(__name__)
_DIGEST_BYTES: Final = 16
_HAS_OWNERS: Final = hasattr(os, "geteuid")
_MEND_FOLDER: Final = (
    "nothing is read from it or kept in it, and code is compiled for this process alone; allow nobody else "
    "to write there (chmod go-w), or name another place by XDG_CACHE_HOME"
)
_MEND_FILE: Final = "it is compiled anew"


class StrangerError(PermissionError):
    """A file or folder that somebody else may have written."""


def digest_of(*parts: bytes) -> bytes:
    """Return a digest of some parts, 16 bytes."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        # Its length too: what moves from one part to the next gives another digest.
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def read_sealed(path: Path) -> bytes | None:
    """Return the content that `write_sealed` has put into a file; None if the file does not exist.

    A file that others may have written, or that is not what was written under this name, counts as none, and
    a warning says so.
    """
    try:
        content = _read(path) if _HAS_OWNERS else path.read_bytes()
    except StrangerError as error:
        say(str(error))
        return None
    except OSError:
        return None
    sealed = content[_DIGEST_BYTES:]
    if content[:_DIGEST_BYTES] != _seal(path, sealed):
        say(f"{path} is not what was written under this name: {_MEND_FILE}")
        return None
    return sealed


def write_sealed(path: Path, content: bytes) -> bool:
    """Write a file for this user alone, and its folder if need be; return whether it is there now.

    Where that fails nothing is left behind. A warning names a folder that others may write to.
    """
    try:
        make_own(path.parent)
        _replace(path, _seal(path, content) + content)
    except StrangerError as error:
        say(str(error))
        return False
    except OSError:
        return False
    return True


def make_own(folder: Path) -> None:
    """Make a folder and the one around it, if need be; StrangerError if others may write to one of them."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _HAS_OWNERS:
        folder.mkdir(exist_ok=True)
        return
    with _around(folder) as around:
        with suppress(FileExistsError):
            os.mkdir(folder.name, mode=0o700, dir_fd=around)
        with _entered(folder, around, os.O_DIRECTORY):
            pass


@cache
def say(words: str) -> None:
    """Say something through logging, once in this process."""
    _log.warning("%s", words)


def _seal(path: Path, content: bytes) -> bytes:
    return digest_of(path.name.encode(), content)


def _replace(path: Path, content: bytes) -> None:
    """Write a file at once: others read the old one or the new one, never a part."""
    part = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(part, flags, 0o600), "wb") as file:
            file.write(content)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _read(path: Path) -> bytes:
    """Return the content of a file that is this user's own."""
    # Not to wait for a writer, if it is a pipe that somebody has put there.
    flags = os.O_NOFOLLOW | os.O_NONBLOCK
    with (
        _around(path.parent) as around,
        _entered(path.parent, around, os.O_DIRECTORY) as folder,
        _entered(path, folder, flags) as handle,
        os.fdopen(handle, "rb", closefd=False) as file,
    ):
        return file.read()


@contextmanager
def _around(folder: Path) -> Iterator[int]:
    """Open the folder around one while this lasts; StrangerError if it is not this user's own."""
    # Where caches are is the user's choice, which may be a place for all users, such as /tmp.
    place = os.open(folder.parent.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # A link is followed where only this user can have put it.
        link = os.O_NOFOLLOW if fault_of(os.fstat(place)) else 0
        with _entered(folder.parent, place, os.O_DIRECTORY | link) as around:
            yield around
    finally:
        os.close(place)


@contextmanager
def _entered(path: Path, around: int, flags: int) -> Iterator[int]:
    """Open a file or folder through the open folder around it while this lasts; StrangerError if not own."""
    mend = _MEND_FOLDER if flags & os.O_DIRECTORY else _MEND_FILE
    try:
        handle = os.open(path.name, os.O_RDONLY | flags, dir_fd=around)
    except OSError:
        fault = fault_of(os.stat(path.name, dir_fd=around, follow_symlinks=False))
        if not fault:
            raise
        raise StrangerError(f"{path} {fault}: {mend}") from None
    try:
        fault = fault_of(os.fstat(handle))
        if fault:
            raise StrangerError(f"{path} {fault}: {mend}")
        yield handle
    finally:
        os.close(handle)


def fault_of(status: os.stat_result) -> str:
    """Say why a file or folder is not this user's own, in words that follow its name; nothing if it is."""
    own = os.geteuid()
    if status.st_uid != own:
        return f"belongs to user {status.st_uid}, not to you (user {own})"
    if stat.S_ISLNK(status.st_mode):
        return "is a link"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"may be written by others than you (mode {stat.S_IMODE(status.st_mode):04o})"
    return ""


# Who goes back and forth between two versions within a day compiles neither twice.
UNUSED_SECONDS: Final = 24 * 3600


def usable_folder(name: str, chosen: str) -> Path | None:
    """Return a folder of this name for this user alone, made if need be; None if there is no place for one.

    A warning names a folder that others may write to.

    chosen   the user's setting for the place of numba's caches, empty without one
    """
    # A folder may exist and still refuse files (a read-only image, another user's home): so try one.
    import tempfile

    folder = folder_of(name, chosen)
    if folder is None:
        return None
    try:
        make_own(folder)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except StrangerError as error:
        say(str(error))
    except OSError:
        pass
    return None


def folder_of(name: str, chosen: str) -> Path | None:
    """Return where a folder of this name belongs, whether it is there or not; None if there is no place.

    chosen   as `usable_folder` takes it
    """
    place = _place(chosen)
    return place / _own_name(place) / name if place else None


def _place(chosen: str) -> Path | None:
    # The user's setting for the compiler counts first, then the desktop's standard, then the system's.
    if chosen or os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen or os.environ["XDG_CACHE_HOME"])
    try:
        home = Path.home()
    except RuntimeError:  # an account without a home: no folder is its own
        return None
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home))
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache")


def _own_name(place: Path) -> str:
    """Return the name of this user's folder there: each user has another one where several share a place.

    So has who finds a folder that others may write, as umask 002 makes them: nothing is read from that.
    """
    if sys.platform == "win32":
        return "ascendsim"
    own, folder = f"ascendsim-{os.geteuid()}", place / "ascendsim"
    try:
        if place.stat().st_uid != os.geteuid():
            return own
        # A link leads where `sealed` looks again.
        fault = fault_of(folder.stat())
    except OSError:  # it is not there yet: who makes it owns it
        return "ascendsim"
    if not fault:
        return "ascendsim"
    say(f"{folder} {fault}: nothing is read from there or kept there, but in {own} beside it")
    return own


def mark_used(path: Path) -> None:
    """Say that a file or folder is used now, by its time of change; no error where that is not allowed."""
    with contextlib.suppress(OSError):
        os.utime(path)


def remove_unused(paths: Iterable[Path]) -> None:
    """Remove the files and folders that nobody has marked as used for a day.

    A process that has run for longer may still want one of them: it finds nothing there, compiles, and keeps
    the code anew. What cannot be removed stays.
    """
    for path in paths:
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > UNUSED_SECONDS:
                _remove(path)


def _remove(path: Path) -> None:
    if not path.is_dir():
        path.unlink()
        return
    import tempfile

    # Renamed first, which happens at once: nobody ever finds a part of a folder.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="removed-") as place:
        path.rename(Path(place) / path.name)


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
    said = said_of_processor(_text_of(_PROCESSORS))
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


def _text_of(path: str) -> str:
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
    own = _text_of(str(Path(spec.origin).with_name("_version.py")))
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
    # What is in the name is in the checksum, too.
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
