"""The layers of an ONNX model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

from ascendsim.errors import ConfigError, install_hint
from ascendsim.files import MOST_MODEL, printable, read_bytes
from ascendsim.workloads.records import Layer, LeftOut, Workload, counted, merged, names_left_out

_CONVOLUTIONS = ("Conv", "ConvTranspose")
_PRODUCTS = ("Gemm", "MatMul")
# What training has weights in: behind one of these a tensor has a gradient that somebody needs.
_TRAINED = (*_CONVOLUTIONS, "Gemm", "BatchNormalization")
# A weight stays one behind these.
_SAME_WEIGHT = ("Transpose", "Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "DequantizeLinear")
# What multiplies besides, or holds graphs of its own; so may operators of other domains than ONNX's.
_NOT_READ = (
    *("Attention", "ConvInteger", "DeformConv", "Einsum", "GRU", "If", "LSTM", "Loop", "MatMulInteger"),
    *("QLinearConv", "QLinearMatMul", "RNN", "Scan"),
)
_ONNX_DOMAINS = ("", "ai.onnx")
# Stands for an unknown batch: the first prime over a million, so that what is a multiple of it has the batch
# in it.
_IMAGES = 1_000_003


def read_onnx(path: Path) -> Workload:
    """Return the convolutions and matrix products of a model, in the order of its graph, equal ones counted.

    Products a Gemm or MatMul with a weight is a linear layer, of two activations a product of a batch; what
             else multiplies, or may, is counted in `left_out`

    Sizes    from the model's own, or inferred from its input's; its first axis is the batch, which may be
             unknown: 1 is what exporters write of an example, and says nothing. A layer whose first axis is
             a multiple of the batch has that many images, rows or products for each; others are left out
    Weights  are not read, so that a file without its external data will do
    Masks    as training asks: grad_input where something with weights comes before, grad_bias with a bias
    Padding  by auto_pad or output_shape is worked out as ONNX's operators define it
    Raises   ConfigError for a missing library, a file that is no model, a model without layers, and a size of
             a convolution that is unknown
    """
    graph, batch = _graph(path)
    try:
        return _onnx_workload(path, graph, batch)
    except ConfigError:
        raise
    # Parsed, but no exporter wrote it: nodes without inputs, attributes of other types, no text.
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{path}: its graph is damaged ({error}); export the model again") from error


def _onnx_workload(path: Path, graph: Any, batch: int) -> Workload:
    read = _GraphReader(str(path), _onnx_sizes(graph), {one.name for one in graph.initializer}, batch)
    for node in graph.node:
        read.take(node)
    if not read.layers:
        raise ConfigError(
            f"{path}: the model's graph has no Conv, ConvTranspose, Gemm or MatMul to be timed"
            f"{names_left_out(read.left_out)}"
        )
    bias = any(layer.mask[2] for layer in read.layers)
    title, named = printable(graph.name or path.stem), read.batch if 1 < read.batch != _IMAGES else None
    about = path.stem, title, str(path), bias
    return Workload(*about, merged(read.layers), named, counted(read.left_out))


class _GraphReader:
    """Reads a graph node by node.

    held    names of tensors that are weights
    needed  names of tensors whose gradient somebody needs
    batch   of the graph's input, or of a convolution that comes first; 0: there is none
    """

    def __init__(self, path: str, sizes: Mapping[str, tuple[int, ...]], held: set[str], batch: int) -> None:
        self._path, self._sizes, self._held = path, sizes, held
        self._needed = set[str]()
        self._linear: dict[str, int] = {}
        self.layers: list[Layer] = []
        self.left_out: list[LeftOut] = []
        self.batch = batch

    def take(self, node: Any) -> None:
        """Read the next node of the graph."""
        kind = node.op_type
        if kind in _CONVOLUTIONS:
            self._convolution(node)
        elif kind in _PRODUCTS:
            self._product(node)
        elif kind == "Add":
            self._bias(node)
        elif kind in _NOT_READ or node.domain not in _ONNX_DOMAINS:
            self._leave_out(node, None)
        if kind in _SAME_WEIGHT and node.input[0] in self._held:
            self._held.update(node.output)
        weighed = kind in _TRAINED or (kind == "MatMul" and self._held.intersection(node.input))
        if weighed or self._needed.intersection(node.input):
            self._needed.update(node.output)

    def _convolution(self, node: Any) -> None:
        """Take a convolution as a layer, if it is known how many images it takes for one of the batch."""
        layer = _onnx_layer(
            node, self._sizes, self._needed, f"{self._path}: {node.op_type} {node.name or node.output[0]}"
        )
        axis = self._sizes[node.input[0]][0]
        # What is no batch in the graph's input may become one, as by an Unsqueeze.
        if axis and not self.layers and self.batch != _IMAGES and (not self.batch or axis % self.batch):
            self.batch = axis
        images, rest = divmod(axis, self.batch) if self.batch else (1, 0)
        if rest or not images:
            self._leave_out(node, None)
        else:
            self.layers.append(replace(layer, images=images))

    def _product(self, node: Any) -> None:
        """Take a product as a layer, if it is one of activations and a weight, or of two activations."""
        a, b = (self._sizes.get(name, ()) for name in node.input[:2])
        given = {one.name: one.i for one in node.attribute}
        if given.get("transB"):
            b = (*b[:-2], *b[:-3:-1])
        # Of all images at once: the first axis may have windows or tokens of each, too.
        images, rest = divmod(a[0], self.batch) if a and self.batch else (0, 0)
        front, whole = (images,) if images > 1 else (), bool(images) and not rest and all((*a, *b))
        weighed, fits = node.input[1] in self._held, a[-1:] == b[-2:-1] and not given.get("transA")
        mask = node.input[0] in self._needed, node.input[1] in self._needed, False
        name = printable(node.name or node.output[0])
        if weighed and whole and fits and len(b) == 2 <= len(a):
            self._linear[node.output[0]] = len(self.layers)
            bias = len(node.input) > 2 and bool(node.input[2])
            self.layers.append(Layer(name, front + a[1:], b[::-1], {}, 1, (mask[0], True, bias), "linear"))
        elif (
            not self._held.intersection(node.input[:2])
            and len(a) == len(b) >= 3
            and whole
            and fits
            and a[:-2] == b[:-2]
        ):
            self.layers.append(Layer(name, front + a[1:], front + b[1:], {}, 1, mask, "matmul"))
        else:
            made = self._sizes.get(node.output[0], ())
            known = a and made and self.batch and all((*made, a[-1]))
            self._leave_out(node, prod(made) * a[-1] // self.batch if known else None)

    def _bias(self, node: Any) -> None:
        """Give a linear layer the bias that is added to its result."""
        for one, other in (node.input, node.input[::-1]):
            at = self._linear.get(one)
            if at is not None and other in self._held:
                layer = self.layers[at]
                if self._sizes.get(other, ()) == layer.weight[:1]:
                    self.layers[at] = replace(layer, mask=(*layer.mask[:2], True))

    def _leave_out(self, node: Any, macs: int | None) -> None:
        self.left_out.append(LeftOut(printable(node.name or node.output[0]), node.op_type, 1, macs or None))


def _graph(path: Path) -> tuple[Any, int]:
    """Return the graph of a model with the sizes of its tensors, and its batch."""
    try:
        import onnx
    except ImportError as error:
        raise ConfigError(f"{path}: reading ONNX models needs onnx: {install_hint('onnx')}") from error
    try:
        model = onnx.load_model_from_string(read_bytes(path, MOST_MODEL))
        batch = _given_batch(model.graph)
        return onnx.shape_inference.infer_shapes(model, data_prop=True).graph, batch
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from error
    # What protobuf raises for a foreign file is a class of its own, which differs between its versions.
    except Exception as error:
        raise ConfigError(
            f"{path}: is no ONNX model ({(str(error) or type(error).__name__).splitlines()[0]})"
        ) from error


def _given_batch(graph: Any) -> int:
    """Return the first axis of a graph's input; an unknown one becomes _IMAGES, wherever its name stands."""
    held = {one.name for one in graph.initializer}
    inputs = [one.type.tensor_type.shape.dim for one in graph.input if one.name not in held]
    first = next((axes[0] for axes in inputs if axes), None)
    if first is None or first.dim_value > 0:
        return first.dim_value if first else 0
    name = first.dim_param
    first.dim_value = _IMAGES
    known = [one.type.tensor_type.shape.dim for one in graph.value_info]
    for axis in chain.from_iterable((*inputs, *known)):
        if name and axis.dim_param == name:
            axis.dim_value = _IMAGES
    return _IMAGES


