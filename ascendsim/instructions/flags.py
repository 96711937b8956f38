"""Synchronisation that a program writes down itself: flags between pipes, between cores, a barrier of all.

A program that holds one of these is ordered by them alone, and by the order inside each pipe: the waits that
follow from its slots are left out. `check_flags` (`ops/checks.py`) says which of those it lacks.

Nobody has published what a flag costs. Here a set, a wait and a barrier take one cycle of their pipe, as the
public cost model of PTO books them, and `issue_cycles` of the scalar unit; a wait that finds its flag unset
goes on `sync.flag_cycles` after the set, as any wait does here.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ascendsim.program.flags import Signal
from ascendsim.program.instruction import Command, Cost

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.places import CoreMemory


class _OnPipe(Command):
    """What all of them share: no slot, no data, one cycle. `pipe` is the field that names it."""

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


class _Signals(_OnPipe):
    """What those share that order a program: what each does to the flag of a key, and for which pipes."""

    __slots__ = ()
    does: ClassVar[str]
    holds: ClassVar[bool] = False

    @property
    def key(self) -> tuple[Any, ...]:
        """None: all that came."""
        return ()

    @property
    def signal(self) -> Signal:
        """What it does."""
        return Signal(self.does, self.key, self.holds)


class _Flag(NamedTuple):
    src: str
    dst: str
    event: int

    @property
    def key(self) -> tuple[Any, ...]:
        """Its pipes and its event."""
        return tuple(self)


class SetFlag(_Flag, _Signals):
    """Raise flag `event` of pipes (src, dst) once all that stands before it on `src` is done.

    Pipe     src, which goes on at once
    Cost     one cycle
    Source   AscendC SetFlag page; cycle: PTO cost model, an assumption there
    """

    __slots__ = ()
    does, pipe = "set", _Flag.src


class WaitFlag(_Flag, _Signals):
    """Hold pipe `dst` until flag `event` of pipes (src, dst) is raised, and lower it.

    Pipe     dst
    Cost     one cycle, once the flag is raised
    Source   AscendC WaitFlag page; cycle: PTO cost model, an assumption there
    """

    __slots__ = ()
    does, pipe = "wait", _Flag.dst


class _CrossCore(NamedTuple):
    on: str
    flag: int

    @property
    def key(self) -> tuple[Any, ...]:
        """Its number, apart from events between pipes."""
        return "cross-core", self.flag


class CrossCoreSetFlag(_CrossCore, _Signals):
    """Raise a flag between a cube core and its vector cores (mode 2) once pipe `on` has done all before it.

    Raised by the cube core each vector core finds it; the cube core finds it once all vector cores that
    raise it have. Modes 0 and 1 are not modelled: cores of other programs meet at the end of a phase.

    Pipe     on
    Cost     one cycle
    Source   AscendC CrossCoreSetFlag page; cycle: PTO cost model, an assumption there
    """

    __slots__ = ()
    does, pipe = "set", _CrossCore.on


class CrossCoreWaitFlag(_CrossCore, _Signals):
    """Hold all pipes of a core until a flag between cores is raised, and take it.

    On the device it stops issue; here it stands in the queue of `on`, and what comes next on the other pipes
    waits for it.

    Pipe     on
    Cost     one cycle, once the flag is raised
    Source   AscendC CrossCoreWaitFlag page; cycle: PTO cost model, an assumption there
    """

    __slots__ = ()
    does, pipe, holds = "wait", _CrossCore.on, True


class _Barrier(NamedTuple):
    on: str


class PipeBarrier(_Barrier, _OnPipe):
    """Let a pipe deliver all its results before the next instruction on it starts.

    Cost     one cycle once the pipe has drained
    """

    __slots__ = ()
    # What it really costs is the waiting: `drains` lets it start when all results of the pipe are there.
    drains, pipe, shape = True, _Barrier.on, _Barrier.on


class BarrierAll(_Barrier, _Signals):
    """Let all pipes of a core deliver their results before anything else starts (PipeBarrier<PIPE_ALL>).

    On the device it stops issue; here it stands in the queue of `on`, and what comes next on the other pipes
    waits for it.

    Pipe     on
    Cost     one cycle once all is done
    Source   AscendC PipeBarrier page; cycle: PTO cost model, an assumption there
    """

    __slots__ = ()
    does, pipe, drains, holds = "all", _Barrier.on, True, True
