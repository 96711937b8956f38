"""Plans of one gradient as a device measured them, against the model's times of the same plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import exp, isfinite, log
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ascendsim.errors import DataError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.validate.compare import rank_correlation
from ascendsim.validate.schema import read_lines

# What the operators of a gradient are called, with 2-D or 3-D and a version around it.
OPERATORS = {"grad_input": "BackpropInput", "grad_weight": "BackpropFilter"}
TYPES, DURATIONS = ("OP Type", "Type"), ("Task Duration(us)", "Duration(us)")
STARTED, SHAPES = "Task Start Time(us)", ("Input Shapes", "Output Shapes")


class MeasuredPlan(NamedTuple):
    """One plan: its file, microseconds as measured (the median of its runs) and as the model has them."""

    name: str
    measured_us: float
    estimated_us: float

    @property
    @default_arithmetic
    def error(self) -> float:
        """The model's signed error, as a share of what was measured."""
        return self.estimated_us / self.measured_us - 1


class MeasuredRanking(NamedTuple):
    """Plans ranked by what was measured, and what the model made of them.

    plans       the fastest first, as measured
    rank        Spearman's correlation of both times; nan below three plans
    favourite   the plan that the model takes for the fastest
    regret      measured time of the favourite over the least that was measured, less 1
    noise       median error of the estimated ratio of two plans' times, over all pairs; nan of one plan
    """

    plans: tuple[MeasuredPlan, ...]
    rank: float
    favourite: MeasuredPlan
    regret: float
    noise: float


@default_arithmetic
def measured_times(paths: Sequence[Path], gradient: str, count: int) -> list[float]:
    """Return the measured microseconds of so many plans of one layer, in the order in which they ran.

    paths   profiles of msprof (op_summary.csv) or the framework (kernel_details.csv): one with the runs of
            all plans, one plan after the other and each equally often, or one for each plan

    Raises  DataError for a file that is no profile, has no such operator, or rows of several layers
    """
    if len(paths) == count > 1:
        return [median(_durations(path, gradient)) for path in paths]
    if len(paths) != 1:
        raise DataError(
            f"{len(paths)} profiles of {count} plans: give one with the runs of all of them, or one for each"
        )
    times = _durations(paths[0], gradient)
    each, rest = divmod(len(times), count)
    if rest or not each:
        raise DataError(
            f"{paths[0]}: has {len(times)} runs of {OPERATORS[gradient]} operators, no equal number "
            f"for each of {count} plans; profile every plan equally often, without other layers"
        )
    return [median(times[at * each : (at + 1) * each]) for at in range(count)]


def _durations(path: Path, gradient: str) -> list[float]:
    """Return the durations of the gradient's operator, in the order of their start."""
    columns, lines = read_lines(path, "--measured takes a profile")
    kind, time = (next((name for name in names if name in columns), "") for names in (TYPES, DURATIONS))
    if not kind or not time:
        lacking = " or ".join(TYPES if not kind else DURATIONS)
        raise DataError(
            f"{path}: has no column {lacking}; --measured takes op_summary.csv or kernel_details.csv"
        )
    rows = [line for line in lines if OPERATORS[gradient] in (line[kind] or "")]
    if not rows:
        raise DataError(f"{path}: has no operator {OPERATORS[gradient]}; profile runs of {gradient}")
    shapes = {tuple(row.get(name) for name in SHAPES) for row in rows}
    if len(shapes) > 1:
        raise DataError(f"{path}: its {gradient} is of {len(shapes)} layers; profile the one layer alone")
    if STARTED in columns:
        rows.sort(key=lambda row: _number(row, STARTED, path))
    return [_number(row, time, path, positive=True) for row in rows]


def _number(row: Mapping[str, Any], column: str, path: Path, *, positive: bool = False) -> float:
    try:
        value = float(row[column])
    except (TypeError, ValueError):
        value = float("nan")
    if not isfinite(value) or (positive and value <= 0):
        raise DataError(f"{path}: {column} is {row[column]!r}; it must be a number of microseconds")
    return value


@default_arithmetic
def ranked_anew(plans: Sequence[MeasuredPlan]) -> MeasuredRanking:
    """Rank plans by what was measured, and tell what the model made of them."""
    ordered = sorted(plans, key=lambda plan: plan.measured_us)
    # Of equal estimates the slowest: who follows the model may take it.
    favourite = min(plans, key=lambda plan: (plan.estimated_us, -plan.measured_us))
    ratios = [
        exp(abs(log(one.estimated_us / other.estimated_us * other.measured_us / one.measured_us))) - 1
        for one, other in combinations(plans, 2)
    ]
    return MeasuredRanking(
        tuple(ordered),
        rank_correlation([plan.measured_us for plan in plans], [plan.estimated_us for plan in plans]),
        favourite,
        favourite.measured_us / ordered[0].measured_us - 1,
        median(ratios) if ratios else float("nan"),
    )
