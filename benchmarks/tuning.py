"""What does the study of tilings find?  Run with `python -m benchmarks.tuning [PRODUCT]`.

Every gradient of ResNet-50 at batch 32 but the first layer's grad_input, 45 kernels: the time under the usual
plans and under the best of 100, L2 warm, with the counts of the layers. And grad_input of s3b1_3x3 within 200
trials and 20 seconds of processors against this simulator's search (target 5 % less).
"""

from __future__ import annotations

import sys
from time import process_time

from ascendsim import ConvProblem
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.search import tune
from ascendsim.studies.tuning.tune import Tuner
from ascendsim.workloads import load_workload

BATCH, TRIALS, STARTS = 32, 100, ("warm",)


def tuned(product: str, layer: str, gradient: str, trials: int) -> tuple[float, float, float]:
    """Return microseconds of the usual plan, of the search's and of the best, of one gradient."""
    problem = ConvProblem(**load_workload("resnet50").layer(layer).problem_options(BATCH))
    asked = TilingQuestion(layer, product, problem, gradient, starts=STARTS, trials=trials)
    tuner = Tuner(asked, Engine(Store(), 1), Budget(), "float16")
    usual, best = tune(tuner)
    return tuner.score(usual), tuner.score(tuner.chosen("search")), tuner.score(best)


def main(product: str = "910B2") -> None:
    """Print a line for each kernel, the total, and the one kernel with a target of its own."""
    totals = [0.0, 0.0]
    for at, layer in enumerate(load_workload("resnet50").convolutions):
        for gradient in ("grad_input", "grad_weight"):
            if at == 0 and gradient == "grad_input":
                continue
            usual, _, best = tuned(product, layer.name, gradient, TRIALS)
            totals[0] += layer.count * usual
            totals[1] += layer.count * best
            saved = 100 * (1 - best / usual)
            print(f"{layer.name:12} {gradient:12} {usual:9.2f} -> {best:9.2f} us, {saved:5.1f} %", flush=True)
    usual, best = totals
    print(
        f"all 45 kernels on {product}: {usual:.0f} -> {best:.0f} us, "
        f"{100 * (1 - best / usual):.1f} % (target 3 %)"
    )
    begin = process_time()
    _, search, best = tuned(product, "s3b1_3x3", "grad_input", 200)
    spent = process_time() - begin
    saved = 100 * (1 - best / search)
    print(f"s3b1_3x3 grad_input: {saved:.1f} % below the search in {spent:.1f} s (target 5 %, 20 s)")


if __name__ == "__main__":
    main(*sys.argv[1:2])
