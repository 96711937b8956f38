"""What the base blocks of a dgrad are told by."""

from __future__ import annotations

from typing import NamedTuple


class Task(NamedTuple):
    """One base block; of a kernel that the stride splits, of one phase, in which its pixels are counted."""

    group: int
    image: int
    depth: int
    first_pixel: int
    pixels: int
    first_column: int
    columns: int
    phase: int = 0


# Depth, first pixel, pixels, first column and columns of a base block of an image.
Block = tuple[int, int, int, int, int]


def task_of(group: int, image: int, block: Block) -> Task:
    """Return a base block of an image."""
    return Task(group, image, *block)
