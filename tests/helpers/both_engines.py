"""Both engines behind one function: what a test reckons for one holds for the other, to the last span."""

import re

import pytest

from ascendsim.errors import ProgramError
from ascendsim.timing import kernel as door
from ascendsim.timing.timeline import times_of
from tests.helpers.oracles_timing import spans_of


def time_kernel(kernel, profile, **options):
    """Return the timeline of a kernel as SimPy makes it, after comparing the compiled engine's with it."""
    try:
        timeline = door.time_kernel(kernel, profile, engine="simpy", **options)
    except ProgramError as error:
        # Waits in a circle cannot follow from slots, and others the compiled engine refuses.
        told = "only the engine simpy obeys" if "circle" in str(error) else re.escape(str(error))
        with pytest.raises(ProgramError, match=told):
            door.time_kernel(kernel, profile, engine="compiled", **options)
        raise
    compiled = door.time_kernel(kernel, profile, engine="compiled", **options)
    assert_same_spans(compiled, timeline)
    assert door.measure_kernel(kernel, profile, engine="compiled", **options) == times_of(timeline)
    return timeline


def assert_same_spans(one, other):
    """Compare two timelines, which may be of programs that were built twice."""
    assert (one.kernel, one.cycles, one.bytes) == (other.kernel, other.cycles, other.bytes)
    assert [(p.name, p.begin, p.end) for p in one.phases] == [(p.name, p.begin, p.end) for p in other.phases]
    for mine, theirs in zip(one.phases, other.phases, strict=True):
        for a, b in zip(mine.cores, theirs.cores, strict=True):
            assert a.cores == b.cores
            assert spans_of(a) == spans_of(b), (mine.name, a.cores[0])
