"""How many instructions a second does timing take?  Run with `python -m benchmarks.timing`.

The kernels are those of one ResNet-50 layer on all cores, once unfolded (every core by itself) and once
folded. The target is 150,000 instructions a second unfolded, with the programs at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import process_time
from typing import NamedTuple

from ascendsim import ConvProblem, estimate
from ascendsim.profile import load_profile
from ascendsim.program.kernel import CoreWork, Kernel
from ascendsim.timing.kernel import time_kernel

LAYER = ConvProblem(input=(256, 128, 28, 28), weight=(128, 128, 3, 3), padding=1)
TARGET_PER_SECOND = 150_000


class Row(NamedTuple):
    """One measured kernel."""

    kernel: str
    instructions: int
    unfolded_seconds: float
    with_building_seconds: float
    folded_with_building_seconds: float
    transfers_share: float


def best_of(runs: int, call: Callable[[], object]) -> float:
    """Return the shortest time of several runs: the others were disturbed."""
    times = []
    for _ in range(runs):
        begin = process_time()
        call()
        times.append(process_time() - begin)
    return min(times)


def built(kernel: Kernel) -> Kernel:
    """Return the kernel with all programs at hand."""

    def ready(work: CoreWork) -> CoreWork:
        program = work.build()
        return work._replace(build=lambda: program)

    return replace(kernel, phases=tuple(p._replace(work=tuple(map(ready, p.work))) for p in kernel.phases))


def measure(kernel: Kernel, product: str = "910B") -> Row:
    """Time one kernel in three ways."""
    profile = load_profile(product)
    ready = built(kernel)
    instructions = [i for phase in ready.phases for work in phase.work for i in work.build().instructions]
    moving = sum(i.cost(profile).traffic is not None for i in instructions)
    return Row(
        kernel.name,
        len(instructions),
        best_of(3, lambda: time_kernel(ready, profile, folded=False)),
        best_of(1, lambda: time_kernel(kernel, profile, folded=False)),
        best_of(1, lambda: time_kernel(kernel, profile)),
        moving / len(instructions),
    )


def main() -> None:
    """Print one line per kernel."""
    for result in estimate(LAYER, product="910B", output_mask=(True, True, False)).kernels:
        row = measure(result.kernel)
        rate = row.instructions / row.unfolded_seconds
        print(
            f"{row.kernel:24} {row.instructions:8,} instructions ({row.transfers_share:4.0%} move bytes): "
            f"{rate:9,.0f} a second unfolded ({rate / TARGET_PER_SECOND:.1f} x target), "
            f"{row.instructions / row.with_building_seconds:9,.0f} with building, "
            f"{row.folded_with_building_seconds * 1e3:6.1f} ms folded with building"
        )


if __name__ == "__main__":
    main()
