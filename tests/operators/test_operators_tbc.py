"""Is conv_tbc backward the one-dimensional convolution it is lowered to, with its permutations counted?"""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendsim import conv_tbc_backward, convolution_backward
from ascendsim.errors import AclnnError
from tests.helpers.conv_cases import assert_same_bits
from tests.helpers.operator_calls import LAYS, as_carrier, gradients, names, permuted, plain

DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


def tensors(time=6, batch=2, channels=3, made=4, taps=3, pad=1, dtype=np.float16, seed=0):
    """Draw grad_output, input, weight and bias."""
    rng = np.random.default_rng(seed)
    shapes = (
        (time + 2 * pad + 1 - taps, batch, made),
        (time, batch, channels),
        (taps, channels, made),
        (made,),
    )
    return [rng.standard_normal(shape).astype(np.float32).astype(dtype) for shape in shapes]


def by_convolution(grad_output, input, weight, pad, cube_math_type, **options):
    """Return the gradients that a 1-D convolution of permuted copies has, permuted back."""
    given = [
        np.ascontiguousarray(array.transpose(axes))
        for array, axes in ((grad_output, (1, 2, 0)), (input, (1, 2, 0)), (weight, (2, 1, 0)))
    ]
    sizes = [weight.shape[2]]
    result = convolution_backward(
        *given, sizes, 1, pad, 1, False, 0, 1, (True, True, True), cube_math_type, **options
    )
    return result.grad_input.transpose(2, 0, 1), result.grad_weight.transpose(2, 1, 0), result.grad_bias


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    sizes=st.fixed_dictionaries(
        {
            "time": st.integers(1, 9),
            "batch": st.integers(1, 3),
            "channels": st.sampled_from((1, 3, 17)),
            "made": st.sampled_from((1, 4, 18)),
            "taps": st.integers(1, 4),
            "pad": st.integers(0, 3),
        }
    ),
    dtype=st.sampled_from(sorted(DTYPES)),
    cube_math_type=st.sampled_from((0, 1)),
    product=st.sampled_from(("910B", "910_93")),
    lay=st.sampled_from(LAYS),
)
def test_it_is_the_convolution_of_permuted_tensors(sizes, dtype, cube_math_type, product, lay):
    if sizes["time"] + 2 * sizes["pad"] < sizes["taps"]:
        sizes = sizes | {"taps": 1}
    *given_tensors, bias = tensors(**sizes, dtype=DTYPES[dtype])
    result = conv_tbc_backward(
        *map(lay, given_tensors), bias, sizes["pad"], cube_math_type, product=product, deterministic=True
    )
    want = by_convolution(*given_tensors, sizes["pad"], cube_math_type, product=product, deterministic=True)
    for name, got, expected in zip(("input", "weight", "bias"), gradients(result), want, strict=True):
        assert_same_bits(as_carrier(got), as_carrier(np.ascontiguousarray(expected)), name)
        assert got.flags.c_contiguous


def test_gradients_have_the_shapes_of_their_tensors():
    grad_output, input, weight, bias = tensors()
    result = conv_tbc_backward(grad_output, input, weight, bias, 1, 0)
    assert [g.shape for g in gradients(result)] == [input.shape, weight.shape, bias.shape]


def test_a_gradient_by_hand():
    # T = 3, one channel, two taps, no pad: y[t] = x[t] w[0] + x[t+1] w[1].
    # dx = (g0 w0, g0 w1 + g1 w0, g1 w1), dw = (g0 x0 + g1 x1, g0 x1 + g1 x2), db = g0 + g1.
    column = lambda *values: np.array(values, np.float32).reshape(-1, 1, 1)  # noqa: E731
    result = conv_tbc_backward(column(10, 20), column(1, 2, 3), column(5, 7), np.zeros(1, np.float32), 0, 0)
    assert [g.reshape(-1).tolist() for g in gradients(result)] == [[50, 170, 140], [50, 80], [30]]


