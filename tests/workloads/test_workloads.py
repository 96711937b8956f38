"""Are the networks the ones that the literature describes, and do bad files say why?"""

import json
from dataclasses import replace

import pytest

from ascendsim import ConvProblem
from ascendsim.errors import ConfigError
from ascendsim.workloads import load_workload, workload_names


@pytest.fixture
def resnet50():
    return load_workload("resnet50")


def forward_macs(layer):
    # Each output element of a convolution takes ci*kh*kw multiply-adds; output = (h + 2p - k) // s + 1.
    (_, height, width), (co, ci, kh, kw) = layer.input, layer.weight
    stride, padding = layer.options["stride"], layer.options["padding"]
    out_h = (height + 2 * padding - kh) // stride + 1
    out_w = (width + 2 * padding - kw) // stride + 1
    return co * ci * kh * kw * out_h * out_w


def test_resnet50_has_53_convolutions_of_23_shapes(resnet50):
    assert len(resnet50.layers) == 23
    assert sum(layer.count for layer in resnet50.layers) == 53


def test_resnet50_forward_multiply_adds(resnet50):
    # 4_089_184_256 are usually given for ResNet-50 v1.5; the classifier's 2048 x 1000 are no convolution.
    macs = sum(layer.count * forward_macs(layer) for layer in resnet50.layers)
    assert macs == 4_089_184_256 - 2048 * 1000


def test_resnet50_weights_count(resnet50):
    # torchvision's resnet50 has 25_557_032 parameters: 2_049_000 in the classifier (2048*1000 + 1000) and
    # 2 x 26_560 in batch normalisation; the rest are convolution weights.
    weights = 0
    for layer in resnet50.layers:
        co, ci, kh, kw = layer.weight
        weights += layer.count * co * ci * kh * kw
    assert weights == 25_557_032 - 2_049_000 - 2 * 26_560


def test_stride_two_sits_in_the_3x3_and_the_shortcut(resnet50):
    strided = [layer.name for layer in resnet50.layers if layer.options["stride"] == 2]
    assert strided == ["conv1"] + [f"s{stage}b0_{kind}" for stage in (3, 4, 5) for kind in ("3x3", "proj")]


def test_the_main_job_layer(resnet50):
    layer = resnet50.layer("s3b1_3x3")
    assert layer.problem_options(4) == {
        "input": (4, 128, 28, 28),
        "weight": (128, 128, 3, 3),
        "stride": 1,
        "padding": 1,
    }


def test_equal_to_the_published_table(resnet50, data_dir):
    rows = json.loads((data_dir / "resnet50_layers.json").read_text())["layers"]
    theirs = [
        (r["name"], (r["Cin"], r["H"], r["W"]), (r["Cout"], r["Cin"], r["kh"], r["kw"]), r["multiplicity"])
        for r in rows
    ]
    assert [(x.name, x.input, x.weight, x.count) for x in resnet50.layers] == theirs
    assert [forward_macs(layer) for layer in resnet50.layers] == [r["fwd_macs"] for r in rows]


def test_built_in_networks_load_and_name_their_source():
    for name in workload_names():
        assert load_workload(name).source


def test_near_misses_are_suggested(resnet50):
    with pytest.raises(ConfigError, match="s3b1_3x3"):
        resnet50.layer("s3b1_3x")
    with pytest.raises(ConfigError, match="no built-in workload 'resnet18'; there is alexnet, "):
        load_workload("resnet18")


def test_own_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('layers = [{ name = "a", input = [8, 5], weight = [4, 8, 3], padding = [1] }]')
    mine = load_workload(file)
    assert mine.name == "mine"
    assert mine.bias
    assert mine.layers[0].problem_options(2) == {"input": (2, 8, 5), "weight": (4, 8, 3), "padding": (1,)}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("layers = [", "not valid TOML"),
        ("layers = []", "at least one layer"),
        ("layres = []", "did you mean `layers`"),
        ("layers = [3]", r"layers\[0\]: must be a table"),
        ("layers = [{ input = [1], weight = [1] }]", "`name` must be a text"),
        ('layers = [{ name = "a", input = [1], weight = [0] }]', "`weight` must be a list of positive"),
        ('layers = [{ name = "a", input = [1], weight = [1], strid = 2 }]', "did you mean `stride`"),
        ('layers = [{ name = "a", input = [1], weight = [1], count = 0 }]', "`count` must be a positive"),
        (
            'layers = [{ name = "a", input = [1], weight = [1], mask = ["inputs"] }]',
            "`mask` must be a list of some of input, weight, bias, not",
        ),
        ('layers = [{ name = "a", input = [1], weight = [1], mask = [] }]', r"some of input, .*, not \[\]"),
        ('bias = 1\nlayers = [{ name = "a", input = [1], weight = [1] }]', "`bias` must be true or false"),
        (
            "layers = [" + '{ name = "a", input = [1], weight = [1] },' * 2 + "]",
            "names must differ",
        ),
    ],
)
def test_bad_files_say_where_and_why(tmp_path, text, says):
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_workload(file)


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_workload(tmp_path / "none.toml")


