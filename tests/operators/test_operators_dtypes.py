"""Do formats, mixtures, output formats and masks come out as the rules and the cube say?"""

from itertools import product as every

import ml_dtypes
import numpy as np
import pytest

from ascendsim import ConvProblem, Tiling, convolution_backward, estimate
from ascendsim.errors import AclnnError, ConfigError
from ascendsim.numerics.casts import encode, round_to
from ascendsim.numerics.hifloat8 import HiFloat8Array
from tests.helpers.calls import (
    GRADIENTS,
    ApiCall,
    as_carrier,
    check_against_reference,
    gradients,
    with_changes,
)
from tests.helpers.conv_cases import assert_same_bits

# -------------------------------------------------------------------------------------------------------
# Do formats, mixtures, output formats and masks come out as the rules and the cube say, on every product?
# -------------------------------------------------------------------------------------------------------

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


# -------------------------------------------------------------------------------------------------------
# Is a gradient rounded once into the format asked for, and is it said where an operator rounds twice?
# -------------------------------------------------------------------------------------------------------

GROUPED = ConvProblem((1, 4, 4, 4), (4, 2, 3, 3), 1, 1, groups=2)
OUTPUT_F16, OUTPUT_BF16, OUTPUT_F32, E4M3, E5M2, HIF8 = (
    "float16",
    "bfloat16",
    "float32",
    "float8_e4m3fn",
    "float8_e5m2",
    "hifloat8",
)
ON_950 = {"product": "910_95", "rules": "hardware"}


def ones(shape, value=1.0):
    return np.full(shape, value, ml_dtypes.float8_e4m3fn)


def backward(grad_output, input, weight, mask=(True, True, True), **options):
    sizes = [grad_output.shape[1]]
    return convolution_backward(grad_output, input, weight, sizes, 1, 0, 1, False, 0, 1, mask, 0, **options)


def test_a_float32_gradient_of_8_bit_operands_may_be_larger_than_they_can():
    # 32 channels of 16 x 1 make 512; float8_e4m3fn ends at 448, and what is larger would be NaN in it.
    tensors = ones((1, 32, 1, 1), 16), ones((1, 1, 1, 1)), ones((32, 1, 1, 1))
    assert backward(*tensors, output_dtypes=(OUTPUT_F32,) * 3, **ON_950).grad_input.item() == 512.0
    assert np.isnan(as_carrier(backward(*tensors, **ON_950).grad_input)).all()


def test_so_may_the_gradient_of_the_bias():
    # 16 pixels of 64 make 1024.
    tensors = ones((1, 1, 4, 4), 64), ones((1, 1, 4, 4)), ones((1, 1, 1, 1))
    assert backward(*tensors, output_dtypes=(OUTPUT_F32,) * 3, **ON_950).grad_bias.tolist() == [1024.0]


@pytest.mark.parametrize("operands", [OUTPUT_F16, OUTPUT_BF16, E4M3, E5M2, HIF8])
@pytest.mark.parametrize("problem", [SMALL, TRANSPOSED], ids=["plain", "transposed"])
def test_every_output_format_comes_from_the_same_float32_sums(operands, problem):
    wide = ApiCall(problem, (operands,) * 3, 0, "910_95", output_dtypes=(OUTPUT_F32,) * 3, rules="hardware")
    sums = [as_carrier(g) for g in gradients(check_against_reference(wide))]
    for asked in {OUTPUT_F16, OUTPUT_BF16, E4M3, HIF8, operands}:
        result = with_changes(wide, output_dtypes=(asked,) * 3).run()
        for name, got, exact in zip(GRADIENTS, gradients(result), sums, strict=True):
            assert_same_bits(as_carrier(got), round_to(exact, asked), f"{name} in {asked}")


@pytest.mark.parametrize("product", ["910B", "310P", "910"])
@pytest.mark.parametrize("problem", [SMALL, GROUPED, TRANSPOSED], ids=["plain", "grouped", "transposed"])
def test_on_every_way_out_of_the_cube(product, problem):
    # 310P and 910 have no Fixpipe: results go through UB, where float32 tiles are twice as large.
    case = ApiCall(problem, product=product, output_dtypes=(OUTPUT_F32,) * 3, rules="hardware")
    result = check_against_reference(case)
    sums = [as_carrier(g) for g in gradients(result)]
    through_half = [np.array_equal(g.astype(np.float16).astype(np.float32), g) for g in sums]
    assert not any(through_half)
    assert not any(kernel.name.startswith(("cast", "squeeze")) for kernel in result.kernels)
    assert not any("on its way" in note for note in result.notes)


