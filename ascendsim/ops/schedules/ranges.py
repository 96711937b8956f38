"""Tasks in the order of nested loops, of which only a range is looked at: outer, image, block.

A large batch has hundreds of thousands of tasks, and most differ by their image alone. So they are not
listed; a range of them is a few runs: whole images, and the parts of images at its two ends.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from ascendsim.program.builder import ProgramBuilder


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

    Images are numbered from `first_image` on. `mark` tells blocks that are only some of a product's.
    """

    __slots__ = ("_blocks", "_first_image", "_images", "_make", "_outers", "_range", "mark")

    def __init__(
        self,
        outers: Sequence[Any],
        images: int,
        blocks: Sequence[Any],
        make: Callable[[Any, int, Any], Any],
        numbers: range | None = None,
        first_image: int = 0,
        mark: Hashable = None,
    ) -> None:
        self._outers = outers
        self._images = images
        self._blocks = blocks
        self._make = make
        self._first_image = first_image
        self.mark = mark
        self._range = range(len(outers) * images * len(blocks)) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self._range)

    def __getitem__(self, index: Any) -> Any:
        numbers = self._range[index]
        if isinstance(numbers, range):
            if numbers.step != 1:
                return [self[at] for at in range(len(self))[index]]
            whole = self._outers, self._images, self._blocks, self._make
            return TaskRange(*whole, numbers, self._first_image, self.mark)
        image, block = divmod(numbers, len(self._blocks))
        outer, image = divmod(image, self._images)
        return self._make(self._outers[outer], image + self._first_image, self._blocks[block])

    def __iter__(self) -> Iterator[Any]:
        for run in self.runs():
            for image in run.images:
                yield from self.tasks(run, image)

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

    def tasks(self, run: Run, image: int) -> Iterator[Any]:
        """Yield the tasks of a run in one of its images."""
        outer = self._outers[run.outer]
        for block in self._blocks[run.first : run.last]:
            yield self._make(outer, image, block)

    def chained(self, builder: ProgramBuilder, run: Run, body: Hashable) -> Iterator[Any]:
        """Yield those tasks of a run of one image whose code has to be emitted."""
        outer, blocks = self._outers[run.outer], self._blocks[run.first : run.last]
        for image, block in builder.chain(run.images.start, blocks, (body, outer)):
            yield self._make(outer, image, block)

    def kinds(self) -> set[tuple[Any, Any]]:
        """Return the different (outer, block) in the range."""
        return {
            (self._outers[run.outer], block)
            for run in self.runs()
            for block in self._blocks[run.first : run.last]
        }

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
    def image(self) -> int:
        """Its first image; of nothing 0."""
        return next((run.images.start for run in self.runs()), 0)

    def pattern(self) -> Hashable:
        """Return which blocks it has, and its runs, with images counted from the first one."""
        first = self.image
        runs = [
            Run(outer, range(images.start - first, images.stop - first), begin, end)
            for outer, images, begin, end in self.runs()
        ]
        return self.mark, tuple(runs)

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

    def __iter__(self) -> Iterator[Any]:
        for images, tasks in self.rounds:
            for image in images:
                yield from moved_on(tasks, image)


def moved_on(tasks: Sequence[Any], image: int) -> Iterator[Any]:
    """Yield tasks for images that lie so much further on."""
    for task in tasks:
        # The image in front: a lap may be moved by a number, not a number by a lap.
        yield task._replace(image=image + task.image)


def looped(builder: ProgramBuilder, tasks: Sequence[Any], body: Hashable = ()) -> Iterator[Any]:
    """Yield the tasks whose code has to be emitted: images are a loop of the program.

    Tasks that are listed one by one are no loop. `body` is what their code depends on besides.
    """
    if isinstance(tasks, Cells):
        for cell in tasks.ranges:
            yield from looped(builder, cell, body)
        return
    if isinstance(tasks, Rotation):
        for images, each in tasks.rounds:
            for image in builder.loop(images):
                yield from moved_on(each, image)
        return
    if not isinstance(tasks, TaskRange):
        yield from tasks
        return
    for run in tasks.runs():
        if len(run.images) == 1:
            yield from tasks.chained(builder, run, body)
            continue
        for image in builder.loop(run.images, (body, tasks.mark, run.outer, run.first, run.last)):
            yield from tasks.tasks(run, image)
