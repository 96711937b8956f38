"""The operators' two phases in the vendor's spelling, and what may be done to an executor between runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

from ascendsim.aclnn.c_values import (
    ACL_ERROR_INVALID_PARAM,
    ACL_OPT_DETERMINISTIC,
    ACL_SUCCESS,
    ACLNN_ERR_PARAM_NULLPTR,
    Out,
    aclDataType,
    aclFormat,
    answered,
    bytes_of,
    current,
    failed,
)
from ascendsim.aclnn.handles import INVALID, AclTensor, Executor, storage_dtype
from ascendsim.aclnn.interface import (
    conv_tbc_backward_get_workspace_size,
    convolution_backward_get_workspace_size,
)
from ascendsim.errors import AclnnError, shown
from ascendsim.rules import ConvolutionBackwardCall, ConvTbcBackwardCall
from ascendsim.rules.typed import CHECK, GRADIENTS, flags, numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray


Item = TypeVar("Item")
Read = Callable[[str, Any], tuple[Item, ...]]


class PlacedTensor(AclTensor):
    """A tensor over flat memory, which can be moved to other memory.

    offset          of its first element in the memory, in elements
    storage_shape   extents of the memory block that the tensor is a view of
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
    """Return the first `size` numbers; None where there are fewer."""
    return _array("aclCreateIntArray", value, size, numbers)


def aclCreateBoolArray(value: Any, size: Any) -> tuple[bool, ...] | None:
    """Return the first `size` truth values; None where there are fewer."""
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


NULL = 161001  # ACLNN_ERR_PARAM_NULLPTR
Simulated = Mapping[str, Any] | None


@answered
def aclnnConvolutionBackwardGetWorkspaceSize(
    gradOutput: Any,
    input: Any,
    weight: Any,
    biasSizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: Any,
    outputPadding: Any,
    groups: Any,
    outputMask: Any,
    cubeMathType: Any,
    gradInput: Any,
    gradWeight: Any,
    gradBias: Any,
    workspaceSize: Out,
    executor: Out,
    simulated: Simulated = None,
) -> None:
    """Check a call; write the workspace in bytes to `workspaceSize` and the executor to `executor`.

    simulated   what is no argument of the interface: "product", "rules", "strict", and the options of
                `convolution_backward`, such as "accumulation", "tiling", "order" and "l2_start"

    Returns     a status
    """
    _write(
        workspaceSize,
        executor,
        lambda: convolution_backward_get_workspace_size(
            *(gradOutput, input, weight, biasSizes, stride, padding, dilation, transposed, outputPadding),
            *(groups, outputMask, cubeMathType, gradInput, gradWeight, gradBias),
            **_options(simulated),
        ),
    )


@answered
def aclnnConvTbcBackwardGetWorkspaceSize(
    self: Any,
    input: Any,
    weight: Any,
    bias: Any,
    pad: Any,
    cubeMathType: Any,
    gradInput: Any,
    gradWeight: Any,
    gradBias: Any,
    workspaceSize: Out,
    executor: Out,
    simulated: Simulated = None,
) -> None:
    """Check a call of conv_tbc; otherwise as `aclnnConvolutionBackwardGetWorkspaceSize`."""
    _write(
        workspaceSize,
        executor,
        lambda: conv_tbc_backward_get_workspace_size(
            *(self, input, weight, bias, pad, cubeMathType, gradInput, gradWeight, gradBias),
            **_options(simulated),
        ),
    )


@answered
def aclnnConvolutionBackward(workspace: Any, workspaceSize: Any, executor: Any, stream: Any = None) -> None:
    """Run an executor of aclnnConvolutionBackwardGetWorkspaceSize; the outputs hold the gradients then.

    Returns     a status
    """
    _run(workspace, workspaceSize, executor, ConvolutionBackwardCall)


@answered
def aclnnConvTbcBackward(workspace: Any, workspaceSize: Any, executor: Any, stream: Any = None) -> None:
    """Run an executor of aclnnConvTbcBackwardGetWorkspaceSize; otherwise as `aclnnConvolutionBackward`."""
    _run(workspace, workspaceSize, executor, ConvTbcBackwardCall)


