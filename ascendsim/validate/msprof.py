"""A user's own profile as measured cases: kernel_details.csv of the framework, op_summary.csv of msprof.

Both list one kernel a line with its type, shapes, formats, duration and pipe counters, in columns of almost
the same names. Matrix products and gradients of convolutions are taken, in two and in three dimensions; a
kernel that ran several times with the same shapes becomes one case with the median duration. The profile
says nothing of stride, padding, dilation and, where the weights are blocked, the sides of a kernel: these are
taken as equal and undilated, stride and padding follow from the sizes (`infer_window` of `primitives.py`).
Nor does it say what L2 held: a kernel of a step of a network begins with its first input alone, as the kernel
before has written it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite, prod
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ascendsim.errors import DataError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.validate.primitives import infer_window
from ascendsim.validate.schema import MeasuredRow, Unusable, read_lines

Shape = tuple[int, ...]


class ListedShape(NamedTuple):
    """A convolution without groups: batch, channels and sizes of the input, and those of its result.

    `kernel`, `big` and `small` are sides: depth if there is one, height, width.
    """

    batch: int
    channels: int
    out: int
    big: Shape
    small: Shape
    kernel: Shape


def gradient_sizes(
    inputs: Sequence[Shape], output: Shape, *, of_input: bool, volumes: bool
) -> dict[str, Any]:
    """Return the fields of a row: shapes, and the stride and padding that follow from them.

    of_input   whether it is grad_input: weights come in, then grad_output, and the input's gradient goes out;
               else input and grad_output come in, and the gradient of the weights goes out
    volumes    whether the kernel's operator takes depth: then five sizes are NCDHW, else NC1HWC0

    Raises   ValueError for shapes that are no convolution without groups
    """
    # The sizes of the result come in as well, as a tensor of one axis.
    shapes = [shape for shape in (*inputs, output) if len(shape) > 1]
    found = _blocked(shapes, of_input, 6 if volumes else 5) or _plain(shapes, of_input, volumes)
    if found is None:
        raise ValueError(f"shapes {[*inputs, output]} are not two images and weights, blocked or NCHW")
    if not min(found.batch, found.channels, found.out, *found.big, *found.small, *found.kernel):
        raise ValueError(f"one of the shapes {[*inputs, output]} is empty")
    # The operators of volumes run images too, of depth 1.
    if len(found.big) == 3 and found.big[0] == found.small[0] == found.kernel[0] == 1:
        found = found._replace(big=found.big[1:], small=found.small[1:], kernel=found.kernel[1:])
    fits = [infer_window(*sides) for sides in zip(found.big, found.small, found.kernel, strict=True)]
    return {
        "input_shape": (found.batch, found.channels, *found.big),
        "weight_shape": (found.out, found.channels, *found.kernel),
        "stride": tuple(fit.stride for fit in fits),
        "padding": tuple(pad for fit in fits for pad in fit.pads),
        "dilation": (1,) * len(fits),
    }


def _plain(shapes: Sequence[Shape], of_input: bool, volumes: bool) -> ListedShape | None:
    """Read two images and weights as NCHW, or as NCDHW."""
    if len(shapes) != 3 or {len(shape) for shape in shapes} not in ({4}, {5} if volumes else {4}):
        return None
    weight, small, big = shapes if of_input else (shapes[2], shapes[1], shapes[0])
    if weight[1] != big[1] or small[1] != weight[0]:
        raise ValueError(f"weights {weight} do not lead from {big} to {small} without groups")
    return ListedShape(big[0], big[1], weight[0], big[2:], small[2:], weight[2:])


def _blocked(shapes: Sequence[Shape], of_input: bool, axes: int) -> ListedShape | None:
    """Read images in blocks of channels, with the given number of axes, and weights as fractals.

    The operators of volumes read blocks and may write NCDHW.
    """
    weights = [shape for shape in shapes if len(shape) == 4]
    images = [_image(shape, axes) for shape in shapes if len(shape) == axes or len(shape) == axes - 1 == 5]
    if len(images) != 2 or len(weights) != 1 or len(shapes) != 3:
        return None
    small, big = images if of_input else images[::-1]
    weight = weights[0]
    # FRACTAL_Z lists (C1 x kh x kw, Cout / 16, 16, C0), FRACTAL_Z_3D also kd in its first size.
    groups, sides = -(-big[1] // max(weight[3], 1)), axes - 3
    side = round((weight[0] // max(groups, 1)) ** (1 / sides))
    if side**sides * groups != weight[0]:
        kind = "square" if sides == 2 else "cubic"
        raise ValueError(f"weights {weight} have no {kind} kernel over {groups} groups of channels")
    return ListedShape(big[0], big[1], weight[1] * weight[2], big[2:], small[2:], (side,) * sides)


def _image(shape: Shape, axes: int) -> Shape:
    """Return NC1HWC0, NDC1HWC0 or NCDHW as batch, channels and sides."""
    if len(shape) < axes:
        return shape
    if axes == 6:
        return shape[0], shape[2] * shape[5], shape[1], *shape[3:5]
    return shape[0], shape[1] * shape[4], *shape[2:4]


# What a column is called in kernel_details.csv and in op_summary.csv.
_COLUMNS = {
    "name": ("Name", "Op Name"),
    "type": ("Type", "OP Type"),
    "us": ("Duration(us)", "Task Duration(us)"),
    "inputs": ("Input Shapes",),
    "input_types": ("Input Data Types",),
    "outputs": ("Output Shapes",),
}
_BLOCKS = ("Block Dim", "Block Num")
_COUNTERS = {
    "m_us": "aic_mac_time(us)",
    "mte1_us": "aic_mte1_time(us)",
    "mte2_us": "aic_mte2_time(us)",
    "fix_us": "aic_fixpipe_time(us)",
}
_FORMATS = {"FLOAT16": "float16", "BF16": "bfloat16", "FLOAT": "float32", "FLOAT32": "float32"}
_SHAPE = re.compile(r"[0-9]{1,12}(, *[0-9]{1,12})*")
# The kernel before MatMulV3; its rules are not known.
OLDER = "MatMulV2"
MATMULS = ("MatMul", "MatMulV2", "MatMulV3", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
GRADIENTS = {
    f"Conv{axes}DBackprop{what}{version}": name
    for axes in "23"
    for what, name in (("Input", "grad_input"), ("Filter", "grad_weight"))
    for version in ("", "V2", "D")
}

STEP = "L2 taken to hold the first input alone, as in a step of a network"


@default_arithmetic
def read_msprof(path: Path, product: str) -> list[MeasuredRow | Unusable]:
    """Read a profile of a run on a product, as rows of the same kind as a table of cases has.

    Raises   DataError if the file cannot be read or is neither of the two
    """
    columns, lines = read_lines(path, "--msprof takes a profile")
    names = _names(columns, path)
    kernels = [{key: line[column] or "" for key, column in names.items()} | line for line in lines]
    # A step of a network runs one layer many times; only kernels of the same shapes can be averaged.
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for kernel in kernels:
        key = (kernel["type"], kernel["inputs"], kernel["outputs"], kernel["input_types"])
        groups.setdefault(key, []).append(kernel)
    return [_row(group, product) for group in groups.values()]


def _names(columns: Sequence[str], path: Path) -> dict[str, str]:
    """Return which column of the file holds what."""
    names = {}
    for key, choices in _COLUMNS.items():
        found = next((choice for choice in choices if choice in columns), None)
        if found is None:
            raise DataError(
                f"{path}: has no column {' or '.join(choices)}; --msprof takes kernel_details.csv or "
                "op_summary.csv"
            )
        names[key] = found
    return names


def _row(kernels: Sequence[Mapping[str, Any]], product: str) -> MeasuredRow | Unusable:
    """Return the case of equal kernels, or why there is none."""
    first = kernels[0]
    name, kind = first["name"], first["type"]
    if kind not in MATMULS and kind not in GRADIENTS:
        return Unusable(name, f"{kind}: neither a matrix product nor a gradient of a convolution")
    inputs, outputs = _shapes(first["inputs"]), _shapes(first["outputs"])
    dtype = _FORMATS.get(first["input_types"].split(";")[0].removeprefix("DT_"))
    times = [time for time in (_number(kernel["us"]) for kernel in kernels) if time]
    if dtype is None or not times or not inputs or not outputs:
        return Unusable(name, _untold(first))
    try:
        problem = _product(inputs, outputs[0]) if kind in MATMULS else _gradient(kind, inputs, outputs[0])
        _require_read(first)
    except ValueError as error:
        return Unusable(name, str(error))
    if dtype == "float32" and str(first.get("HF32 Eligible", "")).upper() == "YES":
        dtype = "hf32"
    window = ""
    if "stride" in problem:
        stride, padding = list(problem["stride"]), list(problem["padding"])
        window = f"stride {stride} and padding {padding} inferred from the sizes, dilation taken as 1; "
    return MeasuredRow(
        name,
        product,
        GRADIENTS.get(kind, "matmul"),
        source="the user's profile",
        measured_us=median(times),
        compute_dtype=dtype,
        l2_start="handed",
        strategy="search" if kind == OLDER else "operator",
        inferred=window + STEP,
        **problem,
        **_counters(kernels),
    )


def _untold(kernel: Mapping[str, Any]) -> str:
    """Name the missing fields of a kernel, with the values in their place."""
    names = {"us": "duration", "inputs": "inputs", "input_types": "formats", "outputs": "outputs"}
    got = ", ".join(f"{word} {kernel[key]!r}" for key, word in names.items())
    return f"its shapes, formats or duration are missing: {got}"


def _shapes(text: str) -> list[Shape]:
    """Read "4096,1024;1024,2048", with or without quotes; other texts are dropped."""
    parts = [part.strip() for part in text.replace('"', "").split(";")]
    return [tuple(int(size) for size in part.split(",")) for part in parts if _SHAPE.fullmatch(part)]


def _number(text: Any) -> float | None:
    """Return the number in a column; None for anything else, as no time is negative."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if isfinite(value) and value >= 0 else None


