"""The answers of a study of precision: frozen records of plain values."""

from __future__ import annotations

from dataclasses import dataclass

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.dtypes import dtype
from ascendsim.numerics.metric_chunks import standards

# A choice of ours: rounding two operands and the result costs 1.7 times what one rounding does; the rest is
# for terms that cancel.
FACTOR = 4.0
# Of every mode at least, as the operator test kit asks of float32: sums are float32, and cost more than one
# rounding to that.
SUMS_LIMIT = standards(dtype("float32")).stat_limit or 0.0
LOST_LIMIT = 1e-3  # the share of wrong elements that the field's double-thousandth rule lets pass


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
class Decade:
    """The elements of a gradient with 10^exponent <= |g| < 10^(exponent + 1), in float64.

    error      L2 norm of their error, relative to that of the elements; those that overflow are left out
    zero       how many became 0 by underflow
    subnormal  how many others underflow takes bits of: they or operands are below a smallest normal value.
               One counts where that is half of its error or more, and its error more than FACTOR roundings
    beyond     how many are Inf, NaN or at the largest value, where the exact one or an operand lies beyond
    """

    exponent: int
    count: int
    error: float
    zero: int
    subnormal: int
    beyond: int

    @property
    def lost(self) -> int:
        """How many elements the range took."""
        return self.zero + self.subnormal + self.beyond


@dataclass(frozen=True, slots=True)
class PassLimits:
    """What a mode must keep to pass: the error of each gradient, and its elements lost for want of range.

    absolute   one limit of the error for all modes; None: `factor` times the error of the float64 gradient
               rounded once to the mode's coarsest format, with exponents without an end, and at least `sums`
    lost       largest share of elements that may be lost
    """

    absolute: float | None = None
    factor: float = FACTOR
    sums: float = SUMS_LIMIT
    lost: float = LOST_LIMIT

    def of(self, gradient: GradientError) -> float:
        """Return the limit of a gradient's error."""
        return max(self.factor * gradient.once, self.sums) if self.absolute is None else self.absolute

    def missed(self, gradient: GradientError) -> tuple[str, ...]:
        """Return by what a gradient fails: its norm, its lost elements, both or nothing; NaN fails."""
        by_norm = not gradient.total <= self.of(gradient)
        return (NORM,) * by_norm + (LOST,) * (gradient.lost > self.lost)


NORM, LOST = "norm", "lost elements"


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
    once          of the float64 gradient rounded once to the coarsest format of the mode, range apart
    causes        shares of the squared error by cause (`losses`), the largest first
    channel       which has the largest error relative to its own norm: along the channels of grad_input, and
                  the first axis of the others; -1 of a gradient of zeros
    of_channel    that error
    decades       by magnitude, the smallest first
    takers        (cause, tensor, share of its elements) of what range takes, the largest first; the tensor is
                  the operand that decides, or the gradient itself on its way out
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
    once: float = 0.0
    causes: tuple[tuple[str, float], ...] = ()
    channel: int = -1
    of_channel: float = 0.0
    decades: tuple[Decade, ...] = ()
    takers: tuple[tuple[str, str, float], ...] = ()

    @property
    @default_arithmetic
    def lost(self) -> float:
        """The share of its elements that range takes, of those whose reference is not 0."""
        return sum(one.lost for one in self.decades) / max(1, sum(one.count for one in self.decades))

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


@dataclass(frozen=True, slots=True)
class CaseErrors:
    """All modes of one case.

    name      of the layer or file, and its data
    count     how many convolutions it stands for
    batch     images of the call that is timed
    computed  the input whose gradients are computed: fewer images, or smaller ones
    """

    name: str
    count: int
    modes: tuple[ModeError, ...]
    shares: tuple[FormatShare, ...]
    histograms: tuple[Histogram, ...]
    batch: int = 1
    computed: tuple[int, ...] = ()
