"""Does `study hardware` take what it is asked, refuse what is wrong before any work, and write its answer?"""

import json

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.studies.hardware.plans import enlargings
from ascendsim.workloads import load_workload
from tests.helpers.studied_hardware import (
    BOTH,
    CORES,
    MEMORY,
)

WORDS = ("study", "hardware", "s5b1_3x3", "--change", MEMORY, "--no-interval", "--jobs", "1")


def test_the_command_answers_first_and_computes_once(capsys, tmp_path):
    from ascendsim.cli import main

    store = ("--store", str(tmp_path / "store.sqlite"))
    printed = []
    for computed in (4, 0):
        assert main([*WORDS, *store]) == 0
        out, err = capsys.readouterr()
        assert out.replace("\n", " ").startswith("On 910B2, s5b1_3x3 of ResNet-50 v1.5, batch 1: ")
        assert f"{computed} points computed" in err
        printed.append(out)
    assert printed[0] == printed[1]


BAD_CHANGES = (
    ("cores.cube=many", "change of cores.cube: got 'many'; expected an integer"),
    ("cores.cube=16,many", "change of cores.cube: got 'many'"),
    ("cores.cube=x0", "got x0 of 24, which is 0"),
    ("bufers.L0C.capacity_bytes=x2", "did you mean buffers.L0C.capacity_bytes?"),
)


@pytest.mark.parametrize("study", ["hardware", "codesign"])
@pytest.mark.parametrize(("change", "told"), BAD_CHANGES)
def test_a_bad_change_is_told_before_any_work(study, change, told, refusal, tmp_path, monkeypatch):
    # A good one stands before it, and must not be timed.
    monkeypatch.setattr("ascendsim.studies.engine.run.Engine.answer", no_work)
    words = ["study", study, "s5b1_3x3", "--change", MEMORY, "--change", change, "--jobs", "1"]
    words += ["--cost", "cores.cube"] if study == "codesign" else ["--no-interval"]
    said = " ".join(refusal(*words, "--store", str(tmp_path / "s")).split())
    assert told in said
    assert "Error" not in said


def test_a_bad_change_of_the_second_product_is_told_before_the_first_is_timed(refusal, tmp_path, monkeypatch):
    monkeypatch.setattr("ascendsim.studies.engine.run.Engine.answer", no_work)
    # The 310P has no hf32.
    words = ["study", "hardware", "s5b1_3x3", "--change", "cube.hf32_mantissa_bits=10", "--jobs", "1"]
    said = refusal(*words, "--product", "910B", "--product", "310P", "--store", str(tmp_path / "s"))
    assert "no such figure of 310P3" in " ".join(said.split())


def no_work(*_):
    raise AssertionError("a point was asked for")


def test_a_table_that_cannot_be_written_is_told_before_the_work(refusal, monkeypatch, tmp_path):
    def nothing(*arguments):
        raise AssertionError(arguments)

    monkeypatch.setattr("ascendsim.studies.hardware.gains.study_hardware", nothing)
    words = ("study", "hardware", "s5b0_1x1b", "--change", "cores.cube=20", "--jobs", "1")
    (tmp_path / "folder.csv").mkdir()
    assert "this is a folder" in refusal(*words, "--table", str(tmp_path / "folder.csv"))
    # Nobody, the superuser neither, can make a folder there.
    assert "cannot be made" in refusal(*words, "--table", "/proc/none/table.csv")


def test_the_command_writes_page_and_table(answer, tmp_path):
    words = (
        "--store",
        str(tmp_path / "s"),
        "--out",
        str(tmp_path / "out"),
        "--table",
        str(tmp_path / "t.csv"),
    )
    assert "study.html" in answer(*WORDS, *words)
    text = (tmp_path / "out" / "study.html").read_text()
    assert "ascendsim study hardware s5b1_3x3" in text
    # Four calls (before and after under two starts; faster memory moves no plan) of nine kernels each (two
    # products, three changes of layout around each, a cast), under their headings. No zeros: the library cuts
    # the 512 x 4608 weights of a single image, not its 49 pixels.
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 1 + 4 * 9


def test_processes_have_one_name_and_its_alias():
    from ascendsim.cli.parser import parse

    words = ["study", "hardware", "--change", MEMORY]
    assert parse([*words, "--workers", "3"]).jobs == parse([*words, "--jobs", "3"]).jobs == 3
    assert parse(["run", "--jobs", "3"]).workers == parse(["run", "--workers", "3"]).workers == 3


