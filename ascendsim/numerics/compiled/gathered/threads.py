"""Share the work of a call among threads, which all its steps have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Self, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Made = TypeVar("Made")

# Elements that take 0.2 ms to move. A second thread saves half of this, and waking it and waiting for it
# takes nearly as long.
LEAST: Final = 1 << 19


class Threads:
    """So many threads: the one that calls, and others that are begun when they are first needed.

    A context, at whose end the others end. Tasks that run at once write where no other one reads or writes,
    so that it makes no difference how many threads there are.
    """

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, function: Callable[..., Made], tasks: Iterable[tuple[object, ...]]) -> list[Made]:
        """Return a function's results for the arguments of each task; the calling thread takes the first.

        Raises   what the first task in their order raises that fails
        """
        each = list(tasks)
        if self.count == 1 or len(each) < 2:
            return [function(*task) for task in each]
        if self._pool is None:
            # Here and not above: most calls need no threads.
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self.count - 1)
        others = [self._pool.submit(function, *task) for task in each[1:]]
        return [function(*each[0]), *(other.result() for other in others)]

    def share(self, function: Callable[[slice], Made], size: int, unit: int = 1) -> list[Made]:
        """Return the results of a function for each part of a size, in order.

        Raises   as `run`
        """
        if self.count == 1:
            return [function(slice(0, size))]
        return self.run(function, [(part,) for part in self.parts(size, unit)])

    def parts(self, size: int, unit: int = 1) -> list[slice]:
        """Cut a size into at most one part for each thread, all but the last of whole units."""
        units = -(-size // unit)
        edges = [min(units * at // self.count * unit, size) for at in range(self.count + 1)]
        return [slice(first, last) for first, last in pairwise(edges) if first < last]

    def for_moving(self, elements: int) -> Threads:
        """Return these to move so many elements, or the calling thread alone where that is sooner done."""
        return self if elements >= LEAST else ALONE


ALONE: Final = Threads()
