"""Counts of measured convolution kernels, by product, gradient, rank and format.

`coverage.json` holds the counts for the table that the model was made with, so that comparisons of products
can say what stands behind them where the table is not at hand; tools/measured_coverage.py writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import combinations
from math import exp, isfinite, log
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ascendsim.errors import DataError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.profile import list_products
from ascendsim.validate.compare import KernelIdentity, kernel_key, quantile, rank_correlation
from ascendsim.validate.schema import MeasuredRow, Unusable, read_lines

GRADIENTS = ("grad_input", "grad_weight")
# What a row of a whole call is called, and the gradient that the call makes.
CALLS = {"grad_input_call": "grad_input", "grad_weight_call": "grad_weight"}
RANKS = (2, 3)
DTYPES = ("float16", "bfloat16", "float32", "hf32")

Rows = Iterable[MeasuredRow | Unusable]


class Cell(NamedTuple):
    """The number of distinct kernels of a kind that were measured.

    product   of the variant that was measured: "910B"
    kernels   measured by themselves
    calls     known only as the sum of all kernels of a call
    """

    product: str
    gradient: str
    rank: int
    dtype: str
    kernels: int
    calls: int


class VariantPair(NamedTuple):
    """Two variants, how many problems were measured on both, and of how many the first took less time."""

    first: str
    second: str
    problems: int
    first_faster: int


class Coverage(NamedTuple):
    """All kinds of kernels, measured or not, and the pairs of variants that share a problem."""

    cells: tuple[Cell, ...]
    pairs: tuple[VariantPair, ...]


NOTHING = Coverage((), ())


def coverage(rows: Rows) -> Coverage:
    """Count the gradients of a table; every product, gradient, rank and format has a cell, most of them 0."""
    measured: dict[KernelIdentity, list[MeasuredRow]] = {}
    for row in rows:
        gradient = CALLS.get(row.kernel, row.kernel) if isinstance(row, MeasuredRow) else ""
        if isinstance(row, MeasuredRow) and gradient in GRADIENTS:
            measured.setdefault(kernel_key(row)._replace(gradient=gradient), []).append(row)
    product_of = _products()
    counts: dict[tuple[str, str, int, str], list[int]] = {
        (product, gradient, rank, dtype): [0, 0]
        for product in dict.fromkeys(product_of.values())
        for gradient in GRADIENTS
        for rank in RANKS
        for dtype in DTYPES
    }
    for kernel, own in measured.items():
        product, rank = product_of.get(kernel.variant, kernel.variant), len(kernel.weight_shape) - 2
        count = counts.setdefault((product, kernel.gradient, rank, kernel.compute_dtype), [0, 0])
        count[all(row.kernel in CALLS for row in own)] += 1
    cells = tuple(Cell(*key, kernels, calls) for key, (kernels, calls) in counts.items())
    return Coverage(cells, tuple(_pairs(measured)))


def _pairs(measured: Mapping[KernelIdentity, Sequence[MeasuredRow]]) -> Iterable[VariantPair]:
    """Yield the pairs of variants of different products on which the same problem was measured."""
    times: dict[str, dict[KernelIdentity, float]] = {}
    for kernel, rows in measured.items():
        problem = kernel._replace(variant="")
        times.setdefault(kernel.variant, {})[problem] = median(row.measured for row in rows)
    product_of, names = _products(), sorted(times)
    for at, first in enumerate(names):
        for second in names[at + 1 :]:
            both = times[first].keys() & times[second].keys()
            if both and product_of.get(first) != product_of.get(second):
                faster = sum(times[first][problem] < times[second][problem] for problem in both)
                yield VariantPair(first, second, len(both), faster)


def _products() -> dict[str, str]:
    """Return the product of each variant."""
    return {variant: product.name for product in list_products() for variant in product.variants}


@lru_cache(maxsize=1)
def known_coverage() -> Coverage:
    """Return the counts of the table that the model was made with."""
    text = (files("ascendsim.validate") / "coverage.json").read_text(encoding="utf-8")
    told = json.loads(text)
    return Coverage(
        tuple(Cell(**cell) for cell in told["cells"]), tuple(VariantPair(**pair) for pair in told["pairs"])
    )


def coverage_text(found: Coverage) -> str:
    """Return the file that `known_coverage` reads; kinds without a measurement are left out."""
    cells = [cell._asdict() for cell in found.cells if cell.kernels or cell.calls]
    return json.dumps({"cells": cells, "pairs": [pair._asdict() for pair in found.pairs]}, indent=1) + "\n"


def comparison_line(products: Sequence[str], *, short: bool = False) -> str:
    """Count the measured convolutions of some products, by name, and those that judge their order.

    short   without ranks, gradients and formats
    """
    known = known_coverage()
    names = list(dict.fromkeys(products))
    parts = [f"{product}: {_measured_of(product, known, short=short)}" for product in names]
    product_of = _products()
    pairs = [p for p in known.pairs if {product_of[p.first], product_of[p.second]} <= set(products)]
    if short:
        count = sum(pair.problems for pair in pairs)
        order = f"{count or 'no'} problem{'s' * (count != 1)} on two of them, all that judges their order"
        return f"Gradients measured in public: {', '.join(parts)}; {order}."
    order = "no problem was measured on two of them, so that nothing measured judges their order"
    if pairs:
        told = [
            f"{p.problems} problems on both {p.first} and {p.second} ({p.first_faster} of them faster on "
            f"{p.first})"
            for p in pairs
        ]
        order = "measured twice are " + ", ".join(told) + ", which is all that judges their order"
    return f"Convolution backward measured in public: {'; '.join(parts)}; {order}."


def _measured_of(product: str, known: Coverage, *, short: bool) -> str:
    own = [cell for cell in known.cells if cell.product == product]
    kernels = [(cell, cell.kernels) for cell in own if cell.kernels]
    calls = [(cell, cell.calls) for cell in own if cell.calls]
    told = [
        _counted(counts, what, short=short)
        for counts, what in ((kernels, "kernels"), (calls, "whole calls"))
        if counts
    ]
    return " and ".join(told) or "none"


def _counted(counts: Sequence[tuple[Cell, int]], what: str, *, short: bool) -> str:
    """Describe counts in words, with their ranks, gradients and formats."""
    count = sum(count for _, count in counts)
    if short:
        return f"{count} {what}"
    cells = [cell for cell, _ in counts]
    ranks = " and ".join(sorted({f"{cell.rank}-D" for cell in cells}))
    gradients = " and ".join(sorted({cell.gradient for cell in cells}))
    dtypes = ", ".join(sorted({cell.dtype for cell in cells}))
    return f"{count} {what} ({ranks} {gradients}, {dtypes})"


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
        """The model's signed error, as a share of the measured time."""
        return self.estimated_us / self.measured_us - 1


class MeasuredRanking(NamedTuple):
    """Plans ranked by what was measured, and what the model made of them.

    plans       the fastest first, as measured
    rank        Spearman's correlation of both times; nan below three plans
    favourite   the plan that the model takes for the fastest
    regret      measured time of the favourite over the least that was measured, less 1
    noise       90th percentile of the error of the estimated ratio of two plans' times; nan of one plan
    """

    plans: tuple[MeasuredPlan, ...]
    rank: float
    favourite: MeasuredPlan
    regret: float
    noise: float


@default_arithmetic
def measured_times(paths: Sequence[Path], gradient: str, count: int) -> list[float]:
    """Return the measured microseconds of `count` plans of one layer, in the order in which they ran.

    paths   profiles of msprof (op_summary.csv) or the framework (kernel_details.csv): one with the runs of
            all plans, one plan after the other and each equally often, or one for each plan

    Raises  DataError for a file that is no profile, lacks the operator, or has rows of several layers
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
    """Rank plans by measured time, beside the model's rank of them."""
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
        quantile(sorted(ratios), 0.9) if ratios else float("nan"),
    )
