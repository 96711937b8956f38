"""Is a trace that of the timeline, event by event, by the rules of its format?"""

import json
from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.instructions.vector import CopyGmToUb
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.ops.graph_times import kernel_result
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.places import Gm, GmTensor
from ascendsim.program.program import ProgramBuilder
from ascendsim.report.trace import Bytes, l2_rates, write_trace
from ascendsim.timing.kernel import measure_kernel
from ascendsim.timing.timeline import PhaseTimeline
from tests.helpers.toy_machines import (
    COMPUTE,
    COPIES,
    CUBE0,
    CUBE1,
    PHASES,
    REDUCE,
    VECTOR0,
    Fake,
    core,
    hand_kernel,
    toy_split,
)

# --- Is a trace that of the timeline, event by event? The timeline is written by hand. -----------------


@pytest.fixture
def traced(tmp_path):
    """Write a trace and return its content; the toy product has a clock of 1000 MHz."""

    def write(*kernels, spans=100):
        omitted = write_trace(tmp_path / "trace.json", kernels, toy_split(), spans)
        made = json.loads((tmp_path / "trace.json").read_text())
        assert made["otherData"] == {"omitted_spans": omitted, "clock_mhz": 1000}
        return made["traceEvents"]

    return write


def spans(events, name=None):
    """Return (process, thread, begin, duration) of spans in nanoseconds, which are cycles here."""
    return [
        (e["pid"], e["tid"], round(1000 * e["ts"]), round(1000 * e["dur"]))
        for e in events
        if e["ph"] == "X" and name in (None, e["name"])
    ]


def test_a_kernel_of_your_own_has_a_trace(tmp_path):
    product, x = load_profile("910B2"), GmTensor.of("x", (64,), "float32")
    b = ProgramBuilder(product)
    b.add(CopyGmToUb.of(b.slots("UB", 256, "x")[0], Gm(x, ())))
    math = MathSettings(AccumulationModel.parse("exact:RNE"))
    made = Kernel("load", (Phase("all", (CoreWork(Core("vector", 0), 0, b.build),)),), {"x": x}, math)
    assert write_trace(tmp_path / "trace.json", [kernel_result(made, product)], product, 100) == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert len(spans(events, "CopyGmToUb")) == 1
    [kernel] = [e for e in events if e.get("cat") == "kernel"]
    assert kernel["args"]["cycles"] == measure_kernel(made, product).cycles


def test_every_span_is_where_it_was(traced):
    events = traced(hand_kernel())
    # Launched for 1000 ns; the cube cores are processes 1000 and 1001, the vector core is process 2000.
    threads = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name" and e["pid"] > 1}
    assert spans(events, "Fake") == [
        (1000, threads["MTE2"], 1010, 30),
        (1000, threads["M"], 1040, 20),
        (1001, threads["MTE2"], 1010, 20),
        (1001, threads["MTE2"], 1030, 25),
        (2000, threads["V"], 1070, 30),
    ]


def test_the_host_sees_launch_and_kernel_and_each_core_its_entry_and_phases(traced):
    events = traced(hand_kernel())
    assert spans(events, "launch grad_weight") == [(1, 1, 0, 1000)]
    assert spans(events, "grad_weight") == [(1, 2, 1000, 100)]
    # The vector core has no work in the first phase: nothing of it is drawn before its own.
    assert spans(events, "entry") == [(1000, 0, 1000, 10), (1001, 0, 1000, 10)]
    assert spans(events, "grad_weight: compute") == [(1000, 0, 1010, 50), (1001, 0, 1010, 50)]
    assert spans(events, "grad_weight: reduce") == [(2000, 0, 1070, 30)]


def test_a_span_tells_how_long_it_waited_and_for_what(traced):
    events = traced(hand_kernel())
    details = [e["args"] for e in events if e["name"] == "Fake"]
    assert details[0] == {
        "index": 0,
        "shape": str(COMPUTE.program.instructions[0].shape),
        "start_cycle": 10,
        "cycles": 30,
        "issued_cycle": 10,
        "visible_cycle": 40,
    }
    assert (details[1]["waited_cycles"], details[1]["waited_for"]) == (40 - 12, "Fake 0 on MTE2")
    # The second copy of core 1 was issued in cycle 12 and had to let the first one go: no wait for another.
    assert "waited_cycles" not in details[3]


