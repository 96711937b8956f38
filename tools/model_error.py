"""Work out the model's own error from measured rows that no figure was fitted on.

    python tools/model_error.py OUT TABLE...

TABLE is a table of measured cases as `tools/measured_rows.py` writes it. OUT is the data file of the package,
`ascendsim/studies/model_error.csv`: `OwnError` beside it says what its columns mean.

Of each class, rows whose id has an even digest are taken for the error, and the others show whether it holds.
Of very many rows of a class those with the least digests are timed, at most 25 of either half.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from math import ceil, log, sqrt
from pathlib import Path
from typing import NamedTuple

from ascendsim.errors import AscendSimError
from ascendsim.profile import load_profile
from ascendsim.studies.sweep import variables
from ascendsim.studies.uncertainty import OwnError, draws, nearest
from ascendsim.validate.run import RUNS
from ascendsim.validate.schema import MeasuredRow, read_rows

DRAWS = 32
MOST = 25
FEWEST = 5  # rows of a class from which its own error is taken; with fewer, that of the nearest class holds
HELD = 0.8


class Judged(NamedTuple):
    """A measured row beside its estimate, all as logarithms.

    ratio         of the measured time to the estimated one
    below, above  how far draws of all figures go below and above the estimate
    """

    ratio: float
    below: float
    above: float

    @property
    def score(self) -> float:
        """What the model's own error must be for the interval to reach the row."""
        reach = self.above if self.ratio > 0 else self.below
        return sqrt(max(self.ratio**2 - reach**2, 0.0))


def digest(row: MeasuredRow) -> int:
    """Return a number that only the row's id decides."""
    return int.from_bytes(sha256(row.id.encode()).digest()[:8], "big")


def kind_of(row: MeasuredRow) -> str:
    """Return the kind of kernel that a row is of; "" for one that no convolution backward has."""
    if row.kind == "layouts":
        return row.kind
    gradient = row.kernel.removesuffix("_call")
    if gradient in ("grad_input", "grad_weight"):
        return f"{gradient} {len(row.input_shape) - 2}-D"
    return ""


def unseen(rows: Iterable[object]) -> dict[tuple[str, str], list[MeasuredRow]]:
    """Return by family and kind the rows to time: whole kernels and calls that no figure was fitted on."""
    found = defaultdict(list)
    for row in rows:
        if isinstance(row, MeasuredRow) and row.role != "fit" and not row.pipe and (kind := kind_of(row)):
            found[load_profile(row.variant).npu_arch, kind].append(row)
    made = {}
    for name, own in sorted(found.items()):
        own.sort(key=digest)
        halves = [[row for row in own if digest(row) % 2 == part][:MOST] for part in (0, 1)]
        made[name] = halves[0] + halves[1]
    return made


def judged(rows: Sequence[MeasuredRow]) -> dict[str, Judged]:
    """Time rows as they are and under each draw of their product's figures; by id."""
    times = defaultdict[str, list[float]](list)
    measured = {row.id: row.measured for row in rows}
    variants = sorted({row.variant for row in rows})
    for variant in variants:
        own = [row for row in rows if row.variant == variant]
        # A draw at a time, so that its profile is loaded once for all rows.
        for values in [{}, *draws(variables(load_profile(variant)), DRAWS)]:
            profile = load_profile(variant, overrides=values)
            for row in own:
                if values and row.id not in times:
                    continue
                # A row that does not fit its chip says nothing; one that a draw refuses, nothing of the draw.
                with suppress(AscendSimError):
                    times[row.id].append(RUNS[row.kernel](row, profile).value)
        print(variant, len(own), file=sys.stderr, flush=True)
    return {
        name: Judged(log(measured[name] / own[0]), log(own[0] / min(own)), log(max(own) / own[0]))
        for name, own in times.items()
    }


def own_error(scores: Sequence[float]) -> float:
    """Return what a further score stays below with a chance of 80 %, by at least 5 scores.

    Between n scores in order a further one falls with equal chances into each of n + 1 gaps.
    """
    ordered = sorted(scores)
    place = min(HELD * (len(ordered) + 1) - 1, len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def lines(rows: Iterable[object]) -> list[OwnError]:
    """Return the lines of the data file: own errors by family and kind, and what the other rows say."""
    scores = {}
    for name, own in unseen(rows).items():
        found = judged(own)
        halves = [[row for row in own if row.id in found and digest(row) % 2 == part] for part in (0, 1)]
        scores[name] = tuple([found[row.id].score for row in half] for half in halves)
    return errors_of(scores)


def errors_of(scores: Mapping[tuple[str, str], tuple[Sequence[float], Sequence[float]]]) -> list[OwnError]:
    """Return own errors by the scores of both halves; kinds of few rows are judged by the nearest others."""
    made: dict[tuple[str, str], OwnError] = {}
    few = [name for name, (taken, _) in scores.items() if len(taken) < FEWEST]
    for name in [*(name for name in scores if name not in few), *few]:
        taken, others = scores[name]
        if name in few:
            error, taken, others = nearest(made, *name).error, (), (*taken, *others)
        else:
            # In thousandths, upwards, so that the row that decides it lies inside.
            error = ceil(1000 * own_error(taken)) / 1000
        made[name] = OwnError(*name, len(taken), error, len(others), sum(one <= error for one in others))
    return [made[name] for name in scores]


def main(words: Sequence[str]) -> int:
    """Write the data file."""
    if len(words) < 2:
        print("usage: python tools/model_error.py OUT TABLE...", file=sys.stderr)
        return 2
    out, *tables = map(Path, words)
    rows = [row for table in tables for row in read_rows(table)]
    with out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(OwnError._fields)
        writer.writerows(lines(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
