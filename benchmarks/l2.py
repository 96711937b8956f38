"""How fast is the account of L2?  Run with `python -m benchmarks.l2`, or with a batch behind it.

All kernels of ResNet-50's 23 layers, both cube gradients, batch 256. The walk gets its transfers as lanes of
numbers, priced and numbered before. The target is 0.15 s for all of them; the slow definition in the tests
gives the ratio. Most of the benchmark's two minutes goes into building the programs.
"""

from __future__ import annotations

import gc
import sys
from typing import NamedTuple

from ascendsim import ConvProblem, estimate
from ascendsim.profile import Profile, load_profile
from ascendsim.program.kernel import Kernel
from ascendsim.timing.l2.account import account_of_lanes
from ascendsim.timing.l2.phase import lanes_of
from ascendsim.timing.times import CostBook
from ascendsim.workloads import load_workload
from benchmarks.timing import best_of
from tests.helpers import oracles_l2

TARGET_SECONDS = 0.15


class Row(NamedTuple):
    """One or several kernels: their phases and transfers, and seconds."""

    phases: int
    transfers: int
    seconds: float
    oracle_seconds: float


def measure(kernel: Kernel, profile: Profile) -> Row:
    """Measure the account of one kernel, and its slow definition once."""
    book = CostBook(profile)
    groups = [
        [(len(cores), book.price(work.build(), work.core.kind)) for work, cores in phase.folded()]
        for phase in kernel.phases
    ]
    lanes = [lanes_of(phase) for phase in groups]
    return Row(
        len(lanes),
        sum(len(lane.slices) for phase in lanes for lane in phase.lanes),
        best_of(5, lambda: account_of_lanes(lanes, kernel, profile, "warm")),
        best_of(1, lambda: oracles_l2.account_of(groups, kernel, profile, "warm")),
    )


def main(product: str = "910B2") -> None:
    """Print the largest kernel and the sum of all."""
    batch = int(sys.argv[1]) if sys.argv[1:] and sys.argv[1].isdecimal() else 256
    profile, rows = load_profile(product), []
    for layer in load_workload("resnet50").convolutions:
        problem = ConvProblem(**layer.problem_options(batch))
        results = estimate(problem, product=product, output_mask=(True, True, False)).kernels
        rows += [measure(result.kernel, profile) for result in results]
        # The programs of a layer are much, and refer to each other.
        gc.collect()
    for name, row in (
        ("the largest kernel", max(rows, key=lambda row: row.transfers)),
        ("all of them", Row(*map(sum, zip(*rows, strict=True)))),
    ):
        print(
            f"batch {batch}, {name:18}: {row.transfers:7,} transfers in {row.phases} phases, "
            f"{row.seconds * 1e3:7.2f} ms ({row.seconds / row.phases * 1e6:.0f} us a phase), "
            f"{row.oracle_seconds / row.seconds:.0f} times as fast as its definition"
        )
    print(f"target for all of them at batch 256: {TARGET_SECONDS * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
