"""A probe as a folder: inputs, a script that runs them on a device, and the device's answers.

probe.json        the calls
inputs.npz        operands of each call as integers of their bits, since numpy has no bfloat16
run_on_device.py  runs the calls through torch and writes outputs.npz
outputs.npz       results of the calls, as integers of their bits
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.errors import ConfigError, items, refusal
from ascendsim.files import parse_json, read_npz, read_text, write_npz, write_text
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.casts import encode, hf32
from ascendsim.numerics.compiled.accumulate import accumulate
from ascendsim.studies.identify.vectors import ProbeCase, cases_of, operands, weight_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


SCHEMA = "ascendsim probe 2"
SCRIPT_NAME, INPUTS, OUTPUTS = "run_on_device.py", "inputs.npz", "outputs.npz"
SCRIPT = '''\
"""Run the calls of this folder on a device: python run_on_device.py [npu|cpu]. Writes outputs.npz."""

import json
import sys

import numpy as np
import torch

device = sys.argv[1] if len(sys.argv) > 1 else "npu"
if device.startswith("npu"):
    import torch_npu  # noqa: F401

inputs, outputs = np.load("inputs.npz"), {}
for case in json.load(open("probe.json"))["cases"]:
    dtype, name = getattr(torch, case["dtype"]), case["name"]
    bits = inputs[name + ".first"], inputs[name + ".second"]
    first, second = (torch.from_numpy(array).view(dtype).to(device) for array in bits)
    if device.startswith("npu"):
        torch.npu.matmul.allow_hf32 = torch.npu.conv.allow_hf32 = case["hf32"]
    if case["route"] == "matmul":
        made = first @ second
    else:
        want_input = case["route"] == "grad_input"
        missing = torch.zeros(case["missing"], dtype=first.dtype, device=device)
        x, weight = (missing, second) if want_input else (second, missing)
        mask = [want_input, not want_input, False]
        made = torch.ops.aten.convolution_backward(
            first, x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, mask
        )[0 if want_input else 1]
    integer = torch.int32 if dtype == torch.float32 else torch.int16
    outputs[name] = made.cpu().contiguous().view(integer).numpy()
np.savez("outputs.npz", **outputs)
'''


@default_arithmetic
def write_probe(folder: Path, formats: tuple[str, ...]) -> tuple[ProbeCase, ...]:
    """Write the calls of some formats, and the script that runs them, into a folder; return the calls.

    Raises   ConfigError for a format without a probe, a folder that cannot be written, or one with answers:
             they would be read as answers to this probe, and a device's are not made anew in a moment
    """
    cases = cases_of(formats)
    if (folder / OUTPUTS).exists():
        raise ConfigError(
            f"probe: {folder / OUTPUTS} holds answers to an earlier probe; name another folder, or remove it"
        )
    arrays, listed = {}, []
    for case in cases:
        v = case.vectors()
        first, second = operands(case.route, v.a, v.b)
        for side, values in (("first", first), ("second", second)):
            arrays[f"{case.name}.{side}"] = _bits(encode(values, case.stored))
        listed.append(_described(case, v.a.shape[0], v.b.shape[1]))
    document = {"schema": SCHEMA, "cases": listed}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_npz(folder / INPUTS, arrays)
        write_text(folder / SCRIPT_NAME, SCRIPT)
        write_text(folder / "probe.json", json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise ConfigError(f"probe: {folder} cannot be written: {error.strerror}") from None
    return cases


def _described(case: ProbeCase, m: int, n: int) -> dict[str, Any]:
    """Return a call as the script reads it; `missing` is the shape of the tensor that is not read."""
    missing = [2, n, m, 1] if case.route == "grad_input" else [weight_rows(m), n, 1, 1]
    return {
        "name": case.name,
        "route": case.route,
        "format": case.format,
        "dtype": case.stored.name,
        "hf32": case.format == "hf32",
        "missing": missing,
    }


def _bits(stored: Any) -> NDArray[Any]:
    """Return stored elements as integers of their bits, of a type that torch has."""
    return np.ascontiguousarray(stored).view(np.int32 if stored.itemsize == 4 else np.int16)


@default_arithmetic
def write_outputs(folder: Path, outputs: Mapping[ProbeCase, Floats]) -> None:
    """Write answers (m, n) as the script writes them."""
    made = {}
    for case, values in outputs.items():
        m, n = values.shape
        if case.route == "grad_input":
            values = np.concatenate([values.T[None, :, :, None], np.zeros((1, n, m, 1), np.float32)])
        elif case.route == "grad_weight":
            values = np.pad(values, ((0, weight_rows(m) - m), (0, 0)))[:, :, None, None]
        made[case.name] = _bits(encode(np.ascontiguousarray(values), case.stored))
    write_npz(folder / OUTPUTS, made)


@default_arithmetic
def read_outputs(folder: Path) -> dict[ProbeCase, Floats]:
    """Return the answers in a folder: float32 carriers (m, n), by call.

    Raises   ConfigError for a folder without a probe or without answers, or where they do not fit
    """
    listed = _listed(folder)
    path = folder / OUTPUTS
    if not path.is_file():
        raise ConfigError(f"identify: {path} is missing; run `python {SCRIPT_NAME}` there")
    try:
        # What is no array in the archive comes as bytes; its shape is refused below.
        arrays = {name: np.asarray(value) for name, value in read_npz(path).items()}
    # A script that was ended while it wrote leaves an empty file or part of one.
    except (OSError, ValueError):
        told = f"{path} cannot be read as an .npz; run `python {SCRIPT_NAME}` again"
        raise ConfigError(f"identify: {told}") from None
    answered = {}
    for case in listed:
        if case.name in arrays:
            answered[case] = _values(case, arrays[case.name])
    if not answered:
        raise ConfigError(
            f"identify: {path} holds no call of {folder / 'probe.json'}; it has {sorted(arrays)}"
        )
    return answered


def _listed(folder: Path) -> list[ProbeCase]:
    """Return the calls of a probe, in the order of its file."""
    path = folder / "probe.json"
    try:
        document = parse_json(read_text(path))
        if document["schema"] == SCHEMA:
            names = [call["name"] for call in document["cases"]]
            return [case for name in names for case in cases_of() if case.name == name]
    except OSError:
        raise ConfigError(f"identify: {path} is missing; `ascendsim probe --out {folder}` makes it") from None
    # What is no JSON, or has no table or list of them where a probe has one.
    except (ValueError, KeyError, TypeError):
        pass
    raise ConfigError(
        f"identify: {path} is no probe of this version ({SCHEMA}); `ascendsim probe --out` makes one anew"
    )


def _values(case: ProbeCase, bits: NDArray[Any]) -> Floats:
    """Return an answer as float32 (m, n)."""
    v, stored = case.vectors(), case.stored
    m, n = v.a.shape[0], v.b.shape[1]
    shapes = {"matmul": (m, n), "grad_input": (2, n, m, 1), "grad_weight": (weight_rows(m), n, 1, 1)}
    integer = np.dtype(np.int32 if stored.itemsize == 4 else np.int16)
    if bits.shape != shapes[case.route] or bits.dtype != integer:
        raise ConfigError(
            f"identify: {case.name} of {OUTPUTS} is {bits.dtype.name} {bits.shape}; it must be "
            f"{integer.name} {shapes[case.route]}, as {SCRIPT_NAME} writes it"
        )
    # 16 bits of bfloat16 are the upper half of a float32.
    if stored.name == "bfloat16":
        values = (bits.astype(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        values = bits.view(np.float32 if stored.itemsize == 4 else np.float16).astype(np.float32)
    if case.route == "grad_input":
        return np.ascontiguousarray(values[0, :, :, 0].T)
    return values.reshape(-1, n)[:m]


SOURCE = "Jittor pull request 18025 (2026-08), effective bits against float64"


@dataclass(frozen=True, slots=True)
class PublicFigure:
    """One published figure of float32.

    work   products of one sum, rows and columns of a matrix
    bits   effective bits of the device, to one decimal
    """

    work: tuple[int, int, int]
    bits: float


FLOAT32 = (PublicFigure((64, 64, 64), 23.9), PublicFigure((32, 64, 64), 24.4))
# The figures have one decimal; a median of some thousand errors varies by up to half of a unit of it.
TOLERANCE = 0.1
MODELS = (
    "block:4:RNE",
    "align:4:F26:RNE",
    "block:8:RNE",
    "block:2:RNE",
    "seq:RNE",
    "tree:4:adjacent:RNE",
    "block:4:RNE+split3",
    "block:4:RZ",
    "align:4:F26:RZ",
    "align:4:F24:RZ:acc",
    "seq:RZ",
)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A model beside the figures.

    bits   its own effective bits, in the order of the figures
    off    the largest distance from a published figure, in bits
    fits   whether that is no more than the figures' precision
    """

    model: str
    bits: tuple[float, ...]
    off: float
    fits: bool


