"""Does `ascendsim study precision` answer first, say why, keep what it computed and write a page?"""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from ascendsim import ConvProblem, estimate
from ascendsim.cli import main
from ascendsim.cli.parser import parse
from ascendsim.cli.studies.precision import MULTIPLY_ADDS, cases_of
from ascendsim.errors import AscendSimError, ConfigError, UnsupportedError
from ascendsim.profile import load_profile
from ascendsim.studies.modes.choice import ConvCase, SyntheticTensors, part_of
from ascendsim.studies.modes.measure import Axes, PrecisionPoint, case_errors
from ascendsim.studies.modes.measure import answer as answer_of
from ascendsim.validate.run import tuning_noise
from ascendsim.workloads import load_workload
from tests.precision.test_modes import PROBLEM

SMALL = ("--input", "1,16,6,6", "--weight", "16,16,3,3", "--padding", "1", "--mask", "input,bias")
ONE_MODEL = ("--accumulation", "default")


@pytest.fixture
def ask(capsys, tmp_path):
    """Run a study with a store of its own, in this process, and return what it printed."""

    def run(*words):
        assert main(["study", "precision", *words, "--jobs", "1", "--store", str(tmp_path / "s.sqlite")]) == 0
        return capsys.readouterr()

    return run


def small_gradients(path, exponent):
    """Write tensors whose grad_output has one magnitude."""
    random = np.random.default_rng(0)
    shapes = {"grad_output": (2, 4, 5, 5), "input": (2, 4, 5, 5), "weight": (4, 4, 3, 3)}
    drawn = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    drawn["grad_output"] = np.sign(drawn["grad_output"]) * 2.0**exponent * 1.3
    np.savez(path, padding=1, **{name: x.astype(np.float32) for name, x in drawn.items()})


# The answer


def test_the_answer_comes_first_then_the_table(ask):
    # Of a product without changes of layout, which cost small calls more than the format of their tensors:
    # float16 has the more multiply-adds per cycle and half the bytes of float32.
    text = ask(*SMALL, *ONE_MODEL, "--product", "910_95", "--dtype", "float16,float32").out
    first = " ".join(text.split("\n\n")[0].split())
    assert first.startswith(
        "On 950PR_9589, a convolution 1x16x6x6 with 16x16x3x3: the fastest mode that passes"
    )
    assert "is float16 with cubeMathType 0/1/2/3" in first
    assert text.index("Modes:") > text.index("fastest")


def test_a_loss_scale_changes_the_verdict_and_the_answer_says_why(ask, tmp_path):
    # 1.3 x 2^-22 is subnormal in float16, 5.2 steps of 2^-24; times 4096 it is normal.
    small_gradients(tmp_path / "tiny.npz", -22)
    words = ("--npz", str(tmp_path / "tiny.npz"), "--dtype", "float16", "--loss-scale", "1,4096")
    made = json.loads(ask(*words, *ONE_MODEL, "--json").out)
    assert [(mode["loss_scale"], mode["passes"]) for mode in made["modes"]] == [(1, False), (4096, True)]
    assert "a loss scale of 4096" in made["answer"]
    (why,) = (line for line in made["reasons"] if " fails by " in line)
    assert "100.00% of the non-zero grad_output are subnormal in float16" in why
    assert "with a loss scale of 4096 it passes: 0.00% of grad_output are subnormal" in why


def test_a_range_that_the_cast_loses_is_the_casts(ask, tmp_path):
    # float32 holds the gradients; what cubeMathType 2 has the cube read does not.
    small_gradients(tmp_path / "tiny.npz", -22)
    words = ("--npz", str(tmp_path / "tiny.npz"), "--dtype", "float32", "--cube-math-type", "0,2")
    made = json.loads(ask(*words, "--loss-scale", "1,4096", *ONE_MODEL, "--json").out)
    assert [mode["passes"] for mode in made["modes"]] == [True, False, True, True]
    (why,) = (line for line in made["reasons"] if " fails by " in line)
    assert why.startswith("float32 with cubeMathType 2 (float16 in the cube) fails by norm and lost elements")
    assert "100.00% of the non-zero grad_output are subnormal in float16" in why


