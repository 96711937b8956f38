"""Is every mistake an answer of the interface, which says what was got and what the rule is?"""

import itertools

import numpy as np
import pytest

from ascendsim.errors import AclnnError, AscendSimError, ConfigError
from ascendsim.rules import TensorDescription as T
from ascendsim.rules import resolve, rule_product
from ascendsim.rules.typed import GRADIENTS, CubeMathType, dtype_name, format_name, typed
from tests.helpers.calls import answer, changed, conv, tbc

# --- Does a refusal say what was got, and what the rule is? --------------------------------------------

PLAIN = conv((2, 4, 6, 7), (6, 4, 3, 3), groups=1, dtype="float16")
GROUPED = changed(conv(dtype="float16"), {"grad_weight.dtype": "float32"})
EIGHT = conv(
    (2, 4, 6, 7), (4, 6, 3, 3), groups=1, transposed=True, dtype="hifloat8", mask=(True, False, False)
)


def reason(call, product="910B", rules="documented"):
    with pytest.raises(AclnnError) as caught:
        resolve(call, product, rules)
    return caught.value.reason


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bias_sizes": None}, "bias_sizes is null; it must be given"),
        ({"grad_input": None}, "grad_input is null, but output_mask asks for it"),
        (
            {"grad_input": None, "output_mask": (False, True, True)},
            "grad_input is null, but these rules want it whatever output_mask says",
        ),
        (
            {"output_mask": (True,)},
            "output_mask has 1 values; it needs three, for grad_input, grad_weight, grad_bias",
        ),
        ({"input.dtype": "int8"}, "input is int8; calls on 910B take float32, float16, bfloat16"),
        ({"grad_input.dtype": "float32"}, "grad_input is float32, but input is float16; it must be the same"),
        ({"weight": T((1, 2), "float16")}, "weight has rank 2; it must be one of 3, 4, 5"),
        ({"weight.format": "NHWC"}, "weight of rank 4 has format NHWC; it must be NCHW"),
        ({"grad_bias.format": "NCL"}, "grad_bias has format NCL; it must be ND"),
        ({"dilation": (1, 0)}, "dilation is (1, 0); every value must be at least 1"),
        (
            {"output_padding": (1, 0)},
            "output_padding is (1, 0); it must be zeros where the convolution is not transposed",
        ),
        ({"groups": -3}, "groups is -3; it must be at least 1"),
        (
            {"cube_math_type": 9},
            "cube_math_type is 9; it must be one of 0 (KEEP_DTYPE), 1 (ALLOW_FP32_DOWN_PRECISION), "
            "2 (USE_FP16), 3 (USE_HF32)",
        ),
        (
            {"cube_math_type": "HF32"},
            "cube_math_type is 'HF32'; it must be an integer, or one of KEEP_DTYPE, "
            "ALLOW_FP32_DOWN_PRECISION, USE_FP16, USE_HF32",
        ),
        (
            {"grad_output.shape": (0, 6, 6, 7)},
            "grad_output (0, 6, 6, 7) is empty; none of its extents may be 0 unless input or weight is "
            "empty, too",
        ),
        (
            {"grad_input.shape": (2, 4, 6, 8)},
            "grad_input is (2, 4, 6, 8), but input is (2, 4, 6, 7); they must be equal",
        ),
        ({"grad_bias.shape": (1, 6)}, "grad_bias is (1, 6); it must be (6,), the channels of grad_output"),
        ({"stride": (1,)}, "stride has 1 values (1,); rank 4 needs 2"),
        ({"padding": (1, 1, 1)}, "padding has 3 values (1, 1, 1); rank 4 needs 2 or 4"),
        ({"bias_sizes": (1,)}, "bias_sizes is (1,); it must be (6,), that is weight.shape[0]"),
        (
            {"groups": 2},
            "input has 4 channels, but weight.shape[1] * groups is 4 * 2; they must be equal",
        ),
        (
            {"dilation": (9, 1)},
            "along H the dilated kernel spans 19, more than input with padding, 8",
        ),
        (
            {"grad_output.shape": (2, 6, 6, 9)},
            "grad_output is 9 along W, but input 7, padding 1+1, kernel 3, dilation 1, stride 1 give 7",
        ),
        ({"grad_output.shape": (3, 6, 6, 7)}, "grad_output has batch 3, input 2; they must be equal"),
    ],
)
def test_what_the_pages_refuse(changes, said):
    assert reason(changed(PLAIN, changes)) == said


