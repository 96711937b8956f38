"""The formats of operands and results, and what becomes of a result that its format does not hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ascendsim.errors import UnsupportedError, shown, whole
from ascendsim.numerics.dtypes import (
    DTYPES,
    INT8,
    INT32,
    Control,
    DType,
    Integer,
    Named,
    OverflowRules,
    find,
    name_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.operands import Operand
    from ascendsim.profile import Profile


def overflow_rules(profile: Profile) -> OverflowRules:
    """Return the overflow rules of a product's conversions."""
    core = profile.generation
    at_launch = Control(core.inf_nan_at_launch, global_rules=core.global_rules_at_launch)
    return OverflowRules(core.inf_nan_formats, core.fixpipe_saturated_formats, at_launch)


def vector_overflow(profile: Profile, target: str) -> str:
    """Return the overflow rule of a vector core's conversion."""
    return overflow_rules(profile).conversion(target)


def cube_overflow(profile: Profile, target: str, preset: str = "ctrl48") -> str:
    """Return the overflow rule of results from L0C: Fixpipe's, or that of vector cores without a Fixpipe."""
    if profile.has_path("L0C", "GM"):
        return overflow_rules(profile).fixpipe(target, preset)
    return vector_overflow(profile, target)


CUBE_MATH_TYPES = {0: "keep", 1: "allow lower precision", 2: "float16", 3: "HF32"}
FLOATS = tuple(known for known in DTYPES if not known.name.startswith("hf32"))
OPERANDS: tuple[DType | Integer, ...] = (*FLOATS, INT8)


def operand_format(kind: Named) -> str:
    """Return the format of the operands by its name.

    Raises   UnsupportedError for one that no operand has
    """
    _refuse_hf32(kind, "pass float32 with cube_math_type=3")
    return find(kind, OPERANDS).name


def result_format(operands: str, kind: Named | None) -> str:
    """Return the format of the result for the one that was asked for, None: the default.

    Raises   UnsupportedError for one that does not come out
    """
    if operands == INT8.name:
        if kind is not None and name_of(kind) != INT32.name:
            raise UnsupportedError(
                f"matmul: out_dtype is {name_of(kind)}, but products of int8 come out as int32, as the cube "
                "adds them: leave it out, and scale the result yourself"
            )
        return INT32.name
    if kind is not None:
        _refuse_hf32(kind, "take float32")
    return find(operands if kind is None else kind, FLOATS).name


def compute_format(stored: str, cube_math_type: int, profile: Profile) -> str:
    """Return the format in which the cube multiplies operands of a stored format.

    Raises   UnsupportedError if cubeMathType is not 0 to 3 or the product's cube cannot do the conversion
    """
    number = whole(cube_math_type)
    if number not in CUBE_MATH_TYPES:
        raise UnsupportedError(
            f"matmul: cube_math_type is {shown(cube_math_type)}; it must be one of "
            + ", ".join(f"{value} ({name})" for value, name in CUBE_MATH_TYPES.items())
        )
    rates = profile.cube.rates
    lower = "hf32" if "hf32" in rates else "float16"
    wanted = {0: "float32", 1: lower, 2: "float16", 3: "hf32"}[number]
    compute = wanted if stored == "float32" else stored
    if compute not in rates:
        has = ", ".join("hf32 (float32 with cube_math_type 3)" if name == "hf32" else name for name in rates)
        raise UnsupportedError(
            f"matmul: {stored} with cube_math_type {cube_math_type} ({CUBE_MATH_TYPES[number]}) "
            f"needs {compute} in the cube of {profile.variant}, which multiplies {has}"
        )
    return compute


def overflow(profile: Profile, result: str) -> str:
    """Return the overflow rule of a result on its way out of L0C."""
    if result == INT32.name:
        return "ieee"  # nothing is converted
    return cube_overflow(profile, result)


def carrier(operand: Operand) -> NDArray[Any]:
    """Return the values of an operand as the kernels hold them."""
    import numpy as np

    return np.asarray(operand.values, np.int32) if operand.dtype == INT8.name else operand.carrier()


def stored(values: NDArray[Any], result: str) -> Any:
    """Return a result as the user gets it."""
    from ascendsim.numerics.casts import encode

    return values if result == INT32.name else encode(values, result)


def _refuse_hf32(kind: Named, instead: str) -> None:
    """Refuse HF32 as the format of a tensor."""
    name = name_of(kind)
    if name.startswith("hf32"):
        raise UnsupportedError(
            f"matmul: no tensor is {name}, which is how the cube reads float32 operands; {instead}"
        )
