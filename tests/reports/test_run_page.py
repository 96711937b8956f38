"""Are pages of runs whole, drawn as found, and opened by a browser without complaint?"""

import html
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.report.calls import (
    points_of,
    products_picture,
    roof_of,
    roofline_picture,
    roofline_table,
    run_page,
    stages_picture,
    waits_picture,
)
from ascendsim.report.document import CallReport, kernel_entry, run_document
from ascendsim.report.markdown import markdown_table, page
from ascendsim.report.page import Roof, Roofline, RooflinePoint
from ascendsim.report.page.charts import figure_of
from ascendsim.report.page.html import render
from ascendsim.report.tables import GRADIENT as GRADIENT_COLUMNS
from ascendsim.report.tables import SHOWN_ERRORS, definitions
from ascendsim.studies.table import text_table
from ascendsim.timing.timeline import PhaseTimeline, Stages, Timeline, stages
from tests.helpers.report_samples import (
    CAST,
    GRADIENT,
    KERNEL,
    NETWORK,
    PRODUCT,
    document,
    made_up_interval,
    needs_chromium,
    opened,
    timed_kernel,
    timed_run,
)
from tests.helpers.toy_machines import CUBE0, PHASES, REDUCE, Fake, core, hand_kernel, toy_split
from tests.studies.test_study_page import Reader

# -------------------------------------------------------------------------------------------------------
# Does the page of a run draw what the run has found, as one file that a browser opens without complaint?
# -------------------------------------------------------------------------------------------------------

PROBLEM = ConvProblem(input=(1, 32, 14, 14), weight=(64, 32, 3, 3), stride=1, padding=1)


@pytest.fixture(scope="module", params=["910B", "950PR_9589", "310P"])
def call(request):
    """A product and a call on it, small and real."""
    profile = load_profile(request.param)
    result = estimate(PROBLEM, dtype="float16", product=profile, output_mask=(True, True, False))
    return profile, result, run_document("a layer", {}, [CallReport(result, profile)], ["run"])["products"][0]


def test_stages_are_told_from_the_products():
    # Entry to 10; the one product from 40 to 60; the vector core adds until 100.
    assert stages(hand_kernel().timeline) == Stages(entry=10, fill=30, steady=20, drain=40)
    assert stages(hand_kernel([PHASES[1]]).timeline) is None


def test_stages_are_those_of_the_core_whose_cube_ends_last():
    early = core([CUBE0], [Fake("M", 5)], [10], [10], [15])
    late = core([CUBE0], [Fake("M", 5), Fake("M", 5)], [10, 12], [20, 50], [25, 55])
    for cores in ((early, late), (late, early)):
        timeline = Timeline("k", 60, (PhaseTimeline("compute", 10, 60, cores),), {})
        assert stages(timeline) == Stages(10, 10, 35, 5)


def test_stages_of_real_kernels_add_up_to_their_cycles(call):
    _, result, _ = call
    found = {kernel.name: stages(kernel.timeline) for kernel in result.kernels}
    for kernel in result.kernels:
        made = found[kernel.name]
        assert (made is None) == (not kernel.macs)
        if made:
            assert sum(made) == kernel.cycles
            assert min(made) >= 0


def test_no_kernel_is_above_the_roof(call):
    profile, _, product = call
    roof, points = roof_of(product, profile), points_of(product, profile)
    assert [point.label for point in points] == ["grad_input", "grad_weight"]
    for point in points:
        assert 0 < point.rate <= roof.at(point.intensity)
        assert point.rate <= point.mte1
        assert point.memory is None or point.rate <= point.memory


def test_the_roof_is_what_the_product_file_says():
    # 910B2: 24 cubes of 4096 multiply-adds a cycle at 1800 MHz.
    profile = load_profile("910B2")
    result = estimate(PROBLEM, dtype="float16", product=profile, output_mask=(True, False, False))
    product = run_document("a layer", {}, [CallReport(result, profile)], ["run"])["products"][0]
    roof = roof_of(product, profile)
    assert roof.peak == pytest.approx(24 * 4096 * 1800e6 / 1e12)
    total = float(profile.links["l2_read"].total_bytes_per_cycle)
    assert roof.bytes_rate == pytest.approx(total * 1800e6 / 1e12)
    assert roof.at(1e9) == roof.peak
    assert roof.at(roof.ridge / 2) == pytest.approx(roof.peak / 2)


