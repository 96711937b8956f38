"""Which of two calls takes longer, and how sure that is: the ratio of their times, by all that moves it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import exp, hypot, log, log1p
from typing import NamedTuple

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.studies.records import MODEL, PLAN, FigureEffect, Interval, ModelError, Ratio


def ratios(intervals: Sequence[Interval], margin: float = 0.0) -> list[Ratio]:
    """Return the ratio of each pair of calls, in the order of `itertools.combinations`."""
    return [ratio(*pair, margin) for pair in combinations(intervals, 2)]


@default_arithmetic
def ratio(first: Interval, second: Interval, margin: float = 0.0) -> Ratio:
    """Return the ratio of two intervals of one call on two products, as `uncertainty.intervals` makes them.

    margin   part by which ratios of like times are off, as measured: so much of the model's error stays

    Figures  each alone at both ends, one that both share at the same end in both; and all draws, in each of
             which such a figure is at one place. Other figures of the two have nothing to do with each other
    Plan     of each its own
    Model    of one architecture the same kinds of kernels err alike, by any part of their error: all that
             their shares do not tell apart cancels, but for the margin. Of two architectures each has its own

    Half widths in log time join by their squares, as those of an interval do.
    """
    if not first.usual_us or not second.usual_us:
        return Ratio(1.0, 1.0, 1.0, "", ())
    usual = log(second.usual_us / first.usual_us)
    ends = _ends(first, second)
    reached = [usual, *(at for own in ends.values() for at in own), *_draws(first, second)]
    parts = _parts(first, second, log1p(margin))
    below = hypot(usual - min(reached), *(part.below for part in parts))
    above = hypot(max(reached) - usual, *(part.above for part in parts))
    spans = {name: max(usual, *own) - min(usual, *own) for name, own in ends.items() if own}
    figure = max(spans, key=lambda name: spans[name], default=None)
    widest = max(parts, key=lambda part: part.below + part.above)
    # One figure against one part: knowing it leaves all other figures as they are.
    if figure is None or widest.below + widest.above >= spans[figure]:
        dominant = (widest.name, widest.of) if below + above else ("", ())
    else:
        dominant = (
            figure[0],
            tuple(at for at, one in enumerate((first, second)) if figure in _effects(one, at)),
        )
    return Ratio(exp(usual), exp(usual - below), exp(usual + above), *dominant)


def _effects(one: Interval, at: int) -> dict[tuple[str, str], FigureEffect]:
    """Return effects by what makes them those of one figure; without a text, of this call alone."""
    return {(effect.figure, effect.shared or f"of call {at}"): effect for effect in one.effects}


def _ends(first: Interval, second: Interval) -> dict[tuple[str, str], list[float]]:
    """Return the logarithms of the ratio with each figure alone at both ends, but where one has no time."""
    effects = _effects(first, 0), _effects(second, 1)
    found: dict[tuple[str, str], list[float]] = {}
    for figure in dict.fromkeys((*effects[0], *effects[1])):
        low, high = (
            [getattr(own[figure], end) if figure in own else one.usual_us for end in ("low_us", "high_us")]
            for own, one in zip(effects, (first, second), strict=True)
        )
        found[figure] = [log(b / a) for a, b in zip(low, high, strict=True) if a and b]
    return found


def _draws(first: Interval, second: Interval) -> Iterator[float]:
    """Yield the logarithms of the ratio in each draw that both have."""
    return (log(b / a) for a, b in zip(first.draws_us, second.draws_us, strict=False) if a and b)


class _Part(NamedTuple):
    """What makes a ratio wide beside figures: half widths of its logarithm, and which calls it is of."""

    name: str
    of: tuple[int, ...]
    below: float
    above: float


def _parts(first: Interval, second: Interval, kept: float) -> list[_Part]:
    """Return the parts of the plans and of the model."""
    # The ratio falls as the first call takes longer.
    widths = [(first.widths(1), first.widths(0)), (second.widths(0), second.widths(1))]
    plans, models = (
        [_Part(name, (at,), own[0][place], own[1][place]) for at, own in enumerate(widths)]
        for name, place in ((PLAN, 1), (MODEL, 2))
    )
    if first.model and second.model and first.model.family == second.model.family != "":
        below, above = _alike(first.model, second.model)
        models = [_Part(MODEL, (0, 1), hypot(below, kept), hypot(above, kept))]
    return [*plans, *models]


def _alike(first: ModelError, second: ModelError) -> tuple[float, float]:
    """Return half widths of the ratio's logarithm if kernels of each kind err alike on both products.

    Kinds err each in its own way: the ratio is at its ends where all of them are at ends of their errors.
    """
    kinds = list(dict.fromkeys((share.kind, share.error) for one in (first, second) for share in one.shares))
    reached = [0.0]
    for signs in product((-1, 1), repeat=len(kinds)):
        moved = {kind: exp(sign * error) for (kind, error), sign in zip(kinds, signs, strict=True)}
        a, b = (sum(share.share * moved[share.kind] for share in one.shares) for one in (first, second))
        reached.append(log(b / a))
    return -min(reached), max(reached)