def _counters(kernels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the medians of the pipe counters, and the blocks."""
    found: dict[str, Any] = {}
    for name, column in _COUNTERS.items():
        values = [value for value in (_number(kernel.get(column)) for kernel in kernels) if value is not None]
        if values:
            found[name] = median(values)
    for column in _BLOCKS:
        if re.fullmatch("[1-9][0-9]{0,5}", str(kernels[0].get(column) or "")):
            found["blocks"] = int(kernels[0][column])
    return found


def _product(inputs: Sequence[Shape], output: Shape) -> dict[str, Any]:
    """Return sizes of a matrix product; the transposes follow from the shapes."""
    a, b = inputs[0], inputs[1] if len(inputs) > 1 else ()
    if len(a) < 2 or len(a) != len(b) or len(output) < 2:
        raise ValueError(f"its shapes {inputs} are not two matrices")
    m, n = output[-2:]
    # A holds m x k elements whichever way it lies; the check below shows whether m was one of its sides.
    k = a[-2] * a[-1] // max(m, 1)
    if not m * n or k * m != a[-2] * a[-1] or b[-2] * b[-1] != k * n:
        raise ValueError(f"shapes {a} and {b} do not give {output}")
    turned = {"transpose_a": is_turned(a[-2:], (m, k)), "transpose_b": is_turned(b[-2:], (k, n))}
    return {"m": m, "k": k, "n": n, "batch": prod(output[:-2])} | turned


def is_turned(stored: Shape, plain: Shape) -> bool:
    """Return whether a matrix lies the other way round; a square one is taken as it stands."""
    return stored != plain and stored[::-1] == plain


def _gradient(kind: str, inputs: Sequence[Shape], output: Shape) -> dict[str, Any]:
    """Return sizes of a gradient; on 910_95 the operators of volumes run images, too."""
    of_input = GRADIENTS[kind] == "grad_input"
    return gradient_sizes(inputs, output, of_input=of_input, volumes=kind.startswith("Conv3D"))


def _require_read(kernel: Mapping[str, Any]) -> None:
    """Refuse tensors with channels last: their sizes would be taken for those of other axes.

    Raises   ValueError
    """
    formats = ";".join(str(kernel.get(f"{side} Formats") or "") for side in ("Input", "Output"))
    last = next((name for name in formats.split(";") if name in ("NHWC", "NDHWC", "HWCN", "DHWCN")), "")
    if last:
        raise ValueError(f"a tensor is stored as {last}; NCHW, NCDHW and their blocked layouts are read")
