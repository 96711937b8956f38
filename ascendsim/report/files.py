"""Write report files whole or not at all."""

from __future__ import annotations

import os
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
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DataError(f"{folder}: this folder cannot be written to; name another one")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, which takes its name only if the block ends without an error."""
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
