"""Does the page of a study of precision hold what it promises, and is it well formed?"""

import math
from dataclasses import replace
from html.parser import HTMLParser

from ascendsim import load_profile
from ascendsim.report.page import BINADES, Exponents, Range
from ascendsim.report.page.charts import figure_of
from ascendsim.report.page.html import render
from ascendsim.report.studies.precision import (
    error_text,
    mode_table,
    parts_table,
    precision_page,
    precision_record,
    precision_rows,
    precision_sentence,
    reasons,
    small_table,
)
from ascendsim.report.studies.precision_words import DEFINITIONS
from ascendsim.studies.modes.choice import Axes, PrecisionQuestion, PrecisionStudy
from ascendsim.studies.modes.records import (
    CaseErrors,
    Decade,
    FormatShare,
    GradientError,
    Histogram,
    ModeError,
    PassLimits,
)
from tests.helpers.report_samples import needs_chromium, opened


def gradient(total, name="grad_input", failed=()):
    decades = (Decade(-8, 3, 0.5, 1, 2, 0), Decade(-3, 9997, total, 0, 0, 0))
    causes = (("underflow", 0.75), ("rounding", 0.25))
    return GradientError(
        name, total, total, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, failed, 1e-4, causes, 7, 0.25, decades
    )


def study(*totals, limit=1e-3, name="a"):
    """Return a study of one case under loss scales 1, 2, ..., with these errors."""
    modes = tuple(
        ModeError("float16", (0,), "float16", "block:16:RNE", float(at), 2.0, (gradient(total),))
        for at, total in enumerate(totals, 1)
    )
    shares = tuple(
        FormatShare("grad_output", "float16", float(at), 0.5, 0.25, 0.0) for at in range(1, len(totals) + 1)
    )
    histograms = (Histogram("grad_output", -20, (1, 2, 3), 4, 0),)
    case = CaseErrors(name, 1, modes, shares, histograms)
    asked = PrecisionQuestion("mine", Axes(load_profile("910B2"), ("float16",)), (), PassLimits(limit))
    return PrecisionStudy(asked, "910B2", "0" * 64, 28, (case,))


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.opened, self.texts, self.stack = [], [], []

    def handle_starttag(self, tag, attrs):
        self.opened.append((tag, dict(attrs)))
        if tag not in ("meta", "link"):
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.opened.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read_page(page):
    tags = Tags()
    tags.feed(render(page))
    assert tags.stack == []
    return tags


def test_the_page_holds_answer_reasons_tables_and_pictures():
    made = study(1e-2, 1e-4)
    tags = read_page(precision_page(made))
    text = " ".join(tags.texts)
    assert precision_sentence(made) in text
    assert next(reasons(made)) in text
    assert sum(tag == "svg" for tag, _ in tags.opened) == 2
    assert sum(attrs.get("class") == "sortable" for tag, attrs in tags.opened if tag == "table") == 6
    assert not [
        attrs for _, attrs in tags.opened if {"src", "href"} & set(attrs) and attrs.get("href") != "data:,"
    ]


def test_times_within_the_margin_are_one_time_and_the_more_accurate_is_named():
    first = study(1e-4)
    (exact,) = first.cases[0].modes
    quick = replace(
        exact, cube_math_types=(1,), compute_dtype="hf32", time_us=1.98, gradients=(gradient(5e-4),)
    )
    both = replace(first.cases[0], modes=(exact, quick))
    # 2.00 is 1 % more than 1.98: told apart without a margin, not with one of 4.3 %.
    assert precision_sentence(replace(first, cases=(both,))).endswith(
        "is float16 with cubeMathType 1 (hf32 in the cube): 1.98 us, error 5.0e-04."
    )
    asked = replace(first.question, margin=0.043)
    made = replace(first, cases=(both,), question=asked)
    assert precision_sentence(made).endswith(
        "float16 with cubeMathType 1 (hf32 in the cube) (1.98 us, error 5.0e-04) and float16 with "
        "cubeMathType 0 (2.00 us, error 1.0e-04) pass and take the same time within the margin of 4.3 %; "
        "float16 with cubeMathType 0 is the more accurate."
    )
    # The table names the same mode as the sentence.
    assert [row[8] for row in mode_table(made).rows] == ["yes, best", "yes, same time"]
    assert precision_record(made)["margin"] == 0.043


