"""Do measured rows move the figures of a product where they belong, and no further?"""

import hashlib
import os
import re
import sys
from dataclasses import replace
from math import exp, log
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from ascendsim import ConvProblem, estimate
from ascendsim.cli import main
from ascendsim.errors import ConfigError, DataError
from ascendsim.profile import load_profile
from ascendsim.studies.sweep import variables
from ascendsim.studies.uncertainty import interval
from ascendsim.validate.calibrate import TIMINGS, calibrate, calibrated_toml, missing_mechanisms
from ascendsim.validate.row_fit import (
    OUTLYING,
    PRIOR,
    LinearModel,
    RowTimer,
    leave_rows_out,
    log_estimate,
    moved_figures,
)
from ascendsim.validate.run import compare
from ascendsim.validate.schema import MeasuredRow, Unusable, read_rows

pytest.importorskip("scipy", reason="needs the extra calibrate")
P = "910B2"
RANGED = moved_figures(load_profile(P))


def row(name, kernel, **cells):
    return MeasuredRow(name, P, kernel, measured_us=1.0, measured_cycles=1.0, **cells)


LAYER = {"compute_dtype": "float16", "input_shape": (1, 16, 9, 9), "weight_shape": (16, 16, 3, 3)}
LAYER |= {"padding": (1, 1, 1, 1)}
IMAGE = {"compute_dtype": "float16", "input_shape": (4, 64, 26, 26)}
ROWS = [
    row("product", "matmul", compute_dtype="float16", m=256, k=256, n=256),
    row("small", "matmul", compute_dtype="float16", m=64, k=64, n=64),
    row("deep", "matmul", compute_dtype="float16", m=128, k=2048, n=128, l2_start="cold"),
    row("dx", "grad_input", **LAYER),
    row("dw", "grad_weight", **LAYER),
    row("layout", "transdata", change="NCHW->NC1HWC0", **IMAGE),
    row("bias", "grad_bias", **IMAGE),
    row("copy", "copy_and_wait", path="GM_UB", bytes=32768),
    row("back", "copy_and_wait", path="UB_GM", bytes=32768),
    row("multiply", "mmad", compute_dtype="float16", m=64, k=64, n=64, in_a_row=True),
    row("in", "move", path="GM_L1", bytes=65536),
    row("out", "move", path="L0C_GM", bytes=65536),
    row("load", "load", path="L1_L0A", repeats=16),
    row("stream", "stream", path="GM_L1", cores=4, bytes=1 << 20, moved_bytes=1 << 20),
]


def told(rows, overrides=()):
    """The rows as a device with other figures would have measured them."""
    made = []
    for one in rows:
        value = exp(log_estimate(one, P, P, overrides))
        made.append(replace(one, measured_us=value, measured_cycles=value))
    return made


def drawn(seed):
    """Every number with a range anywhere in it, by path."""
    random = np.random.default_rng(seed)
    return {path: value for f in RANGED for value in [f.at(random.uniform(*f.room))] for path in f.paths}


@pytest.fixture(scope="module")
def found():
    return calibrate(told(ROWS, tuple(drawn(0).items())), P)


def hits(found, true):
    return [f.range_after[0] <= true[f.paths[0]] <= f.range_after[1] for f in found.figures]


def held(found, true):
    """Which true figures lie in their new ranges, of a calibration that brought its rows nearer."""
    assert found.figures
    assert found.error("after") < found.error("before") / 2
    assert found.error("left_out") < found.error("before")
    return hits(found, true)


def test_it_finds_the_figures_of_a_device_whose_figures_are_all_others(found):
    inside = held(found, drawn(0))
    assert sum(inside) >= 0.9 * len(inside) - 1


@pytest.mark.slow
def test_it_finds_the_figures_of_twenty_devices():
    """Ranges of two standard deviations hold 95 % of them; nine in ten are asked for."""
    drawings = [drawn(seed) for seed in range(20)]
    inside = [hit for true in drawings for hit in held(calibrate(told(ROWS, tuple(true.items())), P), true)]
    assert sum(inside) >= 0.9 * len(inside)


def test_rows_that_are_as_the_model_has_them_move_nothing():
    found = calibrate(told(ROWS[5:]), P)
    assert all(figure.before == figure.after for figure in found.figures)
    assert all(figure.range_before != figure.range_after for figure in found.figures)
    assert not found.missing
    assert found.error("before") == found.error("after") == 0


def test_ranges_only_narrow(found):
    for figure in found.figures:
        (low, high), (least, most) = figure.range_before, figure.range_after
        assert low <= least <= figure.after <= most <= high
    paths = [path for figure in found.figures for path in figure.paths]
    every = [path for f in RANGED for path in f.paths]
    assert sorted([*paths, *found.unsettled, *found.unmoved]) == sorted(every)


