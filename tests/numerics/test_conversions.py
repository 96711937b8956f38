"""Are the conversions around the cube, and the compiled ones of long arrays, the right ones?"""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from ascendsim import ConvProblem, convolution_backward, load_profile
from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.casts import LEAST, decode, decoded, encode, is_stored, round_to, rounded, stored
from ascendsim.numerics.casts import as_carrier as as_carrier_quick
from ascendsim.numerics.casts import rounded_halves as rounded_halves_quick
from ascendsim.numerics.compiled import turned as turning
from ascendsim.numerics.compiled.turned import (
    narrowed,
    on_half_grid,
    rounded_halves,
    turn_to,
    turned,
    turned_to_halves,
    widened,
)
from ascendsim.ops.lowering.call import Call
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.options.call import Options
from tests.helpers.calls import as_carrier, names
from tests.helpers.slow_tilings import plans_of
from tests.helpers.toy_machines import toy_split, toy_unified

# --- Are the conversions around the cube those of the product: casts, HF32, Fixpipe, sums of parts? ----

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


# --- Are compiled conversions between binary16 and binary32 those of numpy, which rounds correctly? ----

CODES = np.arange(65536, dtype=np.uint16).view(np.float16)


def same_bits(x, y):
    kind = f"u{x.itemsize}"
    nan = np.isnan(x) & np.isnan(y)
    return x.dtype == y.dtype and x.shape == y.shape and np.all((x.view(kind) == y.view(kind)) | nan)


def test_every_code_is_widened_exactly():
    assert same_bits(widened(CODES), CODES.astype(np.float32))


def test_every_value_and_the_midpoints_with_their_neighbours_are_rounded_to_the_even_side():
    finite = CODES[np.isfinite(CODES)].astype(np.float64)
    ordered = np.unique(finite)
    # 65520 is the midpoint between the largest value and where the next one would be.
    middles = np.append((ordered[1:] + ordered[:-1]) / 2, [65520.0, -65520.0]).astype(np.float32)
    values = [np.nextafter(middles, np.float32(side)) for side in (-np.inf, np.inf)]
    every = np.concatenate([finite.astype(np.float32), middles, *values])
    with np.errstate(all="ignore"):
        assert same_bits(on_half_grid(every), every.astype(np.float16).astype(np.float32))
        assert same_bits(rounded_halves(every), every.astype(np.float16))


@pytest.mark.parametrize("place", [0, 130, 299])
def test_only_what_is_on_the_grid_is_narrowed(place):
    # All codes but those of NaN, whose payloads the conversion makes quiet: in whole panels and beyond.
    codes = CODES[~np.isnan(CODES)]
    assert same_bits(narrowed(codes.astype(np.float32)), codes)
    values = np.resize(codes, 300).astype(np.float32)
    assert same_bits(narrowed(values), np.resize(codes, 300))
    for off in (np.nextafter(np.float32(1), np.float32(2)), 65520.0, 2.0**-25, 3 * 2.0**-25):
        wrong = values.copy()
        wrong[place] = off
        assert narrowed(wrong) is None
    # The lowest bit of a payload has no place in binary16, the highest has.
    lost, kept = np.array([0x7FC00001, 0x7FC02000], np.uint32).view(np.float32)
    values[place] = lost
    assert narrowed(values) is None
    values[place] = kept
    assert same_bits(narrowed(values).astype(np.float32), values)


def test_any_bits_are_rounded():
    values = np.random.default_rng(0).integers(0, 2**32, 300_001, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        assert same_bits(on_half_grid(values), values.astype(np.float16).astype(np.float32))
        assert same_bits(rounded_halves(values), values.astype(np.float16))
    # To the last bit, that of a NaN too: what two passes make.
    assert rounded_halves(values).tobytes() == narrowed(on_half_grid(values)).tobytes()


@pytest.mark.parametrize("shape", [(0,), (1,), (127,), (3, 5, 43), (4, 0, 2)])
def test_shapes_are_kept_and_strides_are_followed(shape):
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    halves = values.astype(np.float16)
    on_grid = halves.astype(np.float32)
    assert same_bits(narrowed(on_grid), halves)
    assert same_bits(narrowed(on_grid.T), halves.T.copy())
    assert same_bits(on_half_grid(values.T), on_grid.T.copy())
    assert same_bits(rounded_halves(values.T), halves.T.copy())
    assert same_bits(widened(halves.T), halves.T.astype(np.float32).copy())


def test_halves_that_lie_anywhere_are_converted():
    # From an odd address, and read-only.
    values = np.arange(300, dtype=np.float16)
    moved = np.frombuffer(b"\0" + values.tobytes(), np.uint8)[1:].view(np.float16)
    assert not moved.flags.aligned
    assert not moved.flags.writeable
    assert same_bits(widened(moved), values.astype(np.float32))


@pytest.mark.parametrize("converts", [True, False])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 5, 40), (3, 33, 17), (2, 32, 48), (0, 4, 4)])
def test_matrices_are_converted_from_and_to_binary16_as_they_are_turned(monkeypatch, converts, shape):
    # Without conversions of the processor's own it takes a pass more, and numpy.
    own = converts and turning.HALF_CONVERSIONS
    monkeypatch.setattr(turning, "HALF_CONVERSIONS", own)
    codes = np.random.default_rng(0).integers(0, 1 << 16, shape).astype(np.uint16).view(np.float16)
    assert same_bits(turned(codes), codes.astype(np.float32).transpose(0, 2, 1).copy())
    # Read-only, from an odd address, and in strides.
    moved = np.frombuffer(b"\0" + codes.tobytes(), np.uint8)[1:].view(np.float16).reshape(shape)
    assert same_bits(turned(moved), codes.astype(np.float32).transpose(0, 2, 1).copy())
    assert same_bits(turned(codes[:, ::-1]), codes[:, ::-1].astype(np.float32).transpose(0, 2, 1).copy())
    # Ties between neighbours in binary16, what lies beyond its largest value, and below its smallest.
    same = np.zeros((shape[0], shape[2], shape[1]), np.float16)
    turn_to(codes, np.arange(shape[2]) * shape[1], same)
    assert same.tobytes() == codes.transpose(0, 2, 1).tobytes()  # to the last bit of a NaN
    with np.errstate(all="ignore"):
        values = np.ldexp(codes.astype(np.float32), np.random.default_rng(1).integers(-12, 2, shape))
        assert same_bits(turned_to_halves(values), values.astype(np.float16).transpose(0, 2, 1).copy())


