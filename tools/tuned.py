"""Tune every gradient that training ResNet-50 runs, and hold each against the time below which no plan comes.

    python tools/tuned.py [--product 910B2] [--batch 32] [--tilings 100] [--jobs N] [--store FILE]

It writes reports/tuned.md. Some 4,500 calls, three minutes of one core; kept in FILE, so that a second run
goes on where the first ended.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ascendsim import ConvProblem, estimate
from ascendsim.ops.plan import Plan
from ascendsim.ops.tiling.legal_tilings import Bound, least_time
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.report.markdown import markdown_table
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.table import Table, text_table
from ascendsim.studies.tuning.records import TilingQuestion
from ascendsim.studies.tuning.search import tune
from ascendsim.studies.tuning.tune import Tuner, compute_dtype_of
from ascendsim.workloads import load_workload

PAGE = Path(__file__).parent.parent / "reports" / "tuned.md"
GRADIENTS = ("grad_input", "grad_weight")


class Tuned(NamedTuple):
    """One gradient of a layer: microseconds under the usual plan and the best, and what keeps it from less.

    count         how often the network has the layer
    busiest       the pipe that is busy longest under the best plan, and the part of the kernel's cycles
    """

    layer: str
    gradient: str
    count: int
    usual_us: float
    best_us: float
    bound: Bound
    busiest: tuple[str, float]
    plan: Plan

    @property
    def saved(self) -> float:
        """The part of the usual plan's time that the best saves."""
        return 1 - self.best_us / self.usual_us


def kernels(batch: int) -> Iterator[tuple[str, str, int, ConvProblem]]:
    """Yield (layer, gradient, count, convolution) of those that training asks for."""
    for layer in load_workload("resnet50").convolutions:
        for gradient, asked in zip(GRADIENTS, layer.mask[:2], strict=True):
            if asked:
                yield layer.name, gradient, layer.count, ConvProblem(**layer.problem_options(batch))


def tuned(product: str, kernel: tuple[str, str, int, ConvProblem], trials: int, engine: Engine) -> Tuned:
    """Tune one gradient, L2 warm, as `python -m benchmarks.tuning` does."""
    layer, gradient, count, problem = kernel
    asked = TilingQuestion(layer, product, problem, gradient, starts=("warm",), trials=trials)
    tuner = Tuner(asked, engine, Budget(), compute_dtype_of(asked))
    usual, best = tune(tuner)
    plans = {gradient: best.plan}
    made = estimate(problem, output_mask=asked.gradients, product=product, tiling=plans, l2_start="warm")
    [own] = (one for one in made.kernels if one.plan is not None)
    pipe = max(own.busy, key=lambda name: own.busy[name])
    bound = least_time(PlanRequest(problem, gradient, tuner.compute_dtype, tuner.profile))
    busiest = pipe, own.busy[pipe] / own.cycles
    times = tuner.score(usual), tuner.score(best)
    return Tuned(layer, gradient, count, *times, bound, busiest, best.plan)


def page(product: str, batch: int, trials: int, found: list[Tuned]) -> str:
    """Return the page: the totals, then every gradient."""
    kinds = {gradient: [one for one in found if one.gradient == gradient] for gradient in GRADIENTS}
    rows = tuple(_total(name, own) for name, own in {**kinds, "both": found}.items())
    headings = ("gradient", "product's plan us", "tuned us", "saved %", "bound us")
    head = HEAD.format(product=product, batch=batch, trials=trials, kernels=len(found))
    totals = markdown_table(text_table("", headings, frozenset({0}), rows))
    return "\n\n".join((head, totals, markdown_table(table(found)))) + "\n"


def _total(name: str, found: list[Tuned]) -> tuple[str, ...]:
    usual = sum(one.count * one.usual_us for one in found)
    best = sum(one.count * one.best_us for one in found)
    bound = sum(one.count * one.bound.time_us for one in found)
    return name, f"{usual:,.0f}", f"{best:,.0f}", f"{100 * (1 - best / usual):.1f}", f"{bound:,.0f}"


def table(found: list[Tuned]) -> Table:
    """Return a row for each gradient."""
    headings = (
        *("layer", "gradient", "times", "product's plan us", "tuned us", "saved %", "bound us", "bound by"),
        *("tuned / bound", "busiest pipe", "tuned plan"),
    )
    rows = tuple(
        (
            *(one.layer, one.gradient, str(one.count), f"{one.usual_us:.2f}", f"{one.best_us:.2f}"),
            *(f"{100 * one.saved:.1f}", f"{one.bound.time_us:.2f}", one.bound.pipe),
            *(f"{one.best_us / one.bound.time_us:.2f}", f"{one.busiest[0]} {100 * one.busiest[1]:.0f} %"),
            _said(one.plan),
        )
        for one in found
    )
    return text_table("", headings, frozenset({0, 1, 7, 9, 10}), rows)


def _said(plan: Plan) -> str:
    t = plan.tiling
    blocks = f"{t.base_m}x{t.base_k}x{t.base_n} on {t.used_cores}"
    split = f", k_split {t.k_split}" if t.k_split > 1 else ""
    return blocks + split + (f", pixel_dim {t.pixel_dim}" if t.pixel_dim else "")


HEAD = """\
# Tuned gradients of ResNet-50, and how far they are from a bound

Written by `tools/tuned.py`: the {kernels} gradients that training ResNet-50 at batch {batch} runs on a
{product}, L2 warm, under the plan of the product's operators and under the best of {trials} plans of
`ascendsim study tiling` ([how](../docs/studies.md#what-beats-the-usual-plan-of-a-gradient)); totals count
each layer as often as the network has it. Microseconds of the product and what comes of its plan, launches
included, without changes of layout.

The *bound* is the time below which no legal tiling comes (`legal_tilings.py`): for the best base block
that L0 holds, on the cores that serve best, the largest of four: the products on M; both operands of every
Mmad on MTE1; each operand once from L2, and the result once to L2, by all cores together. What keeps plans
from it is in none of the four: tiles of L1 that come again for the next block, rounds and fractals that are
not even, first tiles and the last, zeros and sums of parts. *Busiest* is the pipe that is busy longest under
the tuned plan, as a part of the kernel's cycles, the mean of the cores; of a plan m x k x n is the base
block."""


def main() -> None:
    """Tune all kernels and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--product", default="910B2")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tilings", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--store", type=Path)
    asked = parser.parse_args()
    with Store(asked.store) as store:
        engine = Engine(store, asked.jobs)
        found = [tuned(asked.product, kernel, asked.tilings, engine) for kernel in kernels(asked.batch)]
    PAGE.write_text(page(asked.product, asked.batch, asked.tilings, found), encoding="utf-8")


if __name__ == "__main__":
    main()