def test_the_file_is_a_product_with_these_figures(found, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(calibrated_toml(found, P, 'my "rows".csv', "0123abcd"))
    made, base = load_profile(path), load_profile(P)
    changed = {p for p in base.figures if made.figures[p].value != base.figures[p].value}
    for figure in found.figures:
        for name in figure.paths:
            got = made.figures[name]
            assert (got.value, got.range, got.confidence) == (figure.after, figure.range_after, "measured")
            assert 'my "rows".csv, sha256 0123abcd, rows ' in got.source
            assert figure.rows[0][0] in got.source
    derived = {p for p in changed if base.figures[p].range is None}
    assert changed - derived == {p for f in found.figures if f.before != f.after for p in f.paths}


# (input, weight, stride, padding)
CALLS = [
    ((1, 32, 14, 14), (32, 32, 3, 3), 1, 1),
    ((1, 64, 14, 14), (32, 64, 1, 1), 1, 0),
    ((2, 16, 28, 28), (32, 16, 3, 3), 2, 1),
    ((1, 3, 32, 32), (16, 3, 3, 3), 1, 1),
    ((4, 32, 7, 7), (64, 32, 1, 1), 1, 0),
]


def width(problem, product):
    def call(profile, plans):
        return estimate(ConvProblem(*problem), product=profile, tiling=plans)

    found = interval(product, call)
    return log(found.high_us / found.low_us)


@pytest.mark.slow
def test_intervals_narrow(found, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(calibrated_toml(found, P, "rows.csv", "0"))
    for problem in CALLS[-1:]:
        assert width(problem, path) < width(problem, P)


def test_a_figure_at_its_bound_whose_rows_stay_far_off_is_named():
    launch = [f for f in RANGED if f.paths == ("launch.per_core_us",)]
    low, high = (np.array([end]) for end in launch[0].room)
    rows = [(one, P) for one in ROWS[:5]]
    slopes, alone = np.full((5, 1), 0.7), np.full(5, False)
    errors = np.log([0.7, 0.95, 0.6, 0.65, 1.4])

    def named(at):
        return list(missing_mechanisms(rows, launch, LinearModel(at, errors, slopes, low, high, alone), [0]))

    (at_bound,) = named(high)[:1]
    assert at_bound == (
        "2 matmul rows are 35% too fast with launch.per_core_us at its upper bound 0.29: no figure in its "
        "range explains it"
    )
    inside = named(high / 2)
    assert not [said for said in inside if "bound" in said]
    held = named(low)
    assert held == [
        "1 grad_weight row is 40% too slow with launch.per_core_us at its lower bound 0.06: no figure in its "
        "range explains it",
        "1 grad_weight row is 40% too slow, further than all figures in their ranges move them: a mechanism "
        "is missing",
    ]


@pytest.mark.slow
def test_one_row_that_lacks_a_mechanism_moves_no_figure():
    rows = told(ROWS[:9])
    rows[2] = replace(rows[2], measured_us=5 * rows[2].measured_us)
    found = calibrate(rows, P)
    assert all(figure.before == figure.after for figure in found.figures)
    assert any(said.startswith("1 matmul row is 80% too fast") for said in found.missing)


@pytest.mark.slow
def test_noise_is_not_written():
    """Rows that scatter about the model: what fits them does not fit those left out."""
    random = np.random.default_rng(5)
    noisy = [
        replace(one, measured_us=one.measured_us * exp(0.15 * random.normal())) for one in told(ROWS[:7])
    ]
    found = calibrate(noisy, P)
    assert not found.carries_over
    now = {f.paths[0]: f.value for f in RANGED}
    for figure in found.figures:
        assert figure.range_after[0] <= now[figure.paths[0]] <= figure.range_after[1]


def test_all_rows_say_whether_a_fit_carries_over_not_the_one_in_the_middle(found):
    """Two rows come a little nearer and one goes far off: by the median that is better, by all rows worse."""
    before, out = (0.20, 0.20, 0.20), (0.10, 0.10, 0.90)
    rows = [row._replace(before=b, left_out=o) for row, b, o in zip(found.rows[:3], before, out, strict=True)]
    one = replace(found, rows=tuple(rows))
    assert one.error("left_out") < one.error("before")
    assert one.mean_error("left_out") == pytest.approx((2 * log(1.1) + log(1.9)) / 3)
    assert not one.carries_over
    # Too fast by half is as far off as too slow by twice.
    rows[2] = rows[2]._replace(before=1.0, left_out=-0.5)
    other = replace(found, rows=tuple(rows))
    assert other.carries_over
    assert not replace(other, figures=()).carries_over


def test_repeated_measurements_of_a_kernel_are_one_row():
    first, second, third = (
        replace(told(ROWS[1:2])[0], id=name, measured_us=us)
        for name, us in (("a", 3.0), ("b", 9.0), ("c", 4.0))
    )
    found = calibrate([first, second, *told(ROWS[3:4]), third], P)
    assert [one.id for one in found.rows] == ["a", "dx"]
    assert found.rows[0].before == pytest.approx(exp(log_estimate(first, P, P, ())) / 4 - 1)


@pytest.mark.parametrize("one", ROWS, ids=lambda one: one.id)
def test_an_estimate_without_changes_is_that_of_validate(one):
    assert exp(log_estimate(one, P, P, ())) == pytest.approx(compare(one).estimated)


def test_a_row_keeps_its_plan_under_other_figures():
    """A copy that takes ten times as long makes a search choose another plan; the row's stays."""
    one = row("search", "matmul", compute_dtype="float16", m=1024, k=512, n=768, strategy="search", blocks=24)
    moved = ("scalar.issue_cycles", 20), ("sync.flag_cycles", 40), ("paths.L1_L0A.head_cycles", 26)
    kept = log_estimate(one, P, P, moved)
    assert kept > log_estimate(one, P, P, ())
    assert exp(kept) >= compare(one, moved).estimated


def test_least_squares_are_those_of_a_grid():
    """The obvious way: every pair of shifts, one in a thousand, and the least of what Tukey sums."""
    random = np.random.default_rng(3)
    slopes = random.normal(size=(9, 2))
    low, high = np.array([-0.3, -0.6]), np.array([0.7, 0.4])
    errors = slopes @ [-0.2, 0.3] + random.normal(size=9) * 0.05
    model = LinearModel(np.zeros(2), errors, slopes, low, high, np.full(9, False))
    shifts, _, (scale, *_) = model.solved(np.full(9, True))
    one, other = np.meshgrid(np.linspace(low[0], high[0], 1001), np.linspace(low[1], high[1], 1001))
    off = (errors + one[..., None] * slopes[:, 0] + other[..., None] * slopes[:, 1]) / scale
    near = np.maximum(1 - (off / OUTLYING) ** 2, 0) ** 3
    cost = OUTLYING**2 / 3 * (1 - near).sum(-1) + PRIOR * (one**2 + other**2)
    at = np.unravel_index(cost.argmin(), cost.shape)
    assert shifts == pytest.approx([one[at], other[at]], abs=2e-3)


def test_a_row_is_left_out_of_what_judges_it():
    """The shifts that judge a row are the same whatever the row says."""
    rows = told(ROWS, tuple(drawn(1).items()))
    timer = RowTimer([(one, P) for one in rows], P, RANGED, TIMINGS, 1, lambda *_: None)
    at = np.zeros(len(RANGED))
    errors = timer.now(at) - np.log([one.measured for one in rows])
    slopes = np.zeros((len(rows), len(RANGED)))
    slopes[:, :3] = np.random.default_rng(2).normal(size=(len(rows), 3))
    model = LinearModel(at, errors, slopes, *np.array([f.room for f in RANGED]).T, np.full(len(rows), False))
    shifts = leave_rows_out(timer, timer.now(at) - errors, model).shifts
    other = replace(model, errors=errors + np.eye(len(rows))[4])
    again = leave_rows_out(timer, timer.now(at) - other.errors, other).shifts
    assert shifts[4] == pytest.approx(again[4])
    assert not np.allclose(shifts[5], again[5])


def test_rows_of_other_products_and_kinds_are_told():
    rows = [*told(ROWS[:2]), replace(ROWS[3], variant="910A"), Unusable("x", "a reason")]
    found = calibrate(rows, P)
    assert {one.id: one.reason for one in found.unusable} == {"dx": "measured on 910A", "x": "a reason"}
    assert found.exact


def test_it_refuses_what_it_cannot_begin_with(monkeypatch):
    with pytest.raises(DataError, match="1 of 2 rows can be estimated on 910B2, not 2 at least: x: why"):
        calibrate([*told(ROWS[:1]), Unusable("x", "why")], P)
    with pytest.raises(ConfigError, match="5 timings are too few"):
        calibrate(told(ROWS[:2]), P, timings=5)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ConfigError, match="calibrate needs scipy, which is not installed"):
        calibrate(told(ROWS[:2]), P)


def test_spent_timings_leave_the_best_so_far():
    rows = told(ROWS[7:], tuple(drawn(1).items()))
    whole = calibrate(rows, P)
    found = calibrate(rows, P, timings=whole.timings - 20)
    assert whole.whole
    assert whole.exact
    assert found.timings <= whole.timings - 20
    assert found.error("after") <= found.error("before")
    # Rows could not all be left out of a fit made anew: that is said, and not that they were.
    assert not found.whole
    assert not found.exact


PROFILE = """Op Name,OP Type,Task Duration(us),Input Shapes,Input Data Types,Output Shapes
mm,MatMulV3,{0},"512,512;512,512",FLOAT16;FLOAT16,"512,512"
small,MatMulV3,{1},"64,64;64,64",FLOAT16;FLOAT16,"64,64"
long,MatMulV3,{2},"2048,256;256,512",FLOAT16;FLOAT16,"2048,512"
relu,Relu,3,"4,4",FLOAT16,"4,4"
"""


@pytest.fixture
def profile(tmp_path):
    """A profile of a device that starts its cores more slowly."""
    path = tmp_path / "op_summary.csv"
    path.write_text(PROFILE.format(10.5, 3.4, 12.9))
    return path


def test_the_command(profile, tmp_path, capsys):
    out = tmp_path / "mine.toml"
    status = main(["calibrate", str(profile), "--product", P, "--out", str(out)])
    said = capsys.readouterr().out
    assert said.startswith("3 rows settle ")
    for part in (
        "Median error",
        "Figures that rows settle",
        "Moved by no row",
        "Rows, by their error",
        "Relu",
    ):
        assert part in said
    assert re.search(r"\d of them nearer than before, \d further off", " ".join(said.split()))
    assert status == (0 if out.exists() else 1)
    assert ("nothing is to be written" in said.replace("\n", " ")) == (not out.exists())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "mine.tml"), "a product file ends in .toml, as mine.toml"),
        (("--out", "nowhere/mine.toml"), "there is no folder nowhere"),
        (("--timings", "0"), "not a positive whole number"),
    ],
)
def test_mistakes_are_told_before_the_work(profile, capsys, words, said):
    assert main(["calibrate", str(profile), "--product", P, *words]) == 2
    assert said in capsys.readouterr().err


