"""Gradients of convolutions as columns, whichever way a source spells their geometry."""

import re
from collections.abc import Sequence
from typing import Any

from prose.products import compute_dtype_of, l2_start_of
from prose.raw import Raw, SkipError, busy_us

GROUPS = (
    ("msi-alex", "AlexNet, HF32"),
    ("mi-run2", "AlexNet, batch 2"),
    ("mi-run1-lenet", "LeNet"),
    ("cb-dw3d", "3-D grad_weight calls"),
)
# Networks of the first generation's training steps, whose ids go on with the batch.
NETWORKS = {"resnet50": "ResNet-50", "yolov5": "YOLOv5s", "inceptionv3": "InceptionV3"}
# Sums over the kernels of a call, before which L2 was flushed.
CALLS = ("cb-dw3d",)
AXES = ("D", "H", "W")

Cells = dict[str, Any]
Pads = tuple[int, int]


def gradient_cells(raw: Raw) -> Cells:
    """Return the columns of a gradient of a convolution."""
    if raw.us is None:
        raise SkipError("gives no time")
    if "SHAPES NOT IN THE TRACE" in raw.notes:
        raise SkipError("its sizes are inferred, not measured")
    return {
        "measured_us": raw.us,
        "compute_dtype": compute_dtype_of(raw),
        "l2_start": _l2_start_of(raw),
        "group": _group_of(raw),
        "blocks": raw.counters.get("block_dim"),
        **busy_us(raw),
        **geometry(raw),
    }


def _group_of(raw: Raw) -> str | None:
    """Return the network that a row is of, with its batch; None for others.

    Calls go by their generation, as their kernels differ.
    """
    step = re.match(r"hpm-([a-z0-9]+)_(\d+)-", raw.id)
    if step and step[1] in NETWORKS:
        return f"{NETWORKS[step[1]]}, batch {step[2]}"
    group = next((group for prefix, group in GROUPS if raw.id.startswith(prefix)), None)
    return f"{group}, {'950' if '950' in raw.chip else '910B2'}" if raw.id.startswith(CALLS) else group


def _l2_start_of(raw: Raw) -> str:
    """Return what L2 held: in a training step what another kernel has written, unless the notes deny it."""
    # Products of such steps whose operands come from memory are those of layers that were run long before.
    # Gradients follow each other.
    if "cold L2" in raw.notes:
        return "chained" if raw.id.startswith(CALLS) else "cold"
    return "handed" if l2_start_of(raw) == "cold" else l2_start_of(raw)


def geometry(raw: Raw) -> Cells:
    """Return the shapes and the window of a convolution."""
    sizes, window = raw.sizes, raw.window
    axes = [axis for axis in AXES if f"{axis}i" in sizes]
    big, small = ([sizes[f"{axis}{end}"] for axis in axes] for end in "io")
    kernel = [sizes[f"K{axis.lower()}"] for axis in axes]
    stride = _each(window["stride"], "stride", axes)
    dilation = _each(window.get("dilation", 1), "dilation", axes)
    groups = window.get("groups", 1)
    # (1 + (k - 1) d) rows of the input take part in a row of the output.
    spans = [(size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True)]
    steps = list(zip(big, small, spans, stride, strict=True))
    told = _told_pads(window.get("pad"), len(axes))
    if not told or any(_size(axis, sum(pads)) != axis[1] for axis, pads in zip(steps, told, strict=True)):
        told = [_pads(*axis) for axis in steps]
    for axis, pads in zip(steps, told, strict=True):
        if _size(axis, sum(pads)) != axis[1]:
            raise SkipError(f"an output of {small} does not follow from an input of {big}")
    if len(axes) == 2:
        padding: Sequence[int] = (*told[0], *told[1])
    elif all(before == after for before, after in told):
        padding = [before for before, _ in told]
    else:
        raise SkipError(f"3-D padding {told} differs between the sides")
    return {
        "input_shape": (sizes["N"], sizes["Cin"], *big),
        "weight_shape": (sizes["Cout"], sizes["Cin"] // groups, *kernel),
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
    }


def _size(axis: tuple[int, int, int, int], padding: int) -> int:
    big, _, span, stride = axis
    return (big + padding - span) // stride + 1


def _told_pads(told: Any, axes: int) -> list[Pads]:
    """Return the padding that the source tells, one value an axis or two; empty if it tells none."""
    if not isinstance(told, list) or len(told) not in (axes, 2 * axes):
        return []
    if len(told) == axes:
        return [(pad, pad) for pad in told]
    return [(told[2 * axis], told[2 * axis + 1]) for axis in range(axes)]


def _pads(big: int, small: int, span: int, stride: int) -> Pads:
    """Return the padding in front and behind that makes the sizes fit, the smaller half in front.

    The sizes say what the padding is in all, up to what the last step of the stride leaves over; sources
    spell it in ways that do not always agree with them.
    """
    total = max(0, (small - 1) * stride + span - big)
    return total // 2, total - total // 2


def _each(value: Any, name: str, axes: Sequence[str]) -> list[Any]:
    parts = value if isinstance(value, list) else [value] * len(axes)
    if len(parts) != len(axes):
        raise SkipError(f"its {name} is {value!r}; it must be one value, or one for each of {len(axes)} axes")
    return parts
