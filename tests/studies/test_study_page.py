"""Is the page of a study one file that a browser opens quickly, without complaint?"""

import html
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba

from ascendsim import load_profile
from ascendsim.errors import DataError
from ascendsim.frozen import FrozenMap
from ascendsim.profile import CostFormula
from ascendsim.report.page import (
    Bar,
    Dot,
    Page,
    Picture,
    Scatter,
    Section,
    StackedBar,
    Stacks,
    Tornado,
    colours_of,
)
from ascendsim.report.page import html as html_module
from ascendsim.report.page.charts import LABELLED, figure_of, svg
from ascendsim.report.page.html import LARGEST_BYTES, render, write_page
from ascendsim.report.studies.answer import Compared, study_facts, together
from ascendsim.report.studies.codesign import codesign_page
from ascendsim.report.studies.hardware import hardware_page
from ascendsim.report.studies.precision import precision_page
from ascendsim.report.studies.tiling import cases_tables, tiling_answered
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.hardware.figures import enlargings
from ascendsim.studies.hardware.records import (
    Design,
    DesignAnswer,
    DesignQuestion,
    Doubt,
    Gain,
    HardwareAnswer,
    LayerGain,
    Question,
)
from ascendsim.studies.modes.choice import Axes, PrecisionQuestion, PrecisionStudy
from ascendsim.studies.modes.records import CaseErrors, FormatShare, GradientError, Histogram, ModeError
from ascendsim.studies.table import text_table
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.study import study_tiling
from ascendsim.workloads import load_workload, workload_names
from tests.helpers.report_samples import needs_chromium, opened
from tests.studies.test_study_courses import LAYER

# -------------------------------------------------------------------------------------------------------
# Is the page of a study one file that a browser opens without complaint, and says what it was given?
# -------------------------------------------------------------------------------------------------------

ROWS = (("b", "10"), ("a", "9"), ("c", "1,000"), ("d", ""), ("all", "1,019"))
TABLE = text_table("Sizes", ("name", "size"), frozenset({0}), ROWS, total=True)
BARS = (Bar("small & <new>", -1.5, -2, -1), Bar("large", 4, 3, 6), Bar("same", 0, 0, 0))
DOTS = (Dot("1", 1, 5, marked=True), Dot("2", 2, 3, marked=True), Dot("3", 3, 4))
STACKS = (StackedBar("before", (("busy", 5), ("waits for MTE2", 3))), StackedBar("after", (("busy", 5),)))
PAGE = Page(
    "What does <b>it</b> buy?",
    "It buys 4 % & more.",
    (
        Section("Changes", ("Why.",), (Picture(Tornado(BARS, "%"), "Gains."),), (TABLE,)),
        Section("Front", (), (Picture(Scatter(DOTS, "cost", "us"), "Front."),)),
        Section("Details", (), (Picture(Stacks(STACKS, "cycles"), "Parts."),), (TABLE,), collapsed=True),
    ),
    {"gain": "Microseconds saved."},
    {"command": "ascendsim study hardware", "version": "0"},
)


class Reader(HTMLParser):
    """Tags that are open, and the texts of cells; a tag that closes another is a mistake."""

    VOID = frozenset({"meta", "link", "br", "path", "rect", "use"})

    def __init__(self):
        super().__init__()
        self.open, self.sources = [], []

    def handle_starttag(self, tag, attrs):
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        assert tag in self.VOID

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def read():
    reader = Reader()
    reader.feed(render(PAGE))
    return reader


def test_every_tag_is_closed_where_it_was_opened(read):
    assert read.open == []


def test_the_page_needs_no_other_file(read):
    # The one address is that of an icon without bytes, so that browsers ask for none.
    assert read.sources == ["data:,"]


def test_texts_are_texts_and_no_markup():
    text = render(PAGE)
    assert "What does &lt;b&gt;it&lt;/b&gt; buy?" in text
    assert "small &amp; &lt;new&gt;" in text


def test_what_is_to_be_typed_stands_as_code_and_stays_text():
    page = replace(PAGE, answer="Type `run <it>`, then `stop`.", facts={"with": "a ` alone"})
    text = render(page)
    assert "Type <code>run &lt;it&gt;</code>, then <code>stop</code>." in text
    assert "a ` alone" in text


