"""HF32, the one format that lies in memory as another: float32 operands which the cube rounds as it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ascendsim.profile import Profile


def stored_name(compute_dtype: str) -> str:
    """Return the format in which the cube's operands lie in memory."""
    # No buffer holds HF32: its bytes, and so its tiles and copies, are those of float32.
    return "float32" if compute_dtype == "hf32" else compute_dtype


def full_name(compute_dtype: str, profile: Profile) -> str:
    """Return the format on whose grid the cube multiplies: of hf32, hf32_11 or hf32_10 by product."""
    return f"hf32_{profile.cube.hf32_mantissa_bits}" if compute_dtype == "hf32" else compute_dtype


def as_multiplied(
    values: NDArray[np.float32], compute_dtype: str, profile: Profile, ties: str
) -> NDArray[np.float32]:
    """Return the values that the cube multiplies; HF32 rounds each element on its way out of L0."""
    if compute_dtype != "hf32":
        return values
    from ascendsim.numerics.formats.casts import hf32

    return hf32(values, profile.cube.hf32_mantissa_bits, ties)
