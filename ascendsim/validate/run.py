"""Hold a table of measured cases against the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.resources import files
from itertools import combinations
from math import exp, log
from pathlib import Path
from typing import Any, NamedTuple

from ascendsim.errors import AscendSimError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.profile import Profile, load_profile
from ascendsim.validate.compare import CaseEstimate, MeasuredCase, bounds_of, quantile, rank_correlation
from ascendsim.validate.coverage import NOTHING, Coverage, coverage
from ascendsim.validate.kernels import bias_us, call_us, forward_us, gradient_us, matmul_us, transdata_us
from ascendsim.validate.primitives import ISSUE, copy_and_wait_us, instruction_cycles, stream_us
from ascendsim.validate.schema import CLASSES, PLAN, MeasuredRow, Unusable, read_rows

Overrides = tuple[tuple[str, Any], ...]

# What the model says of each kernel; instructions by themselves run under ISSUE.
RUNS: dict[str, Callable[[MeasuredRow, Profile], CaseEstimate]] = {
    **dict.fromkeys(("mmad", "vector", "move", "load"), instruction_cycles),
    "copy_and_wait": copy_and_wait_us,
    "stream": stream_us,
    "matmul": matmul_us,
    **dict.fromkeys(("grad_input", "grad_weight"), gradient_us),
    "forward": forward_us,
    "transdata": transdata_us,
    "grad_bias": bias_us,
    **dict.fromkeys(("grad_input_call", "grad_weight_call"), call_us),
}


@dataclass(frozen=True)
class Validation:
    """Everything that came of a table: comparisons, and what could not be compared with the reason.

    covered   what the whole table has of convolutions, whichever classes were asked for
    """

    cases: tuple[MeasuredCase, ...]
    unusable: tuple[Unusable, ...]
    covered: Coverage = NOTHING


@default_arithmetic
def compare_rows(
    rows: Sequence[MeasuredRow | Unusable],
    classes: Iterable[str] = CLASSES,
    progress: Callable[[str], None] = lambda _: None,
    overrides: Overrides = (),
    *,
    grid_from_row: bool = False,
) -> Validation:
    """Run every row of the asked classes; `progress` is called with the name of each before it begins.

    A row that cannot be read is reported if it is of an asked class, or of none. `overrides` replace figures
    of every product, by dotted path. `grid_from_row` gives gradients as many blocks as their rows say.
    """
    # A row whose kernel is not known has no class: every run reports it, since it may be a slip.
    wanted = {"", *classes}
    cases: list[MeasuredCase] = []
    unusable: list[Unusable] = []
    for row in rows:
        progress(row.id)
        if row.kind not in wanted:
            continue
        found = row if isinstance(row, Unusable) else compare(row, overrides, grid_from_row=grid_from_row)
        if isinstance(found, MeasuredCase):
            cases.append(found)
        else:
            unusable.append(found)
    return Validation(tuple(cases), tuple(unusable), coverage(rows))


@default_arithmetic
def compare(
    row: MeasuredRow, overrides: Overrides = (), *, grid_from_row: bool = False
) -> MeasuredCase | Unusable:
    """Return the measurement of a row beside its estimate, or why there is none."""
    run = RUNS[row.kernel]
    if grid_from_row and run is gradient_us:
        run = partial(gradient_us, grid_from_row=True)
    figures = (ISSUE, *overrides) if run is instruction_cycles else overrides
    try:
        estimate = run(row, _profile(row.variant, figures))
    # One row that does not fit its chip says nothing about the others.
    except AscendSimError as error:
        return Unusable(row.id, str(error), row.kind)
    counters = row.counters
    return MeasuredCase(
        row.id,
        row.kind,
        row.group,
        row.variant,
        row.unit,
        row.measured,
        estimate.value,
        row.source,
        row.role,
        row.quote,
        bounds_of(counters, estimate.busy),
        {pipe: (counters[pipe], estimate.busy[pipe]) for pipe in counters if pipe in estimate.busy},
        "; ".join(filter(None, (estimate.note, row.inferred))),
        row,
    )


# Loading takes longer than running one instruction, and the caches of plans and kernels go by the profile.
@lru_cache(maxsize=64)
def _profile(variant: str, overrides: Overrides) -> Profile:
    return load_profile(variant, overrides=dict(overrides))


# What a row says of its problem, in contrast to its tiling, its chip and its measurement.
PROBLEM = (
    *("variant", "kernel", "compute_dtype", "out_dtype", "l2_start", "m", "k", "n", "batch"),
    *("transpose_a", "transpose_b", "layout", "input_shape", "weight_shape", "stride", "padding"),
    *("dilation", "groups"),
)
TOP = 3


# Of two tilings that are near, one takes less than half as long again as the other, as measured.
NEAR = 1.5


class TilingPair(NamedTuple):
    """Two tilings of one problem, the faster one first, as measured.

    ids                  of their rows
    measured, estimated  how many times as long the second one takes
    """

    ids: tuple[str, str]
    measured: float
    estimated: float

    @property
    def near(self) -> bool:
        """Whether the measured times are near each other."""
        return self.measured < NEAR

    @property
    def right(self) -> bool:
        """Whether the model puts the two in the right order."""
        return self.estimated > 1

    @property
    @default_arithmetic
    def error(self) -> float:
        """The share by which the estimated ratio is off, whichever tiling is taken first."""
        return exp(abs(log(self.estimated / self.measured))) - 1


class Ranking(NamedTuple):
    """The tilings of one problem on one chip.

    problem     in words
    ids         rows, the fastest first as measured
    rank        Spearman's correlation of measured and estimated times (nan below 3 tilings)
    favourite   the row that the model takes for the fastest
    regret      measured time of the favourite over the least that was measured, less 1
    top3        share of the 3 fastest, as measured, that are among the 3 fastest as estimated; nan where all
                tilings are among the first 3 in any order
    compared    its pairs of tilings
    """

    problem: str
    ids: tuple[str, ...]
    rank: float
    favourite: str
    regret: float
    top3: float
    compared: tuple[TilingPair, ...]


class Noise(NamedTuple):
    """Errors of the estimated ratio of two tilings' times: median and 90th percentile.

    Of two tilings whose estimates are closer than `p90` the model does not say which is faster.

    pairs, right   pairs of tilings, and those that the model puts in the right order
    near           how many pairs are near each other (`NEAR`)
    """

    pairs: int
    right: int
    near: int
    median: float
    p90: float


@default_arithmetic
def rankings(cases: Sequence[MeasuredCase]) -> list[Ranking]:
    """Return the ranking of every problem that was measured under two tilings or more."""
    found: dict[Hashable, dict[Hashable, MeasuredCase]] = {}
    for case in cases:
        row = case.row
        # Rows that count one pipe are no whole kernels; without a tiling there is nothing to rank.
        if row is not None and not row.pipe and any(getattr(row, name) for name in PLAN):
            key = tuple(getattr(row, name) for name in PROBLEM)
            found.setdefault(key, {}).setdefault(tuple(getattr(row, name) for name in PLAN), case)
    return [_ranking(list(own.values())) for own in found.values() if len(own) > 1]


def _ranking(cases: Sequence[MeasuredCase]) -> Ranking:
    ordered = sorted(cases, key=lambda case: case.measured)
    # Of equal estimates the slowest first: a tuner may take it.
    estimated = sorted(cases, key=lambda case: (case.estimated, -case.measured))
    pairs = list(combinations(ordered, 2))
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
        tuple(
            TilingPair((one.id, other.id), other.measured / one.measured, other.estimated / one.estimated)
            for one, other in pairs
        ),
    )


def _words(row: MeasuredRow) -> str:
    if row.kernel == "matmul":
        return f"{row.m} x {row.k} x {row.n} {row.compute_dtype} on {row.variant}"
    shapes = ("x".join(map(str, shape)) for shape in (row.input_shape, row.weight_shape))
    return f"{row.kernel} of {' and '.join(shapes)} {row.compute_dtype} on {row.variant}"


@default_arithmetic
def ranking_noise(pairs: Sequence[TilingPair]) -> Noise | None:
    """Return the error of ratios of two tilings' times; None where there is no pair."""
    if not pairs:
        return None
    errors = sorted(pair.error for pair in pairs)
    right, near = (sum(getattr(pair, name) for pair in pairs) for name in ("right", "near"))
    return Noise(len(pairs), right, near, quantile(errors, 0.5), quantile(errors, 0.9))


