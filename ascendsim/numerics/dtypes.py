"""The number formats of the Ascend core, as data.

One frozen record per format; everything else in `numerics` reads these fields.  Importing this module needs
numpy only: the estimate path asks for sizes and never for values.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ascendsim.errors import UnsupportedError, close_matches


@dataclass(frozen=True)
class DType:
    """Describe one operand format.

    Every supported value is also a float32 value: the simulator holds these tensors as float32 arrays whose
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
_BY_NAME = {one.name: one for one in DTYPES}
FLOAT_NAMES = frozenset(_BY_NAME)
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


FLOAT32_BYTES = 4


def itemsize_of(name: str) -> int:
    """Return the bytes of an element of a format, or of an operand of the cube ("hf32": a float32)."""
    return next((one.itemsize for one in ELEMENTS if one.name == name), FLOAT32_BYTES)


def dtype(name: "str | DType | np.dtype[Any] | type") -> DType:
    """Return the format with that name.

    name    a name, a `DType`, or a numpy dtype or scalar type (ml_dtypes' types included)
    Raises  UnsupportedError with the nearest known name
    """
    if isinstance(name, DType):
        return name
    kind = _name_of_kind(name) if isinstance(name, np.dtype) else name
    found = _BY_NAME.get(kind) if isinstance(kind, str) else None
    return found or find(kind, DTYPES)


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
        return _name_of_kind(kind)
    except Exception:  # whatever a foreign object does when numpy asks it
        return f"a {type(kind).__name__}"


@lru_cache(maxsize=64)  # numpy writes the name out each time
def _name_of_kind(kind: Any) -> str:
    name: str = np.dtype(kind).name
    return name


def _unknown(text: str, names: list[str]) -> str:
    text = text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."
    guess = _SYNONYMS.get(text.lower()) or next(iter(close_matches(text.lower(), names, n=1)), None)
    hint = f"did you mean '{guess}'? " if guess else ""
    return f"dtype: '{text}' is not a supported format; {hint}supported are {', '.join(names)}"


FIXPIPE_PRESETS = ("ctrl48", "c-api-pages")
FP8 = frozenset({"float8_e4m3fn", "float8_e5m2"})


class Control(NamedTuple):
    """Hold the bits of the control register that conversions read.

    inf_nan       CTRL[48]: True delivers Inf and NaN, False saturates
    keep_nan      CTRL[50]: True lets a saturating fp8 conversion keep NaN (else it becomes 0)
    global_rules  CTRL[60]: True lets CTRL[48] decide, as on cores without it; False the instruction's own
                  SAT / NO_SAT
    """

    inf_nan: bool
    keep_nan: bool = False
    global_rules: bool = True


class OverflowRules(NamedTuple):
    """Describe the conversions of one generation.

    inf_nan_formats            formats whose conversions can deliver Inf and NaN at all
    fixpipe_saturated_formats  formats whose Fixpipe conversion the C-API pages call unable to
    at_launch                  the bits as the runtime and the compilers' prologues leave them
    """

    inf_nan_formats: Collection[str]
    fixpipe_saturated_formats: Collection[str]
    at_launch: Control

    def conversion(
        self, target: "str | DType", control: Control | None = None, instruction_saturates: bool = False
    ) -> str:
        """Return the overflow rule of a conversion to `target`: ieee, saturate or saturate_keep_nan.

        control                the control bits; None: as they are at launch
        instruction_saturates  SAT on the instruction; read only where CTRL[60] is 0
        """
        fmt, bits = dtype(target), control or self.at_launch
        # Sums are float32 already: there is nothing to convert, and so nothing to saturate.
        if fmt.bits == 32:
            return "ieee"
        inf_nan = bits.inf_nan if bits.global_rules else not instruction_saturates
        # A core without a mode for the format saturates, whatever the bits say.
        if inf_nan and fmt.name in self.inf_nan_formats:
            return "ieee"
        # The page shows CTRL[50] for e4m3fn; that e5m2 follows it as well is our reading.
        return "saturate_keep_nan" if bits.keep_nan and fmt.name in FP8 else "saturate"

    def fixpipe(self, target: "str | DType", preset: str = "ctrl48", control: Control | None = None) -> str:
        """Return the overflow rule of Fixpipe's conversion to `target`.

        preset  The vendor's pages disagree.  ctrl48: like every other conversion (framework pages promise Inf
                and NaN in outputs by default).  c-api-pages: the conversions those pages exclude saturate.
        """
        if preset not in FIXPIPE_PRESETS:
            raise UnsupportedError(f"fixpipe overflow: '{preset}' is not one of {', '.join(FIXPIPE_PRESETS)}")
        if preset == "c-api-pages" and dtype(target).name in self.fixpipe_saturated_formats:
            return "saturate"
        return self.conversion(target, control)


