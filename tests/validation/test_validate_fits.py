"""Are figures fitted without the rows that judge them, and taken away where they were not fitted?"""

from dataclasses import replace

import pytest

import judge_fits
from ascendsim.profile.records import Figure
from ascendsim.validate import ablation
from ascendsim.validate import ablation as fits
from ascendsim.validate.ablation import candidates, effects, figures_on, fitted, leave_out
from ascendsim.validate.run import compare
from tests.helpers.measured_samples import made, write_table

OLD = "910B_old_1001"
COMMANDS = ("load3d.L0A.command_cycles", "load3d.L0B.command_cycles")
# Kernels that load3d feeds: few channels of many pixels.
SIZES = {"hpm-resnet50_a": "4x64x28x28", "hpm-yolov5_32-Conv2DBackprop_a": "4x64x40x40"}


def row(name, **columns):
    sizes = {"input_shape": SIZES[name], "weight_shape": "32x64x3x3", "variant": OLD}
    return made("grad_input", **sizes | {"id": name} | columns)


def as_if(rows, **overrides):
    """Return rows that measured what the model says under some figures."""
    changed = tuple((path, value) for path, value in overrides.items())
    return [replace(row, measured_us=compare(row, changed).estimated) for row in rows]


@pytest.fixture
def saw_everything(monkeypatch):
    """Let both commands of load3d be fitted on both networks, and nothing else on anything."""
    figure = Figure(15, "a fit", "measured", (0, 20), "", ("hpm-resnet50", "hpm-yolov5"), 0)
    monkeypatch.setattr(fits, "fitted", lambda _: dict.fromkeys(COMMANDS, figure))
    return figure


def test_candidates_are_even_steps_and_no_mechanism():
    assert candidates(Figure(15, "", "measured", (0, 12), without=0)) == [0, 2, 4, 6, 8, 10, 12]
    assert candidates(Figure(0.5, "", "measured", (0.25, 1), without=1.0))[:3] == [1.0, 0.25, 0.375]
    # Without a range the ends are the figure and its absence.
    assert candidates(Figure(6, "", "measured", without=0)) == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.usefixtures("saw_everything")
def test_a_fit_finds_the_figure_that_made_the_rows():
    # Rows of a machine whose commands take 10 cycles, a step of the range: the fit on one network must find
    # them, and the other network, which took no part, then has no error at all.
    held, others = ([one] for one in as_if([row(name) for name in SIZES], **dict.fromkeys(COMMANDS, 10)))
    found = leave_out("resnet", "910", held, others)
    assert found.values == dict.fromkeys(COMMANDS, 10)
    assert found.fitted.worst == 0
    assert found.committed.worst > 0.005
    assert found.unfitted.worst > 0.005


def test_a_fit_is_told_by_counters_of_pipes_that_do_not_bind(saw_everything, monkeypatch):
    # A machine whose results leave at 48 bytes a cycle: MTE3 has its counter, and another pipe binds.
    path, names = "paths.UB_GM.bytes_per_cycle", list(SIZES)
    figure = saw_everything._replace(value=64, range=(32, 80), without=92)
    monkeypatch.setattr(fits, "fitted", lambda _: {path: figure})
    ran = {name: compare(row(name, mte3_us=1.0), ((path, 48),)) for name in names}
    counted = {name: case.counters["MTE3"][1] for name, case in ran.items()}
    times = {name: compare(row(name)).estimated for name in names}
    held, others = ([row(name, measured_us=times[name], mte3_us=counted[name])] for name in names)
    # 92 is what the product has: by the times, which were measured with it, that would be the fit.
    assert leave_out("resnet", "910", held, others).values == {path: 48}


def test_a_figure_without_other_rows_stands_without(saw_everything, monkeypatch):
    only = saw_everything._replace(fitted_on=("hpm-resnet50",))
    monkeypatch.setattr(fits, "fitted", lambda _: dict.fromkeys(COMMANDS, only))
    held, others = ([row(name)] for name in SIZES)
    assert leave_out("resnet", "910", held, others).values == dict.fromkeys(COMMANDS, 0)
    # The other way round nothing is to be fitted anew: the figure never saw the held rows.
    assert leave_out("yolo", "910", others, held).values == {}


