"""The interface's handles: tensors with dtype, storage format and strides; executors of accepted calls."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.errors import AclnnError, AscendSimError, UnsupportedError, shown
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.problems.views import share_places
from ascendsim.rules import ConvolutionBackwardCall, ConvTbcBackwardCall, Decision, TensorDescription
from ascendsim.rules.typed import CHECK, GRADIENTS, dtype_name, typed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ascendsim.ops.results import ConvolutionBackwardResult
    from ascendsim.profile import Profile


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


MOST_WORK: Any = 10**6  # numpy's annotations know no number of steps


def require_writable(outputs: Mapping[str, NDArray[Any]]) -> None:
    """Refuse outputs that cannot hold their gradients.

    Raises   AclnnError 361001 for read-only memory, elements that share a place, outputs that do
    """
    for name, array in outputs.items():
        if not array.flags.writeable:
            raise AclnnError(
                RUNTIME, "run", f"the array of {name} is read-only; pass one that can be written"
            )
        if overlaps_itself(array):
            raise AclnnError(
                RUNTIME,
                "run",
                f"{name} of shape {array.shape} and strides {array.strides} bytes has elements in the same "
                "place; each needs one of its own",
            )
    for (one, first), (two, second) in combinations(outputs.items(), 2):
        if _overlap(first, second):
            raise AclnnError(RUNTIME, "run", f"{one} and {two} lie in the same memory; each needs its own")


def overlaps_itself(array: NDArray[Any]) -> bool:
    """Return whether two elements of an array share a byte."""
    return share_places(array.shape, array.strides, array.itemsize)


def _overlap(one: NDArray[Any], two: NDArray[Any]) -> bool:
    """Return whether two arrays share a byte."""
    import numpy as np

    try:
        return np.shares_memory(one, two, max_work=MOST_WORK)
    except np.exceptions.TooHardError:
        return True


# Statuses of the vendor's header: ACLNN_ERR_PARAM_INVALID, ACLNN_ERR_INNER_NULLPTR.
INVALID, INNER = 161002, 561103


@dataclass
class ExecutorState:
    """The mutable part of an executor: the number of its runs, and whether a strict one may run again."""

    runs: int = 0
    repeatable: bool = False


@dataclass(frozen=True)
class Executor:
    """A checked call, ready to run as often as wanted; where it is strict, once, unless made repeatable.

    decision        what the rules decided: compute dtype, dtypes of the outputs, warnings
    workspace_size  bytes that `run` must be given
    options         keywords of the operator that are no arguments of the interface: accumulation, order, ...
    """

    call: ConvolutionBackwardCall | ConvTbcBackwardCall
    decision: Decision
    workspace_size: int
    tensors: Mapping[str, AclTensor | None] = field(repr=False)
    profile: Profile = field(repr=False)
    rules: str | Path = "documented"
    options: Mapping[str, Any] = FrozenMap()
    strict: bool = False
    state: ExecutorState = field(default_factory=ExecutorState, compare=False, repr=False)

    @default_arithmetic
    def run(self, workspace_size: int) -> ConvolutionBackwardResult:
        """Compute the gradients, write them into outputs that have arrays, and return them with the cycles.

        Raises   AclnnError, before anything is computed: 161002 for a workspace smaller than asked for, or a
                 tensor that is not what the first phase has checked, 361001 where one has no values or
                 cannot be written; 561103 where the operators fail
        """
        if self.strict and self.state.runs and not self.state.repeatable:
            raise AclnnError(
                INVALID,
                "run",
                "the executor has run; one that shall run again must be made repeatable before",
            )
        self._check(workspace_size)
        self._check_tensors()
        # Read when the call runs, not when it is checked: the first phase of the vendor's interface sees
        # shapes alone, and a caller may fill the memory between the phases.
        inputs = {
            name: values_of(name, tensor)
            for name, tensor in self.tensors.items()
            if tensor is not None and name not in GRADIENTS
        }
        try:
            result = self._computed(inputs)
        except AclnnError:
            raise
        except AscendSimError as error:
            raise AclnnError(INNER, "run", str(error)) from error
        # A masked gradient leaves its output untouched, as the device does.
        for name in self.decision.wanted_gradients:
            self._write(name, getattr(result, name))
        self.state.runs += 1
        return result

    def _check(self, workspace_size: Any) -> None:
        # An argument that is no whole number is answered like a workspace that is too small: whatever comes
        # in, the interface answers with a status.
        try:
            given = index(workspace_size)
        except Exception:
            given = -1
        if given < self.workspace_size:
            raise AclnnError(
                INVALID,
                "run",
                f"workspace_size is {shown(workspace_size)}; the first phase asked for {self.workspace_size}",
            )

    def _check_tensors(self) -> None:
        """Look at the tensors again: their memory may have been swapped since they were checked."""
        now = typed(replace(self.call, **{name: describe(name, held) for name, held in self.tensors.items()}))
        for name in self.tensors:
            before, after = getattr(self.call, name), getattr(now, name)
            if after != before:
                raise AclnnError(
                    INVALID,
                    "run",
                    f"{name} was {before} in the first phase and is {after}; only values may change",
                )
        outputs = {name: self.tensors.get(name) for name in self.decision.wanted_gradients}
        require_writable(
            {
                name: memory_of(held.array)
                for name, held in outputs.items()
                if held is not None and held.array is not None
            }
        )

    def _computed(self, inputs: dict[str, Any]) -> ConvolutionBackwardResult:
        """Run the operator; what outputs are made of goes with it."""
        options: dict[str, Any] = {
            **self.options,
            "product": self.profile,
            "rules": self.rules,
            "output_dtypes": [self.decision.dtypes.get(name) for name in GRADIENTS],
            "output_strides": self._output_strides(),
        }
        # Imported when it runs: the first phase alone, as `ascendsim check` asks it, computes nothing.
        call = self.call
        if isinstance(call, ConvTbcBackwardCall):
            from ascendsim.ops.convolution_backward import conv_tbc_backward

            return conv_tbc_backward(**inputs, pad=call.pad, cube_math_type=call.cube_math_type, **options)
        from ascendsim.ops.convolution_backward import convolution_backward

        attributes = (
            *("bias_sizes", "stride", "padding", "dilation", "transposed", "output_padding", "groups"),
            *("output_mask", "cube_math_type"),
        )
        return convolution_backward(**inputs, **{name: getattr(call, name) for name in attributes}, **options)

    def _output_strides(self) -> dict[str, tuple[int, ...]]:
        """Return the strides of the wanted outputs that do not lie row after row."""
        # An empty call leaves shapes of outputs unchecked: none of them need be that of its gradient.
        wanted = () if self.decision.empty else self.decision.wanted_gradients
        outputs = {name: getattr(self.call, name) for name in wanted}
        return {
            name: tensor.strides
            for name, tensor in outputs.items()
            if tensor is not None and not tensor.is_contiguous
        }

    def _write(self, name: str, gradient: Any) -> None:
        """Write one gradient; an empty call leaves shapes of outputs unchecked and fills them with zeros."""
        target = self.tensors[name]
        if self.decision.empty and target is not None and target.array is not None:
            import numpy as np

            shape = tuple(target.array.shape)
            if shape != tuple(gradient.shape):
                gradient = np.zeros(shape, getattr(gradient, "codes", gradient).dtype)
        write(name, target, gradient)
