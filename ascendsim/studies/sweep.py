"""Move every figure of a product that has a range to both ends of it, under the plans that a call has now."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.errors import AscendSimError
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.casts import decode
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.numerics.metrics import error_metrics
from ascendsim.ops.lowering.call import GRADIENTS
from ascendsim.ops.problems.layers import LayerProblem
from ascendsim.ops.reference.float64 import layer_gradients_float64
from ascendsim.parallel import in_order
from ascendsim.profile import Profile, load_profile
from ascendsim.profile.records import by_source, ranged_figures
from ascendsim.studies.records import FigureEffect, JudgedGradient

if TYPE_CHECKING:
    from ascendsim.ops.plan import Plan
    from ascendsim.ops.results import ConvolutionBackwardResult, Estimate
    from ascendsim.profile import Figure


Plans = Mapping[str, "Plan"]  # by gradient


class TimedPoint(NamedTuple):
    """The time of a call with other figures, and that of each of its kernels by name."""

    time_us: float
    cycles: int
    kernels_us: Mapping[str, float] = FrozenMap()


# A call as a study repeats it: (product, plans of its gradients, or None to choose them) -> its cycles.
TimedCall = Callable[[Profile, Plans | None], "Estimate"]
Advance = Callable[[str], None]


def studied(profile: Profile) -> tuple[str, str, int]:
    """Return variant, digest and number of ranged figures of a product, for a `StudyAnswer`."""
    return profile.variant, profile.content.hex(), len(ranged_figures(profile))


def ends(figure: Figure) -> tuple[Any, Any]:
    """Return both ends of a figure's range; of alternatives, the first and the last."""
    assert figure.range is not None
    return figure.range[0], figure.range[-1]


def hashable(end: Any) -> Any:
    """Return a value of a figure by which points can be named: of one that is a list, a tuple."""
    return tuple(end) if isinstance(end, list) else end


class Variable(NamedTuple):
    """Figures that are one number, and move together; `name` is the path of the first."""

    name: str
    figures: Mapping[str, Figure]

    @property
    def shared(self) -> str:
        """What it has in common with the same variable of another product: name, source and range.

        A source "as on the 910B" is one guess, though two products make it.
        """
        first = self.figures[self.name]
        return f"{self.name}: {first.source}, {first.range}"

    def at(self, end: int) -> dict[str, Any]:
        """Return the figures at the low end (0) or the high end (1) of their range; none if there."""
        to = ends(self.figures[self.name])[end]
        return {} if to == self.figures[self.name].value else dict.fromkeys(self.figures, to)


def variables(profile: Profile) -> tuple[Variable, ...]:
    """Return the figures with a range, those together that are one number."""
    return tuple(Variable(next(iter(own)), own) for own in by_source(profile))


def moved_together(move: Mapping[str, Any], moved: Sequence[Variable]) -> dict[str, Any]:
    """Return a move with the figures that move with each of its own."""
    found = {path: move[one.name] for one in moved if one.name in move for path in one.figures}
    return {**found, **move}


@dataclass(frozen=True, slots=True)
class Sweep:
    """One call on one product, to be timed again with other figures.

    product  name of the product or variant, or path of its file
    call     times the call
    usual    the call with all figures as they are, whose plans all others keep: a product's operators do not
             plan anew because this simulator knows a figure no better
    dimensions  of the images or volumes
    """

    product: str | Path
    call: TimedCall
    usual: Estimate
    dimensions: int = 2

    @classmethod
    def of(cls, product: str | Path, call: TimedCall, usual: Estimate | None = None) -> Sweep:
        """Return the sweep about a call; `usual` is the call as it is where it has been timed already."""
        return cls(product, call, call(load_profile(product), None) if usual is None else usual)

    def effects(self, advance: Advance, workers: int | None = 1) -> tuple[FigureEffect, ...]:
        """Move each variable alone to both ends; `advance` is called with the name of that of each call.

        workers  processes that time calls, as `estimate_many` takes them; `call` is sent to others than this
        """
        moved = variables(load_profile(self.product))
        moves = end_moves(moved)
        (found,) = times([self], [list(moves.values())], workers, [name for name, _ in moves], advance)
        ended = {name: point and point.time_us for name, point in zip(moves, found, strict=True)}
        return effects_of(moved, self.usual.time_us, ended)


