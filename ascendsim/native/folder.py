"""Find a folder of the user's that keeps machine code."""

import os
import sys
import tempfile
from pathlib import Path


def usable_folder(name: str, chosen: str) -> Path | None:
    """Return a folder of this name that takes files, made if need be; None if there is no place for one.

    chosen   what the user has told numba about the place of its caches, empty if nothing
    """
    # A folder may exist and still refuse files (a read-only image, another user's home): so try one.
    for base in _bases(chosen):
        folder = base / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    return None


def _bases(chosen: str) -> list[Path]:
    """Return where a user's caches belong on this system, best first."""
    # What the user has told the compiler counts first, then the desktop's standard, then the system's habit.
    if chosen:
        return [Path(chosen) / "ascendsim"]
    if os.environ.get("XDG_CACHE_HOME"):
        return [Path(os.environ["XDG_CACHE_HOME"]) / "ascendsim"]
    try:
        home = Path.home()
    except RuntimeError:  # an account without a home: no folder is its own
        return []
    if sys.platform == "win32":
        return [Path(os.environ.get("LOCALAPPDATA", home)) / "ascendsim" / "cache"]
    return [home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "ascendsim"]
