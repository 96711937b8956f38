"""Progress on standard error: a bar on a terminal, a line now and then in a pipe."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

# Between two lines in a pipe: a log stays short, and whoever reads it knows that work goes on.
QUIET_SECONDS = 30.0


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """Give a function to call with the name of each of `total` tasks before it begins."""
    # On standard error, since what is printed may be JSON for another program.
    if not sys.stderr.isatty():
        begun, since = list[str](), monotonic()

        def said() -> str:
            left = time_left(len(begun) - 1, total, monotonic() - since)
            return f"{len(begun)} of {total}: {begun[-1]}{left}" if begun else f"0 of {total}"

        with _lines(said):
            yield begun.append
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}")
    with _bar(*columns) as bar:
        task = bar.add_task("", total=total)
        told = False

        def advance(name: str) -> None:
            nonlocal told
            # The call comes before each task, so the first call completes none.
            bar.update(task, description=name, advance=1 if told else 0)
            told = True

        yield advance


def time_left(done: int, total: int, seconds: float) -> str:
    """Return the words for the time that is left, as if what is left took as long as what is done.

    ""   within 3 tasks or 5 seconds: the first task compiles, and says little of the others
    """
    known = 3 <= done < total and seconds >= 5
    return f", about {seconds / done * (total - done):.0f} s left" if known else ""


class Counted:
    """Shows the progress of a study, in the same words and numbers on a terminal and in a pipe.

    A study makes calls in rounds, and each round depends on the answers of the last: the number of rounds is
    not known before. So two counts are shown, of the round and of the whole. `computed` is the second one.
    Where the user allows `most` calls of all rounds, what is left is of these, else of the round.
    """

    def __init__(self, show: Callable[[int, int, str, str], None], most: int | None = None) -> None:
        self.computed = 0
        self._show, self._most = show, most

    def __call__(self, done: int, total: int, name: str) -> None:
        """Take in that a point was computed: the `done`th of `total` of its round."""
        self.computed += 1
        count = f"{done} of {total} calls of this round, {self.computed}"
        if self._most:
            said = f"{count} of at most {self._most} in all rounds: {name}"
            self._show(self.computed, self._most, said, "of all rounds at most")
        else:
            self._show(done, total, f"{count} in all rounds so far: {name}", "of this round")


@contextmanager
def counted(most: int | None = None) -> Iterator[Counted]:
    """Give what to call with (done, all of this round, name of the one just done); `most` of all rounds.

    On a terminal a bar; in a pipe a line every ten seconds on standard error, so that a log shows life.
    """
    if not sys.stderr.isatty():
        line = _LineNowAndThen()
        yield Counted(line, most)
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    with _bar(BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False)) as bar:
        task = bar.add_task("", total=None)

        def show(done: int, total: int, said: str, part: str) -> None:
            bar.update(task, completed=done, total=total, description=f"left {part}; {said}")

        yield Counted(show, most)


def _bar(*columns: ProgressColumn) -> Progress:
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True)


class _LineNowAndThen:
    """Writes a line on standard error when the last one, or the beginning, is ten seconds ago."""

    SECONDS = 10

    def __init__(self) -> None:
        self._said = self._began = self._last = monotonic()

    def __call__(self, done: int, total: int, said: str, part: str) -> None:
        # A round begins where the one before it ended.
        self._began, self._last = (self._last if done == 1 else self._began), monotonic()
        if self._last - self._said >= self.SECONDS:
            self._said = self._last
            left = time_left(done, total, self._last - self._began)
            print(f"{said}{left and f'{left} {part}'}", file=sys.stderr, flush=True)


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show that something of unknown length is under way."""
    if not sys.stderr.isatty():
        with _lines(lambda: what):
            yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


@contextmanager
def _lines(say: Callable[[], str]) -> Iterator[None]:
    """Print what `say` returns and the seconds so far, every QUIET_SECONDS until the work is done."""
    done, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not done.wait(QUIET_SECONDS):
            print(
                f"ascendsim: {say()} ({time.monotonic() - began:.0f} s so far)", file=sys.stderr, flush=True
            )

    # A daemon, so that an interrupted run does not wait for it.
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
