"""How sure a comparison is: which of two calls takes longer, whether a gain holds wherever figures lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import exp, hypot, log, log1p
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.studies.records import MODEL, PLAN, FigureEffect, Interval, ModelError, Ratio

if TYPE_CHECKING:
    from ascendsim.profile import Figure

# Figures that are moved, dotted path -> value, several times over: the gain at each as a part of the time
# before; None where it cannot be timed.
Gains = Callable[[Sequence[Mapping[str, Any]]], Sequence[float | None]]
# A break-even is found as a part of a figure's range.
PRECISION = 0.01


@dataclass(frozen=True, slots=True)
class Condition:
    """A figure on which it hangs whether there is a gain, moved alone.

    figure    dotted path in the product file, whose last word has the unit
    relation  of the figure to `at` where there is a gain: "<", ">", and of alternatives "is", "is not"
    at        the value nearest to the break-even at which there is no gain; of alternatives the one meant
    share     the gain at that end of the range, as a part of the time before
    """

    figure: str
    relation: str
    at: Any
    share: float


@dataclass(frozen=True, slots=True)
class GainVerdict:
    """Whether there is a gain of more than a margin, as figures are and at the ends of their ranges.

    share       the gain with all figures as they are, as a part of the time before
    gains       whether it is more than the margin
    ends        (figure, end, the gain there; None where nothing can be timed)
    conditions  of the ends at which it is not as with figures as they are. Where it gains, all must hold for
                it to do so; where it does not, it would if one held
    """

    share: float
    gains: bool
    ends: tuple[tuple[str, Any, float | None], ...] = ()
    conditions: tuple[Condition, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether there is a gain at every end of every figure."""
        return self.gains and not self.conditions

    @property
    def low(self) -> float:
        """The least gain, with one figure at an end."""
        return min([self.share, *(share for *_, share in self.ends if share is not None)])

    @property
    def high(self) -> float:
        """The largest gain, with one figure at an end."""
        return max([self.share, *(share for *_, share in self.ends if share is not None)])

    @property
    def figures(self) -> int:
        """The number of figures that move the gain."""
        return len({path for path, _, share in self.ends if share not in (None, self.share)})

    @property
    @default_arithmetic
    def most(self) -> str:
        """The figure that moves the gain most; "" where none does."""
        spans: dict[str, list[float]] = {}
        for path, _, share in self.ends:
            spans.setdefault(path, [self.share]).append(self.share if share is None else share)
        span = {path: max(shares) - min(shares) for path, shares in spans.items()}
        return max(span, key=lambda path: span[path]) if any(span.values()) else ""

    @property
    def untimed(self) -> tuple[str, ...]:
        """Ends at which nothing can be timed, as `figure=value`: the verdict says nothing of them."""
        return tuple(f"{path}={end}" for path, end, share in self.ends if share is None)

    def worst(self, *, best: bool = False) -> dict[str, Any]:
        """Return the end of each figure at which the gain is least, or `best`; of those that make it less."""
        found: dict[str, tuple[float, Any]] = {}
        for path, end, share in self.ends:
            by = 0.0 if share is None else share - self.share if best else self.share - share
            if by > found.get(path, (0.0, None))[0]:
                found[path] = by, end
        return {path: end for path, (_, end) in found.items()}


@default_arithmetic
def judged(gains: Gains, figures: Mapping[str, Figure], share: float, margin: float = 0.0) -> GainVerdict:
    """Return the verdict on a gain.

    gains    the gain with figures moved; asked for many moves at a time, so that workers share them
    figures  those with a range, by path; each is moved alone to both ends
    share    the gain with figures as they are; a gain is what is more than `margin`
    """
    moves = [(path, end) for path, figure in figures.items() for end in _ends(figure)]
    found = gains([{path: end} for path, end in moves])
    ends = tuple((*move, moved) for move, moved in zip(moves, found, strict=True))
    gaining = share > margin
    turned = [
        (path, end, moved) for path, end, moved in ends if moved is not None and (moved > margin) != gaining
    ]
    return GainVerdict(share, gaining, ends, tuple(_conditions(gains, figures, turned, gaining, margin)))


def _ends(figure: Figure) -> list[Any]:
    """Return the ends of a range at which the figure is not already."""
    assert figure.range is not None
    return [end for end in (figure.range[0], figure.range[-1]) if end != figure.value]


def _conditions(
    gains: Gains,
    figures: Mapping[str, Figure],
    turned: Sequence[tuple[str, Any, float]],
    gaining: bool,
    margin: float,
) -> list[Condition]:
    """Return where the gain breaks even on the way to each end at which it is there, or is not, otherwise."""
    # Each bracket: (the value nearest to the break-even as the product is, that as the end is).
    brackets = [(figures[path].value, end) for path, end, _ in turned]
    while True:
        middles = [
            _middle(*bracket, figures[path]) for (path, *_), bracket in zip(turned, brackets, strict=True)
        ]
        open_ = [at for at, middle in enumerate(middles) if middle is not None]
        if not open_:
            break
        found = gains([{turned[at][0]: middles[at]} for at in open_])
        for at, moved in zip(open_, found, strict=True):
            same = moved is not None and (moved > margin) == gaining
            usual, end = brackets[at]
            brackets[at] = (middles[at], end) if same else (usual, middles[at])
    made = []
    for (path, end, share), (near, far) in zip(turned, brackets, strict=True):
        if _is_number(end):
            up = end > figures[path].value
            made.append(Condition(path, "<" if up == gaining else ">", far if gaining else near, share))
        else:
            made.append(Condition(path, "is not" if gaining else "is", end, share))
    return made


def _middle(near: Any, far: Any, figure: Figure) -> Any:
    """Return the value between two, or None where they are near enough, or no numbers."""
    if not _is_number(near) or not _is_number(far):
        return None
    if all(isinstance(value, int) for value in (near, far, figure.value)):
        return (near + far) // 2 if abs(near - far) > 1 else None
    assert figure.range is not None
    most = PRECISION * abs(figure.range[-1] - figure.range[0])
    return (near + far) / 2 if abs(near - far) > most else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def condition_words(verdict: GainVerdict, show: Callable[[Any], str] = str) -> str:
    """Return the conditions of a verdict for the end of a sentence, after "if"; "" where there are none."""
    said = [f"{one.figure} {one.relation} {show(one.at)}" for one in verdict.conditions]
    return (" and " if verdict.gains else " or ").join(said)


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
             their shares do not separate cancels, but for the margin. Of two architectures each has its own

    Half widths in log time join by their squares, as those of an interval do.
    """
    if not first.usual_us or not second.usual_us:
        return Ratio(1.0, 1.0, 1.0, "", ())
    usual = log(second.usual_us / first.usual_us)
    ends = _log_ratios(first, second)
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


def _log_ratios(first: Interval, second: Interval) -> dict[tuple[str, str], list[float]]:
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
