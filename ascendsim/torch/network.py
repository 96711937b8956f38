"""The convolutions of a model of PyTorch as a workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.func import functional_call

from ascendsim.errors import ConfigError, items, refusal, whole
from ascendsim.torch.autograd import problem_of
from ascendsim.torch.dispatch import FORWARD, ConvolutionMode
from ascendsim.workloads import Layer, Workload, merged

_OPTIONS = ("stride", "padding", "dilation", "groups", "transposed", "output_padding")
_USUAL = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "transposed": False, "output_padding": 0}


def read_network(model: torch.nn.Module, image: Sequence[int], name: str = "") -> Workload:
    """Return the convolutions of a model, in the order of its forward pass, equal ones counted.

    image    sizes of one input without the batch, such as (3, 224, 224)
    name     of the workload; the name of the model's class if it is left out
    Masks    as training asks: a gradient is left out where its tensor needs none, such as that of the images
             or of a frozen weight
    Cost     none: shapes alone go through the model, on torch's device "meta"; it stays as it is
    Raises   ConfigError for a model without convolutions, or one that has no forward on shapes alone
    """
    if not isinstance(model, torch.nn.Module):
        raise refusal("read_network: model", model, "a torch.nn.Module")
    sizes = items(image)
    extents = [whole(size) for size in sizes or ()]
    if not extents or not all(size is not None and 0 < size < 2**31 for size in extents):
        raise refusal("read_network: image", image, "sizes of one image, such as (3, 224, 224)")
    if not isinstance(name, str):
        raise refusal("read_network: name", name, "a text")
    image = cast("list[int]", extents)
    title = name or type(model).__name__
    reader = _Reader()
    # Batch normalisation of a single image has no variance where the image is down to one pixel.
    shapes = {key: value.to("meta") for key, value in (*model.named_parameters(), *model.named_buffers())}
    try:
        with torch.enable_grad(), reader:
            functional_call(model, shapes, (torch.empty(2, *image, device="meta"),))
    except (RuntimeError, NotImplementedError, TypeError) as error:
        raise ConfigError(
            f"read_network: {title} cannot take shapes {(2, *image)} on torch's device meta "
            f"({str(error).splitlines()[0]}); give the sizes of one image, or list the layers in a TOML file"
        ) from error
    if not reader.layers:
        raise ConfigError(f"read_network: {title} calls no convolution with an image of {tuple(image)}")
    layers = merged(reader.layers)
    bias = any(layer.mask[2] for layer in layers)
    return Workload(title.lower(), title, f"read from {type(model).__name__}, {tuple(image)}", bias, layers)


class _Reader(ConvolutionMode):
    """Notes every forward that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = list[Layer]()

    def _forward(self, input: Any, weight: Any, bias: Any, *attributes: Any) -> Any:
        problem = problem_of(input.shape, weight.shape, *attributes)
        given = {key: _brief(getattr(problem, key)) for key in _OPTIONS}
        options = {key: value for key, value in given.items() if value != _USUAL[key]}
        mask = (input.requires_grad, weight.requires_grad, bias is not None and bias.requires_grad)
        name = self._names.forward(weight)
        self.layers.append(Layer(name, problem.input[1:], problem.weight, options, 1, mask))
        return FORWARD(input, weight, bias, *attributes)


def _brief(value: Any) -> Any:
    """Return one number where all dimensions are equal."""
    return value[0] if isinstance(value, tuple) and len(set(value)) == 1 else value
