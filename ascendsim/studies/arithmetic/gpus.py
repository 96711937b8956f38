"""Tensor cores of other vendors, by what was published of how they add: instances of `align`.

All cut every term, the accumulator included, toward zero to F bits below the largest exponent, add exactly,
and cut the sum toward zero to float32. What differs is F, and how many products meet. These are models that
others published and held to devices; the number of products of an FP8 step is read from its instruction.
How many meet on the other three was also found from outside, by the trees that FPRev draws: sums of 4, 8 and
16 products with the accumulator.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """A tensor core: its model, the operands it is published for, and where from."""

    model: str
    operands: tuple[str, ...]
    source: str
    confidence: str


_MMA_SIM = "MMA-Sim (models held to devices by random bit patterns)"
_BOTH = f"{_MMA_SIM}; block: also FPRev (USENIX ATC 2025)"
GPUS: dict[str, Gpu] = {
    "nvidia-v100": Gpu("align:4:F23:RZ:acc", ("float16",), _BOTH, "measured by others"),
    "nvidia-a100": Gpu("align:8:F24:RZ:acc", ("float16", "bfloat16"), _BOTH, "measured by others"),
    "nvidia-h100": Gpu("align:16:F25:RZ:acc", ("float16", "bfloat16"), _BOTH, "measured by others"),
    "nvidia-ada-fp8": Gpu(
        "align:16:F13:RZ:acc",
        ("float8_e4m3fn", "float8_e5m2"),
        f"{_MMA_SIM}; 32 products of an instruction in two halves",
        "F measured by others, block derived",
    ),
}
