"""A network's convolutions as frozen records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from ascendsim.errors import ConfigError

Mask = tuple[bool, bool, bool]
GRADIENTS = ("input", "weight", "bias")


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

    `bias` says whether its convolutions have one, unless a layer says otherwise of itself.
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


def merged(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Count layers that differ in nothing but their names, at the place of the first of them."""
    found: dict[Any, Layer] = {}
    for layer in layers:
        key = layer.input, layer.weight, tuple(sorted(layer.options.items())), layer.mask
        known = found.get(key)
        found[key] = layer if known is None else replace(known, count=known.count + layer.count)
    return tuple(found.values())
