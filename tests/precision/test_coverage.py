"""Do intervals hold what they say: draws of all figures, and measured rows that no figure was fitted on?"""

import csv
from importlib.resources import files
from random import Random

import pytest

import model_error
from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.errors import AscendSimError
from ascendsim.profile import list_products
from ascendsim.studies.sweep import Sweep, times, variables
from ascendsim.studies.uncertainty import NEAREST, OwnError, draws, interval, own_errors
from ascendsim.studies.uncertainty import model_error as of_call
from ascendsim.validate.schema import read_rows
from tests.helpers.toy_machines import VARIANTS

# --- Draws that the interval has not seen -------------------------------------------------------------


def random_call(random):
    """A product and a convolution that it takes, as a call for studies."""
    while True:
        variant, rank = random.choice(VARIANTS), random.choice((1, 2, 2, 2, 3))
        channels, kernel = (16 * random.randint(1, 16) for _ in range(2)), random.choice((1, 3, 5))
        small, big = channels
        extent = (random.randint(kernel, 56 if rank < 3 else 14),) * rank
        shape = (random.randint(1, 4), small, *extent), (big, small, *(kernel,) * rank)
        problem = ConvProblem(*shape, random.choice((1, 2)), kernel // 2)
        wanted = random.choice(((True, False, False), (False, True, False), (True, True, True)))
        dtype = random.choice(("float16", "float16", "float32"))

        def call(profile, plans, how=(problem, dtype, wanted)):
            return estimate(how[0], dtype=how[1], output_mask=how[2], product=profile, tiling=plans)

        try:
            return Sweep.of(variant, call)
        except AscendSimError:
            continue


def held(count, seed):
    """The share of draws that lie in their call's interval, over so many calls with 20 draws each."""
    random, inside, all_of = Random(seed), 0, 0
    for number in range(count):
        sweep = random_call(random)
        made = interval(sweep.product, sweep.call, usual=sweep.usual)
        fresh = draws(variables(load_profile(sweep.product)), 20, seed=f"unseen {number}")
        (found,) = times([sweep], [fresh], 1, ["draw"] * len(fresh))
        known = [point.time_us for point in found if point is not None]
        inside += sum(made.shortest_us <= us <= made.longest_us for us in known)
        all_of += len(known)
        assert made.low_us <= made.shortest_us <= made.usual_us <= made.longest_us <= made.high_us
    return inside / all_of


def test_an_interval_holds_nine_in_ten_of_other_draws():
    assert held(1, "few") >= 0.9


@pytest.mark.slow
def test_the_intervals_of_300_calls_hold_nine_in_ten_of_other_draws():
    assert held(300, "many") >= 0.9


# --- Measured rows ------------------------------------------------------------------------------------


def test_a_quantile_leaves_a_fifth_of_further_scores_above():
    # Of 4 scores the fourth gap ends at the largest; of 9, 0.8 x 10 is the eighth.
    assert model_error.own_error([4.0, 1.0, 3.0, 2.0]) == 4.0
    assert model_error.own_error([float(score) for score in range(1, 10)]) == 8.0
    # 0.8 x 12 - 1 is 8.6: between the ninth and the tenth.
    assert model_error.own_error([float(score) for score in range(11)]) == pytest.approx(8.6)


def test_a_kind_of_few_rows_is_judged_by_the_nearest():
    scores = {("2201", "a 3-D"): ([0.5], [0.1, 0.9]), ("1001", "a 2-D"): ([0.1, 0.2, 0.3, 0.4], [0.5])}
    scores["2201", "a 2-D"] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.2, 0.7]
    # Of six, 0.8 x 7 - 1 is 4.6: between the fifth and the sixth. Four are too few.
    assert model_error.errors_of(scores) == [
        OwnError("2201", "a 3-D", 0, 0.56, 3, 2),
        OwnError("1001", "a 2-D", 0, 0.56, 5, 5),
        OwnError("2201", "a 2-D", 6, 0.56, 2, 1),
    ]


def test_what_figures_reach_needs_no_error_of_the_model():
    assert model_error.Judged(0.3, 0.0, 0.4).score == 0.0
    assert model_error.Judged(-0.5, 0.4, 9.0).score == pytest.approx(0.3)


def test_every_kind_of_kernel_has_an_own_error_on_every_architecture():
    known = own_errors()
    assert all(0 <= one.error < 2 for one in known.values())
    assert all(not one.rows or one.rows >= model_error.FEWEST for one in known.values())
    for product in list_products():
        profile = load_profile(product.name)
        assert NEAREST[profile.npu_arch][0] == profile.npu_arch
        # The first generation has no operators of volumes.
        for dimensions in (1, 2) if profile.npu_arch in ("1001", "2002") else (1, 2, 3):
            extent = (6,) * dimensions
            problem = ConvProblem((1, 16, *extent), (32, 16, *(3,) * dimensions), padding=1)
            found = of_call(profile, estimate(problem, product=profile), dimensions)
            assert found.low < 1 < found.high
            assert found.low * found.high == pytest.approx(1, rel=0.5)


def test_four_in_five_of_the_rows_that_gave_nothing_lie_inside():
    families = {}
    for one in own_errors().values():
        families.setdefault(one.family, []).append(one)
    shares = {}
    for family, own in families.items():
        others, inside = (sum(getattr(one, name) for one in own) for name in ("others", "inside"))
        # Of a handful of rows no share can be told.
        if others >= 20:
            shares[family] = inside / others
    assert set(shares) == {"1001", "2201"}
    assert all(0.75 <= share <= 0.9 for share in shares.values())


@pytest.mark.slow
def test_the_file_of_own_errors_is_that_of_the_measured_rows(measured_table, tmp_path, data_dir):
    import measured_rows

    later = tmp_path / "later.csv"
    assert measured_rows.main([str(data_dir / "silicon_2026_11.csv"), str(later)]) == 0
    made = tmp_path / "model_error.csv"
    assert model_error.main([str(made), str(measured_table), str(later)]) == 0
    assert made.read_text() == (files("ascendsim.studies") / "model_error.csv").read_text()


def test_no_row_that_a_figure_was_fitted_on_gives_an_own_error(measured_table):
    asked = model_error.unseen(read_rows(measured_table))
    assert asked
    assert all(row.role != "fit" for own in asked.values() for row in own)


def test_the_file_says_what_each_column_is():
    lines = list(csv.reader((files("ascendsim.studies") / "model_error.csv").read_text().splitlines()))
    assert tuple(lines[0]) == OwnError._fields