def test_kernels_follow_each_other(traced):
    second = hand_kernel(name="cast", time_us=0.6)
    events = traced(hand_kernel(), second)
    assert spans(events, "launch cast") == [(1, 1, 1100, 500)]
    assert spans(events, "cast") == [(1, 2, 1600, 100)]
    assert len(spans(events, "Fake")) == 10


def test_a_kernel_without_a_launch_begins_at_once(traced):
    # 0.1 us less 100 cycles may be a hair below 0 in floats.
    events = traced(hand_kernel(time_us=0.1 - 1e-12))
    assert spans(events, "launch grad_weight") == [(1, 1, 0, 0)]
    assert min(e["ts"] for e in events if e["ph"] == "X") == 0


def test_each_process_and_thread_is_named_once(traced):
    events = traced(hand_kernel(), hand_kernel(name="again"))
    names = [
        (e["pid"], e["name"], e["args"]["name"]) for e in events if e["ph"] == "M" and "name" in e["args"]
    ]
    assert len(names) == len(set(names))
    assert {name[2] for name in names if name[1] == "process_name"} == {
        *("device", "cube core 0", "cube core 1", "vector core 0")
    }
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert named == {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}


def test_a_name_comes_before_what_it_names(traced):
    seen = set()
    for event in traced(hand_kernel()):
        if event["name"] == "thread_name":
            seen.add((event["pid"], event["tid"]))
        elif event["ph"] == "X":
            assert (event["pid"], event["tid"]) in seen


def test_cores_that_do_the_same_are_drawn_once_with_their_numbers(traced):
    many = [Core("cube", index) for index in (0, 1, 2, 5, 7, 8)]
    phase = PhaseTimeline("compute", 10, 60, (replace(COMPUTE, cores=tuple(many)),))
    events = traced(hand_kernel([phase]))
    (told,) = [e["args"]["stands_for"] for e in events if "stands_for" in e.get("args", {})]
    assert told == "cube core 0-2, 5, 7-8"
    assert {e["pid"] for e in events} == {1, 1000}


@pytest.mark.parametrize(
    ("room", "drawn", "why"),
    [
        (100, 5, "all of them"),
        (4, 4, "core 1 whole, but no room for the vector core"),
        (3, 3, "core 0 whole; core 1 would not fit; the vector core does"),
        (2, 2, "core 0 alone"),
        (1, 1, "the first span of the first core"),
    ],
)
def test_whole_cores_are_left_out_first(traced, room, drawn, why):
    events = traced(hand_kernel(), spans=room)
    assert len(spans(events, "Fake")) == drawn, why
    partly = [e["args"]["first_spans_only"] for e in events if "first_spans_only" in e.get("args", {})]
    assert partly == ([1] if room == 1 else [])


def test_room_is_shared_between_kernels(traced):
    # 4 spans for two kernels: two each, although the first could use all.
    events = traced(hand_kernel(), hand_kernel(name="again"), spans=4)
    starts = [begin for _, _, begin, _ in spans(events, "Fake")]
    assert sum(begin < 1100 for begin in starts) == sum(begin > 1100 for begin in starts) == 2


def test_no_kernel_at_all_is_a_trace_too(traced):
    (only,) = traced()
    assert only["args"] == {"name": "device"}


def test_a_drain_is_waited_for_like_any_other(traced):
    # The second copy drains the pipe: it starts in cycle 45, when the first one's bytes have arrived.
    draining = core(
        [CUBE0], [Fake("MTE2", 30), Fake("MTE2", 15, drains=True)], [10, 12], [10, 45], [40, 60], [45, 60]
    )
    events = traced(hand_kernel([PhaseTimeline("compute", 10, 60, (draining,))]))
    last = [e["args"] for e in events if e["name"] == "Fake"][-1]
    assert (last["waited_cycles"], last["waited_for"]) == (5, "Fake 0 on MTE2")


