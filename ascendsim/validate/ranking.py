"""Problems that were measured under several tilings, and whether the model puts these in the right order.

That is what a search of tilings lives on: an error that all tilings of a problem share does no harm to it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations
from math import exp, log
from typing import NamedTuple

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.validate.compare import Case, quantile, rank_correlation
from ascendsim.validate.schema import PLAN, Row

# What a row says of its problem, in contrast to its tiling, its chip and its measurement.
PROBLEM = (
    *("variant", "kernel", "compute_dtype", "out_dtype", "l2_start", "m", "k", "n", "batch"),
    *("transpose_a", "transpose_b", "layout", "input_shape", "weight_shape", "stride", "padding"),
    *("dilation", "groups"),
)
TOP = 3


class Ranking(NamedTuple):
    """The tilings of one problem on one chip.

    problem     in words
    ids         rows, the fastest first as measured
    rank        Spearman's correlation of measured and estimated times (nan below 3 tilings)
    favourite   the row that the model takes for the fastest
    regret      measured time of the favourite over the least that was measured, less 1
    top3        share of the 3 fastest, as measured, that are among the 3 fastest as estimated; nan where all
                tilings are among the first 3 in any order
    pairs       pairs of tilings, and those that the model puts in the right order
    noise       for each pair the error of the estimated ratio of the two times, as a share
    """

    problem: str
    ids: tuple[str, ...]
    rank: float
    favourite: str
    regret: float
    top3: float
    pairs: int
    pairs_right: int
    noise: tuple[float, ...]


class Noise(NamedTuple):
    """Errors of the estimated ratio of two tilings' times, over all pairs: median and 90th percentile.

    Two tilings whose estimates are closer than `median` are told apart no better than by a coin.
    """

    pairs: int
    median: float
    p90: float


@default_arithmetic
def rankings(cases: Sequence[Case]) -> list[Ranking]:
    """Return the ranking of every problem that was measured under two tilings or more."""
    found: dict[Hashable, dict[Hashable, Case]] = {}
    for case in cases:
        row = case.row
        # Rows that count one pipe are no whole kernels; without a tiling there is nothing to rank.
        if row is not None and not row.pipe and any(getattr(row, name) for name in PLAN):
            key = tuple(getattr(row, name) for name in PROBLEM)
            found.setdefault(key, {}).setdefault(tuple(getattr(row, name) for name in PLAN), case)
    return [_ranking(list(own.values())) for own in found.values() if len(own) > 1]


def _ranking(cases: Sequence[Case]) -> Ranking:
    ordered = sorted(cases, key=lambda case: case.measured)
    # Of equal estimates the slowest first: a tuner may take it.
    estimated = sorted(cases, key=lambda case: (case.estimated, -case.measured))
    pairs = list(combinations(ordered, 2))
    right = sum(one.estimated < other.estimated for one, other in pairs)
    first = {case.id for case in ordered[:TOP]}
    recall = len(first & {case.id for case in estimated[:TOP]}) / TOP
    row = ordered[0].row
    assert row is not None
    return Ranking(
        _words(row),
        tuple(case.id for case in ordered),
        rank_correlation([case.measured for case in ordered], [case.estimated for case in ordered]),
        estimated[0].id,
        estimated[0].measured / ordered[0].measured - 1,
        recall if len(ordered) > TOP else float("nan"),
        len(pairs),
        right,
        tuple(_ratio_error(one, other) for one, other in pairs),
    )


def _ratio_error(one: Case, other: Case) -> float:
    """Return by which share the estimated ratio of two times is off, whichever is taken first."""
    off = log(one.estimated / other.estimated) - log(one.measured / other.measured)
    return exp(abs(off)) - 1


def _words(row: Row) -> str:
    if row.kernel == "matmul":
        return f"{row.m} x {row.k} x {row.n} {row.compute_dtype} on {row.variant}"
    shapes = ("x".join(map(str, shape)) for shape in (row.input_shape, row.weight_shape))
    return f"{row.kernel} of {' and '.join(shapes)} {row.compute_dtype} on {row.variant}"


@default_arithmetic
def ranking_noise(found: Sequence[Ranking]) -> Noise | None:
    """Return how far ratios of two tilings' times are off; None where no problem has two tilings."""
    errors = sorted(error for ranking in found for error in ranking.noise)
    if not errors:
        return None
    return Noise(len(errors), quantile(errors, 0.5), quantile(errors, 0.9))
