"""A kernel small enough to reckon by hand, as the reports see it."""

from dataclasses import replace

import numpy as np
from fake_machine import Fake, FakeProfile, kernel, program

from ascendsim.ops.results import ConvolutionBackwardResult
from ascendsim.ops.summary import summarise
from ascendsim.report.columns import Column
from ascendsim.report.record import Run, gradient_record
from ascendsim.timing.kernel import time_kernel

ERROR = Column("error", "error", "ulp", "How wrong it is.")


def timed_kernel(profile):
    """Two equal cube cores: MTE2 takes 30 cycles, then M 50 cycles while MTE2 does 20 more: 80 cycles."""
    core = program(Fake("MTE2", 30), (Fake("M", 50), (0,)), Fake("MTE2", 20))
    one = kernel([("same", core), ("same", core)])
    one = replace(one, name="grad_weight", macs=1000, compute_dtype="float16", note="one core in two")
    return summarise(one, profile, time_kernel(one, FakeProfile()))


def entered_kernel(profile):
    """An entry of 20 cycles, then on both cores MTE2 for 30 and M for 50; each takes one to be issued."""
    core = program(Fake("MTE2", 30), (Fake("M", 50), (0,)))
    one = replace(kernel([("same", core), ("same", core)]), compute_dtype="float16")
    return summarise(one, profile, time_kernel(one, FakeProfile(start_cycles=20, issue_cycles=1)))


def timed_run(profile):
    """A call of twice the same kernel, with one gradient and one note."""
    timed = timed_kernel(profile)
    gradient = np.array([[1, 2], [3, 4]], np.float16)
    result = ConvolutionBackwardResult(
        *("toy", "toy_split", "float16", "block:16:RNE", (timed, timed), ("nothing is real",)),
        *(None, gradient, None, "program"),
    )
    return Run(result, profile, (gradient_record("grad_weight", gradient, {"error": 0.5}),))
