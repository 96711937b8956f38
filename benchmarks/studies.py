"""How fast is a study?  Run with `python -m benchmarks.studies`.

2,000 points on 910B2: the 23 layers of ResNet-50 at batch 32, both gradients, the product's plans, under many
values of some figures and all three starts of L2. Targets on two quiet cores: 3 minutes, 300 MiB a process,
20 MiB of store; and a second run computes none.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
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
from ascendsim.studies.engine.store import Store
from ascendsim.workloads.loader import load_workload

def points():
    problems = [ConvProblem(**layer.problem_options(32)) for layer in load_workload("resnet50").layers]
    for at in count():
        changes = {"paths.GM_L1.bytes_per_cycle": 100 + at, "l2.capacity_bytes": (96 + at) << 20}
        for start, problem in product(("warm", "cold", "handed"), problems):
            yield Point(problem, "910B2", changes, l2_start=start)

if __name__ == "__main__":
    begin = perf_counter()
    with Store(Path(sys.argv[1])) as store:
        made = Engine(store, 2).answer(list(islice(points(), POINTS)))
    failed = sum(bool(answer.reason) for _, answer in made)
    peak = max(getrusage(who).ru_maxrss for who in (RUSAGE_SELF, RUSAGE_CHILDREN)) / 1024
    spent = sum(sum(getrusage(who)[:2]) for who in (RUSAGE_SELF, RUSAGE_CHILDREN))
    print(perf_counter() - begin, spent, peak, made.computed, failed)
""".replace("POINTS", str(POINTS))


def main() -> None:
    """Run the study twice."""
    with tempfile.TemporaryDirectory() as folder:
        script, path = Path(folder) / "study.py", Path(folder) / "store.sqlite"
        script.write_text(STUDY)
        for run in ("first", "second"):
            words = [sys.executable, str(script), str(path)]
            made = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
            seconds, spent, peak = map(float, made[:3])
            store = sum(file.stat().st_size for file in Path(folder).glob("store.sqlite*")) / 2**20
            print(
                f"{run} run: {made[3]} of {POINTS} points computed, {made[4]} failed, {seconds:.0f} s "
                f"({spent:.0f} s of processors; target 180 s), {peak:.0f} MiB a process (target 300), "
                f"store {store:.1f} MiB (target 20)"
            )


if __name__ == "__main__":
    main()
