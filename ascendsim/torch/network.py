"""The layers of a model of PyTorch as a workload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch.func import functional_call
from torch.utils.flop_counter import flop_registry

from ascendsim.errors import ConfigError, items, refusal, whole
from ascendsim.torch.autograd import problem_of
from ascendsim.torch.dispatch import FORWARD, ConvolutionMode
from ascendsim.workloads import Layer, LeftOut, Workload, counted, merged
from ascendsim.workloads.records import names_left_out

_OPTIONS = ("stride", "padding", "dilation", "groups", "transposed", "output_padding")
_USUAL = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "transposed": False, "output_padding": 0}


def read_network(model: torch.nn.Module, image: Sequence[int], name: str = "") -> Workload:
    """Return the layers of a model, in the order of its forward pass, equal ones counted.

    layers   convolutions; a product with a weight is a linear layer, one of two activations a product of a
             batch, such as both of an attention. What else torch counts operations of is in `left_out`
    image    sizes of one input without the batch, such as (3, 224, 224)
    name     of the workload; the name of the model's class if it is left out
    Masks    as training asks: a gradient is left out where its tensor needs none, such as that of the images
             or of a frozen weight
    Cost     none: shapes alone go through the model, on torch's device "meta"; it stays as it is
    Raises   ConfigError for a model without layers, or one that has no forward on shapes alone
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
    # Batch normalisation of a single image has no variance where the image is down to one pixel.
    shapes = {key: value.to("meta") for key, value in (*model.named_parameters(), *model.named_buffers())}
    reader = _Reader(shapes.values())
    try:
        with torch.enable_grad(), reader:
            functional_call(model, shapes, (torch.empty(IMAGES, *image, device="meta"),))
    except (RuntimeError, NotImplementedError, TypeError) as error:
        raise ConfigError(
            f"read_network: {title} cannot take shapes {(IMAGES, *image)} on torch's device meta "
            f"({str(error).splitlines()[0]}); give the sizes of one image, or list the layers in a TOML file"
        ) from error
    if not reader.layers:
        raise ConfigError(
            f"read_network: {title} calls no convolution and no product with an image of {tuple(image)} that "
            f"can be timed{names_left_out(reader.left_out)}"
        )
    layers = merged(reader.layers)
    bias = any(layer.mask[2] for layer in layers)
    source, left_out = f"read from {type(model).__name__}, {tuple(image)}", counted(reader.left_out)
    return Workload(title.lower(), title, source, bias, layers, left_out=left_out)


IMAGES = 2
_ATEN = torch.ops.aten
# Where both operands of a product stand among the arguments.
_PRODUCTS = {
    _ATEN.mm.default: 0,
    _ATEN.bmm.default: 0,
    _ATEN.addmm.default: 1,
    _ATEN.baddbmm.default: 1,
}


class _Reader(ConvolutionMode):
    """Notes every forward that it sees; `weights` are the parameters and buffers of the model."""

    def __init__(self, weights: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._weights = {id(weight) for weight in weights}
        # By its storage, the result of each linear layer: kept, so that no other tensor takes its place.
        self._linear: dict[int, tuple[int, torch.Tensor]] = {}
        self.layers = list[Layer]()
        self.left_out = list[LeftOut]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note products too, and what else multiplies."""
        made = super().__torch_dispatch__(func, types, args, kwargs)
        if func in _PRODUCTS:
            at = _PRODUCTS[func]
            self._product(args[at], args[at + 1], args[0] if at else None, func, made)
        elif func is _ATEN.conv_tbc.default:
            self._tbc(*args)
        elif func is _ATEN.add.Tensor:
            self._bias(*args[:2])
        elif func is not FORWARD and func.overloadpacket in flop_registry:
            # Two operations are a multiply-add.
            operations = flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=made)
            self._leave_out(func, operations // 2)
        return made

    def _forward(self, input: Any, weight: Any, bias: Any, *attributes: Any) -> Any:
        problem = problem_of(input.shape, weight.shape, *attributes)
        given = {key: _brief(getattr(problem, key)) for key in _OPTIONS}
        options = {key: value for key, value in given.items() if value != _USUAL[key]}
        mask = (input.requires_grad, weight.requires_grad, bias is not None and bias.requires_grad)
        name = self._names.forward(weight)
        self.layers.append(Layer(name, problem.input[1:], problem.weight, options, 1, mask))
        return FORWARD(input, weight, bias, *attributes)

    def _tbc(self, input: Any, weight: Any, _bias: Any, pad: int = 0) -> None:
        time, _, channels = input.shape
        options = {"padding": pad} if pad else {}
        # Its interface has no mask: all three gradients are made.
        sizes = (time, channels), tuple(weight.shape), options
        self.layers.append(Layer(self._names.forward(weight), *sizes, 1, (True, True, True), "conv_tbc"))

    def _product(
        self, a: torch.Tensor, b: torch.Tensor, added: torch.Tensor | None, func: Any, made: torch.Tensor
    ) -> None:
        """Note a product of an activation and a weight, or of two activations; others are left out."""
        weighed, batched = self._is_weight(b), a.dim() == 3
        # Of all images at once: the first axis has them too.
        images, rest = divmod(a.shape[0], IMAGES)
        if rest or self._is_weight(a) or weighed == batched:
            self._leave_out(func, a.numel() * b.shape[-1])
            return
        mask = a.requires_grad, b.requires_grad, False
        if batched:
            kind, sizes, weight = "matmul", a.shape[1:], (images, *b.shape[1:])
        else:
            kind, sizes, weight = "linear", a.shape[1:], (b.shape[1], b.shape[0])
            mask = (*mask[:2], added is not None and added.requires_grad)
            self._linear[made.untyped_storage()._cdata] = len(self.layers), made
        input = (*([images] if batched or images > 1 else []), *sizes)
        self.layers.append(Layer(self._names.forward(b), input, tuple(weight), {}, 1, mask, kind))

    def _bias(self, result: torch.Tensor, added: Any) -> None:
        """Give a linear layer the bias that torch adds to its result by itself, as to one of three axes."""
        at, made = self._linear.get(result.untyped_storage()._cdata, (0, None))
        # In place, another operation may have come between.
        if made is None or result._version or made._version or not self._is_weight(added):
            return
        layer = self.layers[at]
        if added.shape == layer.weight[:1]:
            self.layers[at] = replace(layer, mask=(*layer.mask[:2], layer.mask[2] or added.requires_grad))

    def _leave_out(self, func: Any, macs: int) -> None:
        name = self._names.running()
        self.left_out.append(LeftOut(name, func.overloadpacket.__name__, 1, macs // IMAGES or None))

    def _is_weight(self, tensor: Any) -> bool:
        """Return whether a tensor is one of the model, or a view of one."""
        if not isinstance(tensor, torch.Tensor):
            return False
        return id(tensor if tensor._base is None else tensor._base) in self._weights


def _brief(value: Any) -> Any:
    """Return one number where all dimensions are equal."""
    return value[0] if isinstance(value, tuple) and len(set(value)) == 1 else value
