"""Does the command do what it says, and answer every mistake with one paragraph and status 2?"""

import io
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from ascendsim.cli import main
from ascendsim.cli.progress import busy, progress

SMALL = ("--input", "1,16,6,6", "--weight", "32,16,3,3", "--padding", "1")
CYCLES = (*SMALL, "--cycles-only")


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
        assert "Traceback" not in printed.err
        assert "\n\n" not in printed.err.strip()
        return printed.err

    return run


@pytest.fixture
def npz(tmp_path):
    """Write a file of tensors, small integers unless others are given; None leaves one out."""

    def write(**arrays):
        random = np.random.default_rng(3)
        shapes = {"grad_output": (1, 3, 4, 4), "input": (1, 2, 4, 4), "weight": (3, 2, 3, 3)}
        made = {name: random.integers(-2, 3, shape).astype(np.float16) for name, shape in shapes.items()}
        made |= {"padding": np.array(1)} | arrays
        path = tmp_path / "mine.npz"
        np.savez(path, **{name: array for name, array in made.items() if array is not None})
        return path

    return write


# What it prints


def test_a_convolution_by_its_sizes(answer):
    text = answer("run", *SMALL)
    for words in (
        "910B (variant 910B2)",
        "grad_input",
        "grad_weight",
        "grad_bias",
        "block:16:RNE",
        "program order",
    ):
        assert words in " ".join(text.split())
    assert max(len(line) for line in text.splitlines()) <= 100


def test_piped_output_is_plain(answer):
    text = answer("run", *CYCLES)
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_a_layer_of_resnet50_has_no_bias_gradient(record):
    made = record("s5b1_3x3", "--cycles-only")
    assert made["problem"]["input"] == [1, 512, 7, 7]
    assert made["problem"]["gradients"] == "grad_input grad_weight"


def test_the_batch_goes_into_the_shape(record):
    assert record("s5b1_3x3", "--batch", "3", "--cycles-only")["problem"]["input"] == [3, 512, 7, 7]


def test_a_network_counts_every_layer(tmp_path, record):
    file = tmp_path / "two.toml"
    layer = "input = [16, 6, 6], weight = [16, 16, 3, 3], padding = 1"
    file.write_text(f'layers = [{{ name = "a", {layer}, count = 3 }}, {{ name = "b", {layer} }}]')
    made = record("--workload", str(file))["products"][0]
    single = made["layers"][0]["cycles"]
    assert made["layers"][0]["total_us"] == pytest.approx(3 * made["layers"][0]["time_us"])
    assert made["cycles"] == 4 * single


def test_products_are_set_side_by_side(answer):
    text = answer("run", *CYCLES, "--product", "910B", "--product", "Ascend910B3")
    assert "Products side by side" in text
    assert "910B (910B3)" in text


def test_a_product_of_ones_own(tmp_path, record):
    file = tmp_path / "wide.toml"
    file.write_text(
        'base = "910B2"\nvariant = "wide"\n[cores]\n'
        'cube = { value = 30, source = "a study", confidence = "assumed", range = [24, 30] }\n'
    )
    product = record(*CYCLES, "--product", str(file))["products"][0]
    assert product["variant"] == "wide"
    assert product["cores"]["cube"] == 30
    assert product["assumed_figures"]["cores.cube"]["range"] == [24, 30]


def test_the_mask_chooses_gradients(record):
    names = [kernel["name"] for kernel in record(*CYCLES, "--mask", "input")["products"][0]["kernels"]]
    assert names == ["grad_input"]


def test_the_same_seed_gives_the_same_bits_and_another_does_not(record):
    digests = [
        record(*SMALL, "--seed", seed)["products"][0]["gradients"][0]["sha256"] for seed in ("1", "1", "2")
    ]
    assert digests[0] == digests[1] != digests[2]


def test_the_bits_depend_on_the_accumulation_model(record):
    one, other = (
        record(*SMALL, "--mask", "weight", "--dtype", "float32", "--accumulation", model)["products"][0]
        for model in ("block:4:RNE", "seq:RNE")
    )
    assert (one["accumulation"], other["accumulation"]) == ("block:4:RNE", "seq:RNE")
    assert one["gradients"][0]["sha256"] != other["gradients"][0]["sha256"]


def test_a_legal_order_by_seed_gives_the_same_bits(record):
    one, other = (record(*SMALL, "--order", order)["products"][0] for order in ("program", "7"))
    assert other["order"] == "seed 7"
    assert [g["sha256"] for g in one["gradients"]] == [g["sha256"] for g in other["gradients"]]


@pytest.mark.parametrize(("dtype", "mere"), [("float16", 2**-10), ("bfloat16", 2**-7), ("float32", 2**-13)])
def test_errors_are_of_the_size_of_the_format(record, dtype, mere):
    for gradient in record(*SMALL, "--dtype", dtype)["products"][0]["gradients"]:
        assert 0 < gradient["mere"] < mere
        assert gradient["stored"] == dtype


