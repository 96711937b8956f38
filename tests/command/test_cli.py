"""Does the command do what it says, and answer every mistake with one paragraph and status 2?"""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from ascendsim import ConvProblem
from ascendsim.cli import main
from ascendsim.cli.run import WARM_NOTE, _work
from ascendsim.profile import list_products, load_profile
from ascendsim.progress import busy, progress, time_left

SMALL = ("--input", "1,16,6,6", "--weight", "32,16,3,3", "--padding", "1")
CYCLES = (*SMALL, "--cycles-only")


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


@pytest.mark.parametrize("words", [("--cycles-only",), ()])
def test_spans_are_asked_of_nobody_where_they_are_not_read(answer, monkeypatch, words):
    def refused(*_args, **_keywords):
        raise AssertionError("a terminal shows nothing that is told from spans")

    monkeypatch.setattr("ascendsim.ops.graph_times.time_kernel", refused)
    monkeypatch.setattr("ascendsim.timing.simpy_engine.time_phase", refused)
    for shape in (SMALL, ("s5b1_3x3", "--details"), ("--workload", "alexnet")):
        assert "grad_weight" in answer("run", *shape, *(() if "alexnet" in shape else words))


def test_a_critical_path_that_is_asked_for_is_that_of_either_engine(record, monkeypatch):
    of_simpy = record(*CYCLES, "--engine", "simpy")["products"][0]["kernels"]
    monkeypatch.setattr("ascendsim.timing.simpy_engine.time_phase", None)
    made = record(*CYCLES)["products"][0]["kernels"]
    assert [kernel["critical_path"] for kernel in made] == [kernel["critical_path"] for kernel in of_simpy]
    assert all(sum(kernel["critical_path"].values()) == kernel["cycles"] for kernel in made)


def test_a_network_counts_every_layer(tmp_path, record):
    file = tmp_path / "two.toml"
    layer = "input = [16, 6, 6], weight = [16, 16, 3, 3], padding = 1"
    file.write_text(f'layers = [{{ name = "a", {layer}, count = 3 }}, {{ name = "b", {layer} }}]')
    made = record("--workload", str(file))["products"][0]
    single = made["layers"][0]["cycles"]
    assert made["layers"][0]["total_us"] == pytest.approx(3 * made["layers"][0]["time_us"])
    assert made["cycles"] == 4 * single
    words = ("--workload", str(file), "--product", "310P", "--product", "910B")
    one = record(*words)["products"]
    # Both names of the option mean the same.
    assert record(*words, "--jobs", "2")["products"] == record(*words, "--workers", "2")["products"] == one


def test_products_are_set_side_by_side(answer):
    text = answer("run", *CYCLES, "--product", "910B", "--product", "Ascend910B3")
    assert "Products side by side" in text
    assert "910B (910B3)" in text


@pytest.mark.parametrize("jobs", [(), ("--cycles-only",), ("--workload", "FILE", "--jobs", "2")])
def test_what_one_of_several_products_refuses_is_told_of_it(refusal, tmp_path, jobs):
    file = tmp_path / "two.toml"
    file.write_text('layers = [{ name = "a", input = [8, 5, 5], weight = [8, 8, 3, 3] }]')
    layer = () if "FILE" in jobs else SMALL
    words = [str(file) if word == "FILE" else word for word in (*layer, *jobs, "--dtype", "bfloat16")]
    advice = "This is what 310P3 says; leave it out of --product to run the others."
    assert advice in refusal("run", *words, "--product", "910B", "--product", "310P")
    assert advice not in refusal("run", *words, "--product", "310P")


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
    around = ["transdata_grad_output", "transdata_weight", "transdata_grad_input"]
    assert names == [*around[:2], "grad_input", around[2]]


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


