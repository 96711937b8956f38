"""The fields by which an entry says its layer, in the vendor's names: read, and written.

Both operators say the same things in other words. `h`, `t` of grad_input and `f`, `b` of grad_weight are the
padding before the first and after the last depth; `u`, `d`, `l`, `r` above, below, left and right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.ops.tiling.vendor.layer import Layer

AXES = ("d", "h", "w")
# Numbers of the framework for layouts; entries have no other for activations.
NCDHW = 30
# By gradient: the big side (input), the small side (grad_output), their batch and channels.
_NAMES: Mapping[str, Mapping[str, Any]] = {
    "grad_input": {
        "batch": "batch_n",
        "ci": "dedx_cin",
        "co": "dedy_cout",
        "input": ("dedx_d", "dedx_h", "dedx_w"),
        "output": ("dedy_d", "dedy_h", "dedy_w"),
        "kernel": ("kernel_d", "kernel_h", "kernel_w"),
        "pads": (("pad_h", "pad_t"), ("pad_u", "pad_d"), ("pad_l", "pad_r")),
        "hf32": "hf32_flag",
        "layouts": ("outBackpropFormat", "filterFormat", "yFormat"),
    },
    "grad_weight": {
        "batch": "batch",
        "ci": "ci",
        "co": "co",
        "input": ("di", "hi", "wi"),
        "output": ("dout", "ho", "wo"),
        "kernel": ("kd", "kh", "kw"),
        "pads": (("pad_f", "pad_b"), ("pad_u", "pad_d"), ("pad_l", "pad_r")),
        "hf32": "hf32Flag",
        "layouts": ("fmapFormat", "dedyFormat", "filterFormat"),
    },
}
_STRIDE = tuple(f"stride_{axis}" for axis in AXES)
_DILATION = tuple(f"dilation_{axis}" for axis in AXES)
# Formats by the numbers of the framework (aclDataType); grad_weight says them beside their bytes.
_NUMBERS = {"float32": 0, "float16": 1, "bfloat16": 27}
_BYTES = ("a_dtype_bytes", "b_dtype_bytes", "c_dtype_bytes")


def gradient_of(values: Mapping[str, Any]) -> str:
    """Return the gradient whose entries say layers in these names; "" where it is none of them."""
    return next((made for made, names in _NAMES.items() if names["ci"] in values), "")


def layer_of(gradient: str, values: Mapping[str, Any], where: str) -> Layer:
    """Return the layer of an entry, as one whose tensors lie channels-first: layouts are not compared.

    Raises   ConfigError naming a field that is missing or no whole number
    """
    names = _NAMES[gradient]

    def number(name: str) -> int:
        value = values.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            got = "missing" if value is None else repr(value)
            raise ConfigError(f"{where}: the layer's {name} is {got}; it must be a whole number")
        return value

    def triple(three: tuple[str, ...]) -> tuple[int, int, int]:
        d, h, w = map(number, three)
        return d, h, w

    groups, itemsize = number("groups"), number(_BYTES[0])
    depth, height, width = ((number(first), number(last)) for first, last in names["pads"])
    kernel, gaps = triple(names["kernel"]), triple(_DILATION)
    # As of a problem: one tap has no neighbour to be far from.
    d, h, w = (gap if taps > 1 else 1 for gap, taps in zip(gaps, kernel, strict=True))
    if groups < 1 or number(names["ci"]) % groups or number(names["co"]) % groups:
        raise ConfigError(f"{where}: the layer's groups are {groups}; they must divide its channels")
    return Layer(
        number(names["batch"]),
        groups,
        number(names["ci"]) // groups,
        number(names["co"]) // groups,
        triple(names["input"]),
        triple(names["output"]),
        kernel,
        triple(_STRIDE),
        (d, h, w),
        (depth, height, width),
        itemsize,
        true_fp32=itemsize == 4 and not number(names["hf32"]),
    )


def layer_values(gradient: str, layer: Layer, dtype: str) -> dict[str, Any]:
    """Return the fields of a layer whose tensors lie channels-first in a format, as entries have them.

    Raises   UnsupportedError for groups, of which no entry is known, or another format
    """
    if dtype not in _NUMBERS:
        known = ", ".join(_NUMBERS)
        raise UnsupportedError(f"entry of {gradient}: the format is {dtype}; entries are written of {known}")
    if layer.groups > 1:
        raise UnsupportedError(
            f"entry of {gradient}: the layer has {layer.groups} groups; no entry with groups is known, nor "
            "what its fields would say of them; keep the file of the plan"
        )
    names = _NAMES[gradient]
    values: dict[str, Any] = {names["batch"]: layer.batch, "groups": layer.groups}
    values |= {names["ci"]: layer.ci, names["co"]: layer.co}
    for what in ("input", "output", "kernel"):
        values |= dict(zip(names[what], getattr(layer, what), strict=True))
    values |= dict(zip((*_STRIDE, *_DILATION), (*layer.stride, *layer.dilation), strict=True))
    for (first, last), (before, after) in zip(names["pads"], layer.pads, strict=True):
        values |= {first: before, last: after}
    hf32 = int(layer.itemsize == 4 and not layer.true_fp32)
    values |= {names["hf32"]: hf32, **dict.fromkeys(_BYTES, layer.itemsize)}
    values |= dict.fromkeys(names["layouts"], NCDHW)
    if gradient == "grad_weight":
        return values | dict.fromkeys(("a_dtype", "b_dtype", "c_dtype"), _NUMBERS[dtype])
    return values | _backprop_pads(layer)


def _backprop_pads(layer: Layer) -> dict[str, int]:
    """Return the padding of the convolution of grad_output with its inserted zeros that gives grad_input.

    As the entries have it: zeros are counted behind the last pixel, too, so that less padding follows.
    """
    found = {}
    rows = zip(*(getattr(layer, name) for name in ("input", "output", "stride", "spans")), strict=True)
    for (big, small, stride, span), (before, _), (first, last) in zip(
        rows, layer.pads, (("h", "t"), ("u", "d"), ("l", "r")), strict=True
    ):
        front = span - 1 - before
        found[f"backprop_pad_{first}"] = front
        found[f"backprop_pad_{last}"] = big + span - 1 - small * stride - front
    return found
