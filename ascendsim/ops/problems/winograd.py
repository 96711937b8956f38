"""How grad_weight by Winograd cuts the pixels of the small side: tiles of 2 x 2, in clusters of 32 tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ascendsim.numerics.winograd import PIXELS, WINDOW

# Rows and columns of tiles in a cluster; the reduction of one Mmad.
SHAPES: Final = ((2, 16), (4, 8))
CLUSTER: Final = 32


class Cluster(NamedTuple):
    """One cluster: its image, and which of the clusters of that image it is, down and across."""

    image: int
    row: int
    column: int


@dataclass(frozen=True)
class Clusters:
    """The clusters of all images.

    rows, columns   tiles of a cluster, down and across
    down, across    clusters of an image
    """

    batch: int
    rows: int
    columns: int
    down: int
    across: int

    @classmethod
    def of(cls, batch: int, size: tuple[int, int]) -> Clusters:
        """Return those of images of so many rows and columns on the small side.

        The shape is the one that needs fewer clusters, of equal ones 2 x 16.
        Source   host code of the public operator (ops-nn), as read
        """
        tiles = [-(-extent // PIXELS) for extent in size]
        found = (
            cls(batch, rows, columns, -(-tiles[0] // rows), -(-tiles[1] // columns))
            for rows, columns in SHAPES
        )
        return min(found, key=lambda one: one.of_image)

    @property
    def of_image(self) -> int:
        """Clusters of one image."""
        return self.down * self.across

    def __len__(self) -> int:
        return self.batch * self.of_image

    def part(self, part: int, parts: int) -> range:
        """Return the clusters of a part of the reduction, by number; parts are equal but for the last."""
        length = -(-len(self) // parts)
        return range(min(part * length, len(self)), min((part + 1) * length, len(self)))

    def at(self, number: int) -> Cluster:
        """Return a cluster by its number: images are the slowest, then rows."""
        image, rest = divmod(number, self.of_image)
        return Cluster(image, *divmod(rest, self.across))

    def tiles(self, cluster: Cluster) -> Iterator[tuple[int, int]]:
        """Yield the first row and column on the small side of each tile of a cluster, row by row."""
        for row in range(self.rows):
            for column in range(self.columns):
                yield (
                    (cluster.row * self.rows + row) * PIXELS,
                    (cluster.column * self.columns + column) * PIXELS,
                )

    @property
    def small_pixels(self) -> tuple[int, int]:
        """Rows and columns of the small side that a cluster covers, side by side."""
        return self.rows * PIXELS, self.columns * PIXELS

    @property
    def big_pixels(self) -> tuple[int, int]:
        """Rows and columns of the big side that a cluster covers: its tiles overlap by two pixels."""
        rows, columns = self.small_pixels
        return rows + WINDOW - PIXELS, columns + WINDOW - PIXELS
