"""Does `ascendsim check` say who accepts a call, and why not?"""

import json
import re
from pathlib import Path

import pytest

from ascendsim.cli import main

WORDS = ("--input", "2,16,14,14", "--weight", "32,16,3,3", "--padding", "1")
CALL = {
    "api": "aclnnConvolutionBackward",
    "tensors": {
        "grad_output": {"shape": [2, 32, 14, 14], "dtype": "float16", "format": "NCHW"},
        "input": {"shape": [2, 16, 14, 14], "dtype": "float16", "format": "NCHW"},
        "weight": {"shape": [32, 16, 3, 3], "dtype": "float16", "format": None},
    },
    "attributes": {"padding": 1},
}


@pytest.fixture
def answers(capsys):
    """Run the command and return its status and rows."""

    def run(*words):
        status = main(("check", *map(str, words), "--json"))
        printed = capsys.readouterr()
        assert printed.err == ""
        return status, json.loads(printed.out)

    return run


@pytest.fixture
def refusal(capsys):
    """Run the command and return the one line of its mistake."""

    def run(*words):
        assert main(("check", *map(str, words))) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("ascendsim: ")
        assert "Traceback" not in printed.err
        return printed.err

    return run


@pytest.fixture
def file(tmp_path):
    """Write a JSON file: the usual call with changes, or anything else as it is."""

    def write(content=None, **changes):
        path = tmp_path / "call.json"
        given = CALL | changes if content is None else content
        path.write_text(given if isinstance(given, str) else json.dumps(given))
        return path

    return write


def statuses(rows):
    return {(row["product"], row["rules"]): row["status"] for row in rows}


def test_products_that_have_the_operator_and_two_rule_sets_are_the_default(answers):
    status, rows = answers(*WORDS)
    assert [(row["product"], row["rules"]) for row in rows] == [
        (product, rules)
        for product in ("910_95", "910B", "910_93", "310P", "910")
        for rules in ("documented", "shipped")
    ]
    assert status == 0
    assert set(statuses(rows).values()) == {0}


def test_products_without_the_operator_are_asked_on_request(answers):
    status, rows = answers(*WORDS, "--product", "310B", "--product", "310")
    assert status == 1
    assert {row["check"] for row in rows} == {"3a (product)"}


def test_each_rule_set_is_asked_on_its_own_products(answers):
    _, rows = answers(*WORDS, "--rules", "documented-002", "--rules", "documented")
    asked = {row["product"] for row in rows if row["rules"] == "documented-002"}
    assert asked == {"910B", "910_93"}


def test_rules_without_any_product_are_asked_on_all(answers, tmp_path):
    path = tmp_path / "none.toml"
    path.write_text('base = "documented"\n[convolution]\nproducts = []\n')
    status, rows = answers(*WORDS, "--rules", path)
    assert (status, len(rows)) == (1, 7)


def test_the_table_says_what_the_rule_sets_are_and_who_is_left_out(capsys):
    assert main(("check", *WORDS)) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Rules documented: the operator pages of 2026-01" in printed
    assert "Rules shipped: what the shipped operator accepts" in printed
    assert "documented is what is promised and shipped what happens" in printed
    assert "Left out, without the operator: 310B, 310 (--product" in printed
    main(("check", "--tbc", "--input", "20,4,8", "--weight", "3,8,16"))
    printed = " ".join(capsys.readouterr().out.split())
    assert "operator: 910_95 by documented, 310P by documented, 910 by documented, 310B, 310 (" in printed
    assert main(("check", *WORDS, "--product", "910B", "--rules", "shipped")) == 0
    printed = capsys.readouterr().out
    assert "Rules documented" not in printed
    assert "Left out" not in printed
    assert "what is promised" not in printed


def test_an_accepted_call_says_what_it_computes_in(answers):
    status, (row,) = answers(*WORDS, "--dtype", "float32", "--cube-math-type", 1, "--product", "910B3",
                             "--rules", "documented")  # fmt: skip
    assert status == 0
    assert (row["status"], row["compute_dtype"], row["promoted_dtype"]) == (0, "hf32", "float32")
    assert row["workspace_bytes"] >= 16 * 2**20
    assert (row["empty"], row["warnings"], row["as_expected"]) == (False, [], True)


