"""Count which convolution kernels a table of measured cases has, and how far ratios of two tilings are off.

    python tools/measured_coverage.py TABLE

TABLE is what `validate --data` reads. Written are ascendsim/validate/coverage.json, by which `run` says what
stands behind comparisons, and ascendsim/validate/tilings.json, the margin of studies: counts and errors, no
times. It takes half a minute.
"""

import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from ascendsim.errors import DataError
from ascendsim.validate.coverage import coverage, coverage_text
from ascendsim.validate.run import compare_rows, noise_text, rankings
from ascendsim.validate.schema import PLAN, MeasuredRow, read_rows


def main(words: Sequence[str]) -> int:
    """Count one table."""
    if len(words) != 1:
        print("usage: python tools/measured_coverage.py TABLE", file=sys.stderr)
        return 2
    try:
        rows = read_rows(Path(words[0]))
    except DataError as error:
        print(error, file=sys.stderr)
        return 2
    found = coverage(rows)
    planned = [row for row in rows if isinstance(row, MeasuredRow) and any(getattr(row, at) for at in PLAN)]
    ranked = rankings(compare_rows([row for row in planned if not row.pipe]).cases)
    folder = Path(str(files("ascendsim.validate")))
    (folder / "coverage.json").write_text(coverage_text(found), encoding="utf-8")
    (folder / "tilings.json").write_text(noise_text(ranked), encoding="utf-8")
    pairs = sum(len(ranking.compared) for ranking in ranked)
    kernels = sum(cell.kernels + cell.calls for cell in found.cells)
    print(f"{kernels} kernels and whole calls; {pairs} pairs of tilings")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
