"""Do the worked examples of the page on arithmetic come out, by the definition and by the machine code?"""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from ascendsim.numerics.accumulation.models import KINDS, AccumulationModel, products_of
from ascendsim.numerics.accumulation.twins import accumulate_twin
from ascendsim.numerics.compiled.accumulate import accumulate
from ascendsim.precision import GPUS

PAGE = (Path(__file__).parents[2] / "docs" / "arithmetic.md").read_text()
SECTION = PAGE.partition("\n## Accumulation models\n")[2].partition("\n## ")[0]
TABLE = SECTION.partition("```text\n")[2].partition("```")[0]


def number(text):
    """Return the value of sums of products of powers, such as 1+2^-23."""
    assert re.fullmatch(r"[-+0-9.^()]+", text), text
    # ** binds its exponent's sign, and the sign in front of a power is that of the power: -2^24 is -(2^24).
    return float(eval(text.replace("^", "**"), {"__builtins__": {}}))


def rows():
    """Yield (model, c, Mmads as lists of operand pairs, result) of each line."""
    for line in TABLE.splitlines():
        model, c, products, result, _ = re.split(r" {2,}", line, maxsplit=4)
        mmads = []
        for part in products.split("|"):
            factors = [(*word.split("*"), "1")[:2] for word in part.split()]
            mmads.append([(number(a), number(b)) for a, b in factors])
        yield AccumulationModel.parse(model), number(c), mmads, number(result)


ROWS = list(rows())


@pytest.mark.parametrize(("model", "c", "mmads", "result"), ROWS, ids=str)
@pytest.mark.parametrize("compiled", [False, True], ids=["definition", "compiled"])
def test_a_worked_example_comes_out(model, c, mmads, result, compiled):
    slices = [tuple(np.array(side, np.float32) for side in zip(*mmad, strict=True)) for mmad in mmads]
    accumulators = np.full((1, 1), c, np.float32)
    for a, b in products_of(model, [(a[None], b[:, None]) for a, b in slices]):
        if compiled:
            accumulate(model, np.ascontiguousarray(a), np.ascontiguousarray(b), accumulators)
        else:
            accumulators = accumulate_twin(model, a, b, accumulators)
    assert accumulators.item() == result
    assert math.copysign(1, accumulators.item()) == math.copysign(1, result)


def test_every_kind_and_option_has_an_example():
    models = [model for model, *_ in ROWS]
    assert {model.kind for model in models} == set(KINDS)
    assert {model.pairing for model in models if model.kind == "tree"} == {"adjacent", "halves"}
    assert {model.with_accumulator for model in models if model.kind == "align"} == {False, True}
    for field in ("half", "ftz_in", "ftz_acc"):
        assert {getattr(model, field) for model in models} == {False, True}, field
    assert {model.product for model in models} == {"exact", "split3"}
    assert {model.overflow for model in models} == {"ieee", "saturate"}


def test_every_kind_has_a_definition():
    defined = set(re.findall(r"^\| `([a-z0-9-]+)[:(]", SECTION, re.MULTILINE))
    assert defined == {*KINDS, "fp16-acc"}


def test_the_code_of_the_section_runs():
    for block in re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL):
        exec(compile(block, "docs/arithmetic.md", "exec"), {})


@pytest.mark.parametrize("title", ["Arithmetics side by side", "grad_weight by Winograd"])
def test_the_code_of_a_section_prints_what_stands_below_it(capsys, title):
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    exec(compile(code, "docs/arithmetic.md", "exec"), {})
    assert capsys.readouterr().out == printed


def test_the_page_gives_every_gpu_its_parameters():
    for name, gpu in GPUS.items():
        model = AccumulationModel.parse(gpu.model)
        assert re.search(rf"`{name}` \(F{model.fraction_bits}, {model.block}\b", PAGE), name
