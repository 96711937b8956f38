"""Are the numbers, rooms and links of the pages those of the code and its tools?"""

import ast
import doctest
import inspect
import json
import math
import re
import tomllib
from dataclasses import fields
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import ascendsim
from ascendsim import ConvProblem, convolution_backward
from ascendsim.cli import main
from ascendsim.numerics.accumulation import KINDS, AccumulationModel, products_of
from ascendsim.numerics.accumulation_twins import accumulate_twin
from ascendsim.numerics.compiled.accumulate import accumulate
from ascendsim.ops.options.asked import planned_call
from ascendsim.ops.options.call import options_of
from ascendsim.ops.schedules.vector.elementwise import vector_cores
from ascendsim.precision import GPUS
from ascendsim.profile.schema import CONFIDENCES
from ascendsim.report.markdown import markdown_table
from ascendsim.report.overview import products_table
from ascendsim.report.tables import (
    CALL,
    ERRORS,
    GRADIENT,
    KERNEL,
    LAYER,
    busy_table,
    bytes_table,
    gradient_table,
    layer_table,
    time_table,
)
from ascendsim.studies.engine.run import Engine, Store
from ascendsim.studies.table import text_table
from ascendsim.validate.schema import KERNELS, PLAN, MeasuredRow
from tests.documents.test_page_examples import ROOT
from tests.helpers.report_samples import GRADIENT as ENTRY
from tests.helpers.report_samples import NETWORK, PRODUCT
from tools.tuned import kernels, table, tuned
from web.pages import ROOT as SITE_ROOT
from web.pages import as_markdown, converted, links, pages, redirected, reference, shown, site_path

# --- Are numbers and columns defined as in the code, and is every table that is printed explained? -----

PAGE = ROOT / "docs" / "numbers.md"
COLUMNS = ROOT / "reports" / "columns.md"
HEAD = """# Every column

Written by `pytest tests/documents/test_page_sources.py --update` from definitions in the code: the numbers of
`result.json` and of the tables that [numbers.md](../docs/numbers.md) explains, then the columns of a table of
measurements ([validation.md](../docs/validation.md#a-table)).
"""
PLACES = (
    ("A call on a product (`products`)", CALL),
    ("A kernel (`products.kernels`)", KERNEL),
    ("A layer of a network (`products.layers`)", LAYER),
    ("A gradient (`products.gradients`)", (*GRADIENT, *ERRORS)),
)


def table_of(title, headings, rows):
    return f"## {title}\n\n{markdown_table(text_table('', headings, frozenset(range(4)), tuple(rows)))}\n"


def code(names):
    return ", ".join(f"`{name}`" for name in names)


def columns_page():
    """The tables of all columns, as the page has them."""
    parts = [HEAD]
    for title, columns in PLACES:
        rows = [(c.heading, f"`{c.name}`", c.unit, c.definition) for c in columns]
        parts.append(table_of(title, ("in the tables", "in result.json", "unit", "meaning"), rows))
    kernels = [(f"`{n}`", k.kind, f"`measured_{k.unit}`", code(k.needs)) for n, k in KERNELS.items()]
    parts.append(
        table_of("Measured kernels (`kernel`)", ("kernel", "class", "measured in", "needs"), kernels)
    )
    own = [
        (f"`{f.name}`", f.metadata["form"].rule, f.metadata["meaning"])
        for f in fields(MeasuredRow)
        if f.name not in PLAN
    ]
    parts.append(table_of("Measured rows", ("column", "holds", "meaning"), own))
    parts.append(f"The plan of a matrix product, named as in `Tiling`: {code(PLAN)}.\n")
    return "\n".join(parts)


def test_every_column_is_defined_as_in_the_code(update):
    if update:
        COLUMNS.write_text(columns_page())
    assert COLUMNS.read_text() == columns_page(), "`pytest THIS_TEST --update` rewrites the tables"


@pytest.mark.parametrize(
    "table",
    [
        products_table([PRODUCT, PRODUCT | {"interval": None}]),
        time_table(PRODUCT),
        busy_table(PRODUCT),
        bytes_table(PRODUCT),
        gradient_table(PRODUCT | {"gradients": [ENTRY]}),
        layer_table(NETWORK),
    ],
    ids=lambda table: table.title[:20],
)
def test_every_table_of_the_terminal_is_explained(table):
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    explained = [line.split("|")[1].strip() for line in lines]
    beginnings = [title.partition(" ...")[0] for title in explained]
    assert any(table.title.startswith(beginning) for beginning in beginnings if beginning), table.title


