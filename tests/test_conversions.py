"""Are the conversions around the cube those of the product: casts, HF32, Fixpipe, sums of parts?"""

import ml_dtypes
import numpy as np
import pytest

from ascendsim import ConvProblem, Tiling, convolution_backward, load_profile
from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.functional import run_kernel
from ascendsim.numerics.casts import encode
from ascendsim.numerics.models import AccumulationModel
from ascendsim.numerics.settings import MathSettings
from ascendsim.ops.call import Call, gm_tensor
from ascendsim.ops.generations import GENERATIONS, HF32_TIES, UNKNOWN, generation
from ascendsim.ops.lowering import lower
from ascendsim.ops.options import Options
from ascendsim.ops.reference import add_as_tree, add_in_order
from ascendsim.ops.reference_call import reference_gradients
from ascendsim.ops.vector_kernels import ordered_sum, tree_sum
from ascendsim.program import Kernel
from ascendsim.timing import time_kernel
from tests.conv_cases import assert_same_bits
from tests.operator_calls import ApiCall, as_carrier, check_against_reference
from tests.toy_profiles import toy_split, toy_unified

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


def names(result):
    return [kernel.name for kernel in result.kernels]


# Casts before the cube


def test_use_fp16_rounds_the_inputs_to_even_and_not_the_bias():
    # 1 + 2**-11 lies half way between two halves and goes to 1; 1 + 3 * 2**-11 goes up to 1 + 2**-9.
    # grad_bias is the sum of grad_output as it came.
    up = 1 + 3 * 2**-11
    assert one(1 + 2**-11, up, up, cube_math_type=2) == [1 + 2**-9, 1 + 2**-9, 1 + 2**-11]


def test_hf32_has_no_cast_kernel_and_fp16_has_one_for_each_input():
    given = [np.ones((1, 2, 4, 4), np.float32)] * 2 + [np.ones((2, 2, 1, 1), np.float32)]

    def call(kind):
        return names(convolution_backward(*given, [2], 1, 0, 1, False, 0, 1, ALL, kind))

    assert call(1) == call(3) == call(0) == ["grad_bias", "grad_input", "grad_weight"]
    casts = ["cast_grad_output", "cast_weight", "cast_input"]
    assert call(2) == ["grad_bias", *casts, "grad_input", "cast_grad_input", "grad_weight"]


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
    got = one(1.0, 1 + half, 1 + 3 * half, product=product, cube_math_type=cube_math_type)
    assert got == [1 + 4 * half, 1.0, 1.0]


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


def test_every_convolution_kernel_leaves_the_rounding_of_hf32_at_even():
    assert HF32_TIES == {
        "convolution backward": "RNE",
        "convolution forward": "RNE",
        "matrix product": "RNA",
    }


@pytest.mark.parametrize("transposed", [False, True])
def test_the_tie_rule_sits_on_the_kernel(transposed):
    problem = ConvProblem((1, 2, 3, 3), (2, 2, 2, 2), transposed=transposed)
    kernels = [step.kernel for step in lower(resolved(problem, "hf32"), ALL)]
    assert {kernel.name: kernel.math.hf32_ties for kernel in kernels if kernel.macs} == {
        "grad_input": "RNE",
        "grad_weight": "RNE",
    }


def resolved(problem, compute, profile="910B", dtypes=None, **fields):
    profile = load_profile(profile) if isinstance(profile, str) else profile
    kept = "float32" if compute == "hf32" else compute
    all_names = ("grad_output", "input", "weight", "grad_input", "grad_weight", "grad_bias")
    model = AccumulationModel.parse(profile.accumulation[compute])
    return Call(
        problem, profile, compute, dict.fromkeys(all_names, kept) | (dtypes or {}), model, True, {}, **fields
    )


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
    assert call.cube_math("convolution backward", dtype).overflow == "ieee"
    assert paged.cube_math("convolution backward", dtype).overflow == ("saturate" if saturates else "ieee")
    # vector kernels are not meant, and float32 is not converted
    assert paged.cube_math("convolution backward", dtype, by_vector=True).overflow == "ieee"
    assert paged.math.overflow == "ieee"


def test_the_fixpipe_preset_reaches_the_results():
    assert one(256.0, 1.0, 256.0, dtype=np.float16, fixpipe="c-api-pages")[0] == 65504.0
    with pytest.raises(ConfigError, match="fixpipe is 'always'; it must be one of ctrl48, c-api-pages"):
        one(1.0, 1.0, 1.0, fixpipe="always")


