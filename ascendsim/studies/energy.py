"""The energy of a kernel as the sum over its events, each with a weight that the product file gives or lacks.

    energy.mac_pj.FORMAT            a multiply-add of the cube
    energy.read_pj_per_byte.LEVEL   a byte that is read at a level of the memory, or written
    energy.vector_pj_per_cycle      a cycle in which a vector unit works
    energy.core_pj_per_cycle        a cycle of a core that has work in the kernel, busy or idle
    energy.leakage_pj_per_cycle     a cycle of the whole chip

Cycles are those of the cube clock. No product that is shipped has any of these figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.studies.accounts import EnergyEvent

if TYPE_CHECKING:
    from ascendsim.ops.results import KernelResult, KernelTraffic
    from ascendsim.profile import Profile


@default_arithmetic
def energy_events(traffic: KernelTraffic, result: KernelResult, profile: Profile) -> tuple[EnergyEvent, ...]:
    """Return the events of a kernel, those without a weight too."""
    return tuple(
        EnergyEvent(path, count, _weight(path, profile)) for path, count in _counts(traffic, result) if count
    )


def _counts(traffic: KernelTraffic, result: KernelResult) -> Iterator[tuple[str, int]]:
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
    yield "energy.leakage_pj_per_cycle", result.cycles


def _weight(path: str, profile: Profile) -> Fraction | None:
    figure = profile.figures.get(path)
    # Through text, since the float 0.1 is no tenth.
    return None if figure is None else Fraction(str(figure.value))
