"""Is a gradient rounded once into the format asked for, and is it said where an operator rounds twice?"""

from itertools import product as every

import ml_dtypes
import numpy as np
import pytest

from ascendsim import ConvProblem, convolution_backward, estimate
from ascendsim.errors import ConfigError
from ascendsim.numerics.formats.casts import round_to
from ascendsim.ops.plan import Tiling
from tests.helpers.conv_cases import assert_same_bits
from tests.helpers.operator_calls import (
    GRADIENTS,
    ApiCall,
    as_carrier,
    changed,
    check_against_reference,
    gradients,
)

SMALL = ConvProblem((2, 3, 5, 6), (4, 3, 3, 2), (2, 1), (1, 0))
GROUPED = ConvProblem((1, 4, 4, 4), (4, 2, 3, 3), 1, 1, groups=2)
TRANSPOSED = ConvProblem((2, 3, 4, 5), (3, 4, 3, 3), 2, 1, transposed=True, output_padding=1)
F16, BF16, F32, E4M3, E5M2, HIF8 = (
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
    assert backward(*tensors, output_dtypes=(F32,) * 3, **ON_950).grad_input.item() == 512.0
    assert np.isnan(as_carrier(backward(*tensors, **ON_950).grad_input)).all()


def test_so_may_the_gradient_of_the_bias():
    # 16 pixels of 64 make 1024.
    tensors = ones((1, 1, 4, 4), 64), ones((1, 1, 4, 4)), ones((1, 1, 1, 1))
    assert backward(*tensors, output_dtypes=(F32,) * 3, **ON_950).grad_bias.tolist() == [1024.0]


@pytest.mark.parametrize("operands", [F16, BF16, E4M3, E5M2, HIF8])
@pytest.mark.parametrize("problem", [SMALL, TRANSPOSED], ids=["plain", "transposed"])
def test_every_output_format_comes_from_the_same_float32_sums(operands, problem):
    wide = ApiCall(problem, (operands,) * 3, 0, "910_95", output_dtypes=(F32,) * 3, rules="hardware")
    sums = [as_carrier(g) for g in gradients(check_against_reference(wide))]
    for asked in {F16, BF16, E4M3, HIF8, operands}:
        result = changed(wide, output_dtypes=(asked,) * 3).run()
        for name, got, exact in zip(GRADIENTS, gradients(result), sums, strict=True):
            assert_same_bits(as_carrier(got), round_to(exact, asked), f"{name} in {asked}")


@pytest.mark.parametrize("product", ["910B", "310P", "910"])
@pytest.mark.parametrize("problem", [SMALL, GROUPED, TRANSPOSED], ids=["plain", "grouped", "transposed"])
def test_on_every_way_out_of_the_cube(product, problem):
    # 310P and 910 have no Fixpipe: results go through UB, where float32 tiles are twice as large.
    case = ApiCall(problem, product=product, output_dtypes=(F32,) * 3, rules="hardware")
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
    case = ApiCall(problem, mask=(True, False, False), output_dtypes=(F32, None, None), rules="hardware")
    tensors = case.arrays()
    result = convolution_backward(
        *tensors, None, 1, 1, 1, False, 0, 1, case.mask, 0, tiling=tiling, **case.options
    )
    (kernel,) = (kernel for kernel in result.kernels if kernel.plan)
    assert [phase.name for phase in kernel.kernel.phases][-1] != "cast"
    narrow = convolution_backward(
        *tensors, None, 1, 1, 1, False, 0, 1, case.mask, 0, tiling=tiling, rules="hardware"
    )
    assert_same_bits(as_carrier(narrow.grad_input), round_to(result.grad_input, F16))


@pytest.mark.parametrize("mask", list(every((False, True), repeat=2)), ids=str)
def test_where_the_shipped_operator_rounds_twice_the_result_says_so(mask):
    case = ApiCall(GROUPED, mask=(*mask, True), output_dtypes=(F32,) * 3, rules="shipped", deterministic=True)
    result = check_against_reference(case)
    told = [note.split()[0] for note in result.notes if "passes through float16" in note]
    # Grouped, so that grad_weight is squeezed as well.
    wanted = [name for name, asked in zip(GRADIENTS, (*mask, True), strict=True) if asked]
    assert sorted(told) == sorted(wanted)
    for gradient in (g for g in gradients(result) if g is not None):
        assert np.array_equal(gradient.astype(np.float16).astype(np.float32), gradient)


def test_a_cast_from_float32_loses_nothing_and_needs_no_note():
    mixed = ApiCall(SMALL, (F16, F32, F16), 0, output_dtypes=(F16, F16, F16), rules="shipped")
    assert not any("on its way" in note for note in check_against_reference(mixed).notes)


def test_float32_inputs_multiplied_in_float16_keep_float32_sums_on_the_hardware():
    # USE_FP16 narrows the operands; the operator narrows the gradient as well.
    case = ApiCall(SMALL, (F32,) * 3, 2, rules="hardware")
    wide = check_against_reference(case).grad_input
    shipped = check_against_reference(changed(case, rules="shipped")).grad_input
    assert_same_bits(round_to(wide, F16), shipped)
    assert not np.array_equal(wide, shipped)


def test_a_wider_gradient_takes_more_bytes_to_write():
    problem = ConvProblem((1, 32, 16, 16), (32, 32, 3, 3), 1, 1)
    written = {}
    for asked in (F16, F32):
        options = {"output_dtypes": (asked, None, None), "output_mask": (True, False, False)}
        made = estimate(problem, F16, rules="hardware", **options).kernels
        (kernel,) = (kernel for kernel in made if kernel.plan)
        written[asked] = kernel.bytes["l2_write"]
    # 32 channels of 16 x 16 pixels, 2 and 4 bytes each
    assert written == {F16: 32 * 256 * 2, F32: 32 * 256 * 4}


def test_a_rule_set_of_ones_own_says_which_it_means(tmp_path):
    path = tmp_path / "direct.toml"
    path.write_text('base = "shipped"\ntitle = "shipped, but converted once"\ndirect_outputs = true\n')
    case = ApiCall(SMALL, output_dtypes=(F32,) * 3, rules=str(path))
    hardware = changed(case, rules="hardware")
    for got, want in zip(gradients(case.run()), gradients(hardware.run()), strict=True):
        assert_same_bits(got, want)
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('base = "shipped"\ntitle = "wrong"\ndirect_outputs = "yes"\n')
    with pytest.raises(ConfigError, match=r"direct_outputs: got 'yes', expected bool"):
        changed(case, rules=str(wrong)).run()
