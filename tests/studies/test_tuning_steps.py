"""Are the plans one step away those that the search says it takes, and does it climb as it says?"""

import sys
from types import SimpleNamespace

import pytest

from ascendsim import ConvProblem
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.tiling.legal_space import NO_GRID, BaseSizes, CellGrid, Footprint
from ascendsim.studies.engine.run import Budget
from ascendsim.studies.tuning import search
from ascendsim.studies.tuning.records import TilingQuestion, Trial
from ascendsim.studies.tuning.search import Tilings, Wish
from ascendsim.studies.tuning.tune import Tuner


def changed(before, after):
    """What one step changes, by name."""
    return {name: value for name, value in after.items() if before[name] != value}


# --- Steps of the operators' nests, by their fields ------------------------------------------------------

COPIES = ("al1_buffers", "bl1_buffers", "al0_buffers", "bl0_buffers", "cl0_buffers")


def fields(m, n, k, steps, copies, **more):
    base = {"base_m": m, "base_n": n, "base_k": k, "step_ka": steps[0], "step_kb": steps[1]}
    return base | {"single_core_m": 0, "single_core_n": 0} | dict(zip(COPIES, copies, strict=True)) | more


def steps_of(a, b):
    return {"step_ka": a, "step_kb": b}


def moved(before, gradient):
    return [changed(before, after) for after in search._moves(before, gradient)]


@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_every_step_of_a_plan_of_the_operators(gradient):
    # A share of two blocks of rows; of columns none. Four slices of the left operand in L1, two of the right.
    more = {"single_core_m": 128, "single_core_k": 7, "k_split": 2, "transpose_first": False}
    before = fields(64, 96, 32, (4, 2), (2, 1, 2, 1, 1), **more)
    # Twice, half, a fractal more and less, and half as much again; two thirds, 42, are 32 in whole fractals.
    rows = [{"base_m": m, "single_core_m": 2 * m} for m in (128, 32, 80, 48, 96)]
    columns = [{"base_n": n} for n in (192, 48, 112, 80, 144, 64)]
    # Three quarters of 96 are 72: 64 in whole fractals.
    quarters = [{"base_m": 48, "single_core_m": 96}, {"base_n": 64}]
    quarters.append(quarters[0] | quarters[1])
    # Parts of a block beside slices as many times as long, fewer of which make the same tile. An eighth of
    # either side is less than a fractal.
    half, quarter = {"base_k": 64, "step_ka": 2, "step_kb": 1}, {"base_k": 128, "step_ka": 1, "step_kb": 1}
    shrunk = [{"base_n": 48} | half, {"base_m": 32, "single_core_m": 64} | half]
    shrunk += [{"base_n": 16} | quarter, {"base_m": 16, "single_core_m": 32} | quarter]
    both = [row | column for row in rows for column in columns]
    # No share is one block: twice and half of that, but no less than a block.
    shares = [{"single_core_m": 256}, {"single_core_m": 64}, {"single_core_n": 192}, {"single_core_n": 96}]
    slices = []
    for k, a, b in ((64, 2, 1), (16, 8, 4), (48, 2, 1), (16, 8, 4), (40, 3, 1), (96, 1, 1)):
        slices += [{"base_k": k}, {"base_k": k} | changed(before, steps_of(a, b))]
    factors = [(8, 4), (2, 1), *([(8, 2), (4, 4), (2, 2), (4, 1)] if gradient == "grad_input" else [])]
    slices += [changed(before, steps_of(*numbers)) for numbers in (*factors, (5, 3), (3, 1))]
    copies = [{name: 3 - before[name]} for name in COPIES]
    last = [{"al1_buffers": 1, "step_ka": 8, "step_kb": 4}, {"transpose_first": True}]
    last += [{"k_split": 1, "single_core_k": 0}] if gradient == "grad_input" else []
    assert moved(before, gradient) == [
        *(*rows, *columns, *quarters, *shrunk, *both, *shares, *slices, *copies, *last)
    ]


