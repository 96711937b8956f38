"""Does what is installed work, does the fingerprint see what moved, and is every skipped test told?"""

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

import fingerprint
from ascendsim.cli.parser import make_parser
from ascendsim.errors import install_hint
from ascendsim.ops.schedules.base import SCHEDULES
from fingerprint_cases import COMMANDS, NESTS, cases
from fingerprint_compare import compare

# --- Does what is installed work away from the project's folder? ---------------------------------------

ROOT = Path(__file__).parents[2]


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_product_file_is_shipped():
    # The wheel takes the whole folder under this name, where the profile reader looks first.
    build = project()["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build["force-include"] == {"configs": "ascendsim/configs"}
    assert sorted((ROOT / "configs").glob("*.toml"))


def test_dependencies_have_upper_bounds():
    for dependency in project()["project"]["dependencies"]:
        assert "<" in dependency, dependency


def test_no_test_needs_torch_to_be_collected():
    """`make test` does not install it: who needs it asks by `importorskip`."""
    for path in ROOT.glob("tests/**/*.py"):
        loads = [
            node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        names = {getattr(node, "module", None) or node.names[0].name for node in loads}
        assert not [name for name in names if name.split(".")[0] == "torch"], path


@pytest.mark.slow
def test_a_wheel_works_from_any_directory(tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    built = subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)],
        capture_output=True,
        text=True,
    )
    if built.returncode and "No matching distribution" in built.stderr:
        pytest.skip("the build backend cannot be fetched here")
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for path in (ROOT / "configs").rglob("*.toml"):
        assert f"ascendsim/configs/{path.relative_to(ROOT / 'configs')}" in names
    assert "ascendsim/workloads/resnet50.toml" in names
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]

    home = tmp_path / "home"
    zipfile.ZipFile(wheel).extractall(home)
    where = "import ascendsim; print(ascendsim.__file__)"
    for code, expected in (
        (where, str(home)),
        ("from ascendsim.cli import main; main(['profiles'])", "910B2*"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(home)!r}); {code}"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=True,
        )
        assert expected in done.stdout


