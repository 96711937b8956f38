"""Synchronisation that a program writes down itself: flags between pipes, between cores, a barrier of all.

A program that holds one of these is ordered by them alone, and by the order inside each pipe: the waits that
follow from its slots are left out. `check_flags` (`ops/checks.py`) says which of those it lacks.

Nobody has published what a flag costs. Here a set, a wait and a barrier take one cycle of their pipe, as the
public cost model of PTO books them, and `issue_cycles` of the scalar unit; a wait that finds its flag unset
goes on `sync.flag_cycles` after the set, as any wait does here.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ascendsim.program.flags import Signal
from ascendsim.program.instruction import Command, Cost

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.places import CoreMemory


class _Signals(Command):
    """What all of them share: no slot, no data, one cycle."""

    __slots__ = ()
    gm: ClassVar[None] = None

    @property
    def shape(self) -> Hashable:
        """Nothing: each takes one cycle."""
        return ()

    def execute(self, memory: CoreMemory) -> None:
        """Do nothing to the data."""

    def cost(self, profile: Profile) -> Cost:
        """Return one cycle."""
        del profile
        return Cost(1)


class _Flag(NamedTuple):
    src: str
    dst: str
    event: int


class SetFlag(_Flag, _Signals):
    """Raise flag `event` of pipes (src, dst) once all that stands before it on `src` is done.

    Pipe     src, which goes on at once
    Cost     one cycle
    Source   AscendC SetFlag page; cycle: PTO cost model, an assumption there
    """

    __slots__ = ()

    @property
    def pipe(self) -> str:
        """The pipe in whose queue it stands."""
        return self.src

    @property
    def signal(self) -> Signal:
        """Set."""
        return Signal("set", tuple(self))


class WaitFlag(_Flag, _Signals):
    """Hold pipe `dst` until flag `event` of pipes (src, dst) is raised, and lower it.

    Pipe     dst
    Cost     one cycle, once the flag is raised
    Source   AscendC WaitFlag page; cycle: PTO cost model, an assumption there
    """

    __slots__ = ()

    @property
    def pipe(self) -> str:
        """The pipe that is held."""
        return self.dst

    @property
    def signal(self) -> Signal:
        """Wait."""
        return Signal("wait", tuple(self))


class _CrossCore(NamedTuple):
    on: str
    flag: int


class CrossCoreSetFlag(_CrossCore, _Signals):
    """Raise a flag between a cube core and its vector cores (mode 2) once pipe `on` has done all before it.

    Raised by the cube core each vector core finds it; the cube core finds it once all vector cores that
    raise it have. Modes 0 and 1 are not modelled: cores of other programs meet at the end of a phase.

    Pipe     on
    Cost     one cycle
    Source   AscendC CrossCoreSetFlag page; cycle: PTO cost model, an assumption there
    """

    __slots__ = ()

    @property
    def pipe(self) -> str:
        """The pipe in whose queue it stands."""
        return self.on

    @property
    def signal(self) -> Signal:
        """Set."""
        return Signal("set", ("cross-core", self.flag))


class CrossCoreWaitFlag(_CrossCore, _Signals):
    """Hold all pipes of a core until a flag between cores is raised, and take it.

    On the device it stops issue; here it stands in the queue of `on`, and what comes next on the other pipes
    waits for it.

    Pipe     on
    Cost     one cycle, once the flag is raised
    Source   AscendC CrossCoreWaitFlag page; cycle: PTO cost model, an assumption there
    """

    __slots__ = ()

    @property
    def pipe(self) -> str:
        """The pipe in whose queue it stands."""
        return self.on

    @property
    def signal(self) -> Signal:
        """Wait, for the whole core."""
        return Signal("wait", ("cross-core", self.flag), holds=True)


class _BarrierAll(NamedTuple):
    on: str


class BarrierAll(_BarrierAll, _Signals):
    """Let all pipes of a core deliver their results before anything else starts (PipeBarrier<PIPE_ALL>).

    On the device it stops issue; here it stands in the queue of `on`, and what comes next on the other pipes
    waits for it.

    Pipe     on
    Cost     one cycle once all is done
    Source   AscendC PipeBarrier page; cycle: PTO cost model, an assumption there
    """

    __slots__ = ()
    drains = True

    @property
    def pipe(self) -> str:
        """The pipe in whose queue it stands."""
        return self.on

    @property
    def signal(self) -> Signal:
        """All that came before, and all that follows."""
        return Signal("all", (), holds=True)
