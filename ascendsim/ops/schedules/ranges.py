"""Base blocks as records of numbers: a schedule numbers them, groups equal ones, and deals them to cores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.errors import ConfigError
from ascendsim.ops.plan import shares

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Numbers = NDArray[np.int64]

    # Records with a field for each index of a task, as the nest names them (`Nest.task`).
    Tasks = NDArray[Any]


def tasks_of(fields: str, *axes: ArrayLike) -> Tasks:
    """Return all combinations of some axes as records, the last axis the fastest.

    fields  their names in the order of the axes; an axis of rows has one for each number of a row
    """
    names = fields.split()
    tables = [table if (table := np.asarray(axis, np.int64)).ndim == 2 else table[:, None] for axis in axes]
    rows = np.empty((*map(len, tables), len(names)), np.int64)
    first = 0
    for number, table in enumerate(tables):
        # Along its own axis; alike along all others.
        others = [1] * (len(tables) - number - 1)
        rows[..., first : first + table.shape[1]] = table.reshape(len(table), *others, table.shape[1])
        first += table.shape[1]
    return rows.view(np.dtype((np.record, [(name, np.int64) for name in names]))).reshape(-1)


def joined(parts: Sequence[Tasks]) -> Tasks:
    """Return the tasks of several parts, one part after the other."""
    # Records stay records: what is joined has their fields alone.
    return np.concatenate(parts).view(parts[0].dtype)


def listed(tasks: Sequence[Any]) -> Tasks:
    """Return tasks as an array, where somebody lists or sorts them one by one."""
    return np.asarray(tasks)


class BlockRun(NamedTuple):
    """Blocks number `first` to `last`, for each of some images."""

    outer: int
    images: range
    first: int
    last: int


def runs_of(numbers: range, images: int, each: int) -> list[BlockRun]:
    """Return which blocks some numbers are, that count through outers, their images and `each` block of one.

    An example: 2 groups, 3 images and 4 blocks are 24. Numbers 6 to 13 are blocks 2 and 3 of image 1 of group
    0, all blocks of image 2, and blocks 0 and 1 of image 0 of group 1: three runs.
    """
    found = []
    at, stop = numbers.start, numbers.stop
    while at < stop:
        image, first = divmod(at, each)
        outer, image = divmod(image, images)
        end = min(stop, (outer + 1) * images * each)
        # Part of an image first, then whole images, then part of one at the end.
        whole = 1 if first else max(1, (end - at) // each)
        last = min(each, first + end - at)
        found.append(BlockRun(outer, range(image, image + whole), first, last))
        at += whole * (last - first)
    return found


Ranges = Sequence[tuple[int, int]]


def cut(extent: int, part: int) -> list[tuple[int, int]]:
    """Cut an extent into (first, count) ranges of `part`; the last may be shorter."""
    return [(first, min(part, extent - first)) for first in range(0, extent, part)]


def cut_within(ranges: Ranges, part: int) -> list[tuple[int, int]]:
    """Cut each range into ranges of `part` that do not reach into the next range."""
    return [(start + first, count) for start, length in ranges for first, count in cut(length, part)]


def cut_at(ranges: Ranges, part: int) -> list[tuple[int, int]]:
    """Cut (first, count) ranges at the multiples of a size, such as pixels where rows end."""
    return [
        (max(first, at), min(first + count, at + part) - max(first, at))
        for first, count in ranges
        for at in range(first // part * part, first + count, part)
    ]


def enumerated(tiles: Ranges) -> list[tuple[int, int]]:
    """Return where each tile begins, and its number."""
    return [(first, number) for number, (first, _) in enumerate(tiles)]


def numbers_within(tiles: Iterable[tuple[int, Hashable]], part: int) -> list[int]:
    """Return the number of each tile among those that begin in the same part of an extent, from 0.

    tiles   the first place and the key of each tile; neighbours that are one tile have one number
    """
    counts: dict[int, dict[Hashable, int]] = defaultdict(dict)
    return [(own := counts[first // part]).setdefault(told, len(own)) for first, told in tiles]


def parts_of(tiles: Ranges, part: int) -> tuple[Numbers, int]:
    """Return which part of an extent each tile begins in, and how many parts there are."""
    of = np.array([first // part for first, _ in tiles], np.int64)
    return of, int(of.max(initial=-1)) + 1


def chunks_of(numbers: Numbers, total: int, parts: int) -> tuple[Numbers, int]:
    """Return which of the `chunks` of an extent some numbers lie in, and how many there are."""
    each = max(1, -(-total // max(1, parts)))
    return numbers // each, -(-total // each)


def spread(counts: Numbers) -> tuple[Numbers, Numbers]:
    """Return for each of so many things of each place its place, and its number there."""
    place = np.repeat(np.arange(len(counts)), counts)
    return place, np.arange(len(place)) - (np.cumsum(counts) - counts)[place]


def mixed(*columns: Numbers) -> Numbers:
    """Return one number for each row of some columns of numbers from 0 on; equal rows have equal ones."""
    key = columns[0]
    for column in columns[1:]:
        key = key * (int(column.max(initial=0)) + 1) + column
    return key


def as_met(told: Numbers) -> bytes:
    """Return the same bytes for lists that are alike but for the names of what they list.

    Things are numbered as they are met first, as by `alike`, which takes three times as long for millions.
    """
    _, first, which = np.unique(told, return_index=True, return_inverse=True)
    return first.argsort().argsort()[which].tobytes()


def numbered(owner: str, order: str, axes: Mapping[str, tuple[Numbers, int]]) -> tuple[Numbers, int]:
    """Return the number of each of some things, and how many numbers there are.

    order   the axes, along which things are numbered, the last the fastest
    axes    where each of the things lies on an axis, and how long that is

    Raises  ConfigError if the order does not name each axis once
    """
    names = order.split()
    if {*names} != axes.keys() or len(names) > len(axes):
        raise ConfigError(
            f"tiling of {owner}: task_order is {order!r}; it must name each of {', '.join(axes)} once, "
            "slowest first"
        )
    number, count = np.zeros(1, np.int64), 1
    for own, extent in (axes[name] for name in names):
        number, count = number * extent + own, count * extent
    return number, count


def deal(tasks: Tasks, units: Numbers, count: int, cores: int, *, in_turn: bool) -> list[Tasks]:
    """Return the tasks of each core: those of one unit together, unit after unit.

    units     the number of the unit that each task belongs to, of so many
    in_turn   unit u goes to core u modulo the cores; else a core has a range of them
    """
    cores = min(cores, count)
    if not cores:
        return []
    ends = [share.stop for share in shares(count, cores)]
    core = units % cores if in_turn else np.searchsorted(ends, units, side="right")
    # What is in a unit stays in its order.
    order = np.lexsort((units, core))
    edges = np.searchsorted(core[order], range(cores + 1)).tolist()
    return [tasks[order[first:last]] for first, last in pairwise(edges)]
