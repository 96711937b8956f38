"""Tensors of the interface: a shape or an array, with a dtype, a storage format and strides."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ascendsim.arguments import shown
from ascendsim.errors import AclnnError, UnsupportedError
from ascendsim.rules import TensorDescription
from ascendsim.rules.typed import CHECK, dtype_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RUNTIME = 361001  # ACLNN_ERR_RUNTIME_ERROR


class AclTensor:
    """Describe a tensor as aclCreateTensor does, with its device memory if there is any.

    shape_or_array  extents, where only the checks and the workspace are wanted; or the array that is the
                    device memory: numpy's float16 and float32, ml_dtypes' bfloat16, float8_e4m3fn and
                    float8_e5m2, a HiFloat8Array or its uint8 codes. Gradients are written into it
    dtype           "float32", "bfloat16", ... or the vendor's spelling (FLOAT, BF16)
    format          NCL, NCHW, NCDHW or ND; None: the usual one of the rank
    strides         in elements, one for each axis; None: those of the array, or contiguous

    Nothing is checked before the tensor is used: a wrong one is an AclnnError of the call that gets it.
    """

    __slots__ = ("array", "description")

    def __init__(self, shape_or_array: Any, dtype: Any, format: Any = None, strides: Any = None) -> None:
        self.array = shape_or_array if _is_array(shape_or_array) else None
        shape = shape_or_array if self.array is None else self.array.shape
        # A view of an array has strides of its own, which the rules must see: some interfaces refuse gaps.
        if strides is None and self.array is not None:
            strides = _strides(memory_of(self.array))
        self.description = TensorDescription(shape, dtype, format, strides)

    def __repr__(self) -> str:
        about = self.description
        return f"AclTensor({about.shape!r}, {about.dtype!r}, {about.format!r}, strides={about.strides!r})"


def describe(name: str, tensor: Any) -> Any:
    """Return the description of an argument that should be an AclTensor; anything else as it is.

    Raises   AclnnError 161002, check 0, where an array and its description disagree
    """
    # A null pointer is an answer of the rules, and so is anything else that is no tensor.
    if not isinstance(tensor, AclTensor):
        return tensor
    about, array = tensor.description, tensor.array
    if array is None:
        kind = type(about.shape)
        if hasattr(kind, "dtype"):
            raise AclnnError(
                161002,
                CHECK,
                f"{name} is made of a {kind.__module__}.{kind.__name__}, which is no memory of ours; pass an "
                "array of numpy, of a torch tensor the one that .detach().cpu().numpy() shares; of one in "
                "bfloat16 .detach().cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)",
            )
        return about
    if tuple(array.shape) != about.shape:
        raise AclnnError(
            161002,
            CHECK,
            f"{name} is said to have shape {shown(about.shape)}, but its array has {tuple(array.shape)}",
        )
    expected = _storage_names(about.dtype)
    if expected and array.dtype.name not in expected:
        raise AclnnError(
            161002,
            CHECK,
            f"{name} is said to be {shown(about.dtype)}, but its array holds {array.dtype.name}; it must "
            f"hold {' or '.join(expected)}",
        )
    if not _same_strides(array, about.strides):
        raise AclnnError(
            161002,
            CHECK,
            f"{name} has strides {shown(about.strides)}, but its array of shape {tuple(array.shape)} has "
            f"{_strides(memory_of(array))}; pass the view itself and leave strides out",
        )
    return about


def values_of(name: str, tensor: AclTensor) -> Any:
    """Return the stored values of an input for the operators.

    Raises   AclnnError 361001 where the tensor has no memory
    """
    array = tensor.array
    if array is None:
        raise AclnnError(RUNTIME, "run", f"{name} was given as a shape alone; running needs its values")
    if dtype_name(tensor.description.dtype) == "hifloat8" and not hasattr(array, "codes"):
        from ascendsim.numerics.hifloat8 import HiFloat8Array

        return HiFloat8Array(array)
    return array


def write(name: str, tensor: AclTensor | None, gradient: Any) -> None:
    """Write a gradient into an output that has memory.

    Raises   AclnnError 561103 where shapes differ
    """
    if tensor is None or tensor.array is None or gradient is None:
        return
    target, values = memory_of(tensor.array), memory_of(gradient)
    if target.shape != values.shape:
        raise AclnnError(561103, "run", f"{name} has shape {target.shape}, the gradient {values.shape}")
    target[...] = values


def memory_of(array: Any) -> NDArray[Any]:
    """Return the numpy array that holds the stored values."""
    found: NDArray[Any] = getattr(array, "codes", array)
    return found


def _is_array(value: Any) -> bool:
    """Return whether a value is an array, numpy's or a HiFloat8Array, and not the extents of a shape."""
    # By its type: an object that makes up attributes when asked would pass for an array. Whoever has an array
    # has imported its module; a tensor that is a shape alone needs neither.
    for module, kind in (("numpy", "ndarray"), ("ascendsim.numerics.hifloat8", "HiFloat8Array")):
        if module in sys.modules and isinstance(value, getattr(sys.modules[module], kind)):
            return True
    return False


def _strides(array: NDArray[Any]) -> tuple[int, ...] | None:
    """Return strides in elements; None where they are no whole number of elements."""
    # A field of a structured array may lie at half an element; no tensor of the device can.
    size = array.itemsize or 1
    return None if any(stride % size for stride in array.strides) else tuple(s // size for s in array.strides)


def _same_strides(array: Any, given: Any) -> bool:
    """Compare strides along the axes on which they matter."""
    # Along an axis of one element nothing is ever stepped over, and libraries fill in what they like.
    own = _strides(memory_of(array))
    try:
        return own is None or all(
            extent < 2 or a == b for extent, a, b in zip(array.shape, own, given, strict=True)
        )
    except Exception:  # whatever the strides are: the checks of types will say so
        return True


def storage_dtype(name: Any) -> np.dtype[Any] | None:
    """Return the numpy dtype that holds a format; None where no operator takes it."""
    import numpy as np

    from ascendsim.numerics.dtypes import dtype as lookup

    names = _storage_names(name)
    # Of hifloat8 the bare codes: no array of our own lies in flat memory.
    return np.dtype(np.uint8) if "hifloat8" in names else lookup(names[0]).storage if names else None


def _storage_names(dtype: Any) -> tuple[str, ...]:
    """Return the names of array dtypes that hold a format; () where the format itself is not known."""
    from ascendsim.numerics.dtypes import dtype as lookup

    name = dtype_name(dtype)
    if name == "hifloat8":
        # No numpy dtype exists: an array of our own, or the bare codes.
        return "hifloat8", "uint8"
    try:
        found = lookup(name or "")
    except UnsupportedError:
        return ()
    return (found.storage_name,) if found.storage_name else ()
