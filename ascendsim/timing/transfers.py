"""Transfers: how the traffic of an instruction spreads over the shared links, and when it has arrived.

Time and pipes are the engine's; this module knows cycles only as numbers that `schedule` takes. The rule by
which flows share a link is that of `links.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.program.instruction import Traffic
from ascendsim.timing.l2.accesses import HIT, Outcome
from ascendsim.timing.links import Flight, Flow, Link, Rate, Sharer, Stream, fixed_rate, fixed_size

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.profile.memory import LinkFigures


class Transfer(NamedTuple):
    """A transfer as the links see it: its flows, and the latency that links add to the path's own."""

    flows: tuple[Flow, ...]
    latency_cycles: int


class Spreading:
    """How traffic spreads over the links of a product; the only place of timing with fractions.

    All transfers of one kind of core, traffic and outcome are one object.
    """

    def __init__(self, profile: Profile, in_pairs: bool) -> None:
        self._links, self._most_fetches = profile.links, profile.l2.most_fetches
        # Of more than two vector cores each has its partner in the same AI core at work, too.
        self._in_pairs = in_pairs
        # By identity, which is faster than comparing fractions; what is known is kept alive, as an identity
        # may be given to another object afterwards.
        self._known: dict[tuple[str, int, int], Transfer] = {}
        self._kept: list[tuple[Traffic, Outcome]] = []

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
        figures, memory = self._links[link], self._links["memory"]
        occupied = max(traffic.bytes, traffic.occupied_bytes)
        # Bytes that flow slower occupy the link, and the core's port, as more bytes would. Not so the path
        # inside the core: its peak is of bytes.
        more, cap = 1 if traffic.in_turn else _slowdown(outcome, figures), self._cap(figures, kind)
        if occupied > traffic.bytes:
            cap = Fraction(cap) * occupied / traffic.bytes
        flows = [_flow(kind, link, figures, occupied * more, cap, traffic.peak_bytes_per_cycle * more)]
        latency = figures.latency_cycles
        # Two flows for what is missed, since two limits hold of different bytes: this core takes in all that
        # it waits for, at its own rate for misses; over the shared link goes only its part of the fetching,
        # as often as that is repeated for cores that miss at one time.
        own = self._cap(memory, kind)
        if outcome.fetched:
            waited = outcome.fetched * outcome.readers * occupied
            flows.append(_flow(kind, "memory", memory, waited, own, crosses=False))
            latency += memory.latency_cycles
        pushed = outcome.pushed_out * traffic.bytes
        if pushed:
            flows.append(_flow(kind, "memory", memory, pushed, own, crosses=False))
        if outcome.uses_memory:
            crossing = outcome.fetched * min(outcome.readers, self._most_fetches) * traffic.bytes + pushed
            flows.append(_flow(kind, "memory", memory, crossing, own))
        return Transfer(tuple(flows), latency)

    def _cap(self, figures: LinkFigures, kind: str) -> Rate:
        """Return what one core of this kind can take of a link."""
        if kind != "vector":
            return figures.per_core_bytes_per_cycle
        return figures.of_a_pair if self._in_pairs else figures.per_vector_core_bytes_per_cycle


class Transfers:
    """The shared links of one phase, as the cores see them.

    `schedule(cycle, call)` calls back in that cycle, which is this one or a later one. `paired`: a program
    covers both vector cores beside its cube core.
    """

    def __init__(
        self,
        profile: Profile,
        cores: Sequence[Sharer],
        schedule: Callable[[int, Callable[[], None]], object],
        paired: bool = False,
    ) -> None:
        self._schedule = schedule
        self._links = {
            name: Link(fixed_rate(figures.total_bytes_per_cycle)) for name, figures in profile.links.items()
        }
        vectors = sum(core.weight for core in cores if core.kind == "vector")
        self.transfer = Spreading(profile, in_pairs=paired or vectors > 2).transfer
        # By cycle: transfers that begin, and flows that end if nothing changes their rate before.
        self._begins: dict[int, list[tuple[Transfer, Flight]]] = {}
        self._ends: dict[int, list[Stream]] = {}
        self._appointed: set[int] = set()

    def send(self, at: int, core: Sharer, pipe: str, transfer: Transfer, arrived: Callable[[], None]) -> None:
        """Let bytes flow from cycle `at` on; call `arrived` in the cycle by which the last has arrived."""
        flight = Flight(core, pipe, len(transfer.flows), arrived)
        self._begins.setdefault(at, []).append((transfer, flight))
        self._appoint(at)

    def _appoint(self, cycle: int) -> None:
        # An event of SimPy cannot be taken back: where an end moves, the old one finds nothing to do.
        if cycle not in self._appointed:
            self._appointed.add(cycle)
            self._schedule(cycle, lambda: self._settle(cycle))

    def _settle(self, now: int) -> None:
        """Do all that happens in a cycle: what ends, what follows from that, what begins, then new rates."""
        arrived: list[Callable[[], None]] = []
        for stream in self._ends.pop(now, ()):
            # Its end may have moved since it was entered here, away or away and back.
            if stream.end == now and stream.left:
                stream.left = 0
                self._links[stream.flow.link].leave(stream)
                stream.flight.under_way -= 1
                if not stream.flight.under_way:
                    arrived.append(stream.flight.arrived)
        # Cores go on here, and may send what begins in this very cycle.
        for call in arrived:
            call()
        for transfer, flight in self._begins.pop(now, ()):
            for flow in transfer.flows:
                self._links[flow.link].join(Stream(flow, flight))
        self._appointed.discard(now)
        # Rates last: nothing more can end in this cycle, as every flow takes at least one.
        for link in self._links.values():
            for stream in link.share(now):
                self._ends.setdefault(stream.end, []).append(stream)
                self._appoint(stream.end)


def link_of(traffic: Traffic) -> str:
    """Return the link between the cores and L2 that a transfer takes."""
    return f"l2_{traffic.direction}"


def _slowdown(outcome: Outcome, figures: LinkFigures) -> Rate:
    """Return how many times as long a transfer takes where several cores read the same lines."""
    if not outcome.together or figures.shared_efficiency >= 1:
        return 1
    # Part of the bytes flows slower, and their times add up.
    return 1 - outcome.together + outcome.together / figures.exact_shared_efficiency


def _flow(
    kind: str,
    link: str,
    figures: LinkFigures,
    size: Rate,
    cap: Rate,
    peak: Rate | None = None,
    *,
    crosses: bool = True,
) -> Flow:
    """Return a flow in fixed point.

    Vector cores may reach another total together than cube cores do. Counted in bytes of cube cores, one
    total serves both.
    """
    part = figures.vector_part if kind == "vector" else 1
    limit = None if peak is None else fixed_rate(peak, part)
    return Flow(link, fixed_size(size, part), fixed_rate(cap, part), limit, crosses)
