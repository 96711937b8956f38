"""Tasks in the order of nested loops, of which only a range is looked at: outer, image, block.

A large batch has hundreds of thousands of tasks, and most differ by their image alone. So they are not
listed; a range of them is a few runs: whole images, and the parts of images at its two ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.errors import ConfigError
from ascendsim.ops.plan import Tiling, shares

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]


class Run(NamedTuple):
    """Blocks number `first` to `last`, for each of some images."""

    outer: int
    images: range
    first: int
    last: int


class TaskRange(Sequence[Any]):
    """A range of the tasks make(outer, image, block), the blocks of an image fastest, then images.

    An example: 2 groups, 3 images and 4 blocks are 24 tasks. Tasks 6 to 14 are blocks 2 and 3 of image 1 of
    group 0, all blocks of image 2, and blocks 0 and 1 of image 0 of group 1: three runs.

    Images are numbered from `first_image` on.
    """

    __slots__ = ("_blocks", "_first_image", "_images", "_make", "_outers", "_range")

    def __init__(
        self,
        outers: Sequence[Any],
        images: int,
        blocks: Sequence[Any],
        make: Callable[[Any, int, Any], Any],
        numbers: range | None = None,
        first_image: int = 0,
    ) -> None:
        self._outers = outers
        self._images = images
        self._blocks = blocks
        self._make = make
        self._first_image = first_image
        self._range = range(len(outers) * images * len(blocks)) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self._range)

    def __getitem__(self, index: Any) -> Any:
        numbers = self._range[index]
        if isinstance(numbers, range):
            if numbers.step != 1:
                return [self[at] for at in range(len(self))[index]]
            whole = self._outers, self._images, self._blocks, self._make
            return TaskRange(*whole, numbers, self._first_image)
        image, block = divmod(numbers, len(self._blocks))
        outer, image = divmod(image, self._images)
        return self._make(self._outers[outer], image + self._first_image, self._blocks[block])

    def __iter__(self) -> Iterator[Any]:
        for run in self.runs():
            for image in run.images:
                for block in self._blocks[run.first : run.last]:
                    yield self._make(self._outers[run.outer], image, block)

    def runs(self) -> Iterator[Run]:
        """Yield the runs of each outer: part of an image first, whole images, part of one at the end."""
        each = len(self._blocks)
        at, stop = self._range.start, self._range.stop
        while at < stop:
            image, first = divmod(at, each)
            outer, image = divmod(image, self._images)
            end = min(stop, (outer + 1) * self._images * each)
            whole = 1 if first else (end - at) // each
            last = each if whole and (end - at) >= each - first else first + end - at
            begin = self._first_image + image
            yield Run(outer, range(begin, begin + max(whole, 1)), first, last)
            at += max(whole, 1) * (last - first)

    def rows(self, of_blocks: Rows) -> Rows:
        """Return a row for each task: its outer (by number, if it is none), its image, the row of its block.

        of_blocks   a row for each block of the range, those that are not in it included
        """
        image, block = np.divmod(np.arange(self._range.start, self._range.stop), len(self._blocks))
        outer, image = np.divmod(image, self._images)
        if len(self._outers) and isinstance(self._outers[0], int):
            outer = np.array(self._outers, np.int64)[outer]
        return np.column_stack([outer, image + self._first_image, of_blocks[block]])

    @property
    def outers(self) -> Sequence[Any]:
        """All outers, those that are not in the range included."""
        return self._outers

    @property
    def blocks(self) -> Sequence[Any]:
        """All blocks of an image, those that are not in the range included."""
        return self._blocks

    def different(self) -> Sequence[Any]:
        """Return the different blocks in the range."""
        each, begin = len(self._blocks), self.begin
        end = begin + len(self._range)
        if len(self._range) >= each:
            return self._blocks
        return [*self._blocks[begin:end], *self._blocks[: max(0, end - each)]]

    def of_first_image(self) -> list[Any]:
        """Return the tasks of the first image, for each outer."""
        return [
            self._make(outer, self._first_image, block) for outer in self._outers for block in self._blocks
        ]

    @property
    def begin(self) -> int:
        """Number of the first task among the blocks of its image."""
        return self._range.start % max(1, len(self._blocks))

    def spelled(self, symbols: Sequence[int]) -> tuple[int, ...]:
        """Return the symbols of all tasks, one after the other; `symbols` has one for each block."""
        # Slices and repetitions of tuples: the sequence is long, but nothing is done for each of its tasks.
        whole = tuple(symbols)
        spelled: tuple[int, ...] = ()
        for run in self.runs():
            spelled += whole[run.first : run.last] * len(run.images)
        return spelled


class Cells(Sequence[Any]):
    """The tasks of several ranges, one range after the other."""

    def __init__(self, ranges: Sequence[TaskRange]) -> None:
        self.ranges = tuple(ranges)

    def __len__(self) -> int:
        return sum(len(cell) for cell in self.ranges)

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[Any]:
        for cell in self.ranges:
            yield from cell


class Rounds(NamedTuple):
    """Tasks that are made again for every image of a range; their own images count from it.

    An example: tasks of images 0 and 2 for images 0, 4, 8 are tasks of images 0, 2, 4, 6, 8 and 10.
    """

    images: range
    tasks: tuple[Any, ...]


class Rotation(Sequence[Any]):
    """The tasks of a core that come round after so many images: rounds of them, one after the other.

    Tasks are records with a field `image`.
    """

    def __init__(self, rounds: Sequence[Rounds]) -> None:
        self.rounds = tuple(made for made in rounds if made.tasks and made.images)

    def __len__(self) -> int:
        return sum(len(images) * len(tasks) for images, tasks in self.rounds)

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]

    def rows(self, of: Callable[[Sequence[Any]], Rows], column: int) -> Rows:
        """Return a row for each task, as `of` makes them of one round; that column is the image."""
        whole = []
        for images, tasks in self.rounds:
            each = of(tasks)
            own = np.tile(each, (len(images), 1))
            own[:, column] += np.repeat(np.array(images, np.int64), len(each))
            whole.append(own)
        return np.concatenate(whole)

    def __iter__(self) -> Iterator[Any]:
        for images, tasks in self.rounds:
            for image in images:
                yield from moved_on(tasks, image)


def moved_on(tasks: Sequence[Any], image: int) -> Iterator[Any]:
    """Yield tasks for images that lie so much further on."""
    for task in tasks:
        yield task._replace(image=task.image + image)


Ranges = Sequence[tuple[int, int]]


def cut(extent: int, part: int) -> list[tuple[int, int]]:
    """Cut an extent into (first, count) ranges of `part`; the last may be shorter."""
    return [(first, min(part, extent - first)) for first in range(0, extent, part)]


def cut_within(ranges: Ranges, part: int) -> list[tuple[int, int]]:
    """Cut each range into ranges of `part`, none of which reaches into the next one."""
    return [(start + first, count) for start, length in ranges for first, count in cut(length, part)]


def enumerated(tiles: Ranges) -> list[tuple[int, int]]:
    """Return where each tile begins, and its number."""
    return [(first, number) for number, (first, _) in enumerate(tiles)]


def numbers_within(tiles: Iterable[tuple[int, Hashable]], part: int) -> list[int]:
    """Return the number of each tile among those that begin in the same part of an extent, from 0.

    tiles   where each begins, and what tells it; neighbours that are one tile have one number
    """
    counts: dict[int, dict[Hashable, int]] = defaultdict(dict)
    return [(own := counts[first // part]).setdefault(told, len(own)) for first, told in tiles]


def numbered(owner: str, order: str, axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return all combinations of the axes, numbered as `order` says: its last axis is the fastest.

    Raises   ConfigError if the order does not name each axis once
    """
    names = order.split()
    if sorted(names) != sorted(axes):
        raise ConfigError(
            f"tiling of {owner}: task_order is {order!r}; it must name each of {', '.join(axes)} once, "
            "slowest first"
        )
    return [dict(zip(names, places, strict=True)) for places in product(*(axes[name] for name in names))]