def test_l2_is_as_a_step_leaves_it_unless_something_else_is_asked(record):
    starts = ("step", " grad_output", "warm", "cold")
    usual, *others = (record(*CYCLES, *words) for words in ((), *(("--l2-start", s) for s in starts)))
    step, named, warm, cold = others
    assert usual["products"] == step["products"]
    assert usual["products"][0]["cycles"] == named["products"][0]["cycles"]
    found = [made["problem"]["L2"] for made in (usual, *others)]
    assert found == ["step", "step", "grad_output", "warm", "cold"]
    # A line says what that costs.
    assert usual["products"][0]["time_us"] > warm["products"][0]["time_us"]
    line = WARM_NOTE.format(warm["products"][0]["time_us"])
    said = [sum(note.endswith(line) for note in made["products"][0]["notes"]) for made in (usual, *others)]
    assert said == [1, 1, 1, 0, 1]
    assert any(note.startswith("L2 is cold") for note in cold["products"][0]["notes"])
    # The tensors are far smaller than L2: warm kernels read nothing from main memory, cold ones all of it.
    # MemSet reads nothing at all.
    read = [
        [k["bytes"]["memory_read"] for k in made["products"][0]["kernels"] if "memset" not in k["name"]]
        for made in (warm, cold)
    ]
    assert set(read[0]) == {0}
    assert min(read[1]) > 0
    assert cold["products"][0]["cycles"] > warm["products"][0]["cycles"]


def test_l2_can_hold_what_the_kernel_before_has_written(record):
    # One placement of the kernel: matrix products, whose second operands no TransData has just written.
    one = ("--input", "16,16,6,6", "--weight", "32,16,6,6", "--cycles-only")
    warm, handed, cold = (
        record(*one, "--l2-start", start)["products"][0] for start in ("warm", "handed", "cold")
    )
    read = [sum(k["bytes"]["memory_read"] for k in made["kernels"]) for made in (warm, handed, cold)]
    assert read[0] < read[1] < read[2]
    assert any(note.startswith("L2 holds the first input") for note in handed["notes"])


def test_a_network_can_begin_cold_too(record, tmp_path):
    file = tmp_path / "one.toml"
    file.write_text('layers = [{ name = "a", input = [16, 6, 6], weight = [16, 16, 3, 3], padding = 1 }]')
    warm, cold = (record("--workload", str(file), "--l2-start", start) for start in ("warm", "cold"))
    assert cold["products"][0]["cycles"] > warm["products"][0]["cycles"]
    assert cold["problem"]["L2"] == "cold"
    line = WARM_NOTE.capitalize().format(warm["products"][0]["time_us"])
    assert line in cold["products"][0]["notes"]
    assert line not in warm["products"][0]["notes"]


def test_a_legal_order_by_seed_gives_the_same_bits(record):
    # Parts of grad_weight that different cores add as they come are left out: of those the order is the bits.
    words = *SMALL, "--deterministic"
    one, other = (record(*words, "--order", order)["products"][0] for order in ("program", "7"))
    assert other["order"] == "seed 7"
    assert [g["sha256"] for g in one["gradients"]] == [g["sha256"] for g in other["gradients"]]


def test_nan_and_inf_are_said(answer, tmp_path):
    # One NaN of input reaches nine weights of each of its 16 output channels, and no other gradient.
    file = tmp_path / "nan.npz"
    tensors = {
        "grad_output": np.ones((1, 16, 6, 6)),
        "input": np.ones((1, 16, 6, 6)),
        "weight": np.ones((16, 16, 3, 3)),
    }
    tensors["input"][0, 0, 2, 2] = np.nan
    np.savez(file, **{name: array.astype(np.float16) for name, array in tensors.items()})
    folder = tmp_path / "out"
    text = " ".join(
        answer("run", "--npz", str(file), "--padding", "1", "--out", str(folder), "--no-trace").split()
    )
    line = "NaN or Inf in grad_weight: due in 144 of 2,304 elements, got in 144, different in 0"
    assert line in text
    assert text.count("NaN or Inf in") == 1
    page = (folder / "report.md").read_text()
    assert line in page
    assert "Standards, and NaN and Inf where R(g) has them: st:" in page
    assert "a: an element of the gradient. g: the same of the reference" in page


