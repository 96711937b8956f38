"""Points to answers: kept answers are taken, the rest is computed and kept at once."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar

from ascendsim.errors import AscendSimError, ConfigError, DataError, UnsupportedError, install_hint
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.parallel import arriving, as_done, for_a_start, usable_cores
from ascendsim.studies.engine.measure import PointAnswer, measure
from ascendsim.studies.engine.point import NOTHING, StudyPoint, code_version
from ascendsim.studies.table import Table
from ascendsim.timing.compiled_phase import get_ready

# Of the table below; a file of a later one is refused, not guessed at.
FORMAT = 2
TABLE = (
    "CREATE TABLE answers (key TEXT PRIMARY KEY, text TEXT NOT NULL, digest TEXT NOT NULL DEFAULT '') "
    "WITHOUT ROWID"
)
# Format 1 had no digests: its answers are computed again where they are asked for.
FROM_FIRST = "ALTER TABLE answers ADD COLUMN digest TEXT NOT NULL DEFAULT ''"
# What another study on the same file may need for its one line.
WAIT_SECONDS = 30
# Of a damaged file: a message of SQLite quotes it, and Python does not get the bytes decoded.
FAILS = (sqlite3.Error, UnicodeDecodeError)


class Store:
    """Answers by the keys of their points, in a file or, without a path, in memory.

    One process writes, the one that asked for the study; others may read meanwhile (WAL mode). Each answer
    is a transaction of its own, so that whoever is killed loses what was being computed and nothing else.
    Two studies on one file do no harm: equal keys have equal answers. An answer whose digest does not fit is
    as good as none: it is computed again.

    damaged   how many kept answers were found to be damaged so far

    Raises   DataError for a file that is no store, is damaged or cannot be opened; so do all methods where it
             cannot be read or written any more
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.damaged = 0
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            # Every statement commits by itself.
            self._file = sqlite3.connect(path or ":memory:", timeout=WAIT_SECONDS, isolation_level=None)
        except (*FAILS, OSError) as error:
            raise self._refusal(str(error)) from None
        # Damage may lie in a text too: it is decoded after its digest was looked at.
        self._file.text_factory = bytes
        try:
            self._begin()
        except FAILS as error:
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
        if found not in (1, FORMAT) and (found or tables):
            raise self._refusal(f"its format is {found}, expected {FORMAT}")
        if not tables:
            self._file.execute(TABLE)
        elif found == 1:
            self._file.execute(FROM_FIRST)
        self._file.execute(f"PRAGMA user_version={FORMAT}")
        # Of another schema this finds no such column.
        self._file.execute("SELECT key, text, digest FROM answers LIMIT 0")
        self._file.execute("COMMIT")
        # It reads the whole file, a GiB in about a second: less than the answers in it have taken.
        (state,) = self._file.execute("PRAGMA quick_check(1)").fetchone()
        if state != b"ok":
            raise self._refusal(f"it is damaged: {state.decode(errors='replace')}")

    def _refusal(self, why: str) -> DataError:
        why = " ".join(why.split())
        return DataError(
            f"{self._path}: is no store of answers: {why}; name another file with --store, or move this one"
        )

    @contextmanager
    def _one_line(self) -> Iterator[None]:
        """Turn what SQLite raises into one line with the path and what to do."""
        try:
            yield
        except FAILS as error:
            raise DataError(
                f"{self._path}: this store cannot be used any more: {error}; make room, or name another file "
                "with --store. What it has kept stays, and the same command goes on from there"
            ) from None

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    # Not `__len__`: an empty store would be false.
    def count(self) -> int:
        """Count the answers."""
        with self._one_line():
            (count,) = self._file.execute("SELECT count(*) FROM answers").fetchone()
        return int(count)

    def get(self, keys: Iterable[str]) -> dict[str, PointAnswer]:
        """Return the answers that are kept, by key."""
        found = {}
        with self._one_line(), closing(self._file.cursor()) as cursor:
            for key in keys:
                row = cursor.execute("SELECT text, digest FROM answers WHERE key = ?", (key,)).fetchone()
                if row is None:
                    continue
                text, digest = row
                if isinstance(text, bytes) and digest == _digest(key, text):
                    found[key] = PointAnswer(text.decode())
                else:
                    self.damaged += 1
                    _log.warning("%s: a kept answer is damaged, and computed again", self._path)
        return found

    def put(self, key: str, answer: PointAnswer) -> None:
        """Keep an answer; it is in the file when this returns."""
        row = key, answer.text, _digest(key, answer.text.encode()).decode()
        with self._one_line():
            self._file.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", row)


