"""Are the networks those of the literature, by published counts and by models of their papers?"""

import json
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from ascendsim import (
    ConvProblem,
    convolution_backward,
    estimate_layer,
    layer_problem,
    matmul,
    product_backward,
)
from ascendsim.cli import main
from ascendsim.cli.parser import make_parser
from ascendsim.cli.run import COUNTED
from ascendsim.errors import ConfigError
from ascendsim.ops.problems.layers import KINDS
from ascendsim.workloads import Layer, Workload, load_workload, merged, toml_text, workload_names

# -------------------------------------------------------------------------------------------------------
# Are the tables of layers those of the networks, by published counts and models built from the papers?
# -------------------------------------------------------------------------------------------------------

# Distinct convolutions, convolutions, multiply-adds of them forward for one image, and those of other layers.
COUNTS = {
    # 665,784,864 is the 666 M of V. Sze and others (2017), table II.
    "alexnet": (5, 5, 665_784_864, 58_621_952),
    # The 15.3 G of the same table: 13 convolutions.
    "vgg16": (9, 13, 15_346_630_656, 123_633_664),
    # 300,774,272 in all, the 300 M of the paper; the classifier has 1280 x 1000 of them.
    "mobilenet_v2": (30, 52, 300_774_272 - 1280 * 1000, 1280 * 1000),
    # The paper counts no multiply-adds: these are of the sizes in its figure 2.
    "unet3d": (18, 18, 266_731_018_496, 0),
    # The 16.4 GFLOP of the fused model at 640x640, two for a multiply-add.
    "yolov5s": (29, 60, 8_216_780_800, 0),
    # 4,089,184,256 in all; see test_networks.py.
    "resnet50": (23, 53, 4_087_136_256, 2048 * 1000),
}


def weights(network):
    return sum(layer.count * prod(layer.weight) for layer in network.layers)


def biases(network):
    return sum(layer.count * layer.weight[0] for layer in network.layers if layer.mask[2])


