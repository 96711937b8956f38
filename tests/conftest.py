"""What all tests share: outside data, the command, and why tests were skipped."""

import gc
import json
import os
import resource
import signal
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

from ascendsim.cli import main
from ascendsim.profile import list_products, load_profile

NO_DATA = "no outside data (ASCENDSIM_DATA names its folder)"


# A shell that starts the tests in the background has them, and the commands they start, ignore interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Workers that share the tests are given a width, and what is printed without one is tested.
os.environ.pop("COLUMNS", None)
# An example that waits for a processor, or for the collector, is no failure: it would kill any mutant.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_collection_finish():
    """Let the collector look less often: among so many objects it takes an eighth of the time."""
    gc.set_threshold(20_000, 20, 20)


def pytest_addoption(parser):
    parser.addoption("--update", action="store_true", help="rewrite stored outputs instead of comparing")


@pytest.fixture
def update(request):
    """Whether stored outputs are to be rewritten."""
    return request.config.getoption("--update")


@pytest.fixture
def small_files():
    """Let no file grow beyond so many bytes as long as a `with` lasts, as on a disk that is full."""

    @contextmanager
    def limited(most):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        # Python leaves out the signal, so that a write fails as it does without room.
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited


@pytest.fixture
def fresh_store(monkeypatch, tmp_path):
    """Let studies find no answers from before. What is compiled stays, as that takes half a minute."""
    compiled = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    monkeypatch.setenv("NUMBA_CACHE_DIR", os.environ.get("NUMBA_CACHE_DIR") or compiled)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture(scope="session")
def data_dir():
    """Folder with outside data (published tables, measurements), named by ASCENDSIM_DATA."""
    named = os.environ.get("ASCENDSIM_DATA")
    if not named:
        pytest.skip(NO_DATA)
    folder = Path(named)
    if not folder.is_dir():
        pytest.fail(f"ASCENDSIM_DATA names {named}, which is not a folder")
    return folder


@pytest.fixture(scope="session")
def profiles():
    """Every variant of every product that is shipped."""
    return {variant: load_profile(variant) for product in list_products() for variant in product.variants}


@pytest.fixture(scope="session")
def b2():
    """The usual 910B."""
    return load_profile("910B")


@pytest.fixture(scope="session")
def measured_table(data_dir, tmp_path_factory):
    """Path of the outside table of measured cases, its words turned into columns."""
    # Here, since a copy of this file elsewhere has no tools beside it.
    import measured_rows

    path = tmp_path_factory.mktemp("measured") / "measured_rows.csv"
    assert measured_rows.main([str(data_dir / "silicon.csv"), str(path)]) == 0
    return path


@pytest.fixture
def answer(capsys):
    """Run the command and return what it printed."""

    def run(*words):
        assert main(words) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def record(answer):
    """Run the command and return the JSON that it printed."""

    def run(*words):
        return json.loads(answer("run", *words, "--json"))

    return run


@pytest.fixture
def refusal(capsys):
    """Run the command and return its error, after checking the form of it."""

    def run(*words):
        status = main(words)
        printed = capsys.readouterr()
        assert status == 2
        assert printed.out == ""
        assert printed.err.startswith("ascendsim: ")
        assert printed.err.count("ascendsim: ") == 1
        assert "Traceback" not in printed.err
        assert "\n\n" not in printed.err.strip()
        return printed.err

    return run


def pytest_terminal_summary(terminalreporter):
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")


def _reason(report):
    """Return why a test was skipped: a report holds (file, line, "Skipped: ..."), or plain words."""
    told = report.longrepr
    words = told[2] if isinstance(told, tuple) else str(told)
    return words.removeprefix("Skipped: ")
