"""The second phase: run what the first phase has accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.aclnn.tensor import AclTensor, describe, memory_of, values_of, write
from ascendsim.arguments import shown
from ascendsim.errors import AclnnError, AscendSimError
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.problems.strips import share_places
from ascendsim.rules import ConvolutionBackwardCall, ConvTbcBackwardCall, Decision
from ascendsim.rules.typed import typed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.results import ConvolutionBackwardResult
    from ascendsim.profile import Profile


RUNTIME = 361001  # ACLNN_ERR_RUNTIME_ERROR
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


# Names of outputs, in the vendor's order.
GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
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
            from ascendsim.ops.conv_tbc_backward import conv_tbc_backward

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