def test_every_permutation_is_a_kernel():
    given_tensors = tensors()
    result = conv_tbc_backward(*given_tensors, 1, 0)
    assert names(result) == [
        *("transpose_grad_output", "transpose_input", "transpose_weight"),
        *("grad_bias", "transdata_grad_output", "transdata_weight", "grad_input", "transdata_grad_input"),
        *("transdata_grad_output_2", "transdata_input", "memset_grad_weight", "grad_weight"),
        *("transdata_grad_weight", "cast_grad_weight"),
        *("transpose_grad_input", "transpose_grad_weight"),
    ]
    assert result.cycles == sum(kernel.cycles for kernel in result.kernels)
    assert any("Transpose" in note for note in result.notes)


def test_a_strided_tensor_is_made_contiguous_first():
    grad_output, input, weight, bias = tensors()
    result = conv_tbc_backward(grad_output, permuted(input), weight, bias, 1, 0)
    assert names(result)[:2] == ["contiguous_input", "transpose_grad_output"]
    usual = conv_tbc_backward(grad_output, plain(input), weight, bias, 1, 0)
    assert names(result)[1:] == names(usual)


def test_formats_of_the_gradients_follow_input_weight_and_bias():
    grad_output, input, weight, bias = tensors(dtype=np.float32)
    mixed = (grad_output.astype(np.float16), input, weight.astype(np.float16), bias)
    result = conv_tbc_backward(*mixed, 1, 1, rules="shipped")
    assert [g.dtype.name for g in gradients(result)] == ["float32", "float16", "float32"]
    assert result.compute_dtype == "hf32_11"
    with pytest.raises(AclnnError) as caught:  # the page wants one format
        conv_tbc_backward(*mixed, 1, 1)
    assert caught.value.status == 161002


@pytest.mark.parametrize("product", ["910_95", "910", "310P"])
def test_products_that_the_page_does_not_name_are_refused(product):
    given_tensors = tensors()
    with pytest.raises(AclnnError, match=product) as caught:
        conv_tbc_backward(*given_tensors, 1, 0, product=product)
    assert caught.value.status == 161002
    shipped = conv_tbc_backward(*given_tensors, 1, 0, product=product, rules="shipped")
    for got, want in zip(
        gradients(shipped), by_convolution(*given_tensors[:3], 1, 0, product=product), strict=True
    ):
        assert np.array_equal(got, want)


def test_a_pad_that_does_not_fit_is_refused():
    grad_output, input, weight, bias = tensors()
    with pytest.raises(AclnnError) as caught:
        conv_tbc_backward(grad_output, input, weight, bias, 2, 0)
    assert caught.value.status == 161002


# Empty tensors: only the shipped operator takes them


def empty_time():
    """T = 0 with pad 1 and one tap: T_out = 2; the sum of grad_output is 12 a channel, its terms are 6."""
    return (
        np.full((2, 3, 4), 2, np.float16),
        np.zeros((0, 3, 5), np.float16),
        np.ones((1, 5, 4), np.float16),
        np.ones(4, np.float16),
    )


def test_the_shipped_operator_counts_where_it_should_add():
    result = conv_tbc_backward(*empty_time(), 1, 0, rules="shipped")
    assert result.grad_input.shape == (0, 3, 5)
    assert not result.grad_weight.any()
    assert result.grad_weight.shape == (1, 5, 4)
    assert result.grad_bias.tolist() == [6.0] * 4
    assert names(result) == ["fill_grad_weight", "fill_grad_bias"]


def test_the_hardware_rules_add():
    result = conv_tbc_backward(*empty_time(), 1, 0, rules="hardware")
    assert result.grad_bias.tolist() == [12.0] * 4
    assert names(result) == ["fill_grad_weight", "transpose_grad_output", "grad_bias"]


def test_the_page_refuses_empty_tensors():
    with pytest.raises(AclnnError) as caught:
        conv_tbc_backward(*empty_time(), 1, 0)
    assert caught.value.status == 161002
