"""The energy of a kernel as the sum over its events, each with a weight that the product file gives or lacks.

    energy.mac_pj.FORMAT            a multiply-add of the cube
    energy.read_pj_per_byte.LEVEL   a byte that is read at a level of the memory, or written
    energy.vector_pj_per_cycle      a cycle in which a vector unit works
    energy.core_pj_per_cycle        a cycle of a core that has work in the kernel, busy or idle
    energy.leakage_pj_per_cycle     a cycle of the whole chip

Cycles are those of the cube clock. No product that is shipped has any of these figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.program.places import bare

if TYPE_CHECKING:
    from ascendsim.ops.results import KernelResult
    from ascendsim.profile import Profile
    from ascendsim.studies.traffic import KernelTraffic


class EnergyEvent(NamedTuple):
    """One kind of event: the path of the figure that weighs it, how many there are, picojoules of each.

    each_pj  as the product file writes it, exactly; None where the file does not say
    """

    figure: str
    count: int
    each_pj: Fraction | None

    @property
    def energy_pj(self) -> Fraction | None:
        """Picojoules of all of them."""
        return None if self.each_pj is None else self.count * self.each_pj


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
        len(work.cores) * cycles for work in works for pipe, cycles in work.busy.items() if bare(pipe) == "V"
    )
    yield "energy.vector_pj_per_cycle", busy
    yield "energy.core_pj_per_cycle", result.cores_used * result.cycles
    yield "energy.leakage_pj_per_cycle", result.cycles


def _weight(path: str, profile: Profile) -> Fraction | None:
    figure = profile.figures.get(path)
    # Through text, since the float 0.1 is no tenth.
    return None if figure is None else Fraction(str(figure.value))


def added(events: Iterable[EnergyEvent]) -> tuple[EnergyEvent, ...]:
    """Return events with those of one figure added up."""
    found: dict[str, EnergyEvent] = {}
    for event in events:
        before = found[event.figure].count if event.figure in found else 0
        found[event.figure] = event._replace(count=before + event.count)
    return tuple(found.values())


def energy_pj(events: Iterable[EnergyEvent]) -> Fraction | None:
    """Return the picojoules of all events that have a weight; None where none has one."""
    known = [energy for event in events if (energy := event.energy_pj) is not None]
    return sum(known, Fraction(0)) if known else None


def lacking(events: Iterable[EnergyEvent]) -> tuple[str, ...]:
    """Return the figures that the product file does not give, without which an energy is only a part."""
    return tuple(dict.fromkeys(event.figure for event in events if event.each_pj is None))
