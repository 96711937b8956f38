"""The vendor's files of tuned tilings (runtime_kb): a layer and its tiling, entry after entry.

layers    the fields that say which layer an entry is for
tilings   the fields that say how it is cut: what each means, and what follows from the layer and the plan
entry     one entry, and the entries of a file as plans that calls take
files     reading and writing
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.files import parse_json, write_text
from ascendsim.numerics.dtypes import dtype as dtype_named
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem, stored_name
from ascendsim.ops.tiling.request import LayerPlans, PartialPlan
from ascendsim.ops.tiling.vendor.layer import FRACTAL, LayerSizes, ceil_div
from ascendsim.ops.tiling.vendor.names import MEANS, TURNED, TURNED_FLAG, entry_plan, says_vendor_names

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


def layer_of(gradient: str, values: Mapping[str, Any], where: str) -> LayerSizes:
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
    return LayerSizes(
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


def layer_values(gradient: str, layer: LayerSizes, dtype: str) -> dict[str, Any]:
    """Return the fields of a layer whose tensors lie channels-first in a format, as entries have them.

    Raises   UnsupportedError for groups, which have no known entries, or another format
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


def _backprop_pads(layer: LayerSizes) -> dict[str, int]:
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


# The nest that an entry of each gradient is for.
NESTS = {"grad_input": "dgrad_shares", "grad_weight": "wgrad_stream"}
# Nests of operators of which no entry is known.
OTHER_NESTS = "dgrad_split", "wgrad_shares"
# What the last round of grad_weight is cut along, by the number of streamkType; 0: it is whole.
STREAM_TYPES = {"": 0, "batch_depth": 1, "height": 2}

# In our words, what the fields of an entry mean that no field of a plan stands for (`MEANS` of names.py has
# those). "always N": every known entry has this value, and what another one would mean is not known.
MEANINGS: Mapping[str, Mapping[str, str]] = {
    "grad_input": {
        "c0": "channels in a group of 32 bytes",
        "c0BitsA, c0BitsB": "c0 as a power of two",
        "cinG, coutG": "channels of input and of grad_output, of one group",
        "cin1, cout1, cout1G": "these channels in groups of c0",
        "cin1G": "channels of input in groups of 16",
        "backpropPadUp, ...Down, ...Left, ...Right": "zeros around grad_output with its inserted zeros",
        "backpropPadTail": "zeros after its last depth",
        "singleCoreCout": "channels of grad_output that a task reduces: all",
        "singleCoreDin, singleCoreBatch, singleCoreGroup": "depths, images and groups of a task: always 1",
        "singleIterateDk": "depths of the kernel that are added before a tile leaves L0C: all",
        "enableSplitK, kSegment, kSegmentTail, kValueSegment, useUbAccumForSplitK": "segments of the "
        "reduction: none",
        "kernelSplitMode, enableSplitKernelFlag, kSCoutFullLoad, kSUseWorkSpace, "
        "usrSpaceSizeForKernelSplit": "a kernel split by the stride: none",
        "enableVecTrans, enableVecTransFlag": "vector cores turn the weights in a phase before",
        "loadB2Condition": "how weights are loaded into L0B: 3 for one tap, else 2",
        "iterateOrder": "always 1",
        "isBiasFullLoad": "1 without a split kernel",
        "enlarge, initOutputFlag, enableFullLoad, quantMode, enRelu, loadB1Condition, tilingHkWkMode, "
        "enableC04Flag, enableFullLoadTiling": "merged groups, zeros first, weights that stay in L1, "
        "quantisation, four channels a tap: none",
    },
    "grad_weight": {
        "cin1G, cout1G": "channels of input and of grad_output",
        "channelSize, k0": "channels in a group of 32 bytes",
        "m0, n0": "sides of a fractal: 16",
        "al1Bound, bl1Bound": "elements of one tile of each operand in L1",
        "singleCoreCout": "rows of a task, as singleCoreM",
        "singleCoreCin": "channels of input of a task: singleCoreN without its taps",
        "singleCoreHo": "rows of grad_output of one part of the last round; all where not cut",
        "splitWo": "columns of grad_output that a task takes at a time: all",
        "singleCoreBatchDout": "images times depths of one part of the last round; all where not cut",
        "streamkType": "the last round is cut along images and depths (1), rows (2), or not at all (0)",
        "singleCoreDk, singleCoreBatch, singleCoreGroup, realGroup": "always 1",
        "coreBindDirection": "always 2",
        "iterateOrder": "always 0",
        "isSplitKernelHW, groupEnlarge": "a kernel split along its taps, merged groups: none",
    },
}


