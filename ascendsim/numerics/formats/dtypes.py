"""The number formats of the Ascend core, as data.

One frozen record per format; everything else in `numerics` reads these fields.  Importing this module needs
numpy only: the estimate path asks for sizes and never for values.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ascendsim.errors import UnsupportedError, close_matches


@dataclass(frozen=True)
class DType:
    """Describe one operand format.

    Every supported value is also a float32 value: the simulator carries such tensors as float32 arrays whose
    elements lie on the format's grid.

    name            the name users and configs write
    bits            bits of one element in a buffer (HF32 stays float32 in every buffer: 32)
    exponent_bits   width of the exponent field (hifloat8: its widest, 4)
    mantissa_bits   stored fraction bits (hifloat8: its widest, 3; taper: 3 down to 0)
    bias            exponent bias; the smallest normal exponent is 1 - bias (hifloat8: 0, not used)
    max_finite      largest finite value
    has_infinity    False: the format overflows to NaN (float8_e4m3fn)
    tapered         True: field widths depend on the value (hifloat8)
    storage_name    name of the numpy dtype that holds the codes; None: no numpy dtype exists
    """

    name: str
    bits: int
    exponent_bits: int
    mantissa_bits: int
    bias: int
    max_finite: float
    has_infinity: bool = True
    tapered: bool = False
    storage_name: str | None = None

    @property
    def itemsize(self) -> int:
        """Return the bytes of one element in a buffer."""
        return self.bits // 8

    @property
    def min_exponent(self) -> int:
        """Return the exponent of the smallest normal value."""
        return 1 - self.bias

    @property
    def storage(self) -> "np.dtype[Any] | None":
        """Return the numpy dtype of stored elements, or None (hifloat8: see `HiFloat8Array`)."""
        if self.storage_name is None:
            return None
        if self.storage_name in ("float16", "float32"):
            return np.dtype(self.storage_name)
        # Here, so that a process that only needs sizes does not pay for it.
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.storage_name))
        return found

    def __str__(self) -> str:
        return self.name


# Not a DType: whole numbers have no exponents to round by, and no float32 carries all of an int32.
class Integer(NamedTuple):
    """Describe a format of whole numbers: int8 matrix products have one for operands and one for results."""

    name: str
    bits: int

    @property
    def itemsize(self) -> int:
        """Return the bytes of one element in a buffer."""
        return self.bits // 8


FLOAT16 = DType("float16", 16, 5, 10, 15, 65504.0, storage_name="float16")
BFLOAT16 = DType("bfloat16", 16, 8, 7, 127, float((2 - 2**-7) * 2.0**127), storage_name="bfloat16")
FLOAT32 = DType("float32", 32, 8, 23, 127, float((2 - 2**-23) * 2.0**127), storage_name="float32")
# What the cube makes of a float32 operand when HF32 is on: 910B and 910_93 keep 11 bits, 910_95 keeps 10.
HF32_11 = DType("hf32_11", 32, 8, 11, 127, float((2 - 2**-11) * 2.0**127), storage_name="float32")
HF32_10 = DType("hf32_10", 32, 8, 10, 127, float((2 - 2**-10) * 2.0**127), storage_name="float32")
FLOAT8_E4M3FN = DType("float8_e4m3fn", 8, 4, 3, 7, 448.0, has_infinity=False, storage_name="float8_e4m3fn")
FLOAT8_E5M2 = DType("float8_e5m2", 8, 5, 2, 15, 57344.0, storage_name="float8_e5m2")
HIFLOAT8 = DType("hifloat8", 8, 4, 3, 0, 32768.0, tapered=True)

DTYPES = (FLOAT16, BFLOAT16, FLOAT32, HF32_11, HF32_10, FLOAT8_E4M3FN, FLOAT8_E5M2, HIFLOAT8)
INT8, INT32 = Integer("int8", 8), Integer("int32", 32)
# What elements of tensors in memory may be.
ELEMENTS: tuple[DType | Integer, ...] = (*DTYPES, INT8, INT32)

Format = TypeVar("Format", bound=DType | Integer)
Named = str | DType | Integer | np.dtype[Any] | type

_LONGEST_NAME = 40  # in a message
# What people write in other projects, only to say in an error what we call it.
_SYNONYMS = {
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "float": "float32",
    "hf32": "hf32_11' or 'hf32_10",
    "tf32": "hf32_10",
    "fp8_e4m3fn": "float8_e4m3fn",
    "float8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "hif8": "hifloat8",
}


def dtype(name: "str | DType | np.dtype[Any] | type") -> DType:
    """Return the format with that name.

    name    a name, a `DType`, or a numpy dtype or scalar type (ml_dtypes' types included)
    Raises  UnsupportedError with the nearest known name
    """
    return name if isinstance(name, DType) else find(name, DTYPES)


def find(name: Named, known: tuple[Format, ...]) -> Format:
    """Return the one of the known formats that has that name.

    Raises  UnsupportedError with the nearest of them
    """
    text = name_of(name)
    for one in known:
        if one.name == text:
            return one
    raise UnsupportedError(_unknown(text, [one.name for one in known]))


def name_of(kind: Named) -> str:
    """Return the name of a format, known or not."""
    if isinstance(kind, str | DType | Integer):
        return kind if isinstance(kind, str) else kind.name
    try:
        return np.dtype(kind).name
    except Exception:  # whatever a foreign object does when numpy asks it
        return f"a {type(kind).__name__}"


def _unknown(text: str, names: list[str]) -> str:
    text = text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."
    guess = _SYNONYMS.get(text.lower()) or next(iter(close_matches(text.lower(), names, n=1)), None)
    hint = f"did you mean '{guess}'? " if guess else ""
    return f"dtype: '{text}' is not a supported format; {hint}supported are {', '.join(names)}"
