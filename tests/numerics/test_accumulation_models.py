"""Does every accumulation model have one text, and does a wrong text say why?"""

import subprocess
import sys

import pytest

from ascendsim.errors import ConfigError
from ascendsim.numerics.accumulation.models import AccumulationModel, MathSettings

TEXTS = [
    "exact:RNE",
    "exact-mmad:RZ",
    "seq:RZ",
    "seq-muladd:RNA",
    "block:16:RNE",
    "block:cube_k:RZ",
    "block-add:8:RNE:RZ",
    "tree:16:adjacent:RNE",
    "tree:cube_k:halves:RNA",
    "align:16:F24:RZ",
    "align:16:F24:RZ:acc",
    "fp16-acc(seq:RNE)",
    "fp16-acc(align:cube_k:F23:RNE:acc)",
    "block:4:RNE+split3",
    "block:4:RNE+split3+ftz-in+ftz-acc+saturate",
    "fp16-acc(block:16:RNE)+ftz-in:-14+saturate",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_read_and_printed_unchanged(text: str) -> None:
    assert str(AccumulationModel.parse(text)) == text


def test_a_parsed_model_is_the_record_with_those_fields() -> None:
    parsed = AccumulationModel.parse("fp16-acc(align:cube_k:F23:RZ:acc)+ftz-in:-14+saturate")
    assert parsed == AccumulationModel(
        "align",
        block="cube_k",
        rounding="RZ",
        fraction_bits=23,
        with_accumulator=True,
        half=True,
        ftz_in=True,
        ftz_in_exponent=-14,
        overflow="saturate",
    )


def test_a_field_that_is_not_given_is_the_one_that_the_class_says() -> None:
    # What is left out is part of the text all the same, so another default would make another model of it.
    assert str(AccumulationModel("align", 8)) == "align:8:F24:RNE"
    assert str(AccumulationModel("tree")) == "tree:1:adjacent:RNE"


def test_the_second_rounding_of_block_add_is_the_one_of_the_addition() -> None:
    model = AccumulationModel.parse("block-add:8:RNA:RZ")
    assert (model.rounding, model.add_rounding) == ("RNA", "RZ")


def test_surrounding_blanks_do_not_matter() -> None:
    assert str(AccumulationModel.parse("  seq:RNE\n")) == "seq:RNE"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("block:16:rne", "block:16:RNE"),
        ("block:16", "block:16:RNE"),
        ("blok:16:RNE", "block:16:RNE"),
        ("tree:16:adjacnt:RNE", "tree:16:adjacent:RNE"),
        ("align:16:24:RZ:acc", "align:16:F24:RZ:acc"),
        ("SEQ:RNE", "seq:RNE"),
        ("exact-mad:RNE", "exact-mmad:RNE"),
        ("fp16-acc(seq)", "fp16-acc(seq:RNE)"),
    ],
)
def test_a_near_miss_is_named(text: str, meant: str) -> None:
    with pytest.raises(ConfigError, match="Did you mean") as error:
        AccumulationModel.parse(text)
    assert f"Did you mean {meant}?" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "block",
        "block:0:RNE",
        "block:-1:RNE",
        "block:016:RNE",
        "block:16:RNE:RNE",
        "block:99999999999:RNE",
        "block:70000:RNE",
        "tree:12:adjacent:RNE",
        "align:16:F0:RZ",
        "align:16:F33:RZ",
        "align:16:F24:RZ:accu",
        "fp16-acc(fp16-acc(seq:RNE))",
        "fp16-acc(seq:RNE",
        "seq:RNE+saturate+split3",
        "seq:RNE+fast",
        "seq:RNE+ftz-in:7",
        "fp16-acc(seq:RNE+split3)",
    ],
)
def test_what_is_not_in_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        AccumulationModel.parse(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "seq", "block": 4},
        {"kind": "block", "block": 16, "pairing": "halves"},
        {"kind": "block", "block": 16, "add_rounding": "RZ"},
        {"kind": "seq", "ftz_in_exponent": -14},
        {"kind": "seq", "rounding": "RU"},
        {"kind": "block", "block": True},
        {"kind": "chain"},
        {"kind": "block-add", "block": 4, "add_rounding": "RU"},
        {"kind": "tree", "block": 4, "pairing": "thirds"},
        {"kind": "seq", "product": "split2"},
        {"kind": "seq", "overflow": "wrap"},
        {"kind": "align", "block": 4, "rounding": "RZ", "fraction_bits": 33},
    ],
)
def test_a_record_that_has_no_text_cannot_be_made(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        AccumulationModel(**fields)  # type: ignore[arg-type]


def test_resolving_fills_in_the_block_and_the_operand_format() -> None:
    model = AccumulationModel.parse("block:cube_k:RNE+ftz-in")
    assert not model.resolved
    assert str(model.resolve(8, operand_min_exponent=-14)) == "block:8:RNE+ftz-in:-14"
    assert model.resolve(8).resolved


def test_resolving_leaves_a_number_alone() -> None:
    model = AccumulationModel.parse("tree:16:halves:RNE")
    assert model.resolve(4, operand_min_exponent=-14) == model


def test_math_settings_refuse_values_without_a_meaning() -> None:
    model = AccumulationModel.parse("seq:RNE")
    assert MathSettings(model).hf32_ties == "RNE"
    with pytest.raises(ConfigError, match="hf32_ties must be one of RNE, RNA, RZ, got 'RU'"):
        MathSettings(model, hf32_ties="RU")
    with pytest.raises(ConfigError, match="overflow must be one of ieee, saturate"):
        MathSettings(model, overflow="clip")


def test_naming_a_model_does_not_load_the_compiler() -> None:
    code = (
        "import sys, ascendsim.numerics.accumulation.models, ascendsim.numerics.compiled.accumulate;"
        "print('numba' in sys.modules, 'ml_dtypes' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]
