"""Which plan do measured products get that walk the vendor's basic blocks?"""

import pytest

from ascendsim.ops.matmul import estimate_matmul
from ascendsim.ops.problems.matmul import MatmulGemm, MatmulProblem
from ascendsim.ops.tiling.vendor.matmul import basic_tiling
from ascendsim.profile import load_profile
from ascendsim.validate.kinds.counters import active_cycles

B4 = load_profile("910B4")  # 20 cores


def basic(problem, profile=B4, cores=None, dtype="float16"):
    return basic_tiling(MatmulGemm.of(problem, dtype), profile, cores)


def test_basic_blocks_fill_l0c_and_half_of_l0a_and_l0b():
    for dtype, itemsize in (("float16", 2), ("float32", 4)):
        plan = basic(MatmulProblem(4096, 1024, 4096), dtype=dtype)
        assert 4 * plan.base_m * plan.base_n == B4.buffers["L0C"].capacity_bytes
        assert 2 * plan.base_m * plan.base_k * itemsize == 32768
        assert 2 * plan.base_n * plan.base_k * itemsize == B4.buffers["L0B"].capacity_bytes
        assert (plan.step_ka, plan.step_kb, plan.cl0_buffers) == (4, 4, 1)


@pytest.mark.parametrize(
    ("m", "n", "taken"),
    [
        (5 * 128, 8 * 256, True),  # 40 blocks: two rounds of 20 cores
        (3 * 128, 13 * 256, False),  # 39
        (64, 80 * 256, False),  # flatter than a block
        (80 * 128, 128, False),  # narrower than a block
    ],
)
def test_few_or_flat_blocks_are_not_taken(m, n, taken):
    assert (basic(MatmulProblem(m, 256, n)) is not None) == taken


def test_fewer_cores_need_fewer_blocks():
    problem = MatmulProblem(4 * 128, 256, 8 * 256)
    assert basic(problem) is None
    assert basic(problem, cores=16).used_cores == 16


@pytest.mark.parametrize("variant", ["950PR_9589", "910A", "310P3"])
def test_other_cores_have_other_blocks(variant):
    assert basic(MatmulProblem(8192, 1024, 8192), load_profile(variant)) is None


def test_the_longer_side_is_walked_once():
    wide, tall = (basic(MatmulProblem(m, 256, n)) for m, n in ((2048, 8192), (8192, 2048)))
    assert (wide.panels, tall.panels) == ("columns", "rows")
    # Half the side of the square that 20 blocks of 128 x 256 make: 20 x 256 / 128 = 40 rows, or 10 columns.
    assert (wide.swizzle, tall.swizzle) == (2, 3)


def test_basic_blocks_keep_the_pipes_as_busy_as_was_counted():
    # 4096 x 1024 x 3072 in bfloat16 on 910B4: M 97.1, MTE1 82.6 us, means over the cores.
    plan = basic(MatmulProblem(4096, 1024, 3072))
    kernel = estimate_matmul(MatmulProblem(4096, 1024, 3072), "bfloat16", product=B4, tiling=plan).kernels[-1]
    busy = active_cycles(kernel.timeline)
    assert busy["M"] / 1650 == pytest.approx(97.1, rel=0.02)
    assert busy["MTE1"] / 1650 == pytest.approx(82.6, rel=0.03)
