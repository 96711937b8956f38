"""Is how a gradient runs under two plans told as it is, and do its stages and causes add up exactly?"""

from dataclasses import replace

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.report.page.charts import Curve, held
from ascendsim.report.studies.tiling import (
    buffers_picture,
    buffers_table,
    deciding,
    notes,
    path_table,
    paths_picture,
    stages_table,
    tiling_page,
    tiling_record,
    tiling_tables,
)
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.tuning.records import BufferUse, Course, Part, TilingQuestion
from ascendsim.studies.tuning.study import byte_cycles, course_of, held_curve, study_tiling
from ascendsim.studies.tuning.tune import waits_of

LAYER = ConvProblem((4, 64, 14, 14), (64, 64, 3, 3), padding=1)
# Cores apart, on 910_95 with nests of the operators, and cores with both units.
PRODUCTS = ("910B2", "950PR_9589", "310P")


@pytest.fixture(scope="module", params=[(p, g) for p in PRODUCTS for g in ("grad_input", "grad_weight")])
def compared(request):
    """The course and the waits of two plans of a gradient with a cold L2, and the product's own result."""
    product, gradient = request.param
    profile = load_profile(product)
    mask = (gradient == "grad_input", gradient == "grad_weight", False)
    before, after = (
        estimate(LAYER, product=profile, output_mask=mask, tiling=tiling, l2_start="cold")
        for tiling in ("product", "search")
    )
    waits = waits_of("cold", gradient, before, after, profile.clock.cube_mhz)
    return course_of("cold", gradient, before, after, profile), waits, before


# ---- Sums


def test_stages_and_causes_add_up_to_the_cycles_whose_waits_are_told(compared):
    course, waits, _ = compared
    for parts in (course.stages, course.path):
        assert sum(part.before for part in parts) == waits.before
        assert sum(part.after for part in parts) == waits.after


def test_the_fill_ends_with_the_first_product_and_the_steady_part_with_the_last(compared):
    course, _, before = compared
    kernel = next(kernel for kernel in before.kernels if kernel.macs)
    spans = []
    for phase in kernel.timeline.phases:
        for work in phase.cores:
            products = [at for at, pipe in enumerate(work.program.pipes) if pipe == "M"]
            spans += [(work.end[products[-1]], work.start[products[0]])] if products else []
    end, begin = max(spans)
    parts = {part.what: part.before for part in course.stages}
    assert parts["entry"] + parts["fill"] == begin
    assert parts["steady"] == end - begin
    assert parts["drain"] == kernel.cycles - end
    assert list(parts)[:4] == ["entry", "fill", "steady", "drain"]


def test_what_buffers_hold_is_between_nothing_and_what_is_reserved(compared):
    course, _, before = compared
    cycles = next(kernel.cycles for kernel in before.kernels if kernel.macs)
    assert course.cycles >= cycles
    for use in course.before:
        assert min(use.curve) >= 0
        assert max(use.curve) <= use.most_bytes * (1 + 1e-9)
        # Means of equal parts of the longer plan's time, times all of it: the byte-cycles of this plan.
        whole = sum(use.curve) / len(use.curve) * course.cycles
        assert whole == pytest.approx(use.mean_bytes * cycles)


def test_byte_cycles_and_curves_are_means():
    # 100 bytes from cycle 10 to 20, 50 from 20 to 40.
    levels = ((10, 100), (20, 50), (40, 0))
    assert byte_cycles(levels) == 100 * 10 + 50 * 20
    # Parts of 16 cycles: 6 of them full; 4 full and 12 half; 8 half; nothing.
    expected = (600 / 16, (400 + 600) / 16, 400 / 16, 0.0)
    assert held_curve(levels, 64, 4) == pytest.approx(expected)
    assert held_curve((), 64, 4) == (0.0,) * 4


# ---- Tables and pictures

USE = BufferUse("L1", 400, 200, (("A1", 2, 64), ("B1", 1, 72)), 150, 37.5, (0.0, 100.0))
COURSE = Course(
    "warm",
    (Part("entry", 10, 10), Part("fill", 5, 7), Part("steady", 80, 60), Part("drain", 3, 3)),
    (Part("M busy", 60, 40), Part("entry", 10, 10), Part("MTE2 busy", 20, 30), Part("flag to M", 8, 0)),
    98,
    (USE,),
    (replace(USE, reserved_bytes=400, curve=(400.0, 0.0)),),
)


def numbers(cells):
    return [int(cell.replace(",", "")) for cell in cells]


def test_stages_stand_side_by_side_with_their_sums():
    table = stages_table([COURSE])
    assert table.headings == ("L2", "plan", "entry", "fill", "steady", "drain", "all cycles")
    assert table.rows == (
        ("warm", "usual", "10", "5", "80", "3", "98"),
        ("warm", "best", "10", "7", "60", "3", "80"),
        ("warm", "difference", "+0", "+2", "-20", "+0", "-18"),
    )


def test_a_part_that_one_start_lacks_is_0_there():
    other = replace(COURSE, start="cold", stages=(*COURSE.stages, Part("other kernels", 0, 9)))
    table = stages_table([COURSE, other])
    assert table.headings[-2:] == ("other kernels", "all cycles")
    assert [row[-2:] for row in table.rows] == [
        *(("0", "98"), ("0", "80"), ("+0", "-18")),
        *(("0", "98"), ("9", "89"), ("+9", "-9")),
    ]