TRANSPOSED = conv((2, 4, 6, 7), (4, 6, 3, 3), groups=1, transposed=True, dtype="float16")


@pytest.mark.parametrize(
    ("call", "product", "rules", "said"),
    [
        (
            changed(TRANSPOSED, {"weight.shape": (8, 6, 3, 3), "grad_weight.shape": (8, 6, 3, 3)}),
            "910B",
            "documented",
            "input has 4 channels, but weight.shape[0] is 8; they must be equal",
        ),
        (
            changed(TRANSPOSED, {"output_padding": (-1, 0)}),
            "910B",
            "shipped",
            "output_padding is (-1, 0); every value must be at least 0",
        ),
        (
            changed(tbc(), {"input.shape": (7, 2)}),
            "910B",
            "shipped",
            "input (7, 2) has rank 2; it must be 3",
        ),
        (changed(tbc(), {"bias.shape": (4, 1)}), "910B", "shipped", "bias (4, 1) has rank 2; it must be 1"),
        (
            changed(PLAIN, {"cube_math_type": 3}),
            "910B",
            "documented-001",
            "cube_math_type is 3 (USE_HF32), which is not supported where the inputs are float16; allowed "
            "there: 0, 1, 2",
        ),
        (
            changed(PLAIN, {"weight.dtype": "float32", "grad_weight.dtype": "float32"}),
            "310P",
            "documented",
            "cube_math_type is 0 (KEEP_DTYPE), which is not supported where the inputs promote to float32; "
            "allowed there: 1, 2",
        ),
        (
            changed(PLAIN, {"grad_output.dtype": "float32", "grad_bias.dtype": "float32"}),
            "910B",
            "documented-004",
            "grad_input is float16, but input is float16 and grad_output is float32; it must be the more "
            "precise, float32",
        ),
        (
            PLAIN,
            "310",
            "shipped",
            "310 does not support convolution backward; supported are 910_95, 910_93, 910B, 310P, 910",
        ),
        (
            changed(EIGHT, {f"{name}.dtype": "float8_e4m3fn" for name in EIGHT.tensors}),
            "910_95",
            "shipped",
            "grad_output is float8_e4m3fn; transposed calls on 910_95 take float32, float16, bfloat16, "
            "hifloat8",
        ),
        (
            changed(EIGHT, {"output_mask": (False, True, False)}),
            "910_95",
            "documented",
            "grad_output is hifloat8; 8-bit tensors need transposed and output_mask[0]",
        ),
        (
            changed(EIGHT, {"weight.dtype": "float16", "grad_weight.dtype": "float16"}),
            "910_95",
            "shipped",
            "grad_input of 8-bit tensors needs one dtype everywhere, got grad_output hifloat8, "
            "input hifloat8, weight float16, grad_input hifloat8, grad_bias hifloat8",
        ),
        (
            GROUPED,
            "910B",
            "shipped",
            "grad_weight is float32 with 2 groups in 3-D; float16 inputs cannot give it",
        ),
        (
            changed(conv(), {"cube_math_type": 2}),
            "910B",
            "shipped",
            "grad_weight is float32 with 2 groups in 3-D; cube_math_type 2 (USE_FP16) cannot give it",
        ),
        (
            conv((2, 4, 6, 7), (5, 2, 3, 3), groups=2),
            "910B",
            "documented",
            "grad_output has 5 channels, which 2 groups do not divide",
        ),
        (
            conv((2, 4, 5, 6, 7), (4, 2, 3, 3, 3), groups=2, dtype="bfloat16"),
            "910B",
            "documented-004",
            "groups is 2, grad_output and input have 4, 4 channels; 3-D bfloat16 with groups needs all three "
            "equal",
        ),
        (
            conv((1, 1, 9), (1, 1, 1), groups=1, padding=256),
            "910B",
            "documented",
            "padding along W is 256; it may not exceed 255 (page 000, padding)",
        ),
        (
            conv((0, 4, 6, 7), (6, 4, 9, 3), groups=1, padding=1, grad_output=(0, 6, 1, 7)),
            "910B",
            "documented",
            "along H the dilated kernel spans 9, more than input with padding, 8",
        ),
        (changed(tbc(), {"bias": None}), "910B", "documented", "bias is null; it must be given"),
        (
            conv((2, 4, 6, 7), (0, 4, 3, 3), groups=1, dtype="float16"),
            "910",
            "documented",
            "grad_output (2, 0, 6, 7) is empty; none of its extents may be 0",
        ),
        (
            changed(tbc(), {"grad_output.shape": (0, 2, 4)}),
            "910B",
            "shipped",
            "grad_output (0, 2, 4) is empty; none of its extents may be 0",
        ),
        (
            conv((0, 4, 6, 7), (6, 0, 3, 3), groups=1),
            "910B",
            "shipped",
            "input has 4 channels, but weight.shape[1] * groups is 0 * 1; they must be equal",
        ),
        (
            changed(
                conv((0, 4, 6, 7), (4, 6, 3, 3), groups=1, transposed=True), {"input.shape": (0, 3, 6, 7)}
            ),
            "910B",
            "shipped",
            "weight.shape[0] is 4, but input has 3 channels; they must be equal",
        ),
        (tbc(pad=256), "910B", "documented", "pad is 256; it may not exceed 255 (page 003, pad)"),
        (
            changed(tbc(), {"pad": 2}),
            "910B",
            "documented",
            "grad_output is (7, 2, 4), but input 7, pad 2 and kernel 3 give (9, 2, 4)",
        ),
    ],
)
def test_what_a_rule_set_refuses(call, product, rules, said):
    assert reason(call, product, rules) == said


