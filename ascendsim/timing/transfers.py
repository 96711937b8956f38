"""How the traffic of an instruction spreads over the shared links, and when it has arrived."""

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
    """How a piece of traffic spreads over the links, and the latency that these add to the path's own.

    `speeds` remembers, by the crowd at the port, how many cycles it takes from start to end and at which
    rates, as long as no core leaves a link.
    """

    __slots__ = ("flows", "latency_cycles", "links", "speeds")

    def __init__(self, flows: tuple[Flow, ...], latency_cycles: int) -> None:
        self.flows = flows
        self.links = tuple(dict.fromkeys(flow.link for flow in flows))
        self.latency_cycles = latency_cycles
        self.speeds: dict[tuple[int, ...], Speed] = {}


class Flight:
    """A transfer under way: what is left of its flows since a cycle, and the event that will end it."""

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
        # By identity, which is faster than comparing fractions; what is known is kept alive.
        self._known: dict[tuple[str, int, int], Transfer] = {}
        self._kept: list[tuple[Traffic, Outcome]] = []
        self._retargeted: dict[Flight, None] = {}

    def transfer(self, kind: str, traffic: Traffic, outcome: Outcome = HIT) -> Transfer:
        """Return how the traffic of a core of this kind spreads."""
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
            slower = outcome.together / Fraction(str(figures.shared_efficiency))
            efficiency = 1 / (1 - outcome.together + slower)
        # What a core can take is a rate of bytes; the link is shared by how much of it they occupy.
        cap = self._cap(figures, kind)
        if occupied > traffic.bytes:
            cap *= Fraction(occupied, traffic.bytes)
        flows = [Flow(link, occupied, traffic.peak_bytes_per_cycle, cap, efficiency)]
        latency = figures.latency_cycles
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
        moving = Flight(port, pipe, transfer, at, arrived)
        self._retargeted[moving] = None
        self._appoint(moving)

    def _appoint(self, moving: Flight) -> None:
        """Find out when a transfer will have arrived if no core leaves a link before."""
        transfer, crowd = moving.transfer, moving.port.crowd
        key = tuple([crowd[link] for link in transfer.links])
        speed = transfer.speeds.get(key)
        if speed is None:
            speed = transfer.speeds[key] = self._speed(transfer, moving.port)
        cycles, moving.rates = speed
        if moving.left is not None:
            cycles = _cycles(moving.left, moving.rates)
        if moving.event is None or moving.since + cycles != moving.end:
            moving.end = moving.since + cycles
            moving.event = self._schedule(moving.end, lambda event: self._arrive(moving, event))

    def _speed(self, transfer: Transfer, port: Port) -> Speed:
        rates = tuple(self._links[flow.link].rate(port, flow) for flow in transfer.flows)
        return _cycles([flow.bytes for flow in transfer.flows], rates), rates

    def _arrive(self, moving: Flight, event: object) -> None:
        """End a transfer, unless its appointment was replaced."""
        if event is not moving.event:
            return
        del self._retargeted[moving]
        port = moving.port
        changed = False
        for name in moving.transfer.links:
            if port.arrived(moving.pipe, name):
                changed = True
                if name not in port.crowd:
                    self._links[name].cores -= port.weight
        if changed:
            self._resettle(moving.end)
        moving.arrived()

    def _resettle(self, now: int) -> None:
        """Give every transfer under way its new rates from this cycle on."""
        for transfer in self._known.values():
            transfer.speeds.clear()
        for moving in self._retargeted:
            elapsed = now - moving.since
            if elapsed > 0:
                left = moving.left or [flow.bytes for flow in moving.transfer.flows]
                gone = [rate * elapsed for rate in moving.rates]
                moving.left = [size - min(size, part) for size, part in zip(left, gone, strict=True)]
                moving.since = now
            self._appoint(moving)


def link_of(traffic: Traffic) -> str:
    """Return the link between the cores and L2 that a piece of traffic takes."""
    return "l2_read" if traffic.kind == "read" else "l2_write"


def _cycles(sizes: Sequence[Rate], rates: Sequence[Fraction]) -> int:
    """Return the whole cycles until the last flow is through."""
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