def test_a_point_is_its_multiply_adds_over_its_bytes_and_core_time():
    # 4096 multiply-adds, 2048 bytes from L2, 1.5 us on the cores: 2 for a byte, 4096 / 1.5 a microsecond.
    profile = toy_split()
    (point,) = points_of(PRODUCT | {"kernels": [KERNEL, CAST]}, profile)
    assert point == RooflinePoint("grad_input", 2.0, pytest.approx(4096 / 1.5 / 1e6))
    # MTE1 is busy for a quarter of 1 us; 512 bytes over main memory.
    busy = KERNEL | {"busy": {"MTE1": 0.25}, "bytes": {"l2_read": 2048, "memory": 512}}
    (point,) = points_of(PRODUCT | {"kernels": [busy]}, profile)
    assert point.mte1 == pytest.approx(4096 / 0.25 / 1e6)
    full = float(profile.links["memory"].total_bytes_per_cycle) * profile.clock.cube_mhz
    assert point.memory == pytest.approx(4096 / 512 * full / 1e6)
    (row,) = roofline_table([RooflinePoint("a", 2.0, 1.0)], Roof(10.0, 2.0)).rows
    # The slope at 2 for a byte is 4 of 10: L2 is the limit, and a quarter of it is reached.
    assert row == ("a", "2", "1", "4", "", "", "L2", "25%")
    # A lower roof of its own is the one that counts.
    (row,) = roofline_table([RooflinePoint("a", 2.0, 1.0, mte1=2.0, memory=8.0)], Roof(10.0, 2.0)).rows
    assert row == ("a", "2", "1", "4", "2", "8", "MTE1", "50%")
    drawn = figure_of(Roofline((RooflinePoint("a", 2.0, 1.0, 2.0, 8.0),), Roof(10.0, 2.0))).axes[0]
    assert [text.get_text() for text in drawn.get_legend().get_texts()] == [
        "roof of MTE1",
        "roof of main memory",
    ]


def test_a_dot_stands_below_the_roof_where_its_numbers_are():
    (axes,) = figure_of(
        Roofline((RooflinePoint("mid", 10.0, 10.0), RooflinePoint("low", 1.0, 1.0)), Roof(100.0, 1.0))
    ).axes
    # Decades 1 .. 100 across and 1 .. 100 up: 10 is in the middle of both.
    assert (axes.get_xlim(), axes.get_ylim()) == ((1, 100), (1, 100))
    assert [tuple(place) for place in axes.collections[0].get_offsets()] == [(10, 10), (1, 1)]
    middle = axes.transAxes.inverted().transform(axes.transData.transform((10, 10)))
    assert middle == pytest.approx((0.5, 0.5))
    # The slope from 1 for a byte to the ridge at 100, then the level.
    assert [tuple(place) for place in axes.lines[0].get_xydata()] == [(1, 1), (100, 100), (100, 100)]


def test_many_dots_have_their_numbers_in_the_table_and_few_their_names():
    roof = Roof(100.0, 1.0)
    many = [RooflinePoint(f"kernel {at}", 1.0 + at, 1.0) for at in range(7)]
    picture, table = roofline_picture(many, roof), roofline_table(many, roof)
    assert table.headings[:2] == ("no.", "kernel")
    assert picture.chart.marks == [row[0] for row in table.rows]
    assert "Numbers are those of the table." in picture.caption
    picture, table = roofline_picture(many[:6], roof), roofline_table(many[:6], roof)
    assert table.headings[0] == "kernel"
    assert picture.chart.marks == [f"kernel {at}" for at in range(6)]
    # They stand beside the dots, and the height of the roof on it.
    drawn = [text.get_text() for text in figure_of(picture.chart).axes[0].texts]
    assert drawn == ["cubes: 100", *picture.chart.marks]


def test_the_parts_of_a_product_add_up_to_its_time():
    chart = products_picture([PRODUCT | {"kernels": [KERNEL, CAST | {"core_us": 2.5}]}]).chart
    parts = (("launch", 1.0), ("entry", 0.5), ("grad_input", 1.5), ("other kernels", 2.5))
    assert [(stack.label, stack.parts) for stack in chart.stacks] == [("toy1", parts)]
    (network,) = products_picture([NETWORK]).chart.stacks
    # Layer a three times, layer b once: 4 x 1.5 us of grad_input.
    assert ("grad_input", 6.0) in network.parts


def test_waits_are_stacked_by_cause():
    (stack,) = waits_picture(PRODUCT | {"kernels": [KERNEL, CAST]}).chart.stacks
    # 1000 cycles at 1000 MHz are 1 us: entry and waits a quarter each, busy a half.
    parts = (("entry", 0.25), ("busy", 0.5), ("waits for MTE2", 0.25), ("idle", 0.0))
    assert (stack.label, stack.parts) == ("grad_input", parts)
    assert waits_picture(PRODUCT | {"kernels": [CAST]}) is None


