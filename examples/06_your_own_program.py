"""A program of your own, without a convolution: its results, its cycles, and where these went.

A vector core reads rows of a matrix one after the other, doubles them and writes them. Its program is
appended instruction by instruction. What is long, or runs on many cores, is better written as a loop nest
(example 04).

Run it with `python examples/06_your_own_program.py`.
"""

import numpy as np

from ascendsim import load_profile
from ascendsim.functional import run_kernel
from ascendsim.instructions.vector import Add, CopyGmToUb, CopyUbToGm
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.places import Gm, GmTensor
from ascendsim.program.program import ProgramBuilder
from ascendsim.timing.kernel import measure_kernel
from ascendsim.timing.times import occupation

ROWS, COLUMNS = 1000, 512
X = GmTensor.of("x", (ROWS, COLUMNS), "float32")
Y = GmTensor.of("y", (ROWS, COLUMNS), "float32", "output")
ROW_BYTES = COLUMNS * 4
WHOLE = slice(0, COLUMNS)


def double_rows(profile):
    """Return the program of one vector core that doubles every row."""
    builder = ProgramBuilder(profile)
    # Two slots, used in turn: one row arrives while the other is doubled and leaves. Nobody writes a wait.
    rows = builder.ring("UB", ROW_BYTES, "row", 2)
    for row in range(ROWS):
        slot = rows.next()
        builder.add(CopyGmToUb(slot, Gm(X, (row, WHOLE)), ROW_BYTES, (COLUMNS,)))
        builder.add(Add(slot, slot, COLUMNS))
        builder.add(CopyUbToGm(Gm(Y, (row, WHOLE)), slot, ROW_BYTES))
    return builder.build()


if __name__ == "__main__":
    profile = load_profile("910B2")
    program = double_rows(profile)
    print(f"{len(program)} instructions in {program.buffer_bytes['UB']} bytes of UB")

    # Equal signatures promise programs of equal cost; here there is one core.
    work = CoreWork(Core("vector", 0), "rows", lambda: program)
    math = MathSettings(AccumulationModel.parse("exact:RNE"))  # how a cube would add; no cube works here
    kernel = Kernel("double", (Phase("all rows", (work,)),), {"x": X, "y": Y}, math)

    tensors = {"x": np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)}
    run_kernel(kernel, tensors)
    print("right:", np.array_equal(tensors["y"], 2 * tensors["x"]))

    cycles = {engine: measure_kernel(kernel, profile, engine=engine) for engine in ("compiled", "simpy")}
    print("cycles:", {engine: times.cycles for engine, times in cycles.items()})
    for pipe, spent in occupation(cycles["compiled"], work.core).items():
        print(f"{pipe}: busy {spent.busy}, waiting {dict(spent.waiting)}, idle {spent.idle}")