def test_a_users_tensors(record, npz):
    # Small integers are exact in every format here, so the gradients are the float64 ones.
    made = record("--npz", str(npz()))
    assert made["problem"]["padding"] == 1
    assert made["problem"]["tensors"] == "mine.npz"
    assert [gradient["max_abs"] for gradient in made["products"][0]["gradients"]] == [0, 0, 0]


def test_the_formats_of_a_users_tensors_are_told(record, npz):
    path = npz(weight=np.ones((3, 2, 3, 3), np.float32))
    for words in ((), ("--cycles-only",)):
        assert record("--npz", str(path), *words)["problem"]["dtype"] == "float16 float16 float32"
    assert (
        record("--npz", str(npz()), "--cycles-only", "--dtype", "bfloat16")["problem"]["dtype"] == "bfloat16"
    )


def test_options_go_before_what_the_file_says(record, npz):
    path = npz(grad_output=np.ones((1, 3, 2, 2), np.float32), output_mask=np.array([True, False, False]))
    made = record("--npz", str(path), "--padding", "0", "--dtype", "bfloat16")
    assert "padding" not in made["problem"] or made["problem"]["padding"] == 0
    assert [gradient["name"] for gradient in made["products"][0]["gradients"]] == ["grad_input"]
    assert made["products"][0]["gradients"][0]["stored"] == "bfloat16"


def test_a_report_folder_says_how_it_was_made(answer, tmp_path):
    folder = tmp_path / "report"
    text = answer("run", *SMALL, "--out", str(folder), "--no-trace")
    assert "report.md, result.json, timeline.png" in text
    made = json.loads((folder / "result.json").read_text())
    assert made["command"][:2] == ["run", "--input"]
    assert not (folder / "trace.json").exists()


def test_profiles_lists_the_products(answer):
    text = answer("profiles")
    for product in ("910B2*", "910_9382*", "950PR_9589*", "310P3*", "910A*"):
        assert product in text


def test_profiles_shows_each_figure_with_its_source(answer):
    figures = json.loads(answer("profiles", "910B3", "--json"))["figures"]
    assert figures["cores.cube"]["value"] == 20
    assert all(figure["source"] and figure["confidence"] for figure in figures.values())
    text = answer("profiles", "910B3")
    assert all(path in text for path in figures)


def test_help_is_no_error(capsys):
    for words in (["--help"], ["run", "--help"], ["--version"]):
        with pytest.raises(SystemExit) as leaving:
            main(words)
        assert leaving.value.code == 0
        assert "ascendsim" in capsys.readouterr().out


# Mistakes


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "COMMAND"),
        (("rnu",), "did you mean run"),
        (("run", "--prodct", "910B"), "did you mean --product"),
        (("run", "s3b1_3x"), "did you mean s3b1_3x3"),
        (("run", "resnet50"), "--workload resnet50"),
        (("run", "--workload", "resnet51"), "there is resnet50"),
        (("run", "s3b1_3x3", "--stride", "2"), "cannot be combined"),
        (("run", "s3b1_3x3", "--input", "1,2,3,4"), "cannot be combined"),
        (("run", "--input", "1,2,3,4"), "--weight is missing"),
        (("run", "--input", "1,2,x,4"), "such as 4,128,28,28"),
        (("run", "--input", "4,4", "--weight", "4,4"), "rank 2"),
        (("run", "--input", "1,2,3,4", "--weight", "2,2,3"), "they must be equal"),
        (("run", "--input", "1,2,3,4", "--weight", "2,3,3,3"), "channels"),
        (("run", "--input", "1,2,2,2", "--weight", "2,2,3,3"), "larger than the padded input"),
        (("run", "--input", "1,2,-3,4", "--weight", "2,2,3,3"), "must not be empty"),
        (("run", *CYCLES, "--stride", "0"), "at least 1"),
        (("run", *CYCLES, "--padding", "1,1,1"), "it needs 2 or 4"),
        (("run", *CYCLES, "--product", "910C"), "unknown product"),
        (("run", *CYCLES, "--product", "none.toml"), "cannot be read"),
        (("run", *CYCLES, "--dtype", "float61"), "did you mean 'float16'"),
        (("run", *SMALL, "--dtype", "hf32_11"), "--dtype float32 --cube-math-type 1"),
        (("run", *SMALL, "--dtype", "hifloat8"), "does not take hifloat8"),
        (("run", *CYCLES, "--cube-math-type", "4"), "cube-math-type"),
        (("run", *CYCLES, "--accumulation", "blok:16:RNE"), "blok"),
        (("run", *CYCLES, "--mask", "wieght"), "not one of input, weight, bias"),
        (("run", *CYCLES, "--order", "late"), "not program, arrival or a seed"),
        (("run", "s3b1_3x3", "--batch", "0"), "positive"),
        (("run", "--npz", "none.npz"), "cannot be read"),
        (("run", "--npz", "none.npz", "--batch", "2"), "cannot be combined"),
        (("profiles", "910X"), "unknown product"),
    ],
)
def test_a_mistake_is_answered_with_one_paragraph(refusal, words, says):
    assert says in refusal(*words)


