"""Networks as data: the shapes of their convolutions and how often each occurs; read from TOML files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ascendsim.errors import ConfigError, close_matches, install_hint
from ascendsim.files import MOST_MODEL, parse_toml, printable, read_bytes, read_text

Mask = tuple[bool, bool, bool]
GRADIENTS = ("input", "weight", "bias")
# What follows the name of a stage in that of a layer.
_OF_STAGE = re.compile(r"b\d|[_./]")


@dataclass(frozen=True, slots=True)
class Layer:
    """One distinct convolution of a network.

    name     of the first convolution of this shape
    input    without the batch
    weight   in the framework's order of dimensions
    options  attributes that are not as usual (stride, padding, ...), by the names of `ConvProblem`
    count    how many convolutions of the network have this shape
    mask     which gradients training asks for: of input, weight, bias
    """

    name: str
    input: tuple[int, ...]
    weight: tuple[int, ...]
    options: Mapping[str, Any]
    count: int
    mask: Mask = (True, True, True)

    def problem_options(self, batch: int) -> dict[str, Any]:
        """Return the keywords of `ConvProblem` for a batch."""
        return {"input": (batch, *self.input), "weight": self.weight, **self.options}


@dataclass(frozen=True, slots=True)
class Workload:
    """A network: its convolutions in the order of the forward pass, and where the shapes come from.

    `bias` says whether its convolutions have one, unless a layer says otherwise of itself; `batch` is the one
    that its file names, if any.
    """

    name: str
    title: str
    source: str
    bias: bool
    layers: tuple[Layer, ...]
    batch: int | None = None

    def layer(self, name: str) -> Layer:
        """Return one layer by name.

        Raises   ConfigError with near misses
        """
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise ConfigError(f"{self.title} has no layer {name!r}; {self._hint(name)}")

    def select(self, words: str) -> tuple[Layer, ...]:
        """Return the layers that are meant, in the order of the network.

        words   names, patterns such as "s3*_3x3", and stages or blocks such as "s3" and "s3b1", with commas
                between; behind a stage comes a block ("b1"), or "_", "." or "/"

        Raises   ConfigError with near misses for a word that means no layer
        """
        chosen = set()
        for word in (part.strip() for part in words.split(",")):
            found = [layer.name for layer in self.layers if _means(word, layer.name)]
            # A name is that layer alone, even if others begin with it.
            found = [word] if word in found else found
            if not found:
                raise ConfigError(f"{self.title} has no layer, stage or pattern {word!r}; {self._hint(word)}")
            chosen.update(found)
        return tuple(layer for layer in self.layers if layer.name in chosen)

    def _hint(self, name: str) -> str:
        names = [layer.name for layer in self.layers]
        near = close_matches(name, names, n=3, cutoff=0.6)
        return f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(names)}"


def _means(word: str, name: str) -> bool:
    if not word or name == word:
        return name == word
    if any(sign in word for sign in "*?["):
        return fnmatchcase(name, word)
    return name.startswith(word) and _OF_STAGE.match(name[len(word) :]) is not None


def merged(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Count layers that differ in nothing but their names, at the place of the first of them."""
    found: dict[Any, Layer] = {}
    for layer in layers:
        key = layer.input, layer.weight, tuple(sorted(layer.options.items())), layer.mask
        known = found.get(key)
        found[key] = layer if known is None else replace(known, count=known.count + layer.count)
    return tuple(found.values())


def toml_text(workload: Workload) -> str:
    """Return a workload as TOML, a line for each layer; reading it back gives an equal one."""
    lines = [f"{key} = {_value(getattr(workload, key))}" for key in ("name", "title", "source", "bias")]
    return "\n".join([*lines, "layers = [", *(f"    {_row(layer)}," for layer in workload.layers), "]", ""])


def _row(layer: Layer) -> str:
    pairs = {"name": layer.name, "input": layer.input, "weight": layer.weight, **layer.options}
    # The mask as it is: what a reader would take it for depends on the place of the layer.
    pairs |= {"count": layer.count, "mask": names_of(layer.mask)}
    return "{ " + ", ".join(f"{key} = {_value(value)}" for key, value in pairs.items()) + " }"


