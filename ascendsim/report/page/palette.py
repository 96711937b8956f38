"""The colours of parts: one for each thing that a picture tells apart, never one for two."""

from __future__ import annotations

from collections.abc import Iterable

# Of clearly different hue or lightness, neighbours most of all; legible on white paper.
COLOURS = (
    *("#1f5fa8", "#c2862b", "#2f7d4f", "#b3412e", "#6b4fa0", "#3d8c95"),
    *("#8a6d52", "#d98fb5", "#222831", "#a9bd3f", "#7fb2e5", "#c9a9e0"),
)
REST = "all others"
REST_COLOUR = "#b4bac1"


def told_apart(parts: Iterable[tuple[str, float]]) -> tuple[str, ...]:
    """Return the names that have a colour of their own, in the order in which they came.

    parts   (name, amount), a name as often as it comes; of more names than colours the largest have one, and
            what is left is REST
    """
    sums: dict[str, float] = {}
    for name, amount in parts:
        sums[name] = sums.get(name, 0.0) + amount
    largest = sorted(sums, key=lambda name: -sums[name])[: len(COLOURS)]
    return tuple(name for name in sums if name in largest)