def test_too_large_a_loss_scale_overflows_and_the_answer_says_so(ask, tmp_path):
    small_gradients(tmp_path / "large.npz", 10)
    words = ("--npz", str(tmp_path / "large.npz"), "--dtype", "float16", "--loss-scale", "1,4096")
    made = json.loads(ask(*words, *ONE_MODEL, "--json").out)
    assert [mode["passes"] for mode in made["modes"]] == [True, False]
    assert any("100.00% of grad_output overflow in float16" in line for line in made["reasons"])
    # Storing made it, in all parts that follow there is no number.
    assert any("(error without end of" in line and "most of it storage" in line for line in made["reasons"])
    cast = ("--dtype", "float32", "--cube-math-type", "2", *words[:2], *words[4:], *ONE_MODEL, "--json")
    assert any("most of it cast" in line for line in json.loads(ask(*cast).out)["reasons"])
    assert "nan" in json.dumps(made["modes"][1]).lower()


def test_a_folder_of_recorded_tensors_is_one_study(ask, tmp_path):
    folder = tmp_path / "recorded"
    folder.mkdir()
    for name, exponent in (("a", 0), ("b", -22)):
        small_gradients(folder / f"{name}.npz", exponent)
    made = json.loads(ask("--npz", str(folder), "--dtype", "float16", *ONE_MODEL, "--json").out)
    assert [case["name"] for case in made["cases"]] == ["a", "b"]
    (mode,) = made["modes"]
    assert (mode["worst"]["case"], mode["passes"]) == ("b", False)
    assert "no mode passes" in made["answer"]


def test_the_layers_of_a_network_count_as_often_as_they_occur(ask, tmp_path):
    network = tmp_path / "net.toml"
    sizes = "input = [4, 5, 5], weight = [4, 4, 3, 3]"
    network.write_text(
        f'bias = false\nlayers = [{{ name = "a", {sizes} }}, {{ name = "b", {sizes}, count = 3 }}]'
    )
    words = ("--network", str(network), "--dtype", "float16", *ONE_MODEL, "--data", "normal,long-tailed")
    made = json.loads(ask(*words, "--json").out)
    names = ["a, normal", "b, normal", "a, long-tailed", "b, long-tailed"]
    assert [(case["name"], case["count"]) for case in made["cases"]] == list(
        zip(names, [1, 3, 1, 3], strict=True)
    )
    times = [case["modes"][0]["time_us"] for case in made["cases"]]
    assert made["modes"][0]["time_us"] == pytest.approx(2 * (times[0] + 3 * times[1]))
    # Training needs no gradient of the images.
    assert [len(case["modes"][0]["gradients"]) for case in made["cases"]] == [1, 2, 1, 2]


def test_what_was_computed_is_kept(ask):
    words = (*SMALL, *ONE_MODEL, "--dtype", "float16")
    first, second, other = ask(*words), ask(*words), ask(*words, "--seed", "1")
    assert first.out == second.out != other.out
    assert "1 point computed" in first.err
    assert "0 points computed" in second.err
    assert "1 point computed" in other.err


def test_codes_of_other_libraries_are_read(ask, tmp_path):
    path = tmp_path / "codes.npz"
    ones = {name: np.full((1, 1, 1, 1), 0x3F80, np.uint16) for name in ("grad_output", "input", "weight")}
    np.savez(path, **ones)
    words = ("--npz", str(path), "--codes", "bfloat16", "--dtype", "bfloat16", *ONE_MODEL, "--json")
    # 0x3F80 is 1 in bfloat16: all gradients are 1, exactly.
    made = json.loads(ask(*words).out)
    assert all(mode["most"] == 0 for mode in made["modes"] if not mode["refused"])


@pytest.mark.parametrize(
    ("words", "kind", "says"),
    [
        (("--dtype", "float17"), UnsupportedError, "float16"),
        (("--dtype", "hf32"), AscendSimError, "hf32"),
        (("--accumulation", "block:0:RNE"), ConfigError, "block"),
        (("--cube-math-type", "4"), ConfigError, "must be 0, 1, 2 or 3"),
        (("--loss-scale", "0"), ConfigError, "above 0"),
        (("--limit", "-1"), ConfigError, "above 0"),
        (("--factor", "0"), ConfigError, "above 0"),
        (("--seed", "-1"), ConfigError, "'-1' is not a whole number of 0 or more"),
        (("--data", "norml"), ConfigError, "normal or long-tailed"),
        (("--codes", "bfloat16"), ConfigError, "goes with --npz"),
        (("--loss-scale", "1,x"), ConfigError, "numbers with commas"),
        (("--trials", "0"), ConfigError, "with 1 of 1 cases left"),
    ],
)
def test_a_mistake_is_told_before_anything_is_computed(words, kind, says, tmp_path):
    from ascendsim.cli.parser import parse

    full = ["study", "precision", *SMALL, *words, "--jobs", "1", "--store", str(tmp_path / "s.sqlite")]

    def asked():
        arguments = parse(full)
        arguments.words = full
        arguments.command(arguments)

    with pytest.raises(kind, match=says):
        asked()