def test_the_table_does_not_say_that_a_mode_passes_and_fails():
    headings = mode_table(study(1e-4)).headings
    assert headings[6:10] == ("limit", "lost", "passes", "misses rules")
    # All are told what they mean, on the page too.
    assert set(headings[6:10]) <= DEFINITIONS.keys()


def test_tables_of_modes_are_not_wider_than_a_wide_terminal():
    # The widest names that there are: of a format, of the worst gradient in a layer of a network.
    first = study(1e-4)
    (mode,) = first.cases[0].modes
    wide = replace(mode, dtype="float8_e4m3fn", cube_math_types=(0, 1, 2, 3), compute_dtype="float8_e4m3fn")
    error = replace(gradient(1e-4), name="grad_weight", failed=(("st", "r"), ("stat", "r"), ("mixed", "r")))
    case = replace(first.cases[0], name="bottleneck_3_conv_2_1x1", modes=(replace(wide, gradients=(error,)),))
    made = replace(first, cases=(case, replace(case, name="other")))
    for table in (mode_table(made), parts_table(made), small_table(made)):
        widths = [max(map(len, column)) for column in zip(table.headings, *table.rows, strict=True)]
        assert sum(widths) + 2 * len(widths) <= 160
    # What an error is made of stands beside it.
    assert parts_table(made).headings[3:8] == ("error", "storage", "cast", "output", "sums")
    (row, *_) = parts_table(made).rows
    assert row[:3] == ("float8_e4m3fn", "0/1/2/3", mode_table(made).rows[0][3])
    assert row[4:8] == tuple(map(error_text, (error.storage, error.cast, error.output, error.accumulation)))


def test_names_of_the_user_are_text_on_the_page():
    page = precision_page(study(1e-4, name="<script>alert(1)</script>"))
    assert "<script>alert" not in render(page)


def test_a_study_of_nothing_but_overflow_has_a_page():
    made = study(math.inf, math.nan)
    assert "no mode passes" in precision_sentence(made)
    read_page(precision_page(made))
    assert [row[8] for row in mode_table(made).rows] == ["no: norm", "no: norm"]


def test_a_table_has_a_row_for_each_gradient():
    rows = precision_rows(study(1e-2, 1e-4))
    # The model, and what of the error comes of it.
    assert {(row["model"], row["accumulation"]) for row in rows} == {("block:16:RNE", 0.0)}
    assert [(row["case"], row["name"], row["loss_scale"], row["total"]) for row in rows] == [
        ("a", "grad_input", 1.0, 1e-2),
        ("a", "grad_input", 2.0, 1e-4),
    ]


def test_subnormal_values_are_lighter_than_normal_ones():
    chart = Exponents(-20, (1,) * 20, (Range("float16", -24, -14, 16, 2),))
    (axes,) = figure_of(chart).axes
    *bars, subnormal, normal = axes.patches
    assert [bar.get_x() for bar in bars] == list(range(-20, 0))
    # A loss scale of 4 moves the range by two binades; what lies beyond the bars is not drawn.
    assert (subnormal.get_x(), subnormal.get_width()) == (-20, 4)
    assert (normal.get_x(), normal.get_width()) == (-16, 16)
    assert subnormal.get_alpha() < normal.get_alpha()


def test_a_long_tail_is_one_bar():
    # 200 binades, of which the last 59 stand alone and 141 together.
    shown = Exponents(-200, (1,) * 200, ()).shown()
    assert (shown.first, shown.counts) == (-BINADES, (141, *(1,) * (BINADES - 1)))
    assert shown.shown() == shown


@needs_chromium
def test_a_browser_opens_the_page_without_complaint(tmp_path):
    page, log = opened(render(precision_page(study(1e-2, 1e-4))), tmp_path)
    assert page.count("<svg") == 2
    assert "CONSOLE" not in log
