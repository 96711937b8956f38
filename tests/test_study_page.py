"""Is the page of a study one file that a browser opens without complaint, and says what it was given?"""

from html.parser import HTMLParser

import pytest

from ascendsim.errors import DataError
from ascendsim.report.page import html as html_module
from ascendsim.report.page.charts import Bar, Dot, Stack, scatter, stacked, tornado
from ascendsim.report.page.html import render, write_page
from ascendsim.report.page.records import Page, Picture, Section
from ascendsim.report.tables import TextTable
from tests.headless import needs_chromium, opened

ROWS = (("b", "10"), ("a", "9"), ("c", "1,000"), ("d", ""), ("all", "1,019"))
TABLE = TextTable("Sizes", ("name", "size"), frozenset({0}), ROWS, total=True)
BARS = [Bar("small & <new>", -1.5, -2, -1), Bar("large", 4, 3, 6), Bar("same", 0, 0, 0)]
DOTS = [Dot("one", 1, 5, marked=True), Dot("two", 2, 3, marked=True), Dot("three", 3, 4)]
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
    assert "<circle" in scatter([Dot("only", 1, 1)], "x", "y")
    assert "<rect" in tornado([Bar("none", 0, 0, 0)], "%")


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
