"""Estimate the cycles of a whole network, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ascendsim.cli.call import Answer, estimate_cycles, settings
from ascendsim.cli.progress import progress
from ascendsim.cli.request import DEFAULT_DTYPE, Network
from ascendsim.report.columns import Entry
from ascendsim.report.document import layer_entry, network_document

if TYPE_CHECKING:
    from ascendsim.profile import Profile

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
    products = []
    with progress(len(profiles) * len(problems)) as advance:
        for profile in profiles:
            made = []
            for layer, problem in zip(request.layers, problems, strict=True):
                advance(f"{layer.name} on {profile.variant}")
                result = estimate_cycles(problem, dtype, request.mask, arguments, profile)
                made.append(layer_entry(layer.name, layer.count, result, profile))
            products.append((profile, made))
    return products
