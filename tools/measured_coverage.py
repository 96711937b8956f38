"""Count which convolution kernels a table of measured cases has, and write what `run` says of comparisons.

    python tools/measured_coverage.py TABLE

TABLE is what `validate --data` reads. Written is ascendsim/validate/coverage.json: counts, no times.
"""

import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from ascendsim.errors import DataError
from ascendsim.validate.coverage import coverage, coverage_text
from ascendsim.validate.schema import read_rows


def main(words: Sequence[str]) -> int:
    """Count one table."""
    if len(words) != 1:
        print("usage: python tools/measured_coverage.py TABLE", file=sys.stderr)
        return 2
    try:
        found = coverage(read_rows(Path(words[0])))
    except DataError as error:
        print(error, file=sys.stderr)
        return 2
    Path(str(files("ascendsim.validate") / "coverage.json")).write_text(
        coverage_text(found), encoding="utf-8"
    )
    print(f"{sum(cell.kernels + cell.calls for cell in found.cells)} kernels and whole calls")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
