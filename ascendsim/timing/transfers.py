"""Transfers: how the traffic of an instruction spreads over the shared links, and when it has arrived.

Time and pipes are the engine's; this module knows cycles only as numbers that `schedule` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ascendsim.program.instruction import Traffic
from ascendsim.timing.costing import PricedProgram
from ascendsim.timing.l2.accesses import HIT, Outcome, Outcomes
from ascendsim.timing.links import Flow, Link, Port, Rate

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.profile.memory import LinkFigures

Speed = tuple[int, tuple[Fraction, ...]]


class Transfer:
    """A transfer as the links see it: its flows, and the latency that links add to the path's own.

    All transfers of one traffic and outcome are one object. `speeds` remembers, by the crowd at the port, how
    many cycles such a transfer takes from start to end and at which rates, as long as no core leaves a link.
    """

    __slots__ = ("flows", "latency_cycles", "links", "speeds")

    def __init__(self, flows: tuple[Flow, ...], latency_cycles: int) -> None:
        self.flows = flows
        self.links = tuple(dict.fromkeys(flow.link for flow in flows))
        self.latency_cycles = latency_cycles
        self.speeds: dict[tuple[int, ...], Speed] = {}


class Flight:
    """A transfer under way: its flows' bytes that are left since a cycle, and the event that will end it.

    `left` is None as long as nothing has changed since it began.
    """

    __slots__ = ("arrived", "end", "event", "left", "pipe", "port", "rates", "since", "transfer")

    def __init__(
        self, port: Port, pipe: str, transfer: Transfer, since: int, arrived: Callable[[], None]
    ) -> None:
        self.port = port
        self.pipe = pipe
        self.transfer = transfer
        self.since = since
        self.arrived = arrived
        self.left: Sequence[Rate] | None = None
        self.rates: tuple[Fraction, ...] = ()
        self.end = since
        self.event: object = None


class Transfers:
    """The shared links of one phase, as the cores see them.

    `schedule(cycle, call)` calls back in that cycle and returns a token of the appointment, which it hands to
    `call`; an appointment that was replaced is recognised by its token.
    """

    def __init__(
        self,
        profile: Profile,
        ports: Sequence[Port],
        schedule: Callable[[int, Callable[[Any], None]], object],
    ) -> None:
        self._profile = profile
        self._schedule = schedule
        self._links = {
            name: Link(
                {"cube": figures.total_bytes_per_cycle, "vector": figures.vector_total_bytes_per_cycle},
                sum(port.weight for port in ports if name in port.crowd),
            )
            for name, figures in profile.links.items()
        }
        # Of more than two vector cores each has its partner in the same AI core at work, too.
        self._in_pairs = sum(port.weight for port in ports if port.kind == "vector") > 2
        # By identity, which is faster than comparing fractions; what is known is kept alive, as an identity
        # may be given to another object afterwards.
        self._known: dict[tuple[str, int, int], Transfer] = {}
        self._kept: list[tuple[Traffic, Outcome]] = []
        # A dict keeps the order in which flights began, so that equal runs are equal event by event.
        self._flights: dict[Flight, None] = {}

    def transfer(self, kind: str, traffic: Traffic, outcome: Outcome = HIT) -> Transfer:
        """Return how the traffic of a core of this kind spreads over the links."""
        key = kind, id(traffic), id(outcome)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._spread(kind, traffic, outcome)
            self._kept.append((traffic, outcome))
        return known

    def _spread(self, kind: str, traffic: Traffic, outcome: Outcome) -> Transfer:
        """Spread traffic over the links.

        Every byte passes L2. What is not there comes over main memory at the same time. The core waits for
        all of it, at its own rate for misses and with the memory's latency, but bytes for which several cores
        wait cross the link once. Dirty bytes that have to make room go out over the same link.
        """
        link = link_of(traffic)
        figures, memory = self._profile.links[link], self._profile.links["memory"]
        occupied = max(traffic.bytes, traffic.occupied_bytes)
        efficiency: Rate = 1
        if outcome.together and figures.shared_efficiency < 1:
            # Part of the bytes flows slower, and their times add up: a harmonic mean.
            slower = outcome.together / Fraction(str(figures.shared_efficiency))
            efficiency = 1 / (1 - outcome.together + slower)
        # What a core can take is a rate of bytes; the link is shared by how much of it they occupy.
        cap = self._cap(figures, kind)
        if occupied > traffic.bytes:
            cap *= Fraction(occupied, traffic.bytes)
        flows = [Flow(link, occupied, traffic.peak_bytes_per_cycle, cap, efficiency)]
        latency = figures.latency_cycles
        # Two flows for what is missed, since two limits hold of different bytes: this core takes in all that
        # it waits for, at its own rate for misses; over the shared link goes only its part of the fetching.
        if outcome.fetched:
            waited = outcome.fetched * outcome.readers * occupied
            flows.append(Flow("memory", waited, cap=self._cap(memory, kind), crosses=False))
            latency += memory.latency_cycles
        pushed = outcome.pushed_out * traffic.bytes
        if pushed:
            flows.append(Flow("memory", pushed, cap=self._cap(memory, kind), crosses=False))
        if outcome.uses_memory:
            flows.append(Flow("memory", outcome.fetched * traffic.bytes + pushed))
        return Transfer(tuple(flows), latency)

    def _cap(self, figures: LinkFigures, kind: str) -> Rate:
        """Return what one core of this kind can take of a link."""
        if kind != "vector":
            return figures.per_core_bytes_per_cycle
        pair = figures.per_vector_pair_bytes_per_cycle
        alone = figures.per_vector_core_bytes_per_cycle
        return min(alone, Fraction(pair) / 2) if pair and self._in_pairs else alone

    def send(self, at: int, port: Port, pipe: str, transfer: Transfer, arrived: Callable[[], None]) -> None:
        """Let bytes flow from cycle `at` on; call `arrived` in the cycle by which the last has arrived."""
        flight = Flight(port, pipe, transfer, at, arrived)
        self._flights[flight] = None
        self._appoint(flight)

    def _appoint(self, flight: Flight) -> None:
        """Find out when a transfer will have arrived if no core leaves a link before."""
        # Whole transfers of one kind take equally long, so their cycles are looked up; fractions are slow.
        transfer, crowd = flight.transfer, flight.port.crowd
        key = tuple([crowd[link] for link in transfer.links])
        speed = transfer.speeds.get(key)
        if speed is None:
            speed = transfer.speeds[key] = self._speed(transfer, flight.port)
        cycles, flight.rates = speed
        if flight.left is not None:
            cycles = _cycles(flight.left, flight.rates)
        # A new event only if the end moves. An event of SimPy cannot be taken back; the old one will fire,
        # and `_arrive` knows by its token that it is not meant.
        if flight.event is None or flight.since + cycles != flight.end:
            flight.end = flight.since + cycles
            flight.event = self._schedule(flight.end, lambda event: self._arrive(flight, event))

    def _speed(self, transfer: Transfer, port: Port) -> Speed:
        rates = tuple(self._links[flow.link].rate(port, flow) for flow in transfer.flows)
        return _cycles([flow.bytes for flow in transfer.flows], rates), rates

    def _arrive(self, flight: Flight, event: object) -> None:
        """End a transfer, unless its appointment was replaced."""
        if event is not flight.event:
            return
        del self._flights[flight]
        port = flight.port
        # Only who is done with a link for good makes room there: that is the rule of `links.py`.
        changed = False
        for name in flight.transfer.links:
            if port.arrived(flight.pipe, name):
                changed = True
                if name not in port.crowd:
                    self._links[name].cores -= port.weight
        if changed:
            self._resettle(flight.end)
        flight.arrived()

    def _resettle(self, now: int) -> None:
        """Give every transfer under way its new rates from this cycle on."""
        # Their ends were reckoned with the old rates. A pipe or a core has left a link, so some rates have
        # grown and some ends are too late; what has flowed so far stays flowed. Nothing else changes rates,
        # so between two such cycles nobody needs to look at the links.
        for transfer in self._known.values():
            transfer.speeds.clear()
        for flight in self._flights:
            # Sent ahead of time (`send` of a later cycle) it has moved nothing yet and keeps its begin.
            elapsed = now - flight.since
            if elapsed > 0:
                left = flight.left or [flow.bytes for flow in flight.transfer.flows]
                gone = [rate * elapsed for rate in flight.rates]
                flight.left = [size - min(size, part) for size, part in zip(left, gone, strict=True)]
                flight.since = now
            self._appoint(flight)


def link_of(traffic: Traffic) -> str:
    """Return the link between the cores and L2 that a transfer takes."""
    return f"l2_{traffic.direction}"


def _cycles(sizes: Sequence[Rate], rates: Sequence[Fraction]) -> int:
    """Return the whole cycles until the last flow is through."""
    # The flows go at the same time. In integers, as exact rates make no rounding that could build up or
    # decide a tie between cores one way on one machine and another way on the next.
    return max(
        -(-size.numerator * rate.denominator // (size.denominator * rate.numerator))
        for size, rate in zip(sizes, rates, strict=True)
    )


def moves_of(priced: PricedProgram, outcomes: Outcomes) -> dict[tuple[str, str], int]:
    """Return how often each (pipe, link) occurs in a program."""
    moves: dict[tuple[str, str], int] = {}
    for (pipe, traffic), count in priced.traffic.items():
        place = pipe, link_of(traffic)
        moves[place] = moves.get(place, 0) + count
    for index, outcome in outcomes.items():
        if outcome.uses_memory:
            place = priced.pipes[index], "memory"
            moves[place] = moves.get(place, 0) + 1
    return moves