# -------------------------------------------------------------------------------------------------------
# Are the casts of long arrays, of which binary16 is compiled, those of `numerics/casts.py` bit for bit?
# -------------------------------------------------------------------------------------------------------

# Any bits at all: subnormals, both infinities, NaN, ties of binary16 among them.
BITS = np.random.default_rng(0).integers(0, 2**32, 8 * LEAST, dtype=np.uint32)
BITS[: 4 * LEAST : 2] &= np.uint32(0xFFFFE000)  # on the grid of binary16, or halfway between two of it
VALUES = BITS.view(np.float32)
SIZES = (0, 1, LEAST - 1, LEAST, 8 * LEAST)
FORMATS = ("float16", "bfloat16", "float8_e4m3fn", "hifloat8", "float32")


def same_bits_quick(x, y):
    nan = np.isnan(x) & np.isnan(y)
    return (
        x.dtype == y.dtype
        and x.shape == y.shape
        and np.all((x.view(f"u{x.itemsize}") == y.view(f"u{x.itemsize}")) | nan)
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", FORMATS)
def test_values_are_rounded_as_the_definition_rounds_them(dtype, size):
    values = VALUES[:size]
    assert same_bits_quick(rounded(values, dtype), round_to(values, dtype))
    assert same_bits_quick(rounded(values, dtype, "saturate"), round_to(values, dtype, overflow="saturate"))


def test_another_rounding_than_to_nearest_is_not_taken_for_it():
    cut = rounded(VALUES, "float16", "ieee", "TRUNC")
    assert same_bits_quick(cut, round_to(VALUES, "float16", "TRUNC"))
    assert not same_bits_quick(cut, rounded(VALUES, "float16"))


@pytest.mark.parametrize("size", SIZES)
def test_stored_elements_and_carriers_are_those_of_encode_and_decode(size):
    values = round_to(VALUES[:size], "float16")
    codes = stored(values, "float16")
    assert same_bits_quick(codes, encode(values, "float16"))
    assert same_bits_quick(decoded(codes, "float16"), decode(codes, "float16"))


@pytest.mark.parametrize("overflow", ["ieee", "saturate"])
@pytest.mark.parametrize("size", SIZES)
def test_values_are_rounded_and_stored_as_one_after_the_other(size, overflow):
    made = rounded_halves_quick(VALUES[:size], overflow)
    assert same_bits_quick(made, stored(rounded(VALUES[:size], "float16", overflow), "float16"))
    assert np.isinf(made).any() == (overflow == "ieee" and size > 0)


def test_what_is_stored_becomes_a_carrier_and_a_carrier_stays_one():
    halves = encode(round_to(VALUES, "float16"), "float16")
    assert is_stored(halves)
    assert not is_stored(VALUES)
    assert same_bits_quick(as_carrier_quick(halves), decode(halves, "float16"))
    assert as_carrier_quick(VALUES) is VALUES


@pytest.mark.parametrize("size", [1, 2 * LEAST])
def test_values_off_the_grid_are_refused(size):
    # One more than the largest odd integer of 11 bits has a neighbour only two further on.
    values = np.full(size, 2049.0, np.float32)
    with pytest.raises(UnsupportedError, match="round_to"):
        stored(values, "float16")


def test_elements_that_are_not_of_the_format_are_refused():
    with pytest.raises(UnsupportedError, match="float16 is stored as float16"):
        decoded(np.zeros(2 * LEAST, np.int16), "float16")


def test_a_short_array_needs_no_compiler():
    code = (
        "import sys, numpy as np; from ascendsim.numerics.casts import rounded, stored, decoded\n"
        f"decoded(stored(rounded(np.ones({LEAST - 1}, np.float32), 'float16'), 'float16'), 'float16')\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("values", [np.float64, np.int32, ">f4"])
@pytest.mark.parametrize("size", [4, 8 * LEAST])
def test_carriers_of_another_type_are_told_as_the_definition_tells_them(values, size):
    # Compiled code would read their bytes as those of float32.
    wrong = np.ones(size, values)
    for cast, definition in ((rounded, round_to), (stored, encode)):
        with pytest.raises(UnsupportedError) as told:
            definition(wrong, "float16")
        with pytest.raises(UnsupportedError) as found:
            cast(wrong, "float16")
        assert str(found.value) == str(told.value)