def _onnx_sizes(graph: Any) -> Mapping[str, tuple[int, ...]]:
    """Return the sizes of tensors by name; 0 stands for one that is unknown."""
    found: dict[str, tuple[int, ...]] = {one.name: tuple(one.dims) for one in graph.initializer}
    for value in (*graph.input, *graph.value_info):
        axes = value.type.tensor_type.shape.dim
        found.setdefault(value.name, tuple(axis.dim_value for axis in axes))
    return found


def _onnx_layer(node: Any, sizes: Mapping[str, tuple[int, ...]], needed: set[str], where: str) -> Layer:
    image, weight = sizes.get(node.input[0], ())[1:], sizes.get(node.input[1], ())
    if len(weight) != len(image) + 1 or not all((*image, *weight)):
        raise ConfigError(
            f"{where}: its sizes are unknown (input {image}, weight {weight}, 0 for an unknown one); export "
            "the model with fixed sizes of one image"
        )
    bias = len(node.input) > 2 and bool(node.input[2])
    given = {one.name: list(one.ints) or one.i or one.s.decode() for one in node.attribute}
    transposed = node.op_type == "ConvTranspose"
    options = _options(given, _pads(given, image[1:], weight[2:], where, transposed=transposed), where)
    if transposed:
        options["transposed"] = True
    name = printable(node.name or node.output[0])
    return Layer(name, image, weight, options, 1, (node.input[0] in needed, True, bias))