@pytest.mark.usefixtures("saw_everything")
def test_no_row_is_on_both_sides():
    rows = [row(name) for name in SIZES]
    with pytest.raises(ValueError, match="hpm-resnet50_a is both held out and fitted on"):
        leave_out("resnet", "910", rows[:1], rows)


def test_launch_figures_are_not_fitted_on_times():
    assert not any(
        path.startswith("launch")
        for paths in figures_on("910", [row("hpm-resnet50_a", id="mi-run")])
        for path in paths
    )


def test_figures_of_one_fit_stay_equal(saw_everything, monkeypatch):
    held = [row("hpm-yolov5_32-Conv2DBackprop_a")]
    assert list(figures_on("910", held)) == [COMMANDS]
    # Fits of two sources are two.
    own = dict(zip(COMMANDS, (saw_everything, saw_everything._replace(source="another")), strict=True))
    monkeypatch.setattr(fits, "fitted", lambda _: own)
    assert list(figures_on("910", held)) == [(path,) for path in COMMANDS]


def test_a_figure_is_judged_by_rows_that_it_did_not_see(monkeypatch):
    seen, unseen = (row(name) for name in SIZES)
    figure = Figure(92, "a fit", "measured", (64, 96), "", ("hpm-resnet50",), 64)
    monkeypatch.setattr(ablation, "fitted", lambda _: {"paths.UB_GM.bytes_per_cycle": figure})
    (measured,) = as_if([unseen])
    copy = made("move", id="a copy", variant=OLD)
    # Not taken: an instruction, a repeat of the same kernel, another product, the sum of a whole call.
    again = replace(measured, id="again", measured_us=1.0)
    call = replace(measured, id="sum", kernel="grad_weight_call")
    others = [copy, again, replace(measured, variant="910B2"), call]
    (found,) = effects("910", [seen, measured, *others])
    # The other row of this product, which the figure moves; what it measured is what the figure makes of it.
    assert (found.count, found.moved, found.kept) == (1, 1, (0, 0))
    assert found.dropped[0] == found.dropped[1] > 0


def test_a_figure_that_moves_nothing_says_so(monkeypatch):
    figure = Figure(8, "a fit", "measured", None, "", ("nothing",), 0)
    monkeypatch.setattr(ablation, "fitted", lambda _: {"vector.repeat_cycles.exp": figure})
    (found,) = effects("910", [row("hpm-resnet50_a")])
    assert (found.count, found.moved) == (1, 0)


def test_every_product_has_figures_to_take_away():
    # The tables of the page would be empty if fitted() found none.
    assert all(fitted(product) for product in ("910", "910B", "910_93", "910_95"))


def test_the_page_gets_both_tables_between_its_marks(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{judge_fits.BEGIN}old\n{judge_fits.END}after\n")
    monkeypatch.setattr(judge_fits, "PAGE", page)
    cells = [
        {"id": name, "variant": OLD, "kernel": "grad_input", "compute_dtype": "float16", "measured_us": "40"}
        | {"input_shape": size, "weight_shape": "32x64x3x3", "stride": "1x1", "padding": "1x1x1x1"}
        for name, size in SIZES.items()
    ]
    assert judge_fits.main([str(write_table(tmp_path / "rows.csv", *cells))]) == 0
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| 910: YOLOv5s | 1 |" in text
    assert "| `paths.UB_GM.bytes_per_cycle` |" in text
    # Effects on other classes of rows alone: there are none.
    assert judge_fits.main([str(tmp_path / "rows.csv"), "layouts"]) == 0
    text = page.read_text()
    assert "| 910: YOLOv5s | 1 |" in text
    assert "| `paths.UB_GM.bytes_per_cycle` |" not in text


@pytest.mark.parametrize("words", [[], ["/no/such/table.csv"], ["/no/such/table.csv", "gradients"]])
def test_without_a_table_the_page_stays(words, capsys):
    assert judge_fits.main(words) == 2
    assert capsys.readouterr().err