# Names that the file takes from elsewhere: pipes, buffers, confidences, figures of a product file.
TAKEN = {"S", "M", "V", "MTE1", "MTE2", "MTE3", "FIX", "L2", *CONFIDENCES}


def names_in(value, path=""):
    """Every name of a document, but for those under which it says values by figure or by field of a plan."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield name
            if path not in ("plan", "definitions") and name not in ("plan", "definitions"):
                of_figures = each.values() if name == "assumed_figures" else [each]
                for one in of_figures:
                    yield from names_in(one, name)
    elif isinstance(value, list):
        for each in value:
            yield from names_in(each, path)


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--input", "1,16,6,6", "--weight", "16,16,3,3", "--padding", "1", "--interval"),
        ("run", "--network", "alexnet", "--cycles-only"),
    ],
    ids=["a layer", "a network"],
)
def test_every_name_of_a_result_is_on_the_page(words, tmp_path, capsys):
    assert main([*words, "--no-trace", "--out", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    text = PAGE.read_text() + COLUMNS.read_text()
    found = set(names_in(json.loads((tmp_path / "out" / "result.json").read_text())))
    assert {"assumed_figures", "cube_mhz", "kernels"} <= found
    assert [name for name in sorted(found - TAKEN) if not re.search(rf"`[\w.]*\b{name}`", text)] == []


# --- Does reports/tuned.md say what its tool finds, and do its totals follow from its rows? ------------

TUNED_PAGE = Path(__file__).parents[2] / "reports" / "tuned.md"


def rows():
    """The cells of each gradient."""
    lines = [
        line for line in TUNED_PAGE.read_text().splitlines() if "| grad_" in line and line.count("|") == 12
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_gradient_of_training_is_on_the_page():
    # 23 layers, two gradients each, but no grad_input of the first.
    asked = [(layer, gradient, str(count)) for layer, gradient, count, _ in kernels(32)]
    assert len(asked) == 45
    assert [tuple(row[:3]) for row in rows()] == asked


def test_the_totals_are_those_of_the_rows():
    for gradient in ("grad_input", "grad_weight"):
        own = [row for row in rows() if row[1] == gradient]
        before, after, bound = (sum(int(row[2]) * float(row[at]) for row in own) for at in (3, 4, 6))
        # Rows have hundredths of a microsecond, and layers come up to six times.
        [line] = (line for line in TUNED_PAGE.read_text().splitlines() if line.startswith(f"| {gradient} |"))
        said = [float(cell.replace(",", "")) for cell in line.strip("|").split("|")[1:]]
        assert said == pytest.approx([before, after, 100 * (1 - after / before), bound], abs=1)


def test_no_tuned_plan_is_slower_than_the_products_or_faster_than_the_bound():
    for row in rows():
        assert float(row[6]) <= float(row[4]) <= float(row[3]), row


def test_the_total_falls_by_at_least_3_percent():
    [both] = (line for line in TUNED_PAGE.read_text().splitlines() if line.startswith("| both |"))
    assert float(both.split("|")[4]) >= 3


def test_a_gradient_is_found_as_the_page_has_it():
    kernel = next(each for each in kernels(32) if each[:2] == ("s2b0_1x1a", "grad_input"))
    found = tuned("910B2", kernel, 100, Engine(Store(), 1))
    line = next(
        line for line in TUNED_PAGE.read_text().splitlines() if line.startswith("| s2b0_1x1a | grad_input")
    )
    # The digits of the page; the same tool wrote it.
    assert line in markdown_table(table([found]))


# -------------------------------------------------------------------------------------------------------
# Do the worked examples of the page on arithmetic come out, by the definition and by the machine code?
# -------------------------------------------------------------------------------------------------------

ARITHMETIC_PAGE = (Path(__file__).parents[2] / "docs" / "arithmetic.md").read_text()
SECTION = ARITHMETIC_PAGE.partition("\n## Accumulation models\n")[2].partition("\n## ")[0]
TABLE = SECTION.partition("```text\n")[2].partition("```")[0]


def number(text):
    """Return the value of sums of products of powers, such as 1+2^-23."""
    assert re.fullmatch(r"[-+0-9.^()]+", text), text
    # ** binds its exponent's sign, and the sign in front of a power is that of the power: -2^24 is -(2^24).
    return float(eval(text.replace("^", "**"), {"__builtins__": {}}))


def rows_arithmetic():
    """Yield (model, c, Mmads as lists of operand pairs, result) of each line."""
    for line in TABLE.splitlines():
        model, c, products, result, _ = re.split(r" {2,}", line, maxsplit=4)
        mmads = []
        for part in products.split("|"):
            factors = [(*word.split("*"), "1")[:2] for word in part.split()]
            mmads.append([(number(a), number(b)) for a, b in factors])
        yield AccumulationModel.parse(model), number(c), mmads, number(result)


ROWS = list(rows_arithmetic())


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
    section = ARITHMETIC_PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    exec(compile(code, "docs/arithmetic.md", "exec"), {})
    assert capsys.readouterr().out == printed


def written_from_the_page(grad_output, input, order, padding):
    """Return grad_weight (3x3, stride 1, one group) under block:16:RNE, as the page alone says.

    Values are such that float64 holds a block's sum, so that only the cast rounds.
    """
    width, padded = grad_output.shape[3], np.pad(input, [(0, 0), (0, 0), *[(padding, padding)] * 2])

    def part(segments):
        c = np.zeros((grad_output.shape[1], input.shape[1], 3, 3), np.float32)
        for image, (first, pixels) in segments:
            for mmad in range(first, first + pixels, order.base_k):
                end = min(mmad + order.base_k, first + pixels)
                for block in range(mmad, end, 16):
                    exact = c.astype(np.float64)
                    for row, column in (divmod(pixel, width) for pixel in range(block, min(block + 16, end))):
                        window = padded[image, :, row : row + 3, column : column + 3]
                        exact += grad_output[image, :, row, column, None, None, None] * window
                    c = exact.astype(np.float32)
        return c

    def added(parts):
        while order.tree and len(parts) > 1:
            parts = [sum(parts[at + 1 : at + 2], parts[at]) for at in range(0, len(parts), 2)]
        return sum(parts[1:], parts[0])

    images, count = range(len(input)), order.k_split
    whole = [(image, run) for image in images for run in order.ranges]
    if order.stream:
        s = order.stream
        segments = [(image, run) for image in images for run in s.ranges]
        places = [run[0] // width if s.axis == "height" else image for image, run in segments]
        own = [
            [segment for segment, place in zip(segments, places, strict=True) if place // s.length == p]
            for p in range(count)
        ]
        streamed, made = added([part(one) for one in own]), part(whole)
        for _, _, row, rows, column, columns in s.blocks:
            for at in range(column, column + columns):
                group, tap, channel = at // (9 * s.c0), at // s.c0 % 9, at % s.c0
                big = group * s.c0 + channel
                if big < input.shape[1]:
                    place = slice(row, row + rows), big, tap // 3, tap % 3
                    made[place] = streamed[place]
        return made
    if order.grid:
        return added([part([(n, order.ranges[r]) for n in own for r in runs]) for own, runs in order.grid])
    ends = [len(whole) * p // count for p in range(count + 1)]
    return added([part(whole[first:end]) for first, end in pairwise(ends)])


def bias_from_the_page(grad_output, cores):
    """Return grad_bias in float32, as the page alone says."""
    batch, channels = grad_output.shape[:2]
    parts = max(1, min(batch, cores // channels))
    sums = []
    for p in range(parts):
        lanes = np.zeros((channels, 64), np.float32)
        for image in grad_output[batch * p // parts : batch * (p + 1) // parts].astype(np.float32):
            for e, pixels in enumerate(image.reshape(channels, -1).T):
                lanes[:, e % 64] += pixels
        while lanes.shape[1] > 1:
            lanes = lanes[:, : lanes.shape[1] // 2] + lanes[:, lanes.shape[1] // 2 :]
        sums.append(lanes[:, 0])
    return sum(sums[1:], sums[0])


@pytest.mark.parametrize(("product", "cores"), [("910B2", 48), ("910_95", 64), ("910", 32), ("910_93", 48)])
def test_an_implementation_from_the_page_alone_has_the_bits_of_gradients(product, cores):
    rng = np.random.default_rng(sum(map(ord, product)))
    for _ in range(5):
        batch, channels, out = int(rng.integers(1, 5)), int(rng.choice([3, 16, 32])), int(rng.choice([8, 40]))
        padding, size = int(rng.integers(0, 2)), tuple(map(int, rng.integers(5, 18, 2)))
        problem = ConvProblem((batch, channels, *size), (out, channels, 3, 3), 1, padding)
        dy, x, w = (
            # In one binade: 16 products of 22 bits and an accumulator are exact in float64.
            ((1 + rng.random(shape)) * rng.choice([-1, 1], shape)).astype(np.float16)
            for shape in (problem.grad_output, problem.input, problem.weight)
        )
        mask, keywords = (False, True, True), {"product": product, "accumulation": "block:16:RNE"}
        keywords |= {"rules": "hardware", "output_dtypes": (None, "float32", "float16")}
        pads = [padding, padding]
        result = convolution_backward(
            dy, x, w, [out], [1, 1], pads, [1, 1], False, [0, 0], 1, mask, 0, timing=False, **keywords
        )
        _, call = planned_call(problem, options_of("estimate", keywords), "float16", 0, mask)
        assert call.as_product("grad_weight") is None
        order = call.schedule("grad_weight").order()
        assert (order.shares, order.strip_w) == ((), 0)
        wide = dy.astype(np.float64), x.astype(np.float64)
        made = written_from_the_page(*wide, order, padding)
        assert np.array_equal(made.view(np.uint32), result.grad_weight.view(np.uint32)), problem
        assert len(vector_cores(call.profile)) == cores
        bias = bias_from_the_page(dy, cores).astype(np.float16)
        assert np.array_equal(bias.view(np.uint16), result.grad_bias.view(np.uint16)), problem


def test_the_page_gives_every_gpu_its_parameters():
    for name, kinds in GPUS.items():
        for kind, gpu in kinds.items():
            row = rf"\|.*`{name}`.*\|.*\b{kind}\b.*\| `{gpu.model}` \| {gpu.fraction} \|"
            assert re.search(row, ARITHMETIC_PAGE), (name, kind)


# -------------------------------------------------------------------------------------------------------
# Is docs/architecture.md true: its code, its functions, its rooms; and is every instruction described?
# -------------------------------------------------------------------------------------------------------

ARCHITECTURE_ROOT = Path(ascendsim.__file__).parent
TESTS = ARCHITECTURE_ROOT.parent / "tests"
ARCHITECTURE_PAGE = (ARCHITECTURE_ROOT.parent / "docs" / "architecture.md").read_text()
ROOMS = ARCHITECTURE_PAGE.split("## The rooms")[1]
INSTRUCTIONS = ARCHITECTURE_ROOT.parent / "reports" / "instructions.md"
ARCHITECTURE_HEAD = """# All instructions