def test_an_arrow_goes_from_who_makes_a_tile_to_who_reads_it(traced):
    # M takes in cycle 40 what MTE2 has had in cycle 40: half a cycle inside of either, and 1000 ns of launch.
    flows = [e for e in traced(hand_kernel()) if e["ph"] in "sf"]
    assert [(e["ph"], e["pid"], e["tid"], 1000 * e["ts"], e["id"]) for e in flows] == [
        ("s", 1000, 1, 1039.5, 1),
        ("f", 1000, 3, 1040.5, 1),
    ]
    assert {e["name"] for e in flows} == {"L1 1 after 0"}
    # Nobody knows in a kernel of the next launch what was in a slot of this one.
    again = [e["id"] for e in traced(hand_kernel(), hand_kernel()) if e["ph"] == "s"]
    assert again == [1, 2]


def test_a_wait_is_a_span_before_the_one_that_waited(traced):
    events = traced(hand_kernel())
    # From when M was issued to when the copy had come.
    assert spans(events, "wait for MTE2") == [(1000, 3, 1012, 28)]
    (wait,) = [e for e in events if e["name"] == "wait for MTE2"]
    assert wait["args"] == {"cycles": 28, "for": "Fake 0 on MTE2", "before": "Fake 1 on M"}


def test_a_full_queue_is_a_wait_of_the_scalar_unit(traced):
    # A queue of one place: the second instruction enters it when the first is taken up, the third when the
    # second is. There the scalar unit waits from 12 to 39, and takes a cycle more.
    full = core([CUBE0], [Fake("MTE2", 30)] * 3, [11, 12, 40], [11, 41, 71], [41, 71, 101])
    events = traced(hand_kernel([PhaseTimeline("compute", 10, 101, (full,))], cycles=101, time_us=1.101))
    assert spans(events, "queue of MTE2 full") == [(1000, 7, 1012, 27)]


def test_a_slot_is_full_from_who_fills_it_to_who_reads_it_last(traced):
    # One slot of 32 bytes, which the copy takes in cycle 10 and M has read in cycle 60.
    levels = [e for e in traced(hand_kernel()) if e["name"] == "L1 bytes"]
    assert [(e["pid"], round(1000 * e["ts"]), e["args"]["held"]) for e in levels] == [
        (1000, 1010, 32),
        (1000, 1060, 0),
    ]


def test_rows_are_in_the_order_in_which_data_flow(traced):
    order = {
        e["args"]["name"]: e["tid"]
        for e in traced(hand_kernel())
        if e["name"] == "thread_name" and e["pid"] > 1
    }
    assert sorted(order, key=order.get) == ["phase", "MTE2", "M", "V", "S"]


def test_the_links_show_what_passes_them(traced):
    # 60 bytes in cycles 10 to 40 of 90 after the entry: 2 GB/s at 1000 MHz, for two alike twice as much.
    moving = Fake("MTE2", 30, kind="read", bytes=60)
    both = core([CUBE0, CUBE1], [moving], [10], [10], [40])
    one = hand_kernel([PhaseTimeline("compute", 10, 100, (both,))])
    one = replace(one, bytes={"l2_read": 120, "memory_read": 45, "memory_write": 0})
    events = traced(one)
    steps = [(round(1000 * e["ts"]), e["args"]) for e in events if e["name"] == "L2 GB/s"]
    nothing = {"read": 0, "write": 0}
    assert steps == [(1010, {"read": 4.0, "write": 0.0}), (1040, nothing), (1100, nothing)]
    # 45 bytes in 90 cycles.
    means = [e["args"] for e in events if e["name"].startswith("main memory")]
    assert means == [{"read": 0.5, "write": 0.0}, nothing]
    (copy,) = [e["args"] for e in events if e["name"] == "Fake"]
    assert (copy["bytes"], copy["direction"], copy["tensor"]) == (60, "read", "x")


def test_the_hand_made_timeline_adds_up():
    assert tuple(work.cores[0] for work in (COMPUTE, COPIES, REDUCE)) == (CUBE0, CUBE1, VECTOR0)
    for phase in PHASES:
        for work in phase.cores:
            assert phase.begin <= min(work.issue)
            assert max(work.done) <= phase.end
            for issued, start, end in zip(work.issue, work.start, work.end, strict=True):
                assert issued <= start <= end


# -------------------------------------------------------------------------------------------------------
# Does the trace of a real call keep the rules of the trace event format, and say what the timeline says?
# -------------------------------------------------------------------------------------------------------
# The format asks of a flow that it begins and ends inside of spans, of the spans of a thread that they do
# not overlap, and of counters that their values come in order (Google's "Trace Event Format").

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
