"""Do traces and plots show the spans of the timeline?"""

import json
from dataclasses import replace

import numpy as np
import pytest

from ascendsim.report.pictures import core_spans, coverage, middle_window
from ascendsim.report.trace import write_trace
from ascendsim.report.words import core_name
from tests.helpers.report_samples import entered_kernel, timed_kernel
from tests.helpers.toy_profiles import toy_split


@pytest.fixture
def profile():
    """The toy product: 2 cube cores at 1000 MHz, so that a cycle is a nanosecond."""
    return toy_split()


@pytest.fixture
def timed(profile):
    return timed_kernel(profile)


def trace(path, kernels, spans, profile=None):
    omitted = write_trace(path, kernels, profile or toy_split(), spans)
    return json.loads(path.read_text())["traceEvents"], omitted


def test_a_trace_names_cores_as_processes_and_pipes_as_threads(tmp_path, timed):
    events, omitted = trace(tmp_path / "t.json", [timed], 100)
    names = {(e["name"], e["args"]["name"]) for e in events if e["ph"] == "M" and "name" in e["args"]}
    assert {("process_name", "cube core 0"), ("thread_name", "MTE2"), ("thread_name", "M")} <= names
    assert omitted == 0


def test_trace_spans_are_those_of_the_timeline(tmp_path, timed):
    events, _ = trace(tmp_path / "t.json", [timed, timed], 100)
    spans = [e for e in events if e["ph"] == "X" and e["name"] == "Fake"]
    assert len(spans) == 2 * 3
    # the second kernel starts after the first one's 2.08 us and its own launch of 2 us
    assert [(e["ts"], e["dur"]) for e in spans] == [
        *((2.0, 0.03), (2.03, 0.05), (2.03, 0.02)),
        *((4.08, 0.03), (4.11, 0.05), (4.11, 0.02)),
    ]
    # the Mmad was issued at once and waited for the 30 cycles of the copy
    assert spans[1]["args"]["waited_cycles"] == 30
    assert spans[1]["args"]["waited_for"] == "Fake 0 on MTE2"


def test_equal_cores_are_drawn_once_and_named(tmp_path, timed):
    events, _ = trace(tmp_path / "t.json", [timed], 100)
    (phase,) = [e for e in events if "stands_for" in e.get("args", {})]
    assert phase["args"]["stands_for"] == "cube core 0-1"


def test_a_trace_is_bounded_and_says_what_it_leaves_out(tmp_path, timed):
    events, omitted = trace(tmp_path / "t.json", [timed], 2)
    assert sum(e["name"] == "Fake" for e in events) == 2
    assert omitted == 1


def test_spans_on_a_thread_do_not_overlap(tmp_path, timed):
    events, _ = trace(tmp_path / "t.json", [timed, timed], 100)
    ends = {}
    for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
        thread = (event["pid"], event["tid"])
        assert event["ts"] >= ends.get(thread, 0) - 1e-6
        ends[thread] = event["ts"] + event["dur"]


def test_a_trace_shows_the_entry_of_a_kernel(tmp_path, profile):
    events, _ = trace(tmp_path / "t.json", [entered_kernel(profile)], 100)
    (span,) = [e for e in events if e["name"] == "entry"]
    # Launched for 2 us, then 20 cycles of 1 ns, on the thread of the phases.
    assert (span["ts"], span["dur"], span["args"]) == (2.0, 0.02, {"cycles": 20})
    (phase,) = [e for e in events if "stands_for" in e.get("args", {})]
    assert (phase["pid"], phase["tid"], phase["ts"]) == (span["pid"], span["tid"], 2.02)


def test_a_core_with_both_units_is_an_ai_core(tmp_path, timed, profile):
    unified = replace(profile, core_structure="unified")
    events, _ = trace(tmp_path / "t.json", [timed], 100, unified)
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {"device", "AI core 0"}
    (core,) = core_spans(timed.timeline, "unified")
    assert core.label == "AI core 0 (and 1 alike)"
    assert core_name("unified", "vector") == core_name("split", "vector") == "vector core"


def test_coverage_is_the_share_of_each_bin():
    # [2, 6) and [8, 9) in four bins of [0, 12): 1/3, 3/3, 1/3, 0
    shares = coverage(np.array([2, 8]), np.array([6, 9]), 0, 12, 4)
    assert shares == pytest.approx([1 / 3, 1, 1 / 3, 0])


def test_a_close_look_begins_after_the_entry(profile):
    timeline = entered_kernel(profile).timeline
    (core,) = core_spans(timeline, "split")
    assert middle_window(timeline, core, 60) == (20, 101)


def test_the_plotted_core_is_one_of_each_kind(timed):
    (core,) = core_spans(timed.timeline, "split")
    assert core.label == "cube core 0 (and 1 alike)"
    assert core.pipes == ("MTE2", "M")
    assert core.spans["MTE2"][0].tolist() == [0, 30]
    assert middle_window(timed.timeline, core, 60) == (0, 80)
    # of 3 starts (0, 30, 30) the window of one about the middle begins at the second
    assert middle_window(timed.timeline, core, 1) == (30, 31)