def times(
    sweeps: Sequence[Sweep],
    points: Sequence[Sequence[Mapping[str, Any]]],
    workers: int | None,
    names: Sequence[str],
    advance: Advance = lambda _: None,
) -> list[list[TimedPoint | None]]:
    """Time points of several sweeps of one call, figures by path; None where figures contradict each other.

    names   of all points in order, for `advance`
    """
    tasks = [(sweep.product, point) for sweep, own in zip(sweeps, points, strict=True) for point in own]
    # Of an estimate the plans alone are sent to workers, and its time alone comes back: it holds programs.
    time = partial(_timed, sweeps[0].call, {sweep.product: sweep.usual.plans for sweep in sweeps})
    found = iter(in_order(time, tasks, workers, lambda number: advance(names[number])))
    return [[next(found) for _ in own] for own in points]


def _timed(
    call: TimedCall, plans: Mapping[str | Path, Plans], task: tuple[str | Path, Mapping[str, Any]]
) -> TimedPoint | None:
    product, figures = task
    # A tile that no longer fits, or figures that the loader refuses together: that end is not possible.
    try:
        result = call(load_profile(product, overrides=dict(figures)), plans[product])
    except AscendSimError:
        return None
    own: FrozenMap[str, float] = FrozenMap({kernel.name: kernel.time_us for kernel in result.kernels})
    return TimedPoint(result.time_us, result.cycles, own)


def end_moves(moved: Sequence[Variable]) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the figures at each end (0 low, 1 high) of each variable; an end that is as usual needs none."""
    both = {(one.name, end): one.at(end) for one in moved for end in (0, 1)}
    return {name: values for name, values in both.items() if values}


def effects_of(
    moved: Sequence[Variable], usual_us: float, times: Mapping[tuple[str, int], float | None]
) -> tuple[FigureEffect, ...]:
    """Return the effect of each variable by the times at its ends; at an end without one, as usual."""
    made = []
    for one in moved:
        first = one.figures[one.name]
        low_us, high_us = (times.get((one.name, end), usual_us) for end in (0, 1))
        others = tuple(path for path in one.figures if path != one.name)
        made.append(
            FigureEffect(one.name, first.value, *ends(first), usual_us, low_us, high_us, others, one.shared)
        )
    return tuple(made)


@default_arithmetic
def float64_references(
    problem: LayerProblem, grad_output: Any, input: Any, weight: Any, output_mask: tuple[bool, bool, bool]
) -> dict[str, Any]:
    """Return the float64 gradients of tensors as they are stored, by name; None where masked."""
    # Decoding is exact, so that the errors are those of the arithmetic alone, not of storing the tensors.
    carriers = [decode(tensor, lookup_dtype(tensor.dtype)) for tensor in (grad_output, input, weight)]
    made = layer_gradients_float64(problem, carriers[0], carriers[1], carriers[2], output_mask)
    return dict(zip(GRADIENTS, made, strict=True))


@default_arithmetic
def judge(result: ConvolutionBackwardResult, references: Mapping[str, Any]) -> tuple[JudgedGradient, ...]:
    """Measure each gradient of a result against the one of the same name; a masked one is left out."""
    found = ((name, getattr(result, name)) for name in GRADIENTS)
    return tuple(
        judged(name, gradient, references[name], result.compute_dtype)
        for name, gradient in found
        if gradient is not None
    )


def judged(name: str, made: Any, reference: Any, compute_dtype: str) -> JudgedGradient:
    """Measure what a product of the cube, or a sum, has made against its float64 reference."""
    # hifloat8 has no numpy dtype: its bytes are those of its codes.
    digest = hashlib.sha256(getattr(made, "codes", made).tobytes()).hexdigest()
    errors = error_metrics(made, reference, _judged_as(name, made, compute_dtype))
    return JudgedGradient(name, tuple(made.shape), str(made.dtype), digest, errors)


def _judged_as(name: str, gradient: Any, compute_dtype: str) -> Any:
    """Return the format whose steps are the measure of a gradient's errors."""
    # The accuracy of HF32 is that of its operands, whatever the tensors are stored as; grad_bias is summed on
    # the vector cores and never meets the cube.
    in_hf32 = name != "grad_bias" and compute_dtype.startswith("hf32")
    return lookup_dtype(compute_dtype if in_hf32 else gradient.dtype)