def test_every_network_has_its_counts_here():
    assert set(workload_names()) == set(COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_the_counts_are_the_published_ones(name):
    network = load_workload(name)
    own = network.convolutions

    def macs(layers):
        return sum(layer.count * layer_problem(**layer.problem_options(1)).macs for layer in layers)

    made = len(own), sum(layer.count for layer in own), macs(own), macs(network.layers) - macs(own)
    assert made == COUNTS[name]
    assert not network.left_out


def test_parameters_of_alexnet():
    # The paper: 60 million.
    network = load_workload("alexnet")
    assert weights(network) + biases(network) == 60_965_224


def test_parameters_of_vgg16():
    # The paper: 138 million.
    network = load_workload("vgg16")
    assert weights(network) + biases(network) == 138_357_544


def test_parameters_of_mobilenet_v2():
    # 3,504,872 in all (the paper: 3.4 million); a normalisation with two parameters a channel follows each
    # convolution, and the classifier alone has a bias.
    network = load_workload("mobilenet_v2")
    normalised = sum(layer.count * layer.weight[0] for layer in network.convolutions)
    assert weights(network) == 3_504_872 - 2 * normalised - 1000
    assert biases(network) == 1000


def test_parameters_of_the_3d_u_net():
    # Section 3 of the paper: 19,069,955; it counts no normalisation.
    network = load_workload("unet3d")
    assert weights(network) + biases(network) == 19_069_955


def test_the_3d_u_net_makes_44x44x28_voxels():
    # Figure 2, with the axes in the order of depth, height, width.
    last = load_workload("unet3d").layer("last")
    assert ConvProblem(**last.problem_options(1)).grad_output == (1, 3, 28, 44, 44)


def test_parameters_and_operations_of_yolov5s():
    # A normalisation follows each convolution but the three of the detection, which have a bias: two
    # parameters a channel, 7,235,389 in all; fused into the convolutions, one (a bias), 7,225,885 in all and
    # 16.4 GFLOP, two of them a multiply-add.
    network = load_workload("yolov5s")
    normalised = sum(layer.count * layer.weight[0] for layer in network.layers if not layer.mask[2])
    assert weights(network) + biases(network) + 2 * normalised == 7_235_389
    assert weights(network) + biases(network) + normalised == 7_225_885
    assert round(2 * COUNTS["yolov5s"][2] / 1e9, 1) == 16.4


@pytest.mark.parametrize("name", sorted(set(COUNTS) - {"resnet50"}))
def test_a_model_built_from_the_paper_has_the_same_layers(name):
    pytest.importorskip("torch", reason="torch is not installed: no model can be built")
    from ascendsim.torch import read_network
    from tests.helpers.torch_samples import NETWORKS

    kind, image = NETWORKS[name]
    model = kind()
    assert read_network(model, image).layers == load_workload(name).layers
    assert all(value.device.type == "cpu" for value in model.parameters())  # it stays as it is


@pytest.mark.parametrize("name", COUNTS)
def test_training_asks_for_all_but_the_gradient_of_the_images(name):
    first, *others = load_workload(name).layers
    assert not first.mask[0]
    assert all(layer.mask[0] for layer in others)
    assert all(layer.mask[1] for layer in (first, *others))


# Masks and files


def one(**more):
    return {"name": "a", "input": (1, 8, 8), "weight": (1, 1, 3, 3), "options": {}, "count": 1, **more}


def from_text(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return load_workload(path)


def test_a_mask_is_that_of_training_unless_the_file_has_one(tmp_path):
    sizes = "input = [1, 8, 8], weight = [1, 1, 3, 3]"
    rows = (
        f'{{ name = "a", {sizes} }}, {{ name = "b", {sizes} }}, {{ name = "c", {sizes}, bias = true }}, '
        f'{{ name = "d", {sizes}, mask = ["weight", "bias"] }}'
    )
    masks = [layer.mask for layer in from_text(tmp_path, f"bias = false\nlayers = [{rows}]").layers]
    assert masks == [(False, True, False), (True, True, False), (True, True, True), (False, True, True)]
    # Were there two of the first layer, one of them would not read the images.
    twice = from_text(tmp_path, f'layers = [{{ name = "a", {sizes}, count = 2 }}]')
    assert twice.layers[0].mask == (True, True, True)


def test_layers_that_differ_by_name_alone_are_counted():
    layers = [Layer(**one()), Layer(**one(name="b", count=2)), Layer(**one(mask=(False, True, True)))]
    assert merged(layers) == (Layer(**one(count=3)), layers[2])


def test_a_network_is_written_and_read_back(tmp_path):
    options = {"stride": 2, "padding": (0, 1, 0, 1), "transposed": True}
    layers = (Layer(**one(options=options, mask=(True, False, True))), Layer(**one(name='b "2"', count=3)))
    network = Workload("mine", "Mine", 'a "paper", Cicek and others', True, layers)
    assert from_text(tmp_path, toml_text(network)) == network


@pytest.mark.parametrize("name", COUNTS)
def test_every_network_survives_being_written(tmp_path, name):
    network = load_workload(name)
    assert from_text(tmp_path, toml_text(network)) == network


# The command


def small(tmp_path):
    path = tmp_path / "small.toml"
    sizes = "input = [16, 8, 8], weight = [16, 16, 3, 3]"
    path.write_text(f'bias = false\nlayers = [{{ name = "a", {sizes} }}, {{ name = "b", {sizes} }}]')
    return str(path)


def test_the_total_of_a_network_is_that_of_training(record, tmp_path):
    made = record("--network", small(tmp_path))
    (product,) = made["products"]
    kernels = [[kernel["name"] for kernel in layer["kernels"]] for layer in product["layers"]]
    assert "grad_input" not in kernels[0]
    assert "grad_input" in kernels[1]
    assert made["problem"]["gradients"] == "as training asks"
    assert any("has no grad_input of a, which" in note for note in product["notes"])


def test_a_mask_of_ones_own_is_for_every_layer(record, tmp_path):
    # The 950 changes no layout, so that grad_weight runs the same kernels with grad_input and alone.
    words = ("--network", small(tmp_path), "--product", "910_95")
    made = record(*words, "--mask", "input,weight")
    (product,) = made["products"]
    assert product["layers"][0]["cycles"] == product["layers"][1]["cycles"]
    assert made["problem"]["gradients"] == "grad_input grad_weight"
    assert any("includes grad_input of a, which" in note for note in product["notes"])
    only = record(*words, "--mask", "weight")["products"][0]
    assert not any("grad_input of a" in note for note in only["notes"])
    assert only["layers"][0]["kernels"] == product["layers"][0]["kernels"][1:]


def test_the_layer_that_reads_the_images_can_be_run_alone(record, tmp_path):
    made = record("a", "--network", small(tmp_path), "--cycles-only")
    assert made["problem"]["gradients"] == "grad_input grad_weight"


def test_the_older_word_means_the_same(record, tmp_path):
    path = small(tmp_path)
    assert record("--workload", path)["products"] == record("--network", path)["products"]


# --- Are the networks the ones that the literature describes, and do bad files say why? ----------------


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


def test_resnet50_forward_multiply_adds(resnet50):
    # 4_089_184_256 are usually given for ResNet-50 v1.5; the classifier's 2048 x 1000 are no convolution.
    macs = sum(layer.count * forward_macs(layer) for layer in resnet50.convolutions)
    assert macs == 4_089_184_256 - 2048 * 1000


def test_resnet50_weights_count(resnet50):
    # torchvision's resnet50 has 25_557_032 parameters, 2 x 26_560 of them in batch normalisation.
    assert weights(resnet50) + biases(resnet50) == 25_557_032 - 2 * 26_560


def test_stride_two_sits_in_the_3x3_and_the_shortcut(resnet50):
    strided = [layer.name for layer in resnet50.convolutions if layer.options["stride"] == 2]
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
    assert [(x.name, x.input, x.weight, x.count) for x in resnet50.convolutions] == theirs
    assert [forward_macs(layer) for layer in resnet50.convolutions] == [r["fwd_macs"] for r in rows]


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
        (
            'layers = [{ name = "a", kind = "linear", input = [1], weight = [1, 1], images = 2 }]',
            "`images` is of a convolution; a linear has them in `input`",
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


# Linear layers, products of activations, conv_tbc, and what is left out


def test_a_file_names_layers_of_every_kind_and_comes_back_as_it_was(tmp_path):
    text = """
    left_out = [{ name = "lstm", kind = "LSTM", count = 2 }, { name = "fc", kind = "linear", macs = 3 }]
    layers = [
        { name = "a", kind = "linear", input = [5, 8], weight = [4, 8] },
        { name = "b", kind = "matmul", input = [2, 5, 4], weight = [2, 4, 5] },
        { name = "c", kind = "conv_tbc", input = [9, 4], weight = [3, 4, 6], padding = 1 },
    ]"""
    made = from_text(tmp_path, text)
    a, b, c = (layer_problem(**layer.problem_options(7)) for layer in made.layers)
    assert (a.grad_output, b.grad_output, c.grad_output) == ((7, 5, 4), (7, 2, 5, 5), (9, 7, 6))
    # Each element of a result takes one multiply-add for each of k; of conv_tbc one for each channel and tap.
    assert (a.macs, b.macs, c.macs) == (7 * 5 * 4 * 8, 7 * 2 * 25 * 4, 9 * 7 * 6 * 4 * 3)
    assert [layer.mask for layer in made.layers] == [(False, True, True), (True, True, False), (True,) * 3]
    assert from_text(tmp_path, toml_text(made)) == made


def test_built_in_networks_have_their_published_counts_with_their_linear_layers():
    # V. Sze and others (2017), table II: AlexNet 724 M and VGG-16 15.5 G, fully connected layers included.
    # Of MobileNetV2 every one is counted.
    known = {"alexnet": (724 * 10**6, -6), "vgg16": (155 * 10**8, -8), "mobilenet_v2": (300_774_272, 0)}
    for name, (published, digits) in known.items():
        assert round(sum(COUNTS[name][2:]), digits) == published


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_gradients_of_a_product_are_those_that_matmul_makes(linear, dtype):
    random = np.random.default_rng(3)
    shapes = ((3, 5, 24), (3, 5, 40), (24, 40)) if linear else ((3, 17, 24), (3, 17, 40), (3, 40, 24))
    g, a, b = (random.standard_normal(shape).astype(dtype) for shape in shapes)
    made = product_backward(g, a, b, linear, product="910B2")
    if linear:
        rows, inputs = g.reshape(15, 24), a.reshape(15, 40)
        grad_input, grad_weight = (
            matmul(rows, b, product="910B2"),
            matmul(rows, inputs, transpose_a=True, product="910B2"),
        )
        # That of a convolution whose pixels are the rows.
        asked = (24,), 1, 0, 1, False, 0, 1, (False, False, True), 0
        empty = (np.zeros((15, 1, 1), dtype), np.zeros((24, 1, 1), dtype))
        sums = convolution_backward(rows.reshape(15, 24, 1), *empty, *asked, product="910B2")
        assert made.grad_bias.tobytes() == sums.grad_bias.tobytes()
    else:
        grad_input = matmul(g, b, transpose_b=True, product="910B2")
        grad_weight = matmul(a, g, transpose_a=True, product="910B2")
        assert made.grad_bias is None
    assert made.grad_input.tobytes() == grad_input.output.tobytes()
    assert made.grad_weight.tobytes() == grad_weight.output.tobytes()
    problem = layer_problem(kind="linear" if linear else "matmul", input=a.shape, weight=b.shape)
    assert estimate_layer(problem, dtype, product="910B2").cycles == made.cycles


def test_what_is_left_out_stands_at_the_top_of_every_writer(tmp_path, capsys):
    path = tmp_path / "mine.toml"
    path.write_text(
        """left_out = [{ name = "fc", kind = "linear", macs = 960 }]
        layers = [{ name = "a", kind = "linear", input = [8], weight = [4, 8], count = 3 },
                  { name = "t", kind = "conv_tbc", input = [9, 16], weight = [1, 16, 16] }]"""
    )
    # 960 of 960 + 3 * 32 + 9 * 256 multiply-adds.
    said = "Not in these times: 1 of 5 layers, 28.6 % of the multiply-adds: fc (linear)."
    assert main(["run", "--network", str(path), "--out", str(tmp_path / "out")]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    assert said in (tmp_path / "out" / "report.md").read_text()
    assert said in (tmp_path / "out" / "report.html").read_text()
    written = json.loads((tmp_path / "out" / "result.json").read_text())["left_out"]
    assert (written["share"], written["layers"][0]["name"]) == (960 / 3360, "fc")
    assert "left out: fc" in (tmp_path / "out" / "op_summary.csv").read_text().splitlines()[1]


def test_a_model_of_torch_gives_products_and_their_attention():
    torch = pytest.importorskip("torch", reason="torch is not installed: no model can be built")
    from ascendsim.torch import read_network

    inner = torch.nn.TransformerEncoderLayer(4, 2, 16, batch_first=True)
    made = read_network(torch.nn.Sequential(torch.nn.Linear(8, 4), inner), (5, 8))
    found = [(one.kind, one.input, one.weight, one.mask) for one in made.layers]
    every = (True, True, True)
    assert found == [
        ("linear", (5, 8), (4, 8), (False, True, True)),
        ("linear", (5, 4), (12, 4), every),
        ("matmul", (2, 5, 2), (2, 2, 5), (True, True, False)),
        ("matmul", (2, 5, 5), (2, 5, 2), (True, True, False)),
        ("linear", (5, 4), (4, 4), every),
        ("linear", (5, 4), (16, 4), every),
        ("linear", (5, 16), (4, 16), every),
    ]
    assert not made.left_out


def test_a_model_of_torch_has_a_bias_where_one_is_added_to_the_product():
    torch = pytest.importorskip("torch", reason="torch is not installed: no model can be built")
    from ascendsim.torch import read_network

    class Gate(torch.nn.Module):
        def __init__(self, between, bias=False):
            super().__init__()
            self.layer, self.between = torch.nn.Linear(8, 8, bias=bias), between
            self.other = torch.nn.Linear(8, 8, bias=False)
            self.scale = torch.nn.Parameter(torch.zeros(8))

        def forward(self, x):
            made, other = self.layer(x), self.other(x)
            return self.between(made) + self.scale + other

    def biases(*given, image=(5, 8)):
        return {one.name: one.mask[2] for one in read_network(Gate(*given), image).layers}

    # The sum of a product and a parameter is one with a bias, whatever else came between.
    assert biases(lambda made: made) == {"layer": True, "other": False}
    assert biases(lambda made: made.view(-1, 8)[:, :], image=(8,)) == {"layer": True, "other": False}
    for between in (torch.relu, torch.relu_, lambda made: made * 2):
        assert sum(biases(between).values()) == 0
    assert biases(torch.relu, True) == {"layer": True, "other": False}


def test_a_model_of_torch_whose_products_are_all_left_out_names_them():
    torch = pytest.importorskip("torch", reason="torch is not installed: no model can be built")
    from ascendsim.torch import read_network

    class Half(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.dense = torch.nn.Linear(8, 4)

        def forward(self, x):
            return self.dense(x[:1, 0])

    with pytest.raises(ConfigError, match=r"that can be timed; left out: dense \(addmm\)"):
        read_network(Half(), (5, 8))


def test_every_kind_of_layer_can_be_asked_for_and_is_counted():
    run = make_parser()[1]["run"]
    (kind,) = [action for action in run._actions if action.dest == "kind"]
    assert tuple(kind.choices) == KINDS
    assert set(COUNTED) == set(KINDS)
