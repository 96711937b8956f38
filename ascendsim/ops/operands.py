"""The user's tensors as the operators take them: values, description, and how they lie in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ascendsim.arguments import whole
from ascendsim.errors import ShapeError
from ascendsim.ops.problems.views import View
from ascendsim.rules import TensorDescription

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ascendsim.numerics.formats.hifloat8 import HiFloat8Array


@dataclass(frozen=True)
class Operand:
    """One input: stored values (a numpy array or a HiFloat8Array) and where its elements lie."""

    values: NDArray[Any] | HiFloat8Array
    dtype: str
    view: View
    missing: bool = False

    @classmethod
    def of(cls, value: Any) -> Operand:
        """Take anything that numpy takes; views keep their strides.

        Raises   ShapeError where numpy cannot make an array of it
        """
        import numpy as np

        if value is None:
            return cls(np.zeros(0, np.float32), "float32", View((0,), (1,)), missing=True)
        # hifloat8 is no type of numpy: its codes are, and they lie as the array does.
        if hasattr(value, "codes"):
            stored: NDArray[Any] = value.codes
            return cls(value, value.dtype.name, _view(stored))
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise ShapeError(f"a tensor cannot be read as an array: {error}") from None
        # Whichever end of an element comes first, its value is the same; casts work on this machine's order.
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        return cls(native, array.dtype.name, _view(array))

    @property
    def described(self) -> TensorDescription | None:
        """The view of the rules on it; None, a null pointer, for a tensor that was not given."""
        if self.missing:
            return None
        return TensorDescription(self.view.shape, self.dtype, strides=self.view.strides)

    def carrier(self) -> NDArray[np.float32]:
        """Return the values as float32."""
        from ascendsim.numerics.formats.casts import decode

        return decode(self.values, self.dtype)


def _view(array: NDArray[Any]) -> View:
    """Return where the elements lie; a stride of no whole number of elements counts as the next one."""
    return View(array.shape, tuple(-(-stride // array.itemsize) for stride in array.strides))


def spread(value: Any, count: int) -> Any:
    """Return one number as `count` of them; anything else stays what it is, a sequence as a tuple."""
    number = whole(value)
    if number is not None:
        return (number,) * count
    try:
        return tuple(value)
    except TypeError:
        return value
