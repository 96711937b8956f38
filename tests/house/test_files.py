"""Does every reader refuse at once, in one line, what it cannot take; does no writer leave half a file?"""

import io
import os
import random
import struct
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ascendsim import Plan, Tiling, load_profile, read_plans, write_plans
from ascendsim import files as files_module
from ascendsim.cli.checks import calls_in_file
from ascendsim.cli.tensors import TENSORS, read_npz
from ascendsim.errors import AscendSimError
from ascendsim.files import csv_text, parse_json, parse_toml, printable, write_text
from ascendsim.ops.tiling.entries import write_entries
from ascendsim.profile.changes import read_changes
from ascendsim.report.document import run_document
from ascendsim.report.folder import write_run_folder
from ascendsim.rules import load_rules
from ascendsim.studies.identify.folder import OUTPUTS, cases_of, write_outputs, write_probe
from ascendsim.studies.table import Table
from ascendsim.validate.schema import read_lines
from ascendsim.workloads import load_workload
from tests.helpers.report_samples import timed_run
from tests.helpers.toy_machines import toy_split

# By the ending of the file that they take.
TOML = {
    "product": load_profile,
    "rules": load_rules,
    "network": load_workload,
    "changes": read_changes,
    "plans": read_plans,
}
JSON = {"plans in JSON": read_plans, "calls": calls_in_file}
OTHERS = {
    "tensors": (read_npz, ".npz"),
    "model": (load_workload, ".onnx"),
    "table": (lambda path: read_lines(path, "a table is taken"), ".csv"),
}
READERS = {
    **{name: (read, ".toml") for name, read in TOML.items()},
    **{name: (read, ".json") for name, read in JSON.items()},
    **OTHERS,
}
# No reader may take longer for what it refuses; parsing 4 MiB of TOML takes the most.
AT_ONCE = 5


def refused(read, path):
    """Return what a reader says of a file; it must be one line, soon."""
    begun = time.monotonic()
    with pytest.raises(AscendSimError) as caught:
        read(path)
    assert time.monotonic() - begun < AT_ONCE
    said = str(caught.value)
    assert len(said) < 4000
    assert printable(said) == said
    return said


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_and_a_device_are_no_files(tmp_path, name):
    read, ending = READERS[name]
    if ending == ".onnx":
        pytest.importorskip("onnx", reason="onnx is not installed")
    os.mkfifo(tmp_path / f"pipe{ending}")
    (tmp_path / f"zero{ending}").symlink_to("/dev/zero")
    for path in (tmp_path / f"pipe{ending}", tmp_path / f"zero{ending}"):
        assert "a pipe or device" in refused(read, path)


@pytest.mark.parametrize("name", READERS)
def test_more_than_a_reader_takes_is_refused_before_it_is_parsed(tmp_path, monkeypatch, name):
    read, ending = READERS[name]
    if ending == ".onnx":
        pytest.importorskip("onnx", reason="onnx is not installed")
        monkeypatch.setattr("ascendsim.workloads.onnx_graphs.MOST_MODEL", 1000)
    path = tmp_path / f"large{ending}"
    # A file with a hole: it takes no room.
    with path.open("wb") as file:
        file.truncate(files_module.MOST_TEXT + 1)
    if ending != ".npz":
        assert "the most that is read" in refused(read, path)
    else:
        refused(read, path)


DEEP = 20_000
SIMPLE = {
    "lists": "a = " + "[" * DEEP + "]" * DEEP,
    "lists that do not end": "a = " + "[" * DEEP,
    "tables": "a = " + "{b = " * DEEP + "1" + "}" * DEEP,
    "a dotted key": ".".join("a" * 50_000) + " = 1",
    "a dotted table": "[" + " . ".join("a" * 50_000) + "]",
    "a number": "a = 1" + "0" * 5000,
    "a number in hexadecimal": "a = 0x1" + "0" * 5000,
    "text": "# " + "x" * files_module.MOST_TOML,
}


@pytest.mark.parametrize("what", SIMPLE)
@pytest.mark.parametrize("name", TOML)
def test_toml_that_a_parser_would_drown_in_is_refused(tmp_path, name, what):
    path = tmp_path / "deep.toml"
    path.write_text(SIMPLE[what])
    assert refused(TOML[name], path)


LONG = "x" * 10_000
LENGTHY = {
    "a key": f"{LONG} = 1",
    "a table": f"[{LONG}]\na = 1",
    "a key of a table": f'base = "documented"\n[convolution]\n"{LONG}" = 1',
    "a product": f'base = "documented"\n[convolution]\nproducts = ["{LONG}"]',
    "a format": f'base = "documented"\n[convolution.dtypes]\n910B = ["{LONG}"]',
}


