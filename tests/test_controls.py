"""Do the control bits select the overflow rule that the vendor's pages give?"""

import pytest

from ascendsim.errors import UnsupportedError
from ascendsim.numerics.formats.controls import (
    OVERFLOW_RULES,
    Control,
    conversion_overflow,
    fixpipe_overflow,
    overflow_rules,
)


@pytest.mark.parametrize("arch", ["1001", "2002"])
def test_the_oldest_cores_only_saturate(arch):
    assert conversion_overflow(arch, "float16") == "saturate"
    assert conversion_overflow(arch, "float16", Control(inf_nan=True)) == "saturate"


def test_910b_follows_ctrl48_and_nothing_else():
    assert conversion_overflow("2201", "float16") == "ieee"
    assert conversion_overflow("2201", "bfloat16", Control(inf_nan=False)) == "saturate"
    # No CTRL[60] and no fp8 there: the instruction and CTRL[50] change nothing.
    assert conversion_overflow("2201", "float16", instruction_saturates=True) == "ieee"
    assert conversion_overflow("2201", "float16", Control(inf_nan=False, keep_nan=True)) == "saturate"


def test_910_95_lets_the_instruction_decide_when_ctrl60_is_clear():
    free = Control(inf_nan=False, global_rules=False)
    assert conversion_overflow("3510", "hifloat8", free) == "ieee"
    assert conversion_overflow("3510", "hifloat8", free, instruction_saturates=True) == "saturate"


def test_910_95_lets_ctrl48_decide_when_ctrl60_is_set():
    # The register's reset value: CTRL[60] = 1, CTRL[48] = 0.
    reset = Control(inf_nan=False, global_rules=True)
    assert conversion_overflow("3510", "float16", reset) == "saturate"
    on = Control(inf_nan=True, global_rules=True)
    assert conversion_overflow("3510", "float16", on, instruction_saturates=True) == "ieee"


def test_ctrl50_keeps_nan_in_saturating_fp8_conversions_only():
    keep = Control(inf_nan=False, keep_nan=True)
    assert conversion_overflow("3510", "float8_e4m3fn", keep) == "saturate_keep_nan"
    assert conversion_overflow("3510", "hifloat8", keep) == "saturate"
    assert conversion_overflow("3510", "float16", keep) == "saturate"


def test_910_95_at_launch_delivers_inf_and_nan():
    for target in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "hifloat8"):
        assert conversion_overflow("3510", target) == "ieee"


def test_the_two_readings_of_fixpipe_differ_where_the_pages_differ():
    assert fixpipe_overflow("2201", "float16") == "ieee"
    assert fixpipe_overflow("2201", "float16", "c-api-pages") == "saturate"
    assert fixpipe_overflow("3510", "float16", "c-api-pages") == "ieee"
    assert fixpipe_overflow("3510", "bfloat16", "c-api-pages") == "saturate"


def test_float32_outputs_are_no_conversion():
    assert conversion_overflow("1001", "float32") == "ieee"


def test_every_generation_names_a_source():
    assert all(rules.source and rules.products for rules in OVERFLOW_RULES)


def test_unknown_names_are_refused():
    with pytest.raises(UnsupportedError, match="known are 1001, 2002, 2201, 3510"):
        overflow_rules("9999")
    with pytest.raises(UnsupportedError, match="ctrl48, c-api-pages"):
        fixpipe_overflow("2201", "float16", "guess")
