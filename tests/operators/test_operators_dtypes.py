"""Do formats, mixtures, output formats and masks come out as the rules and the cube say, on every product?"""

from itertools import product as every

import ml_dtypes
import numpy as np
import pytest

from ascendsim import ConvProblem, Tiling, convolution_backward
from ascendsim.errors import AclnnError
from ascendsim.numerics.formats.casts import encode, round_to
from ascendsim.numerics.formats.hifloat8 import HiFloat8Array
from tests.helpers.conv_cases import assert_same_bits
from tests.helpers.operator_calls import GRADIENTS, ApiCall, as_carrier, check_against_reference, gradients

SMALL = ConvProblem((2, 3, 5, 6), (4, 3, 3, 2), (2, 1), (1, 0))
ALL = (True, True, True)
F16, BF16, F32 = "float16", "bfloat16", "float32"


def names_of(result):
    return [None if g is None else g.dtype.name for g in gradients(result)]


# Promotion and cubeMathType


@pytest.mark.parametrize(
    ("dtypes", "cube_math_type", "product", "compute"),
    [
        ((F16, F16, F16), 0, "910B", "float16"),
        ((BF16, BF16, BF16), 0, "910_95", "bfloat16"),
        ((F32, F32, F32), 0, "910B", "float32"),
        ((F32, F32, F32), 1, "910B", "hf32_11"),
        ((F32, F32, F32), 3, "910_95", "hf32_10"),
        ((F32, F32, F32), 2, "910_93", "float16"),
        ((F32, F32, F32), 1, "310P", "float16"),
        ((F16, BF16, F16), 0, "910B", "float32"),  # two halves of different kinds meet in float32
        ((F16, F32, F16), 1, "910B", "hf32_11"),
        ((F16, F32, F16), 2, "910", "float16"),
        ((F16, F16, F16), 3, "910B", "float16"),
    ],
)
def test_what_the_cube_multiplies(dtypes, cube_math_type, product, compute):
    result = check_against_reference(ApiCall(SMALL, dtypes, cube_math_type, product))
    assert result.compute_dtype == compute
    assert names_of(result) == [dtypes[1], dtypes[2], dtypes[0]]


@pytest.mark.parametrize(
    ("dtypes", "cube_math_type", "product"),
    [
        ((BF16,) * 3, 0, "310P"),
        ((F32,) * 3, 0, "910"),
        ((F32,) * 3, 3, "310P"),
        ((BF16,) * 3, 2, "910B"),
        ((F16,) * 3, 4, "910B"),
    ],
)
def test_what_the_pages_refuse(dtypes, cube_math_type, product):
    with pytest.raises(AclnnError) as caught:
        ApiCall(SMALL, dtypes, cube_math_type, product).run()
    assert caught.value.status == 161002


def test_bfloat16_in_float16_computes_where_it_ships():
    case = ApiCall(SMALL, (BF16,) * 3, 2, "910B", rules="shipped")
    result = check_against_reference(case)
    assert result.compute_dtype == "float16"
    assert [kernel.name for kernel in result.kernels].count("cast_grad_output") == 1


def test_an_unknown_rule_set_is_named():
    with pytest.raises(ValueError, match="documented"):
        ApiCall(SMALL, rules="documantd").run()


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.complex64])
def test_formats_that_no_cube_takes_are_refused(dtype):
    arrays = [np.ones(shape, dtype) for shape in (SMALL.grad_output, SMALL.input, SMALL.weight)]
    with pytest.raises(AclnnError, match=np.dtype(dtype).name):
        convolution_backward(*arrays, [4], (2, 1), (1, 0), 1, False, 0, 1, ALL, 0)


# Output formats


@pytest.mark.parametrize("outputs", list(every((F16, BF16, F32), repeat=3)), ids="-".join)
def test_each_gradient_has_its_own_format(outputs):
    case = ApiCall(SMALL, (F16,) * 3, output_dtypes=outputs, rules="shipped")
    assert tuple(names_of(check_against_reference(case))) == outputs


@pytest.mark.parametrize("outputs", [(F32, None, None), (None, None, F32)])
def test_the_pages_tie_two_formats(outputs):
    with pytest.raises(AclnnError) as caught:
        ApiCall(SMALL, (F16,) * 3, output_dtypes=outputs).run()
    assert caught.value.status == 161002


def test_950_ships_with_the_formats_of_its_inputs_only():
    with pytest.raises(AclnnError):
        ApiCall(SMALL, (F16,) * 3, product="910_95", output_dtypes=(None, F32, None), rules="shipped").run()
    assert ApiCall(SMALL, (F16,) * 3, product="910_95", output_dtypes=(None, F32, None)).run()


def test_a_float32_grad_input_of_halves_was_a_half_once():
    # The data gradient leaves the cube in the compute format and is cast afterwards.
    case = ApiCall(SMALL, (F16,) * 3, output_dtypes=(F32, F32, None), rules="shipped")
    result = case.run()
    through_half = [as_carrier(g).astype(np.float16).astype(np.float32) for g in gradients(result)[:2]]
    assert np.array_equal(through_half[0], result.grad_input)
    assert not np.array_equal(through_half[1], result.grad_weight)


