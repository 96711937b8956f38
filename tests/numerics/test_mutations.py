"""Would a wrong bit be noticed?  Change one line of the arithmetic in a copy: some test must fail.

A row names the file, the text to change (it must occur exactly once), what it becomes, and the tests that
have to notice.  Rows whose change cannot alter any result do not belong here.
"""

import signal
import subprocess
import sys

import pytest

from tests.helpers import mutating
from tests.helpers.mutating import Mutation, assert_noticed, run_copy, source_of

TESTS = "test_casts test_hf32 test_hifloat8"

FORMATS = [
    # one mantissa width, one bias, one largest value, one Inf
    Mutation("formats/dtypes", '"float16", 16, 5, 10, 15', '"float16", 16, 5, 9, 15'),
    Mutation("formats/dtypes", '"bfloat16", 16, 8, 7,', '"bfloat16", 16, 8, 8,'),
    Mutation("formats/dtypes", '"hf32_11", 32, 8, 11,', '"hf32_11", 32, 8, 10,'),
    Mutation("formats/dtypes", '"hf32_10", 32, 8, 10,', '"hf32_10", 32, 8, 11,'),
    Mutation("formats/dtypes", '"float8_e5m2", 8, 5, 2, 15, 57344.0', '"float8_e5m2", 8, 5, 2, 14, 57344.0'),
    Mutation("formats/dtypes", "3, 7, 448.0, has_infinity=False", "3, 7, 480.0, has_infinity=False"),
    Mutation("formats/dtypes", "448.0, has_infinity=False", "448.0, has_infinity=True"),
    Mutation("formats/dtypes", "(0b10, 2, 3)", "(0b10, 2, 2)"),
    Mutation("formats/dtypes", "(body - 23)", "(body - 22)"),
    Mutation("formats/dtypes", "INFINITY_CODE = 0x6F", "INFINITY_CODE = 0x6E"),
]
ROUNDINGS = [
    # one tie rule, one direction, one boundary
    Mutation("formats/format_rounding", "rest + odd > half", "rest >= half"),
    Mutation("formats/format_rounding", "inexact & (rest >= half)", "inexact & (rest > half)"),
    Mutation("formats/format_rounding", "return inexact & negative", "return inexact & ~negative"),
    Mutation("formats/format_rounding", "return inexact & ~negative", "return inexact & negative"),
    Mutation("formats/format_rounding", "return inexact & ~odd", "return inexact & odd"),
    Mutation(
        "formats/format_rounding",
        "maximum(fmt.min_exponent - exponent, 0)",
        "maximum(fmt.min_exponent - exponent, 1)",
    ),
    Mutation("formats/format_rounding", "+ below, 26)", "+ below, 24)"),
    Mutation("formats/format_rounding", "bits[inexact] |= np.uint32(1)", "bits[inexact] |= np.uint32(0)"),
    Mutation("formats/format_rounding", "bits[outwards & inexact] -=", "bits[outwards & inexact] +="),
    Mutation("formats/casts", "(half - np.uint32(1)) + (", "half + 0 * ("),
    Mutation("formats/casts", "rounded = magnitude + half\n", "rounded = magnitude + half - np.uint32(1)\n"),
    Mutation("formats/casts", '23 - fmt.mantissa_bits, "RNE")', '23 - fmt.mantissa_bits, "RNA")'),
    Mutation("formats/casts", "bits | QUIET, bits)", "bits, bits)"),
    Mutation("formats/hifloat8", "(np.uint32(1) << drop >> np.uint32(1))", "(np.uint32(1) << drop >> 2)"),
    Mutation("formats/dtypes", "size <= 7, size", "size < 7, size"),
    Mutation("formats/hifloat8", "np.uint32), kept == 3)", "np.uint32), kept >= 2)"),
    Mutation("formats/hifloat8", "away & (fraction > 0)", "away & (fraction >= 0)"),
    Mutation("formats/hifloat8", "away = fraction >= threshold", "away = fraction > threshold"),
    Mutation("formats/hifloat8", "& (result != 0)", "& (result == result)"),
]
OVERFLOWS = [
    # one saturation switch
    Mutation("formats/format_rounding", 'if overflow == "saturate":', 'if overflow != "ieee":'),
    Mutation("formats/format_rounding", 'if overflow != "ieee":', 'if overflow == "saturate":'),
    Mutation(
        "formats/format_rounding", "rounded[np.isnan(values)] = 0.0", "rounded[np.isnan(values)] = -0.0"
    ),
    Mutation(
        "formats/format_rounding", "np.full(negative.shape, _last_bit_is_odd(fmt))", "np.ones_like(negative)"
    ),
    Mutation("formats/format_rounding", "where(inwards & finite_input", "where(inwards"),
    Mutation("formats/hifloat8", '_LARGEST if overflow != "ieee"', '_LARGEST if overflow == "ieee"'),
    Mutation("formats/hifloat8", '0.0 if overflow == "saturate"', '0.0 if overflow != "ieee"'),
    Mutation("formats/dtypes", "not instruction_saturates", "instruction_saturates", "test_controls"),
    Mutation("formats/dtypes", "if bits.global_rules else", "if True else", "test_controls"),
    Mutation("formats/dtypes", "fmt.name in FP8 else", "fmt.bits == 8 else", "test_controls"),
    Mutation("formats/dtypes", "if inf_nan and fmt.name in", "if inf_nan or fmt.name in", "test_controls"),
    Mutation("formats/dtypes", 'preset == "c-api-pages" and', "False and", "test_controls"),
]
METRICS = [
    Mutation("metric_chunks", "(size + 1e-7)", "(size + 1e-8)", "test_metrics"),
    Mutation("metric_chunks", "((np.abs(wide) - size)", "((wide - exact)", "test_metrics"),
    Mutation("metric_chunks", "np.maximum(size, scale)", "size", "test_metrics"),
    Mutation("metrics", "mare < 10 *", "mare < 9 *", "test_metrics"),
    Mutation(
        "metric_chunks", "narrow_to_odd(reference), fmt", "reference.astype(np.float32), fmt", "test_metrics"
    ),
    Mutation("metrics", 'specials_match and total("st_misses")', 'total("st_misses")', "test_metrics"),
    Mutation("metric_chunks", "MIXED_ULPS = 32", "MIXED_ULPS = 33", "test_metrics"),
    Mutation("metric_chunks", "MIXED_MISS_SHARE = 0.01", "MIXED_MISS_SHARE = 0.02", "test_metrics"),
    Mutation("metric_chunks", '"float32": Standards(1e-4', '"float32": Standards(1e-3', "test_metrics"),
    Mutation("formats/dtypes", "fmt.min_exponent, math", "fmt.min_exponent + 1, math", "test_metrics"),
]


