"""How fast are estimates on the compiled engine?  Run with `python -m benchmarks.engine`.

Every figure is processor seconds of one thread in a process of its own, with the code compiled before. They
are scaled to a machine on which numpy's float32 matmul of a 128x64x128 tile does 57 GMAC/s, as the targets
are stated; the matmul is timed in the same run.

- all 23 ResNet-50 layers, both cube gradients, second pass in one process, four products, batches 1 and 256
- the same, batch 1, first pass in a fresh process with its imports; peak memory at batch 256
- ResNet-50 at batch 1024, and a 3-D layer (64->64, 3x3x3 on 128^3, batch 2)
- SimPy and the compiled engine on one layer: nanoseconds an instruction
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache

from benchmarks.whole_calls import STATED_GMACS, numpy_gmacs

NETWORK = """
from resource import RUSAGE_SELF, getrusage
from time import process_time
from ascendsim import ConvProblem, estimate
from ascendsim.workloads import load_workload
def run():
    for layer in load_workload("resnet50").convolutions:
        problem = ConvProblem(**layer.problem_options({batch}))
        estimate(problem, product={product!r}, output_mask=(True, True, False))
run()
first = process_time()
second = 0.0
if {twice}:
    run()
    second = process_time() - first
print(first, second, getrusage(RUSAGE_SELF).ru_maxrss // 1024)
"""
THREE_D = """
from time import process_time
from ascendsim import ConvProblem, estimate
problem = ConvProblem(input=(2, 64, 128, 128, 128), weight=(64, 64, 3, 3, 3), padding=1)
begin = process_time()
estimate(problem, product="910B2", output_mask=(True, True, False))
print(process_time() - begin)
"""
ENGINES = """
from time import process_time
from ascendsim import ConvProblem, estimate
problem = ConvProblem(input=(16, 3, 224, 224), weight=(64, 3, 7, 7), stride=2, padding=3)
for engine in ("simpy", "compiled", "compiled"):
    begin = process_time()
    made = estimate(problem, product="910B2", output_mask=(True, False, False), engine=engine)
    seconds = process_time() - begin
    print(seconds)
"""
# Product, target of the second pass at batch 1, target at batch 256.
PRODUCTS = (("910B2", 0.3, 1.2), ("950PR_9589", 0.3, 1.0), ("310P3", 0.3, 1.0), ("910A", 0.3, 1.0))
RUNS = 3


@cache
def compiled_sources() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for compiled sources, which the first process fills and which goes with this one."""
    return tempfile.TemporaryDirectory()


def shell(code: str) -> list[float]:
    """Run code in a process of its own and return the numbers that it prints."""
    # Sources are compiled, as an installed package has them: a checkout may be told not to write them.
    own = {
        "PYTHONPYCACHEPREFIX": compiled_sources().name,
        "PYTHONDONTWRITEBYTECODE": "",
        "OMP_NUM_THREADS": "1",
    }
    made = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=os.environ | own
    )
    return [float(word) for word in made.stdout.split()]


def network(product: str, batch: int, *, twice: bool = True) -> tuple[float, float, float]:
    """Return the least seconds of the first and second pass of several runs, and the peak MiB."""
    rows = [shell(NETWORK.format(product=product, batch=batch, twice=twice)) for _ in range(RUNS)]
    first, second, memory = (min(column) for column in zip(*rows, strict=True))
    return first, second, memory


def main() -> None:
    """Print one line for each question; the first call fills the cache of compiled code."""
    scale = numpy_gmacs() / STATED_GMACS
    print(f"machine: {scale:.2f} of the stated {STATED_GMACS:.0f} GMAC/s; seconds are scaled, (raw)")
    shell(THREE_D)

    def line(what: str, seconds: float, target: float) -> None:
        met = "" if seconds * scale <= target else "  MISSED"
        print(f"{what}: {seconds * scale:.2f} s ({seconds:.2f}), target {target}{met}", flush=True)

    for product, one, many in PRODUCTS:
        first, second, _ = network(product, 1)
        line(f"{product} batch 1, second pass", second, one)
        if product == "910B2":
            line(f"{product} batch 1, first pass with imports", first, 0.6)
        _, large, memory = network(product, 256)
        line(f"{product} batch 256, second pass", large, many)
        times = large / second
        print(f"{product} batch 256: {times:.1f} times batch 1 (target 4), {memory:.0f} MiB (target 120)")
    line("910B2 batch 1024", network("910B2", 1024, twice=False)[0], 5)
    line("910B2, 3-D layer", min(shell(THREE_D)[0] for _ in range(RUNS)), 5)
    simpy, _, compiled = shell(ENGINES)
    times = simpy / compiled
    print(f"first layer at batch 16: SimPy {simpy:.2f} s, compiled {compiled:.2f} s, {times:.0f} times")


if __name__ == "__main__":
    main()
