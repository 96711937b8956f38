"""Tensors of torch as arrays of the simulator, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ascendsim.errors import UnsupportedError
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.results import ConvolutionBackwardResult

# Formats by their types in torch. numpy knows the first two; the others travel as integers of their bits.
FORMATS = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float8_e4m3fn: "float8_e4m3fn",
    torch.float8_e5m2: "float8_e5m2",
}
BITS = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}


def type_name(tensor: torch.Tensor) -> str:
    """Return the name of a tensor's type, also of one that the simulator has not."""
    return FORMATS.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))


def array_of(tensor: torch.Tensor) -> NDArray[Any]:
    """Return the values of a tensor, row after row, in its own format.

    Raises   UnsupportedError for types that the simulator has not
    """
    if tensor.dtype not in FORMATS:
        raise UnsupportedError(
            f"ascendsim.torch: a tensor is {tensor.dtype}; the simulator takes "
            + ", ".join(str(known) for known in FORMATS)
        )
    plain = tensor.detach().resolve_neg().cpu().contiguous()
    if tensor.dtype not in BITS:
        values: NDArray[Any] = plain.numpy()
        return values
    bits: NDArray[Any] = plain.view(BITS[tensor.dtype]).numpy()
    stored: NDArray[Any] = bits.view(np.dtype(lookup_dtype(FORMATS[tensor.dtype]).storage))
    return stored


def tensor_of(values: NDArray[Any], like: torch.Tensor) -> torch.Tensor:
    """Return values, which are in the format of a tensor, as a tensor on its device."""
    plain = np.ascontiguousarray(values)
    if like.dtype in BITS:
        kind = np.int16 if plain.itemsize == 2 else np.uint8
        made = torch.from_numpy(plain.view(kind)).view(like.dtype)
    else:
        made = torch.from_numpy(plain)
    return made.to(like.device)


def channels_last(*tensors: torch.Tensor) -> Any:
    """Return the memory format of a convolution's results: channels last as soon as one operand lies so."""
    ranks = {4: torch.channels_last, 5: torch.channels_last_3d}
    for tensor in tensors:
        last = ranks.get(tensor.dim())
        if last is not None and tensor.is_contiguous(memory_format=last) and not tensor.is_contiguous():
            return last
    return torch.contiguous_format


def output_of(result: ConvolutionBackwardResult, input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the output of a forward, which is the grad_input of its result, laid out as torch's would be."""
    made = tensor_of(result.grad_input, input)
    return made.contiguous(memory_format=channels_last(input, weight))


def gradients_of(result: ConvolutionBackwardResult, *tensors: torch.Tensor) -> tuple[Any, ...]:
    """Return the gradients of a backward of grad_output, input and weight; None where masked."""
    grad_output, input, weight = tensors
    made = (result.grad_input, result.grad_weight, result.grad_bias)
    pairs = zip(made, (input, weight, grad_output), strict=True)
    return tuple(None if values is None else tensor_of(values, own) for values, own in pairs)