EVERY = FORMATS + ROUNDINGS + OVERFLOWS + METRICS


@pytest.mark.parametrize("mutation", EVERY, ids=lambda m: f"{m.file}:{m.new}")
def test_the_line_to_change_exists_once(mutation):
    assert source_of(f"numerics/{mutation.file}").count(mutation.old) == 1


@pytest.mark.slow
def test_the_copy_passes_unchanged(tmp_path):
    every = " ".join(sorted({name for mutation in EVERY for name in (mutation.tests or TESTS).split()}))
    done = run_copy(tmp_path, "", "", "", every)
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("mutation", EVERY, ids=lambda m: f"{m.file}:{m.new}")
def test_a_changed_line_makes_a_test_fail(mutation, tmp_path):
    file, old, new, tests, _ = mutation
    assert_noticed(run_copy(tmp_path, f"numerics/{file}", old, new, tests or TESTS))


def test_a_copy_whose_tests_find_no_end_counts_as_noticed(monkeypatch):
    monkeypatch.setattr(mutating, "PATIENCE", 1)  # second of a processor
    endless = [sys.executable, "-c", "while True: pass"]
    done = subprocess.run(endless, preexec_fn=mutating.limit_time, capture_output=True, text=True)
    assert done.returncode == -signal.SIGXCPU
    assert_noticed(done)


def test_a_copy_that_passes_or_cannot_run_is_not_noticed():
    for status in (0, 2):
        with pytest.raises(AssertionError, match="no test noticed"):
            assert_noticed(subprocess.CompletedProcess([], status, "", ""))