def test_a_refused_call_says_why(answers):
    status, (row,) = answers(*WORDS, "--dtype", "bfloat16", "--product", "310P", "--rules", "shipped")
    assert status == 1
    assert (row["status"], row["name"]) == (161002, "ACLNN_ERR_PARAM_INVALID")
    assert row["check"] == "4 (dtypes of the inputs)"
    assert "310P take float32, float16" in row["reason"]


@pytest.mark.parametrize(
    ("words", "rules", "status"),
    [
        (("--dtype", "float32,float16,float16"), "shipped", 0),
        (("--output-dtype", "float32,float16,float16"), "documented", 161002),
        (("--output-dtype", "float32"), "shipped", 0),
        (("--groups", "2"), "shipped", 2),  # no convolution: grad_output cannot follow
        (("--groups", "2", "--grad-output", "2,32,14,14"), "shipped", 161002),
        (("--format", "NHWC"), "shipped", 161002),
        (("--bias-sizes", "1"), "documented", 161002),
        (("--bias-sizes", "1"), "shipped", 0),
        (("--cube-math-type", "4"), "shipped", 161002),
        (("--mask", "input"), "shipped", 0),
        (("--stride", "1,1", "--dilation", "1"), "shipped", 0),
        (("--stride", "0", "--grad-output", "2,32,14,14"), "shipped", 161002),
        (("--grad-output", "2,32,13,14"), "shipped", 561103),
    ],
)
def test_options(capsys, words, rules, status):
    code = main(("check", *WORDS, *words, "--product", "910B", "--rules", rules, "--json"))
    printed = capsys.readouterr()
    if status == 2:
        assert (code, "give its shape as well" in printed.err) == (2, True)
    else:
        (row,) = json.loads(printed.out)
        assert (row["status"], code) == (status, int(status != 0))


def test_transposed_in_words(answers):
    words = ("--input", "8,16,9,9", "--weight", "16,32,3,3", "--transposed", "--stride", "2")
    status, _ = answers(*words, "--output-padding", "1", "--product", "910_95", "--rules", "documented")
    assert status == 0


def test_conv_tbc_in_words(answers):
    words = ("--tbc", "--input", "20,4,8", "--weight", "3,8,16", "--pad", "1", "--rules", "documented")
    _, rows = answers(*words)
    assert {row["product"] for row in rows if row["status"] == 0} == {"910B", "910_93"}
    assert {row["api"] for row in rows} == {"aclnnConvTbcBackward"}


def test_all_rule_sets(answers):
    _, rows = answers(*WORDS, "--product", "910B", "--rules", "all")
    assert len(rows) == 6
    assert rows[0]["rules"] == "documented"


def test_a_file_with_one_call(answers, file):
    status, (row,) = answers(file(), "--product", "910B", "--rules", "shipped")
    assert (status, row["status"], row["compute_dtype"]) == (0, 0, "float16")
    assert row["call"] == "aclnnConvolutionBackward, input 2x16x14x14, weight 32x16x3x3"


def test_a_file_says_where_and_by_whose_rules(answers, file):
    _, rows = answers(file(product=["910B", "910"], rules="hardware", name="mine"))
    assert [(row["call"], row["product"], row["rules"]) for row in rows] == [
        ("mine", "910B", "hardware"),
        ("mine", "910", "hardware"),
    ]
    _, rows = answers(file(product="910B", rules="hardware"), "--product", "910_93", "--rules", "shipped")
    assert statuses(rows) == {("910_93", "shipped"): 0}  # words win


def test_a_file_with_several_calls(answers, file):
    bad = CALL | {"attributes": {"padding": 1, "stride": 0}, "name": "bad"}
    bad["tensors"] = CALL["tensors"]
    status, rows = answers(file([CALL, bad, bad]), "--product", "910B", "--rules", "shipped")
    assert [row["status"] for row in rows] == [0, 161002, 161002]
    assert status == 1