# Masks


@pytest.mark.parametrize("mask", list(every((False, True), repeat=3)), ids=str)
@pytest.mark.parametrize("product", ["910B", "910_95", "310P"])
def test_every_mask(mask, product):
    result = check_against_reference(ApiCall(SMALL, product=product, mask=mask))
    full = ApiCall(SMALL, product=product).run()
    for wanted, got, want in zip(mask, gradients(result), gradients(full), strict=True):
        assert (got is not None) == wanted
        if wanted:
            assert got.tobytes() == want.tobytes()
    made = {kernel.name for kernel in result.kernels if kernel.name in GRADIENTS}
    assert made == {name for name, wanted in zip(GRADIENTS, mask, strict=True) if wanted}


@pytest.mark.parametrize("mask", [(True, True), (True,) * 4, None])
def test_a_mask_of_another_length_is_refused_as_a_null_pointer(mask):
    with pytest.raises(AclnnError) as caught:
        ApiCall(SMALL, mask=mask).run()
    assert caught.value.status == 161001


# Eight bits


EIGHT = ("hifloat8", "float8_e4m3fn", "float8_e5m2")
TRANSPOSED = ConvProblem((2, 3, 4, 5), (3, 4, 3, 3), 2, 1, transposed=True, output_padding=1)
# more channels than one group of 32
WIDE = ConvProblem((1, 35, 5, 4), (33, 35, 3, 2), 1, 1)


@pytest.mark.parametrize("dtype", EIGHT)
@pytest.mark.parametrize("problem", [SMALL, TRANSPOSED, WIDE], ids=["plain", "transposed", "wide"])
@pytest.mark.parametrize("deterministic", [False, True])
def test_eight_bits_on_the_hardware(dtype, problem, deterministic):
    case = ApiCall(problem, (dtype,) * 3, 0, "910_95", rules="hardware", deterministic=deterministic)
    result = check_against_reference(case)
    assert result.compute_dtype == dtype
    assert result.accumulation == "block:32:RNE"
    assert names_of(result) == [dtype] * 3
    assert isinstance(result.grad_input, HiFloat8Array) is (dtype == "hifloat8")


@pytest.mark.parametrize("dtype", ["hifloat8", "float8_e4m3fn"])
def test_the_page_takes_eight_bits_transposed_with_a_grad_input(dtype):
    case = ApiCall(TRANSPOSED, (dtype,) * 3, 0, "910_95")
    assert names_of(check_against_reference(case)) == [dtype] * 3
    for refused in (
        ApiCall(SMALL, (dtype,) * 3, 0, "910_95"),
        ApiCall(TRANSPOSED, (dtype,) * 3, 0, "910_95", mask=(False, True, True)),
        ApiCall(TRANSPOSED, (dtype,) * 3, 0, "910B"),
    ):
        with pytest.raises(AclnnError) as caught:
            refused.run()
        assert caught.value.status == 161002


def test_what_ships_of_eight_bits_is_hifloat8_grad_input():
    only_input = (True, False, False)
    case = ApiCall(TRANSPOSED, ("hifloat8",) * 3, 0, "910_95", mask=only_input, rules="shipped")
    assert [kernel.name for kernel in check_against_reference(case).kernels] == ["grad_input"]
    with pytest.raises(AclnnError):
        ApiCall(TRANSPOSED, ("float8_e4m3fn",) * 3, 0, "910_95", mask=only_input, rules="shipped").run()


def test_eight_bits_take_half_the_cycles_of_sixteen_in_the_cube():
    problem = ConvProblem((1, 64, 28, 28), (64, 64, 3, 3), 1, 1)
    calls = [
        ApiCall(problem, (dtype,) * 3, 0, "910_95", (True, False, False), rules="hardware")
        for dtype in ("hifloat8", "float16")
    ]
    # Under one plan: the operator's own deal the pixels to one core, and to ten.
    kernels = [case.run(tiling=Tiling(64, 64, 64)).kernels[0] for case in calls]
    eight, sixteen = (kernel.busy["M"] for kernel in kernels)
    # heads of the Mmads and tails keep it from exactly one half
    assert 0.4 * sixteen < eight < 0.7 * sixteen


def test_a_hifloat8_bias_is_rounded_half_away():
    # 16 + 2 = 18 is a tie of 16 and 20
    values = np.array([16.0, 2.0], np.float32).reshape(1, 1, 1, 2)
    given = [encode(x, "hifloat8") for x in (values, values, np.ones((1, 1, 1, 1), np.float32))]
    result = convolution_backward(
        *given, [1], 1, 0, 1, False, 0, 1, (False, False, True), 0, product="910_95", rules="hardware"
    )
    assert as_carrier(result.grad_bias).tolist() == [20.0]


def test_the_carrier_of_ml_dtypes_is_exact():
    values = np.linspace(-3, 3, 48, dtype=np.float32).reshape(1, 3, 4, 4)
    rounded = round_to(values, "bfloat16")
    assert_same_bits(as_carrier(values.astype(ml_dtypes.bfloat16)), rounded)
