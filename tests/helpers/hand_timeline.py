"""A kernel of two phases whose every cycle is written down, so that traces and plots are checked by eye.

Two cube cores and one vector core. Entry: cycles 0 to 10. Phase "compute", cycles 10 to 60: core 0 copies
(MTE2) and multiplies (M), core 1 copies twice. Phase "reduce", cycles 70 to 100: the vector core adds.
"""

from ascendsim.ops.results import KernelResult, Retimed
from ascendsim.program.kernel import Core, Kernel
from ascendsim.timing.timeline import CoreTimeline, PhaseTimeline, Timeline, times_of
from tests.helpers.fake_machine import Fake, program

CUBE0, CUBE1, VECTOR0 = Core("cube", 0), Core("cube", 1), Core("vector", 0)


def core(cores, instructions, issue, start, end, done=None):
    """One core of a phase; results are visible when the pipe is free unless told otherwise."""
    return CoreTimeline(tuple(cores), program(*instructions), issue, start, end, done or end)


# M is issued in cycle 12, finds its pipe free, and waits until the copy is over in cycle 40.
COMPUTE = core([CUBE0], [Fake("MTE2", 30), (Fake("M", 20), (0,))], [10, 12], [10, 40], [40, 60])
COPIES = core([CUBE1], [Fake("MTE2", 20), Fake("MTE2", 25)], [10, 12], [10, 30], [30, 55])
REDUCE = core([VECTOR0], [Fake("V", 30)], [70], [70], [100])
PHASES = (
    PhaseTimeline("compute", 10, 60, (COMPUTE, COPIES)),
    PhaseTimeline("reduce", 70, 100, (REDUCE,)),
)


def hand_kernel(phases=PHASES, cycles=100, name="grad_weight", time_us=1.1):
    """The kernel; at 1000 MHz its 100 cycles are 0.1 us, so that its launch takes 1 us."""
    timeline = Timeline(name, cycles, tuple(phases), {"l2_read": 64})
    return KernelResult(
        name=name,
        cycles=cycles,
        time_us=time_us,
        cores_used=3,
        busy={"S": 10, "MTE2": 37.5, "M": 10, "V": 30},
        bound_by="MTE2",
        bytes={"l2_read": 64, "l2_write": 32, "memory": 0},
        macs=0,
        cube_utilisation=0.0,
        times=times_of(timeline),
        engine="simpy",
        kernel=Kernel(name, (), {}, math=None),
        timed=Retimed(None, timeline),
    )
