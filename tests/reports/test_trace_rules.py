"""Does the trace of a real call keep the rules of the trace event format, and say what the timeline says?

The format asks of a flow that it begins and ends inside of spans, of the spans of a thread that they do not
overlap, and of counters that their values come in order (Google's "Trace Event Format").
"""

import json
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.report.trace import write_trace
from ascendsim.report.trace.traffic import Bytes, l2_rates

PROBLEM = ConvProblem(input=(2, 64, 14, 14), weight=(64, 64, 3, 3), stride=1, padding=1)
# Cores apart, the newest generation, and cores that have both units; float32 goes another way.
CALLS = [("910B", "float16"), ("910B", "float32"), ("910_95", "float16"), ("310P", "float16")]
NEEDED = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "s": {"name", "cat", "pid", "tid", "ts", "id"},
    "f": {"name", "cat", "pid", "tid", "ts", "id", "bp"},
    "C": {"name", "cat", "pid", "ts", "args"},
    "M": {"name", "pid", "args"},
}


@cache
def result_of(product, dtype):
    return estimate(PROBLEM, dtype=dtype, product=product, output_mask=(True, True, False))


@pytest.fixture(scope="module", params=CALLS, ids=" ".join)
def call(request, tmp_path_factory):
    """A product, the kernels of a call on it, and the events of their trace."""
    product, dtype = request.param
    profile, kernels = load_profile(product), result_of(product, dtype).kernels
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    assert write_trace(path, kernels, profile, 50_000) == 0
    return profile, kernels, json.loads(path.read_text())["traceEvents"]


def rows(events):
    """The spans of each thread, in order."""
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    return {row: sorted(spans) for row, spans in found.items()}


def series(events):
    """The values of each counter, in the order of the file."""
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            found[event["pid"], event["name"]].append((event["ts"], event["args"]))
    return found


def test_every_event_has_what_its_kind_needs(call):
    _, _, events = call
    for event in events:
        assert NEEDED[event["ph"]] <= set(event)
    assert {event["ph"] for event in events} == set(NEEDED)


def test_spans_of_a_thread_follow_each_other(call):
    _, _, events = call
    for spans in rows(events).values():
        for (_, end), (begin, _) in pairwise(spans):
            # Sums of floats of picoseconds: a millionth of one.
            assert begin >= end - 1e-12


def test_every_flow_leaves_one_span_and_arrives_in_another_no_earlier(call):
    _, _, events = call
    spans = rows(events)
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    flows = [e for e in events if e["ph"] in "sf"]
    # A number is that of one flow, which has both of its ends.
    assert begins.keys() == ends.keys()
    assert len(flows) == 2 * len(begins) > 0
    for event in flows:
        about = spans[event["pid"], event["tid"]]
        assert any(begin < event["ts"] < end for begin, end in about)
    for number, begin in begins.items():
        end = ends[number]
        # A piece by piece hand-over may leave and arrive in one cycle, of less than a nanosecond.
        assert begin["ts"] <= end["ts"] + 1e-6
        assert (begin["name"], begin["cat"]) == (end["name"], end["cat"])
        assert (begin["pid"], begin["tid"]) != (end["pid"], end["tid"])


def test_the_cube_gets_its_tiles_from_both_sides_and_hands_them_on(call):
    _, _, events = call
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    ends = {e["id"]: names[e["pid"], e["tid"]] for e in events if e["ph"] == "f"}
    begins = [e for e in events if e["ph"] == "s"]
    ways = {(names[e["pid"], e["tid"]], ends[e["id"]], e["name"].split()[0]) for e in begins}
    assert {("MTE2", "MTE1", "L1"), ("MTE1", "M", "L0A"), ("MTE1", "M", "L0B")} <= ways
    # Where there is no Fixpipe the vector unit takes the sums.
    assert ("M", "FIX", "L0C") in ways or ("M", "V", "L0C") in ways


def test_counters_come_in_order_and_end_at_nothing(call):
    _, _, events = call
    for (_, name), values in series(events).items():
        times = [ts for ts, _ in values]
        assert times == sorted(times), name
        assert min(min(value.values()) for _, value in values) >= 0
        assert set(values[-1][1].values()) == {0}


def test_no_buffer_holds_more_than_it_has_room_for_and_each_is_used(call):
    profile, _, events = call
    most = Counter()
    for (_, name), values in series(events).items():
        buffer, what = name.split(maxsplit=1)
        if what == "bytes":
            most[buffer] = max(most[buffer], *(value["held"] for _, value in values))
    assert {"L1", "L0A", "L0B", "L0C"} <= most.keys()
    for buffer, held in most.items():
        assert 0 < held <= profile.buffers[buffer].capacity_bytes


def test_the_bytes_over_l2_are_those_of_the_kernel(call):
    profile, kernels, _ = call
    for kernel in kernels:
        edges, rates = l2_rates(kernel.timeline, Bytes(profile))
        widths = edges[1:] - edges[:-1]
        for way, rate in rates.items():
            assert float((rate * widths).sum()) == pytest.approx(kernel.bytes[f"l2_{way}"], rel=1e-9)


def test_copies_say_what_they_move(call):
    _, _, events = call
    copies = [e for e in events if e["ph"] == "X" and e["name"] in ("CopyGmToL1", "CopyUbToGm", "Fixpipe")]
    assert copies
    for copy in copies:
        assert copy["args"]["bytes"] > 0
        assert copy["args"]["direction"] in ("read", "write", "atomic")
        assert copy["args"]["tensor"]


def test_waits_are_those_that_the_timeline_counts(call):
    _, kernels, events = call
    drawn = sum(e["args"]["cycles"] for e in events if e.get("cat") == "wait")
    # Cores that a drawn one stands for wait alike; each is counted once here.
    phases = [phase for kernel in kernels for phase in kernel.times.phases]
    told = sum(
        cycles
        for phase in phases
        for core in phase.cores
        for causes in core.waiting.values()
        for cycles in causes.values()
    )
    assert drawn == told > 0


def test_a_trace_of_few_spans_is_small(tmp_path):
    profile, kernels = load_profile("910B"), result_of("910B", "float16").kernels
    path, most = tmp_path / "small.json", 10 * len(kernels)
    omitted = write_trace(path, kernels, profile, most)
    events = json.loads(path.read_text())["traceEvents"]
    drawn = sum(e["ph"] == "X" and "visible_cycle" in e["args"] for e in events)
    assert drawn <= most
    assert omitted > 0
    # An instruction brings at most itself, two waits, arrows from two operands and the sum, and what its
    # four slots take and leave; a kernel two lines, the names of two cores' threads, 200 steps of the links.
    assert len(events) <= 1 + drawn * (1 + 2 + 2 * 3 + 2 * 4) + len(kernels) * (2 + 2 * 20 + 204)
