"""Do the control bits select the overflow rule that the vendor's pages give?"""

import pytest

from ascendsim.errors import UnsupportedError
from ascendsim.numerics.formats.dtypes import Control, OverflowRules
from ascendsim.ops.lowering.call import cube_overflow, overflow_rules, vector_overflow
from ascendsim.profile import load_profile
from tests.helpers.toy_profiles import toy_split

RULES = {name: overflow_rules(load_profile(name)) for name in ("910", "310P", "910B", "910_93", "910_95")}


@pytest.mark.parametrize("product", ["910", "310P"])
def test_the_oldest_cores_only_saturate(product):
    assert RULES[product].conversion("float16") == "saturate"
    assert RULES[product].conversion("float16", Control(inf_nan=True)) == "saturate"


@pytest.mark.parametrize("product", ["910B", "910_93"])
def test_910b_follows_ctrl48_and_nothing_else(product):
    rules = RULES[product]
    assert rules.conversion("float16") == "ieee"
    assert rules.conversion("bfloat16", Control(inf_nan=False)) == "saturate"
    # No CTRL[60] and no fp8 there: the instruction and CTRL[50] change nothing.
    assert rules.conversion("float16", instruction_saturates=True) == "ieee"
    assert rules.conversion("float16", Control(inf_nan=False, keep_nan=True)) == "saturate"


def test_910_95_lets_the_instruction_decide_when_ctrl60_is_clear():
    free = Control(inf_nan=False, global_rules=False)
    assert RULES["910_95"].conversion("hifloat8", free) == "ieee"
    assert RULES["910_95"].conversion("hifloat8", free, instruction_saturates=True) == "saturate"


def test_910_95_lets_ctrl48_decide_when_ctrl60_is_set():
    # The register's reset value: CTRL[60] = 1, CTRL[48] = 0.
    reset = Control(inf_nan=False, global_rules=True)
    assert RULES["910_95"].conversion("float16", reset) == "saturate"
    on = Control(inf_nan=True, global_rules=True)
    assert RULES["910_95"].conversion("float16", on, instruction_saturates=True) == "ieee"


def test_ctrl50_keeps_nan_in_saturating_fp8_conversions_only():
    keep = Control(inf_nan=False, keep_nan=True)
    assert RULES["910_95"].conversion("float8_e4m3fn", keep) == "saturate_keep_nan"
    assert RULES["910_95"].conversion("hifloat8", keep) == "saturate"
    assert RULES["910_95"].conversion("float16", keep) == "saturate"


def test_910_95_at_launch_delivers_inf_and_nan():
    for target in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "hifloat8"):
        assert RULES["910_95"].conversion(target) == "ieee"
        # The compilers clear CTRL[60], so that an instruction may still ask for saturation.
        assert RULES["910_95"].conversion(target, instruction_saturates=True) == "saturate"


def test_the_two_readings_of_fixpipe_differ_where_the_pages_differ():
    assert RULES["910B"].fixpipe("float16") == "ieee"
    assert RULES["910B"].fixpipe("float16", "c-api-pages") == "saturate"
    assert RULES["910_95"].fixpipe("float16", "c-api-pages") == "ieee"
    assert RULES["910_95"].fixpipe("bfloat16", "c-api-pages") == "saturate"


def test_fixpipe_follows_the_control_bits_otherwise():
    off = Control(inf_nan=False)
    assert RULES["910B"].fixpipe("float16", control=off) == "saturate"
    assert RULES["910_95"].fixpipe("float16", "c-api-pages", off) == "saturate"


def test_float32_outputs_are_no_conversion():
    assert RULES["910"].conversion("float32") == "ieee"
    # Nor are they where Fixpipe would saturate every other format.
    assert OverflowRules((), ("float16",), Control(False)).fixpipe("float32", "c-api-pages") == "ieee"


def test_an_unknown_preset_is_refused():
    with pytest.raises(UnsupportedError, match="ctrl48, c-api-pages"):
        RULES["910B"].fixpipe("float16", "guess")


@pytest.mark.parametrize("target", ["float16", "bfloat16", "hifloat8", "float8_e4m3fn", "float32"])
def test_a_machine_that_is_no_product_converts_as_ieee_754_does(target):
    toy = toy_split()
    assert vector_overflow(toy, target) == "ieee"
    assert cube_overflow(toy, target) == cube_overflow(toy, target, "c-api-pages") == "ieee"


def test_only_what_fixpipe_writes_follows_its_pages():
    # 910: results leave L0C through UB, where a vector core converts them.
    pages = {name: cube_overflow(load_profile(name), "bfloat16", "c-api-pages") for name in RULES}
    assert pages == dict.fromkeys(RULES, "saturate")
    assert cube_overflow(load_profile("910B"), "bfloat16") == "ieee"
    assert vector_overflow(load_profile("910B"), "bfloat16") == "ieee"
    assert cube_overflow(load_profile("910"), "float16") == vector_overflow(load_profile("910"), "float16")


def test_a_bit_of_the_register_can_be_tried_the_other_way():
    saturating = load_profile("910B", {"generation.inf_nan_at_launch": False})
    assert vector_overflow(saturating, "float16") == cube_overflow(saturating, "float16") == "saturate"
