"""Say between which times a call lies if the product's assumed figures lie anywhere in their ranges."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.studies.records import Interval
from ascendsim.studies.sweep import Advance, Sweep, TimedCall

if TYPE_CHECKING:
    from ascendsim.ops.results import Estimate


@default_arithmetic
def interval(
    product: str | Path,
    call: TimedCall,
    advance: Advance = lambda _: None,
    usual: Estimate | None = None,
    workers: int | None = 1,
) -> Interval:
    """Move each figure alone to both ends; then all that shorten the call together, and all that stretch it.

    product  name of the product or variant, or path of its file, whose figures are replaced
    call     times the call on a given profile, under given plans
    advance  is told the figure of each call of the sweep
    usual    the call with the figures as they are, where it has been timed already
    workers  processes that time the sweep, as `estimate_many` takes them; `call` is sent to others than this

    The two calls with all figures at once are no bounds that hold whatever happens: a figure that shortens
    the call alone may stretch it beside others. They are what the figures' own effects add up to.
    """
    sweep = Sweep.of(product, call, usual)
    # Alone first, since only that tells which end of a figure shortens this call: a slower link may well help
    # a kernel that competes for it.
    found = sweep.effects(advance, workers)
    moving = sorted((effect for effect in found if effect.span_us), key=lambda effect: -effect.span_us)
    # `is not None`: an end may well be 0.
    faster = {effect.figure: effect.shortest[1] for effect in moving if effect.shortest[1] is not None}
    slower = {effect.figure: effect.longest[1] for effect in moving if effect.longest[1] is not None}
    shortest, longest = _together(sweep, faster), _together(sweep, slower)
    return Interval(
        figures=len(found),
        shortest_us=shortest.time_us,
        longest_us=longest.time_us,
        least_cycles=shortest.cycles,
        most_cycles=longest.cycles,
        effects=tuple(moving),
        left_out=tuple(
            f"{effect.figure}={end}"
            for effect in found
            for end, time_us in ((effect.low, effect.low_us), (effect.high, effect.high_us))
            if time_us is None
        ),
    )


def _together(sweep: Sweep, figures: Mapping[str, Any]) -> Estimate:
    """Return the call with all these figures; where they contradict each other, with those that move most."""
    result = sweep.timed(figures)
    if result is not None:
        return result
    # The figures come with the widest span first, so that of two that exclude each other the larger stays.
    kept, result = dict[str, Any](), sweep.usual
    for path, end in figures.items():
        more = sweep.timed(kept | {path: end})
        if more is not None:
            kept[path], result = end, more
    return result
