"""What all tests share: outside data, and how its absence is reported."""

import os
from pathlib import Path

import pytest

NO_DATA = "ASCENDSIM_DATA is not set: no outside data"


def pytest_addoption(parser):
    parser.addoption("--update", action="store_true", help="rewrite stored outputs instead of comparing")


@pytest.fixture
def update(request):
    """Whether stored outputs are to be rewritten."""
    return request.config.getoption("--update")


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


def pytest_terminal_summary(terminalreporter):
    skipped = terminalreporter.stats.get("skipped", [])
    for_data = sum(NO_DATA in str(report.longrepr) for report in skipped)
    if for_data:
        terminalreporter.write_line(
            f"{for_data} tests skipped for want of outside data (ASCENDSIM_DATA names its folder)"
        )
