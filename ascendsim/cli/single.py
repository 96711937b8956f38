"""One convolution: gradients with their errors and cycles, or cycles alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from ascendsim.cli.call import Answer, backward, estimate_cycles, settings
from ascendsim.cli.progress import busy, progress
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
from ascendsim.report.columns import AnyColumn
from ascendsim.report.record import Run, run_document

if TYPE_CHECKING:
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.profile import Profile

# Tensors, their carriers and layouts, gradients and references; 13 was measured on large layers.
BYTES_PER_ELEMENT = 16


def run_single(request: Single, profiles: Sequence[Profile], arguments: Any) -> Answer:
    """Run one convolution on every product."""
    from ascendsim import ConvProblem
    from ascendsim.report.folder import write_run_folder

    problem = ConvProblem(**request.options)
    if request.arrays is not None:
        problem.check_grad_output(request.arrays["grad_output"].shape)
    metrics: Sequence[AnyColumn] = ()
    about: Sequence[AnyColumn] = ()
    if arguments.cycles_only:
        dtype = _dtype(request, arguments)
        shown = _shape(problem) | settings(request.mask, dtype, arguments)
        results = [estimate_cycles(problem, dtype, request.mask, p, arguments) for p in profiles]
        runs = [Run(result, profile) for result, profile in zip(results, profiles, strict=True)]
    else:
        from ascendsim.studies.precision import ERROR_COLUMNS, SHOWN_COLUMNS

        tensors = _tensors(request, problem, arguments)
        shown = _shape(problem) | settings(request.mask, tensors.dtype, arguments)
        shown["tensors"] = tensors.about
        runs = _backward_runs(request, problem, tensors, profiles, arguments)
        metrics, about = SHOWN_COLUMNS, ERROR_COLUMNS
        dtype = tensors.dtype
    if arguments.interval:
        runs = _with_intervals(request, problem, dtype, runs, arguments)
    document = run_document(request.title, shown, runs, arguments.words, about)

    def show() -> None:
        from ascendsim.report.terminal import print_run

        print_run(document, metrics)

    spans = arguments.trace_spans if arguments.trace else 0
    return (
        document,
        show,
        partial(write_run_folder, document=document, runs=runs, metrics=metrics, trace_spans=spans),
    )


def _dtype(request: Single, arguments: Any) -> str | Sequence[str]:
    """Return the format of the tensors that are not computed on: one, or one for each."""
    if arguments.dtype is not None:
        require_tensor_dtype(arguments.dtype)
    if request.arrays is None:
        return str(arguments.dtype or DEFAULT_DTYPE)
    return npz_dtypes(arguments.npz, request.arrays, arguments.dtype)


def _backward_runs(
    request: Single, problem: ConvProblem, tensors: Tensors, profiles: Sequence[Profile], arguments: Any
) -> list[Run]:
    from ascendsim.studies.precision import Judge

    judge = Judge(problem, tensors, request.mask)
    runs = []
    for profile in profiles:
        with busy(f"{request.title} on {profile.variant}: {2 * problem.macs / 1e9:,.1f} GMAC"):
            result = backward(problem, tensors, request.mask, profile, arguments)
            runs.append(Run(result, profile, judge.gradients(result)))
    return runs


def _with_intervals(
    request: Single, problem: ConvProblem, dtype: str | Sequence[str], runs: Sequence[Run], arguments: Any
) -> list[Run]:
    """Add to each run between which times it lies."""
    from ascendsim.studies.interval import ends_to_try, interval_record, plans

    made = []
    with progress(sum(len(ends_to_try(run.profile)) for run in runs)) as advance:
        for name, run in zip(dict.fromkeys(arguments.product), runs, strict=True):
            again = partial(
                estimate_cycles, problem, dtype, request.mask, arguments=arguments, tiling=plans(run.result)
            )
            made.append(replace(run, interval=interval_record(name, run.result, again, advance)))
    return made


def _tensors(request: Single, problem: ConvProblem, arguments: Any) -> Tensors:
    """Make or take the tensors, unless the run cannot fit: before the machine begins to swap.

    Raises   DataError with the need and what there is
    """
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
