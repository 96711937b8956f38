"""Are reports true to the results, readable, and whole as a folder?"""

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.errors import DataError
from ascendsim.files import make_folder, replacing, replacing_report, write_text
from ascendsim.ops.results import Estimate
from ascendsim.report.document import kernel_entry, layer_entry, network_document, plain, run_document
from ascendsim.report.folder import write_network_folder, write_run_folder
from ascendsim.report.markdown import page
from ascendsim.report.overview import products_table
from ascendsim.report.tables import (
    KERNEL,
    bounds,
    busy_table,
    critical_path_table,
    layer_table,
    occupation_table,
    size,
    time_table,
    value,
)
from ascendsim.report.words import common_lines, special_lines, standards_line
from ascendsim.studies.table import percent
from tests.helpers.report_samples import entered_kernel, summarised, timed_kernel, timed_run
from tests.helpers.toy_machines import Fake, FakeProfile, kernel, program, toy_split

# --- Are reports true to the results, and readable? ----------------------------------------------------


@pytest.fixture
def profile():
    """The toy product: 2 cube cores at 1000 MHz, so that a cycle is a nanosecond."""
    return toy_split()


@pytest.fixture
def timed(profile):
    return timed_kernel(profile)


@pytest.fixture
def run(profile):
    return timed_run(profile)


@pytest.fixture
def document(run):
    return run_document("a | test", {"input": (1, 2)}, [run], ["run", "x y"])


def test_a_kernel_entry_holds_every_defined_column(timed, profile):
    record = kernel_entry(timed, profile)
    for column in KERNEL:
        place = record
        for part in column.name.split("."):
            assert part in place, column.name
            place = place[part]


def test_kernel_numbers(timed, profile):
    record = kernel_entry(timed, profile)
    assert record["cycles"] == 80
    # launch of the toy: 1 us + 0.5 us for each of 2 cores; 80 cycles at 1000 MHz are 0.08 us
    assert record["time_us"] == pytest.approx(2.08)
    assert record["busy"]["M"] == 50 / 80
    assert record["busy"]["MTE2"] == 50 / 80
    # 2 cores x 16 x 16 x 16 multiply-adds a cycle
    assert record["cube_utilisation"] == 1000 / (80 * 2 * 4096)


def test_the_entry_of_a_kernel_counts_once():
    # It is in the cycles, so that the launch beside them is the two figures of the product alone.
    profile = load_profile("910B")
    found = estimate(ConvProblem((1, 16, 4, 4), (16, 16, 1, 1)), output_mask=(True, False, False))
    (made,) = (kernel for kernel in found.kernels if kernel.plan)
    assert made.timeline.entry_cycles == profile.scalar.start_cycles
    launch_us = profile.launch.base_us + made.kernel.blocks * profile.launch.per_core_us
    assert made.time_us == pytest.approx(made.cycles / profile.clock.cube_mhz + launch_us)


def test_where_the_cycles_of_each_pipe_went(timed, profile):
    record = kernel_entry(timed, profile)
    # MTE2 runs from 0 to 30 and from 30 to 50 of 80 cycles; M is issued at once, waits until 30, ends at 80.
    assert record["occupation"]["MTE2"] == {"entry": 0, "busy": 50 / 80, "waiting": {}, "idle": 30 / 80}
    assert record["occupation"]["M"] == {"entry": 0, "busy": 50 / 80, "waiting": {"MTE2": 30 / 80}, "idle": 0}
    assert record["critical_path"] == {"M": 50, "MTE2": 30}


def test_the_busy_shares_of_both_accounts_agree(profile):
    # Cores that differ, one of which leaves a pipe idle: averages are over both.
    long, short = program(Fake("MTE2", 30), (Fake("M", 50), (0,))), program(Fake("MTE2", 10))
    uneven = replace(kernel([("long", long), ("short", short), ("short", short)]), compute_dtype="float16")
    record = kernel_entry(summarised(uneven, profile, FakeProfile()), profile)
    for pipe, spent in record["occupation"].items():
        assert spent["busy"] == pytest.approx(record["busy"][pipe])
        assert spent["busy"] + sum(spent["waiting"].values()) + spent["idle"] == pytest.approx(1)
    assert record["occupation"]["M"]["waiting"]["MTE2"] == pytest.approx(30 / 80 / 3)
    assert sum(record["critical_path"].values()) == record["cycles"]


