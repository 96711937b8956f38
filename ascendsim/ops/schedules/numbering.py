"""Tasks of several base blocks: how they are numbered, and which core makes which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain, product
from math import gcd
from typing import Any

from ascendsim.errors import ConfigError
from ascendsim.ops.plan import Tiling, shares
from ascendsim.ops.schedules.ranges import Rotation, Rounds

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
