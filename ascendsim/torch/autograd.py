"""One simulated convolution with its gradients, for those who want it by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

from ascendsim.errors import ShapeError, UnsupportedError, refusal
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.torch.passes import Setting, run_backward, run_forward

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


def has_values(*tensors: torch.Tensor) -> bool:
    """Return whether there is anything to compute; torch traces shapes with tensors that have no values."""
    return all(tensor.numel() and not tensor.is_meta for tensor in tensors)


def array_of(tensor: torch.Tensor) -> NDArray[Any]:
    """Return the values of a tensor, row after row, in its own format.

    Raises   UnsupportedError for types that the simulator has not
    """
    if tensor.dtype not in FORMATS:
        raise UnsupportedError(
            f"ascendsim.torch: a tensor is {tensor.dtype}; the simulator takes "
            + ", ".join(str(known) for known in FORMATS)
        )
    if tensor.dtype not in BITS:
        values: NDArray[Any] = tensor.contiguous().numpy(force=True)
        return values
    bits: NDArray[Any] = tensor.detach().resolve_neg().cpu().contiguous().view(BITS[tensor.dtype]).numpy()
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


Sizes = int | Sequence[int]


@default_arithmetic
def convolution(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    transposed: bool = False,
    output_padding: Sizes = 0,
    groups: int = 1,
    *,
    setting: Setting | None = None,
) -> torch.Tensor:
    """Convolve on the simulator; so are the gradients, when torch asks for them.

    Shapes   as torch.nn.functional.conv1d to conv_transpose3d, with or without a batch axis
    Types    float32, float16, bfloat16, float8_e4m3fn, float8_e5m2; under autocast what that casts to
    Setting  the machine and its arithmetic; None: `Setting()`
    Raises   AscendSimError as `convolution_backward`; RuntimeError by torch for gradients of gradients
    """
    for name, value in (("input", input), ("weight", weight), ("bias", bias)):
        if not isinstance(value, torch.Tensor) and (value is not None or name != "bias"):
            raise refusal(f"convolution: {name}", value, "a tensor of torch" + ", or None" * (name == "bias"))
    if not isinstance(setting, Setting | None):
        raise refusal("convolution: setting", setting, "a Setting, or None")
    image, weight = autocast(input), autocast(weight)
    more = None if bias is None else autocast(bias)
    if image.dim() not in (weight.dim(), weight.dim() - 1):
        raise ShapeError(
            f"convolution: input has rank {image.dim()}, weight {weight.dim()}; they must be equal, or input "
            "one less, without the batch axis"
        )
    batched = image.dim() == weight.dim()
    image = image if batched else image.unsqueeze(0)
    problem = problem_of(
        image.shape, weight.shape, stride, padding, dilation, transposed, output_padding, groups
    )
    made: torch.Tensor = _Convolution.apply(image, weight, more, problem, setting or Setting())
    return made if batched else made.squeeze(0)


def problem_of(
    input: Sequence[int],
    weight: Sequence[int],
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> ConvProblem:
    """Return the convolution of two shapes and torch's arguments; a list of one number stands for all axes.

    Raises   ShapeError for what does not fit
    """
    given = (stride, padding, dilation, output_padding)
    s, p, d, spare = (one[0] if isinstance(one, Sequence) and len(one) == 1 else one for one in given)
    return ConvProblem(tuple(input), tuple(weight), s, p, d, transposed, spare, groups)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        problem: ConvProblem,
        setting: Setting,
    ) -> torch.Tensor:
        ctx.save_for_backward(input, weight)
        ctx.problem, ctx.setting = problem, setting
        more = None if bias is None else array_of(bias)
        result = run_forward(problem, array_of(input), array_of(weight), more, setting)
        return output_of(result, input, weight)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[Any, ...]:
        input, weight = ctx.saved_tensors
        mask = ctx.needs_input_grad[:3]
        y, x, w = (array_of(tensor) for tensor in (grad_output, input, weight))
        result = run_backward(ctx.problem, y, x, w, mask, ctx.setting)
        return *gradients_of(result, grad_output, input, weight), None, None


def autocast(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the format that autocast, where it is on, gives it."""
    # torch does this for its own convolutions before autograd sees them, and so for nothing of ours.
    kind = tensor.device.type
    return tensor.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else tensor


class _Simulated:
    """Takes `setting` besides the arguments of the module of torch that comes after it."""

    def __init__(self, *args: Any, setting: Setting | None = None, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.setting = setting or Setting()


class _Plain(_Simulated):
    def _conv_forward(self: Any, input: torch.Tensor, weight: torch.Tensor, bias: Any) -> torch.Tensor:
        """Convolve; the module's `forward` calls this, as torch's own do."""
        padding = self.padding
        # torch keeps its pads from the last axis to the first, before and after each.
        pads = self._reversed_padding_repeated_twice
        if self.padding_mode != "zeros":
            input, padding = functional.pad(input, pads, mode=self.padding_mode), 0
        elif isinstance(padding, str):  # "same" and "valid"; an even kernel needs one pixel more on one side
            before, after = pads[-2::-2], pads[-1::-2]
            if before == after:
                padding = tuple(before)
            else:
                input, padding = functional.pad(input, pads), 0
        attributes = self.stride, padding, self.dilation, False, 0, self.groups
        return convolution(input, weight, bias, *attributes, setting=self.setting)


class _TransposedLayer(_Simulated):
    def forward(self: Any, input: torch.Tensor, output_size: Any = None) -> torch.Tensor:
        """Convolve; `output_size` as torch's module takes it."""
        spare = self._output_padding(
            input,
            output_size,
            self.stride,
            self.padding,
            self.kernel_size,
            len(self.kernel_size),
            self.dilation,
        )
        attributes = self.stride, self.padding, self.dilation, True, spare, self.groups
        return convolution(input, self.weight, self.bias, *attributes, setting=self.setting)


class Conv1d(_Plain, torch.nn.Conv1d):
    """torch.nn.Conv1d on the simulator."""


class Conv2d(_Plain, torch.nn.Conv2d):
    """torch.nn.Conv2d on the simulator."""


class Conv3d(_Plain, torch.nn.Conv3d):
    """torch.nn.Conv3d on the simulator."""


class ConvTranspose1d(_TransposedLayer, torch.nn.ConvTranspose1d):
    """torch.nn.ConvTranspose1d on the simulator."""


class ConvTranspose2d(_TransposedLayer, torch.nn.ConvTranspose2d):
    """torch.nn.ConvTranspose2d on the simulator."""


class ConvTranspose3d(_TransposedLayer, torch.nn.ConvTranspose3d):
    """torch.nn.ConvTranspose3d on the simulator."""
