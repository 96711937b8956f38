"""Count the bytes of every layer's call, and its energy: a sum of events, each with a weight or without.

    energy.mac_pj.FORMAT            a multiply-add of the cube
    energy.read_pj_per_byte.LEVEL   a byte that is read at a level of the memory, or written
    energy.vector_pj_per_cycle      a cycle in which a vector unit works
    energy.core_pj_per_cycle        a cycle of a core that has work in the kernel, busy or idle
    energy.leakage_pj_per_cycle     a cycle of the whole chip, launches among them: kernel follows kernel

Cycles are those of the cube clock. No product that is shipped has any of these figures. Where a product says
at which clock they hold, they follow its clock and voltage: `profile.voltage` says how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.layers import estimate_layer
from ascendsim.ops.results import Estimate, KernelResult, KernelTraffic
from ascendsim.ops.traffic import kernel_traffic
from ascendsim.profile import Profile, load_profile
from ascendsim.profile.voltage import supply_of
from ascendsim.studies.accounts import CallTraffic, EnergyEvent, TrafficAnswer, TrafficQuestion
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
    Raises   AscendSimError where one cannot be timed, or no voltage is known at the product's clock
    """
    profile, found = load_profile(question.product), []
    supply = supply_of(profile)
    for layer in question.layers:
        kernels = call(layer, profile).kernels
        traffic = tuple(kernel_traffic(kernel, profile) for kernel in kernels)
        events = tuple(
            energy_events(own, kernel, profile) for own, kernel in zip(traffic, kernels, strict=True)
        )
        times_us = tuple(kernel.time_us for kernel in kernels)
        found.append(CallTraffic(layer.name, layer.count, traffic, times_us, events))
        advance(layer.name)
    return TrafficAnswer(question, *studied(profile), tuple(found), supply)


def estimate_call(
    options: Mapping[str, Any], layer: StudiedLayer, profile: Profile, plans: Any = None
) -> Estimate:
    """Estimate a layer's gradients on a product, under plans if they are given; `options` of `estimate`."""
    return estimate_layer(
        layer.problem, output_mask=layer.gradients, product=profile, tiling=plans, **options
    )


@default_arithmetic
def energy_events(traffic: KernelTraffic, result: KernelResult, profile: Profile) -> tuple[EnergyEvent, ...]:
    """Return the events of a kernel, those without a weight too; ConfigError as of `supply_of`."""
    run_cycles = round(result.time_us * profile.clock.cube_mhz)
    return tuple(
        _event(path, count, profile) for path, count in _counts(traffic, result, run_cycles) if count
    )


def _counts(traffic: KernelTraffic, result: KernelResult, run_cycles: int) -> Iterator[tuple[str, int]]:
    for dtype, macs in traffic.macs.items():
        yield f"energy.mac_pj.{dtype}", macs
    for level in dict.fromkeys(move.level for move in traffic.moves):
        for way, size in zip(("read", "write"), traffic.at(level), strict=True):
            yield f"energy.{way}_pj_per_byte.{level}", size
    works = [work for phase in result.times.phases for work in phase.cores]
    busy = sum(
        len(work.cores) * cycles
        for work in works
        for pipe, cycles in work.busy.items()
        if pipe.rpartition(".")[2] == "V"
    )
    yield "energy.vector_pj_per_cycle", busy
    yield "energy.core_pj_per_cycle", result.cores_used * result.cycles
    yield "energy.leakage_pj_per_cycle", run_cycles


def _event(path: str, count: int, profile: Profile) -> EnergyEvent:
    figure = profile.figures.get(path)
    if figure is None:
        return EnergyEvent(path, count, None)
    supply = supply_of(profile)
    # Through text, since the float 0.1 is no tenth.
    each, *ends = (Fraction(str(number)) for number in (figure.value, *(figure.range or ())))
    low, high = ends or (each, each)
    assumed = figure.confidence == "assumed"
    if supply:
        least, most = supply.ends(path)
        each, low, high = each * supply.factor(path), low * least, high * most
        assumed = assumed or supply.is_assumed(path)
    return EnergyEvent(path, count, each, (low, high), assumed)
