"""Does a row whose cells do not fit cost that row alone, and is it told what stood there?"""

import pytest

from ascendsim.validate.compare import Case
from ascendsim.validate.run import compare_rows
from tests.helpers.measured_samples import KINDS, made

WHOLE = "it must be a whole number from 1 to 2^40"
# Kind, column, what stands in it (None: nothing), words of the reason.
MALFORMED = [
    ("move", "kernel", None, "kernel is empty; it must be one of mmad, vector, move"),
    ("move", "kernel", "moove", "kernel is 'moove'; it must be one of mmad"),
    ("move", "variant", None, "variant is empty; it must be a text"),
    ("move", "variant", "graphics card", "unknown product 'graphics card'"),
    ("move", "bytes", None, "bytes is empty; it must be a whole number"),
    ("move", "bytes", 0, f"bytes is '0'; {WHOLE}"),
    ("move", "bytes", 10**400, "bytes is '1" + "0" * 39 + "...'; it must"),
    ("move", "bytes", "1_000", f"bytes is '1_000'; {WHOLE}"),
    ("move", "path", "GM_MARS", "910B1 has no path GM->MARS here"),
    ("move", "measured_cycles", None, "measured_cycles is empty; it must be a positive number up to 2^40"),
    ("move", "measured_cycles", -1.5, "measured_cycles is '-1.5'"),
    ("move", "measured_cycles", "nan", "measured_cycles is 'nan'"),
    ("move", "measured_cycles", "1e999", "measured_cycles is '1e999'"),
    ("move", "in_a_row", "true", "in_a_row is 'true'; it must be yes or no"),
    ("move", "role", "none", "role is 'none'; it must be one of fit, judge, report, skip"),
    ("load", "repeats", 2.5, "repeats is '2.5'"),
    ("load", "path", "UB_MARS", "has no path UB->MARS"),
    ("vector", "repeats", "True", "repeats is 'True'"),
    ("vector", "vector_kind", "sideways", "no figure for vector instructions of the kind sideways on 910B1"),
    ("mmad", "m", "a", "m is 'a'"),
    ("mmad", "k", None, "k is empty"),
    ("mmad", "compute_dtype", "int4", "operands of int4 are not multiplied on 910B1"),
    ("mmad", "compute_dtype", None, "compute_dtype is empty"),
    ("copy_and_wait", "bytes", "many", "bytes is 'many'"),
    ("stream", "bytes", None, "bytes is empty"),
    ("stream", "bytes", 1, "it copies 16777216 bytes of a working set of 1; 1 cores copy 32 bytes each"),
    ("stream", "moved_bytes", 8, "it copies 8 bytes of a working set"),
    ("stream", "bytes", 1 << 40, "549,755,813,888 elements; no chip's memory holds that"),
    ("stream", "cores", 0, "cores is '0'"),
    ("stream", "cores", 1000, "cores is 1000; 950DT_9582 has 64 that copy on GM_UB"),
    ("stream", "path", "L1_L0A", "path is 'L1_L0A'; a stream takes one of GM_L1, GM_UB, UB_GM"),
    ("stream", "tile_bytes", 10**6, "UB of 950DT_9582 holds"),
    ("matmul", "m", 0, "m is '0'"),
    ("matmul", "m", 10**9, "256,000,000,000 elements; no chip's memory"),
    ("matmul", "batch", 10**9, "no chip's memory"),
    ("matmul", "batch", "x", "batch is 'x'"),
    ("matmul", "blocks", -3, f"blocks is '-3'; {WHOLE}"),
    ("matmul", "m_us", -1, "m_us is '-1'; it must be a number from 0 to 2^40"),
    ("matmul", "m_us", "N/A", "m_us is 'N/A'"),
    ("matmul", "layout", "NHWC", "layout is 'NHWC'; it must be one of ND, NZ"),
    ("matmul", "l2_start", "hot", "l2_start is 'hot'; it must be one of warm, cold, handed"),
    ("matmul", "compute_dtype", "int4", "operands of int4 are not multiplied on 910B1"),
    ("plan", "base_m", 0, "base_m is '0'"),
    ("plan", "base_k", None, "base_k is empty; it must be given where base_m is"),
    ("plan", "used_cores", 25, "used_cores is 25, but 910B1 has 24 cores"),
    ("tiles", "tiles_on_core", 9, "tiles_on_core is 9; cores of such a run take 1 or 2"),
    ("tiles", "pipe", "MTE9", "pipe is 'MTE9'; it must be one of M, MTE1, MTE2, FIX"),
    ("grad_input", "input_shape", "2x32", "input"),
    ("grad_input", "input_shape", "2,32,12,10", "input_shape is '2,32,12,10'; it must be whole numbers with"),
    ("grad_input", "stride", "0x1", "stride"),
    ("grad_input", "padding", "-1x1", "padding is '-1x1'"),
    ("grad_input", "groups", 5, "groups"),
    ("grad_input", "input_shape", "999999999x32x12x10", "no chip's memory"),
    ("grad_weight", "weight_shape", None, "weight_shape is empty"),
    ("grad_weight", "compute_dtype", "int4", "operands of int4 are not convolved on 910B1"),
    ("transdata", "change", "NCHW->NZ", "change is 'NCHW->NZ'; it must be one of NCHW->NC1HWC0"),
    ("transdata", "change", None, "change is empty"),
    ("transdata", "c0", 0, "c0 is '0'"),
    ("transdata", "input_shape", "2x32x12", "the shape is (2, 32, 12); give 4 sizes"),
    ("transdata", "input_shape", "999999999x32x12x10", "no chip's memory"),
    ("transdata", "compute_dtype", "int4", "int4"),
    ("forward", "groups", 5, "groups"),
    ("grad_bias", "input_shape", "32x1000", "give that of grad_output, (N, C, ...)"),
    ("grad_bias", "input_shape", "999999999x32x12x10", "no chip's memory"),
    ("grad_input_call", "weight_shape", "", "weight_shape is empty; it must be"),
    ("grad_weight_call", "compute_dtype", "int8", "operands of int8 are not convolved"),
]


@pytest.mark.parametrize(
    ("kind", "column", "value", "reason"),
    MALFORMED,
    ids=[f"{kind}-{column}-{number}" for number, (kind, column, *_) in enumerate(MALFORMED)],
)
def test_a_malformed_row_says_what_was_got_and_the_next_is_compared(kind, column, value, reason):
    found = compare_rows([made(kind, **{column: value}), made("move", id="next")])
    assert [case.id for case in found.cases] == ["next"]
    ((name, told),) = [(row.id, row.reason) for row in found.unusable]
    assert name == "mine"
    assert reason in told


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_row_with_its_numbers_is_compared(kind):
    found = compare_rows([made(kind)])
    assert found.unusable == ()
    assert all(isinstance(case, Case) and case.estimated > 0 for case in found.cases)
    assert len(found.cases) == 1


def test_every_kind_has_a_malformed_row():
    assert {kind for kind, *_ in MALFORMED} == set(KINDS)


def test_a_first_generation_core_multiplies_no_single_precision():
    row = made("matmul", variant="910B_old_1001", compute_dtype="float32")
    (found,) = compare_rows([row]).unusable
    assert found.reason == "operands of float32 are not multiplied on 910B_old_1001"