@pytest.mark.parametrize("what", LENGTHY)
@pytest.mark.parametrize("name", TOML)
def test_a_name_of_thousands_of_letters_is_not_repeated_whole(tmp_path, name, what):
    path = tmp_path / "long.toml"
    path.write_text(LENGTHY[what])
    assert LONG[:100] not in refused(TOML[name], path).replace(str(tmp_path), "")


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize(
    "text",
    ["[" * DEEP + "]" * DEEP, '{"a":' * DEEP, f"1{'0' * 5000}", '"' + '\\"' * 200_000],
    ids=["lists", "objects", "number", "string without end"],
)
def test_json_that_a_parser_would_drown_in_is_refused(tmp_path, name, text):
    path = tmp_path / "deep.json"
    path.write_text(text)
    assert refused(JSON[name], path)


@pytest.mark.parametrize(
    "text",
    [
        'a = "' + "[" * 1000 + '"  # ' + "[" * 1000,
        "a = '''\n" + "[" * 1000 + '\'\'\'\nb = """\\"[[[ ""["""\nc = 1',
        "a = [" + ", ".join(["[1.5, 2.5]"] * 1000) + "]",
        "\n".join(f"[a.b.c{at}.d]\ne.f = {at}" for at in range(1000)),
        "a = '" + "1" * 5000 + "'",
        'a = "' + ".".join("a" * 100) + '"',
    ],
)
def test_what_only_looks_deep_is_read(text):
    import tomllib

    assert parse_toml(text) == tomllib.loads(text)


def without_strings(text, marks):
    """Take strings out of a text, character by character; comments too, which end as the line does."""
    made, at = "", 0
    while at < len(text):
        mark = next((mark for mark in marks if text.startswith(mark, at)), None)
        if mark is None:
            made, at = made + text[at], at + 1
            continue
        end, closing = at + len(mark), "\n" if mark == "#" else mark
        while end < len(text) and not text.startswith(closing, end):
            if text[end] == "\n" and mark in ("'", '"') and len(marks) > 1:
                break
            escapes = text[end] == "\\" and mark[0] == '"'
            if escapes and end + 1 == len(text):
                break
            end += 2 if escapes else 1
        closes = mark != "#" and text.startswith(closing, end)
        made, at = made + '""', end + len(mark) * closes
    return made


@pytest.mark.parametrize("seed", range(50))
def test_strings_and_comments_are_taken_out_as_character_by_character(seed):
    draw = random.Random(seed)
    toml, json = ('"""', "'''", '"', "'", "#"), ('"',)
    for marks, pattern in ((toml, files_module._TOML_TEXT), (json, files_module._JSON_TEXT)):
        for _ in range(200):
            text = "".join(draw.choices(("'", "'''", '"', '"""', "\\", "\n", "#", "[", "a"), k=12))
            assert pattern.sub('""', text) == without_strings(text, marks), text


def test_a_depth_at_the_limit_is_read_and_one_more_is_not():
    most = files_module.DEEPEST
    for text, parse in (("a = {}", parse_toml), ("{}", parse_json)):
        parse(text.format("[" * most + "]" * most))
        with pytest.raises(ValueError, match="nested too deep"):
            parse(text.format("[" * (most + 1) + "]" * (most + 1)))


@pytest.mark.parametrize("read", [load_profile, load_rules])
def test_a_chain_of_bases_has_an_end(tmp_path, read):
    base = {load_profile: "910B2", load_rules: "documented"}[read]
    for at in range(40):
        (tmp_path / f"{at}.toml").write_text(f'base = "{at - 1}.toml"\n' if at else f'base = "{base}"\n')
    assert read(tmp_path / "5.toml")
    assert "files build on each other" in refused(read, tmp_path / "39.toml")
    # One file under ever longer names.
    (tmp_path / "round.toml").write_text(f'base = "../{tmp_path.name}/round.toml"\n')
    assert "files build on each other" in refused(read, tmp_path / "round.toml")


def bombs():
    """Archives of few bytes that stand for many, or claim to."""

    def archive(header, content=b"", compression=zipfile.ZIP_DEFLATED):
        made = io.BytesIO()
        with (
            zipfile.ZipFile(made, "w", compression) as out,
            out.open("input.npy", "w", force_zip64=True) as member,
        ):
            text = header.encode().ljust(118) + b"\n"
            member.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)
            member.write(content)
        return made.getvalue()

    form = "{{'descr': '{}', 'fortran_order': False, 'shape': {}}}".format
    yield "zeros", archive(form("|u1", (8 << 20,)), bytes(8 << 20))
    yield "a claim", archive(form("<f4", (1 << 50,)))
    yield "a claim beyond 64 bits", archive(form("<f4", (1 << 40, 1 << 40)))
    yield "objects", archive(form("|O", (1,)))
    yield "a negative size", archive(form("<f4", (-1,)))