@answered
def aclSetAclOpExecutorRepeatable(executor: Any) -> None:
    """Let an executor run more than once; one that is not strict may in any case."""
    _executor(executor).state.repeatable = True


@answered
def aclDestroyAclOpExecutor(executor: Any) -> None:
    """Leave an executor."""
    _executor(executor)


@answered
def aclSetTensorAddr(executor: Any, index: Any, tensor: Any, addr: Any) -> None:
    """Move the tensor at a place among the operator's inputs and, after them, outputs to other memory."""
    call = _executor(executor).call
    _place(executor, index, tensor, addr, call.tensors)


@answered
def aclSetInputTensorAddr(executor: Any, index: Any, tensor: Any, addr: Any) -> None:
    """Move the input at a place among the operator's inputs to other memory."""
    names = _executor(executor).call.tensors
    _place(executor, index, tensor, addr, tuple(name for name in names if name not in GRADIENTS))


@answered
def aclSetOutputTensorAddr(executor: Any, index: Any, tensor: Any, addr: Any) -> None:
    """Move the output at a place among the operator's outputs to other memory."""
    _place(executor, index, tensor, addr, GRADIENTS)


def _options(simulated: Any) -> dict[str, Any]:
    """Return the keywords of the first phase: the product, the rules, and the options of the operator."""
    if simulated is None:
        simulated = {}
    if not isinstance(simulated, Mapping):
        raise AclnnError(INVALID, CHECK, f"simulated is {shown(simulated)}; it must be a table of options")
    options = dict(simulated)
    own = {name: options.pop(name) for name in ("product", "rules", "strict") if name in options}
    # The switch of the context counts once it has been set; until then the rules say how it stands.
    if ACL_OPT_DETERMINISTIC in current().switches:
        options.setdefault("deterministic", bool(current().switches[ACL_OPT_DETERMINISTIC]))
    return {**own, "options": options}


def _write(size: Any, executor: Any, first_phase: Any) -> None:
    """Run a first phase and write what it returns."""
    for name, place in (("workspaceSize", size), ("executor", executor)):
        if not isinstance(place, Out):
            raise AclnnError(
                NULL if place is None else INVALID,
                CHECK,
                f"{name} is {shown(place)}; pass an Out() to write to",
            )
    size.value, executor.value = first_phase()


def _run(workspace: Any, size: Any, executor: Any, kind: type) -> None:
    found = _executor(executor)
    if not isinstance(found.call, kind):
        raise AclnnError(INVALID, "run", f"the executor is one of {found.call.api}")
    # What the kernels need is in the tensors of the simulator; the memory is only asked for.
    if found.workspace_size and workspace is None:
        raise AclnnError(NULL, "run", f"workspace is null; {found.workspace_size} bytes are needed")
    memory = None if workspace is None else bytes_of(workspace)
    if memory is None or memory.size < found.workspace_size:
        raise AclnnError(
            INVALID, "run", f"workspace is {shown(workspace)}; {found.workspace_size} bytes are needed"
        )
    found.run(size.value if isinstance(size, Out) else size)


def _executor(given: Any) -> Executor:
    """Return an executor, which may be passed in the Out that it was written to.

    Raises   AclnnError 161001 for none, 161002 for something else
    """
    found = given.value if isinstance(given, Out) else given
    if found is None:
        raise AclnnError(NULL, "run", "executor is null")
    if not isinstance(found, Executor):
        raise AclnnError(INVALID, "run", f"executor is {shown(found)}; pass what the first phase has written")
    return found


def _place(executor: Any, index: Any, tensor: Any, memory: Any, names: tuple[str, ...]) -> None:
    """Move one tensor of an executor."""
    held = _executor(executor).tensors
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(names):
        raise AclnnError(INVALID, "address", f"index is {shown(index)}; it must be 0 to {len(names) - 1}")
    name = names[index]
    if held.get(name) is not tensor or not isinstance(tensor, PlacedTensor):
        raise AclnnError(INVALID, "address", f"tensor is not the {name} that the first phase was given")
    tensor.place(memory)
