"""Points to answers: what is kept is taken, the rest is computed and kept at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from ascendsim.errors import AscendSimError, ConfigError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.parallel import as_done, for_a_start, usable_cores
from ascendsim.studies.engine.measure import Answer, measure
from ascendsim.studies.engine.point import Point
from ascendsim.studies.engine.store import Store
from ascendsim.timing.fast.ready import get_ready

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
            from ascendsim.studies.engine.dask import on_dask

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
