"""Turn results into plain records, from which tables, pages and result.json are written."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ascendsim import __version__
from ascendsim.report.columns import CALL, GRADIENT, KERNEL, LAYER, AnyColumn, definitions
from ascendsim.report.waits import critical_path_record, occupation_record

if TYPE_CHECKING:
    from ascendsim.ops.results import Estimate, KernelResult
    from ascendsim.profile import Figure, Profile

Record = dict[str, Any]
GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
TIME_PARTS = ("launch_us", "entry_us", "core_us")  # they add up to time_us


@dataclass(frozen=True, slots=True)
class Run:
    """One call on one product: its result, the product's figures, the gradients' records, its interval."""

    result: Estimate
    profile: Profile
    gradients: tuple[Record, ...] = ()
    interval: Record | None = None


def run_document(
    title: str,
    problem: Mapping[str, Any],
    runs: Sequence[Run],
    command: Sequence[str],
    about: Iterable[AnyColumn],
) -> Record:
    """Describe calls of one problem on several products.

    `about` are further columns of the gradients (the error metrics).
    """
    return {
        **_head("ascendsim run 1", title, command),
        "problem": dict(problem),
        "products": [_product_record(run.profile) | _call_record(run) for run in runs],
        "definitions": {
            "products": definitions(CALL),
            "products.kernels": definitions(KERNEL),
            "products.gradients": definitions((*GRADIENT, *about)),
        },
    }


def network_document(
    title: str,
    problem: Mapping[str, Any],
    products: Sequence[tuple[Profile, Sequence[Record]]],
    command: Sequence[str],
    notes: Sequence[str] = (),
) -> Record:
    """Describe a network on several products, by the `layer_record`s of each."""
    return {
        **_head("ascendsim network 1", title, command),
        "problem": dict(problem),
        "products": [
            _product_record(profile) | _network_record(layers, notes) for profile, layers in products
        ],
        "definitions": {
            "products": definitions(CALL),
            "products.layers": definitions(LAYER),
            "products.layers.kernels": definitions(KERNEL),
        },
    }


def gradient_record(name: str, gradient: Any, errors: Mapping[str, Any]) -> Record:
    """Describe one gradient: what it is, a digest of its bits, and its errors."""
    return {
        "name": name,
        "shape": list(gradient.shape),
        "stored": str(gradient.dtype),
        "sha256": hashlib.sha256(getattr(gradient, "codes", gradient).tobytes()).hexdigest(),
        **{key: plain(error) for key, error in errors.items()},
    }


def figure_record(figure: Figure) -> Record:
    """Describe one figure of a product."""
    return {
        "value": plain(figure.value),
        "confidence": figure.confidence,
        "range": plain(figure.range),
        "source": figure.source,
        "note": figure.note,
    }


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: fractions as numbers, NaN and infinities as texts."""
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def layer_record(name: str, count: int, result: Estimate, profile: Profile) -> Record:
    """Describe the estimate of one layer of a network; it keeps nothing of the result's timelines."""
    return {
        "name": name,
        "count": count,
        "cycles": result.cycles,
        "time_us": result.time_us,
        "total_us": count * result.time_us,
        "kernels": [kernel_record(kernel, profile) for kernel in result.kernels],
        "call": {
            "compute_dtype": result.compute_dtype,
            "accumulation": result.accumulation,
            "notes": list(result.notes),
        },
    }


def kernel_record(kernel: KernelResult, profile: Profile) -> Record:
    """Describe one kernel with the columns of `KERNEL`."""
    cycles, mhz = max(kernel.cycles, 1), profile.clock.cube_mhz
    entry = kernel.timeline.entry_cycles
    # The timeline has the entry in the time of S; beside the entry it would count twice.
    own = {pipe: busy - entry if pipe == "S" else busy for pipe, busy in kernel.busy.items()}
    return {
        "name": kernel.name,
        "cycles": kernel.cycles,
        "time_us": kernel.time_us,
        "launch_us": profile.launch_us(kernel.kernel.blocks),
        "entry_us": entry / mhz,
        "entry_cycles": entry,
        "core_us": (kernel.cycles - entry) / mhz,
        "cores_used": kernel.cores_used,
        "cube_utilisation": kernel.cube_utilisation,
        "busy": {pipe: busy / cycles for pipe, busy in own.items()},
        "bound_by": kernel.bound_by,
        "occupation": occupation_record(kernel.timeline),
        "critical_path": critical_path_record(kernel.timeline),
        "macs": kernel.macs,
        "bytes": dict(kernel.bytes),
        "note": kernel.kernel.note,
    }


def _head(schema: str, title: str, command: Sequence[str]) -> Record:
    return {"schema": schema, "ascendsim": __version__, "command": list(command), "title": title}


def _product_record(profile: Profile) -> Record:
    by_confidence = Counter(figure.confidence for figure in profile.figures.values())
    assumed = {path: figure_record(figure) for path, figure in profile.assumed().items()}
    return {
        "product": profile.product,
        "variant": profile.variant,
        "core_structure": profile.core_structure,
        "cores": {"cube": profile.cores.cube, "vector": profile.cores.vector},
        "cube_mhz": profile.clock.cube_mhz,
        "evidence": profile.evidence,
        "figures": dict(by_confidence),
        "assumed_figures": assumed,
    }


def _call_record(run: Run) -> Record:
    result = run.result
    kernels = [kernel_record(kernel, run.profile) for kernel in result.kernels]
    return {
        "compute_dtype": result.compute_dtype,
        "accumulation": result.accumulation,
        "order": getattr(result, "order", None),
        "cycles": result.cycles,
        "time_us": result.time_us,
        **{part: sum(kernel[part] for kernel in kernels) for part in TIME_PARTS},
        "kernels": kernels,
        "interval": run.interval,
        "gradients": list(run.gradients),
        "notes": list(result.notes),
    }


def _network_record(layers: Sequence[Record], notes: Sequence[str]) -> Record:
    total_us = sum(layer["total_us"] for layer in layers)
    calls = [layer["call"] for layer in layers]
    rows = [{key: entry for key, entry in layer.items() if key != "call"} for layer in layers]
    for row in rows:
        row["share"] = row["total_us"] / total_us if total_us else 0.0
    return {
        "compute_dtype": calls[0]["compute_dtype"],
        "accumulation": calls[0]["accumulation"],
        "order": None,
        "cycles": sum(layer["count"] * layer["cycles"] for layer in layers),
        "time_us": total_us,
        **{
            part: sum(layer["count"] * kernel[part] for layer in layers for kernel in layer["kernels"])
            for part in TIME_PARTS
        },
        "layers": rows,
        "notes": list(dict.fromkeys([*notes, *(note for call in calls for note in call["notes"])])),
    }