def test_archives_that_stand_for_more_than_they_are_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files_module, "MOST_ARRAYS", 8 << 20)
    for name, content in bombs():
        path = tmp_path / "bomb.npz"
        path.write_bytes(content)
        assert refused(read_npz, path), name


def test_an_archive_above_the_limit_is_refused_and_one_at_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "tensors.npz"
    made = dict.fromkeys(TENSORS, np.zeros((1, 1, 100, 100), np.float32))
    np.savez_compressed(path, **made)
    size = sum(one.file_size for one in zipfile.ZipFile(path).infolist())
    monkeypatch.setattr(files_module, "MOST_ARRAYS", size)
    assert read_npz(path)["input"].shape == (1, 1, 100, 100)
    monkeypatch.setattr(files_module, "MOST_ARRAYS", size - 1)
    assert f"{size:,} bytes unpacked" in refused(read_npz, path)


# ---- Texts


@pytest.mark.parametrize(
    ("written", "read"),
    [(r"\u001b[2J", r"\x1b[2J"), (r"\u009b", r"\x9b"), (r"\u007f", r"\x7f"), (r"\t\n", "\t\n"), ("ä", "ä")],
)
def test_no_file_brings_in_a_command_to_the_terminal(written, read):
    assert parse_toml(f'"{written}" = ["{written}"]') == {read: [read]}
    assert parse_json(f'{{"{written}": ["{written}"]}}') == {read: [read]}


def test_half_a_surrogate_pair_becomes_its_escape():
    assert parse_json(r'["\ud800", "\ud83d\ude00"]') == ["\\ud800", "\U0001f600"]


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", " =", "\t="])
def test_no_cell_is_a_formula(begin):
    made = csv_text(["name", "number"], [{"name": f"{begin}1+1", "number": -1.5}], missing="N/A")
    name, number = made.splitlines()[1].rsplit(",", 1)
    assert name.strip('"') == f"'{begin}1+1"
    assert number == "-1.5"


# ---- Writers


def outputs(folder):
    case = cases_of()[0]
    vectors = case.vectors()
    write_outputs(folder, {case: np.zeros((vectors.a.shape[0], vectors.b.shape[1]), np.float32)})


def report(folder):
    run = timed_run(toy_split())
    write_run_folder(folder, run_document("a | test", {"input": (1, 2)}, [run], ["run"]), [run], 1000)


ROWS = [{"name": "x" * 100, "cycles": at} for at in range(1000)]
# A file that each writer makes, and how. All of them are larger than the limit of the test.
WRITERS = {
    "table.csv": lambda folder: Table.of_records("", ROWS).write(folder / "table.csv"),
    "table.parquet": lambda folder: Table.of_records(
        "", [{"name": os.urandom(50).hex(), "cycles": at} for at in range(1000)]
    ).write(folder / "table.parquet"),
    "plans.toml": lambda folder: write_plans(
        folder / "plans.toml", {"grad_weight": Plan("wgrad", Tiling(16, 16, 16))}, about="x" * 2000
    ),
    "entries.json": lambda folder: write_entries(folder / "entries.json", [{"a": 1}] * 1000),
    OUTPUTS: outputs,
    "inputs.npz": lambda folder: write_probe(folder, ("float16",)),
    "report.md": report,
    "text": lambda folder: write_text(folder / "text", "x" * 2000),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_what_was_there(tmp_path, small_files, name):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    write = WRITERS[name]
    write(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert name in before
    with small_files(1000), pytest.raises(AscendSimError, match=r"cannot be written.*(large|space)"):
        write(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    # An empty folder stays empty.
    (tmp_path / "new").mkdir()
    with small_files(1000), pytest.raises(AscendSimError, match="cannot be written"):
        write(tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())


def test_two_threads_that_write_one_file_leave_one_of_both(tmp_path):
    path, errors = tmp_path / "text", []

    def write(word):
        try:
            for _ in range(100):
                write_text(path, word * 1000)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(word,)) for word in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert path.read_text() in ("a" * 1000, "b" * 1000)


def test_a_link_a_pipe_and_rights_stay_what_they_are(tmp_path):
    (tmp_path / "text").write_text("old")
    (tmp_path / "text").chmod(0o600)
    (tmp_path / "link").symlink_to("text")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "text").read_text() == "new"
    assert (tmp_path / "text").stat().st_mode & 0o777 == 0o600
    write_text(Path("/dev/null"), "new")
    assert not Path("/dev/null").is_file()


def test_a_name_as_long_as_a_system_takes_can_be_written(tmp_path):
    name = "x" * 251 + ".csv"
    write_text(tmp_path / name, "new")
    assert [path.name for path in tmp_path.iterdir()] == [name]
