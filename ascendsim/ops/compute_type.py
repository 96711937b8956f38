"""Which format the cube multiplies in, for given inputs, cubeMathType and product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendsim.errors import UnsupportedError

if TYPE_CHECKING:
    from ascendsim.profile import Profile

CUBE_MATH_TYPES = {0: "KEEP_DTYPE", 1: "ALLOW_FP32_DOWN_PRECISION", 2: "USE_FP16", 3: "USE_HF32"}


def promote(names: tuple[str, ...]) -> str:
    """Return the common format of the inputs: equal ones stay, any mix of floating formats gives float32."""
    return names[0] if len(set(names)) == 1 else "float32"


def compute_dtype(inputs: tuple[str, ...], cube_math_type: int, profile: Profile) -> str:
    """Return float16, bfloat16, float32 or hf32.

    Raises   UnsupportedError if cubeMathType is not 0..3, or the product's cube cannot do what it asks for
    Source   rule book of the operator: float32 becomes HF32 (types 1 and 3) or float16 (2); on products whose
             cube has neither float32 nor HF32, types 1 and 2 give float16; bfloat16 with type 2 gives float16
    """
    if cube_math_type not in CUBE_MATH_TYPES or isinstance(cube_math_type, bool):
        raise UnsupportedError(
            f"convolution_backward: cube_math_type is {cube_math_type!r}; it must be one of "
            + ", ".join(f"{value} ({name})" for value, name in CUBE_MATH_TYPES.items())
        )
    common = promote(inputs)
    for name in {*inputs, common} - {"float32"}:
        if name not in profile.cube.rates:
            raise UnsupportedError(
                f"convolution_backward: the cube of {profile.variant} does not multiply {name}; it does "
                + ", ".join(profile.cube.rates)
            )
    if common == "float32":
        wanted = {0: "float32", 1: "hf32", 2: "float16", 3: "hf32"}[cube_math_type]
        if cube_math_type == 1 and "hf32" not in profile.cube.rates:
            wanted = "float16"
    elif common == "bfloat16" and cube_math_type == 2:
        wanted = "float16"
    else:
        wanted = common
    if wanted not in profile.cube.rates:
        raise UnsupportedError(
            f"convolution_backward: {common} tensors with cube_math_type {cube_math_type} "
            f"({CUBE_MATH_TYPES[cube_math_type]}) need {wanted} in the cube, which {profile.variant} does "
            "not have; use cube_math_type 1 or 2 there, which compute in float16"
        )
    return wanted
