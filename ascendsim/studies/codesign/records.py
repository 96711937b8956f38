"""The question which designs are worth their cost, and its answer: frozen records of plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascendsim.profile import Change, Cost
from ascendsim.studies.hardware.records import StudiedLayer

OVER_BUDGET = "over the budget"


@dataclass(frozen=True, slots=True)
class DesignQuestion:
    """Designs: every combination of one change of each group, the product as it is among them.

    groups   changes that exclude each other, such as the values of one figure
    cost     in the user's unit
    budget   the most that a design may cost; None: whatever
    tilings  plans that are tried for each gradient of each layer on each design
    margin   part of a time by which estimated ratios of two plans are off: less is no difference
    """

    title: str
    product: str | Path
    layers: tuple[StudiedLayer, ...]
    groups: tuple[tuple[Change, ...], ...]
    cost: Cost
    budget: float | None = None
    starts: tuple[str, ...] = ("warm", "handed")
    tilings: int = 20
    dtype: str = "float16"
    cube_math_type: int = 0
    margin: float = 0.0


@dataclass(frozen=True, slots=True)
class Design:
    """One combination of changes.

    figures   dotted path -> value; empty for the product as it is
    cost      None where figures contradict each other, so that there is no product to cost anything
    usual_us  microseconds of all layers with their counts under the plans that its operators choose, without
              changes of layout
    tuned_us  the same under the best plan of each gradient that was found
    reason    why it could not be timed, or was not; "" where it was
    """

    name: str
    figures: Mapping[str, Any]
    cost: float | None
    usual_us: float = 0.0
    tuned_us: float = 0.0
    reason: str = ""

    @property
    def refused(self) -> bool:
        """Whether it cannot be timed; what costs too much could be, and is not asked about."""
        return self.reason not in ("", OVER_BUDGET)

    @property
    def over_budget(self) -> bool:
        """Whether it costs too much."""
        return self.reason == OVER_BUDGET


@dataclass(frozen=True, slots=True)
class DesignAnswer:
    """All designs, the product as it is first; and their front: none costs less and is as fast."""

    question: DesignQuestion
    variant: str
    digest: str
    assumed: int
    designs: tuple[Design, ...]

    @property
    def front(self) -> tuple[Design, ...]:
        """The designs that no other beats in time at no more cost, the cheapest first."""
        timed = [
            (design.cost, design.tuned_us, design)
            for design in self.designs
            if design.cost is not None and not design.reason
        ]
        found: list[Design] = []
        for _, _, design in sorted(timed, key=lambda row: row[:2]):
            if not found or design.tuned_us < found[-1].tuned_us:
                found.append(design)
        return tuple(found)
