"""The rows whose licences let the project quote them."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.validate.ranking import Noise, ranking_noise, rankings
from ascendsim.validate.reading import Unusable, read_rows
from ascendsim.validate.run import compare_rows
from ascendsim.validate.schema import Row


@default_arithmetic
def quoted_rows() -> list[Row | Unusable]:
    """Return the rows that the project quotes."""
    return read_rows(Path(str(files("ascendsim.validate") / "quoted.csv")))


@lru_cache(maxsize=1)
@default_arithmetic
def tuning_noise() -> Noise:
    """Return how far ratios of two tilings' times are off, by the quoted problems with several tilings.

    Only tilings of several cores are taken: nobody tunes against a single one. It takes some seconds, once.
    """
    tuned = [row for row in quoted_rows() if isinstance(row, Row) and row.used_cores > 1]
    noise = ranking_noise(rankings(compare_rows(tuned).cases))
    # The quoted table is part of the package, and has such problems.
    assert noise is not None
    return noise