@default_arithmetic
def quoted_rows() -> list[MeasuredRow | Unusable]:
    """Return the rows that the project quotes."""
    return read_rows(Path(str(files("ascendsim.validate") / "quoted.csv")))


@lru_cache(maxsize=1)
@default_arithmetic
def tuning_noise() -> Noise:
    """Return the error of ratios of two tilings' times, over all pairs that were measured.

    `tilings.json` has it of the table that the model was made with: tools/measured_coverage.py writes it.
    """
    text = (files("ascendsim.validate") / "tilings.json").read_text(encoding="utf-8")
    return Noise(**json.loads(text)["all"])


def noise_text(found: Sequence[Ranking]) -> str:
    """Return the file that `tuning_noise` reads: of all pairs, of near and of far ones."""
    kinds = {name: noise and noise._asdict() for name, noise in noise_by_distance(found)}
    return json.dumps(kinds, indent=1) + "\n"


@default_arithmetic
def noise_by_distance(found: Sequence[Ranking]) -> list[tuple[str, Noise | None]]:
    """Return the error of ratios over all pairs, over the near and over the far ones, by name."""
    pairs = [pair for ranking in found for pair in ranking.compared]
    near, far = ([pair for pair in pairs if pair.near is wanted] for wanted in (True, False))
    return [(name, ranking_noise(own)) for name, own in (("near", near), ("far", far), ("all", pairs))]
