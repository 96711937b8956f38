"""Read a network's convolutions from a TOML file: one of ours by name, or the user's own by path."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ascendsim.errors import ConfigError

# The networks that come with the package lie beside this file.
_OWN = Path(__file__).parent
_OPTIONS = {"stride", "padding", "dilation", "groups", "transposed", "output_padding"}
_LAYER_KEYS = {"name", "input", "weight", "count"} | _OPTIONS
_FILE_KEYS = {"name", "title", "source", "bias", "layers"}


@dataclass(frozen=True, slots=True)
class Layer:
    """One distinct convolution of a network.

    `input` is without the batch; `count` is how many convolutions of the network have this shape; `options`
    holds the attributes that the file gives (stride, padding, ...), by the names of `ConvProblem`.
    """

    name: str
    input: tuple[int, ...]
    weight: tuple[int, ...]
    options: Mapping[str, Any]
    count: int

    def problem_options(self, batch: int) -> dict[str, Any]:
        """Return the keywords of `ConvProblem` for a batch."""
        return {"input": (batch, *self.input), "weight": self.weight, **self.options}


@dataclass(frozen=True, slots=True)
class Workload:
    """A network: its convolutions in the order of the forward pass, and where the shapes come from.

    `bias` says whether the convolutions have one, hence whether training asks for its gradient.
    """

    name: str
    title: str
    source: str
    bias: bool
    layers: tuple[Layer, ...]

    def layer(self, name: str) -> Layer:
        """Return one layer by name.

        Raises   ConfigError with near misses
        """
        for layer in self.layers:
            if layer.name == name:
                return layer
        names = [layer.name for layer in self.layers]
        near = get_close_matches(name, names, n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(names)}"
        raise ConfigError(f"{self.title} has no layer {name!r}; {hint}")


def workload_names() -> tuple[str, ...]:
    """Return the names of the built-in networks."""
    return tuple(sorted(path.stem for path in _OWN.glob("*.toml")))


def load_workload(name_or_path: str | Path) -> Workload:
    """Return a built-in network by name, or the user's own from a TOML file in the same form.

    Raises   ConfigError naming the file, the place in it and the rule
    """
    # Whatever ends in .toml is a path, so that a file of one's own may have the name of a network of ours.
    text = str(name_or_path)
    path = Path(text) if text.endswith(".toml") else _OWN / f"{text}.toml"
    if path.parent == _OWN and path.stem not in workload_names():
        raise ConfigError(
            f"there is no built-in workload {text!r}; there is {', '.join(workload_names())}, "
            "or give the path of a .toml file of your own"
        )
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
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
    layers = tuple(_layer(row, f"{where}: layers[{index}]") for index, row in enumerate(rows))
    # Layers are asked for by name on the command line.
    repeated = {layer.name for layer in layers if sum(layer.name == other.name for other in layers) > 1}
    if repeated:
        raise ConfigError(f"{where}: layer names must differ, but {', '.join(sorted(repeated))} is repeated")
    # With a bias unless told otherwise, as in the framework.
    bias = data.get("bias", True)
    if not isinstance(bias, bool):
        raise ConfigError(f"{where}: `bias` must be true or false, not {bias!r}")
    name = str(data.get("name", stem))
    return Workload(name, str(data.get("title", name)), str(data.get("source", where)), bias, layers)


def _layer(row: object, where: str) -> Layer:
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
    return Layer(name, _sizes(row, "input", where), _sizes(row, "weight", where), options, count)


def _sizes(row: Mapping[str, Any], key: str, where: str) -> tuple[int, ...]:
    """Return a shape of a layer; an empty list passes here and has no rank to ConvProblem."""
    value = row.get(key)
    if not isinstance(value, list) or not all(isinstance(size, int) and size > 0 for size in value):
        raise ConfigError(f"{where}: `{key}` must be a list of positive whole numbers, not {value!r}")
    return tuple(value)


def _only(data: Mapping[str, Any], allowed: set[str], where: str) -> None:
    for key in data:
        if key not in allowed:
            near = get_close_matches(key, allowed, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"it may have {', '.join(sorted(allowed))}"
            raise ConfigError(f"{where}: unknown key `{key}`; {hint}")