def test_the_page_shows_the_waits_and_the_critical_path(document):
    product = document["products"][0]
    table = occupation_table(product["kernels"][0])
    assert table.headings == ("pipe", "entry", "busy", "waits for MTE2", "idle")
    assert table.rows[:2] == (("M", "0%", "62%", "38%", "0%"), ("MTE2", "0%", "62%", "", "38%"))
    path = critical_path_table(product)
    assert path.headings == ("kernel", "M", "MTE2")
    assert path.rows[0] == ("grad_weight", "62%", "38%")
    text = page(document, [{}])
    assert "grad_weight: where the cycles of each pipe went" in text
    assert "What the critical path spends its cycles on" in text


def test_the_time_table_sums_the_call(document):
    table = time_table(document["products"][0])
    assert table.headings[:7] == ("kernel", "cycles", "launch", "entry", "core", "us", "share")
    assert table.rows[0] == ("grad_weight", "80", "2.00", "0.00", "0.08", "2.08", "50%", "2", "<1%")
    assert table.rows[-1] == ("all kernels", "160", "4.00", "0.00", "0.16", "4.16", "", "", "")


def test_launch_entry_and_core_are_told_apart(profile):
    # 20 cycles of entry, 1 of issue, 30 and 50 of work: 101 of 1 ns; launched in 1 us and 0.5 for each core.
    record = kernel_entry(entered_kernel(profile), profile)
    assert (record["cycles"], record["entry_cycles"]) == (101, 20)
    parts = [record[part] for part in ("launch_us", "entry_us", "core_us")]
    assert parts == pytest.approx([2.0, 0.020, 0.081])
    assert record["time_us"] == pytest.approx(sum(parts))


def test_the_entry_is_no_pipes(profile):
    record = kernel_entry(entered_kernel(profile), profile)
    assert record["busy"] == {"S": 2 / 101, "MTE2": 30 / 101, "M": 50 / 101}
    for pipe, spent in record["occupation"].items():
        assert spent["entry"] == 20 / 101
        assert spent["busy"] == pytest.approx(record["busy"][pipe])
        assert spent["entry"] + spent["busy"] + sum(spent["waiting"].values()) + spent[
            "idle"
        ] == pytest.approx(1)
    # M is issued in cycle 22, waits until 51 and then works until the end: idle for no more than two cycles.
    assert record["occupation"]["M"]["idle"] == pytest.approx(2 / 101)
    table = busy_table({"kernels": [record]})
    assert table.headings == ("kernel", "entry", "M", "MTE2", "S", "busiest")
    assert table.rows == (("fake", "20%", "50%", "30%", "2%", "M"),)


def test_products_are_set_side_by_side_with_what_differs(run):
    product = run_document("t", {}, [run], [])["products"][0]
    # 4.16 us of which 4 are launch, in two kernels that multiply.
    table = products_table([product, product])
    assert table.headings == ("product", "cycles", "launch", "entry", "core", "layout", "others", "us")
    assert table.rows[0][2:] == ("4.00", "0.00", "0.16", "0.00", "0.00", "4.16")
    table = products_table([product, product | {"accumulation": "seq:RNE"}])
    assert table.headings[:3] == ("product", "accumulation", "cycles")
    assert [row[1] for row in table.rows] == ["block:16:RNE", "seq:RNE"]


def test_plain_values_are_what_json_can_hold():
    given = [Fraction(1, 4), float("nan"), float("-inf"), (1, None), "text"]
    assert plain(given) == [0.25, "nan", "-inf", [1, None], "text"]


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (percent(0.0), "0%"),
        (percent(0.001), "<1%"),
        (percent(0.995), "100%"),
        (size(1023), "1023 B"),
        (size(1536), "1.5 KiB"),
        (size(3 << 40), "3,072.0 GiB"),
        (value(Fraction(1, 3)), "0.3333333"),
        (value(201326592), "201,326,592"),
        (value([1, 2]), "1, 2"),
        (bounds((2, 16)), "2 .. 16"),
        (bounds(("a", "b")), "a | b"),
        (bounds(None), ""),
    ],
)
def test_numbers_are_printed_as_people_read_them(printed, expected):
    assert printed == expected


def test_the_page_names_the_command_the_models_and_the_notes(tmp_path, document, run):
    page = write_run_folder(tmp_path, document, [run], 1000)[0].read_text()
    for words in ("ascendsim run 'x y'", "block:16:RNE", "nothing is real", "toy_split", "(timeline.png)"):
        assert words in page
    assert "Maximum of \\|a - g\\| / ulp(g). [ulp(g)]" in page


