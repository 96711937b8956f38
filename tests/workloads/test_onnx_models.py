"""Are the convolutions of an ONNX model read as they are, and what cannot be read refused?"""

import re
import sys

import pytest

from ascendsim import ConvProblem, layer_problem
from ascendsim.errors import ConfigError, install_hint
from ascendsim.workloads import load_workload, toml_text

onnx = pytest.importorskip("onnx", reason="onnx is not installed: its models cannot be read")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT


def save(path, nodes, weights, image=("batch", 3, 8, 8)):
    """Write a model of nodes over weights by name -> shape, whose input is "x"."""
    held = [onnx.numpy_helper.from_array(zeros(shape), name) for name, shape in weights.items()]
    given = [helper.make_tensor_value_info("x", FLOAT, image)]
    made = [helper.make_tensor_value_info(nodes[-1].output[0], FLOAT, None)]
    graph = helper.make_graph(nodes, "small", given, made, held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def zeros(shape):
    import numpy as np

    return np.zeros(shape, np.float32)


def node(kind, given, made, **attributes):
    return helper.make_node(kind, given, [made], name=made, **attributes)


def test_the_layers_of_a_model(tmp_path):
    nodes = [
        node("Mul", ["x", "half"], "scaled"),  # without weights: nobody needs its gradient
        node("Conv", ["scaled", "w0", "b0"], "first", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["first"], "r"),
        node("Conv", ["r", "w1"], "second", group=4, dilations=[2, 2], pads=[2, 1, 2, 3]),
        node("Conv", ["r", "w1"], "third", group=4, dilations=[2, 2], pads=[2, 1, 2, 3]),
        node("Add", ["second", "third"], "sum"),
        node("ConvTranspose", ["sum", "w2"], "up", strides=[2, 2], output_padding=[1, 1]),
    ]
    weights = {"half": (), "w0": (4, 3, 3, 3), "b0": (4,), "w1": (8, 1, 3, 3), "w2": (8, 2, 2, 2)}
    network = load_workload(save(tmp_path / "mine.onnx", nodes, weights))
    first, second, up = network.layers
    assert (network.name, network.title, network.bias) == ("mine", "small", True)
    # (8 + 2 - 3) // 2 + 1 = 4 rows; the second has 4 + 2 + 2 - 5 = 3 more after it, and as
    # many columns.
    assert (first.name, first.input, first.weight) == ("first", (3, 8, 8), (4, 3, 3, 3))
    assert (first.options, first.mask) == ({"stride": 2, "padding": 1}, (False, True, True))
    assert second.input == (4, 4, 4)
    # ONNX names what comes before on every axis, then what comes after; ours goes axis by axis.
    assert second.options == {"padding": (2, 2, 1, 3), "dilation": 2, "groups": 4}
    assert (second.count, second.mask) == (2, (True, True, False))
    assert (up.input, up.options) == ((8, 4, 4), {"stride": 2, "output_padding": 1, "transposed": True})


def test_the_command_reads_a_model(tmp_path, record):
    nodes = [node("Conv", ["x", "w"], "only")]
    path = save(tmp_path / "mine.onnx", nodes, {"w": (16, 3, 3, 3)})
    (layer,) = record("--network", str(path))["products"][0]["layers"]
    assert layer["name"] == "only"


@pytest.mark.parametrize(
    ("nodes", "image", "says"),
    [
        ([("Relu", ["x"], {})], (1, 3, 8, 8), "has no Conv"),
        ([("Conv", ["x", "w"], {})], (1, 3, "rows", 8), r"sizes are unknown \(input \(3, 0, 8\)"),
        (
            [("ConvTranspose", ["x", "w2"], {"strides": [4, 4], "auto_pad": "SAME_UPPER"})],
            (1, 3, 8, 8),
            "larger",
        ),
        ([("Conv", ["x", "w1"], {"pads": [0, 1]})], (1, 3, 8), "differ between both sides"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path, nodes, image, says):
    made = [node(kind, given, f"n{at}", **more) for at, (kind, given, more) in enumerate(nodes)]
    path = save(tmp_path / "bad.onnx", made, {"w": (4, 3, 3, 3), "w1": (4, 3, 3), "w2": (3, 4, 3, 3)}, image)
    with pytest.raises(ConfigError, match=says):
        load_workload(path)


def test_files_that_are_no_models_say_so(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_workload(tmp_path / "none.onnx")
    bad = tmp_path / "bad.onnx"
    bad.write_text("no model")
    with pytest.raises(ConfigError, match="is no ONNX model"):
        load_workload(bad)


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError, match=re.escape(install_hint("onnx"))):
        load_workload(tmp_path / "any.onnx")


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("how", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(("size", "taps", "stride", "dilation"), [(8, 3, 2, 1), (9, 4, 3, 1), (7, 3, 1, 2)])
def test_padding_left_to_the_operator_is_as_its_page_says(
    tmp_path, transposed, how, size, taps, stride, dilation
):
    # By ONNX's own inference of the output, and by where the page puts what is odd.
    kind, weight = ("ConvTranspose", (3, 4, taps, taps)) if transposed else ("Conv", (4, 3, taps, taps))
    more = {"strides": [stride] * 2, "dilations": [dilation] * 2, "auto_pad": how}
    path = save(
        tmp_path / "same.onnx", [node(kind, ["x", "w"], "y", **more)], {"w": weight}, (1, 3, size, size)
    )
    (layer,) = load_workload(path).layers
    made = ConvProblem(**layer.problem_options(1)).grad_output[2:]
    window = (taps - 1) * dilation + 1
    if how == "VALID":
        assert "padding" not in layer.options
        assert made == ((size - 1) * stride + window if transposed else (size - window) // stride + 1,) * 2
        return
    assert made == (size * stride if transposed else -(-size // stride),) * 2
    padding = layer.options.get("padding", 0)
    before, behind = padding[:2] if isinstance(padding, tuple) else (padding, padding)
    assert behind - before in ((0, 1) if how == "SAME_UPPER" else (0, -1))


def test_products_are_layers_and_the_rest_is_counted(tmp_path):
    nodes = [
        node("MatMul", ["x", "w0"], "q"),
        node("Add", ["q", "b0"], "qb"),
        node("Transpose", ["qb"], "t", perm=[0, 1, 3, 2]),
        node("MatMul", ["qb", "t"], "scores"),
        node("MatMul", ["w1", "scores"], "mixed"),
        node("Einsum", ["mixed", "w1"], "last", equation="bhmn,nm->bhm"),
        node("Flatten", ["scores"], "flat"),
        node("Gemm", ["flat", "w2", "b2"], "y", transB=1),
    ]
    weights = {"w0": (8, 6), "b0": (6,), "w1": (8, 8), "w2": (10, 192), "b2": (10,)}
    network = load_workload(save(tmp_path / "mine.onnx", nodes, weights, (5, 3, 8, 8)))
    found = [(one.kind, one.input, one.weight, one.mask) for one in network.layers]
    assert found == [
        ("linear", (3, 8, 8), (6, 8), (False, True, True)),
        ("matmul", (3, 8, 6), (3, 6, 8), (True, True, False)),
        ("linear", (192,), (10, 192), (True, True, True)),
    ]
    assert network.batch == 5
    assert [(one.kind, one.macs) for one in network.left_out] == [("MatMul", 3 * 8 * 8 * 8), ("Einsum", None)]


@pytest.mark.parametrize(
    ("image", "shape", "batch", "sizes"),
    [
        ((1, 196, 64), (4, 49, 64), None, (4, 49, 64)),
        ((1, 196, 64), (196, 64), None, (196, 64)),
        ((1, 196, 64), (1, 196, 64), None, (196, 64)),
        ((5, 196, 64), (-1, 49, 64), 5, (4, 49, 64)),
        ((5, 196, 64), (196, 5, 64), 5, None),  # no multiple of the batch
        (("batch", 196, 64), (-1, 49, 64), None, (4, 49, 64)),
        ((None, 196, 64), (-1, 64), None, (196, 64)),
        (("batch", 196, 64), (196, 64), None, None),  # of one image alone
    ],
)
def test_a_first_axis_that_is_not_the_batch_is_rows_of_each_image(tmp_path, image, shape, batch, sizes):
    nodes = [
        node("MatMul", ["x", "w0"], "z"),
        node("Reshape", ["z", "shape"], "r"),
        node("MatMul", ["r", "w"], "y"),
        node("Transpose", ["y"], "t", perm=[*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]),
        node("MatMul", ["y", "t"], "scores"),
    ]
    path = save(tmp_path / "mine.onnx", nodes, {"w0": (64, 64), "w": (64, 32)}, image)
    model = onnx.load(path)
    model.graph.initializer.append(helper.make_tensor("shape", onnx.TensorProto.INT64, [len(shape)], shape))
    onnx.save(model, path)
    network = load_workload(path)
    found = [(one.name, one.kind, one.input, one.weight) for one in network.layers]
    wanted = [("z", "linear", (196, 64), (64, 64)), ("y", "linear", sizes, (32, 64))]
    if sizes and len(shape) == 3:
        wanted.append(("scores", "matmul", (*sizes[:-1], 32), (*sizes[:-2], 32, sizes[-2])))
    assert found == wanted[: None if sizes else 1]
    assert network.batch == batch
    # All of it is a layer, or is counted.
    problems = [layer_problem(**one.problem_options(3)) for one in network.layers]
    if sizes:
        assert problems[1].macs == 3 * 196 * 64 * 32
    else:
        assert network.left_out[0].macs == (196 * 64 * 32 if batch else None)


@pytest.mark.parametrize(
    ("video", "shape", "batch", "images"),
    [
        (("batch", 8, 3, 6, 6), (-1, 3, 6, 6), None, 8),
        ((1, 8, 3, 6, 6), (8, 3, 6, 6), None, 8),
        ((5, 8, 3, 6, 6), (-1, 3, 6, 6), 5, 8),
        (("batch", 8, 3, 6, 6), (8, 3, 6, 6), None, None),  # of one video alone: whose batch is not known
    ],
)
def test_frames_that_join_the_batch_are_images_of_each_video(tmp_path, video, shape, batch, images):
    nodes = [
        node("Reshape", ["x", "frames"], "r"),
        node("Conv", ["r", "w"], "c"),
        node("Reshape", ["c", "videos"], "v"),
        node("MatMul", ["v", "m"], "y"),
    ]
    path = save(tmp_path / "mine.onnx", nodes, {"w": (4, 3, 3, 3), "m": (64, 2)}, video)
    model = onnx.load(path)
    for name, sizes in (("frames", shape), ("videos", (-1, 8, 64))):
        model.graph.initializer.append(helper.make_tensor(name, onnx.TensorProto.INT64, [len(sizes)], sizes))
    onnx.save(model, path)
    if images is None:
        with pytest.raises(ConfigError, match=r"left out: c \(Conv\)"):
            load_workload(path)
        return
    network = load_workload(path)
    convolution, product = network.layers
    assert (network.batch, network.left_out, convolution.images) == (batch, (), images)
    assert layer_problem(**convolution.problem_options(2)).input == (2 * images, 3, 6, 6)
    assert layer_problem(**product.problem_options(2)).input == (2, 8, 64)
    written = tmp_path / "mine.toml"
    written.write_text(toml_text(network))
    assert load_workload(written).layers == network.layers


def test_a_model_whose_products_are_all_left_out_names_them(tmp_path):
    path = save(tmp_path / "mine.onnx", [node("MatMul", ["w", "x"], "mixed")], {"w": (8, 8)}, (5, 8, 4))
    with pytest.raises(ConfigError, match=r"to be timed; left out: mixed \(MatMul\)"):
        load_workload(path)


def test_a_reshape_by_a_computed_batch_keeps_it(tmp_path):
    nodes = [
        node("Shape", ["x"], "sizes"),
        node("Slice", ["sizes", "from", "to"], "first"),
        node("Concat", ["first", "rest"], "shape", axis=0),
        node("Reshape", ["x", "shape"], "r"),
        node("MatMul", ["r", "w"], "y"),
    ]
    path = save(tmp_path / "mine.onnx", nodes, {"w": (8, 4)}, ("batch", 3, 16))
    model = onnx.load(path)
    for name, values in (("from", [0]), ("to", [1]), ("rest", [6, 8])):
        model.graph.initializer.append(
            helper.make_tensor(name, onnx.TensorProto.INT64, [len(values)], values)
        )
    onnx.save(model, path)
    network = load_workload(path)
    assert [(one.input, one.weight) for one in network.layers] == [((6, 8), (4, 8))]
    assert (network.batch, network.left_out) == (None, ())
