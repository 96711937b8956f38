"""Figures that have a range, those together that are one number: they move as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ascendsim.profile.records import Figure, Profile


def ranged_figures(profile: Profile) -> dict[str, Figure]:
    """Return the figures with a range that could move cycles, by path, whatever their confidence.

    A figure that is a text, such as an accumulation model, moves bits and no cycles.
    """
    return {
        path: figure
        for path, figure in profile.figures.items()
        if figure.range is not None and not isinstance(figure.value, str) and not path.startswith("energy.")
    }


def by_source(profile: Profile) -> tuple[dict[str, Figure], ...]:
    """Return the figures with a range, by path, those together that are one number of one source.

    Two are one where they are the same quantity (the last word of their paths) with the same value and range,
    and either have the same text as source, or one's source is "as" the place of the other. "as on the 910B"
    names a figure of another product, for each its own: these stay apart.
    """
    found: dict[Any, dict[str, Figure]] = {}
    for path, figure in ranged_figures(profile).items():
        number = _origin(path, profile.figures), repr(figure.value), repr(figure.range)
        found.setdefault(number, {})[path] = figure
    return tuple(found.values())


def _origin(path: str, figures: Mapping[str, Figure]) -> str:
    """Return a text that all figures of one source have in common."""
    quantity = path.rpartition(".")[2]
    seen = {path}
    while (source := figures[path].source).startswith("as "):
        place = source.removeprefix("as ")
        named = [p for p in (f"paths.{place}.{quantity}", f"{place}.{quantity}") if p in figures]
        if not named or named[0] in seen:
            return path
        path = named[0]
        seen.add(path)
    return f"{quantity}: {source}"