def _pads(
    given: Mapping[str, Any], image: Sequence[int], kernel: Sequence[int], where: str, *, transposed: bool
) -> list[int]:
    """Return the padding before each axis, then behind each, as the operators' pages define it.

    SAME   as many outputs as strides fit the input, transposed a stride of them for each input; what is odd
           goes behind (SAME_UPPER) or before. Given output_shape says how many, and what is odd goes before
    """
    how, shape = given.get("auto_pad", "NOTSET"), given.get("output_shape")
    ones = [1] * len(image)
    if how == "VALID" and not shape:
        return [0]
    if not how.startswith("SAME") and not shape:
        return list(given.get("pads", [0]))
    strides, dilations = given.get("strides", ones), given.get("dilations", ones)
    spare = given.get("output_padding", [0] * len(image))
    before, behind = [], []
    for at, (size, taps) in enumerate(zip(image, kernel, strict=True)):
        step, window = strides[at], (taps - 1) * dilations[at] + 1
        if transposed:
            made = shape[at - len(image)] if shape else size * step
            total = step * (size - 1) + spare[at] + window - made
        else:
            total = max((-(-size // step) - 1) * step + window - size, 0)
        if total < 0:
            raise ConfigError(
                f"{where}: its output is larger than without padding; export it with output_padding"
            )
        less, more = total // 2, total - total // 2
        before.append(less if how == "SAME_UPPER" else more)
        behind.append(total - before[-1])
    return [*before, *behind]


def _options(given: Mapping[str, Any], pads: Sequence[int], where: str) -> dict[str, Any]:
    """Return the attributes of a convolution that are not as usual.

    Raises   ConfigError for padding that is not alike on both sides in 1-D and 3-D
    """
    before, after = pads[: len(pads) // 2] or pads, pads[len(pads) // 2 :]
    if before != after and len(before) != 2:
        raise ConfigError(f"{where}: pads {list(pads)} differ between both sides, which is known in 2-D only")
    # Ours alternate: before and after along the first axis, then along the second.
    padding = (
        before if before == after else [side for pair in zip(before, after, strict=True) for side in pair]
    )
    named = {
        "stride": (given.get("strides", [1]), 1),
        "padding": (padding, 0),
        "dilation": (given.get("dilations", [1]), 1),
        "output_padding": (given.get("output_padding", [0]), 0),
        "groups": ([given.get("group", 1)], 1),
    }
    return {
        name: values[0] if len(set(values)) == 1 else tuple(values)
        for name, (values, usual) in named.items()
        if set(values) != {usual}
    }
