"""The answers of `study traffic` and `study why`: plain records, and sums of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import log
from pathlib import Path
from typing import Any, NamedTuple

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.results import KernelTraffic
from ascendsim.profile.voltage import Supply
from ascendsim.studies.hardware.records import StudiedLayer
from ascendsim.studies.records import StudyAnswer

# As many figures as a terminal shows, each of which is also made better.
SHOWN = 10


class EnergyEvent(NamedTuple):
    """One kind of event: the path of the figure that weighs it, how many there are, picojoules of each.

    each_pj  as the product file writes it, at the voltage of the product, exactly; None where it does not say
    ends_pj  the ends of its range, which an assumed figure has; both `each_pj` where it has none
    assumed  whether nobody published or measured it, or the voltage by which it is scaled
    """

    figure: str
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    each_pj: Fraction | None
    ends_pj: tuple[Fraction, Fraction] | None = None
    assumed: bool = False

    @property
    def energy_pj(self) -> Fraction | None:
        """Picojoules of all of them."""
        return None if self.each_pj is None else self.count * self.each_pj


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


def energy_between(events: Iterable[EnergyEvent]) -> tuple[Fraction, Fraction] | None:
    """Return the least and the most of `energy_pj`: all figures at lower, or upper, ends of ranges."""
    known = [(event.count, event.ends_pj) for event in events if event.ends_pj is not None]
    low, high = (sum((count * ends[at] for count, ends in known), Fraction(0)) for at in (0, 1))
    return (low, high) if known else None


def lacking(events: Iterable[EnergyEvent]) -> tuple[str, ...]:
    """Return the figures that the product file does not give, without which an energy is only a part."""
    return tuple(dict.fromkeys(event.figure for event in events if event.each_pj is None))


class CallTraffic(NamedTuple):
    """The kernels of a layer's call, which comes `count` times: their bytes, times, and events of energy."""

    layer: str
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    kernels: tuple[KernelTraffic, ...]
    times_us: tuple[float, ...]
    events: tuple[tuple[EnergyEvent, ...], ...]


@dataclass(frozen=True, slots=True)
class TrafficQuestion:
    """Layers on one product.

    title    what the layers are, for people
    product  name of a product or variant, or path of its file
    """

    title: str
    product: str | Path
    layers: tuple[StudiedLayer, ...]


@dataclass(frozen=True, slots=True)
class TrafficAnswer(StudyAnswer):
    """The bytes and the energy of all calls, layer by layer; `supply` as of `supply_of`."""

    calls: tuple[CallTraffic, ...]
    supply: Supply | None = None

    @property
    @default_arithmetic
    def time_us(self) -> float:
        """Microseconds of all calls."""
        return sum(call.count * sum(call.times_us) for call in self.calls)

    @property
    def events(self) -> tuple[EnergyEvent, ...]:
        """The events of all calls, those of one figure added up."""
        every = [
            event._replace(count=call.count * event.count)
            for call in self.calls
            for own in call.events
            for event in own
        ]
        return added(every)

    def at(self, level: str) -> tuple[int, int]:
        """Return the bytes that all calls read and write at a level."""
        pairs = [(call.count, kernel.at(level)) for call in self.calls for kernel in call.kernels]
        return sum(n * read for n, (read, _) in pairs), sum(n * written for n, (_, written) in pairs)


class Lever(NamedTuple):
    """The time of a call with one figure changed.

    value, stepped   of the figure as the product has it, and as it was changed; better: as `better_us` has it
    usual_us         microseconds of the call as it is
    stepped_us       with the changed figure; None where plans or other figures do not allow it
    kernels_us       by kernel what the change adds, where it adds or saves anything
    better_us        with the figure moved the way that saves; None where nobody asked or it cannot be
    """

    figure: str
    value: Any
    stepped: Any
    usual_us: float
    stepped_us: float | None
    kernels_us: Mapping[str, float]
    better: Any = None
    better_us: float | None = None

    @property
    @default_arithmetic
    def share(self) -> float | None:
        """The part of the time that the changed figure adds; below 0 where it saves."""
        return None if self.stepped_us is None else self.stepped_us / self.usual_us - 1

    @property
    @default_arithmetic
    def elasticity(self) -> float | None:
        """Per cent of time for each per cent of the figure, over the step; None from or to 0."""
        if self.stepped_us is None or not self.value or not self.stepped:
            return None
        return log(self.stepped_us / self.usual_us) / log(self.stepped / self.value)

    @property
    @default_arithmetic
    def saves(self) -> float | None:
        """The part of the time that the better figure saves."""
        return None if self.better_us is None else 1 - self.better_us / self.usual_us


class KernelBound(NamedTuple):
    """What binds a kernel, and what would bind it next.

    busy       part of the cycles in which the bound, its busiest pipe, works
    behind     the bound once that pipe is 16 times as fast; `behind_us` the time then; None: it cannot be
    """

    kernel: str
    layout: bool
    time_us: float
    launch_us: float
    bound: str
    busy: float
    behind: str
    behind_us: float | None

    @property
    @default_arithmetic
    def saves(self) -> float | None:
        """The part of the time that the faster pipe saves."""
        return None if self.behind_us is None else 1 - self.behind_us / self.time_us


@dataclass(frozen=True, slots=True)
class LeverQuestion:
    """One call on one product; `product` is a name or the path of a file."""

    title: str
    product: str | Path


@dataclass(frozen=True, slots=True)
class LeverAnswer(StudyAnswer):
    """The levers of a call, the largest first, and the bounds of its kernels in their order.

    still   figures that were changed and move nothing
    refused figures with which the call cannot be timed under its plans
    """

    time_us: float
    levers: tuple[Lever, ...]
    bounds: tuple[KernelBound, ...]

    @property
    def still(self) -> tuple[str, ...]:
        """Figures that change no kernel's time."""
        return tuple(one.figure for one in self.levers if one.stepped_us is not None and not one.kernels_us)

    @property
    def refused(self) -> tuple[str, ...]:
        """Figures whose change the plans or other figures do not allow."""
        return tuple(one.figure for one in self.levers if one.stepped_us is None)

    @property
    @default_arithmetic
    def launch_us(self) -> float:
        """Microseconds of all launches."""
        return sum(bound.launch_us for bound in self.bounds)

    @property
    @default_arithmetic
    def layout_us(self) -> float:
        """Microseconds of kernels that change layouts, without their launches."""
        return sum(bound.time_us - bound.launch_us for bound in self.bounds if bound.layout)
