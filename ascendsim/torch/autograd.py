"""One simulated convolution with its gradients, for those who want it by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ascendsim.errors import ShapeError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.torch.passes import run_backward, run_forward
from ascendsim.torch.setting import Setting
from ascendsim.torch.tensors import array_of, gradients_of, output_of

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
    image, weight = _autocast(input), _autocast(weight)
    more = None if bias is None else _autocast(bias)
    if image.dim() not in (weight.dim(), weight.dim() - 1):
        raise ShapeError(
            f"convolution: input has rank {image.dim()}, weight {weight.dim()}; they must be equal, or input "
            "one less, without the batch axis"
        )
    batched = image.dim() == weight.dim()
    image = image if batched else image.unsqueeze(0)
    problem = problem_of(image, weight, stride, padding, dilation, transposed, output_padding, groups)
    made: torch.Tensor = _Convolution.apply(image, weight, more, problem, setting or Setting())
    return made if batched else made.squeeze(0)


def problem_of(
    input: torch.Tensor,
    weight: torch.Tensor,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> ConvProblem:
    """Return the convolution of torch's arguments; lists of one number stand for one on each axis.

    Raises   ShapeError for what does not fit
    """
    given = (stride, padding, dilation, output_padding)
    s, p, d, spare = (one[0] if isinstance(one, Sequence) and len(one) == 1 else one for one in given)
    return ConvProblem(tuple(input.shape), tuple(weight.shape), s, p, d, transposed, spare, groups)


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


def _autocast(tensor: torch.Tensor) -> torch.Tensor:
    # torch does this for its own convolutions before autograd sees them, and so for nothing of ours.
    kind = tensor.device.type
    return tensor.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else tensor
