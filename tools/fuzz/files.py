"""Whether files of one's own, spoilt in one place, come to an answer: rule sets, and calls to check."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from ascendsim import AclnnError, AscendSimError
from ascendsim.cli import main
from ascendsim.rules import load_rules, resolve
from fuzz.draws import PRODUCTS, RULES, any_call
from fuzz.judge import must

CALL = {
    "name": None,
    "api": "aclnnConvolutionBackward",
    "product": "910B",
    "rules": "documented",
    "tensors": {
        "input": {"shape": [1, 2, 4, 4], "dtype": "float16"},
        "weight": {"shape": [3, 2, 3, 3], "dtype": "float16"},
    },
    "attributes": {"padding": 1},
    "outputs": {},
    "expect": {"status": 0},
}
JSON = (None, True, 0, -1, 1.5, 2**70, "", "x", [], {}, [[]], [1], {"a": 1}, [None] * 100, "a\0", 1e400)
TABLES = {
    "": ("title", "base", "from_cube", "convolution", "tbc"),
    "determinism": ("default", "fixed_order"),
    "convolution": (
        *(
            "products",
            "products_3d",
            "never_null",
            "bias_sizes",
            "contiguous_outputs",
            "equal_formats",
            "batch",
        ),
        *("related_ranks", "squeezed_grad_weight", "wide_grad_bias", "depthwise_3d_bfloat16", "dtypes"),
    ),
    "convolution.dtypes": ("910B", "910_95", "310P"),
    "convolution.output_dtypes.910B": ("grad_input", "grad_weight", "grad_bias"),
    "convolution.eight_bit": ("needs_transposed_grad_input", "uniform", "kernels", "mixed"),
    "convolution.formats": ("3", "4", "5"),
    "convolution.grad_bias_format": ("products", "transposed_too"),
    "convolution.output_padding": ("below_stride_ranks", "zero_unless_transposed", "lengths_2d"),
    "convolution.groups_divide": ("products", "only_depthwise"),
    "convolution.empty": ("products", "needs_n_or_c", "weight_n_positive", "four_pads", "related"),
    "convolution.cube_math.910B": ("float32", "float16", "bfloat16"),
    "tbc": ("products", "equal_inputs", "formats", "bias_formats", "empty", "empty_grad_bias"),
    "tbc.bias_dtypes": ("910B", "910_93"),
}
VALUES = (
    *('""', '"documented"', '"always"', '"never"', '"inputs"', '"product"', '"sides"', "true", "false"),
    *("0", "-1", "1.5", "inf", "nan", "[]", "[3]", "[5, 4]", "[[]]", "{}", "{ a = 1 }", "1979-05-27"),
    *('["910B"]', '["910B", "910_93", "310P"]', '["910C"]', '["float32"]', '["float16"]', '["NCHW", "ND"]'),
    *('["grad_input"]', '["input"]', '["input", "weight"]', '[["input", "weight"]]'),
    '["float16", "hf32", "refused", "absent"]',
)


def rule_file(pick):
    """Spoil one to three places of a rule set; it loads and answers, or says what is wrong with it."""
    lines = [f'base = "{pick.choice(RULES)}"']
    # Sorted, since what stands in no table must come first.
    for table in sorted(pick.sample(sorted(TABLES), pick.choice((1, 1, 2, 3)))):
        lines += [f"[{table}]"] if table else []
        lines += [f"{pick.choice(TABLES[table])} = {pick.choice(VALUES)}"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own.toml"
        path.write_text("\n".join(lines))
        try:
            load_rules(path)
        except AscendSimError as error:
            return type(error).__name__
        for _ in range(5):
            try:
                resolve(any_call(pick), pick.choice(PRODUCTS), path)
            except AclnnError:
                continue
    return "loaded"


def call_file(pick):
    """Spoil one place of a file for `ascendsim check`: it answers with 0, 1 or 2."""
    call = json.loads(json.dumps(CALL))
    table = pick.choice((call, call["tensors"], call["tensors"]["input"], call["attributes"], call["expect"]))
    keys = (*table, "stride", "groups", "grad_output", "shape", "cube_math_type", "bias_sizes", "output_mask")
    table[pick.choice(keys)] = pick.choice(JSON)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "call.json"
        path.write_text(json.dumps(pick.choice((call, [call], pick.choice(JSON)))))
        answer = main(["check", str(path), "--json"])
    must(answer in (0, 1, 2), f"exit status {answer}")
    return f"check {answer}"
