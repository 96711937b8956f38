"""Kernels in PTO's textual form: read from `.pto` files, run, timed.

Three kernels, written from descriptions of public ones: an addition that waits as its tiles ask for, one in
half under flags and addresses of its own on 20 cores, and a matrix product on 24 cube cores.

Run it with `python examples/12_kernels_of_pto.py`.
"""

from pathlib import Path

import numpy as np

from ascendsim import load_profile
from ascendsim.functional import run_kernel
from ascendsim.pto import read_pto
from ascendsim.timing.kernel import measure_kernel
from ascendsim.timing.times import occupation

KERNELS = Path(__file__).parent / "kernels"


def read(name, profile, blocks=1):
    """Return the kernel of a file beside this one."""
    return read_pto((KERNELS / f"{name}.pto").read_text(), profile, blocks=blocks)


def drawn(*shapes):
    """Return matrices of small whole numbers, whose sums are exact in any order."""
    rng = np.random.default_rng(0)
    return [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]


if __name__ == "__main__":
    profile = load_profile("910B2")
    for name, blocks in (("vadd", 1), ("add", 20), ("gemm", 24)):
        kernel = read(name, profile, blocks)
        [output] = [tensor.name for tensor in kernel.tensors.values() if tensor.role == "output"]
        given = [each for each in kernel.tensors if each != output]
        tensors = dict(zip(given, drawn(*[kernel.tensors[each].shape for each in given]), strict=True))
        run_kernel(kernel, tensors)
        x, y = (tensors[each] for each in given)
        right = np.array_equal(tensors[output], x @ y.T if name == "gemm" else x + y)
        times = measure_kernel(kernel, profile)
        busy = {pipe: spent.busy for pipe, spent in occupation(times, kernel.phases[0].work[0].core).items()}
        print(f"{name}: right: {right}; {times.cycles:,} cycles; core 0 busy: {busy}")