def test_parts_of_a_reduction_meet_in_the_output_itself():
    # Float32 needs no workspace for the sums of the parts, nor a cast from it.
    problem = ConvProblem((1, 8, 4, 4), (64, 8, 3, 3), 1, 1)
    tiling = {"grad_input": Tiling(16, 16, 16, k_split=2)}
    case = ApiCall(
        problem, mask=(True, False, False), output_dtypes=(OUTPUT_F32, None, None), rules="hardware"
    )
    tensors = case.arrays()
    result = convolution_backward(
        *tensors, None, 1, 1, 1, False, 0, 1, case.mask, 0, tiling=tiling, **case.options
    )
    (kernel,) = (kernel for kernel in result.kernels if kernel.plan)
    assert [phase.name for phase in kernel.kernel.phases][-1] != "cast"
    narrow = convolution_backward(
        *tensors, None, 1, 1, 1, False, 0, 1, case.mask, 0, tiling=tiling, rules="hardware"
    )
    assert_same_bits(as_carrier(narrow.grad_input), round_to(result.grad_input, OUTPUT_F16))


@pytest.mark.parametrize("mask", list(every((False, True), repeat=2)), ids=str)
def test_where_the_shipped_operator_rounds_twice_the_result_says_so(mask):
    case = ApiCall(
        GROUPED, mask=(*mask, True), output_dtypes=(OUTPUT_F32,) * 3, rules="shipped", deterministic=True
    )
    result = check_against_reference(case)
    told = [note.split()[0] for note in result.notes if "passes through float16" in note]
    # Grouped, so that grad_weight is squeezed as well.
    wanted = [name for name, asked in zip(GRADIENTS, (*mask, True), strict=True) if asked]
    assert sorted(told) == sorted(wanted)
    for gradient in (g for g in gradients(result) if g is not None):
        assert np.array_equal(gradient.astype(np.float16).astype(np.float32), gradient)


def test_a_cast_from_float32_loses_nothing_and_needs_no_note():
    mixed = ApiCall(
        SMALL,
        (OUTPUT_F16, OUTPUT_F32, OUTPUT_F16),
        0,
        output_dtypes=(OUTPUT_F16, OUTPUT_F16, OUTPUT_F16),
        rules="shipped",
    )
    assert not any("on its way" in note for note in check_against_reference(mixed).notes)


def test_float32_inputs_multiplied_in_float16_keep_float32_sums_on_the_hardware():
    # USE_FP16 narrows the operands; the operator narrows the gradient as well.
    case = ApiCall(SMALL, (OUTPUT_F32,) * 3, 2, rules="hardware")
    wide = check_against_reference(case).grad_input
    shipped = check_against_reference(with_changes(case, rules="shipped")).grad_input
    assert_same_bits(round_to(wide, OUTPUT_F16), shipped)
    assert not np.array_equal(wide, shipped)


def test_a_wider_gradient_takes_more_bytes_to_write():
    problem = ConvProblem((1, 32, 16, 16), (32, 32, 3, 3), 1, 1)
    written = {}
    for asked in (OUTPUT_F16, OUTPUT_F32):
        options = {"output_dtypes": (asked, None, None), "output_mask": (True, False, False)}
        made = estimate(problem, OUTPUT_F16, rules="hardware", **options).kernels
        (kernel,) = (kernel for kernel in made if kernel.plan)
        written[asked] = kernel.bytes["l2_write"]
    # 32 channels of 16 x 16 pixels, 2 and 4 bytes each
    assert written == {OUTPUT_F16: 32 * 256 * 2, OUTPUT_F32: 32 * 256 * 4}


def test_a_rule_set_of_ones_own_says_which_it_means(tmp_path):
    path = tmp_path / "direct.toml"
    path.write_text('base = "shipped"\ntitle = "shipped, but converted once"\ndirect_outputs = true\n')
    case = ApiCall(SMALL, output_dtypes=(OUTPUT_F32,) * 3, rules=str(path))
    hardware = with_changes(case, rules="hardware")
    for got, want in zip(gradients(case.run()), gradients(hardware.run()), strict=True):
        assert_same_bits(got, want)
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('base = "shipped"\ntitle = "wrong"\ndirect_outputs = "yes"\n')
    with pytest.raises(ConfigError, match=r"direct_outputs: got 'yes', expected bool"):
        with_changes(case, rules=str(wrong)).run()
