"""Words beside dots, where they cover neither dots nor each other: a drawing on paper has no pointer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from ascendsim.report.page.shapes import CHAR, WIDTH, line, text

RADIUS, HEIGHT, TOP = 6.0, 11.0, 6.0
# Directions in which a word stands from its dot, the most legible first, and how its place is counted.
_SIDES = (
    # Above to the right first: the line of a front falls, and leaves that side free.
    *((1, -1, "start"), (1, 0, "start"), (-1, 0, "end"), (0, -1, "middle")),
    *((0, 1, "middle"), (1, 1, "start"), (-1, -1, "end"), (-1, 1, "end")),
)
# Distances from the dot; from the third on a line leads to it.
_RINGS = (9.0, 14.0, 24.0, 38.0, 54.0, 72.0)
_LED = 24.0
# The side of a square, about as high as a word.
_SQUARE = 16.0
_SHIFT = {"start": 0.0, "middle": 0.5, "end": 1.0}


class _Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


class _Taken:
    """Boxes that are taken, by the squares of the drawing that they touch: a study may have thousands."""

    def __init__(self, boxes: Iterable[_Box]) -> None:
        self._by_square: dict[tuple[int, int], list[_Box]] = {}
        for box in boxes:
            self.add(box)

    def add(self, box: _Box) -> None:
        """Take a box."""
        for square in _squares(box):
            self._by_square.setdefault(square, []).append(box)

    def meets(self, box: _Box) -> bool:
        """Tell whether a box meets one that is taken."""
        return any(box.meets(other) for square in _squares(box) for other in self._by_square.get(square, ()))


def _squares(box: _Box) -> Iterator[tuple[int, int]]:
    left, top, right, bottom = (int(edge // _SQUARE) for edge in box)
    return product(range(left, right + 1), range(top, bottom + 1))


class _Place(NamedTuple):
    x: float
    y: float
    anchor: str
    distance: float
    box: _Box


def labels(dots: Sequence[tuple[float, float]], words: Sequence[str], bottom: float) -> list[str]:
    """Return a text beside each dot, all above `bottom`; one that finds no room is nearest its dot."""
    taken = _Taken(_Box(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in dots)
    frame = _Box(0, TOP, WIDTH, bottom)
    parts = []
    for (x, y), said in zip(dots, words, strict=True):
        places = list(_places(x, y, said))
        free = (p for p in places if _inside(p.box, frame) and not taken.meets(p.box))
        place = next(free, places[0])
        taken.add(place.box)
        if place.distance >= _LED:
            parts.append(line(x, y, place.x, place.y - HEIGHT / 3, "leader"))
        parts.append(text(place.x, place.y, said, place.anchor))
    return parts


def _places(x: float, y: float, said: str) -> Iterator[_Place]:
    width = CHAR * len(said)
    for distance in _RINGS:
        for right, down, anchor in _SIDES:
            # A text stands on its line, so that its middle is a third of its height above it.
            at_x, at_y = x + right * distance, y + down * distance + HEIGHT / 3
            left = at_x - _SHIFT[anchor] * width
            box = _Box(left, at_y - HEIGHT, left + width, at_y + HEIGHT / 4)
            yield _Place(at_x, at_y, anchor, distance, box)


def _inside(box: _Box, frame: _Box) -> bool:
    return (
        frame.left <= box.left
        and frame.top <= box.top
        and box.right <= frame.right
        and box.bottom <= frame.bottom
    )
