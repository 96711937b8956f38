"""Products of int8 operands, which the cube adds up in int32.

Products and sums of integers are exact in any order. What a sum does that leaves int32, which takes more than
131071 products, is published nowhere, so it has two names:

    int32:wrap       modulo 2^32, two's complement: still the same in any order and under any plan
    int32:saturate   to the nearer end of int32, when a cube product is done
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendsim.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OVERFLOWS = ("wrap", "saturate")


@dataclass(frozen=True, slots=True)
class IntegerSum:
    """Say what an int32 accumulator does at its ends, as a value that can be printed, parsed and compared.

    Raises   ConfigError for an overflow that is neither
    """

    overflow: str = "wrap"

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if self.overflow not in OVERFLOWS:
            raise _refusal(str(self))

    @classmethod
    def parse(cls, text: str) -> IntegerSum:
        """Read it from its text.

        Raises   ConfigError that quotes the text
        """
        accumulator, _, overflow = text.strip().partition(":")
        if accumulator != "int32" or overflow not in OVERFLOWS:
            raise _refusal(text)
        return cls(overflow)

    def __str__(self) -> str:
        """Print the text that `parse` reads back."""
        return f"int32:{self.overflow}"

    def accumulate(self, a: NDArray[np.int32], b: NDArray[np.int32], c: NDArray[np.int32]) -> None:
        """Add a product to `c` in place.

        Shapes   a (m, k), b (k, n), c (m, n)
        Types    int32 that hold int8 values; c any int32
        """
        import numpy as np

        # Exact in doubles, whatever order they are added in: no sum is above k 2^14, so k may be 2^39.
        total = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64) + c
        # Once, when the product is done, like `+saturate`: so the order inside the product does not matter.
        if self.overflow == "saturate":
            ends = np.iinfo(np.int32)
            np.clip(total, ends.min, ends.max, out=total)
        # From 64 bits numpy keeps the lower 32, which is the sum modulo 2^32 in two's complement.
        c[...] = total.astype(np.int32)


def _refusal(text: str) -> ConfigError:
    return ConfigError(
        f"accumulation model: products of int8 are added in int32, so it must be int32:wrap or "
        f"int32:saturate, got {text!r}"
    )
