"""Does every mistake in a call, or in the shapes of a problem, say what was got and what to do?"""

from itertools import product

import numpy as np
import pytest

from ascendsim import (
    ConvProblem,
    Item,
    Tiling,
    conv_tbc_backward,
    convolution_backward,
    estimate,
    estimate_many,
    legal_tilings,
    load_profile,
    matmul,
)
from ascendsim.cli import main
from ascendsim.errors import AclnnError, AscendSimError, ConfigError, ShapeError
from ascendsim.ops.problems.layers import TbcLayer
from ascendsim.rules import rule_product
from tests.helpers.calls import ApiCall

# --- Does every mistake in a call get an error that says what was got and what to do? ------------------

CASE = ApiCall(ConvProblem((1, 2, 4, 4), (3, 2, 3, 3), 1, 1))
POSITIONS = (
    *("grad_output", "input", "weight", "bias_sizes", "stride", "padding", "dilation", "transposed"),
    *("output_padding", "groups", "output_mask", "cube_math_type"),
)


def call(**changes):
    """Make the call with some arguments changed, positional ones by their name."""
    values = dict(zip(POSITIONS, (*CASE.arrays(), [3], *CASE.attributes, (True,) * 3, 0), strict=True))
    options = {name: value for name, value in changes.items() if name not in POSITIONS}
    return convolution_backward(*(changes.get(name, values[name]) for name in POSITIONS), **options)


@pytest.mark.parametrize(
    ("name", "status"),
    [(name, 161001) for name in ("grad_output", "input", "weight", "stride", "padding", "dilation")]
    + [("output_padding", 161001), ("output_mask", 161001)],
)
def test_what_is_missing_answers_as_a_null_pointer(name, status):
    with pytest.raises(AclnnError, match=name) as caught:
        call(**{name: None})
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"grad_output": np.ones((1, 3, 5, 4), np.float16)}, "5"),
        ({"grad_output": np.ones((2, 3, 4, 4), np.float16)}, "2"),
        ({"input": np.ones((1, 2, 4), np.float16)}, "input NCL"),
        ({"weight": np.ones((3, 5, 3, 3), np.float16)}, "groups"),
        ({"stride": (1, 0)}, "stride"),
        ({"padding": (1, 1, 1)}, "padding"),
        ({"dilation": (1, 1, 1)}, "dilation"),
        ({"groups": 0}, "groups"),
        ({"output_padding": 1}, "output_padding"),
        ({"cube_math_type": 7}, "cube_math_type is 7"),
        ({"bias_sizes": [4]}, "bias_sizes"),
        ({"input": np.float16(3)}, "input"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_what_does_not_fit_answers_as_an_invalid_parameter(changes, words):
    with pytest.raises(AclnnError, match=words) as caught:
        call(**changes)
    assert caught.value.status == 161002


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"product": "910D"}, ConfigError, "unknown product '910D'"),
        ({"rules": "strict"}, ConfigError, "strict"),
        ({"order": "random"}, ConfigError, 'order is .random.; it must be "program", "arrival" or a whole'),
        ({"order": True}, ConfigError, "order is True"),
        ({"l2_start": "tepid"}, AscendSimError, "tepid"),
        ({"accumulation": "block:16"}, ConfigError, "cannot read 'block:16'"),
        ({"output_dtypes": ("float32",)}, ConfigError, "output_dtypes has 1 entries"),
        ({"output_dtypes": ("float33", None, None)}, AscendSimError, "float33"),
        ({"tiling": Tiling(16, 16, 16)}, ConfigError, "computes grad_input and grad_weight"),
        ({"tiling": {"grad_bias": Tiling(16, 16, 16)}}, ConfigError, "it takes grad_input and grad_weight"),
        ({"input": [[1.0], [1.0, 2.0]]}, ShapeError, "cannot be read as an array"),
    ],
    ids=lambda value: str(next(iter(value))) if isinstance(value, dict) else None,
)
def test_options_without_a_meaning_are_refused(changes, error, words):
    with pytest.raises(error, match=words):
        call(**changes)


class Unreadable:
    """An array of another library that must be converted first."""

    shape, dtype = (1, 2, 4, 4), "bfloat16"

    def __array__(self, *_, **__):
        raise RuntimeError("call .detach() first")


def endless():
    while True:
        yield 1


@pytest.mark.parametrize(
    "name", ["fixpipe", "l2_start", "engine", "order", "rules", "product", "deterministic"]
)
@pytest.mark.parametrize("value", [[1], {}, 7.5, b"warm", np.ones(3), np.array(["warm", "cold"]), ("warm",)])
def test_an_option_of_a_wrong_type_is_named(name, value):
    with pytest.raises(ConfigError, match=f"^{name} is "):
        call(**{name: value})


@pytest.mark.parametrize("name", ["product", "rules"])
def test_a_path_with_a_nul_is_named(name):
    with pytest.raises(ConfigError, match="embedded null"):
        call(**{name: "a\0b.toml"})


@pytest.mark.parametrize("name", ["grad_output", "input", "weight"])
@pytest.mark.parametrize(
    "value",
    [np.zeros((1, 2, 4, 4), "V0"), np.array([""] * 4)[:, None][:0], Unreadable(), range(10**12), endless()],
    ids=["V0", "U0", "unreadable", "range", "endless"],
)
def test_a_tensor_that_cannot_be_read_is_named(name, value):
    with pytest.raises(AscendSimError, match=name):
        call(**{name: value})


def test_tensors_of_torch_that_numpy_cannot_read_are_named():
    torch = pytest.importorskip("torch")
    for tensor in (torch.ones(1, 2, 4, 4, requires_grad=True), torch.ones(1, 2, 4, 4, dtype=torch.bfloat16)):
        with pytest.raises(AscendSimError, match=r"input is a Tensor that numpy cannot read .*\.numpy\(\)"):
            call(input=tensor)


