"""The user's tensors as the operators take them: values, description, and how they lie in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ascendsim.errors import ShapeError, UnsupportedError, items, shown, whole
from ascendsim.numerics.factor import ALONE, Threads
from ascendsim.ops.problems.views import View
from ascendsim.rules import TensorDescription

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.numerics.hifloat8 import HiFloat8Array


class Operand(NamedTuple):
    """One input: stored values (a numpy array or a HiFloat8Array) and where its elements lie."""

    values: NDArray[Any] | HiFloat8Array
    dtype: str
    view: View
    missing: bool = False

    @classmethod
    def of(cls, value: Any, name: str = "a tensor") -> Operand:
        """Take numpy's arrays, what offers itself as one, and lists of numbers; views keep their strides.

        Raises   ShapeError where no array can be made of it, UnsupportedError where it is one of another
                 library that must be converted, or its elements have no size; both name the argument
        """
        import numpy as np

        from ascendsim.numerics.dtypes import name_of
        from ascendsim.numerics.hifloat8 import HiFloat8Array

        if value is None:
            return cls(np.zeros(0, np.float32), "float32", View((0,), (1,)), missing=True)
        # hifloat8 is no type of numpy: its codes are, and they lie as the array does.
        if isinstance(value, HiFloat8Array):
            return cls(value, value.dtype.name, _view(value.codes))
        array = _array(value, name)
        if array.dtype.itemsize == 0:
            raise UnsupportedError(
                f"{name} is an array of {array.dtype}, whose elements have no size; pass numbers"
            )
        # The byte order changes no value; casts need this machine's order.
        native = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
        return cls(native, name_of(array.dtype), _view(array))

    @property
    def described(self) -> TensorDescription | None:
        """The view of the rules on it; None, a null pointer, for a tensor that was not given."""
        if self.missing:
            return None
        return TensorDescription(self.view.shape, self.dtype, strides=self.view.strides)

    def carrier(self, threads: Threads = ALONE, *, keep_halves: bool = False) -> NDArray[Any]:
        """Return the values as float32; `keep_halves`: those of binary16 as they are stored."""
        from ascendsim.numerics.casts import HALF, decoded

        if keep_halves and self.dtype == HALF:
            return cast("NDArray[Any]", self.values)
        return decoded(self.values, self.dtype, threads)


def _view(array: NDArray[Any]) -> View:
    """Return where the elements lie; a stride of no whole number of elements counts as the next one."""
    return View(array.shape, tuple(-(-stride // array.itemsize) for stride in array.strides))


def _array(value: Any, name: str) -> NDArray[Any]:
    """Return the array that a value is, or that numpy makes of numbers, lists of them, and other arrays."""
    import numpy as np

    if not _is_tensor(value, 0):
        raise ShapeError(f"{name} cannot be read as an array: it is {shown(value)}; pass an array of numbers")
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"{name} cannot be read as an array: {error}") from None
    except Exception as error:  # whatever another library does when numpy asks
        raise UnsupportedError(
            f"{name} is a {type(value).__name__} that numpy cannot read ({shown(error)}); pass an array of "
            "numpy, of a torch tensor .detach().cpu().numpy(); of one in bfloat16, which numpy has not, "
            ".detach().cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)"
        ) from None


def _is_tensor(value: Any, depth: int) -> bool:
    """Return whether a value may stand for a tensor; lists are at most as deep as numpy's arrays."""
    # A range or an iterator is no tensor: numpy would write it out, however long it is.
    if isinstance(value, (list, tuple)):
        return depth < 64 and all(_is_tensor(item, depth + 1) for item in value)
    kind = type(value)
    return (
        isinstance(value, (int, float, complex, memoryview))
        or hasattr(kind, "__array__")
        or hasattr(kind, "__array_interface__")
    )


def spread(value: Any, count: int) -> Any:
    """Return one number as `count` of them, a list as a tuple; anything else is unchanged."""
    number = whole(value)
    if number is not None:
        return (number,) * count
    found = items(value)
    return value if found is None else found
