"""Run a function over many tasks in several processes; the answers come in the order of the tasks.

Workers are spawned: fresh processes that import what they need. A fork would be quicker to start, but takes
along locks that other threads hold (a progress bar has a thread, and so have notebooks and linear algebra)
and may then wait for them for ever; a fork server stays when the work is done, and is not there on Windows.
Python's own helper for spawned processes ends with the process that asked.

Workers watch a pipe whose other end only the asking process has. When that closes it, or ends, by whatever
signal, all of them end in the same moment. So an interrupt leaves no process behind.
"""

from __future__ import annotations

import itertools
import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from threading import Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from ascendsim.errors import ConfigError, WorkerError, refusal, whole

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor
    from multiprocessing.connection import Connection

Task = TypeVar("Task")
Answer = TypeVar("Answer")

# Each worker gets so many portions: enough that none is left alone with the last ones, since tasks differ.
PORTIONS = 16
# Larger portions save nothing more: to send one takes a fifth of a millisecond.
LARGEST_PORTION = 32
# What it takes to start workers that import the package, two on two cores: 1.2 s.
START_SECONDS = 1.2


def usable_cores() -> int:
    """Return the cores that this process may use; a container or `taskset` may leave it few."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worker_count(workers: Any, tasks: int) -> int:
    """Return how many processes work on so many tasks; None asks for one on each usable core.

    Raises   ConfigError for anything but None or a number of at least 1
    """
    asked = usable_cores() if workers is None else whole(workers)
    if asked is None or asked < 1:
        raise refusal("workers", workers, "1 or more, or None: one for each usable core")
    return max(1, min(asked, tasks))


def in_order(
    function: Callable[[Task], Answer],
    tasks: Sequence[Task],
    workers: int | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Answer]:
    """Return a function's answers to tasks, in their order.

    workers  processes; 1: this one alone, None: one for each usable core, if the tasks are worth a start
    advance  is called with the number of a task before it begins; in another process, when its answer comes
    Raises   whatever `function` does, with the task's number in a note; WorkerError where a worker ends
             before its work; ConfigError where a task cannot be sent to one, or `workers` is no number of
             processes
    """
    count = worker_count(workers, len(tasks))
    alone: Iterable[Task] = tasks if count == 1 else for_a_start(tasks) if workers is None else ()
    answers = []
    for number, task in enumerate(alone):
        advance(number)
        answers.append(_answer(function, number, task))
    if len(answers) < len(tasks):
        _spread(function, tasks, count, advance, answers)
    return answers


def for_a_start(tasks: Iterable[Task]) -> Iterator[Task]:
    """Yield tasks for as long as workers take to start; whoever does these alone may need none.

    So a few short tasks wait for no workers, and many take little longer than with workers from the first.
    """
    begin = perf_counter()
    for task in tasks:
        yield task
        if perf_counter() - begin > START_SECONDS:
            return


def _spread(
    function: Callable[[Task], Answer],
    tasks: Sequence[Task],
    workers: int,
    advance: Callable[[int], None],
    answers: list[Answer],
) -> None:
    """Append the answers to the tasks that have none yet."""
    # Here and not above: one process alone need not load what runs many.
    from concurrent.futures.process import BrokenProcessPool

    left = len(tasks) - len(answers)
    # Before the first process: a task that cannot be sent is refused at once.
    sent, size = _sendable("the function", function), portion_size(left, workers)
    portions = [
        (first, [_sendable(first + at, task) for at, task in enumerate(tasks[first : first + size])])
        for first in range(len(answers), len(tasks), size)
    ]
    try:
        with _pool(min(workers, left)) as pool:
            futures = deque(pool.submit(_work, sent, *portion) for portion in portions)
            while futures:
                # Taken out, so that no answer is held twice.
                for answer in pickle.loads(futures.popleft().result()):
                    advance(len(answers))
                    answers.append(answer)
    except BrokenProcessPool:
        raise WorkerError(
            f"a worker process has ended before its work: {len(answers)} of {len(tasks)} answers have come. "
            "It may have run out of memory, or been killed. Each worker imports the script that was started, "
            "which must be a file, not standard input; what it does belongs under "
            '`if __name__ == "__main__":`. With workers=1 everything is done in one process'
        ) from None


def as_done(
    function: Callable[[Task], Answer], tasks: Iterable[Task], workers: int
) -> Iterator[tuple[Task, Answer]]:
    """Yield each task with its answer as soon as there is one, in no order.

    Tasks are taken one by one as processes become free: never are more than `workers` under way, and what
    makes the tasks may look at the answers so far.

    Raises   as `in_order`
    """
    count = whole(workers)
    if count is None or count < 1:
        raise refusal("jobs", workers, "1 or more, or None: one for each usable core")
    if count == 1:
        for number, task in enumerate(tasks):
            yield task, _answer(function, number, task)
        return
    from concurrent.futures.process import BrokenProcessPool

    sent = _sendable("the function", function)
    numbers = itertools.count()
    with _pool(count) as pool:

        def submit(task: Task) -> Future[bytes]:
            number = next(numbers)
            return pool.submit(_work, sent, number, [_sendable(number, task)])

        try:
            for task, answer in arriving(submit, tasks, count):
                yield task, pickle.loads(answer)[0]
        except BrokenProcessPool:
            raise WorkerError(
                "a worker process has ended before its work. It may have run out of memory, or been killed; "
                "answers that had come are kept. With one job everything is done in one process"
            ) from None


def arriving(
    submit: Callable[[Task], Future[Answer]], tasks: Iterable[Task], most: int
) -> Iterator[tuple[Task, Answer]]:
    """Yield each task with what its future gives, as soon as it does; at most `most` are under way."""
    from concurrent.futures import FIRST_COMPLETED, wait

    under_way: dict[Future[Answer], Task] = {}
    waiting = iter(tasks)
    while True:
        for task in itertools.islice(waiting, most - len(under_way)):
            under_way[submit(task)] = task
        if not under_way:
            return
        done, _ = wait(under_way, return_when=FIRST_COMPLETED)
        for future in done:
            yield under_way.pop(future), future.result()


def portion_size(tasks: int, workers: int) -> int:
    """Return how many tasks are sent to a worker at once."""
    return max(1, min(LARGEST_PORTION, tasks // (workers * PORTIONS)))


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool that leaves no process at the end; an interrupted pool stops its work."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    context = get_context("spawn")
    watched, held = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(watched,))
    try:
        yield pool
    except BaseException:
        # Shutting down waits for what is being worked on, which nobody wants any more.
        held.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        held.close()
        watched.close()


def _sendable(what: int | str, value: Any) -> bytes:
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        name = f"item {what}" if isinstance(what, int) else what
        raise ConfigError(
            f"{name} cannot be sent to another process: {error}. Classes and functions in it must be "
            "those of a module, not made inside a function; or pass workers=1"
        ) from error


# ---- In a worker


def _begin(watched: Connection) -> None:
    """See to it that this process ends when whoever asked for it has ended or lost interest."""
    # At a terminal an interrupt goes to all: a worker ends without a word, and who asked says what happened.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Thread(target=_end_with, args=(watched,), daemon=True).start()


def _end_with(watched: Connection) -> None:
    try:
        watched.recv()
    except (EOFError, OSError):
        # Not sys.exit, which would only end this thread.
        os._exit(1)


# A worker has one function, which may keep what it has found out: the next portion finds the same one.
@lru_cache(maxsize=1)
def _loaded(function: bytes) -> Callable[[Any], Any]:
    loaded: Callable[[Any], Any] = pickle.loads(function)
    return loaded


def _work(function: bytes, first: int, tasks: Sequence[bytes]) -> bytes:
    """Return the answers to tasks in one pickle, in which what several of them hold is written once."""
    answers = [_answer(_loaded(function), first + at, pickle.loads(task)) for at, task in enumerate(tasks)]
    return pickle.dumps(answers, pickle.HIGHEST_PROTOCOL)


def _answer(function: Callable[[Task], Answer], number: int, task: Task) -> Answer:
    try:
        return function(task)
    except Exception as error:
        error.add_note(f"while working on item {number}, counted from 0")
        raise
