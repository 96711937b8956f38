"""Which 8-bit calls pass, on the only product that has 8-bit formats?"""

from itertools import product

import pytest

from ascendsim.rules import resolve
from tests.helpers.rules_calls import answer, changed, conv

MASKS = list(product((False, True), repeat=3))


def eight(dtype="hifloat8", transposed=True, mask=(True, False, False)):
    weight = (4, 6, 3, 3) if transposed else (6, 4, 3, 3)
    return conv((2, 4, 6, 7), weight, groups=1, transposed=transposed, dtype=dtype, mask=mask)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["hifloat8", "float8_e4m3fn"])
def test_the_page_asks_for_transposed_and_grad_input(dtype, transposed, mask):
    call = eight(dtype, transposed, mask)
    if transposed and mask[0]:  # whatever else the mask asks for
        assert resolve(call, "910_95").compute_dtype == dtype
    else:
        assert answer(call, "910_95") == (161002, "8")


@pytest.mark.parametrize("name", ["910_93", "910B", "310P", "910"])
@pytest.mark.parametrize("rules", ["documented", "shipped", "hardware"])
def test_other_products_have_no_8_bits(name, rules):
    assert answer(eight(), name, rules) == (161002, "4")


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["hifloat8", "float8_e4m3fn", "float8_e5m2"])
def test_studies_take_every_gradient(dtype, transposed, mask):
    assert resolve(eight(dtype, transposed, mask), "910_95", "hardware").compute_dtype == dtype


def test_e5m2_is_for_studies_only():
    assert answer(eight("float8_e5m2"), "910_95", "documented") == (161002, "4")
    assert answer(eight("float8_e5m2"), "910_95", "shipped") == (161002, "4")


@pytest.mark.parametrize("mask", MASKS)
def test_the_operator_never_takes_e4m3fn(mask):
    # transposed: not in its list; not transposed: intercepted. With no gradient asked for nothing looks.
    assert answer(eight("float8_e4m3fn", True, mask), "910_95", "shipped") == (161002, "4")
    expected = (0, "") if not any(mask) else (561103, "30") if mask == (False, False, True) else (161002, "8")
    assert answer(eight("float8_e4m3fn", False, mask), "910_95", "shipped") == expected


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ((False, False, False), (0, "")),
        ((True, False, False), (0, "")),  # the usable combination
        ((False, False, True), (561103, "30")),  # no kernel sums into 8 bits
        ((True, False, True), (561103, "30")),
        ((False, True, False), (161002, "8")),
        ((True, True, False), (161002, "8")),  # grad_weight of hifloat8 must be float32
    ],
)
def test_the_operator_takes_grad_input_of_transposed_hifloat8(mask, expected):
    assert answer(eight(mask=mask), "910_95", "shipped") == expected


def test_grad_weight_of_hifloat8_passes_the_checks_and_finds_no_kernel():
    call = changed(eight(mask=(True, True, False)), {"grad_weight.dtype": "float32"})
    assert answer(call, "910_95", "shipped") == (561103, "31")
    # ... unless one of its own conditions fails first.
    spared = changed(call, {"stride": (2, 2), "output_padding": (1, 0), "grad_output.shape": (2, 6, 12, 13)})
    assert answer(spared, "910_95", "shipped") == (161002, "8")
    grouped = changed(call, {"groups": 2})
    assert answer(grouped, "910_95", "shipped") == (161002, "8")


def test_the_hole_in_the_intercept():
    # Not transposed, grad_weight null: the test for "transposed and output_mask[0]" is left out.
    call = changed(eight(transposed=False), {"grad_weight": None})
    assert answer(call, "910_95", "shipped") == (561103, "31")
    assert answer(eight(transposed=False), "910_95", "shipped") == (161002, "8")


@pytest.mark.parametrize(
    "partners",
    [("grad_output", "grad_bias"), ("input", "grad_input"), ("weight", "grad_weight")],
)
def test_the_operator_wants_one_8_bit_type_throughout(partners):
    # Each tensor with its gradient, so that the equality of outputs (checks 5 to 7) holds.
    call = changed(eight(), {f"{name}.dtype": "float16" for name in partners})
    assert answer(call, "910_95", "shipped") == (161002, "8")


def test_a_masked_null_grad_bias_is_not_looked_at():
    call = changed(eight(), {"grad_bias": None})
    assert answer(call, "910_95", "shipped") == (0, "")
    assert answer(call, "910_95", "documented") == (0, "")
