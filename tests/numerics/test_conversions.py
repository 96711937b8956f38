"""Are the conversions around the cube those of the product: casts, HF32, Fixpipe, sums of parts?"""

import ml_dtypes
import numpy as np
import pytest

from ascendsim import ConvProblem, convolution_backward, load_profile
from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.formats.casts import encode
from ascendsim.ops.lowering.call import Call
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.options.call import Options
from tests.helpers.operator_calls import as_carrier, names
from tests.helpers.requests import plans_of
from tests.helpers.toy_profiles import toy_split, toy_unified

PRODUCTS = ("910B", "910_93", "910_95", "310P", "910")
ALL = (True, True, True)
ONE = ConvProblem((1, 1, 1, 1), (1, 1, 1, 1))


def one(grad_output, input, weight, *, dtype=np.float32, **options):
    """Run a convolution of one number with one number; return its three gradients as floats."""
    arrays = [np.full((1, 1, 1, 1), value, dtype) for value in (grad_output, input, weight)]
    cube_math_type = options.pop("cube_math_type", 0)
    result = convolution_backward(*arrays, [1], 1, 0, 1, False, 0, 1, ALL, cube_math_type, **options)
    return [
        float(np.asarray(g).reshape(())) for g in (result.grad_input, result.grad_weight, result.grad_bias)
    ]


# Casts before the cube


def test_use_fp16_rounds_the_inputs_to_even_and_not_the_bias():
    # 1 + 2**-11 lies half way between two halves and goes to 1; 1 + 3 * 2**-11 goes up to 1 + 2**-9.
    # grad_bias is the sum of grad_output as it came.
    up = 1 + 3 * 2**-11
    assert one(1 + 2**-11, up, up, cube_math_type=2) == [1 + 2**-9, 1 + 2**-9, 1 + 2**-11]


def test_hf32_has_no_cast_kernel_and_fp16_has_one_for_each_input():
    given = [np.ones((2, 2, 4, 4), np.float32)] * 2 + [np.ones((2, 2, 1, 1), np.float32)]

    def call(kind):
        made = names(convolution_backward(*given, [2], 1, 0, 1, False, 0, 1, ALL, kind))
        return [name for name in made if not name.startswith("transdata_")]

    # Gradients are planned as the product's library does: a core for each image, so that zeros come first to
    # which both add.
    assert call(1) == call(3) == call(0) == ["grad_bias", "grad_input", "memset_grad_weight", "grad_weight"]
    casts = ["cast_grad_output", "cast_weight", "cast_input"]
    assert call(2) == [
        "grad_bias",
        *casts,
        "grad_input",
        "cast_grad_input",
        "memset_grad_weight",
        "grad_weight",
    ]


@pytest.mark.parametrize(
    ("mask", "needed"),
    [
        ((True, False, False), {"grad_output", "weight"}),
        ((False, True, False), {"grad_output", "input"}),
        ((False, False, True), set()),
    ],
)
def test_only_what_is_multiplied_is_cast(mask, needed):
    given = [np.ones((1, 1, 2, 2), np.float32)] * 2 + [np.ones((1, 1, 1, 1), np.float32)]
    result = convolution_backward(*given, [1], 1, 0, 1, False, 0, 1, mask, 2)
    cast = {name.removeprefix("cast_") for name in names(result) if name.startswith("cast_")}
    assert cast - {"grad_input"} == needed


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_cast_beyond_the_largest_half_overflows_as_the_product_does(product):
    # 910 and 310P only saturate; the others deliver Inf. 65504 is the largest half.
    limit = 65504.0 if product in ("910", "310P") else np.inf
    grad_input, grad_weight, grad_bias = one(1.0, 1e5, -1e5, product=product, cube_math_type=2)
    assert (grad_input, grad_weight, grad_bias) == (-limit, limit, 1.0)


@pytest.mark.parametrize("product", ["910", "310P"])
def test_a_saturating_cast_makes_zero_of_nan(product):
    grad_input, grad_weight, _ = one(1.0, np.nan, 2.0, product=product, cube_math_type=1)
    assert (grad_input, grad_weight) == (2.0, 0.0)


# HF32 inside the cube


