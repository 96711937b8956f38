"""Do empty tensors give the zeros, shapes and kernels that they should, and are the others refused?"""

import numpy as np
import pytest

from ascendsim import convolution_backward
from ascendsim.errors import AclnnError
from tests.helpers.operator_calls import GRADIENTS, gradients

ALL = (True, True, True)
PRODUCTS_WITH_EMPTY = ("910B", "910_93", "910_95")


def ones(*shape):
    return np.ones(shape, np.float16)


def call(grad_output, input, weight, mask=ALL, *, transposed=False, groups=1, padding=0, **options):
    channels = grad_output.shape[1]
    stride = (1,) * (input.ndim - 2)
    return convolution_backward(
        grad_output,
        input,
        weight,
        [channels],
        stride,
        padding,
        stride,
        transposed,
        0,
        groups,
        mask,
        0,
        **options,
    )


def fills(result):
    return [kernel.name for kernel in result.kernels]


@pytest.mark.parametrize("product", PRODUCTS_WITH_EMPTY)
@pytest.mark.parametrize("transposed", [False, True])
def test_no_image_leaves_zeros(product, transposed):
    weight = ones(2, 4, 3, 3) if transposed else ones(4, 2, 3, 3)
    result = call(
        ones(0, 4, 5, 5), ones(0, 2, 5, 5), weight, transposed=transposed, padding=1, product=product
    )
    assert result.grad_input.shape == (0, 2, 5, 5)
    assert result.grad_weight.shape == weight.shape
    assert not result.grad_weight.any()
    assert result.grad_bias.tolist() == [0.0] * 4
    assert fills(result) == ["fill_grad_weight", "fill_grad_bias"]
    assert result.cycles == sum(kernel.cycles for kernel in result.kernels) > 0
    assert result.accumulation == "none"


@pytest.mark.parametrize("product", PRODUCTS_WITH_EMPTY)
def test_no_input_channel_leaves_a_zero_bias_of_a_full_grad_output(product):
    # as torch: nothing was computed, although grad_output has elements to add
    result = call(ones(2, 4, 3, 3), ones(2, 0, 3, 3), ones(4, 0, 1, 1), product=product)
    assert [g.shape for g in gradients(result)] == [(2, 0, 3, 3), (4, 0, 1, 1), (4,)]
    assert result.grad_bias.tolist() == [0.0] * 4
    assert fills(result) == ["fill_grad_bias"]


def test_a_gradient_without_elements_needs_no_kernel():
    result = call(ones(0, 4, 3, 3), ones(0, 0, 3, 3), ones(4, 0, 1, 1), (True, True, False))
    assert fills(result) == []
    assert result.cycles == 0


def test_a_mask_leaves_out_what_it_leaves_out():
    result = call(ones(0, 4, 3, 3), ones(0, 2, 3, 3), ones(4, 2, 1, 1), (False, True, False))
    assert (result.grad_input, result.grad_bias) == (None, None)
    assert fills(result) == ["fill_grad_weight"]


def test_nothing_asked_for_nothing_done():
    for arrays in (
        (ones(0, 4, 3, 3), ones(0, 2, 3, 3), ones(4, 2, 1, 1)),
        (ones(2, 4, 3, 3), ones(2, 2, 3, 3), ones(4, 2, 1, 1)),
    ):
        result = call(*arrays, (False, False, False))
        assert gradients(result) == [None, None, None]
        assert (result.kernels, result.cycles, result.time_us) == ((), 0, 0)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_rank_may_be_empty(rank):
    space = (3,) * rank
    result = call(ones(0, 4, *space), ones(0, 2, *space), ones(4, 2, *(1,) * rank))
    assert result.grad_weight.shape == (4, 2, *(1,) * rank)


def test_zeros_come_in_the_asked_formats():
    arrays = (ones(0, 4, 3, 3), ones(0, 2, 3, 3), ones(4, 2, 1, 1))
    result = call(*arrays, output_dtypes=("float32", "bfloat16", "float32"), rules="shipped")
    assert [g.dtype.name for g in gradients(result)] == ["float32", "bfloat16", "float32"]


# What is refused: section 6 of the rule book, by product


@pytest.mark.parametrize("product", ["310P", "910"])
def test_older_products_take_no_empty_grad_output(product):
    with pytest.raises(AclnnError, match="empty") as caught:
        call(ones(0, 4, 3, 3), ones(0, 2, 3, 3), ones(4, 2, 1, 1), product=product)
    assert caught.value.status == 161002


REFUSED = {
    "grad_output alone": (ones(2, 4, 0, 3), ones(2, 2, 3, 3), ones(4, 2, 1, 1)),
    "height of the input alone": (ones(2, 4, 0, 3), ones(2, 2, 0, 3), ones(4, 2, 1, 1)),
    "channels of the input alone": (ones(0, 4, 3, 3), ones(0, 0, 3, 3), ones(4, 2, 1, 1)),
    "a kernel larger than the input": (ones(0, 4, 3, 3), ones(0, 2, 3, 3), ones(4, 2, 5, 5)),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("rules", ["documented", "shipped"])
def test_other_empty_tensors_are_refused(what, rules):
    with pytest.raises(AclnnError) as caught:
        call(*REFUSED[what], rules=rules)
    assert caught.value.status == 161002


def test_every_gradient_is_named():
    assert GRADIENTS == ("grad_input", "grad_weight", "grad_bias")
