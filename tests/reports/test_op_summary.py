"""Are the kernels of a call, and of a whole network, listed as a device's profiler lists them?"""

import csv
import io
import json
from collections import Counter
from functools import cache

import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.report.op_summary import op_summary
from ascendsim.validate.kernels import active_cycles
from ascendsim.validate.msprof import read_msprof
from ascendsim.validate.run import compare_rows
from ascendsim.validate.schema import MeasuredRow
from tests.helpers.toy_machines import PHASES, hand_kernel

# --- Are the kernels of a call listed as a device's profiler lists them, so that its readers read them?

# 96 channels of 32 bytes are 6 groups of float16 and 12 of float32; a kernel has nine taps.
PROBLEM = ConvProblem(input=(2, 128, 14, 14), weight=(96, 128, 3, 3), stride=2, padding=1)
SHAPES = {"input": (2, 128, 14, 14), "weight": (96, 128, 3, 3), "grad_output": (2, 96, 7, 7)}
# Product, format, cubeMathType, what validate calls the format in the cube.
READ = [
    ("910B", "float16", 0, "float16"),
    ("910B", "bfloat16", 0, "bfloat16"),
    ("910B", "float32", 1, "hf32"),
    ("910B", "float32", 0, "float32"),
    ("310P", "float16", 0, "float16"),
    ("910", "float16", 0, "float16"),
    # Its operators are called as those of volumes.
    ("950PR_9589", "float16", 0, "float16"),
    ("950PR_9589", "float32", 1, "hf32"),
]


@cache
def called(product, dtype="float16", cube_math_type=0, mask=(True, True, False)):
    # As `validate` starts a kernel of a profile: the kernel before has left the first input in L2.
    return estimate(
        PROBLEM,
        dtype=dtype,
        product=product,
        cube_math_type=cube_math_type,
        output_mask=mask,
        l2_start="handed",
    )


def listed(product, shapes=SHAPES, **more):
    text = op_summary(called(product, **more).kernels, load_profile(product), shapes)
    return {row["Op Name"]: row for row in csv.DictReader(io.StringIO(text))}


@pytest.mark.parametrize(("product", "dtype", "cube_math_type", "computed"), READ)
def test_validate_reads_what_is_written_and_finds_the_same(
    tmp_path, product, dtype, cube_math_type, computed
):
    profile, result = load_profile(product), called(product, dtype, cube_math_type)
    path = tmp_path / "op_summary.csv"
    path.write_text(op_summary(result.kernels, profile, SHAPES))
    rows = {row.id: row for row in read_msprof(path, profile.variant) if isinstance(row, MeasuredRow)}
    assert rows.keys() == {"grad_input", "grad_weight"}
    for row in rows.values():
        assert (row.input_shape, row.weight_shape) == (PROBLEM.input, PROBLEM.weight)
        assert (row.stride, row.compute_dtype) == ((2, 2), computed)
    kernels = {kernel.name: kernel for kernel in result.kernels}
    for case in compare_rows(list(rows.values())).cases:
        # Microseconds are written to three places.
        assert case.measured == pytest.approx(kernels[case.id].time_us, abs=6e-4)
        assert case.estimated == pytest.approx(kernels[case.id].time_us, abs=1e-9)
        assert case.counters
        for measured, estimated in case.counters.values():
            assert measured == pytest.approx(estimated, abs=6e-4)
        assert rows[case.id].blocks == kernels[case.id].kernel.blocks


