"""Estimate the cycles of a whole network, layer by layer."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ascendsim.cli.call import Answer, estimate_cycles, settings
from ascendsim.cli.plans import tiling_of
from ascendsim.cli.request import DEFAULT_DTYPE, Network
from ascendsim.parallel import in_order
from ascendsim.progress import progress
from ascendsim.report.columns import Entry
from ascendsim.report.document import layer_entry, network_document

if TYPE_CHECKING:
    from ascendsim.cli.request import Mask
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.profile import Profile
    from ascendsim.workloads.loader import Layer

_FIRST_LAYER = "The total includes grad_input of the first layer, which training does not need."


def run_network(request: Network, profiles: Sequence[Profile], arguments: Any) -> Answer:
    """Estimate every distinct layer on every product."""
    from ascendsim.report.folder import write_network_folder

    dtype = arguments.dtype or DEFAULT_DTYPE
    shown = {
        "convolutions": sum(layer.count for layer in request.layers),
        "distinct": len(request.layers),
        **settings(request.mask, dtype, arguments),
        "shapes": request.workload.source,
    }
    products = _estimate_layers(request, profiles, dtype, arguments)
    title = f"{request.workload.title}, batch {request.batch}"
    # Training never asks for the gradient of the images; the layers are alike here, and the total says so.
    notes = [_FIRST_LAYER] if request.mask[0] else []
    document = network_document(title, shown, products, arguments.words, notes)
    return document, partial(write_network_folder, document=document)


def _estimate_layers(
    request: Network, profiles: Sequence[Profile], dtype: str, arguments: Any
) -> list[tuple[Profile, list[Entry]]]:
    from ascendsim import ConvProblem

    # All of them before the first estimate: a bad layer is told at once, not after minutes.
    problems = [ConvProblem(**layer.problem_options(request.batch)) for layer in request.layers]
    each = list(zip(request.layers, problems, strict=True))
    tasks = [(profile, layer, problem) for profile in profiles for layer, problem in each]

    def name(number: int) -> str:
        profile, layer, _ = tasks[number]
        return f"{layer.name} on {profile.variant}"

    with progress(len(tasks)) as advance:
        entry = partial(_entry, dtype, request.mask, arguments)
        made = in_order(entry, tasks, arguments.workers, lambda number: advance(name(number)))
    count = len(each)
    return [(profile, made[at * count : (at + 1) * count]) for at, profile in enumerate(profiles)]


def _entry(dtype: str, mask: Mask, arguments: Any, task: tuple[Profile, Layer, ConvProblem]) -> Entry:
    """Estimate one layer on one product, and say it in plain values: spans are not sent between processes."""
    profile, layer, problem = task
    # Each layer's critical path is told from spans, of which a large batch has millions.
    arguments = Namespace(**{**vars(arguments), "engine": arguments.engine or "compiled"})
    plans = tiling_of(arguments, layer.name)
    result = estimate_cycles(problem, dtype, mask, arguments, profile, plans)
    return layer_entry(layer.name, layer.count, result, profile)
