"""Is every format what its definition says?"""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from ascendsim.errors import UnsupportedError
from ascendsim.numerics.formats.dtypes import DTYPES, FLOAT16, HF32_10, HF32_11, HIFLOAT8, dtype
from ascendsim.numerics.metric_chunks import _BY_FORMAT
from ascendsim.profile.schema import CUBE_DTYPES, NARROW
from ascendsim.rules.checked import EIGHT_BITS


@pytest.mark.parametrize("fmt", DTYPES, ids=str)
def test_every_format_is_found_by_its_name_and_by_itself(fmt):
    assert dtype(fmt.name) is fmt
    assert dtype(fmt) is fmt


@pytest.mark.parametrize("fmt", [fmt for fmt in DTYPES if not fmt.name.startswith("h")], ids=str)
def test_a_numpy_dtype_finds_its_format(fmt):
    assert fmt.storage is not None
    assert dtype(fmt.storage) is fmt
    assert dtype(fmt.storage.type) is fmt


def test_storage_has_the_size_of_one_element():
    assert [fmt.itemsize for fmt in DTYPES[:5]] == [2, 2, 4, 4, 4]
    for fmt in DTYPES:
        assert fmt.itemsize * 8 == fmt.bits
        assert fmt.storage is None or fmt.storage.itemsize == fmt.itemsize


@pytest.mark.parametrize("fmt", [fmt for fmt in DTYPES if fmt.bits < 32], ids=str)
def test_whoever_lists_formats_lists_every_narrow_one(fmt):
    # These rooms do not know numerics: a format that is new there must be added here by hand.
    assert fmt.name in CUBE_DTYPES, "profile/schema.py: CUBE_DTYPES"
    assert fmt.name in NARROW, "profile/schema.py: NARROW"
    assert (fmt.name in EIGHT_BITS) == (fmt.bits == 8), "rules/checked.py: EIGHT_BITS"
    assert fmt.name in _BY_FORMAT, "numerics/metric_chunks.py: _BY_FORMAT"


def test_hifloat8_has_no_numpy_storage_and_hf32_stays_float32_in_buffers():
    assert HIFLOAT8.storage is None
    assert HF32_11.storage == HF32_10.storage == np.float32


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("fp16", "did you mean 'float16'?"),
        ("bfloat61", "did you mean 'bfloat16'?"),
        ("hf32", "did you mean 'hf32_11' or 'hf32_10'?"),
        ("hifloat9", "did you mean 'hifloat8'?"),
        (np.dtype("float64"), "'float64' is not a supported format"),
        (np.dtype("int32"), "supported are float16, bfloat16"),
    ],
)
def test_an_unknown_format_is_refused_with_the_nearest_name(wrong, hint):
    with pytest.raises(UnsupportedError) as error:
        dtype(wrong)
    assert hint in str(error.value)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16"])
def test_fields_agree_with_the_finfo_of_another_library(name):
    fmt, info = dtype(name), ml_dtypes.finfo(dtype(name).storage)
    assert (fmt.bits, fmt.mantissa_bits, fmt.exponent_bits) == (info.bits, info.nmant, info.nexp)
    assert fmt.max_finite == float(info.max)
    assert fmt.min_exponent == info.minexp


@pytest.mark.parametrize("fmt", [fmt for fmt in DTYPES if not fmt.tapered], ids=str)
def test_the_exponents_of_a_format_fill_their_field(fmt):
    # Half of them, but one, are below zero; an HF32 leaves places of a float32 empty.
    assert fmt.bias == 2 ** (fmt.exponent_bits - 1) - 1
    empty = 23 - fmt.mantissa_bits if fmt.name.startswith("hf32") else 0
    assert 1 + fmt.exponent_bits + fmt.mantissa_bits + empty == fmt.bits


def test_the_largest_hf32_values_have_all_kept_bits_set():
    # 0x7F7FF000 keeps 11 mantissa bits of float32's largest value, 0x7F7FE000 keeps 10.
    assert np.float32(HF32_11.max_finite).view(np.uint32) == 0x7F7FF000
    assert np.float32(HF32_10.max_finite).view(np.uint32) == 0x7F7FE000


def test_a_format_cannot_be_changed():
    with pytest.raises(AttributeError):
        FLOAT16.bits = 8


def test_sizes_cost_no_import_of_ml_dtypes_or_numba():
    code = (
        "import sys; from ascendsim.numerics.formats.dtypes import dtype; dtype('bfloat16').itemsize;"
        "print([m for m in ('ml_dtypes', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
