"""Are the weights that grad_input multiplies those of `pack_weight`, which says where each belongs?"""

import numpy as np
import pytest

from ascendsim import ConvProblem
from ascendsim.numerics.compiled.gathered.threads import Threads
from ascendsim.ops.gradients.kernels import packed_kernels
from ascendsim.ops.lowering.layouts import pack_weight

PROBLEMS = (
    ConvProblem((1, 32, 9, 9), (48, 32, 3, 3)),
    ConvProblem((1, 12, 9, 9), (40, 6, 3, 2), groups=2),
    ConvProblem((1, 20, 9), (33, 20, 5)),
    ConvProblem((1, 17, 5, 6, 7), (19, 17, 2, 3, 1)),
    ConvProblem((1, 33, 9, 9), (33, 7, 3, 3), transposed=True),
    ConvProblem((1, 34, 5, 6, 7), (34, 3, 2, 1, 3), transposed=True, groups=2),
)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("c0", [8, 16])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_kernels_are_packed_as_the_layout_says(problem, c0, dtype):
    weight = np.random.default_rng(0).standard_normal(problem.weight).astype(dtype)
    want = pack_weight(weight.astype(np.float32), problem, c0, reduce_small=not problem.transposed, unit=1)
    for count in (1, 2):
        with Threads(count) as threads:
            made = packed_kernels(weight, problem, c0, threads)
        assert (made.shape, made.dtype) == (want.shape, want.dtype)
        assert made.tobytes() == want.tobytes()