def tiling_values(gradient: str, layer: LayerSizes, plan: Plan) -> dict[str, Any]:
    """Return the fields of a plan as entries have them.

    Raises   UnsupportedError for a plan that entries have no words for
    """
    _require_sayable(gradient, plan)
    made, t = _grad_input if gradient == "grad_input" else _grad_weight, plan.tiling
    # A share of 0 is one base block here, and nothing there.
    shares = {"single_core_m": t.block_m, "single_core_n": t.block_n}
    named = {theirs: shares.get(ours, getattr(t, ours)) for theirs, ours in MEANS[gradient].items()}
    return named | made(layer, t)


def _require_sayable(gradient: str, plan: Plan) -> None:
    nest = NESTS[gradient]
    if plan.schedule != nest:
        # Operators have other nests, too, of which no entry is known.
        theirs = plan.schedule in OTHER_NESTS
        next_ = "keep the file of the plan" if theirs else "the operators' nest; tune with --nests operators"
        raise UnsupportedError(
            f"entry of {gradient}: the plan's schedule is {plan.nest}; entries are written of {nest}"
            f"{'; ' if theirs else ', '}{next_}"
        )
    if gradient == "grad_input" and plan.tiling.k_split > 1:
        raise UnsupportedError(
            f"entry of {gradient}: the plan adds its reduction in {plan.tiling.k_split} segments, which are "
            "not written; take a plan with k_split 1"
        )
    if gradient == "grad_weight" and plan.tiling.strip_w:
        raise UnsupportedError(
            f"entry of {gradient}: the plan takes strips of {plan.tiling.strip_w} columns; no entry with "
            "strips is known; keep the file of the plan"
        )


def _grad_input(layer: LayerSizes, t: Tiling) -> dict[str, Any]:
    c0, bits = layer.c0, layer.c0.bit_length() - 1
    ci1, co1 = layer.ci1, layer.co1
    none = ("initOutputFlag", "enableFullLoad", "quantMode", "enRelu")
    flags = ("enableC04Flag", "enableFullLoadTiling", "enableSplitKernelFlag")
    segments = ("kSegment", "kSegmentTail", "kValueSegment")
    split = ("kSCoutFullLoad", "kSUseWorkSpace", "kernelSplitMode", "usrSpaceSizeForKernelSplit")
    return {
        **dict.fromkeys((*none, *segments, *split, "loadB1Condition", "tilingHkWkMode"), 0),
        **dict.fromkeys((*flags, "enableSplitK", "useUbAccumForSplitK"), False),
        **dict.fromkeys(("enlarge", "singleCoreGroup", "singleCoreDin", "singleCoreBatch"), 1),
        TURNED: int(t.transpose_first),
        TURNED_FLAG: t.transpose_first,
        "iterateOrder": 1,
        "isBiasFullLoad": 1,
        "c0": c0,
        "c0BitsA": bits,
        "c0BitsB": bits,
        "cinG": layer.ci,
        "coutG": layer.co,
        "cin1": ci1,
        "cout1": co1,
        "cout1G": co1,
        "cin1G": ceil_div(layer.ci, FRACTAL),
        "singleCoreCout": layer.co,
        "singleIterateDk": layer.kernel[0],
        "loadB2Condition": 3 if layer.taps == 1 else 2,
        **_zeros_around(layer),
    }


