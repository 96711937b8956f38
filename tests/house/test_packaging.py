"""Does what is installed work away from the project's folder?"""

import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from ascendsim.errors import install_hint

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
