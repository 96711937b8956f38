"""`ascendsim run`: the gradients and cycles of one convolution, the cycles of a network."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ascendsim.cli.progress import busy, progress
from ascendsim.cli.request import Mask, Network, Single, read_request
from ascendsim.cli.tensors import Tensors, normal_tensors, npz_tensors
from ascendsim.errors import DataError
from ascendsim.report.columns import AnyColumn
from ascendsim.report.record import (
    GRADIENTS,
    Record,
    Run,
    layer_record,
    network_document,
    run_document,
)

if TYPE_CHECKING:
    from ascendsim.ops.conv_problem import ConvProblem
    from ascendsim.profile import Profile

DEFAULT_PRODUCT = "910B"
DEFAULT_DTYPE = "float16"
# Tensors, their carriers and layouts, gradients and references; 13 was measured on large layers.
BYTES_PER_ELEMENT = 16
_FIRST_LAYER = "The total includes grad_input of the first layer, which training does not need."


def run(arguments: Any) -> int:
    """Run what was asked for, print it, and write the report folder if one is asked for."""
    from ascendsim.profile import load_profile

    request = read_request(arguments)
    names = list(dict.fromkeys(arguments.product or [DEFAULT_PRODUCT]))
    profiles = [load_profile(name) for name in names]
    if isinstance(request, Network):
        return _run_network(request, names, profiles, arguments)
    return _run_single(request, names, profiles, arguments)


def _run_single(request: Single, names: list[str], profiles: list[Profile], arguments: Any) -> int:
    from ascendsim import ConvProblem

    problem = ConvProblem(**request.options)
    shown = _shown(problem, request.mask, arguments)
    if arguments.cycles_only:
        dtype = arguments.dtype or DEFAULT_DTYPE
        runs = [
            Run(_estimate(problem, dtype, request.mask, name, arguments), profile)
            for name, profile in zip(names, profiles, strict=True)
        ]
        metrics: Sequence[AnyColumn] = ()
        about: Sequence[AnyColumn] = ()
    else:
        from ascendsim.cli.judge import ERROR_COLUMNS, SHOWN_COLUMNS, Judge

        _require_memory(problem)
        tensors = _tensors(request, problem, arguments)
        shown["tensors"] = tensors.about
        judge = Judge(problem, tensors, request.mask)
        runs = []
        for name, profile in zip(names, profiles, strict=True):
            with busy(f"{request.title} on {profile.variant}: {2 * problem.macs / 1e9:,.1f} GMAC"):
                result = _backward(problem, tensors, request.mask, name, arguments)
                runs.append(Run(result, profile, judge.gradients(result)))
        metrics, about = SHOWN_COLUMNS, ERROR_COLUMNS
    document = run_document(request.title, shown, runs, arguments.words, about)
    files: Sequence[Any] = ()
    if arguments.out is not None:
        from ascendsim.report.folder import write_run_folder

        spans = arguments.trace_spans if arguments.trace else 0
        files = write_run_folder(arguments.out, document, runs, metrics, spans)
    if arguments.json:
        _print_json(document)
    else:
        from ascendsim.report.terminal import print_run

        print_run(document, metrics)
        _print_files(files)
    return 0


def _run_network(request: Network, names: list[str], profiles: list[Profile], arguments: Any) -> int:
    from ascendsim import ConvProblem

    dtype = arguments.dtype or DEFAULT_DTYPE
    problems = [ConvProblem(**layer.problem_options(request.batch)) for layer in request.layers]
    products = []
    with progress(len(names) * len(problems)) as advance:
        for name, profile in zip(names, profiles, strict=True):
            made = []
            for layer, problem in zip(request.layers, problems, strict=True):
                advance(f"{layer.name} on {profile.variant}")
                result = _estimate(problem, dtype, request.mask, name, arguments)
                made.append(layer_record(layer.name, layer.count, result))
            products.append((profile, made))
    title = f"{request.workload.title}, batch {request.batch}"
    shown = {
        "convolutions": sum(layer.count for layer in request.layers),
        "distinct": len(request.layers),
        **_settings(request.mask, dtype, arguments),
        "shapes": request.workload.source,
    }
    notes = [_FIRST_LAYER] if request.mask[0] else []
    document = network_document(title, shown, products, arguments.words, notes)
    files: Sequence[Any] = ()
    if arguments.out is not None:
        from ascendsim.report.folder import write_network_folder

        files = write_network_folder(arguments.out, document)
    if arguments.json:
        _print_json(document)
    else:
        from ascendsim.report.terminal import print_network

        print_network(document)
        _print_files(files)
    return 0


def _require_memory(problem: ConvProblem) -> None:
    """Refuse a functional run that cannot fit, before the machine begins to swap.

    Raises   DataError with the need and what there is
    """
    elements = 2 * prod(problem.input) + 2 * prod(problem.weight) + prod(problem.grad_output)
    need = BYTES_PER_ELEMENT * elements
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if need > there:
        raise DataError(
            f"computing these gradients needs about {need / 2**30:,.0f} GiB, but this machine has "
            f"{there / 2**30:,.0f}; take a smaller batch, or --cycles-only, which needs no tensors"
        )


def _tensors(request: Single, problem: ConvProblem, arguments: Any) -> Tensors:
    if request.arrays is None:
        return normal_tensors(problem, arguments.dtype or DEFAULT_DTYPE, arguments.seed)
    problem.check_grad_output(request.arrays["grad_output"].shape)
    return npz_tensors(arguments.npz, request.arrays, arguments.dtype)


def _backward(problem: ConvProblem, tensors: Tensors, mask: Mask, product: str, arguments: Any) -> Any:
    from ascendsim import convolution_backward

    return convolution_backward(
        tensors.grad_output,
        tensors.input,
        tensors.weight,
        [problem.grad_output[1]] if mask[2] else None,
        problem.stride,
        problem.padding,
        problem.dilation,
        problem.transposed,
        problem.output_padding,
        problem.groups,
        mask,
        arguments.cube_math_type,
        order=arguments.order,
        **_keywords(product, arguments),
    )


def _estimate(problem: ConvProblem, dtype: str, mask: Mask, product: str, arguments: Any) -> Any:
    from ascendsim import estimate

    return estimate(
        problem,
        dtype=dtype,
        cube_math_type=arguments.cube_math_type,
        output_mask=mask,
        **_keywords(product, arguments),
    )


def _keywords(product: str, arguments: Any) -> dict[str, Any]:
    return {
        "product": product,
        "accumulation": arguments.accumulation,
        "deterministic": arguments.deterministic,
    }


def _shown(problem: ConvProblem, mask: Mask, arguments: Any) -> dict[str, Any]:
    """Describe a problem by what differs from the ordinary case."""
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
    return shown | _settings(mask, arguments.dtype or DEFAULT_DTYPE, arguments)


def _settings(mask: Mask, dtype: str, arguments: Any) -> dict[str, Any]:
    asked = [name for name, wanted in zip(GRADIENTS, mask, strict=True) if wanted]
    return {"dtype": dtype, "cube_math_type": arguments.cube_math_type, "gradients": " ".join(asked)}


def _print_json(document: Record) -> None:
    from ascendsim.report.folder import json_text

    sys.stdout.write(json_text(document))


def _print_files(files: Sequence[Any]) -> None:
    if files:
        names = ", ".join(file.name for file in files)
        print(f"\nReport in {files[0].parent}: {names}")
