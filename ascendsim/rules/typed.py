"""Check 0: every argument is of the type that the interface declares.

C's types leave no other choice, so the vendor has no such check; Python needs one, and it comes first. None
stays None wherever the interface takes a pointer: null pointers are for check 1.
"""

from __future__ import annotations

from dataclasses import fields, replace
from operator import index
from typing import Any

from ascendsim.arguments import LONGEST, shown
from ascendsim.errors import AclnnError
from ascendsim.rules.calls import USUAL_FORMATS, CubeMathType, SomeCall, TensorDescription

CHECK = "0 (argument types)"
# No dtype or format has a name half as long; a message should stay short.
LONGEST_NAME = 40
# Bits beside the sign. groups is a C int in the interface; the other numbers are taken as int64_t.
INT64 = 63
INT32 = 31
# The vendor's enum, numpy and torch spell the same formats differently.
DTYPE_SYNONYMS = {
    "float": "float32",
    "fp32": "float32",
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "hif8": "hifloat8",
    "double": "float64",
}


# No dataclass of its own: it has the fields of descriptions, and to make one takes a while.
class Tensor(TensorDescription):
    """A description whose every field is of its type: tuples of int, names in the simulator's spelling."""

    shape: tuple[int, ...]
    dtype: str
    format: str
    strides: tuple[int, ...] | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_empty(self) -> bool:
        """True if it has no elements."""
        return 0 in self.shape

    @property
    def is_contiguous(self) -> bool:
        """True if its elements lie row after row without gaps."""
        # Along an axis of one element nothing is stepped over, and without elements there is no gap.
        step = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides or ()), strict=False):
            if extent > 1 and stride != step:
                return self.is_empty
            step *= extent
        return True


def typed(call: SomeCall) -> SomeCall:
    """Return the call with tuples of int, bools and `Tensor`s, or refuse it.

    Raises   AclnnError 161002, check 0
    """
    values: dict[str, Any] = {}
    for entry in fields(call):
        name, given = entry.name, getattr(call, entry.name)
        # Fields are told apart by name, since the records take anything.
        if name in call.tensors:
            values[name] = None if given is None else _tensor(name, given)
        elif name == "transposed":
            values[name] = _bool(name, given)
        elif name == "cube_math_type":
            values[name] = _cube_math_type(given)
        elif name in ("groups", "pad"):
            values[name] = _int(name, given, INT32 if name == "groups" else INT64)
        elif given is not None:
            values[name] = flags(name, given) if name == "output_mask" else numbers(name, given)
    return replace(call, **values)


def dtype_name(value: Any) -> str | None:
    """Return the simulator's spelling of a dtype: of a name, also the vendor's, or of a numpy dtype."""
    if not isinstance(value, str):
        try:
            value = value.__name__ if isinstance(value, type) else value.name
        except Exception:  # whatever a foreign object does when it is asked
            return None
        if not isinstance(value, str):
            return None
    plain = value.strip().lower()
    for prefix in ("acl_", "dt_", "torch."):
        plain = plain.removeprefix(prefix)
    return DTYPE_SYNONYMS.get(plain, plain)


def cube_math_number(given: Any) -> Any:
    """Return the number of a cubeMathType that is given by its name, in any case; anything else as it is."""
    name = given.strip().upper() if isinstance(given, str) else ""
    return CubeMathType[name] if name in CubeMathType.__members__ else given


def format_name(value: Any, rank: int) -> str | None:
    """Return the plain name of a storage format; of None, the usual one of the rank."""
    if value is None:
        return USUAL_FORMATS.get(rank, "ND")
    if not isinstance(value, str):
        return None
    return value.strip().upper().removeprefix("ACL_").removeprefix("FORMAT_")


def _cube_math_type(given: Any) -> int:
    number = cube_math_number(given)
    if isinstance(number, str):
        names = ", ".join(CubeMathType.__members__)
        raise _refusal("cube_math_type", given, f"an integer, or one of {names}")
    return _int("cube_math_type", number)


def _tensor(name: str, given: Any) -> Tensor:
    if not isinstance(given, TensorDescription):
        raise _refusal(name, given, "a tensor or None")
    shape = numbers(f"{name}.shape", given.shape)
    # Extents of 0 are for the checks of empty tensors; below that nothing makes sense.
    if min(shape, default=0) < 0:
        raise _refusal(f"{name}.shape", shape, "extents of 0 or more")
    dtype = dtype_name(given.dtype)
    if dtype is None or len(dtype) > LONGEST_NAME:
        raise _refusal(f"{name}.dtype", given.dtype, "the name of a dtype")
    layout = format_name(given.format, len(shape))
    if layout is None or len(layout) > LONGEST_NAME:
        raise _refusal(f"{name}.format", given.format, "the name of a format, such as NCHW")
    strides = given.strides
    if strides is not None:
        strides = numbers(f"{name}.strides", strides)
        if len(strides) != len(shape):
            raise _refusal(f"{name}.strides", strides, f"one for each of the {len(shape)} axes")
    return Tensor(shape, dtype, layout, strides)


def _items(name: str, given: Any) -> list[Any]:
    """Return the items of an array argument, reading no more of it than could be meant."""
    expected = "a list of numbers"
    # They have a length and items, but "12" is not [1, 2], and a set has no order.
    if isinstance(given, (str, bytes, dict, set, frozenset)):
        raise _refusal(name, given, expected)
    try:
        count = len(given)
        if count > LONGEST:
            raise AclnnError(161002, CHECK, f"{name} has {count} items; no array of the interface is so long")
        # By place, not by iteration: an endless iterator with a short length cannot hang the check.
        return [given[place] for place in range(count)]
    except AclnnError:
        raise
    except Exception:  # likewise
        raise _refusal(name, given, expected) from None


def numbers(name: str, given: Any) -> tuple[int, ...]:
    """Return the whole numbers of an array argument.

    Raises   AclnnError 161002, check 0
    """
    return tuple(_int(f"{name}[{i}]", item) for i, item in enumerate(_items(name, given)))


def _int(name: str, given: Any, bits: int = INT64) -> int:
    try:
        # True is 1 for Python, but a stride of True is a mistake.
        if isinstance(given, bool):
            raise TypeError
        number = index(given)
    except Exception:  # likewise
        raise _refusal(name, given, "an integer") from None
    if not -(1 << bits) <= number < 1 << bits:
        raise AclnnError(161002, CHECK, f"{name} does not fit into {bits + 1} bits")
    return number


def flags(name: str, given: Any) -> tuple[bool, ...]:
    """Return the truth values of an array argument.

    Raises   AclnnError 161002, check 0
    """
    return tuple(_bool(f"{name}[{i}]", item) for i, item in enumerate(_items(name, given)))


def _bool(name: str, given: Any) -> bool:
    """Return a truth value: Python's, numpy's, or 0 and 1."""
    try:
        # numpy's bool has no index: it is asked for its truth value instead.
        number = index(given) if not type(given).__name__.startswith("bool") else int(bool(given))
        if number in (0, 1):
            return bool(number)
    except Exception:  # likewise
        pass
    raise _refusal(name, given, "true or false")


def _refusal(name: str, given: Any, expected: str) -> AclnnError:
    """Make the error for an argument of a wrong type."""
    return AclnnError(161002, CHECK, f"{name} is {shown(given)}; it must be {expected}")
