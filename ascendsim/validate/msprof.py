"""A user's own profile as measured cases: kernel_details.csv of the framework, op_summary.csv of msprof.

Both list one kernel a line with its type, shapes, formats, duration and pipe counters, in columns of almost
the same names. Matrix products and gradients of 2-D convolutions are taken; a kernel that ran several times
with the same shapes becomes one case with the median duration. The profile says nothing of stride, padding,
dilation and, where the weights are blocked, the sides of a kernel: that is taken as square and undilated,
stride and padding follow from the sizes (see `windows.py`). Nor does it say what L2 held: a kernel of a step
of a network begins with its first input alone, as the kernel before has written it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from math import isfinite, isqrt
from pathlib import Path
from statistics import median
from typing import Any

from ascendsim.errors import DataError
from ascendsim.validate.rows import OWN_PROFILE, Row, Unusable
from ascendsim.validate.windows import infer_window

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
_FORMATS = {"FLOAT16": "float16", "BF16": "bfloat16", "FLOAT": "float32", "FLOAT32": "float32"}
_SHAPE = re.compile(r"[0-9]{1,12}(, *[0-9]{1,12})*")
MATMULS = ("MatMul", "MatMulV2", "MatMulV3", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
GRADIENTS = {
    f"Conv2DBackprop{what}{version}": name
    for what, name in (("Input", "grad_input"), ("Filter", "grad_weight"))
    for version in ("", "V2", "D")
}

STEP = "L2 taken to hold the first input alone, as in a step of a network"

Shape = tuple[int, ...]


def read_msprof(path: Path, product: str) -> list[Row | Unusable]:
    """Read a profile of a run on a product, as rows of the same kind as a table of cases has.

    Raises   DataError if the file cannot be read or is neither of the two
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            names = _names(table.fieldnames or (), path)
            kernels = [{key: line[column] or "" for key, column in names.items()} | line for line in table]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; --msprof takes a profile") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: is not a table in UTF-8 with commas: {error}") from None
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


def _row(kernels: Sequence[Mapping[str, Any]], product: str) -> Row | Unusable:
    """Return the case of equal kernels, or why there is none."""
    first = kernels[0]
    name, kind = first["name"], first["type"]
    if kind not in MATMULS and kind not in GRADIENTS:
        return Unusable(name, f"{kind}: neither a matrix product nor a gradient of a 2-D convolution")
    inputs, outputs = _shapes(first["inputs"]), _shapes(first["outputs"])
    dtype = _FORMATS.get(first["input_types"].split(";")[0].removeprefix("DT_"))
    times = [time for time in (_number(kernel["us"]) for kernel in kernels) if time and time > 0]
    if dtype is None or not times or not inputs or not outputs:
        return Unusable(name, _untold(first))
    try:
        sizes, window = (
            _product(inputs, outputs[0]) if kind in MATMULS else _gradient(kind, inputs, outputs[0])
        )
    except ValueError as error:
        return Unusable(name, str(error))
    hf32 = "HF32" if str(first.get("HF32 Eligible", "")).upper() == "YES" else ""
    stride, pad = window.get("stride"), window.get("pad")
    told = (
        f"stride {stride} and padding {pad} inferred from the sizes, dilation taken as 1; " if window else ""
    )
    return Row(
        name,
        product,
        product,
        kind,
        dtype,
        hf32,
        "ND",
        sizes,
        window,
        median(times),
        None,
        _counters(kernels),
        OWN_PROFILE,
        "real-hardware",
        f"median of {len(times)}",
        told + STEP,
    )


def _untold(kernel: Mapping[str, Any]) -> str:
    """Say what of a kernel is not told, with what stands there instead."""
    names = {"us": "duration", "inputs": "inputs", "input_types": "formats", "outputs": "outputs"}
    got = ", ".join(f"{word} {kernel[key]!r}" for key, word in names.items())
    return f"its shapes, formats or duration are not told: {got}"