@pytest.mark.parametrize("most", [None, 1, 2, 3])
def test_the_critical_paths_stand_side_by_side_and_a_brief_table_adds_up_as_well(most):
    table = path_table(COURSE, most)
    columns = [numbers(column) for column in zip(*(row[1:] for row in table.rows), strict=True)]
    assert [sum(column[:-1]) for column in columns] == [column[-1] for column in columns] == [98, 80, -18]
    # The largest first; one cause alone is named, as it takes no more room than "other causes".
    named = [row[0] for row in table.rows[:-1]]
    full = ["M busy", "MTE2 busy", "entry", "flag to M"]
    assert named == (full if most in (None, 3) else [*full[:most], "other causes"])


def test_the_start_that_decides_is_that_of_the_longest_time(answer):
    answer, _ = answer
    slowest = max(answer.best.times_us, key=lambda start: answer.best.times_us[start])
    assert deciding(answer).start == slowest


def test_buffers_are_listed_plan_beside_plan():
    rows = buffers_table(COURSE).rows
    assert rows[0] == ("L1", "usual", "A1 2 x 64, B1 1 x 72", "200", "400", "50%", "150", "38")
    assert rows[1][:5] == ("L1", "best", "A1 2 x 64, B1 1 x 72", "400", "400")


def test_a_panel_is_as_high_as_the_buffer_and_filled_up_to_what_is_held():
    # Two panels of (720 - 60 - 2 x 16) / 2 = 314, from 60 and from 390, feet at 30 + 56 = 86: half the time
    # nothing, then a quarter of 400 bytes, 14 of 56 high; what is reserved is half way up, at 58.
    svg = held([Curve("L1", "usual", (0.0, 100.0), 200, 400)], ["usual", "best"], 98)
    assert 'points="60.0,86.0 60.0,86.0 217.0,86.0 217.0,72.0 374.0,72.0 374.0,86.0"' in svg
    assert '<line class="reserved" x1="60.0" y1="58.0" x2="374.0" y2="58.0"/>' in svg
    assert "usual, L1: 200 of 400 bytes reserved" in svg
    assert svg.count("<polyline") == 1


def test_both_plans_have_a_panel_for_each_buffer_on_one_scale_of_time():
    picture = buffers_picture(COURSE)
    assert picture.svg.count("<polyline") == 2
    assert "98 cycles" in picture.caption


def test_a_picture_of_paths_tells_few_causes_apart_and_draws_all_cycles():
    many = tuple(Part(f"cause {at}", 10 + at, 10) for at in range(20))
    svg = paths_picture([replace(COURSE, path=many)]).svg
    # Of 20 causes the 6 largest, 29 to 24; the others are 10 + ... + 23 = 231.
    assert "<title>usual, L2 warm, cause 19: 29 cycles</title>" in svg
    assert "cause 13" not in svg
    assert "<title>usual, L2 warm, other causes: 231 cycles</title>" in svg


# ---- The study


@pytest.fixture(scope="module")
def answer():
    asked = TilingQuestion("a test", "910B2", LAYER, "grad_weight", trials=10, doubt=False)
    return study_tiling(asked, Engine(Store(), 1), Budget())


def test_the_terminal_shows_stages_of_every_start_and_the_paths_of_one(answer):
    found, _ = answer
    titles = [table.title for table in tiling_tables(found)]
    assert titles[-2:] == [
        "Entry, fill, steady and drain in cycles",
        f"The critical paths with L2 {deciding(found).start}, by pipe and cause",
    ]
    totals = {row[:2]: int(row[-1].replace(",", "")) for row in tiling_tables(found)[-2].rows}
    for waits in found.waits:
        assert totals[waits.start, "usual"] == waits.before
        assert totals[waits.start, "best"] == waits.after


def test_the_page_has_all_paths_and_a_picture_of_the_buffers_for_every_start(answer):
    found, _ = answer
    sections = {section.title: section for section in tiling_page(found, {}).sections}
    starts = len(found.question.starts)
    assert len(sections["The critical paths"].tables) == starts
    assert len(sections["What the buffers hold"].pictures) == starts
    assert len(sections["Fill, steady and drain"].tables) == 1


def test_where_no_plan_beats_the_usual_one_it_is_shown_once(answer):
    found, _ = answer
    kept = replace(found, best=found.usual)
    for both, one in zip(tiling_tables(found), tiling_tables(kept), strict=True):
        assert not {"best", "difference"} & {*one.headings, *(cell for row in one.rows for cell in row)}
        shown = [
            at for at, heading in enumerate(both.headings) if heading not in ("best", "difference", "plan")
        ]
        usual = [row for row in both.rows if "plan" not in both.headings or row[1] == "usual"]
        # Plans that were set otherwise have fields of their own in the table of both.
        expected = [tuple(row[at] for at in shown) for row in usual]
        assert set(one.rows) <= set(expected) if one.title == "The usual plan" else list(one.rows) == expected
    assert not any("the best came from" in note for note in notes(kept))
    assert any("the best came from" in note for note in notes(found))
    # Nor does the page draw it twice, or call it both.
    for section in tiling_page(kept, {}).sections:
        for picture in section.pictures:
            assert "best" not in picture.svg
            assert "both" not in picture.caption
        for table in section.tables:
            assert "best" not in {*table.headings, *(cell for row in table.rows for cell in row)}


def test_the_record_has_all_of_it_but_the_curves(answer):
    found, _ = answer
    for said, waits in zip(tiling_record(found)["courses"], found.waits, strict=True):
        for parts in (said["stages"], said["critical_path"]):
            assert [sum(pair) for pair in zip(*parts.values(), strict=True)] == [waits.before, waits.after]
        assert {row["plan"] for row in said["buffers"]} == {"usual", "best"}
        assert "curve" not in said["buffers"][0]
