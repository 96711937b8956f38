"""Is how a gradient runs under two plans, one's own too, told in numbers that add up?"""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ascendsim import ConvProblem, Tiling, estimate, load_profile
from ascendsim.cli import main
from ascendsim.ops.traffic import bytes_by_pipe
from ascendsim.report.page import Curve, Held
from ascendsim.report.page.charts import figure_of
from ascendsim.report.studies.beside import beside_record, beside_sentence, beside_tables
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
from ascendsim.studies.tuning import study
from ascendsim.studies.tuning.records import BufferUse, Course, CyclesPart, TilingQuestion
from ascendsim.studies.tuning.study import byte_cycles, course_of, held_curve, set_beside, study_tiling
from ascendsim.studies.tuning.tune import waits_of

# --- Is how a gradient runs under two plans told as it is, and do its stages and causes add up exactly?

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


def test_parts_of_one_side_alone_stand_beside_nothing(monkeypatch):
    sides = {"first": ({"a": 1, "b": 2}, [3]), "second": ({"c": 5, "a": 4}, [9, 7])}
    monkeypatch.setattr(study, "planned", lambda side: [SimpleNamespace(cycles=n) for n in sides[side][1]])
    products = [SimpleNamespace(cycles=cycles[0], timeline=side) for side, (_, cycles) in sides.items()]
    # Seven cycles of other kernels of the second stand last.
    found = study._course_parts(list(sides), products, lambda side: sides[side][0])
    assert [(one.what, one.before, one.after) for one in found] == [
        *(("a", 1, 4), ("b", 2, 0), ("c", 0, 5), ("other kernels", 0, 7)),
    ]
    alone = study._course_parts(["first"] * 2, products[:1] * 2, lambda side: sides[side][0])
    assert [one.what for one in alone] == ["a", "b"]


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
    (
        CyclesPart("entry", 10, 10),
        CyclesPart("fill", 5, 7),
        CyclesPart("steady", 80, 60),
        CyclesPart("drain", 3, 3),
    ),
    (
        CyclesPart("M busy", 60, 40),
        CyclesPart("entry", 10, 10),
        CyclesPart("MTE2 busy", 20, 30),
        CyclesPart("flag to M", 8, 0),
    ),
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
    other = replace(COURSE, start="cold", stages=(*COURSE.stages, CyclesPart("other kernels", 0, 9)))
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
    both = (Curve("L1", "usual", (0.0, 100.0), 200, 400), Curve("L1", "best", (400.0,), 400, 400))
    first, second = figure_of(Held(both, 98)).axes
    assert (first.get_xlim(), first.get_ylim()) == ((0, 98), (0, 400))
    (held,) = first.patches
    assert (list(held.get_data().values), list(held.get_data().edges)) == ([0, 100], [0, 49, 98])
    assert list(first.lines[0].get_ydata()) == [200, 200]
    assert (first.get_title("left"), second.get_title("left"), first.get_ylabel()) == ("usual", "best", "L1")


def test_the_picture_has_a_panel_for_each_buffer_and_plan():
    picture = buffers_picture(COURSE)
    assert [(curve.row, curve.column) for curve in picture.chart.curves] == [("L1", "usual"), ("L1", "best")]
    assert "98 cycles" in picture.caption


def test_a_picture_of_paths_tells_few_causes_apart_and_draws_all_cycles():
    many = tuple(CyclesPart(f"cause {at}", 10 + at, 10) for at in range(20))
    usual, _ = paths_picture([replace(COURSE, path=many)]).chart.stacks
    # Of 20 causes the 6 largest, 29 to 24; the others are 10 + ... + 23 = 231.
    largest = tuple((f"cause {at}", 10 + at) for at in range(19, 13, -1))
    assert (usual.label, usual.parts) == ("usual, L2 warm", (*largest, ("other causes", 231)))


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
    sections = {section.title: section for section in tiling_page(found).sections}
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
    for section in tiling_page(kept).sections:
        for picture in section.pictures:
            assert "best" not in str(picture.chart)
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


# --- Is a plan of one's own set beside the usual one, with all that differs, in numbers that add up? ---

BESIDE_LAYER = ConvProblem((2, 64, 14, 14), (64, 64, 3, 3), 1, 1)
OWN = Path(__file__).parents[2] / "examples" / "04_your_own_schedule.py"
WORDS = ("study", "tiling", "s3b1_3x3", "--l2-start", "warm")


