"""What one design saves against another wherever figures lie in their ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ascendsim.errors import ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.studies.hardware.figures import fits_inside
from ascendsim.studies.hardware.plans import Ask, Best, Family, Place, Way
from ascendsim.studies.hardware.records import Doubt
from ascendsim.studies.sweep import hashable, moved_together, variables
from ascendsim.studies.verdicts import judged


@dataclass(frozen=True)
class Saving:
    """What a design saves against another over some places, with figures moved.

    Plans are kept: an operator does not plan anew because this simulator assumes another figure. But each
    design takes the fastest of its ways, and of those of the designs inside it, as the figures then are.

    counts         of the places
    before, after  numbers of the two designs
    usual          a way by place whose time the saving is a part of, and which the one before may go; without
                   one it is a part of the time of the design before
    """

    family: Family
    best: Mapping[tuple[int, Place], Best]
    counts: Mapping[Place, int]
    before: int
    after: int
    usual: Mapping[Place, Way]
    asking: Ask

    @default_arithmetic
    def __call__(self, moves: Sequence[Mapping[str, Any]]) -> list[float | None]:
        """Return the saving at each move, as a part; None where figures contradict each other."""
        families = [self._moved(move) for move in moves]
        ways = {
            (number, place, side): self._ways(family, place, side)
            for number, family in enumerate(families)
            if family is not None
            for place in self.counts
            for side in (self.before, self.after)
        }
        points = {
            (number, place, way, call): point
            for (number, place, _), every in ways.items()
            for way in every
            if (family := families[number])
            for call, point in enumerate(family.points(way, place))
        }
        answers = self.asking(points)
        times: dict[Any, float] = {}
        for number, place, way, _ in points:
            each = [answers[number, place, way, call] for call in range(len(self.family.calls[place]))]
            slowest = max(map(self.family.us, each)) if not any(one.reason for one in each) else float("inf")
            times[number, place, way] = slowest
        return [
            None if family is None else self._share(number, ways, times)
            for number, family in enumerate(families)
        ]

    def _moved(self, move: Mapping[str, Any]) -> Family | None:
        try:
            every = moved_together(move, variables(self.family.profile))
            moved = self.family.at(FrozenMap({path: hashable(value) for path, value in every.items()}))
            for design in (self.before, self.after):
                moved.values(design)
            return moved
        except ConfigError:
            return None  # that end contradicts another figure

    def _ways(self, family: Family, place: Place, design: int) -> list[Way]:
        """Return the ways that a design may go, with those of designs inside it."""
        own = family.values(design)
        inside = [one for one in self.family.inside[design] if (one, place) in self.best]
        designs = [design, *(one for one in inside if fits_inside(family.values(one), own, family.profile))]
        found = [way for one in designs for way in self._known(one, place)]
        return list(dict.fromkeys(found))

    def _known(self, design: int, place: Place) -> list[Way]:
        best = self.best[design, place]
        usual = [self.usual[place]] if design == 0 and self.usual else []
        return [best.way, best.whole, *usual]

    def _share(
        self, number: int, ways: Mapping[Any, Sequence[Way]], times: Mapping[Any, float]
    ) -> float | None:
        before, after = (
            sum(
                count * min(times[number, place, way] for way in ways[number, place, side])
                for place, count in self.counts.items()
            )
            for side in (self.before, self.after)
        )
        base = before
        if self.usual:
            base = sum(
                count * times[number, place, self.usual[place]] for place, count in self.counts.items()
            )
        return (before - after) / base if max(before, after, base) < float("inf") else None


@default_arithmetic
def doubt_of(saving: Saving, share: float, margin: float) -> Doubt:
    """Return between what a saving lies, and on which figures it hangs that it is one of more than a margin.

    Each figure, with those of its source, is moved to both ends of its range, before and after alike; then
    all that lower the saving together, and all that raise it. The two are no bounds that hold whatever
    happens, but what the figures' own effects add up to. Of what costs the loss is judged.
    """
    sign = -1 if share < -margin else 1

    def signed(moves: Sequence[Mapping[str, Any]]) -> list[float | None]:
        return [None if found is None else sign * found for found in saving(moves)]

    figures = {one.name: one.figures[one.name] for one in variables(saving.family.profile)}
    verdict = judged(signed, figures, sign * share, margin)
    both = [ends for ends in (verdict.worst(), verdict.worst(best=True)) if ends]
    known = [verdict.low, verdict.high, *(found for found in signed(both) if found is not None)]
    low, high = sorted((sign * min(known), sign * max(known)))
    return Doubt(low, high, verdict.figures, verdict.conditions, verdict.most)