def _shapes(text: str) -> list[Shape]:
    """Read "4096,1024;1024,2048", with or without quotes; what is no shape is dropped."""
    parts = [part.strip() for part in text.replace('"', "").split(";")]
    return [tuple(int(size) for size in part.split(",")) for part in parts if _SHAPE.fullmatch(part)]


def _number(text: Any) -> float | None:
    """Return a number that a column tells, None for anything else."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if isfinite(value) else None


def _counters(kernels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the medians of the pipe counters, and the blocks."""
    found: dict[str, Any] = {}
    for column in kernels[0]:
        if column.endswith("_time(us)"):
            values = [value for value in (_number(kernel[column]) for kernel in kernels) if value is not None]
            if values:
                found[column] = median(values)
    for column in _BLOCKS:
        if re.fullmatch("[0-9]{1,6}", str(kernels[0].get(column) or "")):
            found["block_dim"] = int(kernels[0][column])
    return found


def _product(inputs: Sequence[Shape], output: Shape) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return sizes of a matrix product; the transposes follow from the shapes."""
    a, b = inputs[0], inputs[1] if len(inputs) > 1 else ()
    if len(a) < 2 or len(a) != len(b) or len(output) < 2:
        raise ValueError(f"its shapes {inputs} are not two matrices")
    m, n = output[-2:]
    k = a[-2] * a[-1] // max(m, 1)
    if not m * n or k * m != a[-2] * a[-1] or b[-2] * b[-1] != k * n:
        raise ValueError(f"shapes {a} and {b} do not give {output}")
    batch = 1
    for extent in output[:-2]:
        batch *= extent
    sizes = {"M": m, "K": k, "N": n, "batch": batch, "A": list(a[-2:]), "B": list(b[-2:])}
    return sizes, {}


def _gradient(kind: str, inputs: Sequence[Shape], output: Shape) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return sizes of a gradient: images NC1HWC0 and weights FRACTAL_Z, or all of them NCHW."""
    shapes = (*inputs, output)
    images: list[Shape] = [shape for shape in shapes if len(shape) == 5]
    others: list[Shape] = [shape for shape in shapes if len(shape) == 4]
    small: Shape
    big: Shape
    kernel: Shape
    # Weights come in, then grad_output, and the input's gradient goes out; or input and grad_output come in
    # and the gradient of the weights goes out.
    of_input = GRADIENTS[kind] == "grad_input"
    if len(images) == 2 and len(others) == 1:
        small, big = images if of_input else images[::-1]
        weight = others[0]
        channels, out = big[1] * big[4], weight[1] * weight[2]
        side = isqrt(weight[0] // max(big[1], 1))
        if side * side * big[1] != weight[0]:
            raise ValueError(f"weights {weight} have no square kernel over {big[1]} groups of channels")
        kernel = side, side
    elif not images and len(others) == 3:
        weight, small, big = others if of_input else (others[2], others[1], others[0])
        channels, out, kernel = big[1], weight[0], weight[2:]
        if weight[1] != channels or small[1] != out:
            raise ValueError(f"weights {weight} do not lead from {big} to {small} without groups")
    else:
        raise ValueError(f"shapes {list(shapes)} are not two images and weights, blocked or NCHW")
    if not min(*big, *small, *weight):
        raise ValueError(f"one of the shapes {list(shapes)} is empty")
    sizes = {"N": big[0], "Cin": channels, "Hi": big[2], "Wi": big[3], "Cout": out}
    sizes |= {"Kh": kernel[0], "Kw": kernel[1], "Ho": small[2], "Wo": small[3]}
    high, wide = (infer_window(sizes[f"{s}i"], sizes[f"{s}o"], sizes[f"K{s.lower()}"]) for s in "HW")
    window = {"stride": [high.stride, wide.stride], "pad": [*high.pads, *wide.pads]}
    return sizes, window | {"dilation": [1, 1], "groups": 1}
