"""Does every mistake in a call get an error that says what was got and what to do?"""

import numpy as np
import pytest

from ascendsim import ConvProblem, Tiling, conv_tbc_backward, convolution_backward, estimate
from ascendsim.errors import AclnnError, AscendSimError, ConfigError, ShapeError
from tests.operator_calls import ApiCall

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
