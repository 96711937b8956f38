"""Write report files whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ascendsim.errors import DataError


def make_folder(folder: Path) -> None:
    """Make the folder of a report, with its parents.

    Raises   DataError if it cannot be made or written to
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"{folder}: this folder cannot be made ({reason}); name another one") from error
    # An existing folder is made without a word, whoever owns it; better told now than after the run.
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DataError(f"{folder}: this folder cannot be written to; name another one")


def require_folder(folder: Path) -> None:
    """Refuse a folder that could not be made or written to, before the work for it; nothing is made.

    Raises   DataError
    """
    nearest = folder
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise DataError(f"{folder}: {nearest} is a file, no folder can be in it; name another one")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise DataError(f"{folder}: nothing can be written to {nearest}; name another one")


def require_file(path: Path) -> None:
    """Refuse a file that could not be written, before the work for it; nothing is made.

    Raises   DataError
    """
    if path.is_dir():
        raise DataError(f"{path}: this is a folder; name a file")
    if not path.parent.is_dir():
        raise DataError(f"{path}: there is no folder {path.parent}; make it, or name another file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise DataError(f"{path}: this file cannot be written; name another one")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, which takes its name only if the caller ends without an error."""
    # Beside it, since only a rename within one file system is whole or not at all; the process number keeps
    # two runs that write the same report apart.
    temporary = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def replacing_report(folder: Path) -> Iterator[Path]:
    """Give a temporary folder, whose files become the report in `folder` if the caller ends without an error.

    The files of the report that was there before, as its result.json lists them, leave with it: a folder
    holds one report. Other files stay.
    Raises   DataError if the folder cannot be made or written to
    """
    make_folder(folder)
    stage = Path(tempfile.mkdtemp(prefix=".report-", dir=folder))
    try:
        yield stage
        # Old files go before new ones come: a file of both reports keeps its name and must not go after.
        for old in _listed(folder):
            old.unlink(missing_ok=True)
        for new in sorted(stage.iterdir()):
            new.replace(folder / new.name)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _listed(folder: Path) -> list[Path]:
    """Return the files in a folder that its result.json lists; none if there is no such list."""
    try:
        names = list(json.loads((folder / "result.json").read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    # The list is a file that anybody may have edited: a name with a path in it could delete what is not ours.
    paths = [folder / name for name in names if isinstance(name, str) and Path(name).name == name]
    return [path for path in paths if path.is_file()]
