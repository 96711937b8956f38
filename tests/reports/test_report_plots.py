"""Is what plots and pictures show the timeline as it is, whatever the kernels?"""

import json
from dataclasses import replace

import numpy as np
import pytest

from ascendsim.program.kernel import Core
from ascendsim.report.document import kernel_entry
from ascendsim.report.pictures import (
    MOST_KERNELS,
    core_spans,
    coverage,
    layers_figure,
    middle_window,
    plot_layers,
    plot_timeline,
    strip_begin,
)
from ascendsim.report.trace import write_trace
from ascendsim.report.words import core_name
from ascendsim.timing.timeline import PhaseTimeline
from tests.helpers.report_samples import NETWORK, entered_kernel, timed_kernel
from tests.helpers.toy_machines import (
    COMPUTE,
    COPIES,
    CUBE1,
    PHASES,
    REDUCE,
    Fake,
    hand_kernel,
    program,
    toy_split,
    toy_unified,
)

# --- Is what plots show reduced from the timeline as it is, and are they drawn whatever the kernels? ---

PNG = b"\x89PNG\r\n\x1a\n"


def test_the_core_with_the_longest_work_is_shown():
    cube, vector = core_spans(hand_kernel().timeline, "split")
    # Core 0 is busy from cycle 10 to 60, core 1 to 55.
    assert (cube.label, cube.pipes) == ("cube core 0", ("MTE2", "M"))
    assert (vector.label, vector.pipes) == ("vector core 0", ("V",))
    assert [part.tolist() for part in cube.spans["M"]] == [[40], [60]]


def test_a_core_is_followed_through_all_phases():
    # Core 1 works longest of all in the second phase; its work in the first is shown as well.
    later = replace(COPIES, issue=[70, 72], start=[70, 90], end=[90, 140], done=[90, 140])
    phases = (PHASES[0], PhaseTimeline("more", 70, 140, (later,)))
    (core,) = core_spans(hand_kernel(phases, cycles=140).timeline, "split")
    assert core.label == f"cube core {CUBE1.index}"
    assert core.spans["MTE2"][0].tolist() == [10, 30, 70, 90]


def test_a_phase_without_the_core_shows_nothing_of_it():
    phases = (PHASES[0], PhaseTimeline("others", 60, 70, (REDUCE,)), PHASES[1])
    cube, _ = core_spans(hand_kernel(phases).timeline, "split")
    assert cube.spans["MTE2"][0].tolist() == [10]


def test_the_label_counts_the_cores_that_did_the_same():
    shared = replace(COMPUTE, cores=tuple(Core("cube", index) for index in range(4)))
    (core,) = core_spans(hand_kernel([PhaseTimeline("compute", 10, 60, (shared,))]).timeline, "split")
    assert core.label == "cube core 0 (and 3 alike)"


def test_a_core_that_does_nothing_is_no_core_to_show():
    idle = replace(
        COMPUTE, program=REDUCE.program.__class__((), (), (), (), {}), issue=[], start=[], end=[], done=[]
    )
    assert core_spans(hand_kernel([PhaseTimeline("compute", 10, 10, (idle,))]).timeline, "split") == []


@pytest.mark.parametrize(
    ("begin", "end", "bins", "expected"),
    [
        (0, 100, 1, [0.3]),
        (0, 100, 2, [0.6, 0.0]),  # 30 of the first 50
        (10, 40, 3, [1.0, 1.0, 1.0]),
        (35, 45, 2, [1.0, 0.0]),
    ],
)
def test_coverage_of_one_span(begin, end, bins, expected):
    assert coverage(np.array([10]), np.array([40]), begin, end, bins) == pytest.approx(expected)


def test_shares_stay_between_0_and_1():
    # Interpolation of a long busy stretch in many bins is inexact in the last place.
    shares = coverage(np.array([0]), np.array([10**9 + 7]), 0, 10**9 + 7, 997)
    assert shares.min() >= 0.0
    assert shares.max() <= 1.0
    assert shares == pytest.approx(np.ones(997))


def test_a_window_of_a_kernel_of_few_spans_is_all_after_the_entry():
    timeline = hand_kernel().timeline
    cube, _ = core_spans(timeline, "split")
    assert middle_window(timeline, cube, 2) == (10, 100)
    # One of two spans: from the first to the second start.
    assert middle_window(timeline, cube, 1) == (10, 40)


def test_pictures_are_drawn_for_both_structures(tmp_path):
    for profile in (toy_split(), toy_unified()):
        path = tmp_path / f"{profile.variant}.png"
        plot_timeline(path, [hand_kernel()], profile, "a test")
        assert path.read_bytes().startswith(PNG)


