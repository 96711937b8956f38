"""Does docs/workloads.md print what it says, and read the file it shows?"""

import re
from itertools import pairwise

import pytest

from ascendsim import ConvProblem
from ascendsim.workloads import load_workload, workload_names
from tests.documents.test_readme import ROOT, check_what_is_printed

PAGE = ROOT / "docs" / "workloads.md"


def test_the_page_prints_what_it_says(update):
    pytest.importorskip("torch", reason="torch is not installed: a model of it cannot be read")
    check_what_is_printed(PAGE, {"console", "python"}, update)


def test_the_file_of_ones_own_is_one(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "mine.toml"
    path.write_text(text)
    layers = load_workload(path).layers
    assert [layer.mask for layer in layers] == [
        *((False, True, False), (True, True, False), (True, True, True), (True, False, False))
    ]
    for before, after in pairwise(layers):
        assert ConvProblem(**before.problem_options(1)).grad_output[1:] == after.input


def test_every_network_is_in_the_table():
    assert sorted(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)) == list(workload_names())
