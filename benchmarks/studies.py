"""How fast is a study?  Run with `python -m benchmarks.studies [PRODUCT ...]`.

2,000 points on 910B2 and on 910_95: the 23 layers of ResNet-50 at batch 32, both gradients, the product's
plans, under many values of some figures and all three starts of L2. Targets on two quiet cores: 3 minutes,
300 MiB a process, 20 MiB of store; and a second run computes none.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

POINTS = 2000
STUDY = """
import sys
from itertools import count, islice, product
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from time import perf_counter
from ascendsim import ConvProblem
from ascendsim.studies.engine.point import Point
from ascendsim.studies.engine.run import Engine
from ascendsim.studies.engine.run import Store
from ascendsim.workloads import load_workload

def points():
    problems = [ConvProblem(**layer.problem_options(32)) for layer in load_workload("resnet50").convolutions]
    for at in count():
        changes = {"paths.GM_L1.bytes_per_cycle": 100 + at, "l2.capacity_bytes": (96 + at) << 20}
        for start, problem in product(("warm", "cold", "handed"), problems):
            yield Point(problem, sys.argv[2], changes, l2_start=start)

if __name__ == "__main__":
    begin = perf_counter()
    with Store(Path(sys.argv[1])) as store:
        made = Engine(store, 2).answer(list(islice(points(), POINTS)))
    failed = sum(bool(answer.reason) for _, answer in made)
    peak = max(getrusage(who).ru_maxrss for who in (RUSAGE_SELF, RUSAGE_CHILDREN)) / 1024
    spent = sum(sum(getrusage(who)[:2]) for who in (RUSAGE_SELF, RUSAGE_CHILDREN))
    print(perf_counter() - begin, spent, peak, made.computed, failed)
""".replace("POINTS", str(POINTS))


PRODUCTS = ("910B2", "910_95")


def main(products: Sequence[str] = PRODUCTS) -> None:
    """Run the study of each product twice."""
    for product in products:
        with tempfile.TemporaryDirectory() as folder:
            _study(product, Path(folder))


def _study(product: str, folder: Path) -> None:
    script, path = folder / "study.py", folder / "store.sqlite"
    script.write_text(STUDY)
    for run in ("first", "second"):
        words = [sys.executable, str(script), str(path), product]
        made = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
        seconds, spent, peak = map(float, made[:3])
        store = sum(file.stat().st_size for file in folder.glob("store.sqlite*")) / 2**20
        print(
            f"{product}, {run} run: {made[3]} of {POINTS} points computed, {made[4]} failed, {seconds:.0f} s "
            f"({spent:.0f} s of processors; target 180 s), {peak:.0f} MiB a process (target 300), "
            f"store {store:.1f} MiB (target 20)",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:] or PRODUCTS)
