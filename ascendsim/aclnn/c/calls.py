"""The operators' two phases in the vendor's spelling, and what may be done to an executor between runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ascendsim.aclnn.c.context import Out, answered, current
from ascendsim.aclnn.c.runtime import bytes_of
from ascendsim.aclnn.c.tensors import PlacedTensor
from ascendsim.aclnn.c.values import ACL_OPT_DETERMINISTIC
from ascendsim.aclnn.executor import GRADIENTS, INVALID, Executor
from ascendsim.aclnn.interface import (
    conv_tbc_backward_get_workspace_size,
    convolution_backward_get_workspace_size,
)
from ascendsim.arguments import shown
from ascendsim.errors import AclnnError
from ascendsim.rules import ConvolutionBackwardCall, ConvTbcBackwardCall
from ascendsim.rules.typed import CHECK

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