Written by `pytest tests/documents/test_page_sources.py --update` from docstrings of `instructions/`.
[architecture.md](../docs/architecture.md#an-instruction-and-a-nest-from-nothing) writes a new one.
"""


def test_the_page_prints_what_it_says():
    done = doctest.testfile(str(ARCHITECTURE_ROOT.parent / "docs" / "architecture.md"), module_relative=False)
    assert done.attempted > 20
    assert done.failed == 0


def defined_in(path):
    """The names of the functions, classes and methods of a file."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{own.name}" for own in node.body if isinstance(own, ast.FunctionDef)}
    return names


def test_what_a_call_goes_through_is_where_the_page_says():
    way = ARCHITECTURE_PAGE.split("## From the door to the trace")[1].split("\n## ")[0]
    steps = [row.split(" | ")[-1] for row in re.findall(r"^\| \d+ \| (.*) \|$", way, re.M)]
    assert len(steps) == 10
    for step in steps:
        named = re.findall(r"\[`([\w.]+)`\]\(\.\./([\w/.]+)\)", step)
        assert named
        for name, path in named:
            assert name in defined_in(ARCHITECTURE_ROOT.parent / path), (name, path)


def instruction_classes():
    """Every public class of `instructions` that has a meaning and a cost."""
    found = {}
    for path in sorted((ARCHITECTURE_ROOT / "instructions").glob("*.py")):
        module = import_module(f"ascendsim.instructions.{path.stem}")
        for name, kind in inspect.getmembers(module, inspect.isclass):
            own = kind.__module__ == module.__name__ and not name.startswith("_")
            if own and hasattr(kind, "execute") and hasattr(kind, "cost"):
                found[name] = kind
    return found


