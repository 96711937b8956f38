"""The law of load3d: what its fractals and its commands take."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ascendsim.profile import Profile

FRACTAL_BYTES = 512
FRACTAL_ROWS = 16


def load3d_cycles(
    profile: Profile, buffer: str, stride_w: int, run: tuple[int, int, int], groups: int
) -> Fraction:
    """Return the cycles of load3d for a run of pixels under `groups` (channel group, tap) pairs.

    `run` is the first pixel's place in its row, the number of pixels, and the pixels of a row.
    """
    # load3d makes a fractal from 16 pixels. Those of one output row lie a stride apart; each further row
    # begins somewhere else and costs the mover a cycle more (the law is in `profile.load3d`).
    law, spans = profile.load3d[buffer], row_spans(*run)
    cycles = sum(count * law.fractal_cycles(stride_w, spanned) for spanned, count in spans.items())
    commands: int = law.commands(sum(spans.values()), groups)
    return Fraction(FRACTAL_BYTES * cycles * groups, law.fractal_bytes) + law.command_cycles * commands


def row_spans(offset: int, pixels: int, out_width: int) -> dict[int, int]:
    """Count the fractals of 16 consecutive pixels by the number of output rows they span.

    `offset` is the first pixel's place in its row. The last fractal may be short.
    """
    # Fractals are cut from the first pixel of the load on, not from the beginning of a row. So a load that
    # begins inside a row has other fractals that go over its end than one that begins with it.
    spans: dict[int, int] = {}
    for first in range(offset, offset + pixels, FRACTAL_ROWS):
        last = min(first + FRACTAL_ROWS, offset + pixels) - 1
        rows = last // out_width - first // out_width + 1
        spans[rows] = spans.get(rows, 0) + 1
    return spans
