"""The records of networks: layers by their shapes, and what is left out; their form in TOML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from ascendsim.errors import ConfigError, close_matches

Mask = tuple[bool, bool, bool]
GRADIENTS = ("input", "weight", "bias")
LEFT_KEYS = ("name", "kind", "count", "macs")
# What follows the name of a stage in that of a layer.
_OF_STAGE = re.compile(r"b\d|[_./]")


@dataclass(frozen=True, slots=True)
class Layer:
    """One distinct layer of a network.

    name     of the first layer of this shape
    input    without the batch
    weight   in the framework's order of dimensions; of a product of two activations the second one
    options  attributes that are not as usual (stride, padding, ...), by the names of `ConvProblem`
    count    how many layers of the network have this shape
    mask     which gradients training asks for: of input, weight, bias
    kind     "conv", "linear", "matmul" (of two activations) or "conv_tbc"
    images   of a convolution: how many it takes for each one of the batch, such as the frames of a video
    """

    name: str
    input: tuple[int, ...]
    weight: tuple[int, ...]
    options: Mapping[str, Any]
    count: int
    mask: Mask = (True, True, True)
    kind: str = "conv"
    images: int = 1

    def problem_options(self, batch: int) -> dict[str, Any]:
        """Return the keywords of `layer_problem` for a batch: of a convolution those of `ConvProblem`."""
        if self.kind == "conv":
            return {"input": (batch * self.images, *self.input), "weight": self.weight, **self.options}
        # Time comes before the batch there; a second activation has one too.
        input = (*self.input[:1], batch, *self.input[1:]) if self.kind == "conv_tbc" else (batch, *self.input)
        weight = (batch, *self.weight) if self.kind == "matmul" else self.weight
        return {"kind": self.kind, "input": input, "weight": weight, **self.options}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that multiplies and is no layer of the record.

    name    of the first one
    kind    what it is: a layer's kind, or the framework's word for an operator
    count   how many there are
    macs    multiply-adds forward of one of them, for one image; None: unknown
    """

    name: str
    kind: str
    count: int
    macs: int | None


@dataclass(frozen=True, slots=True)
class Workload:
    """A network: its layers in the order of the forward pass, and where the shapes come from.

    bias      whether its layers have one, unless a layer says otherwise of itself
    batch     the one that its file names, if any
    left_out  what multiplies in it besides
    """

    name: str
    title: str
    source: str
    bias: bool
    layers: tuple[Layer, ...]
    batch: int | None = None
    left_out: tuple[LeftOut, ...] = ()

    @property
    def convolutions(self) -> tuple[Layer, ...]:
        """Its layers of that kind alone."""
        return tuple(layer for layer in self.layers if layer.kind == "conv")

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
        alike = layer.kind, layer.input, layer.weight, layer.mask, layer.images
        key = *alike, tuple(sorted(layer.options.items()))
        known = found.get(key)
        found[key] = layer if known is None else replace(known, count=known.count + layer.count)
    return tuple(found.values())


def counted(left_out: Iterable[LeftOut]) -> tuple[LeftOut, ...]:
    """Count what is left out and differs in nothing but its names."""
    found: dict[Any, LeftOut] = {}
    for one in left_out:
        known = found.setdefault((one.kind, one.macs), replace(one, count=0))
        found[one.kind, one.macs] = replace(known, count=known.count + one.count)
    return tuple(found.values())


def names_left_out(left_out: Iterable[LeftOut]) -> str:
    """Return the end of a message that names what is left out; "" for nothing."""
    named = ", ".join(f"{one.name} ({one.kind})" for one in left_out)
    return f"; left out: {named}" if named else ""


def toml_text(workload: Workload) -> str:
    """Return a workload as TOML, a line for each layer; reading it back gives an equal one."""
    lines = [f"{key} = {_value(getattr(workload, key))}" for key in ("name", "title", "source", "bias")]
    if workload.left_out:
        rows = [{name: getattr(one, name) for name in LEFT_KEYS} for one in workload.left_out]
        known = ({key: value for key, value in row.items() if value is not None} for row in rows)
        lines += ["left_out = [", *(f"    {_table(pairs)}," for pairs in known), "]"]
    return "\n".join([*lines, "layers = [", *(f"    {_row(layer)}," for layer in workload.layers), "]", ""])


def _row(layer: Layer) -> str:
    pairs: dict[str, Any] = {"name": layer.name, **({} if layer.kind == "conv" else {"kind": layer.kind})}
    pairs |= {"images": layer.images} if layer.images > 1 else {}
    pairs |= {"input": layer.input, "weight": layer.weight, **layer.options}
    # The mask as it is: what a reader would take it for depends on the place of the layer.
    return _table(pairs | {"count": layer.count, "mask": names_of(layer.mask)})


def _table(pairs: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(f"{key} = {_value(value)}" for key, value in pairs.items()) + " }"


def names_of(mask: Sequence[bool]) -> tuple[str, ...]:
    """Return the gradients of a mask by name."""
    return tuple(name for name, wanted in zip(GRADIENTS, mask, strict=True) if wanted)


def _value(value: Any) -> str:
    # Imported here: who only reads a network needs no JSON.
    import json

    # A text, a number, true or false, and a list of them are written alike in JSON and in TOML.
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
