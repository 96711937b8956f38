"""Does the page of a run draw what the run has found, as one file that a browser opens without complaint?"""

import html
import re
from dataclasses import replace

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
from ascendsim.report.document import Run, run_document
from ascendsim.report.page.charts import Point, Roof, roofline
from ascendsim.report.page.html import render
from ascendsim.timing.timeline import PhaseTimeline, Stages, Timeline, stages
from tests.helpers.fake_machine import Fake
from tests.helpers.hand_timeline import CUBE0, PHASES, REDUCE, core, hand_kernel
from tests.helpers.headless import needs_chromium, opened
from tests.helpers.report_entries import CAST, KERNEL, NETWORK, PRODUCT, document
from tests.helpers.report_samples import timed_run
from tests.helpers.toy_profiles import toy_split
from tests.studies.test_study_page import Reader

PROBLEM = ConvProblem(input=(1, 32, 14, 14), weight=(64, 32, 3, 3), stride=1, padding=1)


@pytest.fixture(scope="module", params=["910B", "950PR_9589", "310P"])
def call(request):
    """A product and a call on it, small and real."""
    profile = load_profile(request.param)
    result = estimate(PROBLEM, dtype="float16", product=profile, output_mask=(True, True, False))
    return profile, result, run_document("a layer", {}, [Run(result, profile)], ["run"])["products"][0]


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
    roof, points = roof_of(product, profile), points_of(product)
    assert [point.label for point in points] == ["grad_input", "grad_weight"]
    for point in points:
        assert 0 < point.rate <= roof.at(point.intensity)


def test_the_roof_is_what_the_product_file_says():
    # 910B2: 24 cubes of 4096 multiply-adds a cycle at 1800 MHz.
    profile = load_profile("910B2")
    result = estimate(PROBLEM, dtype="float16", product=profile, output_mask=(True, False, False))
    product = run_document("a layer", {}, [Run(result, profile)], ["run"])["products"][0]
    roof = roof_of(product, profile)
    assert roof.peak == pytest.approx(24 * 4096 * 1800e6 / 1e12)
    total = float(profile.links["l2_read"].total_bytes_per_cycle)
    assert roof.bytes_rate == pytest.approx(total * 1800e6 / 1e12)
    assert roof.at(1e9) == roof.peak
    assert roof.at(roof.ridge / 2) == pytest.approx(roof.peak / 2)


def test_a_point_is_its_multiply_adds_over_its_bytes_and_core_time():
    # 4096 multiply-adds, 2048 bytes from L2, 1.5 us on the cores: 2 for a byte, 4096 / 1.5 a microsecond.
    (point,) = points_of(PRODUCT | {"kernels": [KERNEL, CAST]})
    assert point == Point("grad_input", 2.0, pytest.approx(4096 / 1.5 / 1e6))
    (row,) = roofline_table([Point("a", 2.0, 1.0)], Roof(10.0, 2.0)).rows
    # The slope at 2 for a byte is 4 of 10: L2 is the limit, and a quarter of it is reached.
    assert row == ("a", "2", "1", "4", "L2", "25%")


def test_a_dot_stands_below_the_roof_where_its_numbers_are():
    # Decades 1 .. 100 across and 1 .. 100 up: 10 is in the middle of 70 .. 690, and of 300 .. 40.
    svg = roofline([Point("mid", 10.0, 10.0), Point("low", 1.0, 1.0)], Roof(100.0, 1.0))
    assert 'cx="380.0" cy="170.0"' in svg
    assert 'cx="70.0" cy="300.0"' in svg
    assert svg.count("<circle") == 2


def test_many_dots_have_their_numbers_in_the_table_and_few_their_names():
    roof = Roof(100.0, 1.0)
    many = [Point(f"kernel {at}", 1.0 + at, 1.0) for at in range(7)]
    svg, table = roofline(many, roof), roofline_table(many, roof)
    assert table.headings[:2] == ("no.", "kernel")
    assert all(f">{row[0]}</text>" in svg for row in table.rows)
    assert ">kernel 0</text>" not in svg
    assert "Numbers are those of the table." in roofline_picture(many, roof).caption
    svg, table = roofline(many[:6], roof), roofline_table(many[:6], roof)
    assert table.headings[0] == "kernel"
    assert all(f">kernel {at}</text>" in svg for at in range(6))


def test_the_parts_of_a_product_add_up_to_its_time():
    svg = products_picture([PRODUCT | {"kernels": [KERNEL, CAST | {"core_us": 2.5}]}]).svg
    parts = {name: float(us) for name, us in re.findall(r"<title>toy1, ([a-z_ ]+): ([0-9.]+) us", svg)}
    # Drawn to whole units: launch 1.0, entry 0.5, the product 1.5, the cast 2.5.
    assert list(parts) == ["launch", "entry", "grad_input", "other kernels"]
    network = products_picture([NETWORK]).svg
    # Layer a three times, layer b once: 4 x 1.5 us of grad_input.
    assert "toy1, grad_input: 6 us" in network


def test_waits_are_stacked_by_cause():
    svg = waits_picture(PRODUCT | {"kernels": [KERNEL, CAST]}).svg
    # 1000 cycles at 1000 MHz are 1 us: entry and waits a quarter each, busy a half.
    named = re.findall(r"<title>grad_input, ([A-Za-z0-9 ]+): ", svg)
    assert named == ["entry", "busy", "waits for MTE2", "idle"]
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
    order = ["takes the least", "Products side by side", "toy_split: pipes", "How far the", "command"]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)


def test_a_network_has_its_layers_in_the_pictures():
    text = render(run_page(document(NETWORK), [toy_split()]))
    assert "a grad_input" in text
    assert "Cycles of each kernel of one convolution" in text
    both = render(run_page(document(NETWORK, NETWORK | {"variant": "toy2"}), [toy_split()] * 2))
    assert "Layers side by side" in both


def test_a_call_of_no_kernels_has_a_page_too():
    nothing = PRODUCT | {"kernels": [], "time_us": 0.0, "launch_us": 0.0, "entry_us": 0.0, "core_us": 0.0}
    assert "No kernel runs" in render(run_page(document(nothing), [toy_split()]))


@needs_chromium
def test_a_browser_opens_the_page_and_says_nothing(tmp_path, call):
    profile, result, _ = call
    made = run_document("a layer", {}, [Run(result, profile)], ["run"])
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
    # Wide tables and pictures scroll in their own boxes, which is seen by taking the boxes away.
    run = timed_run(toy_split())
    made = run_document("a layer", {}, [run] * 3, ["run", "--a-long-option", "x" * 80])
    page = render(run_page(made, [run.profile] * 3, [run.result.kernels] * 3))
    assert content_width(page, 390, tmp_path) <= 390
    assert content_width(page, 1280, tmp_path) <= 1280
    assert content_width(page.replace("overflow-x: auto", ""), 390, tmp_path) > 390
