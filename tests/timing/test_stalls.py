"""Do products wait while V reads another tile out of L0C, and where does that cost nothing?"""

import pytest

from ascendsim import ConvProblem, MatmulProblem, Tiling, estimate, estimate_matmul
from ascendsim.cube.movers import StallCube
from ascendsim.profile import load_profile

SHARE = "paths.L0C_UB.m_stall_share"
# 128 x 128 tiles with 1024 of the reduction: 8 x 8 x 64 fractal products each, which MTE2 and MTE1 outrun.
TILING = {"base_m": 128, "base_n": 128, "base_k": 128, "step_ka": 8, "step_kb": 8, "used_cores": 1}


def stalls(kernel):
    """Instructions of a kernel that keep M still."""
    cores = [core for phase in kernel.timeline.phases for core in phase.cores]
    return sum(isinstance(one, StallCube) for core in cores for one in core.program.instructions)


def cycles(product, share, m, cl0_buffers):
    """Cycles of a product of m x 1024 x 128 on one core, and its instructions that keep M still."""
    profile = load_profile(product, overrides={SHARE: share})
    tiling = TILING | {"cl0_buffers": cl0_buffers}
    problem = MatmulProblem(m, 1024, 128, layout="NZ")
    kernel = estimate_matmul(problem, "float16", product=profile, tiling=Tiling(**tiling)).kernels[-1]
    return kernel.cycles, stalls(kernel)


@pytest.mark.parametrize("product", ["910A", "310P3"])
def test_every_tile_but_the_last_takes_its_share_of_the_reads_from_the_products(product):
    # A tile is 65536 bytes of float32. V reads the last one while M has nothing left to do.
    reads = 65536 // load_profile(product).paths["L0C_UB"].bytes_per_cycle
    without, none = cycles(product, 0, 512, 2)
    half, tiles = cycles(product, 0.5, 512, 2)
    assert (none, tiles) == (0, 4)
    assert half - without == 3 * reads // 2


def test_a_lone_tile_loses_nothing():
    assert cycles("910A", 0.5, 128, 2)[0] == cycles("910A", 0, 128, 2)[0]


def test_products_that_wait_for_l0c_to_be_read_lose_nothing_more():
    # With one tile in L0C no product begins before V has read all of it.
    assert cycles("910A", 1, 512, 1) == cycles("910A", 0, 512, 1)


def test_both_gradients_of_a_product_with_fixpipe_have_no_such_instruction():
    layer = ConvProblem(input=(2, 32, 14, 14), weight=(32, 32, 3, 3), padding=1)
    for kernel in estimate(layer, product="910B2", output_mask=(True, True, False)).kernels:
        assert stalls(kernel) == 0