def test_figures_that_one_source_gives_are_one_number():
    """As in studies; but a fit moves them to one value, so that they have one range as well."""
    for product in ("910B", "950PR_9589", "310P3", "910A"):
        machine = load_profile(product)
        moved = {figure.paths for figure in moved_figures(machine)}
        sources = [set(one.figures) for one in variables(machine)]
        assert all(any(set(paths) <= own for own in sources) for paths in moved), product
        for own in sources:
            numbers = [
                (figure.value, *figure.range)
                for path in own
                if not isinstance((figure := machine.figures[path]).value, list)
            ]
            parts = [paths for paths in moved if set(paths) <= own]
            assert len(parts) <= len(set(numbers)), (product, own)
    latencies = next(figure for figure in RANGED if "paths.L1_L0A.latency_cycles" in figure.paths)
    assert "paths.L0C_L1.latency_cycles" in latencies.paths  # "as L1_L0A"


def test_a_file_of_neither_kind_is_told(tmp_path, capsys):
    path = tmp_path / "other.csv"
    path.write_text("shape,time\n3,4\n")
    assert main(["calibrate", str(path), "--product", P]) == 2
    assert (
        "other.csv: the first line has neither id, as a table of cases, nor Name" in capsys.readouterr().err
    )


def by_hash(one):
    return hashlib.sha256(one.id.encode()).hexdigest()


