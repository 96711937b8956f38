"""Busy times of the pipes, as the profiler counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ascendsim.errors import DataError
from ascendsim.validate.cells import is_number
from ascendsim.validate.compare import Case, busiest

if TYPE_CHECKING:
    from ascendsim.program.kernel import Core
    from ascendsim.timing.timeline import CoreTimeline, Timeline
    from ascendsim.validate.rows import Row

# The profiler's names of the pipes that bound a cube kernel.
_COUNTERS = {
    "M": ("aic_mac_time(us)", "mac_us", "cube_us"),
    "MTE1": ("aic_mte1_time(us)", "mte1_us"),
    "MTE2": ("aic_mte2_time(us)", "mte2_us"),
    "FIX": ("aic_fixpipe_time(us)", "fixpipe_us"),
}
_SHARES = {
    "M": ("cube_pct", "TMATMUL_pct"),
    "MTE1": ("mte1_pct", "TEXTRACT_pct"),
    "MTE2": ("mte2_pct", "TLOAD_pct"),
    "FIX": ("store_pct", "TSTORE_pct"),
}


def measured_counters(counters: Mapping[str, Any], us: float | None) -> dict[str, float]:
    """Return the busy microseconds of each pipe that a row tells, as times or as shares of its duration.

    Raises   DataError for a negative one; words such as "N/A" tell nothing
    """
    found = {}
    for pipe, names in _COUNTERS.items():
        for name in names:
            if is_number(counters.get(name)):
                found[pipe] = _not_negative(counters, name)
    for pipe, names in _SHARES.items():
        for name in names:
            if us is not None and is_number(counters.get(name)):
                found[pipe] = _not_negative(counters, name) / 100 * us
    return found


def bounds_of(
    measured: Mapping[str, float], estimated: Mapping[str, float]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the busiest pipes that were measured, and those estimated among the same pipes.

    Where no pipe was measured the estimate's are taken among all but S.
    """
    among = measured.keys() if measured else estimated.keys() - {"S"}
    return busiest(measured), busiest({pipe: time for pipe, time in estimated.items() if pipe in among})


def kernel_case(
    row: Row,
    kind: str,
    groups: Sequence[tuple[str, str]],
    variant: str,
    us: float,
    counters: Mapping[str, float],
    note: str,
) -> Case:
    """Return a kernel's estimated time and busy pipes, microseconds, beside those that a row measured.

    `groups` gives the group of rows by what their ids begin with; all others are secondary.

    Raises   DataError for a negative counter
    """
    assert row.us is not None
    measured = measured_counters(row.counters, row.us)
    return Case(
        row.id,
        kind,
        next((group for prefix, group in groups if row.id.startswith(prefix)), "secondary"),
        variant,
        "us",
        row.us,
        us,
        row.source,
        bounds_of(measured, counters),
        {pipe: (measured[pipe], counters[pipe]) for pipe in measured if pipe in counters},
        "; ".join(filter(None, (note, row.inferred))),
    )


def _not_negative(counters: Mapping[str, Any], name: str) -> float:
    if counters[name] < 0:
        raise DataError(f"its {name} is {counters[name]}; no pipe is busy for less than nothing")
    return float(counters[name])


def active_cycles(timeline: Timeline) -> dict[str, float]:
    """Return how long each pipe had an instruction under way, averaged over the cores that have the pipe.

    An instruction is under way until its result is visible, which is what the profiler's counters see: an
    isolated copy counts with its latency, copies in flight together do not count twice.
    """
    totals: dict[str, int] = {}
    kinds: dict[str, set[str]] = {}
    cores: set[Core] = set()
    for phase in timeline.phases:
        for work in phase.cores:
            cores.update(work.cores)
            for pipe, cycles in _under_way(work).items():
                totals[pipe] = totals.get(pipe, 0) + cycles * len(work.cores)
                kinds.setdefault(pipe, set()).add(work.cores[0].kind)
    return {pipe: total / sum(core.kind in kinds[pipe] for core in cores) for pipe, total in totals.items()}


def core_active_cycles(work: CoreTimeline) -> dict[str, int]:
    """Return the same of one core."""
    return _under_way(work)


def _under_way(work: CoreTimeline) -> dict[str, int]:
    """Return the length of the union of the spans of each pipe, from start to done; spans are in order."""
    busy: dict[str, int] = {}
    until: dict[str, int] = {}
    for instruction, start, done in zip(work.program.instructions, work.start, work.done, strict=True):
        pipe = instruction.pipe
        begin = max(start, until.get(pipe, start))
        if done > begin:
            busy[pipe] = busy.get(pipe, 0) + done - begin
        until[pipe] = max(done, until.get(pipe, done))
    return busy
