"""Do the examples in README, pages, tutorials and the notebook run, and print what they say?"""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from ascendsim import ConvProblem
from ascendsim.cli import main
from ascendsim.workloads import load_workload, workload_names
from web.pages import converted, notebook_page
from web.pages import shown as page_of

# --- Are the words of the README true, and do the examples run? ----------------------------------------

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
# A piece of code, and the block of text right after it, which is what it prints.
BLOCKS = re.compile(
    r"```(?P<kind>python|console)\n(?P<code>.*?)```\n\n```text\n(?P<printed>.*?)```", re.DOTALL
)


def printed_by(kind, code):
    """Run a block and return what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if kind == "python":
            exec(compile(code, "README.md", "exec"), {})
        else:
            for line in code.splitlines():
                program, *words = shlex.split(line.removeprefix("$ "))
                assert program == "ascendsim"
                assert main(words) == 0
    return out.getvalue()


def check_what_is_printed(page, kinds, update):
    """Run the blocks of a page in their order, and compare or replace what it says that they print."""
    text = page.read_text()
    blocks = list(BLOCKS.finditer(text))
    assert {block["kind"] for block in blocks} == kinds
    made = [printed_by(block["kind"], block["code"]) for block in blocks]
    if update:
        for block, printed in zip(reversed(blocks), reversed(made), strict=True):
            text = text[: block.start("printed")] + printed + text[block.end("printed") :]
        page.write_text(text)
        blocks = list(BLOCKS.finditer(text))
    for block, printed in zip(blocks, made, strict=True):
        assert block["printed"] == printed, "`pytest THIS_TEST --update` rewrites the outputs"


def test_the_readme_prints_what_it_says(update):
    check_what_is_printed(README, {"python", "console"}, update)


def test_the_example_is_ten_lines():
    code = next(block["code"] for block in BLOCKS.finditer(README.read_text()) if block["kind"] == "python")
    assert len([line for line in code.splitlines() if line.strip()]) == 10


def test_the_readme_is_short():
    assert len(README.read_text().splitlines()) < 150


def test_the_docs_are_short():
    """What needs more words than this says something twice, or what was tried and lost."""
    words = " ".join(path.read_text() for path in (ROOT / "docs").rglob("*.md")).split()
    # A whole text of PTO, to be copied, brought 190; energy at other voltages and what kernels use 350.
    assert sum(bool(re.search(r"\w", word)) for word in words) <= 32_770


def test_every_link_of_the_readme_leads_somewhere():
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README.read_text())
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def test_every_make_target_of_the_readme_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"`make ([a-z-]+)`", README.read_text()))
    assert {"run", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


# test_page_examples.py runs the other one, and reads what it prints.
EXAMPLES = sorted([*(ROOT / "examples").glob("0[1-8]*.py"), *(ROOT / "examples").glob("1[12]*.py")])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(path, tmp_path):
    if "import torch" in path.read_text():
        pytest.importorskip("torch", reason="torch is not installed: its examples cannot run")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr == ""


# --- Does the notebook show what it says, and is it stored as it was run? ------------------------------

PAGE = ROOT / "examples" / "10_a_layer_in_a_notebook.ipynb"
# What IPython says of an object that shows itself as HTML too: its address.
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
SECONDS = 600


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def shown(cell):
    """What a cell shows, without the repr of an object that has a better form."""
    found = []
    for output in cell["outputs"]:
        assert output["output_type"] in ("stream", "execute_result"), output
        data = output.get("data", {"text/plain": output.get("text", "")})
        kind = next(kind for kind in ("text/html", "image/svg+xml", "text/plain") if kind in data)
        found.append((kind, ADDRESS.sub("", "".join(data[kind]))))
    return found


def test_the_stored_notebook_is_small():
    assert PAGE.stat().st_size < 100_000


def test_every_cell_was_run_in_order_and_shows_something():
    cells = code_cells(json.loads(PAGE.read_text()))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(shown(cell) for cell in cells)
    # The result, both tables, the roofline.
    kinds = {kind for cell in cells for kind, _ in shown(cell)}
    assert kinds == {"text/html", "image/svg+xml", "text/plain"}


@pytest.mark.slow
def test_the_notebook_shows_what_it_says(update):
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    pytest.importorskip("pandas", reason="pandas is not installed")
    made = nbformat.read(PAGE, as_version=4)
    client = nbclient.NotebookClient(made, timeout=SECONDS, resources={"metadata": {"path": str(ROOT)}})
    client.execute()
    for cell in made.cells:
        cell.metadata.pop("execution", None)  # when it ran
    if update:
        made.metadata.pop("language_info", None)  # which Python it ran on
        for data in [output.get("data", {}) for cell in code_cells(made) for output in cell["outputs"]]:
            # The repr of a result is megabytes of programs, and is not looked at where there is HTML.
            if len(data) > 1:
                data.pop("text/plain", None)
        nbformat.write(made, PAGE)
    stored = nbformat.read(PAGE, as_version=4)
    for cell, other in zip(code_cells(made), code_cells(stored), strict=True):
        assert cell.source == other.source
        assert shown(cell) == shown(other), "`pytest THIS_TEST -m slow --update` rewrites the outputs"


def test_a_link_of_the_notebook_leads_to_a_page_of_the_site():
    name = "examples/10_a_layer_in_a_notebook.ipynb"
    assert "](../numbers.md)" in converted(name, page_of(name))
    assert name.partition("/")[2] in page_of("examples")


def test_the_site_shows_text_code_and_outputs():
    notebook = {
        "cells": [
            {"cell_type": "markdown", "source": ["# A\n", "[b](../docs/numbers.md)"]},
            {
                "cell_type": "code",
                "source": "1 + 1",
                "outputs": [
                    {"output_type": "stream", "text": ["said\n"]},
                    {"output_type": "execute_result", "data": {"text/plain": ["2"]}},
                    {"output_type": "execute_result", "data": {"text/plain": "x", "text/html": "<b>\n\nx"}},
                ],
            },
        ]
    }
    assert notebook_page(notebook) == (
        "# A\n[b](../docs/numbers.md)\n\n```python\n1 + 1\n```\n\n"
        "```text\nsaid\n```\n\n```text\n2\n```\n\n<b>\nx\n"
    )


# --- Do the pages and tutorials print what they say, and say of every piece of code what it prints? ----

DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
BOTH = {"console", "python"}
# Pages, and of what kind their pieces of code are.
PRINTED = {
    DOCS / "precision.md": {"console"},
    DOCS / "studies.md": BOTH,
    DOCS / "torch.md": {"python"},
    DOCS / "workloads.md": BOTH,
    **dict.fromkeys(TUTORIALS, BOTH),
}
# The other two show code that prints nothing.
WHOLE = [page for page in PRINTED if page.stem not in ("precision", "workloads") or page in TUTORIALS]


@pytest.mark.parametrize("page", PRINTED, ids=lambda page: f"{page.parent.name}/{page.stem}")
@pytest.mark.usefixtures("fresh_store")
def test_the_page_prints_what_it_says(page, update):
    with contextlib.ExitStack() as stack:
        if page.stem in ("torch", "workloads"):
            torch = pytest.importorskip("torch", reason="torch is not installed: the page cannot be run")
            stack.enter_context(torch.random.fork_rng())
        check_what_is_printed(page, PRINTED[page], update)


@pytest.mark.parametrize("page", WHOLE, ids=lambda page: page.stem)
def test_every_piece_of_code_says_what_it_prints(page):
    text = page.read_text()
    assert text.count("```python") + text.count("```console") == len(list(BLOCKS.finditer(text)))


def test_there_is_a_tutorial_for_each_kind_of_user():
    assert [page.stem for page in TUTORIALS] == ["architect", "precision", "tiling"]


# --- Do digits show what a loss scale does, and does docs/precision.md show what they print? -----------

PRECISION_PAGE = ROOT / "docs" / "precision.md"
EXAMPLE = ROOT / "examples" / "09_recorded_digits.py"
# The answer, its reason, and the table of shares; the modes between them are those of any study.
PARTS = re.compile(r"^(On 910B2.*?)The rule stat.*?(What formats make.*?)\n\n", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """What the example prints of recorded digits."""
    pytest.importorskip("torch", reason="torch is not installed: nothing can be recorded")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: its digits cannot be read")
    folder = tmp_path_factory.mktemp("digits")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}
    words = [sys.executable, "-W", "error", str(EXAMPLE)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_loss_scale_changes_the_verdict_on_digits(digits):
    """The seed, the step and the network are the example's."""
    answer = " ".join(digits.split())
    assert "is float16 with cubeMathType 0/1/2/3 and a loss scale of 4096" in answer
    assert "fails by norm and lost elements" in answer
    told = re.search(r"([\d.]+)% of grad_input are 0 or lose bits below the smallest normal value", answer)
    assert float(told[1]) > 50
    rows = re.findall(r"grad_output +float16 +(1|4096) +([\d.]+)%", digits)
    shares = {scale: float(share) for scale, share in rows}
    assert shares["1"] > 90
    assert shares["4096"] < 1