NAN_CODE = 0x80
INFINITY_CODE = 0x6F
# (dot field, its width, exponent width), in the order in which the prefix is read
_DOTS = ((0b11, 2, 4), (0b10, 2, 3), (0b01, 2, 2), (0b001, 3, 1), (0b0001, 4, 0))


def value_of_code(code: int) -> float:
    """Return the value of one code (0..255); every finite value is exact in float32."""
    if code == NAN_CODE:
        return float("nan")
    sign = -1.0 if code & 0x80 else 1.0
    body = code & 0x7F
    if body == 0:
        return 0.0
    if body == INFINITY_CODE:
        return sign * float("inf")
    for dot, dot_width, exponent_width in _DOTS:
        if body >> (7 - dot_width) == dot:
            return sign * _normal(body, exponent_width, 7 - dot_width - exponent_width)
    return sign * 2.0 ** (body - 23)  # dot 0000: what is left is the three fraction bits


def _normal(body: int, exponent_width: int, fraction_width: int) -> float:
    """Return 2**E (1 + M / 2**fraction_width) of the seven bits after the sign."""
    fraction = body & ((1 << fraction_width) - 1)
    field = body >> fraction_width & ((1 << exponent_width) - 1)
    if exponent_width == 0:
        exponent = 0
    else:
        # In the code this bit is the exponent's sign: its own 1 is implied.
        leading = 1 << (exponent_width - 1)
        exponent = leading + (field & (leading - 1))
        if field & leading:
            exponent = -exponent
    return float((1.0 + fraction / (1 << fraction_width)) * 2.0**exponent)


def fraction_bits(exponent: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the number of fraction bits at these exponents: the larger the exponent, the fewer."""
    size = np.abs(exponent)
    return np.select([size <= 3, size <= 7, size <= 15], [3, 2, 1], 0)


@lru_cache
def positive_values() -> tuple[float, ...]:
    """Return the 126 positive finite values in rising order; rank r is element r - 1."""
    return tuple(sorted(value_of_code(code) for code in range(1, 128) if code != INFINITY_CODE))


Float64Array = npt.NDArray[np.float64]


def ulps(values: Float64Array, fmt: DType) -> Float64Array:
    """Return the format's step in the binade of each float64 value.

    Special  zero and values below the smallest normal have the subnormals' step; values above the largest,
             Inf and NaN have that of the last binade; hifloat8 below 2**-15 has powers of two only: there the
             step is the binade's own width
    """
    # Zero and subnormal doubles have field 0, Inf and NaN the last one: the table clips both.
    field = values.view(np.uint64) >> np.uint64(52) & np.uint64(0x7FF)
    steps: Float64Array = _table(fmt)[field]
    return steps


@lru_cache
def _table(fmt: DType) -> Float64Array:
    """Tabulate the step by the exponent field of a float64 (0..2047)."""
    exponent = np.arange(2048) - 1023
    if fmt.tapered:
        exponent = np.clip(exponent, -22, 15)
        kept = fraction_bits(exponent)
    else:
        exponent = np.clip(exponent, fmt.min_exponent, math.frexp(fmt.max_finite)[1] - 1)
        kept = np.full(2048, fmt.mantissa_bits)
    steps: Float64Array = np.ldexp(1.0, exponent - kept)
    return steps