@pytest.mark.parametrize(("dtype", "mere"), [("float16", 2**-10), ("bfloat16", 2**-7), ("float32", 2**-13)])
def test_errors_are_of_the_size_of_the_format(record, dtype, mere):
    for gradient in record(*SMALL, "--dtype", dtype)["products"][0]["gradients"]:
        assert 0 < gradient["mere"] < mere
        assert gradient["stored"] == dtype


def test_a_report_folder_says_how_it_was_made(answer, tmp_path):
    folder = tmp_path / "report"
    text = answer("run", *SMALL, "--out", str(folder), "--no-trace")
    assert "report.md, report.html, result.json, timeline.png" in text
    made = json.loads((folder / "result.json").read_text())
    assert made["command"][:2] == ["run", "--input"]
    assert not (folder / "trace.json").exists()


def test_profiles_as_json_are_those_of_the_table(answer):
    rows = json.loads(answer("profiles", "--json"))
    products = list_products()
    names = [(product.name, name) for product in products for name in product.variants or (product.name,)]
    assert [(row["product"], row["variant"]) for row in rows] == names
    # A product's own name means one of its variants.
    defaults = [row["variant"] for row in rows if row["default"]]
    assert defaults == [load_profile(product.name).variant for product in products]
    for row in rows:
        assert row["cube_cores"] == load_profile(row["variant"]).cores.cube


def test_profiles_lists_the_products(answer):
    text = answer("profiles")
    for product in ("910B2*", "910_9382*", "950PR_9589*", "310P3*", "910A*"):
        assert product in text


def test_in_a_pipe_no_cell_is_folded(answer):
    # Seven variants of one kind of core are a line of their own; so is every figure, and its source.
    line = next(line for line in answer("profiles").splitlines() if "950DT_9571" in line)
    assert line.startswith("910_95")
    assert line.endswith("950DT_9577")
    lines = answer("profiles", "910B3").splitlines()
    figures = json.loads(answer("profiles", "910B3", "--json"))["figures"]
    assert [line.split()[0] for line in lines if line[:1].islower() and "  (" in line] == sorted(figures)
    for figure in figures.values():
        assert any(line.startswith(f"    {figure['source']}") for line in lines)


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
        (("run", "resnet50"), "--network resnet50"),
        (("run", "--workload", "resnet51"), "there is alexnet, "),
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
        (("run", *SMALL[:4], "--padding", "1,1,1"), "it needs 2 or 4"),
        (("run", *CYCLES, "--product", "910D"), "unknown product"),
        (("run", *CYCLES, "--product", "none.toml"), "cannot be read"),
        (("run", *CYCLES, "--dtype", "float61"), "did you mean 'float16'"),
        (("run", *SMALL, "--dtype", "hf32_11"), "--dtype float32 --cube-math-type 1"),
        (("run", *SMALL, "--dtype", "hifloat8"), "calls on 910B take float32, float16, bfloat16"),
        (("run", *CYCLES, "--cube-math-type", "4"), "cube-math-type"),
        (("run", *CYCLES, "--accumulation", "blok:16:RNE"), "blok"),
        (("run", *CYCLES, "--l2-start", "hot"), "--l2-start"),
        (("run", *CYCLES, "--mask", "wieght"), "not one of input, weight, bias"),
        (("run", *CYCLES, "--order", "late"), "not program, arrival or a seed"),
        (("run", "s3b1_3x3", "--batch", "0"), "positive"),
        (("study", "hardware", "s4", "--time", "soon"), "'soon' is not a number of seconds of 0 or more"),
        (("study", "hardware", "s4", "--time", "-1"), "'-1' is not a number of seconds of 0 or more"),
        (
            ("run", *CYCLES, "--accumulation", "seq:RNE", "--accumulation", "block:4:RNE"),
            "--accumulation is given twice; give one",
        ),
        (("run", *CYCLES, "--dtype=float16", "--dtype", "float16"), "--dtype is given twice"),
        (("run", *CYCLES, "--no-trace", "--trace"), "both --no-trace and --trace are given"),
        (("check", *SMALL, "--pad", "1", "--pad", "2"), "--pad is given twice"),
        (("profiles", "--json", "--json"), "--json is given twice"),
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