def _digest(key: str, text: bytes) -> bytes:
    """Return the digest that an answer is kept with: of its key too, so that it answers no other point."""
    return sha256(key.encode() + b"\0" + text).hexdigest().encode()


_log = logging.getLogger(__name__)

# (done, all that will be computed within the trials, the point just answered)
Advance = Callable[[int, int, StudyPoint], None]
Compute = Callable[[StudyPoint], PointAnswer]


@dataclass
class Budget:
    """The points that a study may still compute; kept answers cost nothing.

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
class StudyOutcome:
    """The answers to the points of a study.

    points    as they were asked, in order
    keys      of each point
    answers   by key; a point without one was left out as time or trials were used up
    computed  how many answers are new
    """

    points: tuple[StudyPoint, ...]
    keys: tuple[str, ...]
    answers: Mapping[str, PointAnswer]
    computed: int

    def __iter__(self) -> Iterator[tuple[StudyPoint, PointAnswer | None]]:
        for point, key in zip(self.points, self.keys, strict=True):
            yield point, self.answers.get(key)

    @property
    def left(self) -> int:
        """The number of points without an answer."""
        return sum(key not in self.answers for key in self.keys)


@dataclass(frozen=True, slots=True)
class Engine:
    """The place where points are kept and the workers that compute them.

    store      keeps the answers
    jobs       processes; 1: this one alone, None: one for each usable core, where points are worth a start
    scheduler  address of a Dask scheduler, to which points are sent instead; "" without
    advance    is called with each answer that was computed
    compute    a function of a module, or a class's, that answers a point
    limits     what each call may have at most, as the keywords of `estimate`: of calls that are no points
    """

    store: Store
    jobs: int | None = None
    scheduler: str = ""
    advance: Advance = lambda *_: None
    compute: Compute = measure
    limits: Mapping[str, Any] = NOTHING

    @default_arithmetic
    def answer(self, points: Sequence[StudyPoint], budget: Budget | None = None) -> StudyOutcome:
        """Answer points; equal ones are computed once, and kept ones not at all.

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
        # The total counts the work that will be done: no more than the trials that are left.
        total = len(missing) if budget.trials is None else min(len(missing), budget.trials)
        # Asked for one by one as processes become free, so that the budget is looked at before each.
        wanted = ((key, by_key[key]) for key in missing if budget.take())
        computed = 0
        for (key, point), answer in self._compute(wanted, len(missing)):
            if answer.lasting:
                self.store.put(key, answer)
            answers[key] = answer
            computed += 1
            self.advance(computed, total, point)
        _log.info("computed %d of %d", computed, len(missing))
        return StudyOutcome(tuple(points), keys, answers, computed)

    def _compute(self, tasks: Any, count: int) -> Iterator[tuple[tuple[str, StudyPoint], PointAnswer]]:
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

    def __call__(self, task: tuple[str, StudyPoint]) -> PointAnswer:
        """Answer the point."""
        return self.compute(task[1])


def require_answer(point: StudyPoint, answer: PointAnswer | None) -> PointAnswer:
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
    address: str, compute: Callable[[StudyPoint], PointAnswer], tasks: Iterable[tuple[Key, StudyPoint]]
) -> Iterator[tuple[tuple[Key, StudyPoint], PointAnswer]]:
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
    # Whoever answers that is no scheduler may say anything, such as a size of 3 EiB (MemoryError).
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(
            f"--scheduler {address}: no Dask scheduler answers: {reason}; start one with `dask scheduler`, "
            "or leave it out and give --jobs"
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


def calls_table(outcome: StudyOutcome) -> Table:
    """Return a row for each kernel of each point, in the order of the points; a failed point has one row.

    A point that stands there twice, as the product as it is may for several changes, has its rows once.

    The columns are those of `StudyPoint.values`, `status` ("timed", "failed" or "left out") and `reason`,
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
    return Table.of_records("Calls", [{name: row.get(name) for name in order} for row in found])


def _point_columns(outcome: StudyOutcome) -> Sequence[str]:
    return list(outcome.points[0].values) if outcome.points else ()