@pytest.mark.parametrize(("product", "bits"), [("910B", 11), ("910_93", 11), ("910_95", 10)])
@pytest.mark.parametrize("cube_math_type", [1, 3])
def test_hf32_keeps_the_bits_of_the_product_and_ties_to_even(product, bits, cube_math_type):
    # Half a unit of the last kept bit: 1 + half is a tie whose even neighbour is 1, 1 + 3 half one whose even
    # neighbour is 1 + 4 half. Ties away from zero would give 1 + 2 half for the first.
    half = 2.0 ** -(bits + 1)
    # Two columns, of which the second adds zeros: a kernel as large as the image would be a matrix product.
    row, weight = np.array([[[[1 + half, 0]]]], np.float32), np.full((1, 1, 1, 1), 1 + 3 * half, np.float32)
    other = np.array([[[[1, 0]]]], np.float32)
    rest = [1], 1, 0, 1, False, 0, 1, ALL, cube_math_type
    # Two images, as 910_95 makes those of one image with one tap by matrix products.
    pair = [np.concatenate([values, np.zeros_like(values)]) for values in (other, row)]
    result = convolution_backward(*pair, weight, *rest, product=product)
    assert result.grad_input.flatten().tolist() == [1 + 4 * half, 0, 0, 0]
    assert (result.grad_weight.item(), result.grad_bias.item()) == (1, 1)


@pytest.mark.parametrize(("product", "bits"), [("910B", 11), ("910_93", 11), ("910_95", 10)])
def test_hf32_of_a_matrix_product_rounds_ties_away_from_zero(product, bits):
    # A kernel as large as the image: 1 + half goes up to 1 + 2 half, and 1 + 3 half to 1 + 4 half.
    half = 2.0 ** -(bits + 1)
    got = one(1.0, 1 + half, 1 + 3 * half, product=product, cube_math_type=3)
    assert got == [1 + 4 * half, 1 + 2 * half, 1.0]


def test_hf32_leaves_the_bias_and_the_output_alone():
    # 1 + 2**-20 is no HF32 number; the sum of grad_output and a float32 result keep it.
    tiny = 2.0**-20
    arrays = [
        np.full((1, 1, 1, 2), 1, np.float32),
        np.array([[[[1, tiny]]]], np.float32),
        np.ones((1, 1, 1, 1), np.float32),
    ]
    arrays[0][..., 0] += tiny
    result = convolution_backward(*arrays, [1], 1, 0, 1, False, 0, 1, ALL, 3)
    assert result.grad_weight.item() == 1 + tiny  # 1 * 1 + 1 * tiny, not rounded to HF32 at the end
    assert result.grad_bias.item() == 2 + tiny


@pytest.mark.parametrize("product", PRODUCTS)
def test_every_convolution_kernel_leaves_the_rounding_of_hf32_at_even(product):
    assert load_profile(product).generation.hf32_ties == {
        "convolution_backward": "RNE",
        "convolution_forward": "RNE",
        "matmul": "RNA",
    }


@pytest.mark.parametrize("transposed", [False, True])
def test_the_tie_rule_sits_on_the_kernel(transposed):
    problem = ConvProblem((1, 2, 3, 3), (2, 2, 2, 2), transposed=transposed)
    kernels = lower(resolved(problem, "hf32"), ALL).kernels
    assert {kernel.name: kernel.math.hf32_ties for kernel in kernels if kernel.macs} == {
        "grad_input": "RNE",
        "grad_weight": "RNE",
    }


def resolved(problem, compute, profile="910B", dtypes=None, **fields):
    profile = load_profile(profile) if isinstance(profile, str) else profile
    kept = "float32" if compute == "hf32" else compute
    all_names = ("grad_output", "input", "weight", "grad_input", "grad_weight", "grad_bias")
    model = AccumulationModel.parse(profile.accumulation[compute])
    formats = dict.fromkeys(all_names, kept) | (dtypes or {})
    plans = plans_of(problem, ("grad_input", "grad_weight"), compute, profile, {}, {})
    return Call(problem, profile, compute, formats, model, True, plans, **fields)


# Fixpipe


@pytest.mark.parametrize(
    ("product", "dtype", "expected"),
    [
        ("910B", np.float16, np.inf),
        ("910_93", np.float16, np.inf),
        ("910_95", np.float16, np.inf),
        ("310P", np.float16, 65504.0),
        ("910", np.float16, 65504.0),
        # 256 * 256 = 2**16 is far inside bfloat16
        ("910B", ml_dtypes.bfloat16, 65536.0),
    ],
)
def test_a_result_beyond_the_format_overflows_as_the_product_does(product, dtype, expected):
    assert one(256.0, 1.0, 256.0, dtype=dtype, product=product)[0] == expected


@pytest.mark.parametrize(
    ("product", "dtype", "saturates"),
    [
        ("910B", "float16", True),
        ("910B", "bfloat16", True),
        ("910_95", "float16", False),
        ("910_95", "bfloat16", True),
    ],
)
def test_the_c_api_pages_exclude_some_fixpipe_conversions(product, dtype, saturates):
    call = resolved(ONE, dtype, product)
    paged = resolved(ONE, dtype, product, fixpipe="c-api-pages")
    assert call.cube_math("convolution_backward", dtype).overflow == "ieee"
    assert paged.cube_math("convolution_backward", dtype).overflow == ("saturate" if saturates else "ieee")
    # vector kernels are not meant, and float32 is not converted
    assert paged.cube_math("convolution_backward", dtype, by_vector=True).overflow == "ieee"
    assert paged.math("grad_weight").overflow == "ieee"