def test_an_out_folder_that_cannot_be(refusal, tmp_path):
    (tmp_path / "file").write_text("")
    assert "is a file, no folder can be in it" in refusal("run", *CYCLES, "--out", str(tmp_path / "file"))


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


@pytest.mark.parametrize(
    ("mask", "work"),
    [
        ((True, True, True), "1.8 GMAC"),  # the bias's gradient multiplies nothing
        ((False, True, False), "924.8 MMAC"),
        ((False, False, True), "0.0 MMAC"),
    ],
)
def test_the_work_of_a_run_is_that_of_its_gradients(mask, work):
    layer = ConvProblem((8, 128, 28, 28), (128, 128, 3, 3), padding=1)
    assert _work(layer, mask) == work


def test_a_long_wait_is_told_in_a_pipe_line_by_line(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("ascendsim.progress.QUIET_SECONDS", 0.01)

    def waits_for(words):
        end = time.monotonic() + 20
        while not (found := re.search(words, stream.getvalue())) and time.monotonic() < end:
            time.sleep(0.005)
        return found

    with progress(3) as advance:
        assert waits_for(r"ascendsim: 0 of 3 \(0 s so far\)\n")
        advance("first")
        advance("second")
        assert waits_for(r"ascendsim: 2 of 3: second \(\d+ s so far\)\n")
    with busy("computing"):
        assert waits_for(r"ascendsim: computing \(\d+ s so far\)\n")
    told = stream.getvalue()
    time.sleep(0.05)
    assert stream.getvalue() == told  # nothing is told of work that is done


@pytest.mark.parametrize(
    ("done", "seconds", "left"),
    [
        (1, 30, ""),
        (2, 60, ""),
        (3, 4.9, ""),
        (3, 6, ", about 194 s left"),
        (99, 99, ", about 1 s left"),
        (100, 100, ""),
    ],
)
def test_no_time_is_told_from_the_first_tasks_or_seconds(done, seconds, left):
    assert time_left(done, 100, seconds) == left


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("check", "a file of calls in JSON"),
        ("calibrate --product 910B2", "a table of measured times"),
        *((words, "a layer's name") for words in ("run", "study why", "study tiling", "study hardware")),
    ],
)
def test_a_product_file_in_a_wrong_place_is_told_where_it_belongs(words, wanted, refusal, tmp_path):
    file = tmp_path / "m2.toml"
    file.write_text('base = "910B2"\n')
    told = refusal(*words.split(), str(file))
    assert f"`ascendsim profiles {file}` checks" in told
    assert f" takes {wanted} there, not {file}; " in told
    assert f"`--product {file}` beside {wanted} uses it" in told
    assert ("named by --network" in told) == (wanted == "a layer's name")


def test_the_figures_of_a_file_are_found_by_its_path(answer, tmp_path):
    file = tmp_path / "my lab.toml"
    file.write_text('base = "910B2"\nvariant = "lab-x"\n')
    line = f"(`ascendsim profiles '{file}'`)."
    assert line in " ".join(answer("run", *CYCLES, "--product", str(file)).split())
    assert "lab-x" in answer("profiles", str(file))


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


