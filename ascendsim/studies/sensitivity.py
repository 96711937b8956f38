"""Say what the figures that nobody measured move, on the main job of this simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.convolution_backward import estimate
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.profile import Profile
from ascendsim.studies.records import FigureEffect
from ascendsim.studies.sweep import Sweep

# The main job: the 3x3 layer with 128 channels of ResNet-50, batch 4, both gradients in float16.
LAYER = ConvProblem((4, 128, 28, 28), (128, 128, 3, 3), 1, 1)
LAYER_NAME = "the 128->128 3x3 @28x28 layer of ResNet-50, batch 4, float16"


@default_arithmetic
def sensitivity(product: str | Path) -> tuple[FigureEffect, ...]:
    """Return the effect of every assumed figure of a product on both gradients of `LAYER`."""
    return Sweep.of(product, _call).effects(lambda _: None)


def _call(profile: Profile, plans: Any) -> Any:
    return estimate(LAYER, product=profile, output_mask=(True, True, False), tiling=plans)
