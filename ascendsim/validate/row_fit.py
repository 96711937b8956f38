"""Bounded least squares of a product's ranged figures on measured rows.

Each row is an equation: log(estimated / measured) = 0, under the plan that the row has with the figures as
they are. A figure's unit is the width of its range. The model is linearised by finite steps, since its times
come in whole cycles; bounded linear least squares then say where the figures go, and the model itself says
whether that is better.

Two weights keep the fit from following noise. Each figure is held to its present value as if any value of
its range were as likely (`PRIOR`), so that one that no row settles stays. And a row counts the less the
further it is off: beyond two scales of the errors by its distance and not its square (Huber), and, from what
that finds, beyond five not at all (Tukey). It lacks a mechanism, for which no figure makes up. Instructions
by themselves and whole kernels have a scale each: the model knows the first ones far better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import ceil, floor, log, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.errors import AscendSimError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.parallel import in_order
from ascendsim.profile import Profile, load_profile
from ascendsim.profile.records import by_source
from ascendsim.profile.schema import Kind, node_at
from ascendsim.validate.kernels import call_us, forward_us, gradient_us, matmul_us
from ascendsim.validate.primitives import ISSUE, instruction_cycles
from ascendsim.validate.run import RUNS, Overrides
from ascendsim.validate.schema import MeasuredRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

Named = tuple[MeasuredRow, str | Path]  # a row, and the name of the product that it was measured on
Advance = Callable[[int, int, str], None]  # (number, of how many, what is timed)

# Weight of a figure's distance from its present value, against a row that is off by one scale: 1 over the
# variance of a value that lies anywhere in a range of width 1.
PRIOR = 12.0
# The errors of rows are taken to scatter by this at least, as repeated measurements of one kernel do.
LEAST_SCALE = 0.02
FURTHER, OUTLYING = 2.0, 5.0  # scales
NORMAL = 1.4826  # standard deviations in a median of absolute errors
TURNS = 12  # of scale, weights and figures about each other
# Steps of the differences, in widths of a range: first across kinks and whole cycles, then nearer.
STEPS = (0.25, 0.1, 0.1)
# A range reaches so many standard deviations to each side; less than this share of it settles a figure.
SIDE, SETTLED = 2.0, 0.9
# Rows up to which the whole fit is made anew without each of them; of more, its last linear model.
FEW_ROWS = 8


class MovedFigures(NamedTuple):
    """Figures that move as one, since they are one number under several paths; `whole`: integers."""

    paths: tuple[str, ...]
    value: float
    low: float
    high: float
    whole: bool

    @property
    def room(self) -> tuple[float, float]:
        """The shifts to both ends of the range, in widths of it."""
        width = self.high - self.low
        return (self.low - self.value) / width, (self.high - self.value) / width

    def at(self, shift: float) -> float:
        """Return the value at a shift: of four digits, so that what a file says is what was timed."""
        value = min(max(self.value + shift * (self.high - self.low), self.low), self.high)
        if not shift:
            return self.value
        return round(value) if self.whole else min(max(float(f"{value:.4g}"), self.low), self.high)

    def around(self, shift: float, side: float) -> tuple[float, float]:
        """Return the range about a shift, `side` widths to each side, no wider than the present one."""
        value, reach = self.at(shift), side * (self.high - self.low)
        low, high = max(value - reach, self.low), min(value + reach, self.high)
        if self.whole:
            return floor(low), ceil(high)
        return max(min(float(f"{low:.4g}"), value), self.low), min(
            max(float(f"{high:.4g}"), value), self.high
        )


def moved_figures(profile: Profile) -> tuple[MovedFigures, ...]:
    """Return the numbers of a product that have a range, with those together that are one number."""
    found: list[MovedFigures] = []
    for own in by_source(profile):
        path, figure = next(iter(own.items()))
        low, *_, high = figure.range or (0.0, 0.0)
        if isinstance(figure.value, int | float) and low != high:
            kind = node_at(tuple(path.split(".")))
            whole = isinstance(kind, Kind) and not kind.fits(float(figure.value))
            found.append(MovedFigures(tuple(own), figure.value, low, high, whole))
    return tuple(found)


# A point is timed for row after row.
@lru_cache(maxsize=16)
def _moved(name: str | Path, product: str | Path, overrides: Overrides, fixed: Overrides) -> Profile:
    """Return a profile with other figures; a variant that has a value of its own keeps it."""
    own, base = load_profile(name).figures, load_profile(product).figures
    kept = {path: value for path, value in overrides if path in own and own[path].value == base[path].value}
    return load_profile(name, overrides=kept | dict(fixed))


def log_estimate(row: MeasuredRow, name: str | Path, product: str | Path, overrides: Overrides) -> float:
    """Return the logarithm of a row's estimate with other figures, under the plan that it has without them.

    name       of what was measured; `product` is the one whose figures are replaced
    overrides  figures by dotted path
    Raises     AscendSimError if it cannot run, or figures contradict each other
    """
    run: Callable[..., Any] = RUNS[row.kernel]
    profile = _moved(name, product, overrides, (ISSUE,) if run is instruction_cycles else ())
    if run is gradient_us:
        run = partial(run, grid_from_row=True)
    if RUNS[row.kernel] in (matmul_us, gradient_us, forward_us, call_us):
        run = partial(run, planner=load_profile(name))
    return log(run(row, profile).value)


@default_arithmetic
def _times(rows: Sequence[Named], product: str | Path, task: tuple[Overrides, Sequence[int]]) -> list[float]:
    """Return the logarithms of the estimates of some rows; nan where figures contradict each other."""
    overrides, wanted = task
    found = []
    for index in wanted:
        try:
            found.append(log_estimate(*rows[index], product, overrides))
        except AscendSimError:
            found.append(nan)
    return found


class SpentError(Exception):
    """The budget of timings does not allow the next step."""


@dataclass
class RowTimer:
    """Times rows at points, which are shifts of all figures, each row at each point once.

    budget   timings allowed; `timings`: made
    """

    rows: Sequence[Named]
    product: str | Path
    figures: Sequence[MovedFigures]
    budget: int
    workers: int | None
    advance: Advance
    known: dict[Overrides, dict[int, float]] = field(default_factory=dict)
    timings: int = 0

    def now(self, shifts: Array) -> Array:
        """Return log(estimated) of all rows at one point."""
        return self([(shifts, range(len(self.rows)))], "a step")[0]

    def __call__(self, points: Sequence[tuple[Array, Iterable[int]]], name: str) -> list[Array]:
        """Return log(estimated) at points, of the wanted rows of each; the others are nan.

        Raises   SpentError where that takes more timings than are left
        """
        keys = [(self._overrides(shifts), list(wanted)) for shifts, wanted in points]
        new = [(key, [i for i in wanted if i not in self.known.get(key, {})]) for key, wanted in keys]
        tasks = [task for task in new if task[1]]
        count = sum(len(wanted) for _, wanted in tasks)
        if self.timings + count > self.budget:
            raise SpentError
        self.timings += count
        logs = in_order(
            partial(_times, self.rows, self.product),
            tasks,
            self.workers,
            lambda number: self.advance(number + 1, len(tasks), name),
        )
        for (key, wanted), made in zip(tasks, logs, strict=True):
            self.known.setdefault(key, {}).update(zip(wanted, made, strict=True))
        found = np.full((len(keys), len(self.rows)), nan)
        for row, (key, wanted) in zip(found, keys, strict=True):
            row[wanted] = [self.known[key][i] for i in wanted]
        return list(found)

    def _overrides(self, shifts: Array) -> Overrides:
        moved = ((figure, figure.at(shift)) for figure, shift in zip(self.figures, shifts, strict=True))
        return tuple(
            (path, value) for figure, value in moved if value != figure.value for path in figure.paths
        )


def _table(figure: MovedFigures) -> str:
    """Return the table of a product's file that figures stand in."""
    first, second, *_ = (*figure.paths[0].split("."), "")
    return f"{first}.{second}" if first in ("paths", "load3d", "links") else first


