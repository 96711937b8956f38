"""Does the notebook show what it says, and is it stored as it was run?"""

import json
import re

import pytest

from tests.documents.test_readme import ROOT
from web.pages import converted, notebook_page
from web.pages import shown as page_of

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