def test_a_machine_of_ones_own_delivers_inf():
    for profile in (toy_split(), toy_unified()):
        assert (
            resolved(ONE, "float16", profile).cube_math("convolution backward", "float16").overflow == "ieee"
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


# Sums of parts


@pytest.mark.parametrize("count", range(2, 10))
@pytest.mark.parametrize("profile", [toy_split(), toy_unified()], ids=["split", "unified"])
def test_parts_are_added_as_the_tree_says(count, profile):
    rng = np.random.default_rng(count)
    parts = np.ldexp(rng.standard_normal((count, 333)), rng.integers(-12, 12, (count, 333))).astype(
        np.float32
    )
    assert_same_bits(summed(parts, tree_sum, profile), add_as_tree(parts))
    assert_same_bits(summed(parts, ordered_sum, profile), add_in_order(parts))


def summed(parts, make, profile, target="float32"):
    source = gm_tensor("parts", parts.shape, "float32", "workspace")
    made = gm_tensor("sum", parts.shape[1:], target, "output")
    phases = make(profile, source, made)
    phases = phases if isinstance(phases, tuple) else (phases,)
    math = MathSettings(AccumulationModel("exact"))
    kernel = Kernel("sum", phases, {"parts": source, "sum": made}, math)
    gm = {"parts": parts.copy()}
    run_kernel(kernel, gm, order=11)
    assert time_kernel(kernel, profile).cycles == time_kernel(kernel, profile, folded=False).cycles
    return gm["sum"]


def test_a_tree_of_five_doubles_its_stride():
    # ((1 + 2) + (3 + 4)) + 5 with numbers that show every step: 2**24 swallows a single 1.
    big = 2.0**24
    parts = np.array([[big], [1.0], [1.0], [-big], [1.0]], np.float32)
    # (big + 1) = big; (1 - big) = 1 - big exactly; big + (1 - big) = 1; 1 + 1 = 2. In order: 0 + 1 = 1.
    assert summed(parts, tree_sum, toy_split()).item() == 2.0
    assert summed(parts, ordered_sum, toy_split()).item() == 1.0


def test_rounds_of_a_tree_are_phases():
    source = gm_tensor("parts", (6, 100), "float32", "workspace")
    phases = tree_sum(toy_split(), source, gm_tensor("sum", (100,), "float32", "output"))
    assert [phase.name for phase in phases] == [f"tree sum, stride {stride}" for stride in (1, 2, 4)]


SPLIT_PLAN = Tiling(16, 16, 16, k_split=4, used_cores=4)
LONG = ConvProblem((1, 2, 9, 9), (3, 2, 3, 3), 1, 1)


@pytest.mark.parametrize(
    ("product", "deterministic", "phases"),
    [
        ("910B", True, ["compute", "ordered sum"]),
        ("910B", False, ["zero fill", "compute"]),
        ("910B", None, ["zero fill", "compute"]),  # not deterministic unless asked
        ("910_95", None, ["compute", "tree sum, stride 1", "tree sum, stride 2"]),  # deterministic by default
        ("910_95", False, ["zero fill", "compute"]),
    ],
)
def test_each_generation_adds_parts_its_own_way(product, deterministic, phases):
    case = ApiCall(LONG, product=product, deterministic=deterministic, mask=(False, True, False))
    arrays = case.arrays()
    result = convolution_backward(
        *arrays,
        [3],
        *case.attributes,
        case.mask,
        0,
        tiling=SPLIT_PLAN,
        product=product,
        deterministic=deterministic,
    )
    kernel = result.kernels[0].kernel
    assert [phase.name for phase in kernel.phases] == phases


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("deterministic", [False, True])
def test_parts_add_up_to_the_reference(product, deterministic):
    problem = ConvProblem((3, 3, 17, 16), (5, 3, 3, 3), 1, 1)
    check_against_reference(ApiCall(problem, product=product, deterministic=deterministic))


# The reduction of grad_input in parts


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
@pytest.mark.parametrize("order", ["program", "arrival", 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_grad_input_in_parts_is_added_in_order(dtype, order, transposed):
    problem = ConvProblem((1, 40, 5, 4), (40, 40, 2, 3), transposed=transposed)
    plan = Tiling(16, 16, 48, k_split=3, used_cores=2)
    case = ApiCall(problem, (dtype,) * 3, order=order, mask=(True, False, False))
    call = case.resolved()
    call.tilings["grad_input"] = plan
    given = dict(zip(("grad_output", "input", "weight"), case.carriers(), strict=True))
    want = reference_gradients(call, **given)["grad_input"]
    result = convolution_backward(
        *case.arrays(), None, *case.attributes, case.mask, 0, tiling=plan, order=order
    )
    assert_same_bits(as_carrier(result.grad_input), want)
    phases = [phase.name for phase in result.kernels[0].kernel.phases]
    assert phases == ["zero fill", "compute"] + (["cast"] if dtype != "float32" else [])


def test_a_sum_of_parts_differs_from_one_sum():
    # One channel group of 16 each: 2**24, then -2**24, then 1: together 1 in any order of blocks that is
    # exact, but parts are added in float32 from the left: (2**24 + 1) - 2**24 = 0.
    grad_output = np.zeros((1, 48, 1, 1), np.float16)
    grad_output[0, [0, 16, 32], 0, 0] = 4096, 1, -4096
    weight = np.zeros((48, 1, 1, 1), np.float16)
    weight[[0, 16, 32], 0, 0, 0] = 4096, 1, 4096
    given = (grad_output, np.zeros((1, 1, 1, 1), np.float16), weight)
    options = {"accumulation": "exact:RNE"}

    def run(plan):
        result = convolution_backward(
            *given, None, 1, 0, 1, False, 0, 1, (True, False, False), 0, tiling=plan, **options
        )
        return result.grad_input.item()

    assert run(Tiling(16, 16, 48)) == 1.0
    assert run(Tiling(16, 16, 48, k_split=3)) == 0.0


def test_more_parts_than_channels_are_refused():
    case = ApiCall(ConvProblem((1, 3, 4, 4), (3, 3, 1, 1)), mask=(True, False, False))
    with pytest.raises(ConfigError, match="k_split is 2, but the reduction has 1 groups of 16 channels"):
        convolution_backward(
            *case.arrays(), None, *case.attributes, case.mask, 0, tiling=Tiling(16, 16, 16, k_split=2)
        )


# Grouped grad_weight on its way out


GROUPED = ConvProblem((1, 4, 5, 5), (4, 2, 3, 3), 1, 1, groups=2)


@pytest.mark.parametrize(
    ("product", "dtype", "grad_weight", "groups", "cube_math_type", "squeezed"),
    [
        ("910B", "float16", "float32", 2, 0, True),
        ("910_93", "bfloat16", "float32", 2, 0, True),
        ("310P", "float16", "float32", 2, 0, True),
        ("910B", "float32", "float32", 2, 2, True),  # the cube reads halves, C0 is 16
        ("910B", "float32", "float32", 2, 1, False),  # C0 is 8
        ("910B", "float16", "float16", 2, 0, False),
        ("910B", "float16", "float32", 1, 0, False),
        ("910_95", "float16", "float32", 2, 0, False),
    ],
)
def test_a_grouped_float32_grad_weight_loses_bits_before_950(
    product, dtype, grad_weight, groups, cube_math_type, squeezed
):
    problem = GROUPED if groups == 2 else ConvProblem((1, 4, 5, 5), (4, 4, 3, 3), 1, 1)
    case = ApiCall(
        problem,
        (dtype,) * 3,
        cube_math_type,
        product,
        output_dtypes=(None, grad_weight, None),
        rules="hardware",
    )
    result = check_against_reference(case)
    kernels = names(result)
    assert ("squeeze_grad_weight" in kernels) is squeezed
    values = result.grad_weight
    through_half = np.array_equal(values.astype(np.float16).astype(np.float32), values)
    if grad_weight == "float32":
        assert through_half is squeezed  # sums of 25 random products are hardly ever halves
    if squeezed:
        assert kernels[-2:] == ["squeeze_grad_weight", "cast_grad_weight"]


def test_generations_are_those_of_the_products():
    known = {load_profile(product).npu_arch for product in PRODUCTS}
    assert {entry.npu_arch for entry in GENERATIONS} == known
    assert generation("1234") is UNKNOWN
    assert all(entry.source for entry in (*GENERATIONS, UNKNOWN))


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