def test_the_least_block_becomes_no_smaller():
    before = fields(16, 16, 16, (1, 1), (1, 1, 1, 1, 3), k_split=1)
    # Half again and two thirds are a fractal or nothing, as are three quarters and all parts.
    blocks = [{"base_m": 32}, {"base_n": 32}, {"base_m": 32, "base_n": 32}]
    shares = [{"single_core_m": 32}, {"single_core_m": 16}, {"single_core_n": 32}, {"single_core_n": 16}]
    # A fractal less is no slice; of half a slice two make the same tile.
    slices = [
        {"base_k": k} | more for k in (32, 8, 32, 24, 48) for more in ({}, steps_of(2, 2) if k == 8 else {})
    ]
    slices += [steps_of(2, 2), {}, {"step_ka": 2}, {"step_kb": 2}, {}, {}, steps_of(2, 2), {}]
    copies = [*({name: 2} for name in COPIES[:4]), {"cl0_buffers": 1}]
    assert moved(before, "grad_input") == [*blocks, *shares, *slices, *copies, steps_of(2, 2)]
    # Three quarters of one side alone are no step either: 96 is nothing else near 128.
    for m, n in ((16, 128), (128, 16)):
        found = moved(fields(m, n, 16, (1, 1), (1,) * 5), "grad_weight")
        assert all(size > 0 for step in found for size in step.values())
        assert 96 not in [size for step in found for size in step.values()]


# --- Steps of our own nests, by wishes -------------------------------------------------------------------