CLASSES = instruction_classes()


def test_the_page_of_instructions_is_that_of_the_docstrings(update):
    shown = [
        f"## `{name}`\n\n{as_markdown(inspect.getdoc(kind))}\n" for name, kind in sorted(CLASSES.items())
    ]
    page = "\n".join([ARCHITECTURE_HEAD, *shown])
    if update:
        INSTRUCTIONS.write_text(page)
    assert INSTRUCTIONS.read_text() == page, "`pytest THIS_TEST --update` rewrites it"


@pytest.mark.parametrize("name", CLASSES)
def test_a_docstring_says_what_an_instruction_costs_and_on_which_pipe(name):
    told = dict(re.findall(r"^(\w+) {2,}(.*)$", inspect.getdoc(CLASSES[name]), re.M))
    assert told["Cost"]
    declared = inspect.getattr_static(CLASSES[name], "pipe", None)
    assert not isinstance(declared, str) or re.split(r"\W", told.get("Pipe", declared))[0] == declared


def test_the_rooms_are_those_at_the_top():
    named = set(re.findall(r"`([a-z_]+)(?:/[a-z_]+)?`", "".join(re.findall(r"^\| (`[^|]*)\|", ROOMS, re.M))))
    files = [path for path in ARCHITECTURE_ROOT.iterdir() if path.is_dir() or path.suffix == ".py"]
    there = {path.stem for path in files if not path.name.startswith("_") and path.name != "configs"}
    assert there - named <= {"errors", "arguments"}
    assert named <= there


