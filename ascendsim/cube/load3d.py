"""The law of load3d: what its fractals and its commands take."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ascendsim.profile import Profile

FRACTAL_BYTES = 512
FRACTAL_ROWS = 16


def fractal_pixels(buffer: str, itemsize: int) -> int:
    """Return the pixels that one fractal of 512 bytes has in L0A or L0B."""
    # In L0A pixels are the rows of a fractal, 16 of them. In L0B they are the reduction, of which a fractal
    # has 32 bytes: 16 pixels of 2 bytes, 8 of 4.
    return FRACTAL_ROWS if buffer == "L0A" else FRACTAL_BYTES // FRACTAL_ROWS // itemsize


def load3d_cycles(
    profile: Profile, buffer: str, stride_w: int, run: tuple[int, int, int], groups: int, itemsize: int
) -> Fraction:
    """Return the cycles of load3d for a run of pixels under `groups` (channel group, tap) pairs.

    `run` is the first pixel's place in its row, the number of pixels, and the pixels of a row.
    """
    # The pixels of a fractal that lie in one output row lie a stride apart; each further row begins somewhere
    # else and costs the mover a cycle more (the law is in `profile.load3d`).
    law, deep = profile.load3d[buffer], fractal_pixels(buffer, itemsize)
    spans = row_spans(*run, deep)
    cycles = sum(count * law.fractal_cycles(stride_w, spanned) for spanned, count in spans.items())
    # A fractal has 16 columns in L0B: of 8 pixels those of two groups.
    data = Fraction(FRACTAL_BYTES * cycles * groups * deep, law.fractal_bytes * FRACTAL_ROWS)
    commands: int = law.commands(-(-run[1] // FRACTAL_ROWS), groups)
    return data + law.command_cycles * commands


def row_spans(offset: int, pixels: int, out_width: int, deep: int = FRACTAL_ROWS) -> dict[int, int]:
    """Count the fractals of so many consecutive pixels by the number of output rows they span.

    `offset` is the first pixel's place in its row. The last fractal may be short.
    """
    # Fractals are cut from the first pixel of the load on, not from the beginning of a row. So a load that
    # begins inside a row has other fractals that go over its end than one that begins with it.
    spans: dict[int, int] = {}
    for first in range(offset, offset + pixels, deep):
        last = min(first + deep, offset + pixels) - 1
        rows = last // out_width - first // out_width + 1
        spans[rows] = spans.get(rows, 0) + 1
    return spans
