"""Are the tables of layers those of the networks, by published counts and models built from the papers?"""

from math import prod

import pytest

from ascendsim import ConvProblem
from ascendsim.workloads import Layer, Workload, load_workload, merged, toml_text, workload_names

# Distinct convolutions, convolutions, and multiply-adds of them forward, for one image.
COUNTS = {
    # 665,784,864 is the 666 M of V. Sze and others (2017), table II.
    "alexnet": (5, 5, 665_784_864),
    # The 15.3 G of the same table: 13 convolutions.
    "vgg16": (9, 13, 15_346_630_656),
    # 300,774,272 in all, the 300 M of the paper; the classifier has 1280 x 1000 of them.
    "mobilenet_v2": (30, 52, 300_774_272 - 1280 * 1000),
    # The paper counts no multiply-adds: these are of the sizes in its figure 2.
    "unet3d": (18, 18, 266_731_018_496),
    # The 16.4 GFLOP of the fused model at 640x640, two for a multiply-add.
    "yolov5s": (29, 60, 8_216_780_800),
    # 4,089,184,256 in all; see test_workloads.py.
    "resnet50": (23, 53, 4_087_136_256),
}


def weights(network):
    return sum(layer.count * prod(layer.weight) for layer in network.layers)


def biases(network):
    return sum(layer.count * out_channels(layer) for layer in network.layers if layer.mask[2])


def out_channels(layer):
    return ConvProblem(**layer.problem_options(1)).grad_output[1]


def test_every_network_has_its_counts_here():
    assert set(workload_names()) == set(COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_the_counts_are_the_published_ones(name):
    network = load_workload(name)
    macs = sum(layer.count * ConvProblem(**layer.problem_options(1)).macs for layer in network.layers)
    made = len(network.layers), sum(layer.count for layer in network.layers), macs
    assert made == COUNTS[name]


def test_parameters_of_alexnet():
    # 60,965,224 in all (the paper: 60 million); the weights of three linear layers, and a bias for each of
    # their outputs.
    linear = 9216 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000
    network = load_workload("alexnet")
    assert weights(network) + biases(network) == 60_965_224 - linear


def test_parameters_of_vgg16():
    # 138,357,544 in all (the paper: 138 million).
    linear = 25088 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000
    network = load_workload("vgg16")
    assert weights(network) + biases(network) == 138_357_544 - linear


def test_parameters_of_mobilenet_v2():
    # 3,504,872 in all (the paper: 3.4 million); a normalisation with two parameters a channel follows each
    # convolution, and the classifier has a bias.
    network = load_workload("mobilenet_v2")
    normalised = sum(layer.count * out_channels(layer) for layer in network.layers)
    assert weights(network) == 3_504_872 - 2 * normalised - (1280 * 1000 + 1000)
    assert biases(network) == 0


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
    normalised = sum(layer.count * out_channels(layer) for layer in network.layers if not layer.mask[2])
    assert weights(network) + biases(network) + 2 * normalised == 7_235_389
    assert weights(network) + biases(network) + normalised == 7_225_885
    assert round(2 * COUNTS["yolov5s"][2] / 1e9, 1) == 16.4


@pytest.mark.parametrize("name", sorted(set(COUNTS) - {"resnet50"}))
def test_a_model_built_from_the_paper_has_the_same_layers(name):
    pytest.importorskip("torch", reason="torch is not installed: no model can be built")
    from ascendsim.torch import read_network
    from tests.helpers.network_models import NETWORKS

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