@pytest.mark.parametrize(("expected", "status"), [(0, 1), (161002, 0), (161001, 1), (None, 1)])
def test_what_a_file_expects(answers, file, expected, status):
    path = file(attributes={"padding": 1, "groups": 0}, expect={"status": expected})
    assert answers(path, "--product", "910B", "--rules", "shipped")[0] == status


def test_null_pointers_in_a_file(answers, file):
    tensors = CALL["tensors"] | {"weight": None}
    _, (row,) = answers(file(tensors=tensors), "--product", "910B", "--rules", "shipped")
    assert (row["status"], row["reason"]) == (161001, "weight is null; it must be given")
    outputs = {"grad_input": None}
    _, (row,) = answers(file(outputs=outputs), "--product", "910B", "--rules", "shipped")
    assert (row["status"], row["check"]) == (161001, "3 (null outputs)")
    path = file(attributes={"bias_sizes": None, "padding": 1})
    _, rows = answers(path, "--product", "910B")
    assert statuses(rows) == {("910B", "documented"): 161001, ("910B", "shipped"): 0}
    path = file(attributes={"stride": None, "padding": 1})
    _, (row,) = answers(path, "--product", "910B", "--rules", "shipped")
    assert row["reason"] == "stride is null; it must be given"


def test_outputs_and_strides_in_a_file(answers, file):
    outputs = {"grad_weight": {"shape": [32, 16, 3, 3], "dtype": "float32"}}
    tensors = CALL["tensors"] | {
        "input": {"shape": [2, 16, 14, 14], "dtype": "float16", "strides": [6272, 392, 28, 2]}
    }
    status, _ = answers(file(outputs=outputs, tensors=tensors), "--product", "910B")
    assert status == 0


def test_conv_tbc_in_a_file(answers, file):
    tensors = {
        "input": {"shape": [20, 4, 8], "dtype": "float32", "format": "ND"},
        "weight": {"shape": [3, 8, 16], "dtype": "float32", "format": "ND"},
    }
    call = {"api": "aclnnConvTbcBackward", "tensors": tensors, "attributes": {"pad": 1, "cube_math_type": 3}}
    _, (row,) = answers(file(call), "--product", "910B", "--rules", "documented")
    assert (row["status"], row["compute_dtype"]) == (0, "hf32")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "nested too deep"),
        ("[]", "holds no call"),
        ("3", "got int; it must be a table of name, api"),
        ({"apis": "x"}, "unknown key 'apis'; did you mean api?"),
        ({"api": "aclnnAdd"}, "it must be aclnnConvolutionBackward or aclnnConvTbcBackward"),
        *(({"api": api}, "it must be aclnnConvolutionBackward or") for api in ([], {}, None, 3, True)),
        ({"tensors": {"input": None}}, "tensors has no weight"),
        ({"tensors": {"input": 3, "weight": None}}, "input: got int"),
        ({"tensors": {"input": {"shape": [1]}, "weight": None}}, "input: dtype is missing"),
        ({"tensors": {"input": {"shape": 3, "dtype": "float16"}, "weight": None}}, "shape is 3"),
        ({"tensors": {"input": None, "weight": None}}, "grad_output is missing"),
        (CALL | {"attributes": {"pad": 1}}, "unknown key 'pad'; did you mean padding?"),
        (CALL | {"expect": {"status": "ok"}}, "expect.status is 'ok'"),
        (CALL | {"product": 3}, "product: got 3"),
        (CALL | {"outputs": {"grad": None}}, "unknown key 'grad'"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_place(refusal, file, content, message):
    path = file(content)
    error = refusal(path)
    assert message in error
    assert str(path) in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--input is missing"),
        (("--input", "1,2,3"), "--weight is missing"),
        (
            ("s3b1_3x3",),
            "s3b1_3x3: cannot be read (No such file or directory); name a file of calls in JSON, or",
        ),
        ((*WORDS, "--product", "920"), "unknown product '920'"),
        ((*WORDS, "--rules", "shiped"), "did you mean shipped?"),
        ((*WORDS, "--pad", "1"), "--pad goes with --tbc"),
        (("--tbc", *WORDS), "--padding goes without --tbc"),
        (("--tbc", "--input", "1,2,3", "--weight", "1,2"), "bias is missing"),
        ((*WORDS, "--dtype", "float16,float32"), "neither one name nor three"),
        ((*WORDS, "--dtipe", "float16"), "did you mean --dtype?"),
        ((*WORDS, "--mask", "all"), "'all' is not one of input, weight, bias"),
    ],
)
def test_a_mistake_in_words(refusal, words, message):
    assert message in refusal(*words)


