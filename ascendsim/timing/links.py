"""A link that many cores share, in one phase: the rule, in integers.

This text is the definition: whoever computes the same integers from it has the same cycles.

**Fixed point.** Sizes are integers in units of 2^-20 byte, rates in these units per cycle: a size is rounded
up, a rate down, and is at least 1 (`fixed_size`, `fixed_rate`). Where a transfer is made there may be
fractions; below there are none.

**Flows.** A transfer is one or more flows, each over one link, and ends with the last of them. A flow has a
size, a `cap` (what one core can take of the link) and maybe a `peak` (what the pipe itself can do). One that
does not cross is work of the core alone: it takes nothing of the link.

**Rates.** A flow is active from the cycle in which it begins until it has no bytes left. In every cycle, on
every link:

1. p is the number of pipes of a core with active flows on the link, crossing or not; a pipe counts once.
   A flow's limit is min(peak, cap // p), or cap // p without a peak: pipes share the port of their core, and
   only while more than one of them moves.
2. A flow that does not cross goes at its limit.
3. The demand of a core is the sum of the limits of its crossing flows. A core that stands for `weight` equal
   ones has the demand of one. Let D be the demands. If sum(weight * D) over all cores is at most the link's
   total, every crossing flow goes at its limit.
4. Otherwise the link is shared max-min. With `remaining` the total and `weights` the sum of the weights:
   level = remaining // weights; every core with D <= level has what it asks for, and leaves (remaining
   -= weight * D, weights -= weight); repeat with those that are left until nobody leaves. Each of them has
   the last level as its part.
5. A core whose demand is above the level shares its part among its crossing flows by the same steps, each
   with a weight of 1.
6. No rate is below 1.

So equal cores have equal rates, one by one or folded into one of their weight.

**Ends.** A flow moves rate * cycles; with `left` units left since a cycle its end is
since + ceil(left / rate). It gives its share back from that cycle on. All that ends or begins in one cycle
does so before rates are found again, so the order of events within a cycle shows nowhere.

**What this promises.** A link that is asked for more than its total is used fully, but for what floors lose:
less than one unit a cycle for each core that shares it, by weight. A faster figure never costs cycles where
nothing is shared: no link is asked for more than its total, and no two pipes of a core use one link.
Elsewhere it can: let core A read and then compute for long, let core B read later, and make B faster, so that
both reads meet. `docs/timing.md` says by how much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.program.instruction import Traffic
from ascendsim.timing.l2.phase import HIT, L2Outcome

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.profile.memory import LinkFigures


Rate = int | Fraction
# Units of size in one byte.
SCALE = 1 << 20


def fixed_size(size: Rate, times: Rate = 1) -> int:
    """Return a number of bytes in fixed point, `times` as many, rounded up."""
    # In integers: a product of fractions is first brought to its lowest terms, which takes longer.
    return -(-size.numerator * times.numerator * SCALE // (size.denominator * times.denominator))


def fixed_rate(rate: Rate, times: Rate = 1) -> int:
    """Return a number of bytes per cycle in fixed point, `times` as many, rounded down but at least 1."""
    return max(1, rate.numerator * times.numerator * SCALE // (rate.denominator * times.denominator))


class Flow(NamedTuple):
    """Part of a transfer on one link, in fixed point; `peak` None: the pipe itself sets no limit."""

    link: str
    size: int
    cap: int
    peak: int | None = None
    crosses: bool = True


class Sharer:
    """A core of one kind, or `weight` equal ones, as the links see it."""

    __slots__ = ("kind", "weight")

    def __init__(self, kind: str, weight: int) -> None:
        self.kind = kind
        self.weight = weight


class Flight:
    """A transfer under way: how many of its flows have not ended; `arrived` is called after the last."""

    __slots__ = ("arrived", "core", "pipe", "under_way")

    def __init__(self, core: Sharer, pipe: str, under_way: int, arrived: Callable[[], None]) -> None:
        self.core = core
        self.pipe = pipe
        self.under_way = under_way
        self.arrived = arrived


class RunningFlow:
    """A flow under way: what is left of it since a cycle, its rate from then on, and its end.

    `limit` is that of rule 1.
    """

    __slots__ = ("end", "flight", "flow", "left", "limit", "rate", "since")

    def __init__(self, flow: Flow, flight: Flight) -> None:
        self.flow = flow
        self.flight = flight
        self.left = flow.size
        # It has no rate before it is first shared, so until then nothing flows.
        self.limit = self.rate = self.since = 0
        self.end = -1

    def go(self, now: int, rate: int) -> bool:
        """Flow at this rate from now on; return whether this moves the end."""
        # With an unchanged rate the end stays to the cycle: what is left falls by whole rates.
        if rate == self.rate:
            return False
        self.left -= self.rate * (now - self.since)
        self.since, self.rate = now, rate
        before, self.end = self.end, now + -(-self.left // rate)
        return self.end != before


class Link:
    """The active flows on one link, with its total rate in fixed point."""

    __slots__ = ("_asked", "_changed", "_demands", "_fits", "_streams", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        # Dicts and not sets: they keep their order, so equal runs are equal step by step.
        self._streams: dict[Sharer, list[RunningFlow]] = {}
        self._demands: dict[Sharer, int] = {}
        self._changed: dict[Sharer, None] = {}
        self._asked = 0
        self._fits = True

    def join(self, stream: RunningFlow) -> None:
        """Let a flow begin; its rate follows from `share`."""
        self._streams.setdefault(stream.flight.core, []).append(stream)
        self._changed[stream.flight.core] = None

    def leave(self, stream: RunningFlow) -> None:
        """Take out a flow that is through."""
        self._streams[stream.flight.core].remove(stream)
        self._changed[stream.flight.core] = None

    def share(self, now: int) -> list[RunningFlow]:
        """Give every flow its rate from this cycle on; return those whose end has moved."""
        for core in self._changed:
            self._ask(core)
        fits = self._asked <= self.total
        # As long as everybody has what it asks for, who did not change keeps its rates: nobody needs to look.
        among = list(self._changed if fits and self._fits else self._streams)
        level = None if fits else water_level(self.total, self._weighted())
        self._changed.clear()
        self._fits = fits
        moved: list[RunningFlow] = []
        for core in among:
            streams = self._streams.get(core, ())
            if level is None or self._demands[core] <= level:
                moved += [stream for stream in streams if stream.go(now, max(1, stream.limit))]
                continue
            # Rule 5: within the core its own flows share what the core has.
            mine = water_level(level, [(1, stream.limit) for stream in streams if stream.flow.crosses])
            for stream in streams:
                rate = min(stream.limit, mine) if stream.flow.crosses else stream.limit
                if stream.go(now, max(1, rate)):
                    moved.append(stream)
        return moved

    def _ask(self, core: Sharer) -> None:
        """Find the limits and the demand of a core whose flows have changed (rules 1 and 3)."""
        self._asked -= core.weight * self._demands.pop(core, 0)
        streams = self._streams[core]
        if not streams:
            del self._streams[core]
            return
        pipes = len({stream.flight.pipe for stream in streams}) if len(streams) > 1 else 1
        demand = 0
        for stream in streams:
            flow = stream.flow
            limit = flow.cap // pipes
            stream.limit = limit if flow.peak is None or flow.peak > limit else flow.peak
            if flow.crosses:
                demand += stream.limit
        self._demands[core] = demand
        self._asked += core.weight * demand

    def _weighted(self) -> list[tuple[int, int]]:
        # A core of which nothing crosses asks for nothing and has no part.
        return [(core.weight, demand) for core, demand in self._demands.items() if demand]


def water_level(total: int, demands: Sequence[tuple[int, int]]) -> int:
    """Return the level up to which (weight, demand)s are met from a total (rule 4).

    Only for demands that exceed the total together; so somebody is always above the level.
    """
    remaining, waiting = total, demands
    weights = sum(weight for weight, _ in waiting)
    while True:
        level = remaining // weights
        above = [(weight, demand) for weight, demand in waiting if demand > level]
        if len(above) == len(waiting):
            return level
        for weight, demand in waiting:
            if demand <= level:
                remaining -= weight * demand
                weights -= weight
        waiting = above


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
        self._kept: list[tuple[Traffic, L2Outcome]] = []

    def transfer(self, kind: str, traffic: Traffic, outcome: L2Outcome = HIT) -> Transfer:
        """Return how the traffic of a core of this kind spreads over the links."""
        key = kind, id(traffic), id(outcome)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._spread(kind, traffic, outcome)
            self._kept.append((traffic, outcome))
        return known

    def _spread(self, kind: str, traffic: Traffic, outcome: L2Outcome) -> Transfer:
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
        """Return the bytes per cycle that one core of a kind can take from a link."""
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
        self._ends: dict[int, list[RunningFlow]] = {}
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
                self._links[flow.link].join(RunningFlow(flow, flight))
        self._appointed.discard(now)
        # Rates last: nothing more can end in this cycle, as every flow takes at least one.
        for link in self._links.values():
            for stream in link.share(now):
                self._ends.setdefault(stream.end, []).append(stream)
                self._appoint(stream.end)


def link_of(traffic: Traffic) -> str:
    """Return the link between the cores and L2 that a transfer takes."""
    return f"l2_{traffic.direction}"


def _slowdown(outcome: L2Outcome, figures: LinkFigures) -> Rate:
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