@pytest.mark.slow
@pytest.mark.skipif("ASCENDSIM_DATA" not in os.environ, reason="no outside data")
def test_half_of_the_rows_of_the_910_say_something_of_the_other_half(tmp_path):
    import measured_rows

    made = tmp_path / "rows.csv"
    assert measured_rows.main([str(Path(os.environ["ASCENDSIM_DATA"]) / "silicon.csv"), str(made)]) == 0
    rows = [
        one
        for one in read_rows(made)
        if isinstance(one, MeasuredRow) and load_profile(one.variant).product == "910"
    ]
    rows = sorted((one for one in rows if one.kind != "primitives"), key=by_hash)
    # Which of the first half comes first is as good as drawn.
    fitted, judged = rows[:36], rows[len(rows) // 2 :]
    found = calibrate(fitted, "910")
    moved = tuple((path, figure.after) for figure in found.figures for path in figure.paths)

    def errors(overrides):
        return median(
            abs(exp(log_estimate(one, one.variant, "910", overrides)) / one.measured - 1) for one in judged
        )

    assert found.figures
    assert errors(moved) <= errors(())
    path = tmp_path / "mine.toml"
    path.write_text(calibrated_toml(found, "910", "silicon.csv", "0"))
    for problem in CALLS:
        assert width(problem, path) < width(problem, "910")
