"""Are the shapes of a convolution right, and do problems that do not fit say why?"""

from itertools import product

import numpy as np
import pytest

from ascendsim import ConvProblem
from ascendsim.errors import ShapeError


def problem(input=(2, 6, 9, 11), weight=(4, 6, 3, 3), **attributes):
    return ConvProblem(input, weight, **attributes)


# --- sizes


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "dilation"),
    list(product((5, 8, 13), (1, 2, 3, 5), (1, 2, 3), (0, 1, 2), (1, 2))),
)
def test_the_output_counts_the_places_of_the_kernel(size, kernel, stride, padding, dilation):
    # The definition: places p = 0, stride, 2 stride, ... at which the dilated kernel ends inside the padding.
    last = size + 2 * padding - dilation * (kernel - 1)
    places = len(range(0, last, stride))
    attributes = {"stride": stride, "padding": padding, "dilation": dilation}
    if not places:
        with pytest.raises(ShapeError):
            ConvProblem((1, 1, size), (1, 1, kernel), **attributes)
        return
    made = ConvProblem((1, 1, size), (1, 1, kernel), **attributes)
    assert made.grad_output == (1, 1, places)
    # Transposed, from that many places back: the largest output padding restores any size in between.
    spare = size - ((places - 1) * stride + dilation * (kernel - 1) + 1 - 2 * padding)
    assert 0 <= spare < stride
    back = ConvProblem((1, 1, places), (1, 1, kernel), transposed=True, output_padding=spare, **attributes)
    assert back.grad_output == (1, 1, size)


def test_every_problem_has_three_axes():
    made = ConvProblem((2, 3, 9), (4, 3, 5), stride=2, padding=1, dilation=2)
    assert (made.input_size, made.kernel) == ((1, 1, 9), (1, 1, 5))
    assert (made.strides, made.dilations, made.pads) == ((1, 1, 2), (1, 1, 2), ((0, 0), (0, 0), (1, 1)))
    assert made.output_size == (1, 1, 2)  # floor((9 + 2 - 9) / 2) + 1
    assert made.grad_output == (2, 4, 2)


def test_three_axes_keep_their_order():
    made = ConvProblem((1, 2, 5, 7, 9), (3, 2, 1, 2, 3), (1, 2, 3), (0, 1, 2), (1, 2, 1))
    assert (made.input_size, made.kernel, made.strides) == ((5, 7, 9), (1, 2, 3), (1, 2, 3))
    assert made.pads == ((0, 0), (1, 1), (2, 2))
    assert made.output_size == (5, 4, 4)  # 5; floor((7+2-3)/2)+1; floor((9+4-3)/3)+1


def test_padding_may_differ_on_each_side_in_two_dimensions():
    made = problem(padding=(0, 1, 2, 3))
    assert made.pads == ((0, 0), (0, 1), (2, 3))
    assert made.output_size == (1, 8, 14)  # 9 + 1 - 3 + 1 and 11 + 5 - 3 + 1


def test_one_tap_has_no_dilation():
    assert problem(weight=(4, 6, 1, 3), dilation=2).dilations == (1, 1, 2)


def test_the_big_side_is_the_input_or_grad_output_when_transposed():
    plain, back = problem(), problem(weight=(6, 4, 3, 3), transposed=True)
    assert (plain.big_size, plain.small_size) == ((1, 9, 11), (1, 7, 9))
    assert (back.big_size, back.small_size) == ((1, 11, 13), (1, 9, 11))
    assert (plain.big_channels, plain.small_channels) == (6, 4)
    assert (back.big_channels, back.small_channels) == (4, 6)


def test_channels_are_those_of_one_group():
    made = problem(weight=(8, 3, 3, 3), groups=2)
    assert (made.big_channels, made.small_channels, made.grad_output[1]) == (3, 4, 8)
    back = problem(weight=(6, 5, 3, 3), groups=3, transposed=True)
    assert (back.big_channels, back.small_channels, back.grad_output[1]) == (5, 2, 15)


def test_macs_are_those_of_the_dense_formula():
    # 2 images * 7 * 9 outputs * 4 * 6 channels * 9 taps
    assert problem().macs == 2 * 63 * 24 * 9
    assert problem(weight=(8, 3, 3, 3), groups=2).macs == 2 * 63 * 8 * 3 * 9


def test_a_problem_is_a_value():
    assert problem(stride=2) == problem(stride=(2, 2))
    assert len({problem(), problem(stride=1), problem(padding=[0, 0])}) == 1
    with pytest.raises(AttributeError):
        problem().stride = 3


