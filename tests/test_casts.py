"""Are the casts right, bit for bit?"""

import ml_dtypes
import numpy as np
import pytest

from ascendsim.errors import UnsupportedError
from ascendsim.numerics import casts
from ascendsim.numerics.dtypes import dtype


def random_patterns(count, seed=0):
    return np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32).view(np.float32)


def assert_same(got, expected):
    """Compare bits; any NaN equals any NaN."""
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got[~nan].view(np.uint32), expected[~nan].view(np.uint32))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_code_decodes_as_another_library_says_and_encodes_back(name):
    stored = np.arange(65536, dtype=np.uint16).view(dtype(name).storage)
    carrier = casts.decode(stored, name)
    assert_same(carrier, stored.astype(np.float32))
    back = casts.encode(carrier, name)
    number = ~np.isnan(carrier)
    np.testing.assert_array_equal(back[number].view(np.uint16), stored[number].view(np.uint16))
    assert np.isnan(back[~number].astype(np.float32)).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_a_million_random_patterns_round_as_another_library_rounds(name):
    values = random_patterns(1_000_000)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(dtype(name).storage).astype(np.float32)
    assert_same(casts.round_to(values, name), expected)


def test_float64_is_refused_because_it_would_round_twice():
    # 1 + 2**-8 + 2**-40 is above the midpoint of bfloat16, and exactly on it once it has been a float32.
    with pytest.raises(UnsupportedError, match="rounded twice"):
        casts.round_to(np.array([1 + 2**-8 + 2**-40]), "bfloat16")


def test_encode_refuses_values_off_the_grid():
    with pytest.raises(UnsupportedError, match="apply round_to"):
        casts.encode(np.array([1 + 2**-20], np.float32), "float16")


def test_decode_refuses_the_wrong_storage():
    with pytest.raises(UnsupportedError, match="stored as bfloat16, got float16"):
        casts.decode(np.zeros(3, np.float16), "bfloat16")


def test_casts_keep_the_shape():
    values = random_patterns(24).reshape(2, 3, 4)
    for name in ("float16", "bfloat16", "hf32_11"):
        assert casts.round_to(values, name).shape == (2, 3, 4)
        assert casts.round_to(values, name, "TRUNC").shape == (2, 3, 4)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "hf32_11"])
@pytest.mark.parametrize("mode", ["RINT", "CEIL"])
def test_a_single_number_is_a_tensor_of_rank_zero(name, mode):
    assert casts.round_to(np.float32(1.5), name, mode) == np.float32(1.5)
    assert np.isnan(casts.round_to(np.float32(np.nan), name, mode))


def test_ml_dtypes_is_only_a_container():
    stored = casts.encode(np.array([1.5], np.float32), "bfloat16")
    assert stored.dtype == ml_dtypes.bfloat16
