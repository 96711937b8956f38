"""Are the words of the README true, and do the examples run?"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ascendsim.cli import main

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


# test_precision_page.py runs the other one, and reads what it prints.
EXAMPLES = sorted((ROOT / "examples").glob("0[1-8]*.py"))


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