def deal(tasks: Sequence[Sequence[Any]], tiling: Tiling) -> list[list[Any]]:
    """Return the base blocks of each core, those of one task together, as the tiling maps tasks to cores."""
    cores = min(tiling.used_cores, len(tasks))
    if not cores:
        return []
    if tiling.mapping == "interleaved":
        return [list(chain.from_iterable(tasks[core::cores])) for core in range(cores)]
    return [list(chain.from_iterable(tasks[i] for i in share)) for share in shares(len(tasks), cores)]


def rotated(
    images: int, tasks: int, cores: int, blocks: Callable[[int, int], Sequence[Any]]
) -> list[Rotation]:
    """Return the base blocks of each core where all tasks are numbered image after image and dealt in turn.

    Task t goes to core t modulo `cores`, so that after some images a core makes the same tasks again:
    7 tasks an image on 4 cores come round after 4 images, 6 tasks after 2.

    tasks    of an image; `blocks(image, number)` are the base blocks of one of them
    """
    cores = min(cores, images * tasks)
    if not cores:
        return []
    period = cores // gcd(tasks, cores)
    whole = images - images % period

    def of_images(core: int, count: int) -> tuple[Any, ...]:
        # Number `task` of image i has the number i * tasks + task of all.
        return tuple(
            block
            for image in range(count)
            for task in range((core - image * tasks) % cores, tasks, cores)
            for block in blocks(image, task)
        )

    return [
        Rotation(
            [
                Rounds(range(0, whole, period), of_images(core, period)),
                Rounds(range(whole, images, period), of_images(core, images - whole)),
            ]
        )
        for core in range(cores)
    ]
