"""Promotion of the inputs, and the dtype that the cube multiplies for a cubeMathType."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ascendsim.rules.calls import CubeMathType
from ascendsim.rules.model import ABSENT, REFUSED, CubeMath

# Only the 910_95 has them.
EIGHT_BITS = ("hifloat8", "float8_e4m3fn", "float8_e5m2")
# In the order of their numbers.
CUBE_MATH_TYPES = tuple(CubeMathType.__members__)
# From the least to the most precise, for the page that asks for "the more precise" of two.
PRECISION = (*EIGHT_BITS, "bfloat16", "float16", "float32")


def promote(dtypes: Sequence[str], mixed_eight_bit: str) -> str:
    """Return the common dtype: equal ones stay, other mixes give float32, "refused" if there is none.

    An 8-bit dtype beside another one is a matter of the rule set.
    """
    if len(set(dtypes)) == 1:
        return dtypes[0]
    # float32 holds every value of float16 and of bfloat16, which hold not all of each other.
    return mixed_eight_bit if set(dtypes) & set(EIGHT_BITS) else "float32"


def more_precise(dtypes: Sequence[str]) -> str:
    """Return the dtype with the most mantissa bits."""
    return max(dtypes, key=lambda name: PRECISION.index(name) if name in PRECISION else -1)


def cube_dtype(promoted: str, cube_math_type: int, table: CubeMath) -> str:
    """Return what the cube computes in, or that the rules refuse it."""
    row = table.get(promoted)
    if row is None or not 0 <= cube_math_type < len(row):
        return REFUSED
    return row[cube_math_type]


def cube_math_problem(
    dtypes: Sequence[str], promoted: str, cube_math_type: int, table: CubeMath
) -> str | None:
    """Say why a cubeMathType is not allowed for these inputs on this product."""
    if not 0 <= cube_math_type < len(CUBE_MATH_TYPES):
        names = ", ".join(f"{value} ({name})" for value, name in enumerate(CUBE_MATH_TYPES))
        return f"cube_math_type is {cube_math_type}; it must be one of {names}"
    # After the range, which is wrong whatever the inputs are.
    if promoted == REFUSED:
        return f"grad_output, input and weight are {', '.join(dtypes)}, which have no common dtype"
    if cube_dtype(promoted, cube_math_type, table) != REFUSED:
        return None
    row = table.get(promoted, ())
    allowed = [str(value) for value, outcome in enumerate(row) if outcome != REFUSED]
    what = "the inputs are" if len(set(dtypes)) == 1 else "the inputs promote to"
    return (
        f"cube_math_type is {cube_math_type} ({CUBE_MATH_TYPES[cube_math_type]}), which is not supported "
        f"where {what} {promoted}; allowed there: {', '.join(allowed) or 'none'}"
    )


def cube_math_warnings(
    promoted: str, cube_math_type: int, compute: str, warned: Mapping[str, tuple[int, ...]]
) -> tuple[str, ...]:
    """Return what the operator logs about a cubeMathType that does not do what its name says."""
    # Nothing is logged about a call that fails.
    if compute in (REFUSED, ABSENT) or cube_math_type not in warned.get(promoted, ()):
        return ()
    name = CUBE_MATH_TYPES[cube_math_type]
    return (f"cube_math_type {cube_math_type} ({name}) with {promoted} inputs computes in {compute}",)