def test_waits_of_real_kernels_fill_their_time(call):
    _, _, product = call
    for kernel in product["kernels"]:
        if kernel["macs"]:
            spent = kernel["occupation"]["M"]
            shares = [spent["entry"], spent["busy"], *spent["waiting"].values(), spent["idle"]]
            assert sum(shares) == pytest.approx(1)


def test_stages_are_shown_with_their_numbers():
    kernel = replace(hand_kernel(), macs=1)
    _, table = stages_picture([kernel], toy_split())
    assert table.rows == (("grad_weight", "0.01", "0.03", "0.02", "0.04", "0.10"),)
    assert stages_picture([hand_kernel([PhaseTimeline("reduce", 70, 100, (REDUCE,))])], toy_split()) is None


def test_a_page_closes_its_tags_and_needs_no_other_file():
    run = timed_run(toy_split())
    made = run_document("a <b> & c", {"input": (1, 2)}, [run, run], ["run", "x y"])
    text = render(run_page(made, [run.profile] * 2, [run.result.kernels] * 2))
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert reader.sources == ["data:,"]
    assert "a &lt;b&gt; &amp; c" in text
    order = ["By point estimates", "Products side by side", "toy_split: pipes", "How far the", "command"]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)


def test_a_network_has_its_layers_in_the_pictures():
    text = render(run_page(document(NETWORK), [toy_split()]))
    assert "a grad_input" in text
    assert "Cycles of each kernel of one layer" in text
    both = render(run_page(document(NETWORK, NETWORK | {"variant": "toy2"}), [toy_split()] * 2))
    assert "Layers side by side" in both


def test_a_call_of_no_kernels_has_a_page_too():
    nothing = PRODUCT | {"kernels": [], "time_us": 0.0, "launch_us": 0.0, "entry_us": 0.0, "core_us": 0.0}
    assert "No kernel runs" in render(run_page(document(nothing), [toy_split()]))


@needs_chromium
def test_a_browser_opens_the_page_and_says_nothing(tmp_path, call):
    profile, result, _ = call
    made = run_document("a layer", {}, [CallReport(result, profile)], ["run"])
    page, log = opened(render(run_page(made, [profile], [result.kernels])), tmp_path)
    assert page.count("<svg") == 4
    assert "CONSOLE" not in log


# The page in a frame as wide as a screen; how wide its content is, becomes the title once all is loaded.
FRAMED = """<!doctype html><title>nothing</title><iframe id="f" width="{width}" height="800" style="border:0"
srcdoc="{page}"></iframe><script>window.onload = () => {{
document.title = document.getElementById("f").contentDocument.documentElement.scrollWidth; }}</script>"""


def content_width(page, width, folder):
    """How many pixels wide a page is in a window that is so many wide."""
    shown, _ = opened(FRAMED.format(width=width, page=html.escape(page)), folder)
    (title,) = re.findall("<title>([^<]*)</title>", shown.partition("<iframe")[0])
    return int(title)


@needs_chromium
def test_no_screen_has_to_be_scrolled_sideways(tmp_path):
    # Wide tables scroll in their own boxes, which is seen by taking the boxes away.
    run = timed_run(toy_split())
    made = run_document("a layer", {}, [run] * 3, ["run", "--a-long-option", "x" * 80])
    page = render(run_page(made, [run.profile] * 3, [run.result.kernels] * 3))
    assert content_width(page, 390, tmp_path) <= 390
    assert content_width(page, 1280, tmp_path) <= 1280
    assert content_width(page.replace("overflow-x: auto", ""), 390, tmp_path) > 390


def test_pictures_shrink_with_the_screen_and_only_tables_scroll():
    run = timed_run(toy_split())
    made = run_document("a layer", {}, [run], ["run"])
    page = render(run_page(made, [run.profile], [run.result.kernels]))
    style = page[page.index("<style>") : page.index("</style>")]
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "svg { width: 100%; max-width: 100%; height: auto; }" in style
    assert ".wide { overflow-x: auto;" in style
    assert page.count('<div class="wide"><table') == page.count("<table") == page.count('class="wide"') > 0
    assert page.count("<figure><svg") == page.count("<figure>") > 0


# --- Are pages and documents of hand-made records whole? No call is run. -------------------------------

JUDGED = PRODUCT | {"gradients": [GRADIENT], "order": "program"}


# Pages


def test_a_bar_in_a_cell_ends_no_cell():
    table = text_table("t", ("name", "count"), frozenset({0}), (("a | b", " 3"),))
    assert markdown_table(table).splitlines() == ["| name | count |", "| :-- | --: |", "| a \\| b | 3 |"]


def test_a_table_without_rows_is_a_head():
    assert markdown_table(text_table("t", ("name",), frozenset(), ())) == "| name |\n| --: |"


