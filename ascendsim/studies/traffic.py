"""Count the bytes and the events of energy of every layer's call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.layers import estimate_layer
from ascendsim.ops.results import Estimate
from ascendsim.ops.traffic import kernel_traffic
from ascendsim.profile import Profile, load_profile
from ascendsim.studies.accounts import CallTraffic, TrafficAnswer, TrafficQuestion
from ascendsim.studies.energy import energy_events
from ascendsim.studies.hardware.records import StudiedLayer
from ascendsim.studies.sweep import studied


@default_arithmetic
def study_traffic(
    question: TrafficQuestion,
    call: Callable[[StudiedLayer, Profile], Estimate],
    advance: Callable[[str], None] = lambda _: None,
) -> TrafficAnswer:
    """Count the bytes of every layer's call.

    call     estimates a layer's gradients on a product
    Raises   AscendSimError where one cannot be timed
    """
    profile, found = load_profile(question.product), []
    for layer in question.layers:
        kernels = call(layer, profile).kernels
        traffic = tuple(kernel_traffic(kernel, profile) for kernel in kernels)
        events = tuple(
            energy_events(own, kernel, profile) for own, kernel in zip(traffic, kernels, strict=True)
        )
        times_us = tuple(kernel.time_us for kernel in kernels)
        found.append(CallTraffic(layer.name, layer.count, traffic, times_us, events))
        advance(layer.name)
    return TrafficAnswer(question, *studied(profile), tuple(found))


def estimate_call(
    options: Mapping[str, Any], layer: StudiedLayer, profile: Profile, plans: Any = None
) -> Estimate:
    """Estimate a layer's gradients on a product, under plans if they are given; `options` of `estimate`."""
    return estimate_layer(
        layer.problem, output_mask=layer.gradients, product=profile, tiling=plans, **options
    )