def names_of(mask: Sequence[bool]) -> tuple[str, ...]:
    """Return the gradients of a mask by name."""
    return tuple(name for name, wanted in zip(GRADIENTS, mask, strict=True) if wanted)


def _value(value: Any) -> str:
    # Imported here: who only reads a network needs no JSON.
    import json

    # A text, a number, true or false, and a list of them are written alike in JSON and in TOML.
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


# The networks that come with the package lie beside this file.
_OWN = Path(__file__).parent
_OPTIONS = {"stride", "padding", "dilation", "groups", "transposed", "output_padding"}
_LAYER_KEYS = {"name", "input", "weight", "count", "bias", "mask"} | _OPTIONS
_FILE_KEYS = {"name", "title", "source", "bias", "batch", "layers"}


def workload_names() -> tuple[str, ...]:
    """Return the names of the built-in networks."""
    return tuple(sorted(path.stem for path in _OWN.glob("*.toml")))


def load_workload(name_or_path: str | Path) -> Workload:
    """Return a built-in network by name, or the user's own: a TOML file in the same form, an ONNX model.

    Raises   ConfigError naming the file, the place in it and the rule
    """
    text = str(name_or_path)
    if text.endswith(".onnx"):
        # Here and not above: with protobuf it takes a while to load, and it is an extra.

        return read_onnx(Path(text))
    # Whatever ends in .toml is a path, so that a file of one's own may have the name of a network of ours.
    path = Path(text) if text.endswith(".toml") else _OWN / f"{text}.toml"
    if path.parent == _OWN and path.stem not in workload_names():
        raise ConfigError(
            f"there is no built-in workload {text!r}; there is {', '.join(workload_names())}, "
            "or give the path of a .toml or .onnx file of your own"
        )
    try:
        data = parse_toml(read_text(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        raise ConfigError(f"{path}: is not valid TOML ({error})") from error
    return _workload(data, str(path), path.stem)


def _workload(data: Mapping[str, Any], where: str, stem: str) -> Workload:
    _only(data, _FILE_KEYS, where)
    rows = data.get("layers")
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"{where}: `layers` must be a list with at least one layer")
    # With a bias by default, as in the framework.
    bias = _truth(data, "bias", True, where)
    layers = tuple(_layer(row, f"{where}: layers[{index}]", bias, index) for index, row in enumerate(rows))
    # Layers are asked for by name on the command line.
    repeated = {layer.name for layer in layers if sum(layer.name == other.name for other in layers) > 1}
    if repeated:
        raise ConfigError(f"{where}: layer names must differ, but {', '.join(sorted(repeated))} is repeated")
    name, batch = str(data.get("name", stem)), data.get("batch")
    if batch is not None and (type(batch) is not int or batch < 1):
        raise ConfigError(f"{where}: `batch` must be a positive whole number, not {batch!r}")
    return Workload(name, str(data.get("title", name)), str(data.get("source", where)), bias, layers, batch)


def _layer(row: object, where: str, bias: bool, index: int) -> Layer:
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: must be a table, not {row!r}")
    _only(row, _LAYER_KEYS, where)
    name = row.get("name")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{where}: `name` must be a text, not {name!r}")
    count = row.get("count", 1)
    if not isinstance(count, int) or count < 1:
        raise ConfigError(f"{where} ({name}): `count` must be a positive whole number, not {count!r}")
    # Only the keys are checked here: ConvProblem says what their values may be, for all callers alike.
    options = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in row.items()
        if key in _OPTIONS
    }
    # The first layer reads the images, whose gradient training does not ask for; were there several of its
    # shape, the others' would be.
    usual = (index > 0 or count > 1, True, _truth(row, "bias", bias, where))
    mask = _mask(row, usual, where)
    return Layer(name, _sizes(row, "input", where), _sizes(row, "weight", where), options, count, mask)


