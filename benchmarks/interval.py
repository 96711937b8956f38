"""How long does an interval take?  Run with `python -m benchmarks interval`.

The main job on the five products, all in one process: the time of its intervals over the time of as many
estimates with a figure moved, which nothing is kept from. Target: 1.3 at most; and 20 s in one process, so
that two quiet cores need 10.
"""

from __future__ import annotations

from time import process_time
from typing import Any

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.profile import list_products
from ascendsim.studies.sweep import Sweep
from ascendsim.studies.uncertainty import interval_size, intervals

# The layer of the main job, batch 4.
LAYER = ConvProblem((4, 128, 28, 28), (128, 128, 3, 3), 1, 1)
AGAIN = 10


def _call(profile: Any, plans: Any) -> Any:
    return estimate(LAYER, product=profile, tiling=plans)


def main() -> None:
    """Print the seconds of all intervals, and their ratio to those of as many estimates."""
    names = [product.name for product in list_products()]
    sweeps = [Sweep.of(name, _call) for name in names]
    alone = 0.0
    for sweep in sweeps:
        begin = process_time()
        for step in range(AGAIN):
            sweep.timed({"sync.flag_cycles": 13 + step})
        alone += (process_time() - begin) / AGAIN * interval_size(load_profile(sweep.product))
    begin = process_time()
    intervals(sweeps)
    took = process_time() - begin
    print(f"intervals of {len(names)} products: {took:.1f} s, {took / alone:.2f} of as many estimates")