def test_the_answer_comes_first_and_the_total_stands_apart():
    text = render(PAGE)
    assert text.index("It buys 4 %") < text.index("Changes") < text.index("How this page was made")
    # The total is in the foot of the table, which no sorting moves.
    assert '<tfoot><tr><td class="left">all</td>' in text
    assert "<details><summary>Details" in text


def test_a_bar_is_as_long_as_its_value_and_the_longest_comes_first():
    (axes,) = figure_of(Tornado(BARS, "%")).axes
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0, 4), (0, -1.5), (0, 0)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["large", "small & <new>", "same"]
    # The first row is the upper one.
    assert axes.transData.transform((0, 0))[1] > axes.transData.transform((0, 1))[1]
    (whiskers, *_) = axes.collections
    assert [(line[0][0], line[1][0]) for line in whiskers.get_segments()] == [(3, 6), (-2, -1), (0, 0)]


@pytest.mark.parametrize(
    "chart", [Scatter((Dot("1", 1, 1),), "x", "y"), Tornado((Bar("none", 0, 0, 0),), "%")]
)
def test_an_empty_spread_still_draws(chart):
    assert "<path" in svg(chart)


def test_a_marked_dot_is_not_hidden_by_another_in_its_place():
    # What is drawn later lies on top: two designs of one cost and time, of which the first is on the front.
    both = (Dot("1", 1, 5, marked=True), Dot("2", 1, 5))
    (axes,) = figure_of(Scatter(both, "cost", "us")).axes
    (dots,) = axes.collections
    # The marked one has the colour of the line that joins the front.
    assert tuple(dots.get_facecolor()[1]) == to_rgba(axes.lines[0].get_color())
    assert tuple(dots.get_facecolor()[0]) != tuple(dots.get_facecolor()[1])


def test_dots_have_their_bars_and_the_colours_of_their_groups():
    dots = (
        *(Dot("1", 1, 9, True, (7, 12), "slow"), Dot("2", 2, 5, True, (4, 6), "fast")),
        *(Dot("3", 3, 4, True, (3.5, 6), "fast"), Dot("4", 4, 8, bar=(6, 9)), Dot("5", 5, 8)),
    )
    figure = figure_of(Scatter(dots, "cost", "us"))
    (axes,) = figure.axes
    *bars, drawn = axes.collections
    # Dots that are marked come last.
    order = [dots[at] for at in (3, 4, 0, 1, 2)]
    assert drawn.get_offsets().tolist() == [[dot.x, dot.y] for dot in order]
    assert [bar.get_segments()[0].tolist() for bar in bars] == [
        [[dot.x, end] for end in dot.bar] for dot in order if dot.bar
    ]
    colours = [tuple(colour) for colour in drawn.get_facecolor()]
    slow, fast = (tuple(patch.get_facecolor()) for patch in figure.legends[0].get_patches())
    assert colours[2:] == [slow, fast, fast]
    assert len({colours[0], slow, fast}) == 3
    # A bar is as its dot, but paler.
    assert [tuple(bar.get_colors()[0][:3]) for bar in bars] == [
        colours[at][:3] for at, dot in enumerate(order) if dot.bar
    ]
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == ["slow: 1", "fast: 2, 3"]
    page = render(replace(PAGE, sections=(Section("Front", (), (Picture(Scatter(dots, "x", "y"), ""),)),)))
    assert all(f">{word}</text>" in page for word in words)


def test_of_more_groups_than_colours_the_rest_have_one():
    dots = tuple(Dot(str(at), at, -at, True, (-at - 1, 1 - at), f"class {at}") for at in range(15))
    figure = figure_of(Scatter(dots, "x", "y"))
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == [*(f"class {at}: {at}" for at in range(12)), "all others"]
    last = [tuple(colour) for colour in figure.axes[0].collections[-1].get_facecolor()][-3:]
    assert set(last) == {tuple(figure.legends[0].get_patches()[-1].get_facecolor())}


