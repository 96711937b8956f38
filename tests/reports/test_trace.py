"""Is a trace that of the timeline, event by event? The timeline is written by hand."""

import json
from dataclasses import replace

import pytest

from ascendsim.program.kernel import Core
from ascendsim.report.trace import write_trace
from ascendsim.timing.timeline import PhaseTimeline
from tests.helpers.fake_machine import Fake
from tests.helpers.hand_timeline import (
    COMPUTE,
    COPIES,
    CUBE0,
    CUBE1,
    PHASES,
    REDUCE,
    VECTOR0,
    core,
    hand_kernel,
)
from tests.helpers.toy_profiles import toy_split


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
