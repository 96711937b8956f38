"""Points to answers: what is kept is taken, the rest is computed and kept at once."""

from __future__ import annotations

import csv
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar

from ascendsim.errors import AscendSimError, ConfigError, DataError, UnsupportedError, install_hint
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.parallel import arriving, as_done, for_a_start, usable_cores
from ascendsim.studies.engine.measure import Answer, measure
from ascendsim.studies.engine.point import Point, code_version
from ascendsim.timing.fast.phase import get_ready

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


_log = logging.getLogger(__name__)

# (done, all that will be computed within the trials, the point just answered)
Advance = Callable[[int, int, Point], None]
Compute = Callable[[Point], Answer]


@dataclass
class Budget:
    """How much a study may still compute; what is kept costs nothing.

    seconds  from the making of this record; None: no limit
    trials   new points; None: no limit
    cut      whether a point was left out, as time or trials were used up
    """

    seconds: float | None = None
    trials: int | None = None
    cut: bool = False
    _begun: float = field(default_factory=monotonic)

    def __post_init__(self) -> None:
        """Refuse limits that mean nothing."""
        for name, limit in (("time", self.seconds), ("trials", self.trials)):
            if limit is not None and not limit >= 0:
                raise ConfigError(f"{name} is {limit}; it must be 0 or more, or None: no limit")

    @property
    def exhausted(self) -> bool:
        """Whether time or trials are used up."""
        late = self.seconds is not None and monotonic() - self._begun >= self.seconds
        return late or self.trials == 0

    def take(self) -> bool:
        """Take one trial; False where time or trials are used up."""
        if self.exhausted:
            self.cut = True
            return False
        if self.trials is not None:
            self.trials -= 1
        return True


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answers to the points of a study.

    points    as they were asked, in order
    keys      of each point
    answers   by key; a point without one was left out as time or trials were used up
    computed  how many answers are new
    """

    points: tuple[Point, ...]
    keys: tuple[str, ...]
    answers: Mapping[str, Answer]
    computed: int

    def __iter__(self) -> Iterator[tuple[Point, Answer | None]]:
        for point, key in zip(self.points, self.keys, strict=True):
            yield point, self.answers.get(key)

    @property
    def left(self) -> int:
        """How many points have no answer."""
        return sum(key not in self.answers for key in self.keys)


@dataclass(frozen=True, slots=True)
class Engine:
    """Where and by whom points are computed.

    store      keeps the answers
    jobs       processes; 1: this one alone, None: one for each usable core, where points are worth a start
    scheduler  address of a Dask scheduler, to which points are sent instead; "" without
    advance    is told each answer that was computed
    compute    a function of a module, or a class's, that answers a point
    """

    store: Store
    jobs: int | None = None
    scheduler: str = ""
    advance: Advance = lambda *_: None
    compute: Compute = measure

    @default_arithmetic
    def answer(self, points: Sequence[Point], budget: Budget | None = None) -> Outcome:
        """Answer points; equal ones are computed once, and what is kept not at all.

        Answers do not depend on how many processes compute them. Killed at any moment, a study loses at most
        as many points as it has jobs: those that were being computed.

        Raises   WorkerError where a process ends early; ConfigError for no number of jobs
        """
        budget = budget or Budget()
        keys = tuple(point.key for point in points)
        by_key = dict(zip(keys, points, strict=True))
        answers = self.store.get(by_key)
        missing = [key for key in by_key if key not in answers]
        _log.info("%d points: %d are kept, %d to compute", len(by_key), len(answers), len(missing))
        # What is told is what will be done: no more than the trials that are left.
        total = len(missing) if budget.trials is None else min(len(missing), budget.trials)
        # Asked for one by one as processes become free, so that the budget is looked at before each.
        wanted = ((key, by_key[key]) for key in missing if budget.take())
        computed = 0
        for (key, point), answer in self._compute(wanted, len(missing)):
            self.store.put(key, answer)
            answers[key] = answer
            computed += 1
            self.advance(computed, total, point)
        _log.info("computed %d of %d", computed, len(missing))
        return Outcome(tuple(points), keys, answers, computed)

    def _compute(self, tasks: Any, count: int) -> Iterator[tuple[tuple[str, Point], Answer]]:
        if self.scheduler:
            yield from on_dask(self.scheduler, self.compute, tasks)
            return
        second, jobs = _Second(self.compute), self.jobs
        if jobs is None:
            # A study asks for a few points again and again: workers for each of these take longer than they.
            jobs = usable_cores()
            for done in as_done(second, for_a_start(tasks), 1):
                count -= 1
                yield done
        if min(jobs, count) > 1:
            get_ready()
        yield from as_done(second, tasks, max(1, min(jobs, count)) if jobs > 0 else jobs)


@dataclass(frozen=True, slots=True)
class _Second:
    """Computes the point of a (key, point)."""

    compute: Compute

    def __call__(self, task: tuple[str, Point]) -> Answer:
        """Answer the point."""
        return self.compute(task[1])


def require_answer(point: Point, answer: Answer | None) -> Answer:
    """Return an answer that a study cannot do without.

    Raises   AscendSimError with the reason why there is none
    """
    if answer is None:
        raise ConfigError(
            f"time or trials are used up before {point.label} was timed; what was computed is kept: run the "
            "same command again to go on"
        )
    if answer.reason:
        raise AscendSimError(f"{point.label} on {point.product}: {answer.reason}")
    return answer


Key = TypeVar("Key")
# Seconds in which a scheduler has to answer at all.
PATIENCE = 10
# Points on their way to each thread of a worker: the next is there when one is done.
AHEAD = 2


def on_dask(
    address: str, compute: Callable[[Point], Answer], tasks: Iterable[tuple[Key, Point]]
) -> Iterator[tuple[tuple[Key, Point], Answer]]:
    """Compute points on the workers of a scheduler.

    Raises   UnsupportedError without Dask, ConfigError where no scheduler answers, or its workers run other
             code than this process: their answers would be kept under the wrong key
    """
    try:
        from distributed import Client
    except ImportError:
        raise UnsupportedError(
            f"--scheduler sends points to Dask, which is not installed; {install_hint('dask')}, or leave it "
            "out and give --jobs"
        ) from None
    try:
        client = Client(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--scheduler {address}: no scheduler answers: {error}; start one with `dask scheduler`, or "
            "leave it out and give --jobs"
        ) from None
    with client:
        versions = client.run(code_version)
        other = [worker for worker, version in versions.items() if version != code_version()]
        if other or not versions:
            said = f"worker {other[0]} runs other code of ascendsim" if other else "it has no worker"
            raise ConfigError(f"--scheduler {address}: {said}; start workers with the code of this process")
        threads = sum(client.nthreads().values())
        executor = client.get_executor(pure=False)
        yield from arriving(lambda task: executor.submit(compute, task[1]), tasks, AHEAD * threads)


FORMATS = (".csv", ".parquet")


def rows_of(outcome: Outcome) -> list[dict[str, Any]]:
    """Return a row for each kernel of each point, in the order of the points; a failed point has one row.

    A point that stands there twice, as the product as it is may for several changes, has its rows once.

    The columns are those of `Point.values`, then `status` ("timed", "failed" or "left out") and `reason`,
    then those of `Estimate.to_records`.
    """
    found = []
    # By what a row says besides: layers of one shape have points of one key, and names of their own.
    each = {
        (key, *point.values.values()): point for point, key in zip(outcome.points, outcome.keys, strict=True)
    }
    for (key, *_), point in each.items():
        answer = outcome.answers.get(key)
        status = "left out" if answer is None else "failed" if answer.reason else "timed"
        own = point.values | {"status": status, "reason": answer.reason if answer else ""}
        records: Sequence[Mapping[str, Any]] = answer.records if answer else ()
        # The point says the product as it was asked for; the record would say it once more.
        found += [{**record, **own} for record in records or ({},)]
    columns = dict.fromkeys(name for row in found for name in row)
    first = [name for name in (*_point_columns(outcome), "status", "reason") if name in columns]
    order = [*first, *(name for name in columns if name not in first)]
    return [{name: row.get(name) for name in order} for row in found]


def _point_columns(outcome: Outcome) -> Sequence[str]:
    return list(outcome.points[0].values) if outcome.points else ()


def require_table_name(path: Path) -> None:
    """Refuse the name of a table that says no format.

    Raises   ConfigError
    """
    if path.suffix not in FORMATS:
        raise ConfigError(f"{path}: a table ends in {' or '.join(FORMATS)}; give it one of these names")


def write_table(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows as CSV or, with pyarrow (an extra), as Parquet; the ending of the path says which.

    Raises   ConfigError for another ending, UnsupportedError without pyarrow
    """
    require_table_name(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        _write_parquet(rows, path)
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


def _write_parquet(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    try:
        from pyarrow import Table
        from pyarrow.parquet import write_table as write_parquet
    except ImportError:
        raise UnsupportedError(
            f"{path}: Parquet is written by pyarrow, which is not installed; "
            f"{install_hint('parquet')}, or end the name in .csv"
        ) from None
    write_parquet(Table.from_pylist(list(rows)), path)
