"""The events of a trace: one function for each kind, in the words of the trace event format.

Times are microseconds from the start of the call, which the format asks for; cycles are in the arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ascendsim.program.instruction import PIPES
from ascendsim.program.kernel import Core

Event = dict[str, Any]

DEVICE_PID = 1
LAUNCH_TID, KERNEL_TID = 1, 2
# Far apart, so that the number of a process tells the kind and the index of its core.
_FIRST_CORE_PID = {"cube": 1_000, "vector": 2_000}
PHASE_TID = 0
# From memory to the cube and back, as data flow; S, which moves none, below all others.
ROWS = ("MTE2", "MTE1", "M", "FIX", "V", "MTE3", "S")
assert sorted(ROWS) == sorted(PIPES)
# An arrow begins and ends half a cycle inside of its spans, where no rounding puts it beside them.
_INSIDE = 0.5


class Clock(NamedTuple):
    """From the cycles of a kernel to the time stamps of the trace."""

    begin_us: float
    mhz: float

    def us(self, cycle: float) -> float:
        """Return when a cycle of the kernel is."""
        # Picoseconds: floats with all their digits would double the size of the file.
        return round(self.begin_us + cycle / self.mhz, 6)


class Row(NamedTuple):
    """A line of the trace: the thread of a process."""

    pid: int
    tid: int


def core_pid(core: Core) -> int:
    """Return the number of a core's process."""
    return _FIRST_CORE_PID[core.kind] + core.index


def pipe_row(core: Core, pipe: str) -> Row:
    """Return the line of one pipe of a core."""
    return Row(core_pid(core), ROWS.index(pipe) + 1)


def span(row: Row, category: str, name: str, clock: Clock, cycles: tuple[float, float], args: Event) -> Event:
    """Return a span from one cycle to another."""
    begin, end = (clock.us(cycle) for cycle in cycles)
    # The difference of what is written, so that a span never reaches into the next one on its line.
    times = {"ts": begin, "dur": round(end - begin, 6)}
    return {"ph": "X", "cat": category, "pid": row.pid, "tid": row.tid, "name": name, **times, "args": args}


def arrow(
    number: int, name: str, clock: Clock, begin: tuple[Row, int], end: tuple[Row, float]
) -> list[Event]:
    """Return a flow that leaves a span which is over in cycle `begin`, and arrives in cycle `end`."""
    (out, left), (into, arrived) = begin, end
    about = {"cat": "data", "id": number, "name": name}
    return [
        {"ph": "s", **about, "pid": out.pid, "tid": out.tid, "ts": clock.us(left - _INSIDE)},
        # "e": to the span about it, not to the next one that begins.
        {"ph": "f", "bp": "e", **about, "pid": into.pid, "tid": into.tid, "ts": clock.us(arrived)},
    ]


def inside(start: int, end: int, after: int) -> float | None:
    """Return a cycle of a span in which an arrow may arrive from one that was over in cycle `after`.

    None if the span is over before that.
    """
    # Who takes a tile piece by piece begins before it is whole, and has all of it at its end.
    return next((at for at in (start + _INSIDE, end - _INSIDE) if at >= after - _INSIDE), None)


def counter(pid: int, name: str, ts: float, values: Mapping[str, float]) -> Event:
    """Return the values of a counter from a time stamp on."""
    return {"ph": "C", "cat": "counter", "pid": pid, "tid": 0, "name": name, "ts": ts, "args": dict(values)}


def names(event: Event, named: set[tuple[int, int]], kinds: Mapping[str, str]) -> Iterator[Event]:
    """Yield what names the event's process and thread, the first time they occur.

    kinds   what the product calls a core of each kind
    """
    pid, tid = event["pid"], event["tid"]
    if pid != DEVICE_PID and (pid, -1) not in named:
        named.add((pid, -1))
        kind = "cube" if pid < _FIRST_CORE_PID["vector"] else "vector"
        yield name("process_name", pid, 0, {"name": f"{kinds[kind]} {pid - _FIRST_CORE_PID[kind]}"})
        yield name("process_sort_index", pid, 0, {"sort_index": pid})
    # A counter belongs to a process, not to one of its threads.
    if event["ph"] != "C" and (pid, tid) not in named:
        named.add((pid, tid))
        if pid == DEVICE_PID:
            label = {LAUNCH_TID: "launch", KERNEL_TID: "kernel"}[tid]
        else:
            label = "phase" if tid == PHASE_TID else ROWS[tid - 1]
        yield name("thread_name", pid, tid, {"name": label})
        yield name("thread_sort_index", pid, tid, {"sort_index": tid})


def name(kind: str, pid: int, tid: int, args: Event) -> Event:
    """Return what tells a viewer the name or the place of a process or thread."""
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": args}
