"""Is the page of a study one file that a browser opens without complaint, and says what it was given?"""

import re
from dataclasses import replace
from html.parser import HTMLParser
from random import Random

import pytest

from ascendsim.errors import DataError
from ascendsim.report.page import charts as labels_module
from ascendsim.report.page import html as html_module
from ascendsim.report.page.charts import WIDTH, Bar, Dot, Stack, labels, scatter, stacked, tornado
from ascendsim.report.page.html import render, write_page
from ascendsim.report.page.records import Page, Picture, Section
from ascendsim.report.studies.beside import facts
from ascendsim.report.tables import TextTable
from tests.helpers.headless import needs_chromium, opened

ROWS = (("b", "10"), ("a", "9"), ("c", "1,000"), ("d", ""), ("all", "1,019"))
TABLE = TextTable("Sizes", ("name", "size"), frozenset({0}), ROWS, total=True)
BARS = [Bar("small & <new>", -1.5, -2, -1), Bar("large", 4, 3, 6), Bar("same", 0, 0, 0)]
DOTS = [Dot("1", "one", 1, 5, marked=True), Dot("2", "two", 2, 3, marked=True), Dot("3", "three", 3, 4)]
STACKS = [Stack("before", (("busy", 5), ("waits for MTE2", 3))), Stack("after", (("busy", 5),))]
PAGE = Page(
    "What does <b>it</b> buy?",
    "It buys 4 % & more.",
    (
        Section("Changes", ("Why.",), (Picture(tornado(BARS, "%"), "Gains."),), (TABLE,)),
        Section("Front", (), (Picture(scatter(DOTS, "cost", "us"), "Front."),)),
        Section("Details", (), (Picture(stacked(STACKS, "cycles"), "Parts."),), (TABLE,), collapsed=True),
    ),
    {"gain": "Microseconds saved."},
    {"command": "ascendsim study hardware", "version": "0"},
)


class Reader(HTMLParser):
    """Tags that are open, and the texts of cells; a tag that closes another is a mistake."""

    VOID = frozenset({"meta", "link", "br", "line", "rect", "circle", "polyline"})

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


def test_a_bar_is_as_long_as_its_value():
    # 720 wide, labels to 250, 30 at the right: 440 for -2 .. 6, so 55 a unit; the bar of 4 begins at 0, which
    # is 250 + 2 x 55 = 360, and has 220.  It is the first row: 30 + 5 from the top.
    assert 'x="360.0" y="35.0" width="220.0"' in tornado(BARS, "%")


def test_an_empty_spread_still_draws():
    assert "<circle" in scatter([Dot("1", "only", 1, 1)], "x", "y")
    assert "<rect" in tornado([Bar("none", 0, 0, 0)], "%")


def test_a_marked_dot_is_not_hidden_by_another_in_its_place():
    # What is drawn later lies on top: two designs of one cost and time, of which the first is on the front.
    svg = scatter([Dot("1", "marked one", 1, 5, marked=True), Dot("2", "other", 1, 5)], "cost", "us")
    assert svg.index("<title>other: 1, 5") < svg.index("<title>marked one: 1, 5")


def test_every_dot_has_its_mark_beside_it_and_not_on_hover_alone():
    svg = scatter(DOTS, "cost", "us")
    for dot in DOTS:
        assert f">{dot.mark}</text>" in svg


def test_marks_cover_neither_dots_nor_each_other():
    # Sixty dots, most of them in one corner and some at one place: all that a drawing of 720 x 270 can do.
    dots = [(100 + 9 * (at % 6), 60 + 7 * (at // 6)) for at in range(30)] + [(400, 150)] * 5
    dots += [(20 + 28 * at, 240) for at in range(25)]
    parts = [part for part in labels(dots, [str(at) for at in range(60)], 270) if part.startswith("<text")]
    assert len(parts) == 60
    boxes = [box_of(part) for part in parts]
    for at, box in enumerate(boxes):
        assert box[0] >= 0
        assert box[2] <= WIDTH
        assert not any(meet(box, other) for other in boxes[at + 1 :])
        assert not any(meet(box, (x - 5, y - 5, x + 5, y + 5)) for x, y in dots)


class OneByOne(list):
    """What is taken, as a list that is gone through: the definition of what a mark must not cover."""

    add = list.append

    def meets(self, box):
        return any(box.meets(other) for other in self)


@pytest.mark.parametrize("seed", range(8))
def test_marks_stand_where_a_look_at_all_that_is_taken_puts_them(monkeypatch, seed):
    draw = Random(seed)
    # Few dots, or more than there is room for; some on the edge of the drawing, where marks reach beyond it.
    dots = [(draw.uniform(0, WIDTH), draw.uniform(0, 270)) for _ in range(40 * (1 + seed))]
    dots += [(16.0 * draw.randrange(46), 16.0 * draw.randrange(17)) for _ in range(20)]
    words = ["x" * draw.randint(1, 20) for _ in dots]
    found = labels(dots, words, 270)
    monkeypatch.setattr(labels_module, "_Taken", OneByOne)
    assert labels(dots, words, 270) == found


def test_a_mark_far_from_its_dot_is_led_to():
    # Nine dots at one place: eight marks find room close by, the others further out.
    parts = labels([(300, 150)] * 30, ["x"] * 30, 270)
    assert any('class="leader"' in part for part in parts)
    assert not any('class="leader"' in part for part in labels([(300, 150)], ["x"], 270))


def box_of(part):
    """Left, top, right, bottom of a text: digits of 6.6 by 8."""
    found = re.search(r'x="([\d.-]+)" y="([\d.-]+)" text-anchor="(\w+)">(.*)</text>', part)
    x, y, width = float(found[1]), float(found[2]), 6.6 * len(found[4])
    left = x - {"start": 0, "middle": 0.5, "end": 1}[found[3]] * width
    return left, y - 8, left + width, y


def meet(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_no_two_parts_of_a_picture_have_one_colour():
    # 14 parts and 12 colours: the two smallest, of 1 and 2, are one part in a colour of its own.
    stack = Stack("a", tuple((f"p{at}", 1.0 + at) for at in range(14)))
    svg = stacked([stack], "us")
    legend = re.findall(r'<rect class="(\w+)" x="[\d.]+" y="[\d.]+" width="14.0" height="14.0"', svg)
    assert len(set(legend)) == len(legend) == 13
    assert svg.count(">all others</text>") == 1
    assert svg.count('class="rest"') == 1 + 2
    # Each class has a colour in the page, none twice.
    style = render(PAGE)
    colours = [re.search(rf"svg \.{kind} {{ fill: (#\w+);", style)[1] for kind in legend]
    assert len(set(colours)) == 13


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
    said = facts(["study", "hardware"], "910B2", "0123456789abcdef0123", 15)["assumed figures"]
    assert said == (
        "15 figures of it that move cycles are assumed: nobody has published or measured them; "
        "`ascendsim profiles 910B2` lists them with their ranges"
    )