@pytest.mark.parametrize(
    "name", ["stride", "padding", "dilation", "output_padding", "bias_sizes", "output_mask"]
)
@pytest.mark.parametrize(
    "value",
    [range(10**12), endless(), "11", b"\1\1", {1: 1}],
    ids=["range", "endless", "text", "bytes", "mapping"],
)
def test_a_list_without_an_end_or_an_order_costs_nothing(name, value):
    with pytest.raises(AclnnError, match=f"check 0 .*: {name} "):
        call(**{name: value})


def test_short_lists_of_any_kind_are_taken():
    assert call(stride=iter((1, 1)), padding=np.array([1, 1])).cycles == call().cycles


@pytest.mark.parametrize("value", [range(10**12), endless()], ids=["range", "endless"])
def test_endless_lists_elsewhere(value):
    with pytest.raises(ShapeError, match=r"stride is .*; it must be a sequence of integers"):
        ConvProblem((1, 2, 4, 4), (3, 2, 3, 3), value)
    with pytest.raises(ConfigError, match="output_dtypes is"):
        call(output_dtypes=value)
    with pytest.raises(ConfigError, match="strides is"):
        estimate(CASE.problem, strides={"input": value})
    with pytest.raises(AscendSimError, match="dtype"):
        estimate(CASE.problem, value)


@pytest.mark.parametrize("name", ["grad_output", "input", "weight"])
@pytest.mark.parametrize("shape", [(), (3,), (3, 4)])
def test_a_tensor_of_too_low_a_rank_is_told_about_itself(name, shape):
    with pytest.raises(AclnnError, match=rf"check 9 \(formats\): {name} has rank {len(shape)}; it must be"):
        call(**{name: np.ones(shape, np.float16)})


@pytest.mark.parametrize("product", ["310B", "310", "Ascend310B1"])
def test_products_without_figures_are_answered_by_the_rules(product):
    for made in (lambda: call(product=product), lambda: estimate(CASE.problem, product=product)):
        with pytest.raises(AclnnError, match="does not support convolution backward") as caught:
            made()
        assert (caught.value.status, caught.value.check) == (161002, "3a (product)")
    (refused,) = estimate_many([Item(CASE.problem, product=product)], workers=1)
    assert refused.status == 161002


@pytest.mark.parametrize(("series", "product"), [("A2", "910B"), ("a3", "910_93"), ("A5", "910_95")])
def test_what_pages_call_a_product_is_a_name_of_it_everywhere(series, product):
    assert load_profile(series) == load_profile(product)
    assert rule_product(series) == product
    assert estimate(CASE.problem, product=series).product == product
    assert main(["check", "--input", "1,2,4,4", "--weight", "3,2,3,3", "--product", series]) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((3, "grad_input", "910B"), "problem is 3; it must be a ConvProblem"),
        ((CASE.problem, np.ones(3), "910B"), "gradient is array"),
        ((CASE.problem, "grad_input", 3), "product is 3; it must be a name"),
    ],
)
def test_tilings_of_nothing_are_refused(arguments, says):
    with pytest.raises(ConfigError, match=says):
        legal_tilings(*arguments)


@pytest.mark.parametrize("overrides", [3, np.ones(2), [("cores.cube", 30)], {3: 3}])
def test_overrides_are_a_table_of_figures(overrides):
    with pytest.raises(ConfigError, match=r"overrides is .*; it must be like"):
        load_profile("910B", overrides)


@pytest.mark.parametrize("items", [3, np.float32, None])
def test_items_are_a_list(items):
    with pytest.raises(ConfigError, match="estimate_many: items is "):
        estimate_many(items)


@pytest.mark.parametrize("value", [np.ones(2), np.zeros(2, "V4"), [], "x" * 10**5])
def test_a_product_of_matrices_names_what_it_cannot_take(value):
    a = np.ones((2, 3), np.float16)
    for name in ("transpose_a", "cube_math_type", "out_dtype"):
        with pytest.raises(AscendSimError, match=r"transpose_a|cube_math_type|dtype") as caught:
            matmul(a, a.T, **{name: value})
        assert len(str(caught.value)) < 500
    assert matmul(a, a.T, cube_math_type="USE_HF32").output.tobytes() == matmul(a, a.T).output.tobytes()


def test_an_estimate_answers_with_the_same_errors():
    with pytest.raises(AclnnError, match="bfloat16") as caught:
        estimate(CASE.problem, "bfloat16", product="310P")
    assert caught.value.status == 161002
    with pytest.raises(ConfigError, match="dtype has 2 names"):
        estimate(CASE.problem, ("float16", "float16"))


def test_tbc_too():
    ones = np.ones((3, 2, 2), np.float16)
    with pytest.raises(AclnnError, match="bias") as caught:
        conv_tbc_backward(ones, ones, np.ones((1, 2, 2), np.float16), None, 0, 0)
    assert caught.value.status == 161001


@pytest.mark.parametrize(
    ("input", "weight", "pad"),
    [
        ((3,), (1, 2, 3), 0),
        ((8, 2, 16), (3, 16), 0),
        (None, None, 0),
        ((8, 2, 16), (30, 16, 32), 0),
        *(((8, 2, 16), (3, 16, 32), pad) for pad in ("x", None, -1)),
    ],
)
def test_a_layer_of_tbc_names_what_it_cannot_take(input, weight, pad):
    with pytest.raises(ShapeError, match=r"input|padding|weight"):
        TbcLayer(input, weight, pad)


# --- Are the shapes of a convolution right, and do problems that do not fit say why? -------------------


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