def _zeros_around(layer: LayerSizes) -> dict[str, int]:
    names = (("", "Tail"), ("Up", "Down"), ("Left", "Right"))
    rows = zip(*(getattr(layer, name) for name in ("input", "output", "stride", "spans")), strict=True)
    found = {}
    for (big, small, stride, span), (before, _), (first, last) in zip(rows, layer.pads, names, strict=True):
        front = span - 1 - before
        found[f"backpropPad{first}"] = front
        found[f"backpropPad{last}"] = big + span - 1 - ((small - 1) * stride + 1) - front
    del found["backpropPad"]
    return found


def _grad_weight(layer: LayerSizes, t: Tiling) -> dict[str, Any]:
    images, (_, rows, columns) = layer.batch * layer.output[0], layer.output
    if t.stream_axis == "height":
        rows = ceil_div(rows, t.k_split)
    elif t.stream_axis:
        images = ceil_div(images, t.k_split)
    ones = ("singleCoreDk", "singleCoreBatch", "singleCoreGroup", "realGroup")
    channels = ceil_div(t.block_n, layer.taps)
    return {
        **dict.fromkeys(ones, 1),
        "cin1G": layer.ci,
        "cout1G": layer.co,
        "channelSize": layer.c0,
        "k0": layer.c0,
        "m0": FRACTAL,
        "n0": FRACTAL,
        "iterateOrder": 0,
        "coreBindDirection": 2,
        "isSplitKernelHW": False,
        "groupEnlarge": False,
        "singleCoreHo": rows,
        "splitWo": columns,
        "singleCoreK": rows * columns,
        "singleCoreCout": t.block_m,
        "singleCoreCin": channels,
        "streamkType": STREAM_TYPES[t.stream_axis],
        "singleCoreBatchDout": images,
        "al1Bound": t.base_m * t.base_k * t.step_ka,
        "bl1Bound": _window(layer, t.base_k * t.step_kb) * channels,
    }


def _window(layer: LayerSizes, pixels: int) -> int:
    """Return the pixels of input that `pixels` pixels of grad_output need, wherever in a row they begin."""
    columns = layer.output[2]
    rows = ceil_div(pixels, columns) + (pixels % columns > 0)
    return ((rows - 1) * layer.stride[1] + layer.spans[1]) * layer.input[2]


# The one generation with known entries.
ARCH = "3510"


@dataclass(frozen=True)
class TilingEntry:
    """The tiling of one gradient of one layer, in the vendor's names.

    where    the place that a message names
    layer    what the entry is for; its layouts are not compared
    values   the fields of its tiling, by the vendor's names
    """

    where: str
    gradient: str
    layer: LayerSizes
    values: Mapping[str, Any]

    def plan(self) -> PartialPlan:
        """Return the part of a plan that the entry fixes; the product's rules give the rest.

        Raises   ConfigError, UnsupportedError as `entry_plan`
        """
        part = entry_plan(self.gradient, self.values, self.where)
        kind = self.values.get("streamkType")
        if not kind:
            return part
        axis = next((axis for axis, number in STREAM_TYPES.items() if number == kind), None)
        if axis is None:
            raise UnsupportedError(
                f"{self.where}: streamkType is {kind}, a cut of the last round that no known entry has; "
                "say k_split and stream_axis in our names"
            )
        rows, images = self.layer.output[1], self.layer.batch * self.layer.output[0]
        whole, name = (rows, "singleCoreHo") if axis == "height" else (images, "singleCoreBatchDout")
        parts = ceil_div(whole, self.values.get(name) or whole)
        return PartialPlan({**part.fields, "k_split": parts, "stream_axis": axis}, part.schedule)


