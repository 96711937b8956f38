"""Are nests that share their steps those that cores of other sizes would have written themselves?"""

import pytest

from ascendsim import ConvProblem, Tiling, load_profile
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from tests.helpers.nests import plain

PROBLEM = ConvProblem((2, 48, 9, 10), (40, 48, 3, 3), 1, 1)
TILING = Tiling(base_m=32, base_n=32, base_k=32, used_cores=20)


@pytest.mark.parametrize("product", ["910B2", "910A"])
@pytest.mark.parametrize(("kind", "gemm"), [(Dgrad, DgradGemm), (Wgrad, WgradGemm)])
def test_cores_of_all_sizes_do_what_a_nest_of_their_own_says(kind, gemm, product):
    schedule = kind(gemm.of(PROBLEM, "float16"), TILING, load_profile(product))
    dealt = [tasks for tasks in schedule.dealt() if tasks]
    shared = [schedule.program(tasks) for tasks in dealt]
    alone = [kind(schedule.gemm, TILING, schedule.profile).program(tasks) for tasks in dealt]
    assert len({program.nest.slots_reserved[0].size_bytes for program in shared}) > 1
    # Where results go through UB their pieces follow from the sizes, so that each has steps of its own.
    assert (len({id(program.nest.code) for program in shared}) == 1) == (product == "910B2")
    assert [plain(program) for program in shared] == [plain(program) for program in alone]
    assert all(
        one in program.slots for program in shared for made in program.instructions for one in made.writes
    )
