"""The answers of a study of precision: frozen records of plain values."""

from __future__ import annotations

from dataclasses import dataclass

from ascendsim.native.default_arithmetic import default_arithmetic


@dataclass(frozen=True, slots=True)
class FormatShare:
    """Losses by a format on one tensor, in shares of its values that are not zero.

    tensor      grad_output, input or weight
    format      name of the format
    loss_scale  by which the tensor was multiplied before; 1 for input and weight
    subnormal   shares below the smallest normal value, those that become zero included; None for hifloat8,
                whose values have fewer bits step by step
    zero        become zero
    overflow    become Inf or NaN
    """

    tensor: str
    format: str
    loss_scale: float
    subnormal: float | None
    zero: float
    overflow: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """The numbers of a tensor's values in each binade.

    first    exponent e of the first binade, 2^e <= |x| < 2^(e + 1)
    counts   of the first binade and those after it; () for a tensor of zeros
    zeros    values that are 0
    special  values that are NaN or Inf
    """

    tensor: str
    first: int
    counts: tuple[int, ...]
    zeros: int
    special: int


@dataclass(frozen=True, slots=True)
class GradientError:
    """The error of one gradient under one mode: L2 norms, relative to that of the float64 gradient.

    The reference is float64 of the tensors as they were given, before a loss scale and before they were
    stored. The four parts add up to the error element by element; their norms need not.

    name          grad_input, grad_weight or grad_bias
    total         of the gradient, divided by the loss scale
    storage       of storing the tensors
    cast          error by the format that the cube reads instead of the stored one
    output        of rounding the gradient once to the formats in which it leaves
    accumulation  of the rest: the sums
    of_terms      largest |error| of cast, accumulation and output over the sum of the magnitudes of the terms
    underflow     share of the gradient that is 0 where the reference is not
    overflow      share that is NaN or Inf where the reference is not
    different     share of elements whose bits differ from those under the first accumulation model
    failed        rules of the field that it fails against float64 of the stored tensors: name and reason
    """

    name: str
    total: float
    storage: float
    cast: float
    output: float
    accumulation: float
    of_terms: float
    underflow: float
    overflow: float
    different: float
    failed: tuple[tuple[str, str], ...]

    @property
    @default_arithmetic
    def parts(self) -> dict[str, float]:
        """The parts of the error by the words that reports have for them."""
        return {"storage": self.storage, "cast": self.cast, "output": self.output, "sums": self.accumulation}


@dataclass(frozen=True, slots=True)
class ModeError:
    """One case under one mode, accumulation model and loss scale.

    dtype            in which the tensors are stored
    cube_math_types  those that have the cube read this
    compute_dtype    what the cube reads; "" where the interface refuses the call
    accumulation     model
    time_us          of one call, launches included
    refused          the interface's reason; "" where it accepts
    """

    dtype: str
    cube_math_types: tuple[int, ...]
    compute_dtype: str
    accumulation: str
    loss_scale: float
    time_us: float
    gradients: tuple[GradientError, ...] = ()
    refused: str = ""

    @property
    def worst(self) -> GradientError:
        """The gradient with the largest error; NaN is the largest."""
        return max(self.gradients, key=lambda one: (one.total != one.total, one.total))

    def passes(self, limit: float) -> bool:
        """Return whether every gradient is within a limit; one with NaN or Inf is not."""
        return bool(self.gradients) and all(one.total <= limit for one in self.gradients)


@dataclass(frozen=True, slots=True)
class CaseErrors:
    """All modes of one case.

    name   of the layer or file, and its data
    count  how many convolutions it stands for
    """

    name: str
    count: int
    modes: tuple[ModeError, ...]
    shares: tuple[FormatShare, ...]
    histograms: tuple[Histogram, ...]
