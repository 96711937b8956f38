"""The orders in which gradients are added, which are all that their bits depend on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from ascendsim.instructions.winograd import PIXELS, WINDOW

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class DgradOrder:
    """The order of grad_input: C0, and how many (channel group, tap) pairs each Mmad in turn takes.

    The slices cover the reduction at one kernel depth; every kernel depth repeats them. Where the reduction
    is cut into parts, `parts` holds the number of slices of each; a part runs through all kernel depths, and
    the parts are added to a zero in global memory, one after the other.

    `axes`, if any: "h" or "hw", along which the stride splits the kernel. Then `phases` has the slices of
    each phase, those along W the fastest, and there are no others; `phase_parts`, if any, their parts.

    `tap_loop`, if any: "kh" or "khkw", the taps that one pass takes. A part goes through the passes at each
    kernel depth, and in a pass through its channel groups under the taps of the pass. `slices` follow that.
    A pass is left out for those of the `tiles`, runs (first pixel, pixels) of an image, for which it would
    read nothing but padding and zeros between pixels.
    """

    # The blocks of an accumulation model start anew with every Mmad, so where each one ends matters to the
    # bits. Which core makes it, when, and from which slot, does not.
    c0: int
    slices: tuple[int, ...]
    parts: tuple[int, ...] = ()
    axes: str = ""
    phases: tuple[tuple[int, ...], ...] = ()
    phase_parts: tuple[tuple[int, ...], ...] = ()
    tap_loop: str = ""
    tiles: tuple[tuple[int, int], ...] = ()

    def of_phase(self, number: int) -> DgradOrder:
        """Return the order of one phase."""
        parts = self.phase_parts[number] if self.phase_parts else ()
        return DgradOrder(self.c0, self.phases[number], parts)

    def runs(self) -> list[tuple[int, ...]]:
        """Return the slices of each part."""
        # Without parts the whole reduction is one, which is not added to anything.
        ends = list(accumulate(self.parts)) or [len(self.slices)]
        return [self.slices[first:last] for first, last in pairwise([0, *ends])]


class StreamOrder(NamedTuple):
    """The part of grad_weight that stream-K adds in parts, and what a part is.

    blocks    (group, kernel depth, first row, rows, first column, columns) of the result, where columns go
              through (group of c0 channels, tap, channel)
    axis      "batch_depth": part p takes images p * length ... of all, depth after depth of the small side;
              "height": rows p * length ... of each image
    ranges    the runs of pixels in one image, which end where parts end
    """

    blocks: tuple[tuple[int, int, int, int, int, int], ...]
    c0: int
    axis: str
    length: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class WgradOrder:
    """The order of grad_weight.

    ranges    (first pixel, pixels) of the runs into which the pixels of one image are cut, in order
    base_k    pixels of one Mmad, counted from the beginning of each range
    k_split   parts of the reduction; part p takes segments count * p // k_split ... of all (pair of depths,
              image, range) at a kernel depth
    shares    if any: how many of the ranges each share of an image has; part (image * small depths + depth) *
              len(shares) + s takes share s of one image at one small depth, whatever depth of the big side
    stream    if any: `k_split` parts are made of what it says alone; all other elements are added as a whole
    grid      of a grid, for each part: its images, and its runs of each of them, by number; else empty
    tree      the parts are added as a binary tree: neighbours first, then sums of two, of four, ...
    strip_w   the pixels of an image are numbered strip after strip of so many columns, in a strip row after
              row; 0: row after row
    arrivals  None: the parts are added as 0, 1, 2, ..., beginning with part 0;
              (k_split, *weight): for each element the number of the part that is added first, second, ... to
              a zero in global memory
    """

    ranges: tuple[tuple[int, int], ...]
    base_k: int
    k_split: int = 1
    arrivals: NDArray[np.int_] | None = None
    tree: bool = False
    shares: tuple[int, ...] = ()
    stream: StreamOrder | None = None
    grid: tuple[tuple[range, range], ...] = ()
    strip_w: int = 0


class WinogradBlock(NamedTuple):
    """Some channels of both sides of the result, with all their taps."""

    first_small: int
    small: int
    first_big: int
    big: int


@dataclass(frozen=True)
class WinogradOrder:
    """The order of a grad_weight by Winograd: sums over the clusters of tiles, one Mmad a cluster and point.

    clusters  the clusters, in the order in which they are added
    parts     parts of the reduction of the `streamed` blocks, of equal length but for the last. Each is
              brought to taps by itself, and these are added as 0, 1, 2, ..., beginning with part 0. All other
              elements are added as a whole
    """

    clusters: Clusters
    parts: int = 1
    streamed: tuple[WinogradBlock, ...] = ()


@dataclass(frozen=True)
class MatmulOrder:
    """The order of a matrix product: its reduction goes through Mmads of so many elements."""

    base_k: int


# Rows and columns of tiles in a cluster; the reduction of one Mmad.
SHAPES: Final = ((2, 16), (4, 8))
CLUSTER: Final = 32


class Cluster(NamedTuple):
    """One cluster: its image, and its place among the image's clusters, down and across."""

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
        """Return the clusters of images by rows and columns of the small side.

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
