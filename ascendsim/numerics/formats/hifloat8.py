"""HiFloat8 tensors: numpy has no dtype for the format, so a small class carries the codes."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ascendsim.errors import UnsupportedError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.formats.dtypes import HIFLOAT8, DType
from ascendsim.numerics.formats.format_rounding import Float32Array, require_float32
from ascendsim.numerics.formats.hifloat8_codes import NAN_CODE, positive_values
from ascendsim.numerics.formats.hifloat8_rounding import round_hifloat8
from ascendsim.numerics.formats.tables import decode_codes, encode_codes

Codes = npt.NDArray[np.uint8]


class HiFloat8Array:
    """Hold a tensor of hifloat8 codes.

    codes   uint8 array of any shape, kept as it is (no copy); every one of the 256 codes is a value
    Use     `HiFloat8Array.from_float32(x)` rounds, `.to_float32()` and `numpy.asarray` give the values;
            indexing, reshape and transpose work as in numpy and share the codes
    ==      compares values elementwise: NaN differs from itself, 0 has one code only
    Raises  UnsupportedError when the codes are not uint8
    """

    __slots__ = ("codes",)
    __hash__ = None  # type: ignore[assignment]  # elementwise ==, as numpy arrays

    def __init__(self, codes: npt.ArrayLike) -> None:
        array = np.asarray(codes)
        if array.dtype != np.uint8:
            raise UnsupportedError(
                f"HiFloat8Array: codes are uint8, got {array.dtype.name}; values go through from_float32"
            )
        self.codes: Codes = array

    @classmethod
    @default_arithmetic
    def from_float32(
        cls, values: npt.ArrayLike, rounding: str = "ROUND", overflow: str = "ieee"
    ) -> "HiFloat8Array":
        """Round float32 values and keep their codes; modes as in `hifloat8_rounding`."""
        array = require_float32(values, "HiFloat8Array.from_float32")
        return cls(encode_codes(round_hifloat8(array, rounding, overflow), HIFLOAT8))

    def to_float32(self) -> Float32Array:
        """Return the values; exact."""
        return decode_codes(self.codes, HIFLOAT8)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        # numpy 2 asks for `copy=False` when it must not copy, and expects this error.
        if copy is False:
            raise ValueError("HiFloat8Array: values are decoded, so a view of them is not possible")
        return self.to_float32().astype(dtype or np.float32, copy=False)

    @property
    def dtype(self) -> DType:
        """Return the format's record; it is not a numpy dtype."""
        return HIFLOAT8

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the length of every axis."""
        return self.codes.shape

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return self.codes.ndim

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return self.codes.size

    @property
    def nbytes(self) -> int:
        """Return the bytes of all elements, one each."""
        return self.codes.nbytes

    def reshape(self, *shape: Any) -> "HiFloat8Array":
        """Return the same elements in another shape."""
        return HiFloat8Array(self.codes.reshape(*shape))

    def transpose(self, *axes: Any) -> "HiFloat8Array":
        """Return the same elements with their axes reordered."""
        return HiFloat8Array(self.codes.transpose(*axes))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Any) -> "HiFloat8Array":
        return HiFloat8Array(self.codes[index])

    def __float__(self) -> float:
        return float(self.to_float32())

    def __eq__(self, other: object) -> npt.NDArray[np.bool_]:  # type: ignore[override]
        equal: npt.NDArray[np.bool_] = np.equal(self.to_float32(), np.asarray(other))
        return equal

    def __ne__(self, other: object) -> npt.NDArray[np.bool_]:  # type: ignore[override]
        return ~(self == other)

    def __repr__(self) -> str:
        values = np.array2string(self.to_float32(), separator=", ", prefix="HiFloat8Array(")
        codes = np.array2string(
            self.codes, separator=", ", prefix="  codes=", formatter={"int": lambda code: f"0x{code:02X}"}
        )
        return f"HiFloat8Array({values}, shape={self.shape},\n  codes={codes})"


@default_arithmetic
def value_ranks(codes: npt.ArrayLike) -> npt.NDArray[np.int16]:
    """Return each code's place in value order: 0 for zero, 1..126 rising, 127 for Inf, negative below zero.

    Neighbouring values differ by one rank; neighbouring codes need not (0x17 is 3.75, 0x18 is 0.5).
    Raises  UnsupportedError when a NaN is among the codes: it has no place
    """
    array = np.asarray(codes, dtype=np.uint8)
    if (array == NAN_CODE).any():
        raise UnsupportedError("value_ranks: NaN has no rank; leave code 0x80 out")
    magnitude = decode_codes(array & np.uint8(0x7F), HIFLOAT8)
    # Counting the values that are not larger: zero is below all of them and has rank 0.
    ladder = np.array([*positive_values(), np.inf], np.float32)
    rank = np.searchsorted(ladder, magnitude, side="right").astype(np.int16)
    return np.where(array & np.uint8(0x80), -rank, rank)
