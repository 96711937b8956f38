"""A link that many cores share, in one phase.

**The rule.** Every core that still has bytes to move over the link in this phase has an equal part of it,
whether it is moving them at the moment or not; a core whose last byte has gone leaves its part to the others.
Inside a core the same holds between pipes. A flow goes at what its core has of the link, or at its own peak.

Why not share the link among those that use it at the moment? Because then no rule keeps the promise that a
faster figure never costs cycles. Let core A read and then compute for long, and let core B read later. If B
becomes faster, its read comes in the way of A's, and whoever yields has the longer tail in one of the two
orders: so it is with every rule that uses the whole link at all times and does not know what comes. Under the
rule here what a core gets depends on the others only through when they have finished:

    If every transfer that has ended by cycle t under the slower figures has ended by t under the faster
    ones, then no more cores share any link at t, so every rate is at least as high from t on, and the
    transfers that end next end no later. Starts are sums and maxima of ends. So by induction nothing ever
    happens later.

What the rule gives up: a core that streams while others only compute gets its equal part of the link, not
more. Equal cores that run in step, which is what schedules make, do not notice: they share equally anyway.

Rates are exact: cores leave on whole cycles, so a rate is a fraction that holds for whole cycles.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

Rate = int | Fraction
# (pipe, link) -> transfers that a core still has to make there.
Moves = Mapping[tuple[str, str], int]


class Flow(NamedTuple):
    """Part of a transfer on one link.

    It is no faster than its own `peak`, nor than what the core has: its `cap`, and `efficiency` of its part
    of the link. A flow that does not cross the link is only what the core has to do for it. None: no limit.
    """

    link: str
    bytes: Rate
    peak: Rate | None = None
    cap: Rate | None = None
    efficiency: Rate = 1
    crosses: bool = True


class Port:
    """The transfers that a core (or `weight` equal ones) of one kind still has to make, by link and pipe.

    `crowd` is how many pipes still use each link; a link that is done with is gone from it.
    """

    __slots__ = ("_left", "crowd", "kind", "weight")

    def __init__(self, kind: str, weight: int, moves: Moves) -> None:
        self.kind = kind
        self.weight = weight
        # Transfers are counted and not bytes: who has any left keeps its part, however little that is.
        self._left = {place: count for place, count in moves.items() if count}
        self.crowd: dict[str, int] = {}
        for _, link in self._left:
            self.crowd[link] = self.crowd.get(link, 0) + 1

    def arrived(self, pipe: str, link: str) -> bool:
        """Count a transfer as made; tell whether it was the last of this pipe on this link."""
        place = pipe, link
        self._left[place] -= 1
        if self._left[place]:
            return False
        del self._left[place]
        self.crowd[link] -= 1
        if not self.crowd[link]:
            del self.crowd[link]
        return True


class Link:
    """The state of a link in one phase: how many `cores` still have bytes to move over it.

    `totals` are bytes per cycle of the whole chip, by kind of core: what cube cores reach together may differ
    from what vector cores do.
    """

    __slots__ = ("_totals", "cores")

    def __init__(self, totals: Mapping[str, Rate], cores: int) -> None:
        self._totals = totals
        self.cores = cores

    def rate(self, port: Port, flow: Flow) -> Fraction:
        """Return the rate of one flow."""
        part = Fraction(self._totals[port.kind]) * flow.efficiency / self.cores
        # Bytes that another core fetches for this one as well cross the link there; here they only arrive.
        limits = [part] if flow.crosses else []
        if flow.cap is not None:
            limits.append(Fraction(flow.cap))
        # Pipes share what the core has, its cap included: it is one port. A peak is of one pipe alone.
        rate = min(limits) / port.crowd[flow.link]
        return rate if flow.peak is None or flow.peak > rate else Fraction(flow.peak)