def test_a_file_and_sizes_do_not_go_together(refusal, file):
    assert "cannot be combined" in refusal(file(), *WORDS)


def test_a_product_of_ones_own(answers, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "910B"\n')
    _, (row,) = answers(*WORDS, "--product", path, "--rules", "documented")
    assert (row["status"], row["product"]) == (0, str(path))


def test_the_table(capsys, file):
    assert main(("check", str(file(expect={"status": 161002}, name="one")), "--product", "910B")) == 1
    printed = capsys.readouterr().out
    assert "one, expected 161002" in printed
    assert re.search(r"documented +0 \(!\) +accepted, computes in float16, workspace 16,", printed)
    main(("check", *WORDS, "--dtype", "bfloat16", "--cube-math-type", "2", "--product", "910B"))
    printed = capsys.readouterr().out
    assert "161002  ACLNN_ERR_PARAM_INVALID, check 14 (cube_math_type):" in printed
    assert "warning:" in printed


def test_the_table_of_an_empty_call(capsys):
    words = ("--input", "0,16,14,14", "--weight", "32,16,3,3", "--grad-output", "0,32,12,12")
    assert main(("check", *words, "--product", "910B")) == 0
    assert "accepted, empty, writes zeros, workspace 16,777,216 bytes" in capsys.readouterr().out


def test_the_list_of_commands_knows_it(capsys):
    with pytest.raises(SystemExit):
        main(("--help",))
    assert "would the interface accept a call" in capsys.readouterr().out


def test_the_example_calls_get_what_they_expect(answers):
    path = Path(__file__).parents[2] / "examples" / "interface_calls.json"
    status, rows = answers(path)
    assert [row for row in rows if not row["as_expected"]] == []
    assert (status, len(rows)) == (0, 36)
    # They are worth showing only if both answers occur.
    assert {row["status"] for row in rows} == {0, 161001, 161002, 561103}


@pytest.mark.parametrize(("rules", "status"), [("documented", 2), ("shipped", 0), ("hardware", 0)])
def test_runs_follow_a_rule_set_too(capsys, rules, status):
    # bfloat16 with USE_FP16: refused by the page, computed in float16 by the operator.
    words = ("--input", "1,16,6,6", "--weight", "16,16,3,3", "--dtype", "bfloat16", "--cube-math-type", "2")
    assert main(("run", *words, "--cycles-only", "--rules", rules)) == status
    printed = capsys.readouterr()
    if status:
        assert printed.err.startswith("ascendsim: 161002 ACLNN_ERR_PARAM_INVALID, check 14")
    else:
        assert f"rule set `{rules}`" in " ".join(printed.out.split())


def test_runs_refuse_an_unknown_rule_set(capsys):
    words = ("--input", "1,16,6,6", "--weight", "16,16,3,3", "--cycles-only", "--rules", "shiped")
    assert main(("run", *words)) == 2
    assert "did you mean shipped?" in capsys.readouterr().err


def test_a_contradiction_in_options_is_one_of_the_call(refusal):
    told = refusal("--input", "2,16,14,14", "--weight", "32,17,3,3")
    assert told.startswith("ascendsim: the call: grad_output does not follow from the rest")
