"""Is every wrong type an answer of the interface, whatever object it is?"""

import itertools

import numpy as np
import pytest

from ascendsim.errors import AclnnError, AscendSimError, ConfigError
from ascendsim.rules import TensorDescription as T
from ascendsim.rules import resolve, rule_product
from ascendsim.rules.typed import GRADIENTS, CubeMathType, dtype_name, format_name, typed
from tests.helpers.rules_calls import answer, changed, conv, tbc


class Hostile:
    """Fails at whatever it is asked."""

    def fail(self, *_):
        raise RuntimeError

    __len__ = __index__ = __bool__ = __iter__ = __getitem__ = __getattr__ = __repr__ = fail


def kind(value):
    return type(value).__name__ if not isinstance(value, str) else value


WRONG = [
    *("text", b"bytes", 1.5, {"a": 1}, {1, 2}, object(), Hostile(), itertools.count(), [[1]], [None]),
    *(np.float32(1), 1 << 70, float("nan"), lambda: 0, range(1 << 40), [1] * 1000, type),
]


@pytest.mark.parametrize("value", WRONG, ids=kind)
@pytest.mark.parametrize(
    "field",
    [
        *("grad_output", "input.shape", "grad_bias.strides", "stride", "output_padding", "bias_sizes"),
        *("transposed", "groups", "cube_math_type", "output_mask"),
    ],
)
def test_a_wrong_type_is_found_first(field, value):
    call = changed(conv(), {"input.dtype": "float64", field: value})
    assert answer(call, "910B", "shipped") == (161002, "0")


@pytest.mark.parametrize("field", ["dtype", "format"])
@pytest.mark.parametrize(
    "value", [1, 1.5, b"NCHW", (), Hostile(), "x" * 10**6], ids=lambda v: type(v).__name__
)
def test_a_dtype_or_format_without_a_name(field, value):
    assert answer(changed(conv(), {f"input.{field}": value})) == (161002, "0")


@pytest.mark.parametrize("field", ["transposed", "groups", "cube_math_type"])
def test_none_is_a_null_pointer_only_for_pointers(field):
    assert answer(changed(conv(), {field: None})) == (161002, "0")
    assert answer(changed(tbc(), {"pad": None})) == (161002, "0")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"groups": (1 << 31) - 1}, (161002, "22")),
        ({"groups": 1 << 31}, (161002, "0")),  # a C int has 32 bits
        ({"groups": -(1 << 31)}, (161002, "13")),
        ({"groups": -(1 << 31) - 1}, (161002, "0")),
        ({"stride": (1 << 63, 1, 1)}, (161002, "0")),
        ({"padding": ((1 << 63) - 1, 1, 1)}, (161002, "24")),
        ({"input.shape": (2, 4, -5, 6, 7)}, (161002, "0")),
        ({"input.strides": (1, 1)}, (161002, "0")),
        ({"cube_math_type": 1 << 40}, (161002, "14")),
        ({"transposed": 2}, (161002, "0")),
        ({"output_mask": (1, 0, 2)}, (161002, "0")),
        ({"groups": True}, (161002, "0")),
    ],
)
def test_where_numbers_end(changes, expected):
    assert answer(changed(conv(), changes)) == expected


def test_numpy_values_are_as_good_as_pythons():
    call = changed(
        conv(),
        {
            "stride": np.ones(3, np.int32),
            "groups": np.int64(2),
            "transposed": np.bool_(False),
            "output_mask": np.array([True, False, True]),
            "input.shape": [np.int16(n) for n in (2, 4, 5, 6, 7)],
            "input.dtype": np.dtype("float32"),
            "weight.dtype": np.float32,
        },
    )
    decision = resolve(call)
    assert decision.wanted == (True, False, True)
    assert decision.dtypes["weight"] == "float32"
    assert typed(call).input.shape == (2, 4, 5, 6, 7)
    assert all(type(extent) is int for extent in typed(call).input.shape)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("FLOAT", "float32"),
        ("ACL_FLOAT16", "float16"),
        ("DT_BFLOAT16", "bfloat16"),
        ("BF16", "bfloat16"),
        ("torch.float32", "float32"),
        ("HIFLOAT8", "hifloat8"),
        ("FLOAT8_E4M3FN", "float8_e4m3fn"),
        ("undefined", "undefined"),
        (3, None),
        (None, None),
    ],
)
def test_spellings_of_dtypes(given, name):
    assert dtype_name(given) == name


