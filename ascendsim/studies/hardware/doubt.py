"""Between what gains lie if the product's assumed figures lie anywhere in their ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ascendsim.errors import ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.profile import Change, load_profile
from ascendsim.studies.engine.measure import Answer
from ascendsim.studies.engine.point import Point
from ascendsim.studies.hardware.plans import Asking
from ascendsim.studies.hardware.records import Doubt, StudiedLayer
from ascendsim.studies.sweep import ends, hashable, ranged_figures

WHEN = ("before", "unchanged", "after")
Move = tuple[str, Any]  # path of an assumed figure, and an end of its range


@dataclass(frozen=True, slots=True)
class Pair:
    """One change under one start: the calls before and after it, whose plans are kept; points by layer.

    before     on the unchanged product under its own plans
    unchanged  on it under the better of these and those of `after` where these fit, or with a part unused
    after      on the changed product under the better plans
    """

    change: Change
    start: str
    before: Mapping[StudiedLayer, Point]
    unchanged: Mapping[StudiedLayer, Point]
    after: Mapping[StudiedLayer, Point]


def doubts(
    product: str | Path, pairs: Sequence[Pair], shares: Sequence[float], asking: Asking
) -> list[Doubt]:
    """Return the doubt of what each change itself saves.

    Each figure is moved alone to both ends of its range, before and after the change alike; then all that
    lower the gain together, and all that raise it. As in `interval`, the two are no bounds that hold whatever
    happens, but what the figures' own effects add up to. Plans are kept: an operator does not plan anew
    because this simulator assumes another figure.
    """
    figures = ranged_figures(load_profile(product))
    moves: list[Move] = [
        (path, end)
        for path, figure in figures.items()
        for end in dict.fromkeys(map(hashable, ends(figure)))
        if end != hashable(figure.value)
    ]
    alone = _shares(product, pairs, [[(move,) for move in moves]] * len(pairs), asking)
    together = []
    for share, found in zip(shares, alone, strict=True):
        lower = _ends(share, found, lower=True)
        higher = _ends(share, found, lower=False)
        together.append([lower, higher])
    both = _shares(product, pairs, together, asking)
    made = []
    for share, found, ended in zip(shares, alone, both, strict=True):
        known = [share, *(s for s in (*found.values(), *ended.values()) if s is not None)]
        moving = {move[0][0] for move, moved in found.items() if moved is not None and moved != share}
        made.append(Doubt(min(known), max(known), len(moving)))
    return made


Moves = tuple[Move, ...]


def _ends(share: float, found: Mapping[Moves, float | None], *, lower: bool) -> Moves:
    """Return the end of each figure that lowers, or raises, the gain most."""
    best: dict[str, tuple[float, Any]] = {}
    for ((path, end),), moved in found.items():
        if moved is None or moved == share or (moved < share) != lower:
            continue
        distance = abs(moved - share)
        if path not in best or distance > best[path][0]:
            best[path] = distance, end
    return tuple((path, end) for path, (_, end) in best.items())


def _shares(
    product: str | Path, pairs: Sequence[Pair], moves: Sequence[Iterable[Moves]], asking: Asking
) -> list[dict[Moves, float | None]]:
    """Return the gain of each pair under each of its moves; None where figures contradict each other."""
    points: dict[Any, Point] = {}
    for at, (pair, own) in enumerate(zip(pairs, moves, strict=True)):
        for move in own:
            values = _moved(product, pair.change, dict(move))
            if values is None or not move:
                continue
            for layer, point in pair.before.items():
                for when, unchanged in (("before", point), ("unchanged", pair.unchanged[layer])):
                    # What the unchanged product leaves unused stays so.
                    moved = FrozenMap[str, Any](dict(move) | dict(unchanged.changes))
                    points[at, move, when, layer] = replace(unchanged, changes=moved)
                points[at, move, "after", layer] = _after(pair.after[layer], values, dict(move))
    answers = asking(points)
    found = []
    for at, (pair, own) in enumerate(zip(pairs, moves, strict=True)):
        row: dict[Moves, float | None] = {}
        for move in own:
            times = [us for when in WHEN if (us := _total_us(answers, pair, (at, move, when))) is not None]
            row[move] = (times[1] - times[2]) / times[0] if len(times) == len(WHEN) else None
        found.append(row)
    return found


def _after(point: Point, values: Mapping[str, Any], move: Mapping[str, Any]) -> Point:
    """Return a changed call with moved figures; cores that it leaves idle are no change of it."""
    own = {path: value for path, value in values.items() if path in move or path in point.changes}
    return replace(point, changes=FrozenMap(own))


def _moved(product: str | Path, change: Change, move: dict[str, Any]) -> FrozenMap[str, Any] | None:
    """Return the figures of a move with a change on top of it: a factor is of the figure as it is moved."""
    try:
        return FrozenMap(move | change.on(load_profile(product, overrides=move)))
    except ConfigError:
        return None  # that end contradicts another figure


def _total_us(answers: Mapping[Any, Answer], pair: Pair, name: tuple[Any, ...]) -> float | None:
    total = 0.0
    for layer in pair.before:
        answer = answers.get((*name, layer))
        if answer is None or answer.reason:
            return None
        total += layer.count * answer.time_us
    return total