def _mask(row: Mapping[str, Any], usual: Mask, where: str) -> Mask:
    """Return which gradients are asked for: as the file names them, or as usual."""
    if "mask" not in row:
        return usual
    names = row["mask"]
    if not isinstance(names, list) or not names or not all(name in GRADIENTS for name in names):
        raise ConfigError(f"{where}: `mask` must be a list of some of {', '.join(GRADIENTS)}, not {names!r}")
    return "input" in names, "weight" in names, "bias" in names


def _truth(data: Mapping[str, Any], key: str, usual: bool, where: str) -> bool:
    value = data.get(key, usual)
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: `{key}` must be true or false, not {value!r}")
    return value


def _sizes(row: Mapping[str, Any], key: str, where: str) -> tuple[int, ...]:
    """Return a shape of a layer; an empty list passes here and has no rank to ConvProblem."""
    value = row.get(key)
    if not isinstance(value, list) or not all(isinstance(size, int) and size > 0 for size in value):
        raise ConfigError(f"{where}: `{key}` must be a list of positive whole numbers, not {value!r}")
    return tuple(value)


def _only(data: Mapping[str, Any], allowed: set[str], where: str) -> None:
    for key in data:
        if key not in allowed:
            near = close_matches(key, allowed, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"it may have {', '.join(sorted(allowed))}"
            raise ConfigError(f"{where}: unknown key `{key}`; {hint}")


_CONVOLUTIONS = ("Conv", "ConvTranspose")
# What training has weights in: behind one of these a tensor has a gradient that somebody needs.
_TRAINED = (*_CONVOLUTIONS, "Gemm", "MatMul", "BatchNormalization")
_UNPADDED = ("NOTSET", "VALID")


def read_onnx(path: Path) -> Workload:
    """Return the convolutions of a model, in the order of its graph, equal ones counted.

    Sizes    from the model's own, or inferred from its input's; its first axis is the batch, which may be
             unknown: 1 is what exporters write of an example, and says nothing
    Weights  are not read, so that a file without its external data will do
    Masks    as training asks: grad_input where something with weights comes before, grad_bias with a bias
    Raises   ConfigError for a missing library, a file that is no model, a model without convolutions, a size
             that is unknown, and padding by auto_pad or output_shape
    """
    graph = _graph(path)
    try:
        return _onnx_workload(path, graph)
    except ConfigError:
        raise
    # Parsed, but no exporter wrote it: nodes without inputs, attributes of other types, no text.
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{path}: its graph is damaged ({error}); export the model again") from error


def _onnx_workload(path: Path, graph: Any) -> Workload:
    sizes = _onnx_sizes(graph)
    layers, needed = list[Layer](), set[str]()
    for node in graph.node:
        if node.op_type in _CONVOLUTIONS:
            layers.append(
                _onnx_layer(node, sizes, needed, f"{path}: {node.op_type} {node.name or node.output[0]}")
            )
        if node.op_type in _TRAINED or needed.intersection(node.input):
            needed.update(node.output)
    if not layers:
        raise ConfigError(f"{path}: the model's graph has no Conv and no ConvTranspose")
    bias = any(layer.mask[2] for layer in layers)
    batch = next(sizes[node.input[0]][0] for node in graph.node if node.op_type in _CONVOLUTIONS)
    title = printable(graph.name or path.stem)
    return Workload(path.stem, title, str(path), bias, merged(layers), batch if batch > 1 else None)


def _graph(path: Path) -> Any:
    """Return the graph of a model with the sizes of its tensors."""
    try:
        import onnx
    except ImportError as error:
        raise ConfigError(f"{path}: reading ONNX models needs onnx: {install_hint('onnx')}") from error
    try:
        model = onnx.load_model_from_string(read_bytes(path, MOST_MODEL))
        return onnx.shape_inference.infer_shapes(model).graph
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from error
    # What protobuf raises for a foreign file is a class of its own, which differs between its versions.
    except Exception as error:
        raise ConfigError(
            f"{path}: is no ONNX model ({(str(error) or type(error).__name__).splitlines()[0]})"
        ) from error


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
    options = _options(given, where)
    if node.op_type == "ConvTranspose":
        options["transposed"] = True
    name = printable(node.name or node.output[0])
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


__all__ = ["Layer", "Workload", "load_workload", "merged", "toml_text", "workload_names"]
