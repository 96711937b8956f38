"""In what does the cube compute, for every dtype, cubeMathType, product and rule set?"""

from itertools import product

import pytest

from ascendsim.rules import resolve
from tests.helpers.case_records import cube_math_rows
from tests.helpers.rules_calls import answer, changed, conv, tbc

REFUSED = (161002, "14")
# (product, dtype) -> compute dtype for cubeMathType 0, 1, 2, 3; None: refused at check 14. Transposed with
# grad_input alone, so that 8-bit calls are possible.
A2 = {
    "float32": ("float32", "hf32", "float16", "hf32"),
    "float16": ("float16",) * 4,
    "bfloat16": ("bfloat16", "bfloat16", "float16", "bfloat16"),
}
OLD = {"float32": (None, "float16", "float16", None), "float16": ("float16",) * 4}
EIGHT = {"hifloat8": ("hifloat8",) * 4}
SHIPPED = {"910_95": A2 | EIGHT, "910_93": A2, "910B": A2, "310P": OLD, "910": OLD}
NO_BF16_IN_FP16 = {"bfloat16": ("bfloat16", "bfloat16", None, "bfloat16")}
PAGE_000 = A2 | NO_BF16_IN_FP16
E4M3 = {"float8_e4m3fn": ("float8_e4m3fn",) * 4}
E5M2 = {"float8_e5m2": ("float8_e5m2",) * 4}
# Page 001 and 002: nothing but FLOAT with type 3.
PAGE_001 = A2 | {
    "float16": ("float16", "float16", "float16", None),
    "bfloat16": ("bfloat16", "bfloat16", None, None),
}
EXPECTED = {
    "shipped": SHIPPED,
    "documented": {
        "910_95": PAGE_000 | EIGHT | E4M3,
        "910_93": PAGE_000,
        "910B": PAGE_000,
        "310P": OLD,
        "910": OLD,
    },
    "documented-001": {"910B": PAGE_001, "310P": OLD, "910": OLD},
    "documented-002": {"910B": PAGE_001, "910_93": PAGE_001},
    "documented-004": {"910B": A2, "910": OLD},
    "hardware": {**SHIPPED, "910_95": A2 | EIGHT | E4M3 | E5M2},
}
ROWS = [
    (rules, name, dtype, cube_math_type, compute)
    for rules, products in EXPECTED.items()
    for name, dtypes in products.items()
    for dtype, row in dtypes.items()
    for cube_math_type, compute in enumerate(row)
]


@pytest.mark.parametrize(("rules", "name", "dtype", "cube_math_type", "compute"), ROWS)
def test_the_compute_dtype(rules, name, dtype, cube_math_type, compute):
    call = conv(
        (2, 4, 6, 7),
        (4, 6, 3, 3),
        groups=1,
        transposed=True,
        dtype=dtype,
        mask=(True, False, False),
        cube_math_type=cube_math_type,
    )
    if compute is None:
        assert answer(call, name, rules) == REFUSED
    else:
        decision = resolve(call, name, rules)
        assert (decision.compute_dtype, decision.promoted_dtype) == (compute, dtype)


def test_float32_on_310p_fails_inside_where_page_004_forgot_it():
    call = conv((2, 4, 6, 7), (6, 4, 3, 3), groups=1, cube_math_type=0)
    assert answer(call, "310P", "documented-004") == (561103, "31")
    assert answer(call, "910", "documented-004") == REFUSED


@pytest.mark.parametrize(
    ("cube_math_type", "status"), [(0, 0), (3, 0), (4, 161002), (5, 161002), (-1, 161002)]
)
@pytest.mark.parametrize("rules", EXPECTED)
def test_only_four_values_are_known(rules, cube_math_type, status):
    assert answer(conv(cube_math_type=cube_math_type), "910B", rules)[0] == status


@pytest.mark.parametrize(
    ("grad_output", "input", "weight", "promoted"),
    [
        ("float32", "float16", "float16", "float32"),
        ("float16", "bfloat16", "float16", "float32"),
        ("bfloat16", "float32", "bfloat16", "float32"),
        ("bfloat16", "bfloat16", "bfloat16", "bfloat16"),
    ],
)
@pytest.mark.parametrize("cube_math_type", range(4))
def test_promotion(grad_output, input, weight, promoted, cube_math_type):
    dtypes = {"grad_output": grad_output, "input": input, "weight": weight}
    gradients = {"grad_input": input, "grad_weight": weight, "grad_bias": grad_output}
    call = changed(
        conv((2, 4, 6, 7), (6, 4, 3, 3), groups=1, cube_math_type=cube_math_type),
        {f"{name}.dtype": dtype for name, dtype in (dtypes | gradients).items()},
    )
    decision = resolve(call, "910_95", "shipped")
    assert decision.promoted_dtype == promoted
    assert decision.compute_dtype == A2[promoted][cube_math_type]
    assert decision.dtypes == dtypes | gradients


def test_eight_bits_beside_another_format_are_float32_for_studies_only():
    call = changed(conv(dtype="float16"), {"input.dtype": "hifloat8", "grad_input.dtype": "hifloat8"})
    assert resolve(call, "910_95", "hardware").promoted_dtype == "float32"
    assert answer(call, "910_95", "documented") == (161002, "8")
    # The operator's intercept looks at calls that ask for a convolution; the rest has no common dtype.
    asked_for_nothing = changed(call, {"output_mask": (False, False, False)})
    assert answer(asked_for_nothing, "910_95", "shipped") == REFUSED


def test_the_operator_logs_options_that_do_nothing():
    assert resolve(conv(dtype="float16", cube_math_type=3), "910B", "shipped").warnings
    assert not resolve(conv(dtype="float16", cube_math_type=2), "910B", "shipped").warnings
    (warning,) = resolve(conv(dtype="bfloat16", cube_math_type=2), "910B", "shipped").warnings
    assert "computes in float16" in warning


TBC_003 = PAGE_001  # page 003 has the same table for conv_tbc


@pytest.mark.parametrize(("dtype", "cube_math_type"), list(product(TBC_003, range(4))))
@pytest.mark.parametrize("rules", ["documented", "shipped"])
def test_the_compute_dtype_of_conv_tbc(rules, dtype, cube_math_type):
    compute = (TBC_003 if rules == "documented" else A2)[dtype][cube_math_type]
    call = tbc(dtype=dtype, cube_math_type=cube_math_type)
    if compute is None:
        assert answer(call, "910B", rules) == (161002, "6")
    else:
        assert resolve(call, "910B", rules).compute_dtype == compute


def test_the_outside_table_agrees(data_dir):
    rows = cube_math_rows(data_dir)
    wrong = []
    for name, dtype, cube_math_type, status, compute in rows:
        call = conv(
            (2, 4, 6, 7),
            (4, 6, 3, 3),
            groups=1,
            transposed=True,
            dtype=dtype,
            mask=(True, False, False),
            cube_math_type=cube_math_type,
        )
        got = answer(call, name, "shipped")[0]
        if got != status or (not status and resolve(call, name, "shipped").compute_dtype != compute):
            wrong.append((name, dtype, cube_math_type, got))
    assert not wrong
    print(f"{len(rows)} rows of the outside table agree")
    assert len(rows) == 80  # 64 rows, of which 16 speak of two products
