"""Does every mistake in a call get an error that says what was got and what to do?"""

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
from ascendsim.rules import rule_product
from tests.helpers.operator_calls import ApiCall

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
        ({"product": "910C"}, ConfigError, "unknown product '910C'"),
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
@pytest.mark.parametrize("value", [[], {}, 7.5, b"warm", np.ones(3), np.array(["warm", "cold"]), ("warm",)])
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
