"""Data parallel training: a device for each share of the images, and the all-reduce of the gradients.

Each device has two streams: one runs the calls of the backward pass, the last layer first, the other sends
gradients over the link, one layer's after the other's. A layer's gradients can go when its call has ended.
All times are whole cycles of the cube clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from math import ceil, prod
from pathlib import Path
from typing import NamedTuple

from ascendsim.errors import ConfigError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.profile import Profile, load_profile
from ascendsim.studies.engine.point import StudyPoint
from ascendsim.studies.engine.run import Budget, Engine
from ascendsim.studies.hardware.gains import Asking
from ascendsim.studies.hardware.records import StudiedLayer
from ascendsim.studies.records import StudyAnswer

# A link is sought in whole megabytes a second, up to a thousand times what is built.
MOST_MB_PER_S = 10**9


class DeviceRing(NamedTuple):
    """Devices in a ring, and the link from each to the next: its rate in one direction, and its latency."""

    devices: int
    gb_per_s: Fraction
    latency_us: Fraction

    def cycles(self, size_bytes: int, mhz: int) -> int:
        """Return what an all-reduce takes: 2 (n - 1) steps, each of an nth of the bytes and one latency."""
        steps = 2 * (self.devices - 1)
        sent = Fraction(steps * size_bytes, self.devices) / (self.gb_per_s * 1000)
        return ceil((steps * self.latency_us + sent) * mhz) if size_bytes else 0


class BackwardCall(NamedTuple):
    """One call of the backward pass on every device: its cycles, and the bytes of gradients that it makes."""

    cycles: int
    gradient_bytes: int


def simulated(shares: Sequence[BackwardCall], ring: DeviceRing, mhz: int) -> int:
    """Return the cycle in which the last call and the last all-reduce have ended, event by event.

    The plain definition; `overlapped` is held to it.
    """
    ends: list[tuple[int, str, int]] = []
    waiting, sending, now = list[int](), False, 0
    if shares:
        heappush(ends, (shares[0].cycles, "call", 0))
    while ends:
        now, what, at = heappop(ends)
        if what == "call":
            waiting.append(at)
            if at + 1 < len(shares):
                heappush(ends, (now + shares[at + 1].cycles, "call", at + 1))
        else:
            sending = False
        if waiting and not sending:
            first = waiting.pop(0)
            sending = True
            heappush(ends, (now + ring.cycles(shares[first].gradient_bytes, mhz), "send", first))
    return now


def overlapped(shares: Sequence[BackwardCall], ring: DeviceRing, mhz: int) -> int:
    """Return what `simulated` returns, in one pass."""
    ended = free = 0
    for share in shares:
        ended += share.cycles
        free = max(free, ended) + ring.cycles(share.gradient_bytes, mhz)
    return free


def in_turn(shares: Sequence[BackwardCall], ring: DeviceRing, mhz: int) -> int:
    """Return the cycles of a step whose all-reduce begins when the last call has ended."""
    return sum(share.cycles + ring.cycles(share.gradient_bytes, mhz) for share in shares)


def needed_link(
    shares: Sequence[BackwardCall], ring: DeviceRing, mhz: int, most: Fraction, *, overlap: bool
) -> Fraction | None:
    """Return the slowest link in GB/s, of whole MB/s, that adds at most a part `most` of the step's cycles.

    None   where no link does: latencies alone take longer
    """
    calls, course = sum(share.cycles for share in shares), overlapped if overlap else in_turn

    def enough(mb_per_s: int) -> bool:
        step = course(shares, ring._replace(gb_per_s=Fraction(mb_per_s, 1000)), mhz)
        return step - calls <= most * step

    low, high = 0, MOST_MB_PER_S
    if not enough(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return Fraction(high, 1000)


@dataclass(frozen=True, slots=True)
class DevicesQuestion:
    """How much of a step the all-reduce takes.

    title     what the layers are, for people; their batch is that of one device
    devices   None: the dies of the product's package
    gb_per_s, latency_us   of the link; None: those of the package
    most      part of the step that counts as none
    """

    title: str
    product: str | Path
    layers: tuple[StudiedLayer, ...]
    starts: tuple[str, ...]
    dtype: str = "float16"
    cube_math_type: int = 0
    devices: int | None = None
    gb_per_s: Fraction | None = None
    latency_us: Fraction | None = None
    most: Fraction = Fraction(1, 100)

    def ring(self, profile: Profile) -> DeviceRing:
        """Return the devices and their link.

        Raises   ConfigError for a link that neither the user nor the product's file states, or one device
        """
        own = profile.package
        rate = own.link_gb_per_s if self.gb_per_s is None else self.gb_per_s
        latency = own.link_latency_us if self.latency_us is None else self.latency_us
        if rate is None or latency is None:
            raise ConfigError(
                f"{profile.variant}: its file has no link between devices (package.link_gb_per_s, "
                "package.link_latency_us): no source states one; give --link-gb-per-s and --link-latency-us"
            )
        devices = own.dies if self.devices is None else self.devices
        if devices < 2:
            raise ConfigError(f"{profile.variant}: is one die to a package; give --devices of 2 or more")
        return DeviceRing(devices, Fraction(str(rate)), Fraction(str(latency)))


@dataclass(frozen=True, slots=True)
class LayerShare:
    """One layer: microseconds of a call, bytes of its gradients, and microseconds of their all-reduce."""

    layer: str
    count: int
    call_us: float
    gradient_bytes: int
    reduce_us: float


@dataclass(frozen=True, slots=True)
class ParallelStep:
    """A step under one start of L2.

    calls_us          of the calls of a device
    reduce_us         of all all-reduces, one after the other
    added_us          what they add to the calls where each begins as soon as it can
    alone_share, added_share     of the step: without overlap, and with it
    needed_gb_per_s, needed_alone_gb_per_s   the link that makes this part as good as none; None: no link does
    """

    l2_start: str
    calls_us: float
    reduce_us: float
    added_us: float
    alone_share: float
    added_share: float
    needed_gb_per_s: float | None
    needed_alone_gb_per_s: float | None
    layers: tuple[LayerShare, ...]


@dataclass(frozen=True, slots=True)
class DevicesAnswer(StudyAnswer):
    """The steps, by start of L2, and the ring that they are of."""

    ring: DeviceRing
    steps: tuple[ParallelStep, ...]


@default_arithmetic
def study_devices(
    question: DevicesQuestion, engine: Engine, budget: Budget
) -> tuple[DevicesAnswer, list[StudyPoint]]:
    """Answer how much of a step the all-reduce takes, and return the points that were timed, for a table.

    Raises   ConfigError as `DevicesQuestion.ring`, for a layer that cannot be timed, and where time or trials
             are used up
    """
    from ascendsim.profile.sources import ranged_figures

    profile = load_profile(question.product)
    ring, asking = question.ring(profile), Asking(engine, budget)
    call = question.product, {}, question.dtype, question.cube_math_type
    points = {
        (layer, start): StudyPoint(
            layer.problem, *call, layer.gradients, start, label=f"{layer.name}, {start}"
        )
        for start in question.starts
        for layer in question.layers
    }
    answers = asking(points)
    for (layer, _), answer in answers.items():
        if answer.reason:
            raise ConfigError(f"layer {layer.name} on {profile.variant}: {answer.reason}")
    steps = tuple(
        _step(question, start, [answers[layer, start].time_us for layer in question.layers], ring, profile)
        for start in question.starts
    )
    about = profile.variant, profile.content.hex(), len(ranged_figures(profile))
    return DevicesAnswer(question, *about, ring, steps), list(points.values())


def _step(
    question: DevicesQuestion, start: str, times: Sequence[float], ring: DeviceRing, profile: Profile
) -> ParallelStep:
    mhz = profile.clock.cube_mhz
    rows, shares = [], list[BackwardCall]()
    for layer, time_us in zip(question.layers, times, strict=True):
        size = gradient_bytes(layer, question.dtype)
        rows.append(LayerShare(layer.name, layer.count, time_us, size, ring.cycles(size, mhz) / mhz))
        shares += [BackwardCall(round(time_us * mhz), size)] * layer.count
    # The last layer first: equal layers stand where the first of them does.
    shares.reverse()
    calls = sum(share.cycles for share in shares)
    alone, step = in_turn(shares, ring, mhz), overlapped(shares, ring, mhz)
    needed = [needed_link(shares, ring, mhz, question.most, overlap=overlap) for overlap in (True, False)]
    return ParallelStep(
        start,
        calls / mhz,
        (alone - calls) / mhz,
        (step - calls) / mhz,
        (alone - calls) / alone,
        (step - calls) / step,
        *(None if one is None else float(one) for one in needed),
        tuple(rows),
    )


def gradient_bytes(layer: StudiedLayer, dtype: str) -> int:
    """Return the bytes of a layer's gradients that all devices need the sum of, in the tensors' format."""
    problem, (_, weight, bias) = layer.problem, layer.gradients
    if isinstance(problem, ConvProblem):
        made = problem.grad_output[1]
    elif problem.kind == "matmul":
        return 0  # both are of activations
    else:
        made = problem.grad_output[-1]
    return (weight * prod(problem.weight) + bias * made) * lookup_dtype(dtype).itemsize
