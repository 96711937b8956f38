"""Run one convolution: gradients with their errors and cycles, or cycles alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from ascendsim.cli.call import Answer, backward, estimate_cycles, settings
from ascendsim.cli.request import DEFAULT_DTYPE, Single
from ascendsim.cli.tensors import (
    Tensors,
    memory_advice,
    normal_tensors,
    npz_dtypes,
    npz_tensors,
    require_tensor_dtype,
)
from ascendsim.errors import DataError
from ascendsim.progress import busy, progress
from ascendsim.report.document import Run, run_document

if TYPE_CHECKING:
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.profile import Profile

# Tensors, their float32 carriers and layouts, gradients and float64 references: 13 was measured on large
# layers, and too early a refusal is better than a machine that swaps.
BYTES_PER_ELEMENT = 16


def run_single(request: Single, profiles: Sequence[Profile], arguments: Any) -> Answer:
    """Run one convolution on every product."""
    from ascendsim import ConvProblem
    from ascendsim.report.folder import write_run_folder

    problem = ConvProblem(**request.options)
    # A file brings a grad_output of its own, which must be the one that its other arrays imply.
    if request.arrays is not None:
        problem.check_grad_output(request.arrays["grad_output"].shape)
    about = {}
    if arguments.cycles_only:
        dtype = _dtype(request, arguments)
        estimates = [estimate_cycles(problem, dtype, request.mask, arguments, p) for p in profiles]
        runs = [Run(result, profile) for result, profile in zip(estimates, profiles, strict=True)]
    else:
        tensors = _tensors(request, problem, arguments)
        dtype, about["tensors"] = tensors.dtype, tensors.about
        runs = _backward_runs(request, problem, tensors, profiles, arguments)
    if arguments.interval:
        runs = _with_intervals(request, problem, dtype, runs, arguments)
    shown = _shape(problem) | settings(request.mask, dtype, arguments) | about
    document = run_document(request.title, shown, runs, arguments.words, paths=arguments.paths)
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


def _work(problem: ConvProblem, mask: Sequence[bool]) -> str:
    """Return the multiply-adds of the gradients that are asked for."""
    # The bias's gradient is a sum: it multiplies nothing.
    macs = sum(mask[:2]) * problem.macs
    return f"{macs / 1e9:,.1f} GMAC" if macs >= 1e9 else f"{macs / 1e6:,.1f} MMAC"


def _backward_runs(
    request: Single, problem: ConvProblem, tensors: Tensors, profiles: Sequence[Profile], arguments: Any
) -> list[Run]:
    """Compute on every product and judge all of them by the same float64 gradients."""
    from ascendsim.studies.precision import float64_references, judge

    results = []
    for profile in profiles:
        with busy(f"{request.title} on {profile.variant}: {_work(problem, request.mask)}"):
            results.append(backward(problem, tensors, request.mask, profile, arguments))
    # After the products, so that a call which one of them refuses is refused before the float64 work.
    with busy(f"{request.title} in float64"):
        stored = tensors.grad_output, tensors.input, tensors.weight
        references = float64_references(problem, *stored, request.mask)
        judged = [judge(result, references) for result in results]
    return [Run(*found) for found in zip(results, profiles, judged, strict=True)]


def _with_intervals(
    request: Single, problem: ConvProblem, dtype: str | Sequence[str], runs: Sequence[Run], arguments: Any
) -> list[Run]:
    """Add to each run between which times it lies."""
    from ascendsim.studies.interval import interval
    from ascendsim.studies.sweep import sweep_size

    call = partial(estimate_cycles, problem, dtype, request.mask, arguments)
    # Other figures take the product's file, hence its name; a profile alone cannot be loaded anew.
    names = arguments.product
    with progress(sum(sweep_size(run.profile) for run in runs)) as advance:
        return [
            replace(run, interval=interval(name, call, advance, run.result, arguments.workers))
            for name, run in zip(names, runs, strict=True)
        ]


def _tensors(request: Single, problem: ConvProblem, arguments: Any) -> Tensors:
    """Make or take the tensors, unless the run cannot fit: before the machine begins to swap.

    Raises   DataError with the need and what there is
    """
    # Each of input and weight has a gradient of its size.
    elements = 2 * prod(problem.input) + 2 * prod(problem.weight) + prod(problem.grad_output)
    need = BYTES_PER_ELEMENT * elements
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if need > there:
        raise DataError(
            f"computing these gradients needs about {need / 2**30:,.0f} GiB, but this machine has "
            f"{there / 2**30:,.0f}; {memory_advice(npz=arguments.npz is not None)}"
        )
    if request.arrays is None:
        return normal_tensors(problem, arguments.dtype or DEFAULT_DTYPE, arguments.seed)
    return npz_tensors(arguments.npz, request.arrays, arguments.dtype)


def _shape(problem: ConvProblem) -> dict[str, Any]:
    """Describe a problem by its shapes and by what differs from the ordinary case."""
    shown: dict[str, Any] = {"input": problem.input, "weight": problem.weight}
    # What is as usual is left out, but stride and padding are asked for first and always told.
    for name, usual in (
        *(("stride", None), ("padding", None), ("dilation", 1)),
        *(("transposed", False), ("output_padding", 0), ("groups", 1)),
    ):
        value = getattr(problem, name)
        if isinstance(value, tuple) and len(set(value)) == 1:
            value = value[0]
        if value != usual:
            shown[name] = value
    return shown