class Room:
    """Legal cuts by a few plain rules, of a matrix of 96 columns on four cores.

    A block of m rows has room for two copies up to 64 of them, for one up to 128; L1 for `l1` slices in all.
    """

    schedule, group_merge = "dgrad", 2
    sizes = (range(16, 4097, 16), range(16, 97, 16), range(8, 513, 8))
    splits = range(1, 5)
    profile = SimpleNamespace(cores=SimpleNamespace(cube=4))
    gemm = SimpleNamespace(columns=96)

    def __init__(self, tasks=1, l1=64, cells=()):
        self.tasks, self.l1, self.cells = tasks, l1, cells

    def least(self, base):
        return Footprint(base.m, base.k, base.n, 2, 1)

    def ways(self, footprint):
        held = min(2, 128 // footprint.m)
        return (2, 2, held) if held else None

    def longest_k(self, k_split):
        return 256 // k_split

    def steps(self, base_k, k_split):
        del base_k, k_split
        return [(a, b) for a in (1, 2, 6) for b in (1, 3, 8)]

    def footprint(self, cut):
        a, b = (step * copies for step, copies in zip(cut.steps, cut.copies, strict=True))
        return Footprint(cut.base.m, cut.base.k, cut.base.n, 2, self.tasks) if a + b <= self.l1 else None

    def most_cores(self, tasks):
        return max(1, min(4, tasks))

    def grids(self, base):
        del base
        return self.cells


@pytest.fixture
def tilings(monkeypatch):
    """Make tilings of such a room."""

    def made(**options):
        monkeypatch.setattr(search, "space_of", lambda _: Room(**options))
        return Tilings(None)

    return made


def wish(m=32, n=16, k=32, split=1, a=64, b=96, copies=(1, 1, 1, 1, 1), grid=NO_GRID):
    return Wish(BaseSizes(m, n, k), split, a, b, copies, grid)


def test_sizes_are_even_cuts_up_to_what_l0_may_hold(tilings):
    rows, columns, slices = tilings().sizes
    # Of 4096 rows in whole fractals: all there are up to 1024, each the shortest that makes its parts.
    assert rows[-1] == 1024
    assert rows[:3] == (16, 32, 48)
    assert columns == (16, 32, 48, 96)
    assert slices[-3:] == (176, 256, 512)
    assert list(rows) == sorted(rows)


def test_the_nearest_plan_takes_the_longest_tiles_up_to_the_wish(tilings):
    # 64 and 96 of a reduction are 2 and 3 slices of 32; 8 are one, the least; 95 are 2, and 1 is known below.
    for a, b, steps in ((64, 96, (2, 3)), (63, 256, (1, 8)), (8, 95, (1, 1)), (999, 999, (6, 8))):
        found = tilings().plan(wish(a=a, b=b)).tiling
        assert (found.step_ka, found.step_kb) == steps
    # Where L1 has no room for those, the next by their product, and of equals that with less of the left.
    for l1, steps in ((14, (6, 8)), (13, (6, 3)), (9, (6, 3)), (8, (2, 3)), (3, (2, 1))):
        found = tilings(l1=l1).plan(wish(a=999, b=999)).tiling
        assert (found.step_ka, found.step_kb) == steps
    assert tilings(l1=1).plan(wish()) is None


def test_the_nearest_plan_has_all_other_fields_of_the_wish(tilings):
    found = tilings(tasks=9).plan(wish(m=96, k=48, split=2, a=96, b=48, copies=(2, 1, 2, 1, 2)))
    # Nine tasks take four cores three rounds, and three cores as many. L0C has room for one copy of 96 rows.
    assert found.schedule == "dgrad"
    assert found.tiling == Tiling(*(96, 16, 48, 2, 1, 2, 1, 2, 1, 1), k_split=2, used_cores=3, group_merge=2)
    assert [tilings(tasks=n).plan(wish()).tiling.used_cores for n in (0, 1, 4, 5, 8)] == [1, 1, 4, 3, 4]
    # A slice is no longer than the part of the reduction.
    assert tilings().plan(wish(k=512, split=2)).tiling.base_k == 128


@pytest.mark.parametrize(
    "asked", [{"m": 24}, {"n": 112}, {"k": 4}, {"m": 144}, {"split": 5}, {"split": 0}], ids=str
)
def test_what_is_no_block_or_split_is_no_plan(tilings, asked):
    assert tilings().plan(wish(**asked)) is None


def test_the_cells_nearest_to_a_wish(tilings):
    def near(asked, *cells):
        found = tilings(cells=[CellGrid(*cell) for cell in cells]).plan(wish(grid=CellGrid(*asked)))
        return found and (found.tiling.pixel_dim, found.tiling.n_dim)

    # Itself before all others; then what busies more of the four cores; then more parts of columns.
    assert near((2, 2), (4, 0), (2, 2), (1, 4)) == (2, 2)
    assert near((2, 3), (2, 0), (2, 2)) == (2, 2)
    assert near((2, 2), (4, 0), (1, 4)) == (1, 4)
    # As many cells, or parts of the same pixels in no more columns.
    assert near((2, 2), (2, 3), (3, 2), (3, 0)) is None
    assert near((2, 2), (2, 0), (3, 2)) == (2, 0)
    assert near((0, 0), (2, 2)) == (0, 0)


def test_balanced_cells_are_beside_each_other_or_in_turns(tilings):
    # Four cores: parts of pixels times up to three of columns, or as many as there are cores, in blocks of
    # columns one after the other: 96 columns are three blocks of 32 and six of 16.
    cells = [
        CellGrid(*cell) for cell in ((4, 0), (2, 2), (1, 3), (1, 4), (4, 3), (4, 6), (4, 2), (2, 3), (3, 0))
    ]
    beside = [(4, 0), (2, 2), (1, 3)]
    for n, turns in ((32, (4, 3)), (16, (4, 6)), (80, (4, 2))):
        found = tilings(cells=cells).balanced(BaseSizes(16, n, 16))
        assert sorted(found) == sorted([*beside, turns])


def test_the_longest_block_leaves_room_for_the_copies(tilings):
    # Two copies of 64 rows, one of 128; sizes in whole fractals.
    assert [tilings().longest(wish(copies=(1, 1, 1, 1, c))).base.m for c in (1, 2)] == [128, 64]
    assert tilings().longest(wish(copies=(1, 1, 3, 1, 1))) == wish(copies=(1, 1, 3, 1, 1))
    # A slice of each operand in one copy is two slices.
    assert tilings(l1=1).longest(wish()) == wish()
    assert tilings(l1=2).longest(wish()).base.m == 128
    # No block is longer than 1024 rows, whatever L0 holds.
    endless = tilings()
    endless.space.ways = lambda _: (2, 2, 2)
    assert endless.longest(wish()).base.m == 1024


def test_sizes_near_one():
    sizes = (16, 32, 48, 64, 96, 128, 192)
    # Two even cuts on each side, twice and half, a unit more and less; each once.
    assert search._near(64, sizes, 16) == [32, 48, 96, 128, 80]
    assert search._near(16, sizes, 16) == [32, 48]
    assert search._near(24, sizes, 16) == [16, 32, 48, 40, 8]
    assert search._near(192, sizes, 8) == [96, 128, 384, 200, 184]


def test_every_wish_one_step_away():
    before = wish(32, 16, 32, 4, 64, 32, (2, 1, 2, 1, 1), CellGrid(2, 0))
    near = SimpleNamespace(
        sizes=((16, 32, 64), (16, 32), (16, 32, 64)),
        space=SimpleNamespace(sizes=(range(16, 65, 16), range(16, 33, 16), range(8, 65, 8))),
        balanced=lambda _: [CellGrid(4, 0)],
        longest=lambda cut: ("longest", cut),
    )
    m, n, k = (16, 64, 48), (32,), (16, 64, 40, 24)
    sides = [*((one, 16, 32) for one in m), *((32, one, 32) for one in n), *((32, 16, one) for one in k)]
    sides += [(one, other, 32) for one in m for other in n]
    rest = before.k_split, before.reduction_a, before.reduction_b, before.copies, before.grid
    want = [Wish(BaseSizes(*side), *rest) for side in sides]
    same = before.base
    want += [Wish(same, split, *rest[1:]) for split in (3, 5, 2, 8)]
    # Twice and half of either or both; and as good as the whole reduction.
    lengths = ((64, 64), (128, 32), (128, 64), (64, 16), (32, 32), (32, 16), (4096, 2048))
    want += [Wish(same, 4, a, b, *rest[3:]) for a, b in lengths]
    turned = ((1, 1, 2, 1, 1), (2, 2, 2, 1, 1), (2, 1, 1, 1, 1), (2, 1, 2, 2, 1), (2, 1, 2, 1, 2))
    want += [Wish(same, 4, 64, 32, copies, before.grid) for copies in turned]
    want.append(Wish(same, 4, 64, 32, before.copies, NO_GRID))
    for one in (32, 16):
        cut = Wish(BaseSizes(32, 16, one), 4, 64, 32, before.copies, CellGrid(4, 0))
        want += [cut, ("longest", cut)]
    want.append(Wish(same, 4, 128, 32, (1, 1, 2, 1, 1), before.grid))
    assert list(search._wishes(before, near)) == want
    # One part is the least, and a slice of one fractal; no cells, none to leave.
    least = wish(32, 16, 16, 1)
    # Half of one part and one less are one part.
    blocks = 3 + 1 + 4 + 3
    assert [one.k_split for one in list(search._wishes(least, near))[blocks:][:2]] == [1, 2]
    assert [one.reduction_a for one in list(search._wishes(least, near))[blocks:][:3]] == [64, 64, 64]
    evenly = list(search._evenly(least, near))
    assert [one.base.k for one in evenly[::2]] == [16, 16]
    assert [one.base.k for one in list(search._evenly(wish(k=72), near))[::2]] == [72, 32]
    assert [one.base.k for one in list(search._evenly(wish(k=8), near))[::2]] == [16, 16]


# --- The climb -------------------------------------------------------------------------------------------


class Tried(int):
    """A trial of a plan that is a number."""

    @property
    def plan(self):
        return int(self)


class Line:
    """A tuner whose plans are numbers: the nearer to 100, the better; `left` of them may be tried."""

    question = SimpleNamespace(seed=0)

    def __init__(self, left=1000, known=()):
        self.left, self.asked, self.trials = left, [], {one: Tried(one) for one in known}
        self.same = lambda plan: plan

    def score(self, trial):
        return abs(100 - trial)

    @property
    def best(self):
        return min(self.trials.values(), key=self.score, default=None)

    def try_all(self, plans, found_by, best):
        self.asked.append((found_by, plans, best))
        for plan in plans[: self.left]:
            self.left -= plan not in self.trials
            self.trials.setdefault(plan, Tried(plan))


def after(plan):
    """The thirty numbers that follow: three groups of at most twelve."""
    return list(range(plan + 1, plan + 31))


def test_a_climb_goes_on_from_the_best_of_each_group_until_none_of_all_is_better():
    tuner = Line()
    search._climb(tuner, after, Tried(0))
    # (where it stands, which group): the first and second twelve, then the last six, and so on.
    way = [(0, 0), (12, 1), (36, 2), (66, 0), (78, 1), (100, 2), (100, 0), (100, 1)]
    want = [("steps", after(at)[12 * group :][:12], 100 - at) for at, group in way]
    assert tuner.asked == want


def test_a_climb_ends_without_neighbours_or_trials():
    tuner = Line()
    search._climb(tuner, lambda _: [], Tried(0))
    assert tuner.asked == [("steps", [], 100)]
    spent = Line(left=0)
    search._climb(spent, after, Tried(0))
    assert spent.asked == []
    # Twelve neighbours are one group: looked at once where none is better.
    around = Line()
    search._climb(around, lambda plan: list(range(plan + 1, plan + 13)), Tried(100))
    assert around.asked == [("steps", list(range(101, 113)), 0)]


class Sampler:
    """Optuna, as far as a search asks for it: gives numbers in order, and keeps what it is told."""

    def __init__(self):
        self.given, self.told, self.levels = 0, [], []
        self.logging = SimpleNamespace(WARNING=3, set_verbosity=self.levels.append)
        self.samplers = SimpleNamespace(TPESampler=lambda seed: ("seed", seed))
        self.trial = SimpleNamespace(TrialState=SimpleNamespace(FAIL="failed"))

    def create_study(self, sampler):
        assert sampler == ("seed", 0)
        return self

    def ask(self):
        self.given += 1
        return self.given

    def tell(self, trial, value=None, state=None):
        self.told.append((trial, value if state is None else state))


@pytest.fixture
def sampler(monkeypatch):
    made = Sampler()
    monkeypatch.setitem(sys.modules, "optuna", made)
    # What a search asks of a plan, where it is a number.
    monkeypatch.setattr(search, "neighbours", lambda plan, _: [plan + 1])
    monkeypatch.setattr(search, "_told", lambda tuner, plan: None if plan is None else tuner.score(plan))
    return made


def test_draws_end_after_ten_batches_without_a_plan(sampler, monkeypatch):
    monkeypatch.setattr(search, "_drawn", lambda *_: None)
    tuner = Line(known=[99])
    search._draw(tuner, None)
    assert tuner.asked == [("optuna", [], 1)] * 10
    assert sampler.told == [(at, "failed") for at in range(1, 81)]
    # It says nothing of each trial.
    assert sampler.levels == [3]


def test_from_a_draw_that_is_better_the_climb_goes_on(sampler, monkeypatch):
    # 41 to 48, time and again: 48 is better than 47, and steps lead from there to 100, one by one.
    monkeypatch.setattr(search, "_drawn", lambda trial, _: 41 + (trial - 1) % 8)
    tuner = Line(known=[47])
    search._draw(tuner, None)
    own = list(range(41, 49))
    climb = [("steps", [plan], 101 - plan) for plan in range(49, 101)] + [("steps", [101], 0)]
    assert tuner.asked == [("optuna", own, 53), *climb, *[("optuna", own, 0)] * 10]
    assert sampler.told == [(at, 100 - own[(at - 1) % 8]) for at in range(1, 89)]


@pytest.mark.usefixtures("sampler")
def test_no_more_is_drawn_than_may_be_tried(monkeypatch):
    monkeypatch.setattr(search, "_drawn", lambda trial, _: 300 + trial)
    tuner = Line(left=11, known=[99])
    search._draw(tuner, None)
    assert [len(plans) for _, plans, _ in tuner.asked] == [8, 3]
    assert len(tuner.trials) == 12


# --- Trials ----------------------------------------------------------------------------------------------

PLANS = {name: Plan("wgrad", Tiling(16 * at, 16, 16)) for at, name in enumerate("abcdef", start=1)}
ANSWERS = {
    ("a", "warm"): {"planned_us": 50.0},
    ("a", "step"): {"planned_us": 60.0},
    ("c", "warm"): {"stopped": True},
    ("d", "warm"): {"reason": "L1 is short"},
    ("e", "warm"): {"planned_us": 100.0},
    ("e", "step"): {"planned_us": 70.0},
    ("f", "warm"): {"planned_us": 99.0},
    ("f", "step"): {"planned_us": 120.0},
}


class Answering:
    """An engine that knows the answers; without one nothing was left to ask for it."""

    def __init__(self):
        self.asked = []

    def answer(self, points, budget):
        del budget
        names = [
            next(name for name, plan in PLANS.items() if plan in point.tiling.values()) for point in points
        ]
        self.asked.append("".join(names))
        for name, point in zip(names, points, strict=True):
            told = ANSWERS.get((name, point.l2_start))
            yield (
                point,
                told and SimpleNamespace(**{"stopped": False, "reason": "", "planned_us": 0.0} | told),
            )


@pytest.mark.parametrize(("score", "second"), [("worst", "af"), ("mean", "aef")])
def test_a_plan_is_timed_as_far_as_it_matters(score, second):
    layer = ConvProblem((4, 64, 14, 14), (64, 64, 3, 3), padding=1)
    asked = TilingQuestion("a test", "910B2", layer, "grad_weight", trials=9, score=score)
    tuner = Tuner(asked, Answering(), Budget(), "float16")
    tuner.try_all([*PLANS.values(), PLANS["a"]], "steps", 100.0)
    # Of one that nothing was left for, that stopped or was refused, no second start is asked for; nor of one
    # that is as slow as the best, but for a mean.
    assert tuner.engine.asked == ["abcdef", second]
    times = {name: dict(tuner.trials[plan].times_us) for name, plan in PLANS.items() if plan in tuner.trials}
    slow = {"warm": 100.0} | ({"step": 70.0} if "e" in second else {})
    first = {"warm": 50.0, "step": 60.0}
    assert times == {"a": first, "c": {}, "d": {}, "e": slow, "f": {"warm": 99.0, "step": 120.0}}
    assert (tuner.trials[PLANS["c"]].above_us, tuner.stopped) == (100.0, 1)
    assert (tuner.trials[PLANS["d"]].reason, tuner.left) == ("L1 is short", 9 - 5)
    # What is known is not asked again, and no more than may be tried.
    tuner.try_all([PLANS["a"], PLANS["b"]], "steps", 100.0)
    assert tuner.engine.asked[2:] == ["b", ""]
    for plan in (Plan("wgrad", Tiling(16, 16 * at, 16)) for at in range(2, 9)):
        tuner.trials[plan] = Trial(plan, "steps", {})
    tuner.try_all([PLANS["b"]], "steps", 100.0)
    assert tuner.engine.asked[4:] == ["", ""]
    # What its bound says cannot be faster is no call.
    again = Tuner(asked, Answering(), Budget(), "float16")
    again.try_all([PLANS["a"]], "steps", again.least_us(PLANS["a"]))
    assert again.engine.asked == ["", ""]
    assert again.trials[PLANS["a"]].above_us == again.least_us(PLANS["a"])
