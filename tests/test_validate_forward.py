"""Are measured convolutions, forward, compared with the transposed convolution whose grad_input they are?"""

import os
from pathlib import Path

import pytest

from ascendsim import ConvProblem, Tiling, estimate
from ascendsim.errors import DataError
from ascendsim.ops.plan import Plan
from ascendsim.profile import load_profile
from ascendsim.validate.kinds.forward import forward_problem, forward_us
from ascendsim.validate.run import compare_rows
from ascendsim.validate.schema import Row, read_rows
from tests.measured_samples import made
from tests.test_measured_rows import line, rows

B1 = load_profile("910B1")
PLAN = {"base_m": 48, "base_n": 32, "base_k": 48, "used_cores": 4, "batch_dim": 2, "n_dim": 2}


def test_a_convolution_is_the_grad_input_of_the_transposed_one():
    # 32 channels of 12 x 10 to 48: the transposed one goes from 48 to 32.
    problem = forward_problem(made("forward"))
    assert problem == ConvProblem((2, 48, 12, 10), (48, 32, 3, 3), 1, (1, 1, 1, 1), transposed=True)
    assert problem.grad_output == (2, 32, 12, 10)


def test_what_the_last_step_leaves_over_is_output_padding():
    # (12 + 2 - 3) / 2 = 5, rest 1; (10 + 2 - 3) / 2 = 4, rest 1. So 6 x 5 pixels.
    problem = forward_problem(made("forward", stride="2x2"))
    assert problem.input == (2, 48, 6, 5)
    assert problem.grad_output == (2, 32, 12, 10)


def test_a_kernel_larger_than_the_input_is_refused():
    with pytest.raises(DataError, match="give an input as large as the kernel"):
        forward_problem(made("forward", input_shape="2x32x12x10", weight_shape="48x32x3x13"))


def test_the_row_is_run_under_its_tiling():
    found = forward_us(made("forward", **PLAN), B1)
    problem = ConvProblem((2, 48, 12, 10), (48, 32, 3, 3), 1, 1, transposed=True)
    plan = Plan("dgrad", Tiling(48, 32, 48, used_cores=4, batch_dim=2, n_dim=2))
    result = estimate(
        problem, product=B1, output_mask=(True, False, False), tiling={"grad_input": plan}, l2_start="warm"
    )
    [kernel] = [kernel for kernel in result.kernels if kernel.name == "grad_input"]
    assert (found.value, found.note) == (kernel.time_us, "")
    assert "inferred" in forward_us(made("forward"), B1).note


def test_a_part_of_a_tiling_is_refused():
    with pytest.raises(DataError, match="base_k"):
        forward_us(made("forward", base_m=48, base_n=32), B1)


def test_a_published_tiling_becomes_columns():
    sizes = {"N": 4, "Cin": 128, "Hi": 8, "Wi": 48, "Cout": 1536, "Kh": 3, "Kw": 3, "Ho": 8, "Wo": 48}
    window = {"stride": [1, 1], "pad": [1, 1], "dilation": [1, 1], "groups": 1}
    counters = {"TMATMUL_pct": 50, "base": "128x48x256"}
    [row] = rows(
        line(
            *("pto-conv2d-0", "Conv2D fwd"),
            chip_variant="A3 (910_93, 24 cores used)",
            us=32.2,
            dtype="float16",
            sizes=sizes,
            window=window,
            counters=counters,
        )
    )
    assert (row.kernel, row.input_shape, row.weight_shape) == ("forward", (4, 128, 8, 48), (1536, 128, 3, 3))
    assert (row.base_m, row.base_k, row.base_n, row.step_ka, row.step_kb) == (128, 48, 256, 3, 3)
    assert (row.batch_dim, row.n_dim, row.used_cores) == (4, 6, 24)
    assert (row.m_us, row.mte1_us) == (16.1, None)


@pytest.mark.skipif("ASCENDSIM_DATA" not in os.environ, reason="no outside data")
def test_published_convolutions_are_met_within_15_percent_but_for_the_smallest(tmp_path):
    import measured_rows

    table = tmp_path / "rows.csv"
    assert measured_rows.main([str(Path(os.environ["ASCENDSIM_DATA"]) / "silicon.csv"), str(table)]) == 0
    own = [row for row in read_rows(table) if isinstance(row, Row) and row.kernel == "forward"]
    errors = [case.estimated / case.measured - 1 for case in compare_rows(own[:3]).cases]
    assert len(own) == 5
    # MTE1 of the smallest is busy for 1.8 times as long a slice as that of the others: not explained.
    assert -0.30 < errors[0] < -0.15
    assert all(abs(error) < 0.15 for error in errors[1:])