def _users(timer: RowTimer) -> dict[str, list[int]]:
    """Return the rows that figures of each table may move: what all at their ends do not move, none does."""
    tables = dict.fromkeys(map(_table, timer.figures))
    rows = range(len(timer.rows))
    points = [
        (np.array([figure.room[end] * (_table(figure) == table) for figure in timer.figures]), rows)
        for table in tables
        for end in (0, 1)
    ]
    now, ends = timer.now(np.zeros(len(timer.figures))), timer(points, "tables of figures")
    # "not equal" holds also of what cannot be timed.
    pairs = zip(tables, ends[::2], ends[1::2], strict=True)
    return {table: [i for i in rows if not low[i] == now[i] == high[i]] for table, low, high in pairs}


def _slopes(
    timer: RowTimer, at: Array, which: Sequence[int], users: Mapping[str, Sequence[int]], step: float
) -> Array:
    """Return (rows, figures of `which`): the change of a row's log time with a figure's shift, by both sides.

    Where one side contradicts other figures the other one counts; where both do, the figure moves nothing.
    """
    points = []
    for j in which:
        figure, (least, most) = timer.figures[j], timer.figures[j].room
        # A whole number moves by one at least.
        reach = max(step, min(1.0, 1 / (figure.high - figure.low)) if figure.whole else 0.0)
        for shift in (max(at[j] - reach, least), min(at[j] + reach, most)):
            point = at.copy()
            point[j] = shift
            points.append((point, users[_table(figure)]))
    now, logs = timer.now(at), timer(points, "figures one by one")
    columns = np.zeros((len(now), len(which)))
    for n, j in enumerate(which):
        (lower, lower_at), (higher, higher_at) = (
            (np.where(np.isnan(found), now, found), np.where(np.isnan(found), at[j], point[j]))
            for (point, _), found in zip(points[2 * n : 2 * n + 2], logs[2 * n : 2 * n + 2], strict=True)
        )
        np.divide(higher - lower, higher_at - lower_at, out=columns[:, n], where=higher_at > lower_at)
    return columns


