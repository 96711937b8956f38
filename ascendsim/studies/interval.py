"""Between which times a call lies if the product's assumed figures lie anywhere in their ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ascendsim.errors import AscendSimError
from ascendsim.profile import Profile, load_profile
from ascendsim.report.record import GRADIENTS, Record, plain

if TYPE_CHECKING:
    from ascendsim.ops.results import Estimate

Run = Callable[[Profile], "Estimate"]


@dataclass(frozen=True, slots=True)
class Effect:
    """The least and the most time of a call over the range of one figure, and where: None, as it is."""

    figure: str
    shortest_us: float
    shortest_at: Any
    longest_us: float
    longest_at: Any

    @property
    def moves(self) -> bool:
        """Whether the figure moves the call at all."""
        return self.shortest_us < self.longest_us


def ends_to_try(profile: Profile) -> list[tuple[str, Any]]:
    """Return the ends of the ranges of a product's assumed figures; texts move bits and no cycles."""
    return [
        (path, end)
        for path, figure in profile.assumed().items()
        if figure.range is not None and not isinstance(figure.value, str)
        for end in (figure.range[0], figure.range[-1])
        if end != figure.value
    ]


def plans(result: Estimate) -> dict[str, Any]:
    """Return the plans of a call's cube kernels by gradient, so that other figures choose no others."""
    return {
        kernel.name: kernel.plan
        for kernel in result.kernels
        if kernel.name in GRADIENTS and kernel.plan is not None
    }


def interval_record(name: str, usual: Estimate, run: Run, advance: Callable[[str], None]) -> Record:
    """Move each figure alone to both ends; then all that shorten the call together, and all that stretch it.

    name     of the product, variant or file, whose figures are replaced
    usual    the call with the figures as they are
    run      estimates the same call, under the same plans, on another profile
    advance  is told the figure before each run
    """
    times: dict[str, list[tuple[float, Any]]] = {}
    for path, end in ends_to_try(load_profile(name)):
        advance(path)
        result = _result(name, {path: end}, run)
        moved = [] if result is None else [(result.time_us, end)]
        times.setdefault(path, []).extend(moved)
    effects = [_effect(path, found, usual.time_us) for path, found in times.items()]
    effects = sorted((e for e in effects if e.moves), key=lambda e: e.shortest_us - e.longest_us)
    shorter = {e.figure: e.shortest_at for e in effects if e.shortest_us < usual.time_us}
    longer = {e.figure: e.longest_at for e in effects if e.longest_us > usual.time_us}
    shortest, longest = (_together(name, ends, run, usual) for ends in (shorter, longer))
    return {
        "figures": len(times),
        "shortest_us": shortest.time_us,
        "longest_us": longest.time_us,
        "least_cycles": shortest.cycles,
        "most_cycles": longest.cycles,
        "effects": [{key: plain(value) for key, value in asdict(effect).items()} for effect in effects],
    }


def _effect(path: str, found: list[tuple[float, Any]], usual_us: float) -> Effect:
    """Return what a figure alone does."""
    times = [(usual_us, None), *found]
    shortest, longest = (choose(times, key=lambda entry: entry[0]) for choose in (min, max))
    return Effect(path, *shortest, *longest)


def _result(name: str, ends: Mapping[str, Any], run: Run) -> Estimate | None:
    """Return the call with other figures; None where figures contradict each other."""
    try:
        return run(load_profile(name, overrides=dict(ends)))
    except AscendSimError:
        return None


def _together(name: str, ends: Mapping[str, Any], run: Run, usual: Estimate) -> Estimate:
    """Return the call with all these figures; where they contradict each other, with those that move most."""
    result = _result(name, ends, run)
    if result is not None:
        return result
    kept: dict[str, Any] = {}
    for path, end in ends.items():
        more = _result(name, kept | {path: end}, run)
        if more is not None:
            kept[path], usual = end, more
    return usual
