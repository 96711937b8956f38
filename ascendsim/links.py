"""Links that many cores share, with an exact fair share.

A `Link` moves the bytes of its flows at a total rate of so many bytes per cycle. No flow goes faster than
its own cap; what the caps leave over is shared equally (max-min fairness, also called water filling): every
flow gets the same level, or its cap where that is lower, and the levels use up the total.

Three decisions keep this exact and fast.

- **Whole cycles.** Flows join and leave on whole cycles, a flow at the first cycle by which its last byte
  has gone. So shares change on whole cycles only, and all that joins or leaves in one cycle is taken
  together, in one settlement after everything else that happens in that cycle. The order inside a cycle
  cannot matter.
- **Virtual service.** Flows of one cap always have one rate, so a class of flows counts what each of them
  has been served; a flow leaves when the count has grown by its bytes. One addition per class replaces one
  per flow.
- **Integers.** Service is counted in units of 1/scale byte. When a share comes up that the scale cannot
  express, the scale grows by the missing factor and every count with it. Nothing is ever rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import gcd, lcm
from typing import Any

from simpy import Environment, Event
from simpy.events import EventPriority

Rate = int | Fraction

# Settlement comes after everything of normal priority (1) in the same cycle.
_LAST = EventPriority(2)


class _Class:
    """Flows of one cap. All rates and counts are in units of 1/scale byte."""

    __slots__ = ("cap", "flows", "rate", "served", "weight")

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.rate = 0
        self.served = 0
        self.weight = 0
        # Heap of (count at which it leaves, number, weight, whom to tell).
        self.flows: list[tuple[int, int, int, Callable[[], None]]] = []


class Link:
    """One shared link under a SimPy environment whose time is in whole cycles."""

    def __init__(self, env: Environment, total_bytes_per_cycle: Rate) -> None:
        total = Fraction(total_bytes_per_cycle)
        self._env = env
        self._scale = total.denominator
        self._total = total.numerator
        self._classes: dict[Rate, _Class] = {}
        self._since: int = int(env.now)
        self._number = 0
        self._settling = False
        self._wake: Event | None = None

    def send(self, size_bytes: int, cap: Rate, weight: int, finished: Callable[[], None]) -> None:
        """Start `weight` equal flows now and call `finished` in the cycle in which they have ended.

        Shapes   `size_bytes` (of each flow) at least 1; `cap` in bytes per cycle
        """
        group = self._classes.get(cap) or self._open(cap)
        self._advance()
        self._number += 1
        heappush(group.flows, (group.served + size_bytes * self._scale, self._number, weight, finished))
        group.weight += weight
        self._unsettle()

    def _open(self, cap: Rate) -> _Class:
        """Make the class of a cap that is seen for the first time."""
        fraction = Fraction(cap)
        self._grow(lcm(self._scale, fraction.denominator) // self._scale)
        group = self._classes[cap] = _Class(int(fraction * self._scale))
        return group

    def _grow(self, factor: int) -> None:
        """Multiply the scale, so that shares with a new divisor are whole numbers."""
        if factor == 1:
            return
        self._scale *= factor
        self._total *= factor
        for group in self._classes.values():
            group.cap *= factor
            group.rate *= factor
            group.served *= factor
            group.flows = [(leave * factor, n, w, call) for leave, n, w, call in group.flows]
            heapify(group.flows)

    def _advance(self) -> None:
        """Count the service up to now at the rates of the last settlement."""
        now = int(self._env.now)
        elapsed = now - self._since
        if elapsed:
            for group in self._classes.values():
                group.served += group.rate * elapsed
            self._since = now

    def _unsettle(self) -> None:
        """Ask for one settlement at the end of this cycle."""
        if not self._settling:
            self._settling = True
            self._at(0, self._settle, _LAST)

    def _at(self, delay: int, call: Callable[[Event], Any], priority: EventPriority) -> Event:
        """Schedule a bare event; cheaper than a process or a `Timeout`."""
        event = Event(self._env)
        event._ok = True
        event._value = None
        assert event.callbacks is not None
        event.callbacks.append(call)
        self._env.schedule(event, priority, delay)
        return event

    def _settle(self, _: Event) -> None:
        """Share the link out anew and set the alarm for the next flow that leaves."""
        self._settling = False
        self._share()
        delays = [
            -((group.served - group.flows[0][0]) // group.rate)
            for group in self._classes.values()
            if group.flows
        ]
        self._wake = self._at(min(delays), self._leave, EventPriority(1)) if delays else None

    def _share(self) -> None:
        """Give every class its rate: its cap, or the common level where that is lower."""
        active = sorted((g for g in self._classes.values() if g.flows), key=lambda g: g.cap)
        left = self._total
        weight = sum(group.weight for group in active)
        for position, group in enumerate(active):
            if group.cap * weight > left:
                factor = weight // gcd(left, weight)
                self._grow(factor)
                level = left * factor // weight
                for slower in active[position:]:
                    slower.rate = level
                return
            group.rate = group.cap
            left -= group.cap * group.weight
            weight -= group.weight

    def _leave(self, alarm: Event) -> None:
        """Let go all flows whose last byte has gone; ignore an alarm that a later settlement replaced."""
        if alarm is not self._wake:
            return
        self._advance()
        ended: list[Callable[[], None]] = []
        for group in self._classes.values():
            flows = group.flows
            while flows and flows[0][0] <= group.served:
                _, _, weight, finished = heappop(flows)
                group.weight -= weight
                ended.append(finished)
            if not flows:
                group.served = group.rate = 0
        self._unsettle()
        for finished in ended:
            finished()
