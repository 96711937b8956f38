"""Tight loops of one instruction, as a micro-benchmark runs them.

The instructions under test are those of the schedules where one exists. `PathMove` and `VectorRepeats` stand
for commands that no schedule issues, such as bias loads and vector instructions of every kind; they cost what
the profile says of their path or kind.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.accumulation.settings import MathSettings
from ascendsim.program.instruction import Command, Cost, Instruction, Traffic
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.places import GmTensor, Slot
from ascendsim.program.program import Program
from ascendsim.timing.kernel import time_kernel
from ascendsim.vector.instructions import vector_cost

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.memory import CoreMemory
    from ascendsim.timing.timeline import CoreTimeline

# Equal instructions in a row when throughput is measured; the first half fills the pipe.
STREAM = 12
PROBED = GmTensor("x", (1 << 20,), "float16", 2)


class _PathMove(NamedTuple):
    path: str
    pipe: str
    bytes: int


class PathMove(_PathMove, Command):
    """A command that moves bytes on a path of the profile, inside the core or from L2.

    Cost     the path's head, bytes / rate and latency
    """

    __slots__ = ()

    @property
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        return self.path, self.bytes

    def execute(self, memory: CoreMemory) -> None:
        """Do nothing to the data."""

    def cost(self, profile: Profile) -> Cost:
        """Return what the path says."""
        path = profile.paths[self.path]
        head, latency = path.times()
        # Bytes out of L2 share its link with other cores; inside a core nobody takes part.
        if self.path.startswith("GM"):
            traffic = Traffic(PROBED, "read", self.bytes, path.bytes_per_cycle)
            return Cost(head, latency, traffic, path.least_cycles)
        data = ceil(self.bytes / path.bytes_per_cycle)
        return Cost(head + data, latency, least_cycles=path.least_cycles)


class _VectorRepeats(NamedTuple):
    kind: str
    repeats: int


class VectorRepeats(_VectorRepeats, Command):
    """A vector instruction of some kind, of so many repeats of 256 bytes.

    Cost     what the profile says of the kind
    """

    __slots__ = ()
    pipe = "V"

    @property
    def shape(self) -> Hashable:
        """All that the cost depends on."""
        return self.kind, self.repeats

    def execute(self, memory: CoreMemory) -> None:
        """Do nothing to the data."""

    def cost(self, profile: Profile) -> Cost:
        """Return what the repeats take."""
        return vector_cost(profile, self.kind, self.repeats)


def slot(buffer: str) -> Slot:
    """Return a slot for an instruction under test; it has no size that matters."""
    return Slot(buffer, 0, "loop", 0)


def alone_cycles(instruction: Instruction, profile: Profile, core: str) -> int:
    """Return the cycles from the start of one instruction until its result is visible."""
    spans = _run([instruction], profile, core)
    return spans.done[0] - spans.start[0]


def stream_cycles(instruction: Instruction, profile: Profile, core: str) -> float:
    """Return the cycles from one instruction to the next in a row of equal ones."""
    # The head of the first ones and the pipe's latency are in the first half only.
    ends = _run([instruction] * STREAM, profile, core).end
    half = STREAM // 2
    return (ends[-1] - ends[half - 1]) / (STREAM - half)


def _run(instructions: Sequence[Instruction], profile: Profile, core: str) -> CoreTimeline:
    # No instruction waits for another: what is measured is the pipe, not a dependency.
    program = Program(instructions, (slot("any"),), {}, frozenset())
    work = CoreWork(Core(core, 0), "loop", lambda: program)
    math = MathSettings(AccumulationModel.parse("seq:RNE"))
    kernel = Kernel("loop", (Phase("loop", (work,)),), {"x": PROBED}, math)
    return time_kernel(kernel, profile).phases[0].cores[0]