def test_a_broken_product_file(refusal, tmp_path):
    file = tmp_path / "broken.toml"
    file.write_text("base = [")
    assert "not valid TOML" in refusal("run", *CYCLES, "--product", str(file))
    file.write_text('base = "910B"\n[cores]\ncub = { value = 3, source = "s", confidence = "derived" }')
    assert "did you mean" in refusal("run", *CYCLES, "--product", str(file))


class Evil:
    """Writes a file if it is ever unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_users_file_is_never_unpickled(refusal, npz, tmp_path):
    mark = tmp_path / "unpickled"
    weight = np.array([Evil(mark)], dtype=object)
    assert "plain arrays" in refusal("run", "--npz", str(npz(weight=weight)))
    (tmp_path / "raw.npz").write_bytes(pickle.dumps(Evil(mark)))
    assert "plain arrays" in refusal("run", "--npz", str(tmp_path / "raw.npz"))
    assert not mark.exists()


def one_array():
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "plain arrays"),
        (b"no archive at all", "plain arrays"),
        (b"PK\x03\x04 cut off", "plain arrays"),
        (one_array(), "holds one array"),
    ],
)
def test_what_is_no_npz(refusal, tmp_path, content, says):
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    assert says in refusal("run", "--npz", str(path))


def test_a_cut_off_npz(refusal, npz):
    path = npz()
    path.write_bytes(path.read_bytes()[:-30])
    assert "plain arrays" in refusal("run", "--npz", str(path))
    assert "cannot be read" in refusal("run", "--npz", str(path.parent))


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"weight": None}, "has no array weight"),
        ({"grad_output": None, "grad_out": np.zeros(1, np.float16)}, "did you mean grad_out"),
        ({"strides": np.array(1)}, "did you mean stride"),
        ({"stride": np.array(1.5)}, "must be whole numbers"),
        ({"transposed": np.array(1)}, "must be true or false"),
        ({"output_mask": np.array([True])}, "three times true or false"),
        ({"input": np.zeros((1, 2, 4, 4))}, "store tensors as float16 or float32"),
        ({"input": np.zeros((1, 2, 4, 4), np.int32)}, "store tensors as float16 or float32"),
        ({"input": np.zeros((1, 2, 4, 4), "V2")}, "--dtype"),
        ({"input": np.zeros((1, 2, 4), np.float16)}, "rank"),
        ({"grad_output": np.zeros((1, 3, 5, 4), np.float16)}, "grad_output has height 5"),
        ({"grad_output": np.zeros((2, 3, 4, 4), np.float16)}, "grad_output has batch 2"),
    ],
)
def test_an_npz_that_does_not_fit(refusal, npz, arrays, says):
    assert says in refusal("run", "--npz", str(npz(**arrays)))


def test_an_out_folder_that_cannot_be(refusal, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be made" in refusal("run", *CYCLES, "--out", str(tmp_path / "file"))


def test_a_run_that_cannot_fit_is_refused_before_it_begins(refusal):
    # 2 x 10^6 x 512 x 49 values of input and its gradient alone, at 16 bytes, are 750 GiB
    assert "--cycles-only" in refusal("run", "s5b1_3x3", "--batch", "1000000")


def test_lack_of_memory_is_told(refusal, monkeypatch):
    def fail(_):
        raise MemoryError("Unable to allocate 2 PiB")

    monkeypatch.setattr("ascendsim.cli.run.read_request", fail)
    assert "smaller batch" in refusal("run")


# Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "shown"), [(Terminal(), True), (io.StringIO(), False)])
def test_progress_is_for_terminals_only(monkeypatch, stream, shown):
    monkeypatch.setattr(sys, "stderr", stream)
    with progress(2) as advance:
        advance("first")
        advance("second")
    with busy("computing"):
        pass
    assert bool(stream.getvalue()) == shown


# The process


def command(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "ascendsim", *words], capture_output=True, text=True, **options
    )


def test_the_command_leaves_with_its_status():
    done = command("run", "s3b1_3x")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_an_ascii_terminal_is_served():
    done = command(
        "run", *CYCLES, env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}, check=True
    )
    assert "grad_input" in done.stdout


def test_a_reader_that_leaves_is_no_error():
    with subprocess.Popen(
        [sys.executable, "-m", "ascendsim", "profiles", "910B"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""


def test_estimates_need_no_heavy_library():
    code = (
        "import sys\nfrom ascendsim.cli import main\n"
        f"main({['run', *CYCLES, '--json']!r})\n"
        "print(*sorted({'numba', 'ml_dtypes', 'matplotlib', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""
