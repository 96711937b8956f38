"""Changes between row after row and the cube's layouts, as boxes of elements that can be turned one by one.

Each change sees its two tensors under shapes of its own, which only group the axes: `plain` is row after row,
`packed` one of the layouts of `ops/lowering/graph.py`. P are the pixels of a plane, T the taps of one.

    pixels     plain (N, all channels, D, P)     packed (groups, N, D, C1, P, C0)
    weights    plain (groups, S, B, KD, T)       packed (groups, KD, C1, T, C0, columns), to be read
    gradients  plain (groups, S, B, KD, T)       packed (groups, KD, rows, C1, T, C0), as they were made

A box is a part of one plane: some groups of channels (C1), a range of pixels, or of the other channels (the
line), and a range of taps, counted through all kernel depths.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

from ascendsim.frozen import cached_property
from ascendsim.instructions.relayout import AnyTurn, Turn
from ascendsim.ops.problems.convolution import C0_BYTES, groups_of
from ascendsim.program.places import GmTensor

Index = tuple[Any, ...]
# Fields of a change that are its tensors.
TENSORS = ("plain", "packed")


class Box(NamedTuple):
    """A part of a change: plane number `plane`, groups of channels, a part of the line, and taps."""

    plane: int
    c1: range
    line: range
    taps: range


class BoxSide(NamedTuple):
    """The elements of a box in one of the two tensors.

    place, shape      the slices of the tensor that the box is, and their extents
    rows              number of its runs: elements of the box that lie end to end in the tensor
    row_bytes         bytes of each run
    """

    place: Index
    shape: tuple[int, ...]
    rows: int
    row_bytes: int

    @property
    def room(self) -> int:
        """The bytes that it takes in UB: rows of whole blocks."""
        return self.rows * -(-self.row_bytes // C0_BYTES) * C0_BYTES

    @property
    def padded(self) -> int:
        """The number of rows that are no whole blocks."""
        return self.rows if self.row_bytes % C0_BYTES else 0


@dataclass(frozen=True)
class Relayout(ABC):
    """A change of layout between two tensors; `packs` is its direction.

    channels   of one group, those that are brought together in groups of C0
    apart      no two boxes have an element in common, in neither tensor
    """

    plain: GmTensor
    packed: GmTensor
    channels: int
    packs: bool

    taps: ClassVar[bool] = True
    apart: ClassVar[bool] = True
    c0_axis: ClassVar[int] = -1

    @property
    def recipe(self) -> Hashable:
        """A key of the change, besides its tensors."""
        own = fields(self)
        return type(self), *[getattr(self, field.name) for field in own if field.name not in TENSORS]

    @property
    def source(self) -> GmTensor:
        """The tensor that is read."""
        return self.plain if self.packs else self.packed

    @property
    def target(self) -> GmTensor:
        """The tensor that is written."""
        return self.packed if self.packs else self.plain

    @cached_property
    def c0(self) -> int:
        """Channels in a group."""
        return self.packed.shape[self.c0_axis]

    @property
    def step(self) -> int:
        """Elements of a line that are not cut: those of a fractal that lie along it."""
        return self.c0 if self.taps else 16

    @cached_property
    def c1(self) -> int:
        """Groups of channels."""
        return groups_of(self.channels, self.c0)

    @property
    @abstractmethod
    def planes(self) -> int:
        """The number of planes; a plane has all groups of channels."""

    @property
    @abstractmethod
    def line(self) -> int:
        """The length of a line: the pixels of a plane, or its channels that are not in groups."""

    @property
    def lines_together(self) -> int:
        """Elements of a line that stay together, if a line is cut without regard to fractals."""
        return self.step

    @property
    def line_there(self) -> int:
        """Elements of a line that there are row after row; what is behind them fills it up."""
        return self.line

    @property
    def area(self) -> int:
        """Taps; pixels have none."""
        return 1

    @property
    def depth_area(self) -> int:
        """Taps that lie together in the cube's layout."""
        return 1

    @abstractmethod
    def plain_shape(self, box: Box) -> tuple[int, ...]:
        """Return the shape of a box row after row: that of its `plain_side`, without where it lies."""

    @abstractmethod
    def plain_side(self, box: Box) -> BoxSide:
        """Return where a box lies row after row."""

    @abstractmethod
    def packed_side(self, box: Box) -> BoxSide:
        """Return where a box lies in the cube's layout."""

    @abstractmethod
    def turn(self, box: Box) -> AnyTurn:
        """Return the exchange of the box's axes."""

    @property
    def even(self) -> bool:
        """Return whether the cost of a box follows from its extents, wherever it lies."""
        return True

    def mark(self, box: Box) -> tuple[int, ...]:  # noqa: ARG002 - of use to changes that are not even
        """Return the inputs of a box's cost besides its extents: its place, if places differ in cost."""
        return ()

    def together(self, planes: range) -> int:
        """Return how many of these planes, from the first one on, have equal boxes of equal cost."""
        return len(planes)

    def read_side(self, box: Box) -> BoxSide:
        """Return where a box is read."""
        return self.plain_side(box) if self.packs else self.packed_side(box)

    def write_side(self, box: Box) -> BoxSide:
        """Return where a box is written."""
        return self.packed_side(box) if self.packs else self.plain_side(box)

    def sides(self, box: Box) -> tuple[BoxSide, BoxSide]:
        """Return where a box is read and where it is written."""
        return self.read_side(box), self.write_side(box)

    def within(self, half: int) -> Relayout:  # noqa: ARG002 - of use to pixels
        """Return the change as done by a kernel with `half` bytes in half of UB."""
        return self

    def blocks(self, box: Box) -> int:  # noqa: ARG002 - of use to pixels
        """Return the blocks of 32 bytes of rows of pixels that are turned, many at a time."""
        return 0

    def loose(self, box: Box) -> int:
        """Return the number of blocks of 32 bytes that are placed singly: those that a box has row by row."""
        count = 1
        for extent in self.plain_shape(box):
            count *= extent
        return -(-count * self.plain.itemsize // C0_BYTES)

    def _kept(self, c1: range) -> slice:
        """Return the channels that some groups have."""
        return slice(c1.start * self.c0, min(c1.stop * self.c0, self.channels))


@dataclass(frozen=True)
class PixelRelayout(Relayout):
    """A change of an activation.

    dense   channels lie end to end in UB, too: those of a box are one run, whose rows begin anywhere
    """

    dense: bool = False

    taps: ClassVar[bool] = False

    @property
    def planes(self) -> int:
        """Groups, images and depths."""
        groups, images, depths = self.packed.shape[:3]
        return groups * images * depths

    @property
    def line(self) -> int:
        """Pixels of a plane."""
        return self.packed.shape[4]

    def _place(self, plane: int) -> tuple[int, int, int]:
        """Return group, image and depth of a plane."""
        images, depths = self.packed.shape[1:3]
        group, rest = divmod(plane, images * depths)
        return group, *divmod(rest, depths)

    def _channels(self, group: int, c1: range) -> tuple[int, int]:
        """Return the first channel that some groups of C0 of a group have, and the one behind the last."""
        kept, whole = self._kept(c1), self.plain.shape[1]
        first = group * self.channels
        # The last of merged groups may have fewer channels than the others, or none in some of its C1.
        return min(first + kept.start, whole), min(first + kept.stop, whole)

    def plain_shape(self, box: Box) -> tuple[int, ...]:
        """Return channels and pixels."""
        first, end = self._channels(self._place(box.plane)[0], box.c1)
        return end - first, len(box.line)

    def plain_side(self, box: Box) -> BoxSide:
        """Return the channels of the box, a row of pixels each."""
        group, image, depth = self._place(box.plane)
        first, end = self._channels(group, box.c1)
        place = (image, slice(first, end), depth, part(box.line))
        rows, row = end - first, len(box.line) * self.plain.itemsize
        runs = min(rows, 1) if self.dense and len(box.line) == self.line else rows
        return BoxSide(place, (rows, len(box.line)), runs, row * rows // max(1, runs))

    @property
    def even(self) -> bool:
        """Return whether the last group of channels is as full as the others."""
        return self.plain.shape[1] >= self.packed.shape[0] * self.channels

    def mark(self, box: Box) -> tuple[int, ...]:
        """Return which groups of channels these are, where the last group has fewer channels than others."""
        last = self._place(box.plane)[0] == self.packed.shape[0] - 1
        return (box.c1.start,) if last and not self.even else ()

    def together(self, planes: range) -> int:
        """Return the number of planes before those of the last group, which may have fewer channels."""
        groups = self.packed.shape[0]
        before = range(planes.start, min(planes.stop, self.planes // groups * (groups - 1)))
        return len(planes) if self.even else len(before) or len(planes)

    def packed_side(self, box: Box) -> BoxSide:
        """Return the groups of the box, a row of pixels of C0 channels each."""
        pixels = part(box.line)
        place = (*self._place(box.plane), part(box.c1), pixels)
        shape = (len(box.c1), len(box.line), self.c0)
        return BoxSide(place, shape, len(box.c1), len(box.line) * self.c0 * self.packed.itemsize)

    def turn(self, box: Box) -> Turn:
        """Return (channels, pixels) -> (C1, pixels, C0), or back."""
        groups, pixels, c0 = len(box.c1), len(box.line), self.c0
        rows, made = self.plain_shape(box), (groups, pixels, c0)
        whole, split = (groups * c0, pixels), (groups, c0, pixels)
        if self.packs:
            return Turn(whole, split, (0, 2, 1), made, made)
        return Turn(made, made, (0, 2, 1), whole, rows)

    def within(self, half: int) -> PixelRelayout:
        """Return the change with rows end to end if these are no whole blocks and half of UB holds a plane.

        Then one copy moves all of them, in place of one for each row.
        """
        row, (_, channels, depths, _) = self.line * self.plain.itemsize, self.plain.shape
        dense = depths == 1 and row % C0_BYTES > 0 and min(self.channels, channels) * row <= half
        return replace(self, dense=dense)

    def blocks(self, box: Box) -> int:
        """Return the blocks of the box, in which each channel begins one of its own."""
        rows, pixels = self.plain_shape(box)
        return rows * -(-pixels * self.plain.itemsize // C0_BYTES)

    def loose(self, box: Box) -> int:
        """Return the rows that do not begin at blocks."""
        whole = self.dense and len(box.line) == self.line
        return self.plain_shape(box)[0] if whole else 0


def part(extent: range) -> slice:
    """Return a range as a slice."""
    return slice(extent.start, extent.stop)
