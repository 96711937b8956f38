"""May every study be asked of a stage, a pattern or several layers, counted as in the network?"""

import json

import pytest

from ascendsim.cli.studies.output import layers_of
from ascendsim.workloads import load_workload


class Words:
    """What the parser makes of the words of a study."""

    def __init__(self, layer, **options):
        words = {"workload": "resnet50", "batch": 2, "mask": None, "first_grad_input": False}
        self.__dict__.update(words | options, layer=layer)


def test_a_stage_counts_its_layers_as_the_network_does():
    title, layers = layers_of(Words("s5"))
    assert title == "6 layers (s5) of ResNet-50 v1.5, batch 2"
    rows = [row for row in load_workload("resnet50").layers if row.name.startswith("s5")]
    assert [(layer.name, layer.count) for layer in layers] == [(row.name, row.count) for row in rows]
    assert sum(layer.count for layer in layers) > len(layers)
    assert {layer.problem.input[0] for layer in layers} == {2}


def test_one_layer_counts_once_whichever_word_means_it():
    for word in ("s5b1_3x3", "s5b1_3*"):
        title, (layer,) = layers_of(Words(word))
        assert (title, layer.count) == ("s5b1_3x3 of ResNet-50 v1.5, batch 2", 1)


def test_the_first_layer_among_others_goes_without_grad_input_as_in_the_network():
    _, (first, other) = layers_of(Words("conv1,s2b0_3x3"))
    assert first.gradients[:2] == (False, True)
    assert other.gradients[:2] == (True, True)
    _, (first, _) = layers_of(Words("conv1,s2b0_3x3", first_grad_input=True))
    assert first.gradients[:2] == (True, True)


START = ("--l2-start", "warm")
OPTIONS = {
    "hardware": (*START, "--change", "cores.cube=20", "--no-interval"),
    "codesign": (*START, "--change", "cores.cube=20", "--cost", "cores.cube", "--tilings", "2"),
    "precision": ("--dtype", "float16", "--cube-math-type", "0", "--accumulation", "default"),
}


@pytest.mark.parametrize("study", OPTIONS)
def test_every_study_takes_several_layers(study, answer, tmp_path):
    words = ("study", study, "b14", "--network", "mobilenet_v2", *OPTIONS[study], "--jobs", "1", "--json")
    said = json.loads(answer(*words, "--store", str(tmp_path / "s")))
    assert "3 layers (b14) of MobileNet-v2, batch 1" in said["answer"]


def test_a_word_of_no_layer_is_told(refusal, tmp_path):
    words = ("study", "hardware", "s9", "--change", "cores.cube=20", "--store", str(tmp_path / "s"))
    assert "has no layer, stage or pattern 's9'" in " ".join(refusal(*words).split())