@default_arithmetic
def rank_by_public_figures(models: Sequence[str] = MODELS) -> tuple[Ranked, ...]:
    """Return models by their distance from the published figures of float32, the nearest first.

    Order   distances are taken to the precision of the figures; models that these cannot separate stay in
            the order given, of which the usual one begins with the fewest assumptions
    Raises  ConfigError for a value that is no list of models
    """
    named = items(models)
    if named is None or not all(isinstance(name, str) for name in named):
        raise refusal("models", models, "a list of texts of models, such as block:16:RNE")
    ranked = []
    for name in named:
        bits = tuple(effective_bits(name, figure.work) for figure in FLOAT32)
        off = max(abs(own - figure.bits) for own, figure in zip(bits, FLOAT32, strict=True))
        ranked.append(Ranked(name, bits, off, off <= TOLERANCE))
    return tuple(sorted(ranked, key=lambda one: round(one.off / TOLERANCE)))


@lru_cache
def effective_bits(
    model: str, work: tuple[int, int, int], width: int | None = None, ties: str = "RNE"
) -> float:
    """Return the effective bits of sums under a model.

    work    products of one sum, rows and columns of a matrix; eight pairs of matrices are drawn
    width   bits that HF32 keeps; None: float32 as it is
    """
    rng, (k, m, n) = np.random.default_rng(0), work
    errors = []
    for _ in range(8):
        a = rng.standard_normal((m, k)).astype(np.float32)
        b = rng.standard_normal((k, n)).astype(np.float32)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        c = np.zeros((m, n), np.float32)
        if width is not None:
            a, b = hf32(a, width, ties), hf32(b, width, ties)
        accumulate(AccumulationModel.parse(model), a, b, c)
        errors.append(np.abs(c - exact) / np.abs(exact))
    return float(-np.log2(np.median(np.concatenate(errors))))
