"""How the traffic of an instruction spreads over the shared links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.links import Link, Rate
from ascendsim.program import Traffic

if TYPE_CHECKING:
    from simpy import Environment

    from ascendsim.profile import Profile


class Flow(NamedTuple):
    """Part of a transfer on one link."""

    link: Link
    bytes: int
    cap: Rate


class Transfer(NamedTuple):
    """How a piece of traffic spreads over the links, and the latency that these add to the path's own."""

    flows: tuple[Flow, ...]
    latency_cycles: int


class Transfers:
    """The shared links of one phase, as the cores see them."""

    def __init__(self, env: Environment, profile: Profile, misses: Mapping[str, Fraction]) -> None:
        self.env = env
        self._profile = profile
        self._misses = misses
        self._links = {
            name: Link(env, figures.total_bytes_per_cycle) for name, figures in profile.links.items()
        }
        self._transfers: dict[tuple[str, Traffic], Transfer] = {}

    def transfer(self, kind: str, traffic: Traffic) -> Transfer:
        """Return how the traffic of a core of this kind spreads.

        Every byte passes L2; what it misses comes over main memory at the same time. The latency of main
        memory counts by the share that misses: the mean over the readers.
        """
        known = self._transfers.get((kind, traffic))
        if known is None:
            link = "l2_read" if traffic.kind == "read" else "l2_write"
            flows = [self._flow(link, kind, traffic.bytes, traffic)]
            latency = self._profile.links[link].latency_cycles
            missed = self._misses[traffic.tensor.name] if traffic.kind == "read" else Fraction(0)
            if missed:
                flows.append(self._flow("memory", kind, ceil(missed * traffic.bytes), traffic))
                latency += ceil(missed * self._profile.links["memory"].latency_cycles)
            known = self._transfers[kind, traffic] = Transfer(tuple(flows), latency)
        return known

    def _flow(self, link: str, kind: str, size_bytes: int, traffic: Traffic) -> Flow:
        """Cap a flow by the core's own port and by what one core of this kind can take of the link."""
        figures = self._profile.links[link]
        own = (
            figures.per_vector_core_bytes_per_cycle if kind == "vector" else figures.per_core_bytes_per_cycle
        )
        return Flow(self._links[link], size_bytes, min(traffic.peak_bytes_per_cycle, own))

    def send(self, transfer: Transfer, weight: int, finished: Callable[[], None]) -> None:
        """Let the bytes flow, starting now; call `finished` when all of them have arrived."""
        if len(transfer.flows) > 1:
            finished = _last_of(len(transfer.flows), finished)
        for link, size_bytes, cap in transfer.flows:
            link.send(size_bytes, cap, weight, finished)


def _last_of(count: int, finished: Callable[[], None]) -> Callable[[], None]:
    """Return a function to be called `count` times, the last of which calls `finished`."""
    left = count

    def one() -> None:
        nonlocal left
        left -= 1
        if not left:
            finished()

    return one
