"""Is every test that did not run told, with the reason?"""

import shutil
import subprocess
import sys
from pathlib import Path

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
