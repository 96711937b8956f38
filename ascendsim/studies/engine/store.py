"""Answers kept in a file; the only file that knows SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from types import TracebackType

from ascendsim.errors import DataError
from ascendsim.studies.engine.measure import Answer

# Of the table below; a file of another one is refused, not guessed at.
FORMAT = 1
TABLE = "CREATE TABLE answers (key TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID"
# What another study on the same file may need for its one line.
WAIT_SECONDS = 30


class Store:
    """Answers by the keys of their points, in a file or, without a path, in memory.

    One process writes, the one that asked for the study; others may read meanwhile (WAL mode). Each answer
    is a transaction of its own, so that whoever is killed loses what was being computed and nothing else.
    Two studies on one file do no harm: equal keys have equal answers.

    Raises   DataError for a file that is no store, or cannot be opened
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            # Every statement commits by itself.
            self._file = sqlite3.connect(path or ":memory:", timeout=WAIT_SECONDS, isolation_level=None)
        except (sqlite3.Error, OSError) as error:
            raise self._refusal(str(error)) from None
        try:
            self._begin()
        except sqlite3.Error as error:
            self._file.close()
            raise self._refusal(str(error)) from None
        except DataError:
            self._file.close()
            raise

    def _begin(self) -> None:
        self._file.execute("PRAGMA journal_mode=WAL")
        # A killed process loses nothing; only a machine without power may lose the last answers.
        self._file.execute("PRAGMA synchronous=NORMAL")
        # Locked from the look to the table: two studies may begin at once.
        self._file.execute("BEGIN IMMEDIATE")
        (found,) = self._file.execute("PRAGMA user_version").fetchone()
        (tables,) = self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if found != FORMAT and (found or tables):
            raise self._refusal(f"its format is {found}, expected {FORMAT}")
        if not tables:
            self._file.execute(TABLE)
            self._file.execute(f"PRAGMA user_version={FORMAT}")
        self._file.execute("COMMIT")

    def _refusal(self, why: str) -> DataError:
        return DataError(f"{self._path}: is no store of answers: {why}; name another file with --store")

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    # Not `__len__`: an empty store would be false.
    def count(self) -> int:
        """Count the answers."""
        (count,) = self._file.execute("SELECT count(*) FROM answers").fetchone()
        return int(count)

    def get(self, keys: Iterable[str]) -> dict[str, Answer]:
        """Return the answers that are kept, by key."""
        found = {}
        with closing(self._file.cursor()) as cursor:
            for key in keys:
                row = cursor.execute("SELECT text FROM answers WHERE key = ?", (key,)).fetchone()
                if row is not None:
                    found[key] = Answer(row[0])
        return found

    def put(self, key: str, answer: Answer) -> None:
        """Keep an answer; it is in the file when this returns."""
        self._file.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, answer.text))