def test_the_fixpipe_preset_reaches_the_results():
    assert one(256.0, 1.0, 256.0, dtype=np.float16, fixpipe="c-api-pages")[0] == 65504.0
    with pytest.raises(ConfigError, match="fixpipe is 'always'; it must be one of ctrl48, c-api-pages"):
        one(1.0, 1.0, 1.0, fixpipe="always")


def test_a_machine_of_ones_own_delivers_inf():
    for profile in (toy_split(), toy_unified()):
        assert (
            resolved(ONE, "float16", profile).cube_math("convolution_backward", "float16").overflow == "ieee"
        )


# (format, (a, b) of the products that are added, what their sum becomes)
EIGHT_BIT = [
    ("float8_e4m3fn", [(448.0, 1.0), (16.0, 1.0)], 448.0),  # 464, half a unit above the largest, to even
    ("float8_e4m3fn", [(448.0, 1.0), (24.0, 1.0)], np.nan),  # 472 is beyond, and there is no Inf
    ("float8_e4m3fn", [(16.0, 1.0), (1.0, 1.0)], 16.0),  # 17, a tie of 16 and 18, to even
    ("float8_e4m3fn", [(16.0, 1.0), (3.0, 1.0)], 20.0),  # 19, a tie of 18 and 20
    ("float8_e5m2", [(57344.0, 1.0), (4096.0, 1.0)], np.inf),  # 61440, half a unit above the largest
    ("float8_e5m2", [(57344.0, 1.0), (3584.0, 1.0)], 57344.0),
    ("hifloat8", [(32768.0, 1.0), (8192.0, 1.0)], np.inf),  # 1.25 * 2**15 goes to the slot of Inf
    ("hifloat8", [(32768.0, 1.0), (4096.0, 1.0)], 32768.0),
    ("hifloat8", [(16.0, 1.0), (1.0, 1.0)], 16.0),
    ("hifloat8", [(16.0, 1.0), (2.0, 1.0)], 20.0),  # 18, a tie of 16 and 20, away from zero
    ("hifloat8", [(2.0**-12, 2.0**-12), (0.0, 1.0)], 0.0),  # 2**-24, below half the smallest, 2**-22
    ("hifloat8", [(2.0**-11, 2.0**-12), (0.0, 1.0)], 2.0**-22),  # 2**-23, a tie, away from zero
]


@pytest.mark.parametrize(("dtype", "products", "expected"), EIGHT_BIT)
def test_eight_bit_results_leave_the_cube_rounded_once(dtype, products, expected):
    grad_output = np.array([a for a, _ in products], np.float32).reshape(1, 2, 1, 1)
    weight = np.array([b for _, b in products], np.float32).reshape(2, 1, 1, 1)
    got = eight_bit_grad_input(dtype, grad_output, weight)
    assert np.array_equal(got, expected, equal_nan=True)


def eight_bit_grad_input(dtype, grad_output, weight):
    given = [encode(x, dtype) for x in (grad_output, np.ones((1, 1, 1, 1), np.float32), weight)]
    result = convolution_backward(
        *given, [2], 1, 0, 1, False, 0, 1, (True, False, False), 0, product="910_95", rules="hardware"
    )
    return as_carrier(result.grad_input).item()


# Half accumulators


def test_half_accumulation_rounds_every_step():
    # 2048 + 1 + 1 + ...: a half accumulator stays at 2048, whose neighbour is 2050.
    grad_output = np.array([2048.0] + [1.0] * 3, np.float16).reshape(1, 4, 1, 1)
    given = (grad_output, np.ones((1, 1, 1, 1), np.float16), np.ones((4, 1, 1, 1), np.float16))

    def run(model, product):
        options = {"accumulation": model, "product": product}
        return convolution_backward(*given, None, 1, 0, 1, False, 0, 1, (True, False, False), 0, **options)

    assert run("fp16-acc(seq:RNE)", "310P").grad_input.item() == 2048.0
    assert run("seq:RNE", "310P").grad_input.item() == 2052.0  # 2051 rounds to even
    said = [
        any("cannot accumulate" in note for note in run("fp16-acc(seq:RNE)", p).notes)
        for p in ("310P", "910", "910B")
    ]
    assert said == [False, False, True]


def test_a_format_that_the_cube_lacks_is_refused_by_name():
    profile = load_profile("910B")
    with pytest.raises(UnsupportedError, match="the cube of 910B2 does not multiply hifloat8"):
        Options(product=profile).model("hifloat8")
