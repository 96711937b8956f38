"""A kernel small enough to reckon by hand, as the reports see it."""

from dataclasses import replace
from functools import partial

import numpy as np

from ascendsim.numerics.metrics import error_metrics
from ascendsim.ops.graph_times import summarise
from ascendsim.ops.results import ConvolutionBackwardResult, Retimed
from ascendsim.report.document import Run
from ascendsim.studies.records import FigureEffect, Interval, JudgedGradient
from ascendsim.timing.kernel import time_kernel
from ascendsim.timing.timeline import times_of
from tests.helpers.fake_machine import Fake, FakeProfile, kernel, program

# A call says what its kernels note.
NOTES = ("nothing is real", "one core in two")


def summarised(one, profile, machine):
    """The result of a kernel that was timed on one machine and is reported as on another."""
    timed = Retimed(partial(time_kernel, one, machine))
    return summarise(one, profile, times_of(timed.timeline), timed, "simpy")


def timed_kernel(profile):
    """Two equal cube cores: MTE2 takes 30 cycles, then M 50 cycles while MTE2 does 20 more: 80 cycles."""
    core = program(Fake("MTE2", 30), (Fake("M", 50), (0,)), Fake("MTE2", 20))
    one = kernel([("same", core), ("same", core)])
    one = replace(one, name="grad_weight", macs=1000, compute_dtype="float16", note="one core in two")
    return summarised(one, profile, FakeProfile())


def entered_kernel(profile):
    """An entry of 20 cycles, then on both cores MTE2 for 30 and M for 50; each takes one to be issued."""
    core = program(Fake("MTE2", 30), (Fake("M", 50), (0,)))
    one = replace(kernel([("same", core), ("same", core)]), compute_dtype="float16")
    return summarised(one, profile, FakeProfile(start_cycles=20, issue_cycles=1))


def judged_gradient(gradient, exact):
    """A gradient with the errors that it has against exact values; nobody has computed it."""
    errors = error_metrics(gradient, np.array(exact, np.float64), str(gradient.dtype))
    return JudgedGradient("grad_weight", gradient.shape, str(gradient.dtype), "0123456789abcdef", errors)


def timed_run(profile):
    """A call of twice the same kernel, with a note, and one gradient that is wrong in one element of four."""
    timed = timed_kernel(profile)
    gradient = np.array([[1, 2], [3, 4.5]], np.float16)
    result = ConvolutionBackwardResult(
        *("toy", "toy_split", "float16", "block:16:RNE", (timed, timed), NOTES),
        *(None, gradient, None, "program"),
    )
    return Run(result, profile, (judged_gradient(gradient, [[1, 2], [3, 4]]),))


def made_up_interval():
    """An interval about 4.16 us in which one figure of two does almost everything."""
    effects = (
        FigureEffect("paths.GM_L1.bytes_per_cycle", 64, 32, 128, 4.16, 5.16, 3.66),
        FigureEffect("sync.flag_cycles", 10, 0, 10, 4.16, 4.06, 4.16),
    )
    return Interval(3, 3.56, 5.16, 120, 210, effects)
