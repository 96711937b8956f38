"""What the figures that nobody measured move: each at both ends of its range, all others as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ascendsim.errors import AscendSimError
from ascendsim.ops.convolution_backward import estimate
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.profile import Profile, load_profile

if TYPE_CHECKING:
    from ascendsim.profile import Figure

# The main job: the 3x3 layer with 128 channels of ResNet-50, batch 4, both gradients in float16.
LAYER = ConvProblem((4, 128, 28, 28), (128, 128, 3, 3), 1, 1)
LAYER_NAME = "the 128->128 3x3 @28x28 layer of ResNet-50, batch 4, float16"


@dataclass(frozen=True)
class Effect:
    """The relative change of the microseconds of both gradients at the ends of a figure's range.

    None where the end cannot be taken, since other figures contradict it.
    """

    path: str
    figure: Figure
    low: float | None
    high: float | None

    @property
    def size(self) -> float:
        """The larger of the two changes."""
        return max(abs(change) for change in (self.low or 0.0, self.high or 0.0))


def effects(product: str) -> Iterator[Effect]:
    """Yield the effect of every assumed figure of a product that could move cycles.

    A figure that is a text, such as an accumulation model, moves bits and no cycles; it is left out.
    """
    base = load_profile(product)
    usual = _us(base)
    plan = {
        kernel.name: kernel.plan
        for kernel in estimate(LAYER, product=base, output_mask=(True, True, False)).kernels
        if kernel.plan is not None
    }
    for path, figure in base.assumed().items():
        if isinstance(figure.value, str) or figure.range is None:
            continue
        ends = [_change(product, path, end, figure.value, usual, plan) for end in _ends(figure)]
        yield Effect(path, figure, ends[0], ends[1])


def _ends(figure: Figure) -> tuple[Any, Any]:
    """Return both ends of a range; of alternatives, the first and the last."""
    assert figure.range is not None
    return figure.range[0], figure.range[-1]


def _change(
    product: str, path: str, end: Any, value: Any, usual: float, plan: dict[str, Any]
) -> float | None:
    if end == value:
        return 0.0
    try:
        return _us(load_profile(product, overrides={path: end}), plan) / usual - 1
    except AscendSimError:
        return None


def _us(profile: Profile, plan: dict[str, Any] | None = None) -> float:
    """Return the microseconds of both gradients, under a given plan if there is one."""
    result = estimate(LAYER, product=profile, output_mask=(True, True, False), tiling=plan)
    return result.time_us
