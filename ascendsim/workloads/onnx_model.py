"""The convolutions of an ONNX model as a workload; onnx is an extra: pip install 'ascendsim[onnx]'."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ascendsim.errors import ConfigError, install_hint
from ascendsim.workloads.records import Layer, Workload, merged

_CONVOLUTIONS = ("Conv", "ConvTranspose")
# What training has weights in: behind one of these a tensor has a gradient that somebody needs.
_TRAINED = (*_CONVOLUTIONS, "Gemm", "MatMul", "BatchNormalization")
_UNPADDED = ("NOTSET", "VALID")


def read_onnx(path: Path) -> Workload:
    """Return the convolutions of a model, in the order of its graph, equal ones counted.

    Sizes    from the model's own, or inferred from its input's; its first axis is the batch, which may be
             unknown. Weights are not read, so that a file without its external data will do
    Masks    as training asks: grad_input where something with weights comes before, grad_bias with a bias
    Raises   ConfigError for a missing library, a file that is no model, a model without convolutions, a size
             that is unknown, and padding by auto_pad or output_shape
    """
    graph = _graph(path)
    sizes = _sizes(graph)
    layers, needed = list[Layer](), set[str]()
    for node in graph.node:
        if node.op_type in _CONVOLUTIONS:
            layers.append(
                _layer(node, sizes, needed, f"{path}: {node.op_type} {node.name or node.output[0]}")
            )
        if node.op_type in _TRAINED or needed.intersection(node.input):
            needed.update(node.output)
    if not layers:
        raise ConfigError(f"{path}: the model's graph has no Conv and no ConvTranspose")
    bias = any(layer.mask[2] for layer in layers)
    return Workload(path.stem, graph.name or path.stem, str(path), bias, merged(layers))


def _graph(path: Path) -> Any:
    """Return the graph of a model with the sizes of its tensors."""
    try:
        import onnx
    except ImportError as error:
        raise ConfigError(f"{path}: reading ONNX models needs onnx: {install_hint('onnx')}") from error
    try:
        model = onnx.load(path, load_external_data=False)
        return onnx.shape_inference.infer_shapes(model).graph
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from error
    # What protobuf raises for a foreign file is a class of its own, which differs between its versions.
    except Exception as error:
        raise ConfigError(f"{path}: is no ONNX model ({str(error).splitlines()[0]})") from error


def _sizes(graph: Any) -> Mapping[str, tuple[int, ...]]:
    """Return the sizes of tensors by name; 0 stands for one that is unknown."""
    found: dict[str, tuple[int, ...]] = {one.name: tuple(one.dims) for one in graph.initializer}
    for value in (*graph.input, *graph.value_info):
        axes = value.type.tensor_type.shape.dim
        found.setdefault(value.name, tuple(axis.dim_value for axis in axes))
    return found


def _layer(node: Any, sizes: Mapping[str, tuple[int, ...]], needed: set[str], where: str) -> Layer:
    image, weight = sizes.get(node.input[0], ())[1:], sizes.get(node.input[1], ())
    if len(weight) != len(image) + 1 or not all((*image, *weight)):
        raise ConfigError(
            f"{where}: its sizes are unknown (input {image}, weight {weight}, 0 for an unknown one); export "
            "the model with fixed sizes of one image"
        )
    bias = len(node.input) > 2 and bool(node.input[2])
    given = {one.name: list(one.ints) or one.i or one.s.decode() for one in node.attribute}
    options = _options(given, where)
    if node.op_type == "ConvTranspose":
        options["transposed"] = True
    name = node.name or node.output[0]
    return Layer(name, image, weight, options, 1, (node.input[0] in needed, True, bias))


def _options(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the attributes of a convolution that are not as usual.

    Raises   ConfigError for padding that is not said in numbers, or is not alike on both sides in 1-D and 3-D
    """
    if given.get("auto_pad", "NOTSET") not in _UNPADDED or given.get("output_shape"):
        raise ConfigError(f"{where}: its padding is left to auto_pad or output_shape; export it in numbers")
    pads = given.get("pads", [0])
    before, after = pads[: len(pads) // 2] or pads, pads[len(pads) // 2 :]
    if before != after and len(before) != 2:
        raise ConfigError(f"{where}: pads {pads} differ between both sides, which is known in 2-D only")
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