def test_json_holds_the_answer(answer, tmp_path):
    made = json.loads(answer(*WORDS, "--json", "--store", str(tmp_path / "s")))
    assert [row["l2_start"] for row in made["gains"]] == ["warm", "handed"]
    assert made["gains"][0]["saved_share"] == 0


def test_every_figure_can_be_asked_for_at_once():
    from ascendsim.cli.parser import parse
    from ascendsim.cli.studies.hardware import _question

    asked = _question(
        parse(["study", "hardware", "--every", "--change", "cores.cube=9", "--product", "310P"]), "310P"
    )
    names = [change.name for change in enlargings(load_profile("310P"))]
    assert [change.name for change in asked.changes] == ["cores.cube=9", *names]


def test_a_bad_change_of_a_file_names_file_and_change(refusal, tmp_path, monkeypatch):
    monkeypatch.setattr("ascendsim.studies.engine.run.Engine.answer", no_work)
    path = tmp_path / "mine.toml"
    path.write_text('[[change]]\nname = "more"\nfigures = { "cores.cube" = "20 cores" }\n')
    said = refusal("study", "hardware", "s5b1_3x3", "--changes", str(path), "--store", str(tmp_path / "s"))
    assert f"{path}: more: change of cores.cube: got '20 cores'; expected an integer" in " ".join(
        said.split()
    )


def test_a_network_leaves_out_the_first_grad_input_unless_asked():
    from ascendsim.cli.parser import parse
    from ascendsim.cli.studies.output import layers_of

    _, layers = layers_of(parse(["study", "hardware", "--change", MEMORY]))
    assert layers[0].gradients == (False, True, False)
    assert {layer.gradients for layer in layers[1:]} == {BOTH}
    assert sum(layer.count for layer in layers) == 53
    _, layers = layers_of(parse(["study", "hardware", "--change", MEMORY, "--first-grad-input"]))
    assert layers[0].gradients == BOTH


def test_gradients_are_those_that_training_asks_for_unless_told():
    from ascendsim.cli.parser import parse
    from ascendsim.cli.studies.output import layers_of

    def masks(*words):
        _, layers = layers_of(parse(["study", "hardware", "--change", MEMORY, *words]))
        return [layer.gradients for layer in layers]

    # AlexNet's convolutions have a bias, and its first one reads images.
    assert masks("--network", "alexnet") == [(False, True, True)] + [(True, True, True)] * 4
    assert masks("--network", "alexnet", "--mask", "input,weight")[:2] == [(False, True, False), BOTH]
    # Of the first one alone, training asks for no grad_input, so that nothing of it is left.
    assert masks("--network", "alexnet", "--mask", "input") == [(True, False, False)] * 4
    assert masks("conv1", "--network", "alexnet") == [(True, True, True)]


def test_l2_may_be_handed_from_kernel_to_kernel(answer, tmp_path):
    words = (*WORDS, "--l2-start", "chained", "--json", "--store", str(tmp_path / "s"))
    (gain,) = json.loads(answer(*words))["gains"]
    assert gain["l2_start"] == "chained"
    layer = load_workload("resnet50").layer("s5b1_3x3")
    call = estimate(
        ConvProblem(**layer.problem_options(1)), product="910B", output_mask=BOTH, l2_start="chained"
    )
    assert gain["base_us"] == call.time_us


REFUSED = {
    (): "needs --change",
    ("--change", "cores.cub=x2"): "did you mean cores.cube",
    ("--change", CORES, "--change", CORES): "given twice",
    ("--change", CORES, "--time", "-1"): "seconds",
    ("--change", CORES, "--jbs", "2"): "did you mean --jobs",
}


@pytest.mark.parametrize("words", REFUSED)
def test_mistakes_are_told(refusal, tmp_path, words):
    assert REFUSED[words] in refusal("study", "hardware", *words, "--store", str(tmp_path / "s"))


def test_changes_of_which_none_can_be_timed_are_a_mistake(capsys, tmp_path):
    from ascendsim.cli import main

    words = ("study", "hardware", "s5b1_3x3", "--change", "buffers.L0A.capacity_bytes=64")
    assert main([*words, "--jobs", "1", "--store", str(tmp_path / "s")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "none of the changes can be timed" in " ".join(err.split())