def question(gradient="grad_input", starts=("warm", "cold"), margin=0.0):
    return TilingQuestion("a layer", "910B2", BESIDE_LAYER, gradient, starts=starts, margin=margin)


@pytest.fixture
def file(tmp_path):
    """A part of a plan of grad_input, and one of a single layer."""
    path = tmp_path / "mine.toml"
    path.write_text("[grad_input]\nbase_m = 64\n[s3b2_3x3.grad_input]\nbase_m = 32\n")
    return path


@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_every_group_of_cycles_adds_up_and_both_sides_are_those_of_estimates(gradient):
    given = {"base_m": 32, "base_n": 32}
    record = beside_record(set_beside(question(gradient), given))
    mask = (gradient == "grad_input", gradient == "grad_weight", False)
    for at, own in enumerate(({}, {"tiling": {gradient: given}})):
        for started in record["starts"]:
            call = {"product": "910B2", "output_mask": mask, "l2_start": started["l2_start"]}
            kernels = [
                k for k in estimate(BESIDE_LAYER, **call, **own).kernels if k.kernel.op_type != "TransData"
            ]
            [product] = [kernel for kernel in kernels if kernel.name == gradient]
            assert started["cycles"][at] == sum(kernel.cycles for kernel in kernels)
            assert started["times_us"][at] == sum(kernel.time_us for kernel in kernels)
            for parts in ("stages", "M"):
                assert sum(sides[at] for sides in started[parts].values()) == started["cycles"][at]
            moved = {name: sides[at] for name, sides in started["bytes"].items()}
            assert moved["MTE2"] == product.bytes["l2_read"]
            assert moved.get("FIX", 0) + moved.get("MTE3", 0) == product.bytes["l2_write"]
            assert moved.get("from memory", 0) == product.bytes["memory_read"]


def test_bytes_of_mte1_are_those_of_the_tiles_that_it_fills():
    # 16 x 16 pixels of 16 channels, 1 x 1 taps, one base block: one tile of 256 x 16 and one of 16 x 16, of
    # 2 bytes an element.
    one = ConvProblem((1, 16, 16, 16), (16, 16, 1, 1))
    result = estimate(one, product="910B2", output_mask=(True, False, False), tiling=Tiling(256, 16, 16))
    [product] = [kernel for kernel in result.kernels if kernel.plan]
    assert bytes_by_pipe(product.kernel, load_profile("910B2"))["MTE1"] == 2 * (256 * 16 + 16 * 16)


def test_fields_that_are_alike_are_left_out():
    plans, *cycles = beside_tables(set_beside(question(starts=("warm",)), {"base_m": 32}))
    told = {row[0]: row[1:] for row in plans.rows}
    assert told["base_m"][1] == "32"
    assert told["chosen by"] == ("product", "user, rest product")
    assert "base_k" not in told
    assert len(cycles) == 1


def test_the_sentence_says_what_the_plan_costs_and_whether_the_model_can_tell():
    found = set_beside(question(starts=("warm",)), {"base_m": 16, "base_n": 16})
    assert "the given plan costs " in beside_sentence(found)
    wide = set_beside(question(starts=("warm",), margin=1e9), {"base_m": 16, "base_n": 16})
    assert "the model's own error" in beside_sentence(wide)
    usual = estimate(BESIDE_LAYER, product="910B2", output_mask=(True, False, False)).plans["grad_input"]
    assert beside_sentence(set_beside(question(), usual)).endswith("the given plan is the usual one.")


def test_the_command_takes_a_file_and_a_nest_of_ones_own(file, tmp_path, capsys):
    assert main([*WORDS, "--plan", str(file), "--schedule", f"{OWN}:WeightsStay", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["given"]["schedule"], record["given"]["base_m"]) == ("weights_stay", 64)
    assert record["usual"]["chosen_by"] == "product"
    assert main([*WORDS, "--plan", str(file), "--out", str(tmp_path)]) == 0
    assert "What differs in the plan" in capsys.readouterr().out
    assert "bytes by MTE2" in (tmp_path / "study.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--gradient", "weight"), "has no plan of grad_weight for s3b1_3x3 (but of grad_input)"),
        (("--write-plan", "x.toml"), "--write-plan is of plans that are searched"),
        (("--product", "910B", "--product", "910_95"), "and 2 calls (of layers and products) are asked for"),
        (("--schedule", "wgrad"), "which makes grad_weight"),
    ],
)
def test_what_does_not_go_with_it_is_refused(refusal, file, words, message):
    assert message in refusal(*WORDS, "--plan", str(file), *words)