def test_the_page_names_every_column_as_the_tables_do(document):
    text = page(document, [{}])
    # Names that occur in several places have the heading of their own.
    for row in (
        "| kernel | `name` |",
        "| gradient | `name` |",
        "| max ulp | `max_ulp` |",
        "| main memory | `bytes",
    ):
        assert row in text


def judged(**counts):
    verdicts = [
        {"standard": "st", "passed": True, "rule": "R"},
        {"standard": "stat", "passed": True, "rule": "T"},
    ]
    usual = {"special_expected": 0, "special_got": 0, "special_mismatches": 0, "count": 4096}
    return {"gradients": [{"name": "grad_bias", "verdicts": verdicts} | usual | counts]}


def test_nan_and_inf_are_told_where_there_are_any():
    assert special_lines(judged()) == []
    (line,) = special_lines(judged(special_expected=3, special_got=1, special_mismatches=2))
    assert "NaN or Inf in grad_bias: due in 3 of 4,096 elements, got in 1, different in 2" in line
    assert special_lines(judged(special_got=1)) != []


def test_the_standards_are_named_with_what_they_ask():
    both = judged()["gradients"] * 2
    assert standards_line({"gradients": both}).endswith(": st: R; stat: T.")
    assert standards_line({"gradients": [{"name": "of no format with standards"}]}) == ""


def test_a_network_adds_up(tmp_path, timed, profile):
    estimate = Estimate("toy", "toy_split", "float16", "block:16:RNE", (timed,), ("a note",))
    layers = [layer_entry("a", 3, estimate, profile), layer_entry("b", 1, estimate, profile)]
    document = network_document("net", {}, [(profile, layers)], [], [[]])
    product = document["products"][0]
    assert product["cycles"] == 4 * 80
    assert product["time_us"] == pytest.approx(4 * 2.08)
    assert (product["launch_us"], product["entry_us"]) == (4 * 2.0, 0.0)
    assert product["core_us"] == pytest.approx(4 * 0.08)
    assert product["notes"] == ["a note"]
    table = layer_table(product)
    assert table.rows[0] == ("a", "3", "80 M   ", "2.08", "6.24", "75%")
    assert table.rows[-1] == ("network", "4", "", "", "8.32", "100%")
    names = [file.name for file in write_network_folder(tmp_path, document, [profile])]
    assert names == ["report.md", "report.html", "result.json", "layers.png"]


def test_a_note_of_some_layers_names_them(timed, profile):
    def made(name, *notes):
        return layer_entry(name, 1, Estimate("t", "t", "float16", "seq:RNE", (timed,), notes), profile)

    layers = [made("a", "of all", "ours"), made("b", "of all", "theirs"), made("c", "theirs", "of all")]
    product = network_document("net", {}, [(profile, layers)], [], [["of the network"]])["products"][0]
    # "theirs" is true of two of three, so that who it is not true of is shorter to say.
    expected = ["of the network", "of all", "a: ours", "All layers but a: theirs"]
    assert product["notes"] == expected
    assert common_lines([product])[1:] == [f"Note: {note}" for note in expected]


def test_notes_are_said_once_with_the_products_they_are_of(run):
    first, second = run_document("t", {}, [run, run], [])["products"]
    second |= {"variant": "other", "notes": ["nothing is real", "but this"]}
    assert common_lines([first, second]) == [
        "Arithmetic: float16 in the cube, accumulation model block:16:RNE; executed in program order.",
        "Note: nothing is real",
        "Note on toy_split: one core in two",
        "Note on other: but this",
    ]
    second["accumulation"] = "seq:RNE"
    lines = common_lines([first, second])
    assert lines[0].startswith(
        "Arithmetic on toy_split: float16 in the cube, accumulation model block:16:RNE;"
    )
    assert lines[1].startswith("Arithmetic on other: float16 in the cube, accumulation model seq:RNE;")
    assert common_lines([first])[1:] == ["Note: nothing is real", "Note: one core in two"]


def test_a_page_says_each_note_once(run):
    document = run_document("t", {}, [run, run], [])
    text = page(document, [{}, {}])
    assert text.count("nothing is real") == text.count("one core in two") == 1
    assert "## What holds of all products" in text


# --- Is the folder of a report whole, and of one report? -----------------------------------------------

PNG = b"\x89PNG\r\n\x1a\n"


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
