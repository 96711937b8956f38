"""The fields by which an entry says its tiling: what each means, and the values of a plan.

Known are the names and values of 36 entries of 910_95 (npu_arch 3510), and of the tilings that the operators'
unit tests expect. What a field means follows from how its values hang on layer and tiling in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ascendsim.errors import UnsupportedError
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.tiling.vendor.layer import FRACTAL, Layer, ceil_div
from ascendsim.ops.tiling.vendor.names import MEANS, TURNED, TURNED_FLAG

# The nest that an entry of each gradient is for.
NESTS = {"grad_input": "dgrad_shares", "grad_weight": "wgrad_stream"}
# What the last round of grad_weight is cut along, by the number of streamkType; 0: it is whole.
STREAM_TYPES = {"": 0, "batch_depth": 1, "height": 2}

# In our words, what the fields of an entry mean that no field of a plan stands for (`MEANS` of names.py has
# those). "always N": every known entry has this value, and what another one would mean is not known.
MEANINGS: Mapping[str, Mapping[str, str]] = {
    "grad_input": {
        "c0": "channels in a group of 32 bytes",
        "c0BitsA, c0BitsB": "c0 as a power of two",
        "cinG, coutG": "channels of input and of grad_output, of one group",
        "cin1, cout1, cout1G": "the same in groups of c0",
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


def tiling_values(gradient: str, layer: Layer, plan: Plan) -> dict[str, Any]:
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
        raise UnsupportedError(
            f"entry of {gradient}: the plan's schedule is {plan.schedule}; entries are written of {nest}, "
            "the operators' nest; tune with --nests operators"
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


def _grad_input(layer: Layer, t: Tiling) -> dict[str, Any]:
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


def _zeros_around(layer: Layer) -> dict[str, int]:
    names = (("", "Tail"), ("Up", "Down"), ("Left", "Right"))
    rows = zip(*(getattr(layer, name) for name in ("input", "output", "stride", "spans")), strict=True)
    found = {}
    for (big, small, stride, span), (before, _), (first, last) in zip(rows, layer.pads, names, strict=True):
        front = span - 1 - before
        found[f"backpropPad{first}"] = front
        found[f"backpropPad{last}"] = big + span - 1 - ((small - 1) * stride + 1) - front
    del found["backpropPad"]
    return found


def _grad_weight(layer: Layer, t: Tiling) -> dict[str, Any]:
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


def _window(layer: Layer, pixels: int) -> int:
    """Return the pixels of input that so many pixels of grad_output need, wherever in a row they begin."""
    columns = layer.output[2]
    rows = ceil_div(pixels, columns) + (pixels % columns > 0)
    return ((rows - 1) * layer.stride[1] + layer.spans[1]) * layer.input[2]