@pytest.mark.parametrize("product", ["910B", "950PR_9589"])
@pytest.mark.parametrize("kernel", [3, 1])
def test_validate_reads_volumes_blocked_and_plain(tmp_path, product, kernel):
    # Two images: with one tap, those of one are matrix products on 910_95.
    problem = ConvProblem((2, 32, 6, 8, 8), (48, 32, kernel, kernel, kernel), padding=kernel // 2)
    result = estimate(problem, product=product, output_mask=(True, True, False), l2_start="handed")
    shapes = {"input": problem.input, "weight": problem.weight, "grad_output": problem.grad_output}
    path = tmp_path / "op_summary.csv"
    path.write_text(op_summary(result.kernels, load_profile(product), shapes))
    rows = [row for row in read_msprof(path, load_profile(product).variant) if isinstance(row, MeasuredRow)]
    assert [row.kernel for row in rows] == ["grad_input", "grad_weight"]
    for row in rows:
        assert (row.input_shape, row.weight_shape) == (problem.input, problem.weight)
        assert (row.stride, row.padding) == ((1, 1, 1), (kernel // 2,) * 6)
    times = {kernel.name: kernel.time_us for kernel in result.kernels}
    for case in compare_rows(rows).cases:
        assert case.estimated == pytest.approx(times[case.id], abs=1e-9)


def test_kernels_stand_in_the_order_in_which_they_run():
    result, rows = called("910B"), listed("910B")
    assert list(rows) == [kernel.name for kernel in result.kernels]
    begin = 0.0
    for kernel, row in zip(result.kernels, rows.values(), strict=True):
        assert float(row["Task Start Time(us)"]) == pytest.approx(begin, abs=6e-4)
        begin += kernel.time_us


def test_shapes_are_those_of_the_device():
    rows = listed("910B")
    # NCHW to 6 groups of 16 channels; weights are 8 groups x 9 taps, 96 / 16, 16, 16.
    assert rows["transdata_grad_output"]["Input Shapes"] == "2,96,7,7"
    assert rows["transdata_grad_output"]["Output Formats"] == "NC1HWC0"
    assert rows["transdata_grad_output"]["Output Shapes"] == "2,6,7,7,16"
    assert rows["grad_input"]["Input Shapes"] == "72,6,16,16;2,6,7,7,16"
    assert rows["grad_input"]["Input Formats"] == "FRACTAL_Z;NC1HWC0"
    assert rows["grad_input"]["Output Shapes"] == "2,8,14,14,16"
    # The gradient of the weights is added in float32, in groups of the operands all the same.
    assert rows["grad_weight"]["Output Shapes"] == "72,6,16,16"
    assert rows["grad_weight"]["Output Data Types"] == "FLOAT"
    # A device without changes of layout reads rows.
    assert listed("910_95")["grad_input"]["Input Formats"] == "NCHW;NCHW"


def test_every_kind_of_core_has_its_counters():
    split, newest, unified = listed("910B"), listed("910_95"), listed("310P")
    assert split["grad_input"]["Task Type"] == "AI_CORE"
    assert float(split["grad_input"]["aiv_time(us)"]) == 0
    assert split["transdata_weight"]["Task Type"] == "AI_VECTOR_CORE"
    assert float(split["transdata_weight"]["aiv_vec_time(us)"]) > 0
    # Parts of grad_weight are added by vector cores in the same kernel.
    assert newest["grad_weight"]["Task Type"] == "MIX_AIC"
    assert float(newest["grad_weight"]["aiv_mte2_time(us)"]) > 0
    assert "aic_vec_time(us)" not in split["grad_input"]
    assert float(unified["transdata_weight"]["aic_vec_time(us)"]) > 0


def test_counters_are_parts_of_the_core_time():
    for row in listed("910_95").values():
        for prefix, total in (("aic_", row["aicore_time(us)"]), ("aiv_", row["aiv_time(us)"])):
            times = {k: float(v) for k, v in row.items() if k.startswith(prefix) and k.endswith("_time(us)")}
            assert all(0 <= time <= float(total) for time in times.values())
            times.pop("aiv_time(us)", None)
            for name, time in times.items():
                ratio = float(row[name.replace("_time(us)", "_ratio")])
                assert ratio * float(total) == pytest.approx(time, abs=2e-3 * max(1, float(total)))


def test_the_bias_and_tensors_of_the_call_alone_have_shapes_too():
    rows = listed("910B", mask=(False, False, True))
    assert rows["grad_bias"]["OP Type"] == "ReduceSum"
    assert rows["grad_bias"]["Input Shapes"] == "2,96,7,7"
    # In one dimension our own shape says as much as any.
    narrow = dict.fromkeys(SHAPES, (2, 96, 7))
    assert listed("910B", narrow, mask=(False, False, True))["grad_bias"]["Input Formats"] == "ND"


def test_counters_of_a_kernel_on_cubes_are_those_of_its_cube_cores():
    # Two cube cores copy for 30 and 20 + 25 cycles, one of them multiplies for 20; a vector core adds after.
    assert active_cycles(hand_kernel().timeline) == {"MTE2": (30 + 45) / 2, "M": 20 / 2}
    # Without a cube they are those of the vector core.
    assert active_cycles(hand_kernel([PHASES[1]]).timeline) == {"V": 30}


# -------------------------------------------------------------------------------------------------------
# Does the report of a network list every kernel of a backward pass, as a device's profile of it would?
# -------------------------------------------------------------------------------------------------------

# Two layers of one shape each, of which the second is there three times.
NETWORK = """
title = "Mine"
source = "this test"
bias = false
layers = [
    { name = "first", input = [16, 12, 12], weight = [32, 16, 3, 3], padding = 1 },
    { name = "second", input = [32, 12, 12], weight = [32, 32, 1, 1], count = 3 },
]
"""
PRODUCTS = ("910B2", "950PR_9589")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The folder of a network's report on two products."""
    from ascendsim.cli import main

    folder = tmp_path_factory.mktemp("network")
    (folder / "mine.toml").write_text(NETWORK)
    words = ["run", "--network", str(folder / "mine.toml"), "--batch", "2", "--out", str(folder / "report")]
    assert main([*words, "--workers", "1", *(word for name in PRODUCTS for word in ("--product", name))]) == 0
    return folder / "report"


def lines(report, product):
    with (report / f"op_summary-{product}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(params=PRODUCTS)
def found(request, report):
    """The lines of a product, and what result.json says of it."""
    products = json.loads((report / "result.json").read_text())["products"]
    (entry,) = [product for product in products if product["variant"] == request.param]
    return lines(report, request.param), entry


def test_every_kernel_of_every_convolution_has_a_line(found):
    rows, product = found
    expected = Counter()
    for layer in product["layers"]:
        for kernel in layer["kernels"]:
            expected[f"{layer['name']}/{kernel['name']}"] += layer["count"]
    assert Counter(row["Op Name"] for row in rows) == expected
    assert {layer["count"] for layer in product["layers"]} == {1, 3}


def test_the_durations_add_up_to_the_network(found):
    rows, product = found
    # Three places are written of each.
    total = sum(float(row["Task Duration(us)"]) for row in rows)
    assert total == pytest.approx(product["time_us"], abs=5e-4 * len(rows))


def test_the_last_layer_comes_first_as_in_a_backward_pass(found):
    rows, _ = found
    layers = [row["Op Name"].partition("/")[0] for row in rows]
    assert layers == sorted(layers, reverse=True)
    assert [int(row["Task ID"]) for row in rows] == list(range(len(rows)))
    ends = [float(row["Task Start Time(us)"]) + float(row["Task Duration(us)"]) for row in rows]
    starts = [float(row["Task Start Time(us)"]) for row in rows]
    assert starts == pytest.approx([0.0, *ends[:-1]], abs=2e-3)


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_profile_is_read_as_one_of_a_device(report, product):
    rows = [
        row
        for row in read_msprof(report / f"op_summary-{product}.csv", product)
        if isinstance(row, MeasuredRow)
    ]
    # Equal kernels become one case: both gradients of the second layer, of the first that of its weights,
    # as training asks for no gradient of the images.
    assert {(row.id, row.input_shape, row.weight_shape) for row in rows} == {
        ("first/grad_weight", (2, 16, 12, 12), (32, 16, 3, 3)),
        ("second/grad_input", (2, 32, 12, 12), (32, 32, 1, 1)),
        ("second/grad_weight", (2, 32, 12, 12), (32, 32, 1, 1)),
    }


def test_the_page_names_the_file(report):
    text = (report / "report.md").read_text()
    assert all(f"(op_summary-{product}.csv)" in text for product in PRODUCTS)
    assert "op_summary-910B2.csv" in json.loads((report / "result.json").read_text())["files"]