@dataclass(frozen=True)
class LinearModel:
    """Errors of rows, log(estimated / measured), about a point: errors + slopes @ (shifts - at).

    at, low, high   (figures): shifts, and those to the ends of the ranges
    errors          (rows); `slopes`: (rows, figures); `alone`: (rows), whether it is an instruction by itself
    """

    at: Array
    errors: Array
    slopes: Array
    low: Array
    high: Array
    alone: Array

    def solved(self, mask: Array) -> tuple[Array, Array, Array]:
        """Return the shifts by the masked rows, their standard deviations, and each row's scale of errors.

        Scales, weights of rows and settled figures depend on the errors left: they are found in turns.
        """
        shifts, deviations = self.at, np.full(len(self.at), PRIOR**-0.5)
        errors, slopes, scale = self.errors[mask], self.slopes[mask], np.zeros(int(mask.sum()))
        for turn in range(TURNS):
            left = errors + slopes @ (shifts - self.at)
            # A fit of as many figures leaves less of its own rows than it would of others.
            used = min(float(np.sum(1 - deviations**2 * PRIOR)), len(left) - 1)
            more = NORMAL * (len(left) / (len(left) - used)) ** 0.5
            for kind in (self.alone[mask], ~self.alone[mask]):
                if kind.any():
                    scale[kind] = max(more * float(np.median(abs(left[kind]))), LEAST_SCALE)
            off = abs(left) / scale
            huber, tukey = (
                (FURTHER / np.maximum(off, FURTHER)) ** 0.5,
                np.maximum(1 - (off / OUTLYING) ** 2, 0),
            )
            # At first all figures are free: what they explain together must not look like scatter.
            first = turn < TURNS // 2
            weights = (huber if first else tukey) / scale
            rows = weights[:, None] * slopes
            deviations = np.diag(np.linalg.inv(rows.T @ rows + PRIOR * np.eye(len(shifts)))) ** 0.5
            shifts = self._least(rows, weights * (slopes @ self.at - errors), first | settled(deviations))
        return shifts, deviations, scale

    def _least(self, rows: Array, wanted: Array, free: Array) -> Array:
        """Return the bounded least squares of the free figures; the others stay where they were at first."""
        from scipy.optimize import lsq_linear

        shifts = np.zeros(len(self.at))
        if free.any():
            held = PRIOR**0.5 * np.eye(int(free.sum()))
            system = np.vstack([rows[:, free], held]), np.concatenate([wanted, np.zeros(len(held))])
            ends = self.low[free], self.high[free]
            shifts[free] = np.clip(lsq_linear(*system, ends, method="bvls").x, *ends)
        return shifts

    def distance(self, errors: Array, shifts: Array, scale: Array) -> float:
        """Return the sum that the fit makes small, for the errors of the model itself."""
        off = abs(errors) / scale
        far = np.where(off > FURTHER, FURTHER * (2 * off - FURTHER), off**2)
        return float(np.sum(far) + PRIOR * np.sum(shifts**2))


