"""Does a refusal say what was got, and what the rule is?"""

import pytest

from ascendsim.errors import AclnnError
from ascendsim.rules import TensorDescription as T
from ascendsim.rules import resolve
from tests.helpers.rules_calls import changed, conv, tbc

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


def test_padding_derived_for_grad_input():
    # One placement of a kernel of 200 on 256 columns at stride 63 leaves 56 columns: behind grad_output
    # (200 - 1) + 56 = 255 columns of padding are needed; one column more is one too many.
    for width, fits in ((256, True), (257, False)):
        call = conv(
            (1, 1, 1, 1, width),
            (1, 1, 1, 1, 200),
            groups=1,
            padding=0,
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
