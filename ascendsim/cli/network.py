"""Estimate the cycles of a whole network, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.cli.call import Answer, estimate_cycles, settings
from ascendsim.cli.plans import tiling_of
from ascendsim.cli.request import DEFAULT_DTYPE, Network, problem_of
from ascendsim.cli.values import GRADIENT_NAMES, GRADIENTS
from ascendsim.parallel import in_order
from ascendsim.progress import progress
from ascendsim.report.columns import Entry
from ascendsim.report.document import layer_entry, network_document
from ascendsim.report.op_summary import Listed, listed

if TYPE_CHECKING:
    from ascendsim.cli.request import Mask
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.profile import Profile
    from ascendsim.workloads import Layer

_INCLUDED = "The total includes grad_input of {}, which training does not need."
_LEFT_OUT = "The total has no grad_input of {}, which training does not need; --mask {} adds it."


def run_network(request: Network, profiles: Sequence[Profile], arguments: Any) -> Answer:
    """Estimate every distinct layer on every product."""
    from ascendsim.report.folder import write_network_folder

    dtype = arguments.dtype or DEFAULT_DTYPE
    shown = {
        "convolutions": sum(layer.count for layer in request.layers),
        "distinct": len(request.layers),
        **settings(request.mask or (True, True, True), dtype, arguments),
        "gradients": _gradients(request),
        "shapes": request.workload.source,
    }
    made = _estimate_layers(request, profiles, dtype, arguments)
    products = [(profile, [one.entry for one in layers]) for profile, layers in made]
    title = f"{request.workload.title}, batch {request.batch}"
    document = network_document(title, shown, products, arguments.words, _notes(request))
    lines = [_backward(layers) for _, layers in made] if arguments.out is not None else []
    return document, partial(write_network_folder, document=document, profiles=profiles, lines=lines)


class _Made(NamedTuple):
    """A layer as the document has it, and its kernels as op_summary.csv does, where a folder is asked for."""

    entry: Entry
    lines: list[Listed]


def _backward(layers: Sequence[_Made]) -> list[Listed]:
    """Return the kernels in the order of the backward pass: the last layer first, as often as it is there."""
    return [line for one in reversed(layers) for _ in range(one.entry["count"]) for line in one.lines]


def _gradients(request: Network) -> str:
    """Name what is asked of the layers: alike, or of each what training asks for."""
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


def _estimate_layers(
    request: Network, profiles: Sequence[Profile], dtype: str, arguments: Any
) -> list[tuple[Profile, list[_Made]]]:
    # All of them before the first estimate: a bad layer is told at once, not after minutes.
    problems = [problem_of(layer, request.batch) for layer in request.layers]
    each = list(zip(request.layers, problems, strict=True))
    tasks = [(profile, *one, request.mask_of(one[0])) for profile in profiles for one in each]

    def name(number: int) -> str:
        profile, layer, *_ = tasks[number]
        return f"{layer.name} on {profile.variant}"

    with progress(len(tasks)) as advance:
        entry = partial(_entry, dtype, arguments)
        made = in_order(entry, tasks, arguments.workers, lambda number: advance(name(number)))
    count = len(each)
    return [(profile, made[at * count : (at + 1) * count]) for at, profile in enumerate(profiles)]


def _entry(dtype: str, arguments: Any, task: tuple[Profile, Layer, ConvProblem, Mask]) -> _Made:
    """Estimate one layer on one product, and say it in plain values: spans are not sent between processes."""
    profile, layer, problem, mask = task
    plans = tiling_of(arguments, layer.name)
    result = estimate_cycles(problem, dtype, mask, arguments, profile, plans)
    entry = layer_entry(layer.name, layer.count, result, profile, paths=arguments.paths)
    if arguments.out is None:
        return _Made(entry, [])
    shapes = {"input": problem.input, "weight": problem.weight, "grad_output": problem.grad_output}
    return _Made(entry, listed(result.kernels, profile, shapes, f"{layer.name}/"))
