"""Does a browser open the page of every study without complaint, on a screen of 1280 and of 390 pixels?"""

import html
import re

import pytest

from ascendsim import load_profile
from ascendsim.profile import Cost
from ascendsim.report.page.html import render
from ascendsim.report.studies.beside import codesign_page, facts
from ascendsim.report.studies.hardware import hardware_page, joined
from ascendsim.report.studies.precision import precision_page
from ascendsim.report.studies.tiling import tiling_page
from ascendsim.report.studies.tiling_cases import cases_tables
from ascendsim.studies.codesign import Design, DesignAnswer, DesignQuestion
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.study import study_tiling
from tests.helpers.headless import needs_chromium, opened
from tests.studies.test_page_sizes import every, measured
from tests.studies.test_study_courses import LAYER

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
    made = facts(["study", "--a-long-option", "x" * 80], "910B2", load_profile("910B2").content.hex(), 28)
    asked = TilingQuestion("a test", "910B2", LAYER, "grad_weight", trials=6, doubt=False)
    answer, _ = study_tiling(asked, Engine(Store(), 1), Budget())
    tiling = tiling_page(answer, made)
    designs = (Design("as it is", {}, 24.0, 9.0, 8.0), Design("cores.cube=0", {}, None, reason="why " * 30))
    question = DesignQuestion("a test", "910B2", (), (), Cost("cores.cube"))
    return {
        "hardware": hardware_page(every("310P", "alexnet"), made),
        "tiling": tiling,
        "codesign": codesign_page(DesignAnswer(question, "910B2", "", 28, designs), made),
        "precision": precision_page(measured("alexnet", (1.0, 4096.0), ("normal, seed 0",)), made),
        "several": joined("Several", [tiling, tiling], ["910B2", "310P3"], "Both.", cases_tables([answer])),
    }


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
