"""`ascendsim run`: find out what was asked for and on what, run it, print it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.cli.plans import naming_plan_file, read_tiling, schedules_of, tiling_of, write_tiling
from ascendsim.cli.request import (
    DEFAULT_DTYPE,
    GRADIENT_NAMES,
    GRADIENTS,
    Network,
    Single,
    each_once,
    left_out_of,
    problem_of,
    read_request,
)
from ascendsim.cli.tensors import (
    Tensors,
    bias_like,
    memory_advice,
    normal_tensors,
    npz_dtypes,
    npz_tensors,
    require_tensor_dtype,
)
from ascendsim.errors import AscendSimError, ConfigError, DataError
from ascendsim.ops.options.keywords import CallOptions, Keywords
from ascendsim.ops.problems.layers import ProductLayer, TbcLayer, kind_of
from ascendsim.parallel import in_order
from ascendsim.progress import busy, progress
from ascendsim.report.document import CallReport, layer_entry, network_document, run_document
from ascendsim.report.op_summary import Listed, listed
from ascendsim.report.tables import Entry

if TYPE_CHECKING:
    from ascendsim.cli.request import Mask
    from ascendsim.ops.problems.layers import LayerProblem
    from ascendsim.profile import Profile
    from ascendsim.workloads import Layer


def run(arguments: Any) -> int:
    """Run what was asked for, print it, and write the report folder if one is asked for."""
    from ascendsim.files import require_folder
    from ascendsim.profile import is_file_name, load_profile

    request = read_request(arguments)
    if arguments.order != "program" and (arguments.cycles_only or isinstance(request, Network)):
        raise ConfigError(
            "--order is of gradients that are computed, and here are cycles alone; name one layer without "
            "--cycles-only, or leave it out"
        )
    # A large network takes its time: paths that cannot be written are refused before.
    if arguments.out is not None:
        require_folder(arguments.out)
    if isinstance(request, Single):
        # A pattern may mean one layer: a file of plans knows it by its name.
        arguments.layer = request.layer
    # A product that is named twice would make two files of one name.
    arguments.product = each_once(arguments.product)
    read_tiling(arguments, request)
    profiles = [load_profile(name) for name in arguments.product]
    # A terminal shows no critical path; where one is asked for, both engines find the same cycles.
    arguments.paths = arguments.json or arguments.out is not None
    if arguments.engine is None and (arguments.out is None or isinstance(request, Network)):
        arguments.engine = "compiled"
    if isinstance(request, Network):
        if arguments.interval:
            raise ConfigError("--interval is of one layer; name it, or give --input and --weight")

        with naming_plan_file(arguments):
            document, write = run_network(request, profiles, arguments)
    else:
        with naming_plan_file(arguments):
            document, write = run_single(request, profiles, arguments)
    # What a reader can ask for again: a profile does not know the file that it came from.
    for product, name in zip(document["products"], arguments.product, strict=True):
        product["path"] = name if is_file_name(name) else None
    # The folder first: where it cannot be written, nothing is printed but the reason.
    files = write(arguments.out) if arguments.out is not None else ()
    if arguments.write_tiling is not None:
        write_tiling(document, arguments)
    _print(document, files, arguments)
    return 0


def _print(document: Entry, files: Sequence[Path], arguments: Any) -> None:
    if arguments.json:
        from ascendsim.report.folder import json_text

        sys.stdout.write(json_text(document))
        return
    # Here and not above: rich is not loaded for those who want JSON.
    from ascendsim.report.terminal import print_document, print_line

    print_document(document, details=arguments.details)
    if files:
        print()
        print_line(f"Report in {files[0].parent}: {_listed([file.name for file in files])}")


def _listed(names: Sequence[str]) -> str:
    """Return names of files with commas between; of many, those that a reader opens first."""
    # Three are of all products; of one there are up to four more.
    if len(names) <= 3 + 4:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} files of its products"


# A run's document, and how to write its folder if one is asked for.
Answer = tuple[Entry, Callable[[Path], Sequence[Path]]]


def backward(problem: LayerProblem, tensors: Tensors, mask: Mask, profile: Profile, arguments: Any) -> Any:
    """Compute gradients and cycles."""
    from ascendsim import conv_tbc_backward, convolution_backward, product_backward

    given = tensors.grad_output, tensors.input, tensors.weight
    words = _keywords(profile, arguments, tiling_of(arguments, arguments.layer)) | {"order": arguments.order}
    math = arguments.cube_math_type
    with _one_of_several(profile, arguments):
        if isinstance(problem, TbcLayer):
            words.pop("layout", None)  # has none; `estimate_layer` refuses another than the usual one
            return conv_tbc_backward(*given, bias_like(*given[::2]), problem.padding, math, **words)
        if isinstance(problem, ProductLayer):
            return product_backward(*given, problem.linear, mask, math, **words)
        return convolution_backward(
            *given,
            # bias_sizes, which the interface asks for only where the gradient of the bias is wanted.
            [problem.grad_output[1]] if mask[2] else None,
            problem.stride,
            problem.padding,
            problem.dilation,
            problem.transposed,
            problem.output_padding,
            problem.groups,
            mask,
            math,
            **words,
        )


def estimate_cycles(
    problem: LayerProblem,
    dtype: str | Sequence[str],
    mask: Mask,
    arguments: Any,
    profile: Profile,
    plans: Any = None,
) -> Any:
    """Estimate cycles alone; `dtype` is one name, or one for each of grad_output, input and weight.

    The last two come last because studies repeat a call with others; without `plans` those asked for.
    """
    from ascendsim import estimate_layer

    tiling = tiling_of(arguments, arguments.layer) if plans is None else plans
    keywords = _keywords(profile, arguments, tiling)
    with _one_of_several(profile, arguments):
        return estimate_layer(problem, dtype, arguments.cube_math_type, output_mask=mask, **keywords)


@contextmanager
def _one_of_several(profile: Profile, arguments: Any) -> Iterator[None]:
    """Add to an error of one of several products whose it is, and that the others can do without it."""
    try:
        yield
    except AscendSimError as error:
        if len(arguments.product) > 1:
            error.add_note(
                f"This is what {profile.variant} says; leave it out of --product to run the others."
            )
        raise


def settings(mask: Mask, dtype: str | Sequence[str], arguments: Any) -> dict[str, Any]:
    """Describe what was asked for besides the shapes."""
    # Part of every report: bits and cycles depend on all of these.
    asked = [name for name, wanted in zip(GRADIENTS, mask, strict=True) if wanted]
    names = dtype if isinstance(dtype, str) else " ".join(dtype)
    own = {"schedule": " ".join(arguments.schedule)} if arguments.schedule else {}
    if arguments.tiling:
        own["tiling"] = arguments.tiling
    if arguments.layout != Keywords.layout:
        own["layout"] = arguments.layout
    return {
        "dtype": names,
        "cube_math_type": arguments.cube_math_type,
        "gradients": " ".join(asked),
        "L2": arguments.l2_start,
        **own,
    }


def _keywords(profile: Profile, arguments: Any, tiling: Any) -> dict[str, Any]:
    """Return the keywords that gradients and estimates share, so that both are of the same call."""
    said = {name: value for name, value in vars(arguments).items() if name in CallOptions.__annotations__}
    return said | {"product": profile, "tiling": tiling, "schedule": schedules_of(arguments.schedule)}


WARM = "warm"
WARM_NOTE = "all warm: {:,.2f} us."


def _beside_warm(
    problem: LayerProblem, dtype: str | Sequence[str], mask: Mask, arguments: Any, run: CallReport
) -> CallReport:
    """Add to the note on L2 what the call takes if L2 is warm."""
    warm_us = _warm_us(problem, dtype, mask, arguments, run.profile, run.result)
    notes = [
        f"{note[:-1]}; {WARM_NOTE.format(warm_us)}" if note.startswith("L2 ") else note
        for note in run.result.notes
    ]
    return replace(run, result=replace(run.result, notes=tuple(notes)))


def _warm_us(
    problem: LayerProblem,
    dtype: str | Sequence[str],
    mask: Mask,
    arguments: Any,
    profile: Profile,
    result: Any,
) -> float:
    """Return the time of a call under the same plans with L2 warm."""
    from ascendsim import estimate_layer

    plans = {kernel.name: kernel.plan for kernel in result.kernels if kernel.plan is not None}
    words = _keywords(profile, arguments, plans or None)
    words |= {"l2_start": WARM, "engine": "compiled", "schedule": None}
    made = estimate_layer(problem, dtype, arguments.cube_math_type, output_mask=mask, **words)
    return made.time_us


def run_single(request: Single, profiles: Sequence[Profile], arguments: Any) -> Answer:
    """Run one convolution on every product."""
    from ascendsim import ConvProblem, layer_problem
    from ascendsim.report.folder import write_run_folder
    from ascendsim.studies.verdicts import ratios
    from ascendsim.validate.run import tuning_noise

    problem = layer_problem(**request.options)
    # A file brings a grad_output of its own, which must be the one that its other arrays imply.
    if request.arrays is not None and isinstance(problem, ConvProblem):
        problem.check_grad_output(request.arrays["grad_output"].shape)
    about = {}
    if arguments.cycles_only:
        dtype = _dtype(request, arguments)
        estimates = [estimate_cycles(problem, dtype, request.mask, arguments, p) for p in profiles]
        runs = [CallReport(result, profile) for result, profile in zip(estimates, profiles, strict=True)]
    else:
        tensors = _tensors(request, problem, arguments)
        dtype, about["tensors"] = tensors.dtype, tensors.about
        runs = _backward_runs(request, problem, tensors, profiles, arguments)
    if arguments.interval:
        runs = _with_intervals(request, problem, dtype, runs, arguments)
    if arguments.l2_start != WARM:
        runs = [_beside_warm(problem, dtype, request.mask, arguments, run) for run in runs]
    shown = _shape(problem) | settings(request.mask, dtype, arguments) | about
    ordered = ratios([run.interval for run in runs if run.interval is not None], tuning_noise().p90)
    words = request.title, shown, runs, arguments.words
    document = run_document(*words, paths=arguments.paths, ratios=ordered)
    spans = arguments.trace_spans if arguments.trace else 0
    shapes = {name: getattr(problem, name) for name in ("grad_output", "input", "weight")}
    write = partial(write_run_folder, document=document, runs=runs, trace_spans=spans, shapes=shapes)
    return document, write


def _dtype(request: Single, arguments: Any) -> str | Sequence[str]:
    """Return the format of the tensors that are not computed on: one, or one for each."""
    if arguments.dtype is not None:
        require_tensor_dtype(arguments.dtype)
    if request.arrays is None:
        return str(arguments.dtype or DEFAULT_DTYPE)
    return npz_dtypes(arguments.npz, request.arrays, arguments.dtype)


def _work(problem: LayerProblem, mask: Sequence[bool]) -> str:
    """Return the multiply-adds of the gradients that are asked for."""
    # The bias's gradient is a sum: it multiplies nothing.
    macs = sum(mask[:2]) * problem.macs
    return f"{macs / 1e9:,.1f} GMAC" if macs >= 1e9 else f"{macs / 1e6:,.1f} MMAC"


def _backward_runs(
    request: Single, problem: LayerProblem, tensors: Tensors, profiles: Sequence[Profile], arguments: Any
) -> list[CallReport]:
    """Compute on every product and judge all of them by the same float64 gradients."""
    from ascendsim.studies.sweep import float64_references, judge

    results = []
    for profile in profiles:
        with busy(f"{request.title} on {profile.variant}: {_work(problem, request.mask)}"):
            results.append(backward(problem, tensors, request.mask, profile, arguments))
    # After the products, so that a call which one of them refuses is refused before the float64 work.
    with busy(f"{request.title} in float64"):
        stored = tensors.grad_output, tensors.input, tensors.weight
        references = float64_references(problem, *stored, request.mask)
        judged = [judge(result, references) for result in results]
    return [CallReport(*found) for found in zip(results, profiles, judged, strict=True)]


def _with_intervals(
    request: Single,
    problem: LayerProblem,
    dtype: str | Sequence[str],
    runs: Sequence[CallReport],
    arguments: Any,
) -> list[CallReport]:
    """Add to each run between which times it lies."""
    from ascendsim.studies.sweep import Sweep
    from ascendsim.studies.uncertainty import interval_size, intervals

    call = partial(estimate_cycles, problem, dtype, request.mask, arguments)
    # Other figures take the product's file, hence its name; a profile alone cannot be loaded anew.
    names = arguments.product
    with progress(sum(interval_size(run.profile) for run in runs)) as advance:
        dimensions = len(problem.weight) - 2
        sweeps = [Sweep(name, call, run.result, dimensions) for name, run in zip(names, runs, strict=True)]
        found = intervals(sweeps, advance, arguments.workers)
    return [replace(run, interval=own) for run, own in zip(runs, found, strict=True)]


def _tensors(request: Single, problem: LayerProblem, arguments: Any) -> Tensors:
    """Make or take the tensors, unless the run cannot fit: before the machine begins to swap.

    Raises   DataError with the need and what there is; BudgetError
    """
    from ascendsim.ops.options.budget import reckoned_bytes, require_bytes

    # Each of input and weight has a gradient of its size.
    need = reckoned_bytes((*(problem.input, problem.weight) * 2, problem.grad_output))
    require_bytes(need, arguments.most_bytes, "its tensors")
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if need > there:
        raise DataError(
            f"computing these gradients needs about {need / 2**30:,.0f} GiB, but this machine has "
            f"{there / 2**30:,.0f}; {memory_advice(npz=arguments.npz is not None)}"
        )
    if request.arrays is None:
        return normal_tensors(problem, arguments.dtype or DEFAULT_DTYPE, arguments.seed)
    return npz_tensors(arguments.npz, request.arrays, arguments.dtype)


def _shape(problem: LayerProblem) -> dict[str, Any]:
    """Describe a problem by its shapes and by what differs from the ordinary case."""
    shown: dict[str, Any] = {"input": problem.input, "weight": problem.weight}
    if kind_of(problem) != "conv":
        shown["kind"] = kind_of(problem)
    # Default values are left out, except stride and padding, which readers look for first.
    for name, usual in (
        *(("stride", None), ("padding", None), ("dilation", 1)),
        *(("transposed", False), ("output_padding", 0), ("groups", 1)),
    ):
        value = getattr(problem, name, usual)
        if isinstance(value, tuple) and len(set(value)) == 1:
            value = value[0]
        if value != usual:
            shown[name] = value
    return shown


COUNTED = {"conv": "convolutions", "linear": "linear layers", "matmul": "products", "conv_tbc": "conv_tbc"}
_INCLUDED = "The total includes grad_input of {}, which training does not need."
_LEFT_OUT = "The total has no grad_input of {}, which training does not need; --mask {} adds it."


def run_network(request: Network, profiles: Sequence[Profile], arguments: Any) -> Answer:
    """Estimate every distinct layer on every product."""
    from ascendsim.report.folder import write_network_folder

    dtype = arguments.dtype or DEFAULT_DTYPE
    counts = {
        word: sum(layer.count for layer in request.layers if layer.kind == kind)
        for kind, word in COUNTED.items()
    }
    shown = {
        **{kind: count for kind, count in counts.items() if count},
        "distinct": len(request.layers),
        **settings(request.mask or (True, True, True), dtype, arguments),
        "gradients": _gradients(request),
        "shapes": request.workload.source,
    }
    made = _estimate_layers(request, profiles, dtype, arguments)
    products = [(profile, [one.entry for one in layers]) for profile, layers in made]
    title = f"{request.workload.title}, batch {request.batch}"
    notes = [_notes(request) + _warm_notes(layers, arguments) for _, layers in made]
    left_out = left_out_of(request.workload)
    document = network_document(title, shown, products, arguments.words, notes, left_out)
    # At the top of the file: they have a name and no time.
    absent = [
        Listed({"Op Name": f"left out: {o['name']}", "OP Type": o["kind"]}, 0.0) for o in left_out["layers"]
    ]
    lines = [absent + _backward(layers) for _, layers in made] if arguments.out is not None else []
    return document, partial(write_network_folder, document=document, profiles=profiles, lines=lines)


class _Made(NamedTuple):
    """A layer as the document has it.

    lines     its kernels as op_summary.csv has them, where a folder is asked for
    warm_us   what a call of it takes with L2 warm, where it is not
    """

    entry: Entry
    lines: list[Listed]
    warm_us: float = 0.0


def _backward(layers: Sequence[_Made]) -> list[Listed]:
    """Return the kernels in the order of the backward pass: the last layer first, as often as it is there."""
    return [line for one in reversed(layers) for _ in range(one.entry["count"]) for line in one.lines]


def _gradients(request: Network) -> str:
    """Name the gradients that are asked of the layers: one mask for all, or those that training needs."""
    masks = {request.mask_of(layer) for layer in request.layers}
    if request.mask is None and len(masks) > 1:
        return "as training asks"
    return " ".join(name for name, *asked in zip(GRADIENTS, *masks, strict=True) if any(asked))


def _notes(request: Network) -> list[str]:
    """Say whether the gradient of the images, which training never asks for, is in the total."""
    reads_images = [layer for layer in request.layers if not layer.mask[0]]
    wanted = [layer.name for layer in reads_images if request.mask_of(layer)[0]]
    left_out = [] if request.mask else [layer.name for layer in reads_images]
    # What training asks for of any layer stays asked for.
    trained = [any(each) for each in zip(*(layer.mask for layer in request.layers), strict=True)]
    mask = ",".join(name for name, asked in zip(GRADIENT_NAMES, (True, *trained[1:]), strict=True) if asked)
    notes = [_INCLUDED.format(", ".join(wanted))] if wanted else []
    return notes + ([_LEFT_OUT.format(", ".join(left_out), mask)] if left_out else [])


def _warm_notes(layers: Sequence[_Made], arguments: Any) -> list[str]:
    """Give the time of a network with L2 warm, where it is not."""
    if arguments.l2_start == WARM:
        return []
    return [WARM_NOTE.capitalize().format(sum(layer.entry["count"] * layer.warm_us for layer in layers))]


def _estimate_layers(
    request: Network, profiles: Sequence[Profile], dtype: str, arguments: Any
) -> list[tuple[Profile, list[_Made]]]:
    # All of them before the first estimate: a bad layer is refused at once, not after minutes.
    problems = [problem_of(layer, request.batch) for layer in request.layers]
    each = list(zip(request.layers, problems, strict=True))
    tasks = [(profile, *one, request.mask_of(one[0])) for profile in profiles for one in each]

    def name(number: int) -> str:
        profile, layer, *_ = tasks[number]
        return f"{layer.name} on {profile.variant}"

    with progress(len(tasks)) as advance:
        entry = partial(_entry, dtype, arguments)
        made = in_order(entry, tasks, arguments.workers or 1, lambda number: advance(name(number)))
    count = len(each)
    return [(profile, made[at * count : (at + 1) * count]) for at, profile in enumerate(profiles)]


def _entry(dtype: str, arguments: Any, task: tuple[Profile, Layer, LayerProblem, Mask]) -> _Made:
    """Estimate one layer on one product, and say it in plain values: spans are not sent between processes."""
    profile, layer, problem, mask = task
    plans = tiling_of(arguments, layer.name)
    result = estimate_cycles(problem, dtype, mask, arguments, profile, plans)
    entry = layer_entry(layer.name, layer.count, result, profile, paths=arguments.paths)
    warm = 0.0
    if arguments.l2_start != WARM:
        warm = _warm_us(problem, dtype, mask, arguments, profile, result)
    if arguments.out is None:
        return _Made(entry, [], warm)
    shapes = {"input": problem.input, "weight": problem.weight, "grad_output": problem.grad_output}
    return _Made(entry, listed(result.kernels, profile, shapes, f"{layer.name}/"), warm)
