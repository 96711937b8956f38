"""What the all-reduce of data parallel training takes of a step: the question and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import NamedTuple

from ascendsim.errors import ConfigError
from ascendsim.profile import Profile
from ascendsim.studies.hardware.records import StudiedLayer
from ascendsim.studies.records import StudyAnswer


class DeviceRing(NamedTuple):
    """Devices in a ring, and the link from each to the next: its rate in one direction, and its latency."""

    devices: int
    gb_per_s: Fraction
    latency_us: Fraction

    def cycles(self, size_bytes: int, mhz: int) -> int:
        """Return the cycles of an all-reduce: 2 (n - 1) steps, each of an nth of the bytes, one latency."""
        steps = 2 * (self.devices - 1)
        sent = Fraction(steps * size_bytes, self.devices) / (self.gb_per_s * 1000)
        return ceil((steps * self.latency_us + sent) * mhz) if size_bytes else 0


@dataclass(frozen=True, slots=True)
class DevicesQuestion:
    """How much of a step the all-reduce takes.

    title     what the layers are, for people; their batch is that of one device
    devices   None: the dies of the product's package
    gb_per_s, latency_us   of the link; None: those of the package
    most      part of the step that counts as none
    factor    of the package's rate, where no other is given
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
    factor: Fraction = Fraction(1)

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
        exact = Fraction(str(rate)) * (self.factor if self.gb_per_s is None else 1)
        return DeviceRing(devices, exact, Fraction(str(latency)))


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
