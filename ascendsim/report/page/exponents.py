"""A picture of where the exponents of a tensor lie, and what ranges formats have."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, LEFT, RIGHT, TOP, PLOT, ROW = 720, 130, 20, 24, 150, 22
SHOWN = 60  # binades: the tail below them is drawn as one bar, so that the rest stays legible


class Bars(NamedTuple):
    """Counts of values by binade: exponent of the first one, counts from there."""

    first: int
    counts: tuple[int, ...]


class Range(NamedTuple):
    """What a format holds, as exponents: of its smallest value, its smallest normal one, and its largest.

    `shift` is the base-2 logarithm of a loss scale, by which the range moves down.
    """

    label: str
    smallest: float
    normal: float
    largest: float
    shift: float = 0.0


def exponents(bars: Bars, ranges: Sequence[Range]) -> str:
    """Draw counts by binade, and below them each format: normal values as a bar, subnormal ones lighter."""
    first, counts, cut = _shown(bars)
    last = first + len(counts)
    step = (WIDTH - LEFT - RIGHT) / max(len(counts), 1)
    most = max(counts, default=1) or 1
    total, bottom = sum(counts) or 1, TOP + PLOT
    parts = [_text(LEFT - 8, TOP + 10, f"{most / total:.0%}", "end"), _text(LEFT - 8, bottom, "0", "end")]
    for at, count in enumerate(counts):
        height = PLOT * count / most
        below = f"below 2^{first + 1}" if cut and at == 0 else f"2^{first + at}"
        said = f"{below}: {count:,} values, {count / total:.2%}"
        parts.append(_rect(LEFT + at * step, bottom - height, step * 0.9, height, "marked", said))
        if (first + at) % 5 == 0:
            parts.append(_text(LEFT + (at + 0.5) * step, bottom + 14, str(first + at), "middle"))
    parts.append(_text(WIDTH - RIGHT, TOP - 8, "share of the non-zero values, by exponent of 2", "end"))

    def place(exponent: float) -> float:
        return LEFT + step * (min(max(exponent, first), last) - first)

    for at, one in enumerate(ranges):
        top = bottom + 24 + at * ROW
        parts.append(_text(LEFT - 8, top + 12, one.label, "end"))
        ends = [place(end - one.shift) for end in (one.smallest, one.normal, one.largest)]
        least, normal, largest = (
            f"2^{end - one.shift:.4g}" for end in (one.smallest, one.normal, one.largest)
        )
        kinds = f"{one.label}: subnormal from {least}", f"{one.label}: normal from {normal} to {largest}"
        parts.append(_rect(ends[0], top + 2, ends[1] - ends[0], 12, "subnormal", kinds[0]))
        parts.append(_rect(ends[1], top + 2, ends[2] - ends[1], 12, "normal", kinds[1]))
    height = bottom + 30 + ROW * len(ranges)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'


def _shown(bars: Bars) -> tuple[int, tuple[int, ...], bool]:
    """Return the binades that are drawn: the last ones, with what lies below them in the first."""
    extra = len(bars.counts) - SHOWN
    if extra <= 0:
        return bars.first, bars.counts, False
    tail = sum(bars.counts[: extra + 1])
    return bars.first + extra, (tail, *bars.counts[extra + 1 :]), True


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, kind: str, said: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.0):.1f}" height="{height:.1f}">'
        f"<title>{escape(said)}</title></rect>"
    )