def shell(text, **options):
    """Run a line of a shell, `ascendsim` in it; its streams may be closed or full."""
    text = text.replace("ascendsim", f"{sys.executable} -m ascendsim")
    return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize(
    ("line", "status", "says"),
    [
        ("ascendsim run >&-", 2, "standard output is closed"),
        ("ascendsim profiles >&-", 2, "standard output is closed"),
        ("ascendsim profiles > /dev/full", 2, "output cannot be written (No space left on device)"),
        ("ascendsim profiles 2>&-", 0, ""),
        ("ascendsim profiles nonesuch 2>&-", 2, ""),
        ("ascendsim profiles nonesuch < /dev/null >&- 2>&- <&-", 2, ""),
        ("ascendsim profiles 910B > /dev/full", 2, "output cannot be written (No space left on device)"),
    ],
)
def test_streams_that_are_closed_or_full_are_told_in_one_line(line, status, says):
    done = shell(line)
    assert done.returncode == status
    assert says in done.stderr
    assert done.stderr.count("\n") == (1 if says else 0)


def test_no_file_takes_the_number_of_a_closed_stream(tmp_path):
    # The report would be written into by whatever is printed.
    done = shell(f"ascendsim run {' '.join(CYCLES)} --out {tmp_path / 'out'} 2>&-")
    assert done.returncode == 0
    assert json.loads((tmp_path / "out" / "result.json").read_text())


def test_pictures_need_no_backend(tmp_path):
    named = os.environ | {"MPLBACKEND": "nonesuch"}
    done = command("run", *CYCLES, "--out", str(tmp_path), env=named)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "timeline.png").stat().st_size


def test_the_backend_of_a_notebook_stays_its_own():
    code = "import ascendsim.report.pictures, os\nfrom matplotlib import get_backend\n"
    code += "print(os.environ['MPLBACKEND'], get_backend())"
    named = os.environ | {"MPLBACKEND": "svg"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=named)
    assert done.stdout.split() == ["svg", "svg"]


@pytest.mark.parametrize("after", [0.05, 0.1, 0.2, 0.4, 0.8])
def test_an_interrupt_is_one_line_from_the_moment_the_command_loads(after):
    # From the first line of the entry point; before it, Python itself has not come to us.
    code = (
        "import sys\nfrom ascendsim.cli import main\nprint('loaded', flush=True)\n"
        "sys.argv[1:] = ['run', 's3b1_3x3', '--batch', '64']\nsys.exit(main())"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "loaded\n"
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        said = process.stderr.read()
        assert process.wait() == 130
        assert time.monotonic() - begun < 5
    assert said == "ascendsim: interrupted\n"


def test_an_interrupt_ends_compiled_code_within_a_second():
    # A call of minutes, most of them in loops that Python waits for.
    words = ["run", "--input", "1000000,64,56,56", "--weight", "64,64,3,3", "--padding", "1"]
    line = [sys.executable, "-m", "ascendsim", *words, "--cycles-only", "--most-instructions", "10000000000"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        assert process.stderr.read() == "ascendsim: interrupted\n"
        assert process.wait() == 130
        assert time.monotonic() - begun < 3


def test_a_command_in_a_file_does_not_reach_the_terminal(answer, refusal, tmp_path):
    file = tmp_path / "lab.toml"
    figure = '{ value = 3, source = "clear \\u001b[2J\\u009b", confidence = "measured" }'
    file.write_text(f'base = "910B2"\n[scalar]\nissue_cycles = {figure}\n')
    shown = answer("profiles", str(file))
    assert r"clear \x1b[2J\x9b" in shown
    assert "\x1b" not in shown
    assert "\x1b" not in refusal("profiles", "\x1b[2J")


def test_a_name_that_is_no_text_is_no_traceback(tmp_path):
    done = command("run", "--npz", os.fsdecode(bytes(tmp_path) + b"/\xff.npz"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_estimates_need_no_heavy_library():
    code = (
        "import sys\nfrom ascendsim.cli import main\n"
        f"main({['run', *CYCLES, '--json']!r})\n"
        "print(*sorted({'numba', 'ml_dtypes', 'matplotlib', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""