@dataclass(frozen=True)
class LayerEntries(LayerPlans):
    """The entries of one gradient; a call takes that of its layer, and the product's rules without one.

    As a device does: its operator asks its file of entries first, by the layer.
    """

    entries: tuple[TilingEntry, ...]

    def of(self, problem: ConvProblem, compute_dtype: str) -> PartialPlan | None:
        """Return the partial plan of the first entry for a layer; None without an entry."""
        if problem.transposed:
            return None
        layer = LayerSizes.of(problem, compute_dtype)
        return next((entry.plan() for entry in self.entries if entry.layer == layer), None)

    def has_layer(self, problem: ConvProblem) -> bool:
        """Return whether there is an entry for a layer in some format."""
        return any(self.of(problem, compute) for compute in ("float16", "hf32", "float32"))


def entry_values(
    gradient: str, problem: ConvProblem, compute_dtype: str, plan: Plan, arch: str
) -> dict[str, dict[str, Any]]:
    """Return the entry of a plan: its layer and its tiling, as `entries_in` reads them.

    compute_dtype   what the cube multiplies: "hf32" for float32 that it rounds
    arch            npu_arch of the product

    Raises   UnsupportedError for a generation, layer or plan of which no entries are known
    """
    if arch != ARCH:
        raise UnsupportedError(
            f"entry of {gradient}: entries are known of npu_arch {ARCH} (910_95) alone, and this product has "
            f"{arch}; keep the file of the plan"
        )
    stored = stored_name(compute_dtype)
    layer = LayerSizes.of(problem, compute_dtype)
    if dtype_named(stored).itemsize not in (2, 4) or problem.transposed:
        what = "a transposed convolution" if problem.transposed else f"the format {stored}"
        raise ConfigError(f"entry of {gradient}: no entry of {what} is known; keep the file of the plan")
    return {
        "info_dict": layer_values(gradient, layer, stored),
        "knowledge": tiling_values(gradient, layer, plan),
    }


def entries_in(content: Any, path: Path) -> dict[str, LayerEntries] | None:
    """Return the entries by gradient; None for a file without entries.

    content   what the JSON of a file says: one entry, or a list of them

    Raises    ConfigError naming the entry and the field
    """
    listed = content if isinstance(content, list) else [content]
    parts = [_parts(one) for one in listed if isinstance(one, Mapping)]
    if not parts or len(parts) < len(listed) or None in parts:
        return None
    found: dict[str, list[TilingEntry]] = {made: [] for made in MEANS}
    for at, (layer, values) in enumerate(filter(None, parts), start=1):
        where = f"{path}: entry {at}"
        gradient = gradient_of(layer)
        found[gradient].append(TilingEntry(where, gradient, layer_of(gradient, layer, where), values))
    return {made: LayerEntries(tuple(entries)) for made, entries in found.items() if entries}


def lines_of(text: str) -> list[Any] | None:
    """Return the objects of a text that has one a line; None where a line is none."""
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        found = [parse_json(line) for line in lines]
    except ValueError:
        return None
    return found if len(found) > 1 and all(isinstance(one, Mapping) for one in found) else None


def write_entries(path: Path | str, entries: Iterable[Mapping[str, Any]]) -> None:
    """Write entries, as `entry_values` makes them, one a line.

    Raises   ConfigError for a name that does not end in .json, DataError if it cannot be written
    """
    path = Path(path)
    if path.suffix != ".json":
        raise ConfigError(f"{path}: a file of entries ends in .json, not in {path.suffix or 'nothing'}")
    write_text(path, "".join(json.dumps(entry) + "\n" for entry in entries))


def _parts(one: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Return the layer and the tiling of an entry; None where it has not just one of each."""
    objects = list(_objects(one))
    layers = [each for each in objects if gradient_of(each)]
    tilings = [each for each in objects if says_vendor_names(each) and not gradient_of(each)]
    return (layers[0], tilings[0]) if len(layers) == len(tilings) == 1 else None


def _objects(one: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield an object and all that lie in it."""
    yield one
    for value in one.values():
        if isinstance(value, Mapping):
            yield from _objects(value)