def test_some_of_the_cases_are_no_answer_and_the_next_run_goes_on(ask, capsys, tmp_path):
    # Two kinds of data are two cases, of which one trial computes one.
    words = (*SMALL, *ONE_MODEL, "--dtype", "float16", "--data", "normal,long-tailed")
    store = ("--jobs", "1", "--store", str(tmp_path / "s.sqlite"))
    assert main(["study", "precision", *words, *store, "--trials", "1"]) == 2
    told = capsys.readouterr()
    assert "with 1 of 2 cases left" in told.err
    assert told.out == ""
    assert ask(*words).err.startswith("1 point computed")


def test_data_and_files_exclude_each_other(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for words, says in (
        (("--npz", str(tmp_path), "--data", "normal"), "cannot be combined"),
        (("--npz", str(tmp_path / "empty")), "has no .npz file"),
    ):
        assert main(["study", "precision", *words]) == 2
        assert says in capsys.readouterr().err


# What is timed, and what is computed


def conv(tmp_path, head="", more=""):
    path = tmp_path / "net.toml"
    path.write_text(f'{head}\nlayers = [{{ name = "a", input = [16, 8, 8], weight = [16, 16, 3, 3]{more} }}]')
    return "--network", str(path), "--dtype", "float16", *ONE_MODEL


def test_the_batch_is_that_of_the_networks_file_or_one_that_training_has(ask, tmp_path):
    usual = json.loads(ask(*conv(tmp_path), "--json").out)
    own = json.loads(ask(*conv(tmp_path, "batch = 3"), "--json").out)
    asked = json.loads(ask(*conv(tmp_path, "batch = 3"), "--batch", "2", "--json").out)
    assert [made["cases"][0]["batch"] for made in (usual, own, asked)] == [16, 3, 2]
    assert ", batch 16: " in usual["answer"]
    assert "batch 16, a choice where the network names none (--batch)" in usual["reasons"][0]
    assert "batch 3, as the network's file says" in own["reasons"][0]
    assert asked["reasons"][0] == "Times are those of batch 2; errors are those of all its images."
    problem = ConvProblem((16, 16, 8, 8), (16, 16, 3, 3))
    timed = estimate(problem, "float16", 0, output_mask=(False, True, True), product="910B").time_us
    assert usual["modes"][0]["time_us"] == timed


def test_the_batch_of_a_video_is_not_that_of_its_frames(ask, tmp_path):
    for layer in ((), ("a",)):
        made = json.loads(ask(*layer, *conv(tmp_path, more=", images = 8"), "--batch", "2", "--json").out)
        assert made["reasons"][0] == "Times are those of batch 2; errors are those of all its images."
        assert made["cases"][0]["batch"] == 16


def test_images_that_are_cut_are_not_all_of_a_batch():
    words = ["study", "precision", "conv1_2", "--network", "vgg16", "--batch", "1", "--dtype", "float16"]
    _, told, (case,) = cases_of(parse(words))
    assert case.sample.input[0] == 1
    assert case.sample != case.problem
    assert "in 1 of 1 cases cut to fewer pixels" in told


def test_errors_are_those_of_as_many_images_as_take_some_seconds(ask, tmp_path):
    made = json.loads(ask(*conv(tmp_path), "--images", "2", "--json").out)
    assert (made["cases"][0]["batch"], made["cases"][0]["computed"]) == (16, [2, 16, 8, 8])
    assert made["reasons"][0].endswith("errors are those of 2 of its images (--images N takes N whole ones).")
    # The values are those of a call of 2 images; the time is not.
    small = json.loads(ask(*conv(tmp_path), "--batch", "2", "--json").out)
    assert made["modes"][0]["most"] == small["modes"][0]["most"]
    assert made["modes"][0]["time_us"] > small["modes"][0]["time_us"]
    layer = ConvProblem((16, 128, 28, 28), (128, 128, 3, 3), 1, 1)
    assert part_of(layer, 2 * MULTIPLY_ADDS).input == (2, 128, 28, 28)
    assert part_of(layer, 10**12) == layer
    # One image of 116 million multiply-adds is left whole for a budget of a quarter, and cut for less.
    assert part_of(layer, 29_000_000).input == (1, 128, 28, 28)
    assert part_of(layer, 28_000_000).input == (1, 128, 14, 28)
    assert part_of(layer, 1).input == (1, 128, 14, 14)
    assert part_of(layer, 1, 3).input == (3, 128, 28, 28)


@pytest.mark.parametrize("value", ["0", "true", "1.5", '"4"'])
def test_a_files_batch_is_a_positive_whole_number(value, tmp_path):
    with pytest.raises(ConfigError, match="`batch` must be a positive whole number"):
        load_workload(conv(tmp_path, f"batch = {value}")[1])


def test_every_command_takes_the_files_batch(capsys, tmp_path):
    words = conv(tmp_path, "batch = 3")[:2]
    assert main(["run", *words]) == 0
    assert "batch 3" in capsys.readouterr().out
    assert main(["run", *words, "--batch", "2"]) == 0
    assert "batch 2" in capsys.readouterr().out


def test_times_within_the_margin_are_told_as_one(ask):
    # At batch 1 launches are most of every call: 60 and 55 us.
    words = ("--input", "2,32,14,14", "--weight", "32,32,3,3", "--padding", "1", "--cube-math-type", "0")
    made = json.loads(ask(*words, "--dtype", "float16,float32", "--data", "long-tailed", "--json").out)
    assert "take the same time within the margin of" in made["answer"]
    assert made["answer"].endswith("float32 with cubeMathType 0 is the more accurate.")
    half, single = made["modes"]
    assert half["tied"]
    assert single["best"]
    least, most = sorted((half["time_us"], single["time_us"]))
    assert most <= (1 + made["margin"]) * least
    assert made["margin"] == tuning_noise().p90


def test_on_a_product_that_saturates_the_reason_is_the_largest_value(ask, tmp_path):
    # Results reach 92,000: they stay at 65,504, and no operand is subnormal.
    one = {name: np.full((1, 1, 1, 1), 303.0, np.float32) for name in ("grad_output", "input", "weight")}
    np.savez(tmp_path / "large.npz", **one)
    words = ("--npz", str(tmp_path / "large.npz"), "--dtype", "float16", "--loss-scale", "1,0.125")
    made = json.loads(ask(*words, *ONE_MODEL, "--product", "310P", "--mask", "input,weight", "--json").out)
    (why,) = (line for line in made["reasons"] if " fails by " in line)
    assert "saturation, 100.00% of grad_input stay at the largest value, 65504; with a loss scale" in why
    assert "subnormal" not in why
    decades = made["cases"][0]["modes"][0]["gradients"][0]["decades"]
    assert [(one["exponent"], one["beyond"]) for one in decades] == [(4, 1)]


@pytest.mark.parametrize(
    ("product", "dtype", "exponent", "size", "says"),
    [
        ("910B", "float16", 0, 2.0**-22 * 1.3, "underflow, 100.00% of the non-zero weight are subnormal"),
        (
            "910B",
            "float16",
            0,
            1e6,
            "overflow, 100.00% of weight overflow in float16 and 100.00% of grad_input",
        ),
        (
            "310P",
            "float32",
            -9,
            1e6,
            "saturation, 100.00% of weight stay at the largest value of float16, 65504",
        ),
    ],
)
def test_the_operand_that_decides_is_quoted(ask, tmp_path, product, dtype, exponent, size, says):
    small_gradients(tmp_path / "weights.npz", exponent)
    given = dict(np.load(tmp_path / "weights.npz"))
    given["weight"] = np.sign(given["weight"]) * np.float32(size)
    np.savez(tmp_path / "weights.npz", **given)
    words = ("--npz", str(tmp_path / "weights.npz"), "--dtype", dtype, "--mask", "input")
    made = json.loads(ask(*words, "--cube-math-type", "2", "--product", product, *ONE_MODEL, "--json").out)
    (why,) = (line for line in made["reasons"] if " fails by " in line)
    assert says in why
    assert "of grad_output" not in why
    assert "of the non-zero grad_output" not in why


def test_a_product_below_the_format_is_the_gradients_own(ask, tmp_path):
    one = {name: np.full((1, 1, 1, 1), 2.0**-13, np.float32) for name in ("grad_output", "input", "weight")}
    np.savez(tmp_path / "small.npz", **one)
    words = ("--npz", str(tmp_path / "small.npz"), "--dtype", "float16", "--mask", "input")
    made = json.loads(ask(*words, *ONE_MODEL, "--json").out)
    (why,) = (line for line in made["reasons"] if " fails by " in line)
    assert "underflow, 100.00% of grad_input are 0 or lose bits below the smallest normal value" in why


def test_the_limit_is_told_with_the_factor_that_was_given(ask):
    words = (*SMALL, *ONE_MODEL, "--dtype", "float16")
    for more, says in (
        (("--factor", "2.5"), "2.5 times (--factor)"),
        (("--limit", "0.02"), "2.0e-02 for all"),
    ):
        made = json.loads(ask(*words, *more, "--json").out)
        assert f"Of the error of the worst gradient: {says}" in made["definitions"]["limit"]
        assert says.split(" (")[0].split(" for")[0] in " ".join(ask(*words, *more).out.split())


def test_a_sweep_of_loss_scales_decides_by_lost_elements_as_well(ask, tmp_path):
    """A channel of gradients of 1e-7 has a bit or none in float16: the norm of all does not see it."""
    random = np.random.default_rng(0)
    shapes = {"grad_output": (1, 16, 6, 6), "input": (1, 16, 6, 6), "weight": (16, 16, 1, 1)}
    drawn = {name: random.standard_normal(shape) * 0.01 for name, shape in shapes.items()}
    drawn["grad_output"][:, 3] *= 1e-5
    np.savez(tmp_path / "small.npz", **{name: x.astype(np.float32) for name, x in drawn.items()})
    words = ("--npz", str(tmp_path / "small.npz"), "--dtype", "float16", "--loss-scale", "1,65536")
    text = ask(*words, *ONE_MODEL, "--mask", "weight")
    made = json.loads(ask(*words, *ONE_MODEL, "--mask", "weight", "--json").out)
    bad, good = made["modes"]
    assert (bad["missed"], bad["passes"], good["passes"]) == (["lost elements"], False, True)
    assert bad["most"] < bad["limit"]
    (why,) = (line for line in made["reasons"] if " fails by " in line)
    assert why.startswith("float16 with cubeMathType 0/1/2/3 fails by lost elements (")
    assert "Elements lost for want of range" in text.out


# Points


def point():
    axes = Axes(load_profile("910B"), ("float16",), (0,))
    return PrecisionPoint(
        axes,
        ConvCase("a", PROBLEM, (False, False, True), 1, "normal", SyntheticTensors(PROBLEM, "normal", 0)),
    )


def test_an_answer_survives_being_text():
    found = answer_of(point())
    read = case_errors(found.text)
    assert read.modes[0].gradients[0].total > 0
    assert read == case_errors(found.text)
    from ascendsim.studies.modes.measure import measure

    assert read == measure(point().axes, point().case)


def test_the_key_covers_what_the_answer_depends_on():
    usual = point()
    assert usual.key == point().key
    others = [
        *(
            replace(usual, axes=replace(usual.axes, **one))
            for one in (
                {"dtypes": ("bfloat16",)},
                {"cube_math_types": (1,)},
                {"models": ("seq:RNE",)},
                {"loss_scales": (2.0,)},
                {"rules": "hardware"},
                {"profile": load_profile("910B3")},
            )
        ),
        *(
            replace(usual, case=replace(usual.case, **one))
            for one in (
                {"data": "other"},
                {"count": 2},
                {"part": ConvProblem((1, 16, 5, 5), (16, 16, 3, 3), 1, 1)},
                {"mask": (True, True, True)},
                {"name": "b"},
            )
        ),
    ]
    assert len({usual.key, *(one.key for one in others)}) == 1 + len(others)


def test_a_model_that_the_product_refuses_is_a_reason_and_no_crash():
    usual = point()
    bad = replace(
        usual, axes=replace(usual.axes, models=("int32:wrap",)), case=replace(usual.case, mask=(True,) * 3)
    )
    assert answer_of(bad).reason.startswith("a: ")


# Files


def test_the_command_writes_page_and_table(ask, tmp_path):
    words = (*SMALL, *ONE_MODEL, "--dtype", "float16", "--out", str(tmp_path / "page"))
    text = ask(*words, "--table", str(tmp_path / "rows.csv")).out
    assert f"Page in {tmp_path / 'page' / 'study.html'}" in text
    page = (tmp_path / "page" / "study.html").read_text()
    assert "ascendsim study precision --input" in page
    with (tmp_path / "rows.csv").open(newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == ["grad_input", "grad_bias"]


def test_a_file_with_a_nan_is_refused_with_its_place(tmp_path, capsys):
    path = tmp_path / "nan.npz"
    ones = {name: np.ones((1, 1, 2, 2), np.float32) for name in ("grad_output", "input")}
    ones["input"][0, 0, 1, 0] = np.nan
    np.savez(path, weight=np.ones((1, 1, 1, 1), np.float32), **ones)
    assert main(["study", "precision", "--npz", str(path), "--store", str(tmp_path / "s")]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "nan.npz: input has 1 of 4 values that are NaN or infinite, the first at (0, 0, 1, 0)" in told