def test_every_dot_has_its_mark_beside_it():
    drawn = svg(Scatter(DOTS, "cost", "us"))
    for dot in DOTS:
        assert f">{dot.mark}</text>" in drawn


def test_of_many_dots_those_of_the_front_are_marked():
    dots = tuple(Dot(f"d{at}", at, -at, marked=at < 3) for at in range(LABELLED + 1))
    found = [text.get_text() for text in figure_of(Scatter(dots, "x", "y")).axes[0].texts]
    assert found == ["d0", "d1", "d2"]


def test_marks_cover_neither_dots_nor_each_other():
    # Some in one corner, some at one place, and some along an edge.
    places = [(9 * (at % 4), 30 * (at // 4)) for at in range(12)] + [(400, 150)] * 3
    places += [(40 + 50 * at, 240) for at in range(12)]
    dots = tuple(Dot(str(at), x, y) for at, (x, y) in enumerate(places))
    figure = figure_of(Scatter(dots, "x", "y"))
    (axes,) = figure.axes
    FigureCanvasAgg(figure).draw()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == len(dots)
    for at, box in enumerate(boxes):
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width
        assert not any(box.overlaps(other) for other in boxes[at + 1 :])
        assert not any(box.contains(*axes.transData.transform(place)) for place in places)


def test_no_two_parts_of_a_picture_have_one_colour():
    # 14 parts and 12 colours: the two smallest, of 1 and 2, are one part in a colour of its own.
    stack = StackedBar("a", tuple((f"p{at}", 1.0 + at) for at in range(14)))
    colours = colours_of([stack])
    assert [*colours] == [*(f"p{at}" for at in range(2, 14)), "all others"]
    assert len(set(colours.values())) == 13
    figure = figure_of(Stacks((stack,), "us"))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [*colours]
    bars = figure.axes[0].patches
    assert [(bar.get_x(), bar.get_width()) for bar in bars[:4]] == [(0, 1), (1, 2), (3, 3), (6, 4)]
    assert bars[0].get_facecolor() == bars[1].get_facecolor() == to_rgba(colours["all others"])
    assert [bar.get_facecolor() for bar in bars[2:]] == [to_rgba(colours[f"p{at}"]) for at in range(2, 14)]


def test_equal_pages_are_equal_texts_and_pictures_share_no_names():
    twice = replace(PAGE, sections=PAGE.sections * 2)
    text = render(twice)
    assert text == render(twice)
    names = re.findall(r'\bid="([^"]*)"', text)
    assert len(names) == len(set(names)) > 0
    assert all(f'id="{name}"' in text for name in re.findall(r'(?:href="|url\()#([^")]+)', text))
    # No day stands in it: tomorrow's page is today's.
    assert "<metadata" not in text


def test_a_picture_is_told_to_those_who_cannot_see_it():
    drawn = svg(Tornado(BARS, "%"), 'Gains of "a" & b.')
    assert '<svg role="img" aria-label="Gains of &quot;a&quot; &amp; b."' in drawn
    # Its words are texts, which can be read, found and copied; two dollars are no formula.
    assert ">large</text>" in drawn
    assert ">$a$ of $b$</text>" in svg(Tornado((Bar("$a$ of $b$", 1, 1, 1),), "%"))


def test_only_a_page_that_is_written_loads_matplotlib():
    code = (
        "import sys, ascendsim.cli.parser as p, ascendsim.report.studies.hardware, ascendsim.report.calls;"
        "assert 'matplotlib' not in sys.modules;"
        "from ascendsim.report.page.html import render; from tests.studies.test_study_page import PAGE;"
        "render(PAGE); assert 'matplotlib' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_page_above_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(html_module, "LARGEST_BYTES", 100)
    with pytest.raises(DataError, match=r"more than 100; study fewer"):
        write_page(tmp_path / "page.html", PAGE)
    assert not list(tmp_path.iterdir())


# Clicks on the second heading twice and shows the order of the first column in the page's title, with errors.
PROBE = """<script>
window.onerror = (message) => { document.title = "ERROR " + message; };
const button = document.querySelectorAll("table.sortable th button")[1];
const rows = document.querySelector("table.sortable").rows;
const names = () => [...rows].map((row) => row.cells[0].textContent).join(" ");
button.click(); const up = names(); button.click(); const down = names();
if (!document.title.startsWith("ERROR")) document.title = up + " | " + down;
</script></body>"""


@needs_chromium
def test_a_browser_opens_the_page_and_its_tables_sort(tmp_path):
    page, log = opened(render(PAGE).replace("</body>", PROBE), tmp_path)
    # By size 9, 10, 1,000, the empty cell last in both directions; the heading first, the total last.
    assert "<title>name a b c d all | name c b a d all</title>" in page
    assert "CONSOLE" not in log


def test_a_page_says_of_how_many_figures_nothing_is_known():
    said = study_facts(["study", "hardware"], "910B2", "0123456789abcdef0123", 15)["figures with a range"]
    assert said == (
        "15 figures of it that move cycles are known to within a range; `ascendsim profiles 910B2` lists them"
    )


# -------------------------------------------------------------------------------------------------------
# Is the page of the largest study small enough to open quickly, and what is left out of a larger one?
# -------------------------------------------------------------------------------------------------------

STARTS = ("warm", "cold", "handed", "chained", "network")
DTYPES = ("float16", "bfloat16", "float32")
LEFT_OUT = "Left out, as the page would be too large"


def every(variant, network, copies=1):
    """The answer of `study hardware --every` under every start, with numbers as long as they get."""
    profile, workload = load_profile(variant), load_workload(network)
    changes = enlargings(profile)
    layers = tuple(
        LayerGain(f"{row.name}{'x' * copy}", row.count, 98765.43, 98765.43, 98765.43, 98765.43)
        for copy in range(copies)
        for row in workload.layers
    )
    gains = tuple(
        Gain(
            change.name,
            FrozenMap({path: (1, new) for path, new in change.on(profile).items()}),
            start,
            layers,
            Doubt(-0.0123, 0.0123, 28),
        )
        for change in changes
        for start in STARTS
    )
    asked = Question(workload.title, variant, (), tuple(changes), STARTS)
    return HardwareAnswer(asked, variant, "0" * 64, 28, tuple(gains), FrozenMap())


def measured(network, scales, data):
    """The answer of `study precision` of a network over all axes, with errors as long as they are printed."""
    errors = tuple(
        GradientError(name, *(1.23e-4,) * 6, 0.123, 0.0, 0.987, (("st", "why"), ("mixed", "why")))
        for name in ("grad_input", "grad_weight")
    )
    models = ("seq:RNE", "align:16:F24:RZ:acc", "block:16:RNE")
    modes = tuple(
        ModeError(dtype, (number,), dtype, model, scale, 1234.56, errors)
        for dtype, number, model, scale in product(
            ("float16", "bfloat16", "float32"), range(4), models, scales
        )
    )
    shares = tuple(
        FormatShare(tensor, dtype, scale, 0.1, 0.1, 0.1)
        for tensor in ("grad_output", "input", "weight")
        for dtype, scale in product(
            ("float16", "bfloat16", "float32"), scales if tensor == "grad_output" else (1.0,)
        )
    )
    histograms = (Histogram("grad_output", -60, (1000,) * 70, 0, 0),)
    cases = tuple(
        CaseErrors(f"{row.name}, {kind}", row.count, modes, shares, histograms)
        for kind in data
        for row in load_workload(network).layers
    )
    asked = PrecisionQuestion(network, Axes(load_profile("950PR_9599"), DTYPES, models=models), ())
    return PrecisionStudy(asked, "950PR_9599", "0" * 64, 28, cases)


@pytest.mark.parametrize("variant", ["910B2", "950PR_9599"])
def test_every_figure_of_every_network_under_every_start_fits_a_page(variant):
    longest = max(workload_names(), key=lambda name: len(load_workload(name).layers))
    answer = every(variant, longest)
    text = render(hardware_page(answer))
    assert len(text.encode()) <= LARGEST_BYTES
    # Rows of all layers: those of the collapsed section are on it whole.
    assert text.count("<tr>") > len(answer.gains) * len(load_workload(longest).layers)


@pytest.mark.slow
def test_many_designs_fit_a_page():
    asked = DesignQuestion("a test", "910B2", (), (), CostFormula("cores.cube"))
    name = "cores.cube=x2 buffers.L0C.capacity_bytes=x2 links.memory.nominal_tb_per_s=x1.5"
    designs = tuple(Design(f"{name} {at}", {}, float(at), 12345.6, 12345.6 - at) for at in range(4096))
    page = codesign_page(DesignAnswer(asked, "910B2", "0" * 64, 28, designs))
    assert len(render(page).encode()) <= LARGEST_BYTES


@pytest.mark.slow
def test_a_page_of_more_keeps_its_answer_and_says_what_is_left_out(tmp_path):
    # 29 layers, each under two names: 655 tables of 59 rows are more than 5 MB.
    page = hardware_page(every("910B2", "yolov5s", copies=2))
    assert len(render(page).encode()) > LARGEST_BYTES
    write_page(tmp_path / "page.html", page)
    text = (tmp_path / "page.html").read_text()
    assert 0.9 * LARGEST_BYTES < len(text.encode()) <= LARGEST_BYTES
    assert text.count(LEFT_OUT) == 1
    assert page.answer in text.replace("&#39;", "'")


@pytest.mark.slow
def test_precision_of_a_network_over_all_axes_fits_a_page(tmp_path):
    study = measured("yolov5s", (1.0, 256.0, 4096.0, 65536.0), ("normal, seed 0", "long-tailed, seed 0"))
    write_page(tmp_path / "page.html", precision_page(study))
    text = (tmp_path / "page.html").read_text()
    assert len(text.encode()) <= LARGEST_BYTES
    # 58 cases x 144 modes x 2 gradients are 16,704 rows: some of them are left out.
    assert text.count(LEFT_OUT) == 1


# ---- What is left out

SIZES_ROWS = tuple((f"row {at}", "x" * 50) for at in range(40))
FIRST = text_table("First", ("name", "text"), frozenset({0}), SIZES_ROWS, total=True)
SIZES_PAGE = Page(
    "Title",
    "The answer.",
    (
        Section("Open", (), (), (FIRST,)),
        Section("Closed", ("Why.",), (Picture("<svg></svg>", "A picture."),), (FIRST, FIRST), collapsed=True),
        Section("Last", (), (Picture("<svg></svg>", "Another."),), (FIRST,), collapsed=True),
    ),
)


def written(folder, monkeypatch, most):
    monkeypatch.setattr(html_module, "LARGEST_BYTES", most)
    write_page(folder / "page.html", SIZES_PAGE)
    return (folder / "page.html").read_text()


def test_a_page_that_fits_is_written_whole(tmp_path, monkeypatch):
    whole = render(SIZES_PAGE)
    assert written(tmp_path, monkeypatch, len(whole.encode())) == whole


@pytest.mark.parametrize("less", [1, 2_000, 4_000, 8_000, 12_000])
def test_details_are_left_out_from_the_end_and_only_they(tmp_path, monkeypatch, less):
    whole = render(SIZES_PAGE)
    most = len(whole.encode()) - less
    text = written(tmp_path, monkeypatch, most)
    assert len(text.encode()) <= most
    # What is open stays: the answer, and the first table with its total.
    before, _, after = text.partition("<details>")
    assert before == whole.partition("<details>")[0]
    assert LEFT_OUT in after
    # The details that are kept are a beginning of each section's.
    assert after.index("Why.") < after.index(LEFT_OUT)


def test_a_section_says_how_much_of_it_is_left_out(tmp_path, monkeypatch):
    whole = len(render(SIZES_PAGE).encode())
    # A table of 40 rows, each of a cell on the left of 5 or 6 letters, another one of 50, and the marks: with
    # two of them less there is no room for the last section, nor for one of the two of the closed section.
    table = 40 * (10 + 22 + 6 + 9 + 50)
    text = written(tmp_path, monkeypatch, whole - 2 * table)
    last = text.partition("<summary>Last</summary>")[2]
    assert "1 pictures, and 40 rows, 1 tables of them whole" in last
    closed = text.partition("<summary>Closed</summary>")[2].partition("</details>")[0]
    kept = closed.count('<td class="left">row')
    assert 0 < kept < 80
    assert f"0 pictures, and {80 - kept} rows" in closed


def test_a_page_without_room_for_its_answer_is_refused(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"more than 1,000; study fewer"):
        written(tmp_path, monkeypatch, 1_000)
    assert not list(tmp_path.iterdir())


# -------------------------------------------------------------------------------------------------------
# Does a browser open the page of every study without complaint, on a screen of 1280 and of 390 pixels?
# -------------------------------------------------------------------------------------------------------

WIDTHS = (1280, 390)
# Each page in a frame of each width. In the end the title has, for each frame, how wide its content is, how
# many pictures have a size, and whether a click on a heading of its first table has sorted it.
FRAMES = """<!doctype html><title>nothing</title>{frames}<script>window.onload = () => {{
document.title = [...document.querySelectorAll("iframe")].map((frame) => {{
  const page = frame.contentDocument;
  const widths = [...page.querySelectorAll("svg")].map((svg) => svg.getBoundingClientRect().width);
  const drawn = widths.filter((width) => width > 0).length;
  const wide = page.documentElement.scrollWidth;
  page.querySelector("th button").click();
  return [wide, drawn, page.querySelectorAll("th[aria-sort]").length].join("/");
}}).join(" ");
}}</script>"""
FRAME = '<iframe width="{width}" height="800" style="border:0" srcdoc="{page}"></iframe>'


@pytest.fixture(scope="module")
def pages():
    """The page of each study, and one of several answers."""
    made = study_facts(
        ["study", "--a-long-option", "x" * 80], "910B2", load_profile("910B2").content.hex(), 28
    )
    asked = TilingQuestion("a test", "910B2", LAYER, "grad_weight", trials=6, doubt=False)
    answer, _ = study_tiling(asked, Engine(Store(), 1), Budget())
    told = tiling_answered(answer)
    both = together(
        Compared("Several", "Both.", tuple(cases_tables([answer]))), [told] * 2, ["910B2", "310P3"]
    )
    designs = (Design("as it is", {}, 24.0, 9.0, 8.0), Design("cores.cube=0", {}, None, reason="why " * 30))
    question = DesignQuestion("a test", "910B2", (), (), CostFormula("cores.cube"))
    found = {
        "hardware": hardware_page(every("310P", "alexnet")),
        "tiling": told.page,
        "codesign": codesign_page(DesignAnswer(question, "910B2", "", 28, designs)),
        "precision": precision_page(measured("alexnet", (1.0, 4096.0), ("normal, seed 0",))),
        "several": both.page,
    }
    return {name: replace(page, facts=made) for name, page in found.items()}


@needs_chromium
def test_a_browser_opens_the_page_of_every_study_on_wide_and_narrow_screens(pages, tmp_path):
    framed = [
        FRAME.format(width=width, page=html.escape(render(page)))
        for page in pages.values()
        for width in WIDTHS
    ]
    shown, log = opened(FRAMES.format(frames="".join(framed)), tmp_path)
    assert "CONSOLE" not in log
    (title,) = re.findall("<title>([^<]*)</title>", shown.partition("<iframe")[0])
    found = [tuple(map(int, part.split("/"))) for part in title.split()]
    assert len(found) == len(pages) * len(WIDTHS)
    for at, (wide, drawn, sorted_by) in enumerate(found):
        name, width = list(pages)[at // len(WIDTHS)], WIDTHS[at % len(WIDTHS)]
        # Wide tables and pictures scroll in their own boxes, and the page not at all.
        assert wide <= width, name
        assert drawn > 0 or name == "several", name
        assert sorted_by == 1, name


@needs_chromium
def test_a_mistake_of_a_script_would_be_seen(tmp_path):
    page = html.escape("<!doctype html><table></table><script>nobody.home();</script>")
    _, log = opened(f'<!doctype html><iframe srcdoc="{page}"></iframe>', tmp_path)
    assert "CONSOLE" in log
