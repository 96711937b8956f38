"""What a process pays before its first cycle: CPU seconds in fresh processes, and relative to `import numpy`.

Targets on a quiet core on which numpy takes 0.06 s: the package 0.15 s, --help 0.3 s, the doors 0.15 s, and a
compiled function that is kept on disk 0.045 s beyond numpy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from timeit import repeat

import numpy as np

from ascendsim.native import Native

RUNS = 9
HERE = str(Path(__file__).parent.parent)
NUMPY = "import numpy"
CODES = {
    "nothing": "pass",
    NUMPY: NUMPY,
    "import ascendsim": "import ascendsim",
    "ascendsim --help": "import sys; sys.argv = ['ascendsim', '--help']; import runpy; "
    "runpy.run_module('ascendsim', run_name='__main__')",
    "import of the doors": "from ascendsim import ConvProblem, estimate",
    "first estimate": "from ascendsim import ConvProblem as P, estimate\n"
    "estimate(P(input=(1, 16, 8, 8), weight=(16, 16, 3, 3), padding=1), product='910B2')",
    "numpy and a compiled call": "import numpy as np\n"
    "from benchmarks.start import ADD\nADD(*[np.arange(4)] * 4)",
}


def add_first(a, b, c, d):
    return a[0] + b[0] + c[0] + d[0]


ADD = Native((add_first,), ("int64[]",) * 4)


def seconds(code: str) -> float:
    """Return the least CPU seconds of a process that runs some code."""
    least = float("inf")
    for _ in range(RUNS):
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], cwd=HERE, stdout=subprocess.DEVNULL, check=True)
        after = getrusage(RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least


def main() -> None:
    """Print what each piece of code costs."""
    with tempfile.TemporaryDirectory() as folder:
        # As an installed package has them: a checkout may be told not to write compiled sources. The first of
        # the runs fills this folder, and that of machine code.
        os.environ |= {"PYTHONPYCACHEPREFIX": folder}
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        costs = {name: seconds(code) for name, code in CODES.items()}
    for name, cost in costs.items():
        print(f"{name:26} {cost:6.3f} s  {cost / costs[NUMPY]:5.2f} x numpy")
    arrays = [np.arange(4) for _ in range(4)]
    call = min(repeat(lambda: ADD(*arrays), number=2000, repeat=5)) / 2000
    print(f"a call with 4 arrays       {call * 1e6:6.2f} us")
