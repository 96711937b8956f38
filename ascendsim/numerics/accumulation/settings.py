"""Hold the choices of arithmetic that a lowered kernel fixes and a call cannot see."""

from dataclasses import dataclass

from ascendsim.errors import ConfigError
from ascendsim.numerics.accumulation.integers import IntegerSum
from ascendsim.numerics.accumulation.models import OVERFLOWS, ROUNDINGS, AccumulationModel

Accumulation = AccumulationModel | IntegerSum


@dataclass(frozen=True, slots=True)
class MathSettings:
    """Say with which arithmetic one kernel runs.

    accumulation   how cube products become the accumulator: binary32, or int32 for int8 operands
    hf32_ties      how operands become HF32: RNE, RNA or RZ; it depends on the kernel that a call is lowered
                   to (convolution backward leaves the control bit at RNE, matrix multiplication sets RNA)
    overflow       what conversions out of L0C and vector casts do beyond the largest finite value: "ieee"
                   (Inf, NaN kept) or "saturate" (largest finite value, NaN becomes 0)
    Raises         ConfigError for another value
    """

    accumulation: Accumulation
    hf32_ties: str = "RNE"
    overflow: str = "ieee"

    def __post_init__(self) -> None:
        """Refuse values without a meaning."""
        if self.hf32_ties not in ROUNDINGS:
            raise ConfigError(
                f"math settings: hf32_ties must be one of {', '.join(ROUNDINGS)}, got {self.hf32_ties!r}"
            )
        if self.overflow not in OVERFLOWS:
            raise ConfigError(
                f"math settings: overflow must be one of {', '.join(OVERFLOWS)}, got {self.overflow!r}"
            )

    @property
    def carrier(self) -> str:
        """Name of the numpy type that holds the elements of every tensor while the kernel runs."""
        return "int32" if isinstance(self.accumulation, IntegerSum) else "float32"
