"""A mode that sees every convolution of torch, with the name of its layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ascendsim.ops.lowering.call import GRADIENTS
from ascendsim.torch.autograd import problem_of
from ascendsim.torch.layers import OUTPUT, Layer, LayerNames
from ascendsim.torch.tensors import type_name

FORWARD = torch.ops.aten.convolution.default
BACKWARD = torch.ops.aten.convolution_backward.default

ByTorch = Callable[[], Any]


class ConvolutionMode(TorchDispatchMode):
    """Hands each forward and each backward to `take`; what that returns goes to the script."""

    def __init__(self) -> None:
        super().__init__()
        self._names, self._depth = LayerNames(), 0

    def take(self, layer: Layer, tensors: tuple[Any, ...], by_torch: ByTorch) -> Any:
        """Return the output of a forward, or the three gradients of a backward, None where masked.

        tensors   input, weight and bias (or None), or grad_output, input and weight
        by_torch  makes what torch itself would return
        """
        raise NotImplementedError

    def __enter__(self) -> Self:
        if not self._depth:
            self._names.watch()
        self._depth += 1
        entered: Self = super().__enter__()
        return entered

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._depth -= 1
        if not self._depth:
            self._names.stop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Take the convolutions; leave the rest to torch."""
        if func is FORWARD:
            return self._forward(*args)
        if func is BACKWARD:
            return self._backward(*args)
        given = kwargs or {}
        # Without autograd torch hands over whole operators, conv2d say; their convolutions come back here.
        if torch.is_inference_mode_enabled():
            with self:
                made = func.decompose(*args, **given)
            if made is not NotImplemented:
                return made
        return func(*args, **given)

    def _forward(self, input: Any, weight: Any, bias: Any, *attributes: Any) -> Any:
        name = self._names.forward(weight)
        by_torch = partial(FORWARD, input, weight, bias, *attributes)
        if not _has_values(input, weight):
            return by_torch()
        layer = _layer(name, "forward", OUTPUT, (input, weight), attributes)
        return self.take(layer, (input, weight, bias), by_torch)

    def _backward(self, *args: Any) -> Any:
        # Between them, bias_sizes: torch passes [0] for a layer without bias.
        tensors, attributes, mask = args[:3], args[4:-1], args[-1]
        by_torch = partial(BACKWARD, *args)
        if not _has_values(*tensors):
            return by_torch()
        results = tuple(name for name, asked in zip(GRADIENTS, mask, strict=True) if asked)
        layer = _layer(self._names.backward(tensors[2]), "backward", results, tensors, attributes)
        return self.take(layer, tensors, by_torch)


def _has_values(*tensors: Any) -> bool:
    """Tell whether there is anything to compute; torch traces shapes with tensors that have no values."""
    return all(tensor.numel() and tensor.device.type != "meta" for tensor in tensors)


def _layer(name: str, direction: str, results: Any, tensors: Any, attributes: Any) -> Layer:
    problem = problem_of(*tensors[-2:], *attributes)
    return Layer(name, direction, problem, tuple(type_name(tensor) for tensor in tensors), results)
