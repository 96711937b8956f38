"""Tensors and arrays of numbers as a C program makes them: over flat memory, by shape and strides."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

from ascendsim.aclnn.c.context import failed
from ascendsim.aclnn.c.runtime import bytes_of
from ascendsim.aclnn.c.values import (
    ACL_ERROR_INVALID_PARAM,
    ACL_SUCCESS,
    ACLNN_ERR_PARAM_NULLPTR,
    aclDataType,
    aclFormat,
)
from ascendsim.aclnn.tensor import AclTensor, storage_dtype
from ascendsim.arguments import shown
from ascendsim.errors import AclnnError
from ascendsim.rules.typed import CHECK, flags, numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

Item = TypeVar("Item")
Read = Callable[[str, Any], tuple[Item, ...]]


class PlacedTensor(AclTensor):
    """A tensor over flat memory, which can be moved to other memory.

    offset          of its first element in the memory, in elements
    storage_shape   extents of what lies in the memory, of which the tensor is a view
    """

    __slots__ = ("offset", "storage_shape")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: aclDataType,
        strides: tuple[int, ...],
        offset: int,
        format: aclFormat,
        storage_shape: tuple[int, ...],
        memory: Any,
    ) -> None:
        super().__init__(shape, dtype.name, format.name, strides)
        self.offset, self.storage_shape = offset, storage_shape
        self.place(memory)

    def place(self, memory: Any) -> None:
        """Move to other memory; None leaves the tensor without any.

        Raises   AclnnError 161002 where the view reaches beyond its storage, or that beyond the memory
        """
        self.array = None if memory is None else self._view(memory)

    def _view(self, memory: Any) -> NDArray[Any] | None:
        import numpy as np

        about, dtype = self.description, storage_dtype(self.description.dtype)
        if dtype is None:  # no operator takes it, and the first phase will say so
            return None
        flat = bytes_of(memory)
        if flat is None:
            raise AclnnError(161002, CHECK, f"{shown(memory)} is no memory; pass an array without gaps")
        size = prod(self.storage_shape) * dtype.itemsize
        if size > flat.size:
            raise AclnnError(
                161002,
                CHECK,
                f"a storage of {self.storage_shape} needs {size} bytes; the memory has {flat.size}",
            )
        try:
            return np.ndarray(
                about.shape,
                dtype,
                flat[:size],
                self.offset * dtype.itemsize,
                tuple(step * dtype.itemsize for step in about.strides),
            )
        except (ValueError, TypeError, OverflowError) as error:
            raise AclnnError(
                161002,
                CHECK,
                f"a view of shape {about.shape}, strides {about.strides}, offset {self.offset} does not lie "
                f"in a storage of {self.storage_shape} ({error})",
            ) from None


def aclCreateTensor(
    viewDims: Any,
    viewDimsNum: Any,
    dataType: Any,
    stride: Any,
    offset: Any,
    format: Any,
    storageDims: Any,
    storageDimsNum: Any,
    tensorData: Any,
) -> PlacedTensor | None:
    """Return a tensor over device memory; None, with a text for aclGetRecentErrMsg, where it cannot be.

    Units    strides and offset in elements; the memory is what aclrtMalloc has written, or any array without
             gaps, whose bytes are taken as they lie
    """
    try:
        return PlacedTensor(
            _first("viewDims", viewDims, viewDimsNum, numbers),
            aclDataType(dataType),
            _first("stride", stride, viewDimsNum, numbers),
            numbers("offset", [offset])[0],
            aclFormat(format),
            _first("storageDims", storageDims, storageDimsNum, numbers),
            tensorData,
        )
    except Exception as error:  # an AclnnError, or whatever an enumeration is asked about a foreign object
        failed(ACL_ERROR_INVALID_PARAM, f"aclCreateTensor: {error}")
        return None


def aclDestroyTensor(tensor: Any) -> int:
    """Leave a tensor; its memory stays."""
    return ACL_SUCCESS if tensor is not None else failed(ACLNN_ERR_PARAM_NULLPTR, "tensor is null")


def aclCreateIntArray(value: Any, size: Any) -> tuple[int, ...] | None:
    """Return the first `size` of some numbers; None where there are not so many."""
    return _array("aclCreateIntArray", value, size, numbers)


def aclCreateBoolArray(value: Any, size: Any) -> tuple[bool, ...] | None:
    """Return the first `size` of some truth values; None where there are not so many."""
    return _array("aclCreateBoolArray", value, size, flags)


def aclDestroyIntArray(array: Any) -> int:
    """Leave an array of numbers."""
    return ACL_SUCCESS if array is not None else failed(ACLNN_ERR_PARAM_NULLPTR, "array is null")


aclDestroyBoolArray = aclDestroyIntArray


def _array(name: str, value: Any, size: Any, read: Read[Item]) -> tuple[Item, ...] | None:
    try:
        return _first("value", value, size, read)
    except AclnnError as error:
        failed(ACL_ERROR_INVALID_PARAM, f"{name}: {error.reason}")
        return None


def _first(name: str, values: Any, count: Any, read: Read[Item]) -> tuple[Item, ...]:
    """Return the first so many of some values, as C takes an address and a length."""
    (length,) = numbers(f"the length of {name}", [count])
    found = read(name, values)
    if not 0 <= length <= len(found):
        raise AclnnError(161002, CHECK, f"{name} has {len(found)} numbers, of which {length} are meant")
    return found[:length]
