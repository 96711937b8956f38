"""Networks as data: the shapes of their layers and how often each occurs; read from TOML files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ascendsim.errors import ConfigError, close_matches
from ascendsim.files import parse_toml, read_text
from ascendsim.workloads.records import (
    GRADIENTS,
    LEFT_KEYS,
    Layer,
    LeftOut,
    Mask,
    Workload,
    counted,
    merged,
    toml_text,
)

# The networks that come with the package lie beside this file.
_OWN = Path(__file__).parent
_OPTIONS = {"stride", "padding", "dilation", "groups", "transposed", "output_padding"}
_LAYER_KEYS = {"name", "kind", "input", "weight", "count", "bias", "mask", "images"} | _OPTIONS
_FILE_KEYS = {"name", "title", "source", "bias", "batch", "layers", "left_out"}


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
        from ascendsim.workloads.onnx_graphs import read_onnx

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
    texts = str(data.get("title", name)), str(data.get("source", where))
    return Workload(name, *texts, bias, layers, batch, tuple(_left_out(data.get("left_out", []), where)))


def _left_out(rows: object, where: str) -> Iterator[LeftOut]:
    """Yield what a file says that it leaves out."""
    if not isinstance(rows, list):
        raise ConfigError(f"{where}: `left_out` must be a list of tables, not {rows!r}")
    for index, row in enumerate(rows):
        place = f"{where}: left_out[{index}]"
        if not isinstance(row, dict):
            raise ConfigError(f"{place}: must be a table, not {row!r}")
        _only(row, set(LEFT_KEYS), place)
        texts = _text(row, "name", place), _text(row, "kind", place)
        macs = _count(row, "macs", place) if "macs" in row else None
        yield LeftOut(*texts, _count(row, "count", place), macs)


def _layer(row: object, where: str, bias: bool, index: int) -> Layer:
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: must be a table, not {row!r}")
    _only(row, _LAYER_KEYS, where)
    name, kind = _text(row, "name", where), _text(row, "kind", where, "conv")
    count = _count(row, "count", f"{where} ({name})")
    # Only the keys are checked here: ConvProblem says what their values may be, for all callers alike.
    options = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in row.items()
        if key in _OPTIONS
    }
    # The first layer reads the images, whose gradient training does not ask for; were there several of its
    # shape, the others' would be.
    usual = (index > 0 or count > 1, True, kind != "matmul" and _truth(row, "bias", bias, where))
    # The interface of conv_tbc has no mask.
    mask = (True, True, True) if kind == "conv_tbc" else _mask(row, usual, where)
    images = _count(row, "images", f"{where} ({name})")
    if images > 1 and kind != "conv":
        raise ConfigError(f"{where} ({name}): `images` is of a convolution; a {kind} has them in `input`")
    sizes = _sizes(row, "input", where), _sizes(row, "weight", where)
    return Layer(name, *sizes, options, count, mask, kind, images)


def _text(row: Mapping[str, Any], key: str, where: str, usual: str | None = None) -> str:
    value = row.get(key, usual)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: `{key}` must be a text, not {value!r}")
    return value


def _count(row: Mapping[str, Any], key: str, where: str) -> int:
    value = row.get(key, 1)
    if type(value) is not int or value < 1:
        raise ConfigError(f"{where}: `{key}` must be a positive whole number, not {value!r}")
    return value


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


__all__ = [
    "Layer",
    "LeftOut",
    "Workload",
    "counted",
    "load_workload",
    "merged",
    "toml_text",
    "workload_names",
]
