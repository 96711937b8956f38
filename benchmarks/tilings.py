"""How long do a thousand tilings take?  Run with `python -m benchmarks.tilings`, `--count 50` for fewer.

Legal tilings of both gradients of s3b1_3x3, batch 32, on 910B2, drawn with seed 0: one estimate for each
pair. The target is 15 s of processor time for 1,000 on one thread, 10 s the goal, where numpy's float32
matmul does 57 GMAC/s; fewer are scaled up. Beside it: what the choices of all ResNet-50 layers take, first
and again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from time import process_time

from ascendsim import ConvProblem, Tiling, estimate, legal_tilings, load_profile
from ascendsim.workloads import load_workload
from benchmarks.whole_calls import STATED_GMACS, numpy_gmacs

TARGET_SECONDS, GOAL_SECONDS, TARGET_COUNT = 15.0, 10.0, 1000
TARGET_CHOICES_SECONDS = 0.04
GRADIENTS = ("grad_input", "grad_weight")
SMALL_SIDE = 64
# What was chosen is remembered, so the first time is that of a fresh process.
CHOICES = """
from time import process_time
from ascendsim import ConvProblem, load_profile
from ascendsim.ops.tiling.choose import choose
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.workloads import load_workload
profile = load_profile("910B2")
problems = [ConvProblem(**layer.problem_options(1)) for layer in load_workload("resnet50").convolutions]
for _ in range(2):
    begin = process_time()
    for problem in problems:
        for gradient in ("grad_input", "grad_weight"):
            choose(PlanRequest(problem, gradient, "float16", profile))
    print(process_time() - begin)
"""


def layer_problem() -> ConvProblem:
    """Return the layer that the target is stated for."""
    [layer] = [layer for layer in load_workload("resnet50").convolutions if layer.name == "s3b1_3x3"]
    return ConvProblem(**layer.problem_options(32))


def small_share(tilings: list[Tiling]) -> float:
    """Return the share of tilings of which one side of the base block is short."""
    return sum(min(tiling.base_m, tiling.base_n) < SMALL_SIDE for tiling in tilings) / len(tilings)


def run(count: int) -> None:
    """Estimate so many pairs of tilings and print what they take."""
    problem, profile = layer_problem(), load_profile("910B2")
    scale = numpy_gmacs() / STATED_GMACS
    begin = process_time()
    drawn = {name: legal_tilings(problem, name, profile).sample(count, seed=0) for name in GRADIENTS}
    print(f"{process_time() - begin:6.2f} s to draw {count} tilings of each gradient")
    for name, tilings in drawn.items():
        print(f"{small_share(tilings):6.1%} of {name} have base_m or base_n below {SMALL_SIDE}")
    begin, told = process_time(), 0
    for number, pair in enumerate(zip(*drawn.values(), strict=True), 1):
        tiling = dict(zip(GRADIENTS, pair, strict=True))
        estimate(problem, product=profile, tiling=tiling, output_mask=(True, True, False))
        if 10 * number // count > told:
            told = 10 * number // count
            print(f"{number:6d} of {count} after {process_time() - begin:.1f} s", flush=True)
    seconds = (process_time() - begin) * TARGET_COUNT / count
    scaled = seconds * scale
    verdict = "" if scaled <= TARGET_SECONDS else "  MISSED"
    print(
        f"{seconds:6.1f} s of processor time for {TARGET_COUNT} pairs, {scaled:.1f} s at {STATED_GMACS:.0f} "
        f"GMAC/s (target {TARGET_SECONDS:.0f}, goal {GOAL_SECONDS:.0f}){verdict}"
    )
    made = subprocess.run([sys.executable, "-c", CHOICES], check=True, capture_output=True, text=True)
    first, again = (1e3 * scale * float(line) for line in made.stdout.split())
    target = 1e3 * TARGET_CHOICES_SECONDS
    print(
        f"{first:6.1f} ms scaled for the choices of all ResNet-50 layers (target {target:.0f}), "
        f"{again:.2f} ms when they are asked for again{'' if first <= target else '  MISSED'}"
    )


def main(words: list[str] | None = None) -> None:
    """Run with the options of the command line; none: the whole benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=TARGET_COUNT, help="pairs of tilings that are estimated")
    run(max(1, parser.parse_args(words or []).count))


if __name__ == "__main__":
    # One thread, as the targets are stated; the variable counts only before numpy starts its threads.
    if os.environ.get("OMP_NUM_THREADS") != "1":
        os.environ["OMP_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.tilings", *sys.argv[1:]])
    main(sys.argv[1:])
