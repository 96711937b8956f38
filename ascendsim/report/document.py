"""Turn records into the document of a report: plain values, of which tables, pages and JSON are made."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ascendsim import __version__
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.report.calls.notes import notes_of_layers
from ascendsim.report.columns import CALL, ERRORS, GRADIENT, KERNEL, LAYER, TIME_PARTS, Entry, definitions
from ascendsim.report.kernel_entry import kernel_entry

if TYPE_CHECKING:
    from ascendsim.ops.results import Estimate
    from ascendsim.profile import Figure, Product, Profile
    from ascendsim.studies.records import Interval, JudgedGradient


@dataclass(frozen=True, slots=True)
class Run:
    """One call on one product, and what studies found of it.

    result     cycles of the call, with gradients if they were computed
    profile    figures of the product
    gradients  the gradients with their errors; () where none were computed
    interval   times between which the call lies; None where nobody asked
    """

    result: Estimate
    profile: Profile
    gradients: tuple[JudgedGradient, ...] = ()
    interval: Interval | None = None


@default_arithmetic
def run_document(
    title: str, problem: Mapping[str, Any], runs: Sequence[Run], command: Sequence[str], *, paths: bool = True
) -> Entry:
    """Describe calls of one problem on several products; `command` are the words that asked for them.

    paths   whether the document has the critical path of each kernel
    """
    # Measures that no gradient has need no definition.
    errors = ERRORS if any(run.gradients for run in runs) else ()
    return {
        **_head("ascendsim run 1", title, command),
        "problem": dict(problem),
        "products": [_product_entry(run.profile) | _call_entry(run, paths) for run in runs],
        **_measured([run.profile for run in runs]),
        "definitions": {
            "products": definitions(CALL),
            "products.kernels": definitions(KERNEL),
            "products.gradients": definitions((*GRADIENT, *errors)),
        },
    }


def network_document(
    title: str,
    problem: Mapping[str, Any],
    products: Sequence[tuple[Profile, Sequence[Entry]]],
    command: Sequence[str],
    notes: Sequence[str] = (),
) -> Entry:
    """Describe a network on several products, by the `layer_entry`s of each."""
    return {
        **_head("ascendsim network 1", title, command),
        "problem": dict(problem),
        "products": [_product_entry(profile) | _network_entry(layers, notes) for profile, layers in products],
        **_measured([profile for profile, _ in products]),
        "definitions": {
            "products": definitions(CALL),
            "products.layers": definitions(LAYER),
            "products.layers.kernels": definitions(KERNEL),
        },
    }


def _measured(profiles: Sequence[Profile]) -> Entry:
    """Say what measurements stand behind a comparison of products; of one product there is none."""
    names = list(dict.fromkeys(profile.product for profile in profiles))
    if len(names) < 2:
        return {}
    # Imported where it is needed: a call on one product reads no table of what was measured.
    from ascendsim.validate.coverage import comparison_line

    return {"measured": comparison_line(names)}


def layer_entry(name: str, count: int, result: Estimate, profile: Profile, *, paths: bool = True) -> Entry:
    """Describe the estimate of one layer, of which the network has `count`; `paths` as of `run_document`."""
    # Plain values only: the timelines of all layers of a network at once would fill the memory.
    return {
        "name": name,
        "count": count,
        "cycles": result.cycles,
        "time_us": result.time_us,
        "total_us": count * result.time_us,
        "kernels": [kernel_entry(kernel, profile, path=paths) for kernel in result.kernels],
        "call": {
            "compute_dtype": result.compute_dtype,
            "accumulation": result.accumulation,
            "notes": list(result.notes),
        },
    }


def variant_entry(product: Product, profile: Profile) -> Entry:
    """Describe a variant of a product in the list of all."""
    return {
        "product": profile.product,
        "variant": profile.variant,
        "default": profile.variant == product.default_variant,
        "core_structure": profile.core_structure,
        "cube_cores": profile.cores.cube,
        "vector_cores": profile.cores.vector,
        "cube_mhz": profile.clock.cube_mhz,
        "figures": len(profile.figures),
        "assumed": len(profile.assumed()),
        "evidence": profile.evidence,
    }


def profile_entry(profile: Profile) -> Entry:
    """Describe a product by all its figures with their sources."""
    return {
        "product": profile.product,
        "variant": profile.variant,
        "evidence": profile.evidence,
        "sources": dict(profile.sources),
        "figures": {path: _figure_entry(figure) for path, figure in profile.figures.items()},
    }


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: fractions as numbers, NaN and infinities as texts."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Fraction):
        return float(value)
    # JSON has no NaN; `null` would say that there is no value, and a text says which it is.
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _head(schema: str, title: str, command: Sequence[str]) -> Entry:
    # The number after the schema's name goes up when a reader of result.json must change.
    return {"schema": schema, "ascendsim": __version__, "command": list(command), "title": title}


def _product_entry(profile: Profile) -> Entry:
    # How far a product's figures can be trusted, before anybody reads their list.
    by_confidence = Counter(figure.confidence for figure in profile.figures.values())
    return {
        "product": profile.product,
        "variant": profile.variant,
        "core_structure": profile.core_structure,
        "cores": {"cube": profile.cores.cube, "vector": profile.cores.vector},
        "cube_mhz": profile.clock.cube_mhz,
        "evidence": profile.evidence,
        "figures": dict(by_confidence),
        # In full, so that a report still says what it rests on when the product file has changed.
        "assumed_figures": {path: _figure_entry(figure) for path, figure in profile.assumed().items()},
    }


def _figure_entry(figure: Figure) -> Entry:
    return {
        "value": plain(figure.value),
        "confidence": figure.confidence,
        "range": plain(figure.range),
        "source": figure.source,
        "note": figure.note,
    }


def _call_entry(run: Run, paths: bool) -> Entry:
    result = run.result
    kernels = [kernel_entry(kernel, run.profile, path=paths) for kernel in result.kernels]
    return {
        "compute_dtype": result.compute_dtype,
        "accumulation": result.accumulation,
        "order": getattr(result, "order", None),  # an estimate executes nothing, in no order
        "cycles": result.cycles,
        "time_us": result.time_us,
        **{part: sum(kernel[part] for kernel in kernels) for part in TIME_PARTS},
        "kernels": kernels,
        "interval": None if run.interval is None else _interval_entry(run.interval),
        "gradients": [_gradient_entry(gradient) for gradient in run.gradients],
        "notes": list(result.notes),
    }


def _gradient_entry(gradient: JudgedGradient) -> Entry:
    """Describe one gradient: its shape and format, a digest of its bits, and its errors side by side."""
    about = {"name": gradient.name, "shape": list(gradient.shape), "stored": gradient.stored}
    errors = {name: plain(error) for name, error in asdict(gradient.errors).items()}
    return about | {"sha256": gradient.sha256} | errors


def _interval_entry(interval: Interval) -> Entry:
    effects = [
        {
            "figure": effect.figure,
            "shortest_us": effect.shortest[0],
            "shortest_at": plain(effect.shortest[1]),
            "longest_us": effect.longest[0],
            "longest_at": plain(effect.longest[1]),
        }
        for effect in interval.effects
    ]
    return asdict(interval) | {"effects": effects}


def _network_entry(layers: Sequence[Entry], notes: Sequence[str]) -> Entry:
    # Each layer stands for `count` convolutions of its shape, in every sum.
    total_us = sum(layer["total_us"] for layer in layers)
    calls = [layer["call"] for layer in layers]
    rows = [{key: value for key, value in layer.items() if key != "call"} for layer in layers]
    for row in rows:
        row["share"] = row["total_us"] / total_us if total_us else 0.0
    return {
        # The layers differ in shapes alone, so that all of them compute as the first does.
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
        "notes": list(
            dict.fromkeys([*notes, *notes_of_layers(layers, lambda layer: layer["call"]["notes"])])
        ),
    }
