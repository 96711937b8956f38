"""Are the casts of long arrays, of which binary16 is compiled, those of `formats/casts.py` bit for bit?"""

import subprocess
import sys

import numpy as np
import pytest

from ascendsim.errors import UnsupportedError
from ascendsim.numerics.formats.casts import decode, encode, round_to
from ascendsim.numerics.quick_casts import (
    LEAST,
    as_carrier,
    decoded,
    is_stored,
    rounded,
    rounded_halves,
    stored,
)

# Any bits at all: subnormals, both infinities, NaN, ties of binary16 among them.
BITS = np.random.default_rng(0).integers(0, 2**32, 8 * LEAST, dtype=np.uint32)
BITS[: 4 * LEAST : 2] &= np.uint32(0xFFFFE000)  # on the grid of binary16, or halfway between two of it
VALUES = BITS.view(np.float32)
SIZES = (0, 1, LEAST - 1, LEAST, 8 * LEAST)
FORMATS = ("float16", "bfloat16", "float8_e4m3fn", "hifloat8", "float32")


def same_bits(x, y):
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
    assert same_bits(rounded(values, dtype), round_to(values, dtype))
    assert same_bits(rounded(values, dtype, "saturate"), round_to(values, dtype, overflow="saturate"))


def test_another_rounding_than_to_nearest_is_not_taken_for_it():
    cut = rounded(VALUES, "float16", "ieee", "TRUNC")
    assert same_bits(cut, round_to(VALUES, "float16", "TRUNC"))
    assert not same_bits(cut, rounded(VALUES, "float16"))


@pytest.mark.parametrize("size", SIZES)
def test_stored_elements_and_carriers_are_those_of_encode_and_decode(size):
    values = round_to(VALUES[:size], "float16")
    codes = stored(values, "float16")
    assert same_bits(codes, encode(values, "float16"))
    assert same_bits(decoded(codes, "float16"), decode(codes, "float16"))


@pytest.mark.parametrize("overflow", ["ieee", "saturate"])
@pytest.mark.parametrize("size", SIZES)
def test_values_are_rounded_and_stored_as_one_after_the_other(size, overflow):
    made = rounded_halves(VALUES[:size], overflow)
    assert same_bits(made, stored(rounded(VALUES[:size], "float16", overflow), "float16"))
    assert np.isinf(made).any() == (overflow == "ieee" and size > 0)


def test_what_is_stored_becomes_a_carrier_and_a_carrier_stays_one():
    halves = encode(round_to(VALUES, "float16"), "float16")
    assert is_stored(halves)
    assert not is_stored(VALUES)
    assert same_bits(as_carrier(halves), decode(halves, "float16"))
    assert as_carrier(VALUES) is VALUES


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
        "import sys, numpy as np; from ascendsim.numerics.quick_casts import rounded, stored, decoded\n"
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