def test_options_and_counts_of_a_file_are_kept(tmp_path):
    file = tmp_path / "mine.toml"
    layer = "input = [8, 5, 5], weight = [4, 4, 3, 3], groups = 2, stride = [1, 2], count = 3"
    file.write_text(f'title = "Mine"\nbias = false\nlayers = [{{ name = "a", {layer} }}]')
    mine = load_workload(str(file))
    assert (mine.title, mine.bias, mine.source) == ("Mine", False, str(file))
    (layer,) = mine.layers
    assert layer.count == 3
    assert layer.options == {"groups": 2, "stride": (1, 2)}
    assert mine.layer("a") is layer


def test_a_layer_makes_a_problem_of_any_batch(resnet50):
    layer = resnet50.layer("s3b1_3x3")
    for batch in (1, 7):
        assert ConvProblem(**layer.problem_options(batch)).input[0] == batch


def test_a_file_of_ones_own_may_have_the_name_of_a_network_of_ours(tmp_path):
    file = tmp_path / "resnet50.toml"
    file.write_text('layers = [{ name = "only", input = [8, 5], weight = [4, 8, 3] }]')
    assert [layer.name for layer in load_workload(file).layers] == ["only"]


def test_a_name_far_from_all_layers_gets_the_list(resnet50):
    with pytest.raises(ConfigError, match="it has conv1, "):
        resnet50.layer("xyzzy")


def test_a_file_that_is_no_text_says_so(tmp_path):
    file = tmp_path / "bytes.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_workload(file)


# ---- Some of the layers


def names(network, words):
    return [layer.name for layer in load_workload(network).select(words)]


@pytest.mark.parametrize(
    ("network", "words", "chosen"),
    [
        ("resnet50", "s3b1_3x3", ["s3b1_3x3"]),
        # A stage, a block, a pattern; in the order of the network, each once.
        ("resnet50", "s2", ["s2b0_1x1a", "s2b0_3x3", "s2b0_1x1b", "s2b1_1x1a"]),
        ("resnet50", "s3b1", ["s3b1_1x1a", "s3b1_3x3"]),
        ("resnet50", "*_proj", ["s3b0_proj", "s4b0_proj", "s5b0_proj"]),
        ("resnet50", "s5b1_3x3, s3b1,s3b1_3x3", ["s3b1_1x1a", "s3b1_3x3", "s5b1_3x3"]),
        # "b1" is not "b10_project" or "b11_expand".
        ("mobilenet_v2", "b1", ["b1_expand", "b1_depthwise", "b1_project"]),
        ("yolov5s", "detect", ["detect.0", "detect.1", "detect.2"]),
        ("vgg16", "conv5", ["conv5_1"]),
    ],
)
def test_layers_are_chosen_by_name_stage_or_pattern(network, words, chosen):
    assert names(network, words) == chosen


def test_a_name_is_that_layer_alone_even_if_others_begin_with_it(resnet50):
    first, second = resnet50.layers[:2]
    made = replace(resnet50, layers=(replace(first, name="a"), replace(second, name="a.b")))
    assert [layer.name for layer in made.select("a")] == ["a"]
    assert [layer.name for layer in made.select("a.*")] == ["a.b"]
    # What some readers of models put into names is no pattern where it is a name.
    odd = replace(resnet50, layers=(replace(first, name="conv[0]"),))
    assert [layer.name for layer in odd.select("conv[0]")] == ["conv[0]"]


@pytest.mark.parametrize("words", ["s3b1_3x", "s", "s3,,s4", "conv2*", "S3"])
def test_words_that_mean_no_layer_are_told(resnet50, words):
    with pytest.raises(ConfigError, match=r"has no layer, stage or pattern"):
        resnet50.select(words)
