"""Write a workload as the TOML file that `load_workload` reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ascendsim.workloads.records import GRADIENTS, Layer, Workload


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
