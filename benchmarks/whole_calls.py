"""How fast are whole calls?  Run with `python -m benchmarks.whole_calls`.

Five questions, each with its target and the machine's own speed from the same run: numpy's float32 matmul of
a 128x64x128 tile on one thread (the targets are stated for 57 GMAC/s).

- the functional run of the main-job layer (128->128 3x3 @28, batch 4, float16), both cube gradients: 6 GMAC/s
- `estimate` of all 23 ResNet-50 layers, batch 1, grad_input and grad_weight, in a fresh process with its
  imports: 1.5 s
- `estimate` of ResNet-50's first layer at a batch of 256, both cube gradients, in a fresh process: 15 s and
  1 GiB. It is the largest call of the network: 7.7 million instructions, on cores that are all different
- `estimate_many` of the 23 layers on four products, 92 calls, in a fresh process with 1 and with 2 workers:
  the same answers, on two quiet cores in 0.7 of the time
- the peak memory of the main job's process, report included: 500 MiB
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from ascendsim import ConvProblem, convolution_backward

STATED_GMACS = 57.0
LAYER = ConvProblem(input=(4, 128, 28, 28), weight=(128, 128, 3, 3), padding=1)
ESTIMATES = """
from ascendsim import ConvProblem, estimate
from ascendsim.workloads import load_workload
for layer in load_workload("resnet50").convolutions:
    problem = ConvProblem(**layer.problem_options(1))
    estimate(problem, product="910B2", output_mask=(True, True, False))
"""
FIRST_LAYER = """
from resource import RUSAGE_SELF, getrusage
from time import process_time
from ascendsim import ConvProblem, estimate
problem = ConvProblem(input=(256, 3, 224, 224), weight=(64, 3, 7, 7), stride=2, padding=3)
estimate(problem, product="910B2", output_mask=(True, True, False))
print(process_time(), getrusage(RUSAGE_SELF).ru_maxrss // 1024)
"""
MANY = """
import sys
from ascendsim import ConvProblem, Item, estimate_many
from ascendsim.workloads import load_workload
if __name__ == "__main__":
    problems = [ConvProblem(**layer.problem_options(1)) for layer in load_workload("resnet50").convolutions]
    items = [
        Item(problem, product=product, output_mask=(True, True, False))
        for product in ("910B2", "910_9382", "950PR_9589", "310P3")
        for problem in problems
    ]
    print(sum(result.cycles for result in estimate_many(items, workers=int(sys.argv[1]))))
"""
PEAK = "import resource; print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)"


def numpy_gmacs(seconds: float = 0.5) -> float:
    """Return the best GMAC/s of numpy's float32 matmul on a 128x64x128 tile."""
    random = np.random.default_rng(0)
    a, b = random.random((128, 64), np.float32), random.random((64, 128), np.float32)
    out = np.empty((128, 128), np.float32)
    best, begin = 1.0, perf_counter()
    while perf_counter() - begin < seconds:
        start = perf_counter()
        for _ in range(20):
            np.matmul(a, b, out=out)
        best = min(best, (perf_counter() - start) / 20)
    return 128 * 64 * 128 / best / 1e9


def functional_gmacs() -> float:
    """Return the best GMAC/s of five functional runs of the main-job layer, end to end."""
    random = np.random.default_rng(0)
    shapes = (LAYER.grad_output, LAYER.input, LAYER.weight)
    tensors = [random.standard_normal(shape).astype(np.float16) for shape in shapes]
    best = float("inf")
    for _ in range(6):
        start = perf_counter()
        convolution_backward(*tensors, None, 1, 1, 1, False, 0, 1, (True, True, False), 0)
        best = min(best, perf_counter() - start)
    return 2 * LAYER.macs / best / 1e9


def estimates_seconds() -> float:
    """Return the shortest of three runs of the network's estimates, each in its own process."""
    best = float("inf")
    for _ in range(3):
        start = perf_counter()
        subprocess.run([sys.executable, "-c", ESTIMATES], check=True)
        best = min(best, perf_counter() - start)
    return best


def first_layer() -> tuple[float, int]:
    """Return processor seconds and peak MiB of the estimate of the first layer at a large batch."""
    made = subprocess.run([sys.executable, "-c", FIRST_LAYER], check=True, capture_output=True, text=True)
    seconds, mebibytes = made.stdout.split()
    return float(seconds), int(mebibytes)


def many_seconds(workers: int) -> tuple[float, float, str]:
    """Return seconds on the clock, those of all processors, and the cycles of 92 estimates."""
    # A file, since workers import the script that they are to work for.
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "many.py"
        script.write_text(MANY)
        before, start = os.times(), perf_counter()
        words = [sys.executable, str(script), str(workers)]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
        made = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
        seconds, after = perf_counter() - start, os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, spent, made.stdout.strip()


def main_job_mebibytes() -> int:
    """Return the peak memory of the main job's process."""
    with tempfile.TemporaryDirectory() as folder:
        job = [sys.executable, "-m", "ascendsim", "run", "s3b1_3x3", "--batch", "4", "--out", folder]
        code = (
            f"import subprocess, sys; subprocess.run({job!r}, check=True, stdout=subprocess.DEVNULL); {PEAK}"
        )
        return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)


def main() -> None:
    """Print one line for each question."""
    machine = numpy_gmacs()
    scale = machine / STATED_GMACS
    print(f"machine: numpy float32 matmul {machine:.1f} GMAC/s, {scale:.2f} of the stated {STATED_GMACS:.0f}")
    rate = functional_gmacs()
    print(f"functional run of the main-job layer: {rate:.1f} GMAC/s (target 6, scaled {6 * scale:.1f})")
    seconds = estimates_seconds()
    print(f"estimate of 23 layers, imports included: {seconds:.2f} s (target 1.5, scaled {1.5 / scale:.2f})")
    seconds, mebibytes = first_layer()
    print(
        f"estimate of the first layer at batch 256: {seconds:.1f} s (target 15, scaled {15 / scale:.1f}), "
        f"{mebibytes} MiB (target 1024)"
    )
    (one, spent_one, cycles), (two, spent_two, same) = many_seconds(1), many_seconds(2)
    assert cycles == same
    print(
        f"92 estimates, imports included: {one:.2f} s ({spent_one:.2f} s of processors) with 1 worker, "
        f"{two:.2f} s ({spent_two:.2f} s) with 2: {two / one:.2f} of the time (target 0.7)"
    )
    print(f"peak memory of the main job: {main_job_mebibytes()} MiB (target 500)")


if __name__ == "__main__":
    main()
