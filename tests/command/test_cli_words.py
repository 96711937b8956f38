"""Does the command read words as they are meant: values, options, and what to run?"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ascendsim.cli import main
from ascendsim.cli.parser import parse
from ascendsim.cli.request import (
    GRADIENTS,
    Network,
    Single,
    gradients,
    natural,
    order,
    positive,
    read_request,
    sizes,
)
from ascendsim.cli.run import _notes, settings
from ascendsim.cli.tensors import Tensors, memory_advice, normal_tensors, npz_attributes
from ascendsim.errors import ConfigError, DataError, UnsupportedError
from ascendsim.files import make_folder, require_file, require_folder
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.workloads import Layer, Workload

PROBLEM = ConvProblem((2, 3, 5, 5), (4, 3, 3, 3))


# Values


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (sizes, "4,128,28,28", (4, 128, 28, 28)),
        (sizes, "1", (1,)),
        (sizes, "-1, 2", (-1, 2)),  # a slip that the problem itself explains better
        (gradients, "input", (True, False, False)),
        (gradients, "bias,weight", (False, True, True)),
        (gradients, "grad_input, grad_bias", (True, False, True)),
        (order, "program", "program"),
        (order, "arrival", "arrival"),
        (order, "7", 7),
        (natural, "0", 0),
        (natural, "007", 7),
        (positive, "999999999999999999", 10**18 - 1),
    ],
)
def test_a_value_is_read(read, text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "says"),
    [
        (sizes, "", "is not a list of whole numbers"),
        (sizes, "4;4", "such as 4,128,28,28"),
        (sizes, "4.5", "is not a list"),
        (gradients, "", "'' is not one of input, weight, bias"),
        (gradients, "input,wieght", "'wieght' is not one of"),
        (order, "random", "is not program, arrival or a seed"),
        (order, "-1", "is not program, arrival or a seed"),
        (natural, "-1", "is not a whole number of 0 or more"),
        (natural, "1_000", "is not a whole number"),
        (natural, " 1", "is not a whole number"),
        (natural, "٣", "is not a whole number"),
        (natural, "1" * 19, "is not a whole number"),
        (positive, "0", "is not a positive whole number"),
        (positive, "-1", "is not a positive whole number"),
    ],
)
def test_a_value_that_is_none_says_what_is_wanted(read, text, says):
    with pytest.raises(argparse.ArgumentTypeError, match=says):
        read(text)


# Options


def test_the_product_is_the_default_only_where_none_is_named():
    assert parse(["run"]).product == ["910B"]
    assert parse(["run", "--product", "910", "--product", "910_95"]).product == ["910", "910_95"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "--json", "--json"], "--json is given twice"),
        (["run", "--trace", "--no-trace"], "both --trace and --no-trace are given"),
        (["run", "--batch=2", "--batch", "3"], "--batch is given twice"),
        (["check", "--tbc", "--tbc"], "--tbc is given twice"),
        (["run", "--bath", "2"], "did you mean --batch"),
        (["run", "--xyzzy"], "`ascendsim run --help` lists what there is"),
        (["profiles", "910B", "910"], "does not know '910'"),
        (["run", "--product=--"], "--product: '--' is no value; write one after the ="),
        (["fly"], "there is run, profiles, check, validate"),
        (["run", "--batch"], "expected one argument; `ascendsim run --help` shows how it is used"),
    ],
)
def test_a_slip_is_told_with_what_helps(words, says):
    with pytest.raises(ConfigError, match=says):
        parse(words)


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--input", "1,16,6,6", "--weight", "16,16,3,3", "--out"),
        ("validate", "--class", "primitives", "--out"),
        ("probe", "--dtype", "float16", "--out"),
        ("study", "precision", "--npz"),
    ],
)
def test_a_name_that_is_too_long_for_a_file_is_told(refusal, words):
    assert "aaa... is too long for the name of a file" in refusal(*words, "a" * 500)


def test_products_and_rule_sets_may_be_repeated():
    arguments = parse(["check", "--rules", "shipped", "--rules", "documented", "--product", "910B"])
    assert (arguments.rules, arguments.product) == (["shipped", "documented"], ["910B"])


# What to run


def request(*words):
    return read_request(parse(["run", *words]))


def test_a_layer_of_a_network_is_one_convolution():
    asked = request("s3b1_3x3", "--batch", "4")
    assert isinstance(asked, Single)
    assert asked.options["input"] == (4, 128, 28, 28)
    assert asked.title == "ResNet-50 v1.5 s3b1_3x3, batch 4"
    assert asked.mask == (True, True, False)  # its convolutions have no bias
    assert asked.arrays is None


def test_a_pattern_is_the_layers_that_it_means_as_studies_take_them():
    asked = request("s3b1*", "--batch", "4")
    assert isinstance(asked, Network)
    assert [layer.name for layer in asked.layers] == ["s3b1_1x1a", "s3b1_3x3"]
    assert asked.workload.title == "2 layers (s3b1*) of ResNet-50 v1.5"
    # Plans of others of the network may stand in a file.
    assert "conv1" in asked.layer_names


def test_a_pattern_of_one_layer_is_that_layer():
    asked = request("s3b1_3*")
    assert isinstance(asked, Single)
    assert (asked.layer, asked.title) == ("s3b1_3x3", "ResNet-50 v1.5 s3b1_3x3, batch 1")


def test_no_layer_is_the_whole_network():
    asked = request("--batch", "2", "--mask", "weight")
    assert isinstance(asked, Network)
    assert (asked.batch, asked.mask) == (2, (False, True, False))
    assert asked.layers == asked.workload.layers


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["study", "hardware", "--change", "cores.cube=20"],
        ["study", "tiling", "bad", "--gradient", "input"],
        ["study", "precision"],
    ],
)
def test_a_mistake_in_a_layer_of_a_network_names_the_layer(words, refusal, tmp_path):
    # The second layer's weight reads 4 channels where its input has 3.
    (tmp_path / "mine.toml").write_text(
        "layers = [{ name = 'good', input = [3, 8, 8], weight = [8, 3, 3, 3] },"
        " { name = 'bad', input = [3, 8, 8], weight = [8, 4, 3, 3] }]"
    )
    told = refusal(*words, "--network", str(tmp_path / "mine.toml"))
    assert "layer bad: convolution: input has 3 channels, but weight.shape[1] * groups is 4" in told


def test_sizes_are_a_convolution_of_their_own():
    asked = request("--input", "1,16,6,6", "--weight", "32,16,3,3", "--padding", "1", "--stride", "2,1")
    assert asked.options == {"input": (1, 16, 6, 6), "weight": (32, 16, 3, 3), "padding": 1, "stride": (2, 1)}
    assert asked.title == "a convolution 1x16x6x6 with 32x16x3x3"
    assert asked.mask == (True, True, True)
    turned = request("--input", "1,16,6,6", "--weight", "16,8,3,3", "--transposed")
    assert turned.title.startswith("a transposed convolution")
    assert turned.options["transposed"] is True


def test_a_file_brings_sizes_attributes_and_mask(tmp_path):
    path = tmp_path / "mine.npz"
    arrays = {
        name: np.zeros(getattr(PROBLEM, name), np.float16) for name in ("grad_output", "input", "weight")
    }
    np.savez(path, **arrays, groups=1, padding=[0, 0], output_mask=[True, False, True])
    asked = request("--npz", str(path), "--padding", "1")
    assert asked.title == "mine.npz"
    assert asked.mask == (True, False, True)
    assert asked.options["input"] == (2, 3, 5, 5)
    assert asked.options["groups"] == 1
    assert asked.options["padding"] == 1  # the command line goes before the file
    assert request("--npz", str(path), "--mask", "weight").mask == (False, True, False)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("s3b1_3x3", "--npz", "x.npz"), "LAYER cannot be combined with --npz"),
        (
            ("--npz", "x.npz", "--batch", "2"),
            "--batch cannot be combined with --npz: the file gives the sizes",
        ),
        (("--input", "1,2", "--batch", "2"), "--input includes the batch"),
        (("--weight", "1,2"), "--input is missing"),
        (("--output-padding", "1"), "--output-padding cannot be combined with a workload"),
        (("--transposed",), "--transposed cannot be combined with a workload"),
    ],
)
def test_ways_to_say_what_to_run_do_not_mix(words, says):
    with pytest.raises(ConfigError, match=says):
        request(*words)


def test_the_settings_name_what_was_asked():
    arguments = SimpleNamespace(
        cube_math_type=3, l2_start="cold", layout="NC1HWC0", schedule=None, tiling=None
    )
    assert settings((True, False, True), ("float16", "float32", "float16"), arguments) == {
        "dtype": "float16 float32 float16",
        "cube_math_type": 3,
        "gradients": "grad_input grad_bias",
        "L2": "cold",
        "layout": "NC1HWC0",
    }
    assert GRADIENTS == ("grad_input", "grad_weight", "grad_bias")


# Tensors


def test_synthetic_tensors_lie_on_the_grid_of_their_format():
    for name in ("float16", "bfloat16", "float32", "float8_e4m3fn", "hifloat8"):
        made = normal_tensors(PROBLEM, name, 5)
        assert made.dtype == name
        assert made.about == "standard normal, seed 5"
        assert [tensor.shape for tensor in (made.grad_output, made.input, made.weight)] == [
            *(PROBLEM.grad_output, PROBLEM.input, PROBLEM.weight)
        ]


def test_a_seed_draws_the_same_values_in_every_format():
    # Each format rounds the same float32 draws: float16 is within half a step of 2^-11 of them.
    exact, rounded = (normal_tensors(PROBLEM, name, 1).input for name in ("float32", "float16"))
    assert np.all(np.abs(exact - rounded.astype(np.float32)) <= 2**-11 * np.abs(exact) + 2**-25)


def test_tensors_of_several_formats_are_told_one_by_one():
    one, other = np.zeros(1, np.float16), np.zeros(1, np.float32)
    assert Tensors(one, other, one, "").dtype == ("float16", "float32", "float16")
    assert Tensors(one, one, one, "").dtype == "float16"


def test_hf32_is_no_format_to_draw():
    with pytest.raises(UnsupportedError, match="take --dtype float32 --cube-math-type 1"):
        normal_tensors(PROBLEM, "hf32_11", 0)


def test_attributes_of_a_file_become_plain_values(tmp_path):
    arrays = {"stride": np.array([1, 2]), "groups": np.array(3), "transposed": np.array(True)}
    found = npz_attributes(tmp_path, arrays)
    assert found == {"stride": (1, 2), "groups": 3, "transposed": True}
    assert {type(value) for value in found.values()} == {tuple, int, bool}


def test_advice_on_memory_is_about_what_was_given():
    assert "smaller batch" in memory_advice(npz=False)
    assert "give the sizes instead" in memory_advice(npz=True)


# Statuses


@pytest.mark.parametrize(
    ("raised", "status", "says"),
    [
        (KeyboardInterrupt(), 130, "ascendsim: interrupted\n"),
        (MemoryError(), 2, "ascendsim: not enough memory; take a smaller batch"),
        (DataError("mine: is wrong"), 2, "ascendsim: mine: is wrong\n"),
    ],
)
def test_a_run_that_ends_early_has_a_status(monkeypatch, capsys, raised, status, says):
    def end(_):
        raise raised

    monkeypatch.setattr("ascendsim.cli.run.read_request", end)
    assert main(["run"]) == status
    assert capsys.readouterr().err.startswith(says)


def test_an_interrupted_study_says_that_it_goes_on(monkeypatch, tmp_path, capsys):
    def end(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ascendsim.studies.hardware.gains.study_hardware", end)
    words = ["study", "hardware", "--product", "310P3", "--change", "clock.cube_mhz=1000"]
    assert main([*words, "--store", str(tmp_path / "s")]) == 130
    assert "the same command goes on from there\n" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_mistake():
    # `ascendsim profiles | head`: the pipe is closed before the table is printed.
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "ascendsim", "profiles"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


SMALL_CALL = ["--input", "1,16,6,6", "--weight", "16,16,3,3", "--padding", "1"]


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (["tiling", "s5b1_3x3", "--batch", "1", "--tilings", "3", "--write-plan", "plan.toml"], "plan.toml"),
        (["tiling", "s5b1_3x3", "--batch", "1", "--tilings", "3", "--export-top", "1"], "plans"),
        (["hardware", "s5b1_3x3", "--batch", "1", "--change", "cores.cube=12", "--out", "."], "study.html"),
        (["precision", *SMALL_CALL, "--out", "."], "study.html"),
    ],
)
def test_a_reader_that_leaves_early_loses_no_file(words, written, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    folder = ["--export", "plans"] if "--export-top" in words else []
    interval = [] if words[0] == "precision" else ["--no-interval"]
    command = [sys.executable, "-m", "ascendsim", "study", *words, *folder, *interval]
    # Unbuffered, so that the first words already meet the closed pipe.
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        [*command, "--store", "store"], stdout=writing, stderr=subprocess.PIPE, cwd=tmp_path, env=environment
    )
    os.close(writing)
    assert done.returncode == 141
    assert (tmp_path / written).exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no file that is always full here")
def test_output_without_room_is_told_in_one_line():
    command = [sys.executable, "-m", "ascendsim", "profiles"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "ascendsim: output cannot be written (No space left on device); make room, or write elsewhere\n"
    )


def test_a_slip_in_the_simulator_itself_is_not_hidden(monkeypatch):
    def fail(_):
        raise TypeError("ours")

    monkeypatch.setattr("ascendsim.cli.run.read_request", fail)
    with pytest.raises(TypeError, match="ours"):
        main(["run"])


def test_a_folder_of_somebody_else_is_told_before_the_run(monkeypatch, tmp_path):
    # For root every folder is writable, so that the system's answer is made up.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(DataError, match="cannot be written to; name another one"):
        make_folder(tmp_path / "report")


NO_FOLDER = "file is a file, no folder can be in it"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("run --workload resnet50 --out {}/file/report", NO_FOLDER),
        ("run --workload resnet50 --write-tiling {}/no/p.toml", "there is no folder"),
        ("run --workload resnet50 --write-tiling {}/folder.toml", "this is a folder; name a file"),
        ("study tiling --write-plan {}/no/p.toml", "there is no folder"),
        ("study tiling --export-top 2 --export {}/file", NO_FOLDER),
        (
            "study hardware --change clock.cube_mhz=x2 --table {}/file/t.csv",
            NO_FOLDER,
        ),
        (
            "study hardware --change clock.cube_mhz=x2 --out {}/file/study",
            NO_FOLDER,
        ),
        ("validate --out {}/file/reports", NO_FOLDER),
    ],
)
def test_a_place_that_nothing_can_be_written_to_is_told_before_the_work(
    monkeypatch, tmp_path, capsys, words, says
):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.toml").mkdir()

    def work(*_, **__):
        raise AssertionError("the work has begun")

    for name in ("cli.run.run_network", "studies.tuning.study.study_tiling", "cli.validate._rows"):
        monkeypatch.setattr(f"ascendsim.{name}", work)
    monkeypatch.setattr("ascendsim.studies.hardware.gains.study_hardware", work)
    asked = words.format(tmp_path).split()
    if asked[0] == "study":
        asked += ["conv1", "--product", "310P3", "--store", f"{tmp_path}/s"]
    assert main(asked) == 2
    assert says in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "s") == ["file", "folder.toml"]


def test_a_file_of_somebody_else_is_told_before_the_work(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(DataError, match="this file cannot be written"):
        require_file(tmp_path / "plan.toml")
    with pytest.raises(DataError, match="nothing can be written to"):
        require_folder(tmp_path / "report")


# Schedules


def test_a_schedule_reaches_the_call_and_the_report(capsys):
    words = ["run", "--input", "1,32,6,6", "--weight", "16,32,3,3", "--cycles-only", "--mask", "input"]
    assert main([*words, "--schedule", "dgrad_columns_outer"]) == 0
    assert "schedule dgrad_columns_outer" in " ".join(capsys.readouterr().out.split())
    assert main(words) == 0
    assert "schedule" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["dgrat"], "schedule is 'dgrat'; did you mean dgrad?"),
        (["wgrad"], "'wgrad', which makes grad_weight, but the call computes grad_input"),
        (["dgrad", "dgrad_columns_outer"], "both make grad_input: give one"),
    ],
)
def test_a_schedule_without_a_meaning_is_refused_in_words(names, message, capsys):
    words = ["run", "--input", "1,32,6,6", "--weight", "16,32,3,3", "--cycles-only", "--mask", "input"]
    assert main([*words, *(word for name in names for word in ("--schedule", name))]) == 2
    assert message in capsys.readouterr().err


# Networks


@pytest.mark.parametrize("words", [["--cycles-only", "s3b1_3x3"], []])
def test_an_order_of_execution_is_refused_where_nothing_is_executed(words, capsys):
    assert main(["run", *words, "--order", "arrival"]) == 2
    assert "--order is of gradients that are computed" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("bias", "mask"), [(True, "input,weight,bias"), (False, "input,weight")])
def test_the_gradient_that_training_leaves_out_is_added_by_a_mask_that_drops_none(bias, mask):
    # The first layer reads images; the second has a bias or not.
    first = Layer("first", (3, 8, 8), (8, 3, 3, 3), {}, 1, (False, True, False))
    second = Layer("second", (8, 6, 6), (8, 8, 3, 3), {}, 1, (True, True, bias))
    network = Network(Workload("two", "Two", "ours", bias, (first, second)), 1, None, ("first", "second"))
    assert _notes(network) == [
        f"The total has no grad_input of first, which training does not need; --mask {mask} adds it."
    ]