def test_of_many_kernels_the_longest_are_drawn(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("ascendsim.report.pictures._draw_whole", lambda *given: drawn.append(given[1]))
    kernels = [
        hand_kernel(cycles=100 + 10 * (index % 5), name=f"k{index}") for index in range(MOST_KERNELS + 2)
    ]
    plot_timeline(tmp_path / "t.png", kernels, toy_split(), "a test")
    names = list(dict.fromkeys(kernel.name for kernel in drawn))
    # 100 cycles each for k0 and k5, of which neither is among the longest eight; the others keep their order.
    assert names == ["k1", "k2", "k3", "k4", "k6", "k7", "k8", "k9"]


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draw kernels and return the axes, left and right by turns; a cycle is a nanosecond."""
    figures = []
    monkeypatch.setattr("ascendsim.report.pictures.save", lambda figure, _: figures.append(figure))

    def axes(*kernels):
        plot_timeline(tmp_path / "t.png", kernels, toy_split(), "a test")
        return figures[-1].axes

    return axes


def test_the_entry_is_a_strip_that_is_not_to_scale(drawn):
    # Entry to cycle 10 of 100: 4 % of the other 90 cycles, in place of 10.
    assert strip_begin(10, 100) == pytest.approx(10 - 3.6)
    assert strip_begin(0, 100) == 0
    left = drawn(hand_kernel())[0]
    assert left.get_xlim() == pytest.approx((6.4e-3, 0.1))
    assert "entry 0.01 us" in [text.get_text() for text in left.texts]
    # No time is named where there is no scale, nor beyond the end.
    assert all(0.01 <= tick <= 0.1 for tick in left.get_xticks())


def test_the_window_on_the_right_is_framed_on_the_left(drawn):
    # Enough copies for a window in their middle: 100 of one cycle, of which 60 are shown.
    many = replace(
        COMPUTE,
        program=program(*[Fake("MTE2", 1)] * 100),
        issue=list(range(10, 110)),
        start=list(range(10, 110)),
        end=list(range(11, 111)),
        done=list(range(11, 111)),
    )
    left, right = drawn(hand_kernel([PhaseTimeline("compute", 10, 110, (many,))], cycles=110))
    frames = [patch for patch in left.patches if not patch.get_fill()]
    (frame,) = frames
    assert (frame.get_x(), frame.get_x() + frame.get_width()) == pytest.approx(right.get_xlim())
    # The window begins at the 20th start of 100 and ends at the 80th.
    assert right.get_xlim() == pytest.approx((0.030, 0.090))
    whole, _ = drawn(hand_kernel(PHASES[:1], cycles=60))
    assert not [patch for patch in whole.patches if not patch.get_fill()]


def test_layers_are_drawn_whatever_their_kernels(tmp_path):
    plot_layers(tmp_path / "layers.png", NETWORK, "a test")
    assert (tmp_path / "layers.png").read_bytes().startswith(PNG)


def test_the_legend_of_the_layers_covers_no_bar():
    figure = layers_figure(NETWORK, "a test")
    figure.draw_without_rendering()
    (legend,), (axes,) = figure.legends, figure.axes
    assert legend.get_window_extent().y0 >= axes.get_tightbbox().y1


def test_each_kernel_of_the_layers_has_a_colour_of_its_own():
    def layer(names):
        kernels = [{"name": name, "time_us": 1.0 + at} for at, name in enumerate(names)]
        return {"name": "l", "count": 2, "kernels": kernels}

    # 14 kernels and 12 colours: the two shortest stand together, 1 and 2 us of each of two convolutions.
    names = [f"k{at}" for at in range(14)]
    figure = layers_figure({"layers": [layer(names)]}, "t")
    (axes,), (legend,) = figure.axes, figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [*names[2:], "all others"]
    assert [bar.get_width() for bar in axes.patches] == [2 * (1.0 + at) for at in range(14)]
    shared, *others = dict.fromkeys(bar.get_facecolor() for bar in axes.patches)
    assert [bar.get_facecolor() for bar in axes.patches] == [shared, shared, *others]
    # Where there are colours enough nothing is put together.
    (legend,) = layers_figure({"layers": [layer(names[:12])]}, "t").legends
    assert [text.get_text() for text in legend.get_texts()] == names[:12]


def test_the_account_of_a_hand_made_kernel():
    made = kernel_entry(hand_kernel(), toy_split())
    # By hand: 100 cycles of which 10 are the entry; both cube cores have an MTE2, busy for 30 and 45 of 100.
    assert (made["cycles"], made["entry_cycles"], made["entry_us"], made["core_us"]) == (100, 10, 0.01, 0.09)
    mte2 = made["occupation"]["MTE2"]
    assert mte2["busy"] == pytest.approx((30 + 45) / 2 / 100)
    assert mte2["entry"] == pytest.approx(0.1)
    # Core 1 has an M as well, and left it idle; core 0 waited 28 cycles for its copy.
    cube = made["occupation"]["M"]
    assert cube["busy"] == pytest.approx(20 / 2 / 100)
    assert cube["waiting"] == {"MTE2": pytest.approx(28 / 2 / 100)}
    # The vector core is alone of its kind, so that nothing is averaged away.
    assert made["occupation"]["V"]["busy"] == pytest.approx(0.3)
    # From the end: the addition, the barrier before it, the product, the copy, the entry.
    assert made["critical_path"] == {"MTE2": 30, "V": 30, "M": 20, "barrier": 10, "entry": 10}
    assert sum(made["critical_path"].values()) == made["cycles"]


# --- Do traces and plots show the spans of the timeline? -----------------------------------------------


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