def test_numbers_of_numpy_are_numbers():
    one = np.int64(1)
    made = problem(
        np.array([2, 6, 9, 11]),
        stride=one,
        padding=np.array([0, 1]),
        groups=np.int32(1),
        transposed=np.False_,
    )
    assert made == problem(stride=1, padding=(0, 1))
    assert {type(value) for value in (*made.input, *made.stride, *made.padding, made.groups)} == {int}


# --- refusals, each with the numbers that break the rule


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input": (3, 4)}, "input has rank 2 (3, 4); it must be 3, 4 or 5"),
        (
            {"weight": (4, 6, 3)},
            "weight has rank 3 (4, 6, 3), but input has rank 4 (2, 6, 9, 11); they must be equal",
        ),
        ({"stride": (1, 2, 3)}, "stride has 3 values (1, 2, 3); it needs 2"),
        ({"padding": (1, 2, 3)}, "padding has 3 values (1, 2, 3); it needs 2 or 4"),
        ({"stride": 0}, "stride is (0, 0); every value must be at least 1"),
        ({"padding": (0, -1)}, "padding is (0, -1); every value must be at least 0"),
        ({"dilation": (1, 0)}, "dilation is (1, 0); every value must be at least 1"),
        ({"output_padding": -1}, "output_padding is (-1, -1); every value must be at least 0"),
        ({"groups": 0}, "groups is 0; it must be an integer of at least 1"),
        ({"groups": 1.5}, "groups is 1.5; it must be an integer of at least 1"),
        ({"weight": (4, 5, 3, 3)}, "input has 6 channels, but weight.shape[1] * groups is 5"),
        (
            {"weight": (4, 5, 3, 3), "transposed": True},
            "input has 6 channels, but weight.shape[0] is 4",
        ),
        (
            {"weight": (5, 3, 3, 3), "groups": 2},
            "weight.shape[0] is 5, which 2 groups do not divide",
        ),
        (
            {"weight": (4, 6, 12, 3)},
            "the height of grad_output would be -2; the dilated kernel is larger than the padded input",
        ),
        ({"stride": (1, 1.5)}, "stride is (1, 1.5); every value must be an integer"),
        ({"stride": "two"}, "stride is 'two'; it must be a sequence of integers"),
        ({"padding": (True, 1)}, "padding is (True, 1); every value must be an integer"),
        ({"stride": True}, "stride is True; it must be a sequence of integers"),
        ({"stride": (1.0, 1.0)}, "stride is (1.0, 1.0); every value must be an integer"),
        ({"groups": True}, "groups is True; it must be an integer of at least 1"),
        ({"transposed": "no"}, "transposed is 'no'; it must be true or false"),
        ({"transposed": None}, "transposed is None; it must be true or false"),
        ({"input": 7}, "input shape is 7; it must be a sequence of integers"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_numbers(arguments, message):
    with pytest.raises(ShapeError) as raised:
        problem(**arguments)
    assert message in str(raised.value)
    assert str(raised.value).startswith("convolution: ")


def test_the_height_that_does_not_fit_is_told_with_all_that_gives_it():
    made = ConvProblem((1, 1, 28, 28), (1, 1, 3, 3), stride=2, padding=1)
    with pytest.raises(ShapeError) as raised:
        made.check_grad_output((1, 1, 13, 14))
    assert str(raised.value) == (
        "convolution_backward: grad_output has height 13, but input height 28, padding 1+1, kernel 3, "
        "dilation 1, stride 2 give 14"
    )


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 4, 7), "grad_output has rank 3 (2, 4, 7), but input has rank 4"),
        ((3, 4, 7, 9), "grad_output has batch 3, but the 2 images of input give 2"),
        ((2, 5, 7, 9), "grad_output has channels 5, but weight (4, 6, 3, 3) and groups 1 give 4"),
        ((2, 4, 7, 8), "grad_output has width 8, but input width 11, padding 0+0, kernel 3"),
    ],
)
def test_grad_output_must_fit(shape, message):
    with pytest.raises(ShapeError) as raised:
        problem().check_grad_output(shape)
    assert message in str(raised.value)


def test_a_transposed_mismatch_tells_the_output_padding():
    made = problem(weight=(6, 4, 3, 3), transposed=True, stride=2, output_padding=1)
    with pytest.raises(ShapeError, match=r"output_padding 1 give 20"):  # (9 - 1) * 2 + 3 + 1
        made.check_grad_output((2, 4, 19, 24))


def test_the_right_shape_passes():
    problem().check_grad_output((2, 4, 7, 9))
