"""What a user's own measurements say of the ranged figures of a product, and a product file that says it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.errors import AscendSimError, ConfigError, DataError, install_hint
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.profile import Profile, load_profile
from ascendsim.validate.row_fit import (
    SIDE,
    Advance,
    LeftOut,
    LinearModel,
    MovedFigures,
    Named,
    RowTimer,
    SpentError,
    fit_rows,
    leave_rows_out,
    log_estimate,
    moved_figures,
    settled,
)
from ascendsim.validate.schema import MeasuredRow, Unusable

if TYPE_CHECKING:
    from ascendsim.validate.row_fit import Array

# Columns that may differ between two measurements of one kernel.
REPEATED: dict[str, Any] = {
    "id": "",
    "source": "",
    "measured_us": 1.0,
    "inferred": "",
    "role": "judge",
    "group": "",
}
REPEATED |= dict.fromkeys(("m_us", "mte1_us", "mte2_us", "fix_us", "v_us", "mte3_us"))
TIMINGS = 20_000
# A row that is off by so much with all figures where they fit best shows that a mechanism is missing.
FAR = 0.2
# Of a row's time, by the whole range of a figure: a row that moves less does not depend on it.
MOVES = 0.01
AT_BOUND = 0.02  # widths of a range
NAMED = 3  # rows in a source
Moves = tuple[tuple[str, float], ...]


class SettledFigure(NamedTuple):
    """A number that rows settle, under its paths, with its range before and after.

    rows   (row, change of its logarithmic time over the range before), the largest first
    """

    paths: tuple[str, ...]
    before: float
    after: float
    range_before: tuple[float, float]
    range_after: tuple[float, float]
    rows: Moves


class CalibratedRow(NamedTuple):
    """A row with its errors, estimated / measured - 1, under the figures before and after the fit.

    left_out   under the figures that the other rows give
    figures    (path, change of the row's logarithmic time over the range before), the largest first
    """

    id: str
    kernel: str
    before: float
    after: float
    left_out: float
    figures: Moves


@dataclass(frozen=True)
class Calibration:
    """What rows say of the figures of a product.

    figures     those that rows settle
    unsettled   paths of those that move a row, but that the rows leave open
    unmoved     paths of those that move no row
    missing     what no figure in its range explains, in sentences
    scale       scatter of the logarithmic errors after the fit, of most rows
    timings     rows timed; `whole`: the budget was enough
    exact       each row was left out of a fit made anew, not of the last linear model
    """

    product: str
    figures: tuple[SettledFigure, ...]
    unsettled: tuple[str, ...]
    unmoved: tuple[str, ...]
    rows: tuple[CalibratedRow, ...]
    unusable: tuple[Unusable, ...]
    missing: tuple[str, ...]
    scale: float
    timings: int
    whole: bool
    exact: bool

    @default_arithmetic
    def error(self, which: str) -> float:
        """Return the median of the absolute errors "before", "after" or "left_out"."""
        return float(median(abs(getattr(row, which)) for row in self.rows))

    @default_arithmetic
    def mean_error(self, which: str) -> float:
        """Return the mean of the absolute logarithmic errors: of all rows, not the one in the middle."""
        return float(mean(abs(log(1 + getattr(row, which))) for row in self.rows))

    @property
    def carries_over(self) -> bool:
        """Whether rows are on average no further off by the figures that the others give than before."""
        return bool(self.figures) and self.mean_error("left_out") <= self.mean_error("before")


@default_arithmetic
def calibrate(
    rows: Sequence[MeasuredRow | Unusable],
    product: str | Path,
    *,
    timings: int = TIMINGS,
    workers: int | None = 1,
    advance: Advance = lambda *_: None,
) -> Calibration:
    """Fit the ranged figures of a product on its rows, and judge each row by a fit of the others.

    rows      as `read_msprof` or `read_rows` give them; those of other products are left out
    product   name of the product or variant, or path of its file
    timings   the most rows to time; where they are spent, the best so far counts
    workers   processes that time, as `estimate_many` takes them
    advance   is called with (number, of how many, what is timed)

    Raises   ConfigError where scipy is not installed or `timings` are too few for a first step, DataError
             where fewer than 2 rows can be estimated
    """
    try:
        import scipy.optimize  # noqa: F401
    except ImportError:
        hint = install_hint("calibrate")
        raise ConfigError(f"calibrate needs scipy, which is not installed; {hint}") from None
    profile = load_profile(product)
    own, unusable = _own(rows, product, profile)
    if len(own) < 2:
        reasons = "; ".join(sorted({f"{row.id}: {row.reason}" for row in unusable})[:NAMED])
        raise DataError(
            f"{len(own)} of {len(rows)} rows can be estimated on {profile.variant}, not 2 at least: {reasons}"
        )
    timer = RowTimer(own, product, moved_figures(profile), timings, workers, advance)
    targets = np.array([log(row.measured) for row, _ in own])
    try:
        model, whole = fit_rows(timer, targets, np.full(len(own), True))
    except SpentError:
        least = 2 * len(own) * (len(timer.figures) + 20)
        raise ConfigError(
            f"{timings} timings are too few: a first step of {len(own)} rows and {len(timer.figures)} "
            f"numbers takes {least} or so; allow more, or give fewer rows"
        ) from None
    return _told(timer, model, leave_rows_out(timer, targets, model), unusable, whole=whole)


def _own(
    rows: Sequence[MeasuredRow | Unusable], product: str | Path, profile: Profile
) -> tuple[list[Named], list[Unusable]]:
    """Return the rows of a product that can be estimated, and the others with the reason."""
    own, unusable = [], []
    for row in rows:
        if isinstance(row, Unusable):
            unusable.append(row)
            continue
        # A variant that a user's file makes goes by the file.
        name = product if row.variant == profile.variant else row.variant
        try:
            if load_profile(name).product == profile.product:
                log_estimate(row, name, product, ())
                own.append((row, name))
            else:
                unusable.append(Unusable(row.id, f"measured on {row.variant}", row.kind))
        except AscendSimError as error:
            unusable.append(Unusable(row.id, str(error), row.kind))
    return _distinct(own), unusable


def _distinct(rows: Sequence[Named]) -> list[Named]:
    """Return one row for each kernel, with the median of its measurements: one cannot be left out alone."""
    found: dict[Named, list[Named]] = {}
    for row, name in rows:
        found.setdefault((replace(row, **REPEATED, measured_cycles=1.0), name), []).append((row, name))
    made = []
    for own in found.values():
        middle = median(row.measured for row, _ in own)
        row, name = own[0]
        measured: dict[str, Any] = {f"measured_{row.unit}": middle}
        made.append((replace(row, **measured), name))
    return made


def _told(
    timer: RowTimer, model: LinearModel, others: LeftOut, unusable: Sequence[Unusable], *, whole: bool
) -> Calibration:
    """Put what was found into numbers for people."""
    count = len(model.errors)
    _, deviations, scale = model.solved(np.full(count, True))
    # The jackknife: as far as a figure differs when one row after the other is left out.
    deviations = np.maximum(deviations, ((count - 1) * np.var(others.shifts, axis=0)) ** 0.5)
    found, free = [], []
    unsettled: list[str] = []
    unmoved: list[str] = []
    ids = [row.id for row, _ in timer.rows]
    for j, figure in enumerate(timer.figures):
        after, ends = figure.at(model.at[j]), figure.around(model.at[j], SIDE * deviations[j])
        moves = _moves(ids, model.slopes[:, j])
        told = SettledFigure(figure.paths, figure.value, after, (figure.low, figure.high), ends, moves)
        if after != figure.value or settled(deviations[j]):
            found.append(told)
            free.append(j)
        else:
            (unsettled if moves else unmoved).extend(figure.paths)
    before = timer.now(np.zeros(len(timer.figures))) - timer.now(model.at) + model.errors
    paths = [figure.paths[0] for figure in timer.figures]
    offs = np.expm1(np.stack([before, model.errors, others.errors], axis=1)).tolist()
    return Calibration(
        load_profile(timer.product).variant,
        tuple(sorted(found, key=lambda figure: -sum(abs(move) for _, move in figure.rows))),
        tuple(unsettled),
        tuple(unmoved),
        tuple(
            CalibratedRow(row.id, row.kernel, earlier, now, left, _moves(paths, slopes))
            for (row, _), (earlier, now, left), slopes in zip(timer.rows, offs, model.slopes, strict=True)
        ),
        tuple(unusable),
        tuple(missing_mechanisms(timer.rows, timer.figures, model, free)),
        float(np.median(scale)),
        timer.timings,
        whole and others.whole,
        others.anew,
    )


def _moves(names: Sequence[str], slopes: Array) -> Moves:
    """Return the moves of more than `MOVES`, by name, the largest first."""
    told = [(name, move) for name, move in zip(names, slopes.tolist(), strict=True) if abs(move) >= MOVES]
    return tuple(sorted(told, key=lambda item: -abs(item[1])))


def missing_mechanisms(
    rows: Sequence[Named], figures: Sequence[MovedFigures], model: LinearModel, free: Sequence[int]
) -> Iterator[str]:
    """Yield sentences on rows that no figure explains: at a figure's bound, or out of reach of all together.

    free   figures that rows settle or have moved
    """
    kernels = np.array([row.kernel for row, _ in rows])
    for kernel in dict.fromkeys(kernels.tolist()):
        for sign, word in ((1, "slow"), (-1, "fast")):
            off = sign * model.errors
            far = (kernels == kernel) & (off > log(1 + FAR))
            # What each figure can still take off these rows, and what it could beyond either end.
            ways = -sign * model.slopes
            left = np.maximum(ways * (model.low - model.at), ways * (model.high - model.at)).sum(axis=1)
            for j in free:
                for end, bound, way in ((model.low, "lower", -1), (model.high, "upper", 1)):
                    held = far & (way * ways[:, j] > MOVES)
                    if held.any() and abs(model.at[j] - end[j]) < AT_BOUND:
                        figure = figures[j]
                        names = " and ".join(figure.paths)
                        yield (
                            f"{_rows_off(kernel, model.errors[held], word)} with {names} at its "
                            f"{bound} bound {figure.at(model.at[j]):g}: no figure in its range explains it"
                        )
            if (far & (left < off)).any():
                said = _rows_off(kernel, model.errors[far & (left < off)], word)
                yield f"{said}, further than all figures in their ranges move them: a mechanism is missing"


def _rows_off(kernel: str, errors: Array, word: str) -> str:
    are = "row is" if len(errors) == 1 else "rows are"
    return f"{len(errors)} {kernel} {are} {abs(exp(float(np.median(errors))) - 1):.0%} too {word}"


def calibrated_toml(found: Calibration, base: str, source: str, digest: str) -> str:
    """Return a product file on a base, with the figures that rows settle.

    source, digest   the file of the rows: its name and sha256
    """
    lines = [f"base = {json.dumps(base)}"]
    for figure in found.figures:
        first = ", ".join(name for name, _ in figure.rows[:NAMED])
        more = f" and {len(figure.rows) - NAMED} more" if len(figure.rows) > NAMED else ""
        # With the paths: figures of one source would be taken for one number.
        said = f"{source}, sha256 {digest}, rows {first}{more} for {' and '.join(figure.paths)}"
        low, high = figure.range_after
        lines += [
            f'{path} = {{ value = {figure.after}, range = [{low}, {high}], confidence = "measured", '
            f'source = {json.dumps(said)}, note = "moved by calibrate, {figure.before} before" }}'
            for path in figure.paths
        ]
    return "\n".join(lines) + "\n"
