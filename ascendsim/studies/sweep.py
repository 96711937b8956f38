"""Move every assumed figure of a product to both ends of its range, under the plans that a call has now."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.errors import AscendSimError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.formats.casts import decode
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype
from ascendsim.numerics.metrics import error_metrics
from ascendsim.ops.convolution_backward import estimate
from ascendsim.ops.lowering.call import GRADIENTS
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.float64 import gradients_float64
from ascendsim.parallel import in_order
from ascendsim.profile import Profile, load_profile
from ascendsim.studies.records import FigureEffect, Interval, JudgedGradient

if TYPE_CHECKING:
    from ascendsim.ops.plan import Plan
    from ascendsim.ops.results import ConvolutionBackwardResult, Estimate
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


def studied(profile: Profile) -> tuple[str, str, int]:
    """Return what a `StudyAnswer` says of its product."""
    return profile.variant, profile.content.hex(), len(ranged_figures(profile))


def ends(figure: Figure) -> tuple[Any, Any]:
    """Return both ends of a figure's range; of alternatives, the first and the last."""
    assert figure.range is not None
    return figure.range[0], figure.range[-1]


def hashable(end: Any) -> Any:
    """Return a value of a figure by which points can be named: of one that is a list, a tuple."""
    return tuple(end) if isinstance(end, list) else end


def sweep_size(profile: Profile) -> int:
    """Return the number of calls that a sweep times; an end that equals the figure's value needs none."""
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
        """Move each figure alone to both ends; `advance` is called with the figure of each call.

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
    advance  is called with the figure of each call of the sweep
    usual    the call with the figures as they are, where it has been timed already
    workers  processes that time the sweep, as `estimate_many` takes them; `call` is sent to others than this

    The two calls with all figures at once are no bounds that hold whatever happens: a figure that shortens
    the call alone may stretch it beside others. They are what the figures' own effects add up to.
    """
    sweep = Sweep.of(product, call, usual)
    # Alone first, since only this shows which end of a figure shortens this call: a slower link may well help
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


@default_arithmetic
def float64_references(
    problem: ConvProblem, grad_output: Any, input: Any, weight: Any, output_mask: tuple[bool, bool, bool]
) -> dict[str, Any]:
    """Return the float64 gradients of tensors as they are stored, by name; None where masked."""
    # Decoding is exact, so that the errors are those of the arithmetic alone, not of storing the tensors.
    carriers = [decode(tensor, lookup_dtype(tensor.dtype)) for tensor in (grad_output, input, weight)]
    made = gradients_float64(problem, carriers[0], carriers[1], carriers[2], output_mask)
    return dict(zip(GRADIENTS, made, strict=True))


@default_arithmetic
def judge(result: ConvolutionBackwardResult, references: Mapping[str, Any]) -> tuple[JudgedGradient, ...]:
    """Measure each gradient of a result against the one of the same name; a masked one is left out."""
    found = ((name, getattr(result, name)) for name in GRADIENTS)
    return tuple(
        JudgedGradient(
            name,
            tuple(gradient.shape),
            str(gradient.dtype),
            # hifloat8 has no numpy dtype: its bytes are those of its codes.
            hashlib.sha256(getattr(gradient, "codes", gradient).tobytes()).hexdigest(),
            error_metrics(gradient, references[name], _judged_as(name, gradient, result.compute_dtype)),
        )
        for name, gradient in found
        if gradient is not None
    )


def _judged_as(name: str, gradient: Any, compute_dtype: str) -> Any:
    """Return the format whose steps are the measure of a gradient's errors."""
    # The accuracy of HF32 is that of its operands, whatever the tensors are stored as; grad_bias is summed on
    # the vector cores and never meets the cube.
    in_hf32 = name != "grad_bias" and compute_dtype.startswith("hf32")
    return lookup_dtype(compute_dtype if in_hf32 else gradient.dtype)


# The main job: the 3x3 layer with 128 channels of ResNet-50, batch 4, both gradients in float16.
LAYER = ConvProblem((4, 128, 28, 28), (128, 128, 3, 3), 1, 1)
LAYER_NAME = "the 128->128 3x3 @28x28 layer of ResNet-50, batch 4, float16"


@default_arithmetic
def sensitivity(product: str | Path) -> tuple[FigureEffect, ...]:
    """Return the effect of every assumed figure of a product on both gradients of `LAYER`."""
    return Sweep.of(product, _call).effects(lambda _: None)


def _call(profile: Profile, plans: Any) -> Any:
    return estimate(LAYER, product=profile, output_mask=(True, True, False), tiling=plans)