@pytest.mark.parametrize(
    ("given", "rank", "name"),
    [
        (None, 3, "NCL"),
        (None, 4, "NCHW"),
        (None, 5, "NCDHW"),
        (None, 1, "ND"),
        ("ACL_FORMAT_NCHW", 4, "NCHW"),
        ("FORMAT_ND", 4, "ND"),
        ("nchw", 4, "NCHW"),
        (7, 4, None),
    ],
)
def test_spellings_of_formats(given, rank, name):
    assert format_name(given, rank) == name


def test_the_interface_numbers_what_the_cube_computes_in():
    names = ["KEEP_DTYPE", "ALLOW_FP32_DOWN_PRECISION", "USE_FP16", "USE_HF32"]
    assert [(one.name, one.value) for one in CubeMathType] == [(name, at) for at, name in enumerate(names)]


def test_usual_outputs_of_a_call():
    call = conv()
    bare = changed(
        call, {"grad_input": None, "grad_weight": None, "grad_bias": None, "bias_sizes": None}
    ).with_usual_outputs((None, "float16", None))
    assert bare == changed(call, {"grad_weight.dtype": "float16"})
    nothing = changed(bare, {"input": None, "grad_input": None, "grad_output": 5, "bias_sizes": None})
    assert nothing.with_usual_outputs().grad_input is None


def test_usual_outputs_have_the_format_of_their_own_tensor_and_the_strides_that_are_asked_for():
    none = dict.fromkeys(("grad_input", "grad_weight", "grad_bias", "bias_sizes"))
    mixed = {"grad_output.dtype": "bfloat16", "input.dtype": "float32", "weight.dtype": "float16"}
    bare = changed(conv(), none | mixed)
    made = bare.with_usual_outputs(strides=((9,), (8,), (7,)))
    assert [getattr(made, name).dtype for name in GRADIENTS] == ["float32", "float16", "bfloat16"]
    assert [getattr(made, name).strides for name in GRADIENTS] == [(9,), (8,), (7,)]
    # grad_bias is ND and has a value for each channel of grad_output.
    assert made.grad_bias == T(bare.grad_output.shape[1:2], "bfloat16", "ND", (7,))


def test_an_error_says_everything():
    with pytest.raises(AclnnError) as caught:
        resolve(changed(conv(), {"stride": (0, 1, 1)}))
    error = caught.value
    assert isinstance(error, AscendSimError)
    assert (error.status, error.name) == (161002, "ACLNN_ERR_PARAM_INVALID")
    assert str(error) == (
        "161002 ACLNN_ERR_PARAM_INVALID, check 11 (stride, padding, dilation): stride is (0, 1, 1); "
        "every value must be at least 1"
    )


@pytest.mark.parametrize(
    ("name", "family"),
    [
        *(("910B", "910B"), ("910b3", "910B"), ("Ascend910B2C", "910B"), ("A2", "910B")),
        *(("910_93", "910_93"), ("910_9382", "910_93"), ("Ascend910_93", "910_93")),
        *(("910_95", "910_95"), ("Ascend950", "910_95"), ("950PR_9589", "910_95"), ("950DT_9571", "910_95")),
        *(("310P", "310P"), ("Ascend310P3", "310P"), ("910", "910"), ("Ascend910A", "910")),
        *(("910ProB", "910"), ("910B_old_1001", "910"), ("310B1", "310B"), ("Ascend310", "310")),
    ],
)
def test_names_of_products(name, family):
    assert rule_product(name) == family


def test_a_profile_names_its_product_or_its_architecture():
    class Profile:
        product, npu_arch = "910_93", "2201"

    assert rule_product(Profile()) == "910_93"
    Profile.product = "my own"
    assert rule_product(Profile()) == "910B"  # the first of that architecture
    Profile.npu_arch = "9999"
    with pytest.raises(ConfigError, match="unknown product 'my own'"):
        rule_product(Profile())


@pytest.mark.parametrize("name", ["", "920", "910C", "310X"])
def test_an_unknown_product_is_no_status(name):
    with pytest.raises(ConfigError, match="unknown product"):
        resolve(conv(), name)


def test_a_description_is_not_checked_before_it_is_used():
    assert T(5, None).shape == 5


def test_refusals_are_short_whatever_was_given():
    for value in ("x" * 10**6, list(range(10**5)), {n: n for n in range(10**4)}, b"y" * 10**6):
        with pytest.raises(AclnnError) as caught:
            resolve(changed(conv(), {"groups": value}))
        assert len(str(caught.value)) < 200
        assert "groups is" in str(caught.value)
