"""Turn records into the document of a report: plain values for tables, pages and JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

from ascendsim import __version__
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.program.instruction import PIPES
from ascendsim.report.calls import notes_of_layers
from ascendsim.report.tables import CALL, ERRORS, GRADIENT, KERNEL, LAYER, TIME_PARTS, Entry, definitions
from ascendsim.timing.critical_path import critical_path, cycles_by_cause
from ascendsim.timing.times import Occupation, occupation

if TYPE_CHECKING:
    from ascendsim.ops.plan import Plan
    from ascendsim.ops.results import Estimate, KernelResult
    from ascendsim.profile import Figure, Profile, ShippedProduct
    from ascendsim.program.kernel import Core
    from ascendsim.studies.records import Interval, JudgedGradient, Ratio
    from ascendsim.timing.times import KernelTimes


def kernel_entry(kernel: KernelResult, profile: Profile, *, path: bool = True) -> Entry:
    """Describe one kernel with the columns of `KERNEL`.

    path   whether to add its critical path: it is found from spans, and a large batch has millions of them
    """
    # A kernel without instructions takes no cycle, and its shares are 0.
    cycles, mhz = max(kernel.cycles, 1), profile.clock.cube_mhz
    entry, blocks = kernel.times.entry_cycles, kernel.kernel.blocks
    # The record has the entry in the time of S; beside the entry it would count twice.
    own = {pipe: busy - entry if pipe == "S" else busy for pipe, busy in kernel.busy.items()}
    return {
        "name": kernel.name,
        "cycles": kernel.cycles,
        "time_us": kernel.time_us,
        "launch_us": kernel.launch_us,
        "entry_us": entry / mhz,
        "entry_cycles": entry,
        "core_us": (kernel.cycles - entry) / mhz,
        "blocks": blocks,
        "cores_used": kernel.cores_used,
        "cubes_used": sum(len(cores) for cores in _alike(kernel.times) if cores[0].kind == "cube"),
        "cube_utilisation": kernel.cube_utilisation,
        "busy": {pipe: busy / cycles for pipe, busy in own.items()},
        "op_type": kernel.kernel.op_type,
        "engine": kernel.engine,
        "bound_by": kernel.bound_by,
        "occupation": occupation_entry(kernel.times),
        **({"critical_path": cycles_by_cause(critical_path(kernel.timeline))} if path else {}),
        "macs": kernel.macs,
        "bytes": dict(kernel.bytes),
        "note": kernel.kernel.note,
        "plan": None if kernel.plan is None else plan_entry(kernel.plan),
    }


def plan_entry(plan: Plan) -> Entry:
    """Describe a plan by its schedule, its fields, and who chose it."""
    # A class of the user's own goes by its name: a report is read, not run.
    return {**replace(plan, schedule=plan.nest).to_dict(), "chosen_by": plan.chosen_by}


def occupation_entry(times: KernelTimes) -> Entry:
    """Return the shares of the kernel's cycles in which each pipe was busy, waited (by cause) and was idle.

    Before them comes the entry, which is no pipe's: here it counts neither as busy nor as idle. The shares
    are averages over the used cores of one kind, as in `average_busy`.
    """
    parts = [(cores, occupation(times, cores[0])) for cores in _alike(times)]
    found: Entry = {}
    # A vector core is no idle cube core: each kind is averaged by itself, and the busier one counts.
    for kind, pipe in product(dict.fromkeys([cores[0].kind for cores, _ in parts]), PIPES):
        if own := _of_kind(parts, kind, pipe):
            mean = _mean(own, times, in_busy=pipe == "S")
            if pipe not in found or mean["busy"] > found[pipe]["busy"]:
                found[pipe] = mean
    return {pipe: found[pipe] for pipe in PIPES if pipe in found}


def _of_kind(
    parts: list[tuple[list[Core], dict[str, Occupation]]], kind: str, pipe: str
) -> list[tuple[int, Occupation | None]]:
    """Return the counts of cores of a kind, each with its use of a pipe; nothing if no core used the pipe."""
    own = [(len(cores), found.get(pipe)) for cores, found in parts if cores[0].kind == kind]
    return own if any(found is not None for _, found in own) else []


def _alike(times: KernelTimes) -> list[list[Core]]:
    """Return the used cores in groups with equal times in every phase."""
    # Cores that share times in one phase may part in the next; only those that never do are one group.
    did: dict[Core, list[tuple[int, int]]] = {}
    for phase_number, phase in enumerate(times.phases):
        for number, work in enumerate(phase.cores):
            for core in work.cores:
                did.setdefault(core, []).append((phase_number, number))
    groups: dict[tuple[str, tuple[tuple[int, int], ...]], list[Core]] = {}
    for core, places in did.items():
        groups.setdefault((core.kind, tuple(places)), []).append(core)
    return list(groups.values())


def _mean(parts: list[tuple[int, Occupation | None]], times: KernelTimes, *, in_busy: bool) -> dict[str, Any]:
    """Average over cores, so many of each; a core that did not use the pipe left it idle.

    `in_busy` says whether the record has the entry of the kernel in the time of this pipe.
    """
    # Whole cycles are added up and divided once, so that the four shares add up to 1.
    cores = sum(count for count, _ in parts)
    all_cycles, entry = max(times.cycles, 1) * cores, times.entry_cycles * cores
    busy, waiting = -entry if in_busy else 0, Counter[str]()
    for count, found in parts:
        if found is not None:
            busy += count * found.busy
            waiting.update({cause: count * waited for cause, waited in found.waiting.items()})
    return {
        "entry": entry / all_cycles,
        "busy": busy / all_cycles,
        "waiting": {
            cause: waiting[cause] / all_cycles
            for cause in dict.fromkeys((*PIPES, *sorted(waiting)))
            if cause in waiting
        },
        "idle": (all_cycles - entry - busy - sum(waiting.values())) / all_cycles,
    }


@dataclass(frozen=True, slots=True)
class CallReport:
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
    title: str,
    problem: Mapping[str, Any],
    runs: Sequence[CallReport],
    command: Sequence[str],
    *,
    paths: bool = True,
    ratios: Sequence[Ratio] = (),
) -> Entry:
    """Describe calls of one problem on several products; `command` are the words that asked for them.

    paths   whether the document has the critical path of each kernel
    ratios  of each two runs, in the order of `itertools.combinations`; none without intervals
    """
    # Measures that no gradient has need no definition.
    errors = ERRORS if any(run.gradients for run in runs) else ()
    return {
        **_head("ascendsim run 1", title, command),
        "problem": dict(problem),
        "products": [_product_entry(run.profile) | _call_entry(run, paths) for run in runs],
        "ratios": _ratio_entries(runs, ratios),
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
    notes: Sequence[Sequence[str]],
    left_out: Mapping[str, Any] | None = None,
) -> Entry:
    """Describe a network on several products, by the `layer_entry`s and the notes of each.

    left_out   what of it is not run: `share` of the multiply-adds forward, `unknown`, `of`, and `layers`
    """
    return {
        **_head("ascendsim network 1", title, command),
        "problem": dict(problem),
        "left_out": dict(left_out or {}),
        "products": [
            _product_entry(profile) | _network_entry(layers, own)
            for (profile, layers), own in zip(products, notes, strict=True)
        ],
        **_measured([profile for profile, _ in products]),
        "definitions": {
            "products": definitions(CALL),
            "products.layers": definitions(LAYER),
            "products.layers.kernels": definitions(KERNEL),
        },
    }


def _measured(profiles: Sequence[Profile]) -> Entry:
    """Count the measurements behind a comparison of products; of one product there is none."""
    names = list(dict.fromkeys(profile.product for profile in profiles))
    if len(names) < 2:
        return {}
    # Imported where it is needed: a call on one product reads no table of what was measured.
    from ascendsim.validate.coverage import comparison_line

    return {"measured": comparison_line(names), "measured_in_short": comparison_line(names, short=True)}


def layer_entry(name: str, count: int, result: Estimate, profile: Profile, *, paths: bool = True) -> Entry:
    """Describe the estimate of one layer that the network has `count` times; `paths` as in `run_document`."""
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


def variant_entry(product: ShippedProduct, profile: Profile) -> Entry:
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


def _call_entry(run: CallReport, paths: bool) -> Entry:
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
            "together": list(effect.together),
            "shortest_us": effect.shortest[0],
            "shortest_at": plain(effect.shortest[1]),
            "longest_us": effect.longest[0],
            "longest_at": plain(effect.longest[1]),
        }
        for effect in interval.effects
    ]
    joined = {"low_us": interval.low_us, "high_us": interval.high_us, "dominant": list(interval.dominant)}
    entry = asdict(interval) | joined | {"effects": effects}
    del entry["draws_us"]  # the ratios of products are made of them
    return entry


def _ratio_entries(runs: Sequence[CallReport], ratios: Sequence[Ratio]) -> list[Entry]:
    """Describe how sure the order of each two products is."""
    return [
        {"first": first.profile.variant, "second": second.profile.variant, **asdict(found)}
        for (first, second), found in zip(combinations(runs, 2), ratios, strict=bool(ratios))
    ]


def _network_entry(layers: Sequence[Entry], notes: Sequence[str]) -> Entry:
    # Each layer stands for `count` of its shape, in every sum.
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
