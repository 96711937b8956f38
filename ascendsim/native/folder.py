"""Find a folder of the user's that keeps machine code, and remove what nobody uses any more."""

import contextlib
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ascendsim.native.sealed import StrangerError, fault_of, make_own, say

# Who goes back and forth between two versions within a day compiles neither twice.
UNUSED_SECONDS: Final = 24 * 3600


def usable_folder(name: str, chosen: str) -> Path | None:
    """Return a folder of this name for this user alone, made if need be; None if there is no place for one.

    A warning names a folder that others may write to.

    chosen   what the user has told numba about the place of its caches, empty if nothing
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
    # What the user has told the compiler counts first, then the desktop's standard, then the system's habit.
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