def settled(deviations: Array) -> Array:
    """Return of which figures the rows leave a smaller range."""
    return 2 * SIDE * deviations < SETTLED


def fit_rows(timer: RowTimer, targets: Array, mask: Array) -> tuple[LinearModel, bool]:
    """Return the linear model about the best point for the masked rows, and whether the budget was enough.

    targets  (rows): log(measured)
    Raises   SpentError where it was not for the first step
    """
    rooms = np.array([figure.room for figure in timer.figures])
    at, users = np.zeros(len(rooms)), _users(timer)
    slopes = _slopes(timer, at, range(len(rooms)), users, STEPS[0])
    alone = np.array([row.kind == "primitives" for row, _ in timer.rows])
    low, high = rooms.T
    model = LinearModel(at, timer.now(at) - targets, slopes, low, high, alone)
    try:
        for step in STEPS[1:]:
            shifts, deviations, scale = model.solved(mask)
            best = model.distance(model.errors[mask], model.at, scale)
            for part in (1.0, 0.5, 0.25):
                at = model.at + part * (shifts - model.at)
                errors = timer.now(at) - targets
                if model.distance(errors[mask], at, scale) < best:
                    break
            else:
                return model, True
            # About the new point; figures that no row settles have not moved.
            which, slopes = np.flatnonzero(settled(deviations)), model.slopes.copy()
            slopes[:, which] = _slopes(timer, at, which.tolist(), users, step)
            model = replace(model, at=at, errors=errors, slopes=slopes)
    except SpentError:
        return model, False
    return model, True


class LeftOut(NamedTuple):
    """What the other rows say of each row.

    shifts   (rows, figures) that they give; `errors`: (rows), of each row with them
    anew     each row was left out of a fit made anew, not of the last linear model
    whole    the budget was enough; else `errors` are those of the linear model
    """

    shifts: Array
    errors: Array
    anew: bool
    whole: bool


def leave_rows_out(timer: RowTimer, targets: Array, model: LinearModel) -> LeftOut:
    """Return, by row, the shifts that the other rows give, and the row's error with them.

    The others' fit is that of the last linear model, of few rows a new one; the error is what the simulator
    itself says, as far as the budget goes.
    """
    count = len(targets)
    masks = np.eye(count) == 0
    linear = shifts = np.array([model.solved(mask)[0] for mask in masks])
    try:
        if anew := count <= FEW_ROWS:
            fits = [fit_rows(timer, targets, mask) for mask in masks]
            if not all(whole for _, whole in fits):
                raise SpentError
            shifts = np.array([fit.at for fit, _ in fits])
        logs = timer([(shift, [i]) for i, shift in enumerate(shifts)], "rows left out")
    except SpentError:
        errors = model.errors + np.sum(model.slopes * (linear - model.at), axis=1)
        return LeftOut(linear, errors, anew=False, whole=False)
    return LeftOut(shifts, np.diag(logs) - targets, anew, whole=True)