def test_every_folder_of_tests_says_the_question_that_it_asks():
    for path in TESTS.glob("*/__init__.py"):
        name = path.parent.name.capitalize()
        assert re.fullmatch(rf'"""{name}: .+"""\n', path.read_text()), path
    # A test beside the folders would be found by nobody who looks for its question.
    assert {path.name for path in TESTS.glob("*.py")} == {"__init__.py", "conftest.py"}


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((\.\.?/[^)#]+)\)", ARCHITECTURE_PAGE):
        assert (ARCHITECTURE_ROOT.parent / "docs" / target).exists(), target


# --- Do the pages lead where they say, once they are a site? -------------------------------------------


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("docs/timing.md", "timing.md"),
        ("README.md", "index.md"),
        ("CHANGELOG.md", "CHANGELOG.md"),
        ("reports/validation.png", "reports/validation.png"),
        ("examples", "examples/index.md"),
        ("examples/05_many_estimates.py", "examples/05_many_estimates.py.md"),
        ("ascendsim/parallel.py", "source/ascendsim/parallel.py.md"),
        ("ascendsim/timing", "source/ascendsim/timing/index.md"),
    ],
)
def test_every_file_has_a_place_on_the_site(here, there):
    assert site_path(here) == there


def test_links_keep_their_heading_and_other_sites_stay():
    text = "[a](../README.md#words) [b](https://x.org/y) [c](#here) [d](../ascendsim/parallel.py)"
    expected = "[a](index.md#words) [b](https://x.org/y) [c](#here) [d](source/ascendsim/parallel.py.md)"
    assert redirected(text, "docs/timing.md") == expected


def test_what_stands_in_code_is_no_link():
    text = "```python\nx[0](y)\n```\n[a](z.md)"
    assert links(text, "docs/x.md") == {"docs/z.md"}
    assert redirected(text, "README.md") == "```python\nx[0](y)\n```\n[a](z.md)"


def test_a_page_of_code_shows_the_file_and_a_folder_lists_its_files():
    code = shown("examples/05_many_estimates.py")
    assert (SITE_ROOT / "examples/05_many_estimates.py").read_text() in code
    assert converted("examples/05_many_estimates.py", code) == code
    assert "[parallel.py](parallel.py.md)" in converted("ascendsim", shown("ascendsim"))


def test_every_page_that_is_linked_to_is_there():
    made = pages()
    for name, text in {
        **made,
        **{str(p.relative_to(SITE_ROOT)): p.read_text() for p in (SITE_ROOT / "docs").rglob("*.md")},
    }.items():
        if not name.endswith(".md"):
            continue
        for target in links(text, name):
            assert target in made or (SITE_ROOT / target).is_file(), f"{name} links to {target}"


def test_every_page_of_docs_is_in_the_menu():
    menu = (SITE_ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = set(re.findall(r": (\S+\.md)$", menu, re.MULTILINE))
    assert {page.name for page in (SITE_ROOT / "docs").glob("*.md")} <= listed
    assert {f"reports/{page.name}" for page in (SITE_ROOT / "reports").glob("*.md")} <= listed


def test_the_reference_has_every_public_name():
    assert all(f"::: ascendsim.{name}\n" in reference() for name in ascendsim.__all__ if name[0] != "_")


def test_labelled_lines_of_a_docstring_become_a_list():
    text = "Do it.\n\nShapes   a (m, k)\nRaises   ShapeError if not;\n         or else"
    items = "- **Shapes**: a (m, k)\n- **Raises**: ShapeError if not;\n  or else"
    assert as_markdown(text) == "Do it.\n\n" + items


def test_the_site_is_built_by_make_and_its_tools_have_bounds():
    extras = tomllib.loads(Path(SITE_ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert all(re.search(r">=.*<", line) for line in extras["site"])
