"""A copy of the project with one line changed, and some tests run on it."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
# A changed line can make a loop endless. In seconds of processors, so that a busy machine changes nothing.
PATIENCE = 300
COPIED = ("ascendsim", "tests", "docs", "configs")


class Mutation(NamedTuple):
    """One change to one file, named without its ending, and the test files that have to notice.

    No tests: those that are usual for such rows. `pick` is an expression that picks among them.
    """

    file: str
    old: str
    new: str
    tests: str = ""
    pick: str = ""


def source_of(file):
    """The text of a file of the package, by its path without the ending."""
    return (ROOT / "ascendsim" / f"{file}.py").read_text()


def file_of(name):
    """The path of a test file, by its name without the ending, whichever folder it is in."""
    [path] = (ROOT / "tests").glob(f"*/{name}.py")
    return str(path.relative_to(ROOT))


def run_copy(folder, file, old, new, tests):
    """Run tests (names, with spaces between) on a copy with one change; return the finished process.

    Exit status 1: tests ran and some failed; 0: nobody noticed; 2: the copy cannot even be imported; minus
    SIGXCPU: the tests of the copy found no end.
    """
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    if file:
        (folder / "ascendsim" / f"{file}.py").write_text(source_of(file).replace(old, new))
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("ASCENDSIM_DATA", None)  # the project's own tests must notice
    command = [sys.executable, "-m", "pytest", "-x", *(file_of(name) for name in tests.split())]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, preexec_fn=limit_time
    )


def limit_time():
    """End the process that calls this, and each that it starts, when it has computed for too long."""
    resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE + 5))


def assert_noticed(done):
    """A test must have failed or found no end, not the import."""
    assert done.returncode in (1, -signal.SIGXCPU), (
        f"no test noticed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    )


def checks_of(every, tests):
    """The three tests of a table of mutations, which the test files `tests` have to notice.

    Each line to change must stand once; an unchanged copy must pass; each changed copy must fail (both slow).
    """
    named = pytest.mark.parametrize("mutation", every, ids=lambda m: f"{m.file}:{m.new}")

    @named
    def stands_once(mutation):
        assert source_of(mutation.file).count(mutation.old) == 1

    @pytest.mark.slow
    def passes_unchanged(tmp_path):
        done = run_copy(tmp_path, "", "", "", tests)
        assert done.returncode == 0, done.stdout[-2000:]

    @pytest.mark.slow
    @named
    def makes_a_test_fail(mutation, tmp_path):
        assert_noticed(run_copy(tmp_path, mutation.file, mutation.old, mutation.new, mutation.tests or tests))

    return stands_once, passes_unchanged, makes_a_test_fail