@pytest.mark.parametrize(
    ("told", "hint"),
    [
        ("", "pip install 'ascendsim[torch]'"),
        (None, "pip install 'ascendsim[torch]'"),
        ('{"url": "file:///a", "dir_info": {"editable": true}}', "pip install -e '.[torch]' in /a"),
        ('{"url": "file:///a", "dir_info": {}}', "pip install '.[torch]' in /a"),
        ("not installed", "pip install -e '.[torch]' in its checkout"),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came_from(monkeypatch, told, hint):
    # By its name on an index another copy would come beside the one at hand, or none.
    def found(name):
        if told == "not installed":
            raise metadata.PackageNotFoundError(name)
        return SimpleNamespace(read_text={"direct_url.json": told}.get)

    monkeypatch.setattr(metadata, "distribution", found)
    assert install_hint("torch") == hint


# --- Does tools/fingerprint.py find two equal revisions equal, and name what moved where one is not? ---

ONLY = "[sb]*/910B/[do]*"  # of simpy, shapes and bits: depthwise, dilation, nests of dgrad
KERNEL = {"case": "layers/910B/a", "kernel": "grad_input", "cycles": 1000, "wait_M_MTE1": 40}
BITS = {"case": "bits/910B/a", "kernel": "bits of grad_input", "stored": "float16 2x2", "sha256": "ab"}
TEXT = {"case": "command/any/a", "kernel": "1 stdout", "text": ["one", "two", "three"]}


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    """A file with a fingerprint of a few cases."""
    file = tmp_path_factory.mktemp("fingerprint") / "records.json"
    assert fingerprint.main(["--only", ONLY, "--out", str(file), "--jobs", "1"]) == 0
    return file


def against(file, capsys, *words):
    status = fingerprint.main(["--only", ONLY, "--against", str(file), "--jobs", "2", *words])
    return status, capsys.readouterr().out


def test_the_same_revision_is_equal_whatever_the_number_of_processes(taken, capsys):
    status, text = against(taken, capsys)
    count = len(json.loads(taken.read_text()))
    assert status == 0
    assert f"{count} of {count} records are equal" in text


def test_a_number_that_moved_is_named_with_both_values(taken, tmp_path, capsys):
    records = json.loads(taken.read_text())
    changed = next(record for record in records if record["kernel"] == "grad_input")
    cycles = changed["cycles"]
    # What is here takes a fifth less than what the file says.
    changed["cycles"] = cycles * 5 // 4
    file = tmp_path / "changed.json"
    file.write_text(json.dumps(records))
    status, text = against(file, capsys)
    assert status == 1
    assert "kernels that moved: 1;" in text
    assert f"{changed['case']} grad_input: cycles {cycles * 5 // 4:,} -> {cycles:,}" in text
    change = cycles / (cycles * 5 // 4) - 1
    assert f"{change:+.2%}" in text


def test_a_record_holds_what_is_known_of_a_kernel(taken):
    records = [json.loads(line.rstrip(",")) for line in taken.read_text().splitlines()[1:-1]]
    kernels = [record for record in records if "cycles" in record]
    assert records == sorted(records, key=lambda record: (record["case"], record["kernel"]))
    assert all({"bytes_l2_write", "busy_S", "cores_used", "every_core", "phase_0"} <= set(k) for k in kernels)
    assert any(name.startswith("wait_") for kernel in kernels for name in kernel)
    assert {record["kernel"] for record in records if "sha256" in record} >= {"bits of grad_input"}


def test_what_moved_is_told_by_its_sort():
    other = [
        KERNEL | {"cycles": 1100, "wait_M_FIX": 7},
        BITS | {"sha256": "cd"},
        TEXT | {"text": ["one", "deux", "three"]},
    ]
    lines, moved = compare([KERNEL, BITS, TEXT], other, "before")
    text = "\n".join(lines)
    assert moved
    assert re.search(r"layers +910B +1 +1 +\+10.00% +\+10.00% +cycles 1, wait_M_FIX 1$", text, re.M)
    # A wait that was not there was 0.
    assert "cycles 1,000 -> 1,100, wait_M_FIX 0 -> 7" in text
    assert "bits that moved: 1\n  bits/910B/a bits of grad_input" in text
    assert "1 stdout: 1 of 3 lines\n    line 2: - two\n    line 2: + deux" in text


def test_a_case_that_errs_on_one_side_is_shown_with_its_error():
    error = {"case": KERNEL["case"], "kernel": "error", "error": "ConfigError: no"}
    lines, moved = compare([KERNEL], [error], "before")
    assert moved
    assert "  layers/910B/a error: ConfigError: no" in lines
    assert "  layers/910B/a grad_input" in lines
    asked = {"case": "layers/910B/a", "kernel": "asked", "door": "estimate", "asks": {"batch": 1}}
    lines, moved = compare([asked], [asked | {"asks": {"batch": 2}}], "before")
    assert moved
    assert any("cases that ask for something else: 1" in line for line in lines)


def test_every_command_and_every_nest_has_a_case():
    lines = [line.split() for text in COMMANDS.values() for line in text.split("\n")]
    asked = {" ".join(line[:length]) for line in lines for length in (1, 2)}
    assert asked >= set(make_parser()[1])
    # The others are of matrix products, or follow where a product's rules choose them.
    named = {*NESTS["grad_input"], *NESTS["grad_weight"], "matmul"}
    assert named | {"dgrad_c04", "wgrad_winograd"} == set(SCHEDULES)
    assert len(cases()) >= 1000


def test_every_call_about_the_edges_of_rules_is_planned():
    own = [case for case in cases() if case.door == "plan"]
    assert {case.name.split("/")[1] for case in own} >= {"910B2", "950PR_9599", "910A", "310P3"}
    found = [fingerprint.records_of(case)[1] for case in own]
    # What no rule plans is named by its error; a line that is no call ends in one.
    assert not [record for record in found if record["kernel"] != "plans"]


def test_how_far_a_slow_run_is_makes_no_difference():
    # In a pipe they come every 30 seconds, so that a quick run has none of them.
    said = (
        "ascendsim: a layer on 910B2 (30 s so far)\n3 of 9 calls of this round, 3 in all rounds so far: a\n"
    )
    assert fingerprint.lines_of(said + "kept\n") == {"text": ["kept"]}


def test_a_name_that_is_neither_file_nor_revision_is_refused(capsys):
    with pytest.raises(SystemExit) as left:
        fingerprint.main(["--against", "no-such-revision"])
    assert left.value.code == 2
    assert "--against is 'no-such-revision'; it must be a revision" in capsys.readouterr().err


@pytest.mark.slow
def test_another_revision_runs_the_same_cases(tmp_path):
    root = Path(fingerprint.__file__).parents[1]
    if not (root / ".git").exists():
        pytest.skip("no history to compare with")
    words = ["--only", "matmul/910B/odd", "--against", "HEAD"]
    done = subprocess.run(
        [sys.executable, fingerprint.__file__, *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert "against HEAD" in done.stdout, done.stderr
    assert done.returncode == 0


# --- Is every test that did not run told, with the reason? ---------------------------------------------

TESTS = """
import pytest

def test_one(data_dir): pass
def test_other(data_dir): pass
def test_library(): pytest.importorskip("no_such_library")
"""


def test_every_skip_is_counted_by_its_reason(tmp_path, monkeypatch):
    monkeypatch.delenv("ASCENDSIM_DATA", raising=False)
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "test_three.py").write_text(TESTS)
    (tmp_path / "test_module.py").write_text("import pytest\npytest.importorskip('no_such_library')\n")
    options = ("-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)], capture_output=True, text=True
    )
    assert "2 skipped: no outside data" in done.stdout
    assert "2 skipped: could not import 'no_such_library'" in done.stdout
