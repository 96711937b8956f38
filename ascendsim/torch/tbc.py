"""conv_tbc of torch: a convolution over (time, batch, channels), whose gradients have an operator.

torch takes its backward apart into products below autograd, so the function is replaced above it.
Forward and backward are those of a convolution in 1-D on permuted tensors, to which the device lowers it too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from ascendsim.errors import UnsupportedError
from ascendsim.ops.convolution_backward import ACTIVATION_IN, ACTIVATION_OUT, WEIGHT, conv_tbc_backward
from ascendsim.ops.layers import estimate_layer
from ascendsim.ops.lowering.call import GRADIENTS
from ascendsim.ops.options.keywords import TbcOptions
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.layers import TbcLayer
from ascendsim.torch.autograd import autocast, has_values, type_name
from ascendsim.torch.passes import ANY_SIZE, OUTPUT, LayerNames, LayerPass, Setting

if TYPE_CHECKING:
    from ascendsim.ops.results import ConvolutionBackwardResult, Estimate

_ATEN = torch.ops.aten.conv_tbc.default
Take = Callable[[LayerPass, tuple[Any, ...], Callable[[], Any]], Any]


@dataclass(frozen=True)
class TbcBackward(LayerPass):
    """A backward of a conv_tbc; `problem` is the convolution in 1-D that it is lowered to."""

    def run(self, grad_output: Any, input: Any, weight: Any, setting: Setting) -> ConvolutionBackwardResult:
        """Return the gradients; these and the tensors are those of the convolution in 1-D.

        Raises   UnsupportedError with `operands`; else as `conv_tbc_backward`
        """
        if setting.operands is not None:
            raise UnsupportedError(
                f"conv_tbc: its backward rounds no operands, but a setting says {setting.operands}; leave "
                "operands out for this layer (per_layer), or leave it to torch (layers)"
            )
        bias = np.zeros(weight.shape[0], grad_output.dtype)
        given = (values.transpose(ACTIVATION_OUT) for values in (grad_output, input))
        how: dict[str, Any] = {"order": setting.order, "threads": setting.threads, "timing": False}
        arguments: Any = (*given, weight.transpose(WEIGHT), bias, self._pad, setting.cube_math_type)
        made = conv_tbc_backward(*arguments, **(how | _options(setting)))
        return replace(
            made,
            grad_input=made.grad_input.transpose(ACTIVATION_IN),
            grad_weight=made.grad_weight.transpose(WEIGHT),
        )

    def costs(self, setting: Setting) -> Estimate:
        """Estimate the cycles, permutations included.

        Raises   as `estimate_layer`
        """
        input, weight = (
            tuple(shape[axis] for axis in axes)
            for shape, axes in ((self.convolution.input, ACTIVATION_OUT), (self.convolution.weight, WEIGHT))
        )
        layer, options = TbcLayer(input, weight, self._pad), _options(setting) | ANY_SIZE
        return estimate_layer(layer, self.dtypes, setting.cube_math_type, **options)

    @property
    def _pad(self) -> int:
        return int(self.convolution.pads[-1][0])


def _options(setting: Setting) -> dict[str, Any]:
    shared = TbcOptions.__annotations__.keys() & setting.options.keys()
    return {name: setting.options[name] for name in shared} | {"product": setting.product}


class TbcFunctions(TorchFunctionMode):
    """Replaces conv_tbc; `take` is told of each pass, with tensors as the convolution in 1-D has them."""

    def __init__(self, names: LayerNames, take: Take) -> None:
        super().__init__()
        self._names, self._take = names, take

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace conv_tbc; leave the rest to torch."""
        given = kwargs or {}
        return self._convolve(*args, **given) if func is torch.conv_tbc else func(*args, **given)

    def _convolve(self, input: Any, weight: Any, bias: Any, pad: int = 0) -> Any:
        tensors = autocast(input), autocast(weight), autocast(bias)
        if not has_values(*tensors) or input.dim() != weight.dim() or input.dim() != len(WEIGHT):
            return _ATEN(*tensors, pad)
        x, w = (tensor.permute(axes) for tensor, axes in zip(tensors, (ACTIVATION_IN, WEIGHT), strict=False))
        problem = ConvProblem(tuple(x.shape), tuple(w.shape), 1, pad)
        made = _ConvTbc.apply(x, w, tensors[2], problem, self._names.forward(weight), self._take)
        return made.permute(ACTIVATION_OUT).contiguous()


class _ConvTbc(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, input: Any, weight: Any, bias: Any, problem: ConvProblem, name: str, take: Take
    ) -> Any:
        ctx.save_for_backward(input, weight, bias)
        ctx.problem, ctx.name, ctx.take = problem, name, take
        layer = LayerPass(name, "forward", problem, (type_name(input), type_name(weight)), OUTPUT)
        return take(layer, (input, weight, bias), partial(_by_torch, problem, input, weight, bias))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_output: Any) -> tuple[Any, ...]:
        input, weight, bias = ctx.saved_tensors
        tensors = grad_output, input, weight
        layer = TbcBackward(ctx.name, "backward", ctx.problem, tuple(map(type_name, tensors)), GRADIENTS)
        by_torch = partial(_gradients_by_torch, ctx.problem, grad_output, input, weight, bias)
        return *ctx.take(layer, tensors, by_torch), None, None, None


def _by_torch(problem: ConvProblem, input: Any, weight: Any, bias: Any) -> Any:
    tensors = input.permute(ACTIVATION_OUT), weight.permute(WEIGHT), bias
    return _ATEN(*tensors, problem.pads[-1][0]).permute(ACTIVATION_IN)


def _gradients_by_torch(problem: ConvProblem, grad_output: Any, *tensors: Any) -> Any:
    own = [tensor.detach().requires_grad_() for tensor in tensors]
    # Its own products are those of the layer that is left to torch.
    with _disable_current_modes(), torch.enable_grad():
        return torch.autograd.grad(_by_torch(problem, *own), own, grad_output)
