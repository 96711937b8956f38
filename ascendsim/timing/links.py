"""A link that many cores share, in one phase: the rule, in integers.

This text is the definition: whoever computes the same integers from it has the same cycles.

**Fixed point.** Sizes are integers in units of 2^-20 byte, rates in such units per cycle: a size is rounded
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
from typing import NamedTuple

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


class Stream:
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
        """Flow at this rate from now on; tell whether that moves the end."""
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
        self._streams: dict[Sharer, list[Stream]] = {}
        self._demands: dict[Sharer, int] = {}
        self._changed: dict[Sharer, None] = {}
        self._asked = 0
        self._fits = True

    def join(self, stream: Stream) -> None:
        """Let a flow begin; its rate follows from `share`."""
        self._streams.setdefault(stream.flight.core, []).append(stream)
        self._changed[stream.flight.core] = None

    def leave(self, stream: Stream) -> None:
        """Take out a flow that is through."""
        self._streams[stream.flight.core].remove(stream)
        self._changed[stream.flight.core] = None

    def share(self, now: int) -> list[Stream]:
        """Give every flow its rate from this cycle on; return those whose end has moved."""
        for core in self._changed:
            self._ask(core)
        fits = self._asked <= self.total
        # As long as everybody has what it asks for, who did not change keeps its rates: nobody needs to look.
        among = list(self._changed if fits and self._fits else self._streams)
        level = None if fits else water_level(self.total, self._weighted())
        self._changed.clear()
        self._fits = fits
        moved: list[Stream] = []
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