def test_a_page_names_its_pictures_and_its_trace():
    files = [{"plot": "timeline.png", "trace": "trace.json", "note": "It leaves out 3 spans."}]
    text = page(document(PRODUCT), files)
    assert "![Which pipe is busy when, of one core of each kind](timeline.png)" in text
    assert "[trace.json](trace.json) opens in <https://ui.perfetto.dev>. It leaves out 3 spans." in text
    bare = page(document(PRODUCT), [{}])
    assert "![" not in bare
    assert "perfetto" not in bare
    layers = page(document(NETWORK), [{"plot": "layers.png"}])
    assert "![Time of each layer by kernel](layers.png)" in layers
    assert "where the cycles of each pipe went" not in layers


def test_a_page_has_no_empty_paragraph():
    for product in (PRODUCT, JUDGED, NETWORK):
        text = page(document(product), [{}])
        assert "\n\n\n" not in text
        assert text.endswith("\n")
        assert not text.endswith("\n\n")


def test_the_command_of_a_page_can_be_pasted():
    text = page(document(PRODUCT, command=["run", "--npz", "my tensors.npz"]), [{}])
    assert "`ascendsim run --npz 'my tensors.npz'`" in text


def test_what_all_products_share_is_said_once_under_a_heading():
    other = PRODUCT | {"variant": "toy2"}
    text = page(document(PRODUCT, other), [{}, {}])
    assert text.count("## What holds of all products") == 1
    assert text.count("Arithmetic: float16") == 1
    assert "**Products side by side" in text
    alone = page(document(PRODUCT), [{}])
    assert "## What holds of all products" not in alone
    assert "side by side" not in alone


def test_a_page_closes_with_the_assumed_figures():
    text = page(document(PRODUCT), [{}])
    head, _, tail = text.partition("## Figures assumed for toy1")
    assert "| `sync.flag_cycles` | 10 | 0 .. 20 | a \\| guess |" in tail
    assert "What the columns mean" in head
    certain = page(document(PRODUCT | {"assumed_figures": {}}), [{}])
    assert "Figures assumed" not in certain


def test_a_definition_of_what_no_table_shows_has_no_heading():
    columns = (*GRADIENT_COLUMNS, *SHOWN_ERRORS)
    given = definitions(columns) | {"rmse": "Square root."}
    text = page(document(JUDGED, definitions={"products.gradients": given}), [{}])
    assert "| MERE | `mere` |" in text
    assert "|  | `rmse` | Square root. |" in text


def test_a_page_of_gradients_names_the_standards():
    assert "Standards, and NaN and Inf where R(g) has them: st: R; mixed: S." in page(document(JUDGED), [{}])


# Documents of records


def test_an_interval_becomes_plain_values():
    profile = SimpleNamespace(
        product="toy",
        variant="toy1",
        core_structure="split",
        cores=SimpleNamespace(cube=2, vector=4),
        clock=SimpleNamespace(cube_mhz=1000),
        evidence="",
        figures={},
        assumed=dict,
    )
    result = SimpleNamespace(
        compute_dtype="float16", accumulation="seq:RNE", kernels=(), cycles=0, time_us=0.0, notes=()
    )
    made = run_document("t", {}, [CallReport(result, profile, interval=made_up_interval())], [])["products"][
        0
    ]
    assert made["order"] is None
    assert made["interval"] == {
        "figures": 3,
        "usual_us": 4.16,
        "shortest_us": 3.56,
        "longest_us": 5.16,
        "least_cycles": 120,
        "most_cycles": 210,
        "left_out": (),
        "plan": None,
        "model": None,
        "low_us": pytest.approx(3.56),
        "high_us": pytest.approx(5.16),
        "dominant": ["paths.GM_L1.bytes_per_cycle"],
        "effects": [
            # The rate shortens the call at its high end, 128, and stretches it at its low end, 32.
            {
                "figure": "paths.GM_L1.bytes_per_cycle",
                "together": [],
                "shortest_us": 3.66,
                "shortest_at": 128,
                "longest_us": 5.16,
                "longest_at": 32,
            },
            # The flag stands at its high end: nothing is longer than the call as it is.
            {
                "figure": "sync.flag_cycles",
                "together": [],
                "shortest_us": 4.06,
                "shortest_at": 0,
                "longest_us": 4.16,
                "longest_at": None,
            },
        ],
    }


def test_errors_are_defined_where_there_are_gradients():
    # Nothing was computed: a definition of MERE would tell a reader to look for it.
    assert "mere" not in run_document("t", {}, [], [])["definitions"]["products.gradients"]


def test_kernel_is_a_whole_entry():
    # The sample of these tests has what a real entry has.
    profile = toy_split()
    assert set(kernel_entry(timed_kernel(profile), profile)) == set(KERNEL)