def test_the_page_shows_what_the_example_prints(digits, update):
    shown = "\n".join(part.rstrip() + "\n" for part in PARTS.search(digits).groups())
    text = PRECISION_PAGE.read_text()
    start = text.index("```text\n", text.index("## Recorded tensors")) + len("```text\n")
    end = text.index("```", start)
    if update:
        PRECISION_PAGE.write_text(text[:start] + shown + text[end:])
    assert PRECISION_PAGE.read_text()[start : start + len(shown)] == shown
    assert len(list(BLOCKS.finditer(PRECISION_PAGE.read_text()))) == 1


# --- Does docs/workloads.md show a file that can be read, and name every network? ----------------------

WORKLOADS_PAGE = ROOT / "docs" / "workloads.md"


def test_the_file_of_ones_own_is_one(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", WORKLOADS_PAGE.read_text(), re.DOTALL)
    path = tmp_path / "mine.toml"
    path.write_text(text)
    layers = load_workload(path).layers
    assert [layer.mask for layer in layers] == [
        *((False, True, False), (True, True, False), (True, True, True), (True, False, False))
    ]
    for before, after in pairwise(layers):
        assert ConvProblem(**before.problem_options(1)).grad_output[1:] == after.input


def test_every_network_is_in_the_table():
    assert sorted(re.findall(r"^\| `(\w+)` \|", WORKLOADS_PAGE.read_text(), re.MULTILINE)) == list(
        workload_names()
    )
