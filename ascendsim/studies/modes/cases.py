"""The tensors that a study of precision is asked about, in float64: drawn, or recorded by somebody."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.problems.convolution import ConvProblem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Tensors = Mapping[str, NDArray[np.float64]]

TENSORS = ("grad_output", "input", "weight")
DATA = ("normal", "long-tailed")
# Of long-tailed: neural gradients are near log-normal (B. Chmiel and others 2020, arXiv:2006.08173). The two
# numbers are choices of ours: a mean over some hundred images, and tails that reach 24 binades to each side.
MEDIAN_EXPONENT, BINADES = -16, 4


@dataclass(frozen=True)
class Case:
    """A convolution with its tensors.

    mask   which gradients are asked for
    count  how many convolutions it stands for
    data   which values: equal words mean equal values
    load   makes grad_output, input and weight in float64; a function of a module, to be sent to processes
    """

    name: str
    problem: ConvProblem
    mask: tuple[bool, bool, bool]
    count: int
    data: str
    load: Callable[[], Tensors]


@dataclass(frozen=True)
class Drawn:
    """Synthetic tensors: the same seed gives the same values.

    kind   "normal": all three standard normal. "long-tailed": grad_output has magnitudes whose logarithms to
           base 2 are normal, about MEDIAN_EXPONENT with a deviation of BINADES, and the sign of a coin
    """

    problem: ConvProblem
    kind: str
    seed: int

    @default_arithmetic
    def __call__(self) -> Tensors:
        """Draw grad_output, input and weight."""
        random = np.random.default_rng(self.seed)
        # float32 draws in this order are those of `ascendsim run --seed`.
        drawn = {
            name: random.standard_normal(getattr(self.problem, name), dtype=np.float32).astype(np.float64)
            for name in TENSORS
        }
        if self.kind == "long-tailed":
            signs = np.where(random.random(self.problem.grad_output) < 0.5, -1.0, 1.0)
            drawn["grad_output"] = signs * 2.0 ** (MEDIAN_EXPONENT + BINADES * drawn["grad_output"])
        return drawn
