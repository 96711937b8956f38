"""Move every assumed figure of a product to both ends of its range, under the plans that a call has now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ascendsim.errors import AscendSimError
from ascendsim.parallel import in_order
from ascendsim.profile import Profile, load_profile
from ascendsim.studies.records import FigureEffect

if TYPE_CHECKING:
    from pathlib import Path

    from ascendsim.ops.plan import Plan
    from ascendsim.ops.results import Estimate
    from ascendsim.profile import Figure

Plans = Mapping[str, "Plan"]  # by gradient
# A call as a study repeats it: (product, plans of its gradients, or None to choose them) -> its cycles.
TimedCall = Callable[[Profile, Plans | None], "Estimate"]
Advance = Callable[[str], None]


def ranged_figures(profile: Profile) -> dict[str, Figure]:
    """Return the assumed figures that could move cycles, by path.

    A figure that is a text, such as an accumulation model, moves bits and no cycles.
    """
    return {
        path: figure
        for path, figure in profile.assumed().items()
        if figure.range is not None and not isinstance(figure.value, str)
    }


def ends(figure: Figure) -> tuple[Any, Any]:
    """Return both ends of a figure's range; of alternatives, the first and the last."""
    assert figure.range is not None
    return figure.range[0], figure.range[-1]


def hashable(end: Any) -> Any:
    """Return a value of a figure by which points can be named: of one that is a list, a tuple."""
    return tuple(end) if isinstance(end, list) else end


def sweep_size(profile: Profile) -> int:
    """Return how many calls a sweep times; an end at which a figure already stands needs none."""
    return sum(end != figure.value for figure in ranged_figures(profile).values() for end in ends(figure))


@dataclass(frozen=True, slots=True)
class Sweep:
    """One call on one product, to be timed again with other figures.

    product  name of the product or variant, or path of its file
    call     times the call
    usual    the call with all figures as they are, whose plans all others keep: a product's operators do not
             plan anew because this simulator assumes another figure
    """

    product: str | Path
    call: TimedCall
    usual: Estimate

    @classmethod
    def of(cls, product: str | Path, call: TimedCall, usual: Estimate | None = None) -> Sweep:
        """Return the sweep about a call; `usual` is the call as it is where it has been timed already."""
        return cls(product, call, call(load_profile(product), None) if usual is None else usual)

    def timed(self, figures: Mapping[str, Any]) -> Estimate | None:
        """Return the call with other figures, by path; None where figures contradict each other."""
        # A tile that no longer fits, or figures that the loader refuses together: that end is not possible.
        try:
            return self.call(load_profile(self.product, overrides=dict(figures)), self.usual.plans)
        except AscendSimError:
            return None

    def effects(self, advance: Advance, workers: int | None = 1) -> tuple[FigureEffect, ...]:
        """Move each figure alone to both ends; `advance` is told the figure of each call.

        workers  processes that time calls, as `estimate_many` takes them; `call` is sent to others than this
        """
        figures = ranged_figures(load_profile(self.product))
        moves = [
            (path, end) for path, figure in figures.items() for end in ends(figure) if end != figure.value
        ]
        found = iter(in_order(self._time_us, moves, workers, lambda number: advance(moves[number][0])))
        return tuple(
            FigureEffect(
                path,
                figure.value,
                *ends(figure),
                self.usual.time_us,
                # An end at which the figure stands already needed no call.
                *(self.usual.time_us if end == figure.value else next(found) for end in ends(figure)),
            )
            for path, figure in figures.items()
        )

    def _time_us(self, move: tuple[str, Any]) -> float | None:
        """Return the microseconds with one figure at another value, given as (path, value)."""
        result = self.timed(dict([move]))
        return None if result is None else result.time_us
