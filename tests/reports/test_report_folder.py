"""Is the folder of a report whole, and of one report?"""

import json
from dataclasses import replace

import pytest

from ascendsim.errors import DataError
from ascendsim.report.document import run_document
from ascendsim.report.files import make_folder, replacing, replacing_report, write_text
from ascendsim.report.folder import write_run_folder
from tests.helpers.report_samples import timed_run
from tests.helpers.toy_profiles import toy_split

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def profile():
    """The toy product: 2 cube cores at 1000 MHz, so that a cycle is a nanosecond."""
    return toy_split()


@pytest.fixture
def run(profile):
    return timed_run(profile)


@pytest.fixture
def document(run):
    return run_document("a | test", {"input": (1, 2)}, [run], ["run", "x y"])


def test_the_folder_holds_what_it_promises(tmp_path, document, run):
    files = write_run_folder(tmp_path / "a" / "b", document, [run], 1000)
    names = ["report.md", "report.html", "result.json", "timeline.png", "trace.json"]
    assert [file.name for file in files] == names
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == sorted(f.name for f in files)
    assert json.loads(files[2].read_text())["products"][0]["cycles"] == 160
    assert files[3].read_bytes().startswith(PNG)


def test_result_json_defines_every_column(tmp_path, document, run):
    _, _, result, *_ = write_run_folder(tmp_path, document, [run], 0)
    made = json.loads(result.read_text())
    defined = made["definitions"]["products.kernels"]
    for key, entry in made["products"][0]["kernels"][0].items():
        if key != "note":
            names = [f"{key}.{part}" for part in entry] if key == "bytes" else [key]
            assert set(names) <= set(defined), key
    gradients = made["definitions"]["products.gradients"]
    assert set(made["products"][0]["gradients"][0]) <= set(gradients)


def test_several_products_get_a_plot_each(tmp_path, run):
    other = replace(run, profile=replace(run.profile, variant="other"))
    document = run_document("t", {}, [run, other], [])
    names = {file.name for file in write_run_folder(tmp_path, document, [run, other], 0)}
    assert {"timeline-toy_split.png", "timeline-other.png"} <= names


def test_products_of_one_name_do_not_overwrite_each_other(tmp_path, run):
    document = run_document("t", {}, [run, run], [])
    names = {file.name for file in write_run_folder(tmp_path, document, [run, run], 10)}
    assert {"timeline-toy_split-1.png", "timeline-toy_split-2.png"} <= names
    assert {"trace-toy_split-1.json", "trace-toy_split-2.json"} <= names


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_report_takes_the_place_of_the_one_before(tmp_path, run):
    (tmp_path / "mine.txt").write_text("kept")
    both = run_document("t", {}, [run, run], [])
    write_run_folder(tmp_path, both, [run, run], 10)
    one = run_document("t", {}, [run], [])
    write_run_folder(tmp_path, one, [run], 0)
    assert names(tmp_path) == ["mine.txt", "report.html", "report.md", "result.json", "timeline.png"]
    assert sorted(json.loads((tmp_path / "result.json").read_text())["files"]) == names(tmp_path)[1:]


def test_a_report_that_fails_leaves_the_one_before(tmp_path, run):
    document = run_document("t", {}, [run], [])
    write_run_folder(tmp_path, document, [run], 10)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    broken = document | {"title": "another", "command": None}
    with pytest.raises(TypeError):
        write_run_folder(tmp_path, broken, [run], 10)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "listed", ["{", "[]", "{}", '{"files": 3}', '{"files": ["../kept", "sub", 3, "", "gone"]}']
)
def test_only_what_a_report_lists_leaves_with_it(tmp_path, listed):
    folder = tmp_path / "report"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "kept").write_text("")
    (folder / "result.json").write_text(listed)
    with replacing_report(folder) as stage:
        (stage / "new").write_text("")
    assert names(folder) == ["new", "result.json", "sub"]
    assert names(tmp_path) == ["kept", "report"]


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "report.md"
    write_text(path, "old")
    with pytest.raises(TypeError), replacing(path) as temporary:
        temporary.write_bytes("not bytes")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be made"):
        make_folder(tmp_path / "file" / "folder")


def test_kernels_are_listed_as_a_profiler_would_where_their_shapes_are_told(tmp_path, document, run):
    shapes = dict.fromkeys(("input", "weight", "grad_output"), (1, 2, 3, 4))
    files = write_run_folder(tmp_path, document, [run], 0, shapes)
    assert files[-1].name == "op_summary.csv"
    assert len(files[-1].read_text().splitlines()) == 1 + len(run.result.kernels)
    assert "[op_summary.csv](op_summary.csv) lists the kernels" in files[0].read_text()