@pytest.mark.parametrize(("taps", "pad", "most"), [(200, 0, 256), (205, 6, 250)])
def test_padding_derived_for_grad_input(taps, pad, most):
    # One placement of a kernel of 200 on 256 columns at stride 63 leaves 56 columns: behind grad_output
    # (200 - 1) + 56 = 255 columns of padding are needed; one column more is one too many. Of one of 205 on
    # 250 columns that are padded by 6 it leaves 51 + 6: (205 - 1 - 6) + 57 = 255 once more.
    for width, fits in ((most, True), (most + 1, False)):
        call = conv(
            (1, 1, 1, 1, width),
            (1, 1, 1, 1, taps),
            groups=1,
            padding=(0, 0, pad),
            stride=63,
            dtype="float16",
            mask=(True, False, False),
        )
        assert call.grad_output.shape[-1] == 1
        if fits:
            resolve(call, "910B", "shipped")
        else:
            assert reason(call, "910B", "shipped").startswith("backward padding along W is 256")


def test_a_plain_decision():
    decision = resolve(PLAIN)
    assert (decision.api, decision.product, decision.rules) == (
        "aclnnConvolutionBackward",
        "910B",
        "documented",
    )
    assert (decision.output_padding, decision.warnings) == ((0, 0), ())
    assert (decision.empty, decision.empty_grad_bias, decision.compute_dtype) == (False, "sum", "float16")
    assert set(decision.dtypes) == set(PLAIN.tensors)
    assert resolve(tbc()).wanted == (True, True, True)


# --- Is every wrong type an answer of the interface, whatever object it is? ----------------------------


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


@pytest.mark.parametrize("name", ["", "920", "910D", "310X"])
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


def test_a_kernel_that_no_product_has_is_named(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text('base = "shipped"\n[convolution.eight_bit]\nneeds_transposed_grad_input = "never"\n')
    call = conv((2, 4, 6, 7), (5, 4, 3, 3), groups=1, dtype="hifloat8", mask=(True, False, False))
    assert reason(call, "910_95", path) == "no kernel computes grad_input of hifloat8, not transposed"
