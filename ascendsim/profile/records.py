"""Profile: one product as plain frozen values, every one with the figure it came from."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from ascendsim.errors import UnsupportedError
from ascendsim.frozen import cached_property
from ascendsim.native.default_arithmetic import default_floats
from ascendsim.profile.generation import Generation
from ascendsim.profile.memory import L2, DataPath, Exact, LinkFigures
from ascendsim.profile.units import (
    Buffer,
    Clock,
    Cores,
    Cube,
    Fixpipe,
    Launch,
    Load2d,
    Load3d,
    Scalar,
    Sync,
    Vector,
)


class Figure(NamedTuple):
    """One hardware figure with its provenance; the unit is in the name it goes by.

    fitted_on    what the ids of the measured rows begin with that it was fitted on; empty if on none
    without      the value that its mechanism has where nothing is known, such as no latency
    """

    value: Any
    source: str
    confidence: str
    range: tuple[Any, ...] | None = None
    note: str = ""
    fitted_on: tuple[str, ...] = ()
    without: Any = None


# Fields of a profile that say where its values are from.
PROVENANCE = ("figures", "sources")


@dataclass(frozen=True, eq=False)
class Profile:
    """One product; compared and hashed by identity, so that it is a cheap cache key.

    `l1_write_bytes_per_cycle` is what MTE2 writes into L1 while MTE1 has to wait (0: both at once).
    """

    product: str
    variant: str
    evidence: str
    core_structure: str
    npu_arch: str
    cores: Cores
    clock: Clock
    buffers: Mapping[str, Buffer]
    cube: Cube
    paths: Mapping[str, DataPath]
    load3d: Mapping[str, Load3d]
    load2d: Load2d
    l1_write_bytes_per_cycle: Exact
    fixpipe: Fixpipe
    links: Mapping[str, LinkFigures]
    l2: L2
    vector: Vector
    sync: Sync
    scalar: Scalar
    queues: Mapping[str, int]
    vector_queues: Mapping[str, int]
    launch: Launch
    accumulation: Mapping[str, str]
    deterministic_default: bool
    generation: Generation
    # Provenance of all of the above, by dotted path, derived figures included.
    figures: Mapping[str, Figure]
    sources: Mapping[str, str]

    @cached_property
    def told(self) -> str:
        """All values in words, without their provenance: equal for two profiles that say the same."""
        # All records are plain values, of which the text leaves nothing out.
        values = [getattr(self, field.name) for field in fields(self) if field.name not in PROVENANCE]
        return repr(values)

    @cached_property
    def content(self) -> bytes:
        """A digest of what is told, for answers that are kept on disk."""
        # Imported here: it takes longer than to read a product file, and few answers are kept.
        from hashlib import sha256

        return sha256(self.told.encode()).digest()

    def has_path(self, source: str, target: str) -> bool:
        """Tell whether bytes can go from one place to another in one instruction."""
        return f"{source}_{target}" in self.paths

    def path(self, source: str, target: str) -> DataPath:
        """Return the path between two places; UnsupportedError where the product has none."""
        try:
            return self.paths[f"{source}_{target}"]
        except KeyError:
            # A kernel asks for a path only if its schedule is wrong for the product: say what there is.
            names = ", ".join(name.replace("_", "->") for name in self.paths)
            raise UnsupportedError(f"{self.variant} has no path {source}->{target}; it has {names}") from None

    @default_floats
    def launch_us(self, cores: int) -> float:
        """Return the microseconds to start a kernel on this many cores; its entry is in its cycles."""
        return self.launch.base_us + self.launch.per_core_us * cores

    def assumed(self) -> dict[str, Figure]:
        """Return the figures that nobody published or measured, by dotted path; each has a range."""
        return {path: figure for path, figure in self.figures.items() if figure.confidence == "assumed"}
