"""Is a user's own profile read, in both of its spellings?"""

import csv
from dataclasses import replace

import pytest

from ascendsim.errors import DataError
from ascendsim.validate.compare import MeasuredCase
from ascendsim.validate.msprof import read_msprof
from ascendsim.validate.run import compare_rows
from ascendsim.validate.schema import MeasuredRow, Unusable

# kernel_details.csv of the framework's profiler, op_summary.csv of msprof.
DETAILS = {
    "name": "Name",
    "type": "Type",
    "us": "Duration(us)",
    "blocks": "Block Dim",
    "inputs": "Input Shapes",
    "types": "Input Data Types",
    "outputs": "Output Shapes",
}
SUMMARY = DETAILS | {"name": "Op Name", "type": "OP Type", "us": "Task Duration(us)", "blocks": "Block Num"}
SPELLINGS = pytest.mark.parametrize("columns", [DETAILS, SUMMARY], ids=["details", "summary"])
PRODUCT = {
    "name": "mm",
    "type": "MatMulV3",
    "us": "12.5",
    "blocks": "20",
    "inputs": '"512,256;384,256"',
    "types": "DT_BF16;DT_BF16",
    "outputs": '"512,384"',
    "aic_mac_time(us)": "4.5",
    "aic_mte2_time(us)": "9",
    "aic_mte1_time(us)": "N/A",
    "HF32 Eligible": "NO",
}
# 2 images, 32 channels, 12 x 10; 48 channels out; kernel 3 x 3.
IMAGE, RESULT, WEIGHT = "2,2,12,10,16", "2,3,12,10,16", "18,3,16,16"
INPUT = {"name": "dx", "type": "Conv2DBackpropInput", "us": "20", "types": "FLOAT16;FLOAT16"} | {
    "inputs": f"4;{WEIGHT};{RESULT}",
    "outputs": IMAGE,
}
FILTER = (
    INPUT
    | {"name": "dw", "type": "Conv2DBackpropFilter", "inputs": f"{IMAGE};4;{RESULT}"}
    | {"outputs": WEIGHT}
)


def plain(big, small, kernel):
    """Changes to INPUT that make it a square layer whose shapes are NCHW."""
    weight, result = f"48,32,{kernel},{kernel}", f"2,48,{small},{small}"
    return {"inputs": f"4;{weight};{result}", "outputs": f"2,32,{big},{big}"}


def write(folder, columns, *kernels):
    names = list(
        dict.fromkeys(columns.get(key, key) for key in {**PRODUCT, **{k: 0 for x in kernels for k in x}})
    )
    path = folder / "profile.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        table = csv.DictWriter(file, names)
        table.writeheader()
        for kernel in kernels:
            table.writerow({columns.get(key, key): value for key, value in kernel.items()})
    return path


def one(folder, kernel, columns=DETAILS):
    (found,) = read_msprof(write(folder, columns, kernel), "910B4")
    return found


@SPELLINGS
def test_a_matrix_product(tmp_path, columns):
    found = one(tmp_path, PRODUCT, columns)
    assert isinstance(found, MeasuredRow)
    assert (found.id, found.variant, found.kernel) == ("mm", "910B4", "matmul")
    assert (found.compute_dtype, found.measured, found.blocks) == ("bfloat16", 12.5, 20)
    assert (found.m, found.k, found.n) == (512, 256, 384)
    # b is (384, 256) where (256, 384) is meant.
    assert (found.transpose_a, found.transpose_b) == (False, True)
    assert found.counters == {"M": 4.5, "MTE2": 9.0}


def test_the_type_is_that_of_the_first_operand(tmp_path):
    # A bias, which comes last, is added in float32.
    biased = {"inputs": '"512,256;384,256;384"', "types": "DT_BF16;DT_BF16;FLOAT"}
    assert one(tmp_path, PRODUCT | biased).compute_dtype == "bfloat16"


@pytest.mark.parametrize(
    ("kind", "strategy"), [("MatMulV2", "search"), ("MatMulV3", "operator"), ("MatMul", "operator")]
)
def test_the_kernel_before_walks_no_basic_blocks(tmp_path, kind, strategy):
    assert one(tmp_path, PRODUCT | {"type": kind}).strategy == strategy


@SPELLINGS
@pytest.mark.parametrize("kernel", [INPUT, FILTER])
def test_a_gradient(tmp_path, columns, kernel):
    found = one(tmp_path, kernel, columns)
    assert (found.input_shape, found.weight_shape) == ((2, 32, 12, 10), (48, 32, 3, 3))
    assert (found.stride, found.padding) == ((1, 1), (1, 1, 1, 1))


@pytest.mark.parametrize(
    "kernel",
    [
        INPUT | {"inputs": "4;48,32,3,3;2,48,12,10", "outputs": "2,32,12,10"},
        FILTER | {"inputs": "2,32,12,10;4;2,48,12,10", "outputs": "48,32,3,3"},
        INPUT | {"type": "Conv2DBackpropInputV2"},
        FILTER | {"type": "Conv2DBackpropFilterV2"},
    ],
)
def test_plain_and_blocked_images_say_the_same(tmp_path, kernel):
    found = one(tmp_path, kernel)
    same = one(tmp_path, INPUT)
    assert (found.input_shape, found.weight_shape) == (same.input_shape, same.weight_shape)
    assert (found.stride, found.padding) == (same.stride, same.padding)


# The same layer as the operators of volumes are given it, of depth 1.
ON_910_95 = INPUT | {"type": "Conv3DBackpropInputV2", "inputs": "5;48,32,1,3,3;2,48,1,12,10"}
VOLUME = INPUT | {"type": "Conv3DBackpropInputV2", "inputs": "5;54,3,16,16;2,6,3,8,8,16"}


@pytest.mark.parametrize(
    "kernel",
    [
        ON_910_95 | {"outputs": "2,32,1,12,10"},
        FILTER
        | {"type": "Conv3DBackpropFilterV2", "inputs": "2,32,1,12,10;5;2,48,1,12,10"}
        | {"outputs": "48,32,1,3,3"},
        # As this simulator lists it.
        INPUT | {"type": "Conv3DBackpropInputV2", "inputs": "48,32,3,3;2,48,12,10", "outputs": "2,32,12,10"},
    ],
)
def test_images_of_910_95_are_read_from_the_operators_of_volumes(tmp_path, kernel):
    found = one(tmp_path, kernel)
    assert (found.input_shape, found.weight_shape) == ((2, 32, 12, 10), (48, 32, 3, 3))
    assert (found.stride, found.padding) == ((1, 1), (1, 1, 1, 1))


@pytest.mark.parametrize("outputs", ["2,6,2,8,8,16", "2,32,6,8,8"])
def test_a_volume_in_blocks_may_leave_as_rows(tmp_path, outputs):
    found = one(tmp_path, VOLUME | {"outputs": outputs})
    # 54 fractals are 2 groups of 16 channels under 3 x 3 x 3 taps.
    assert (found.input_shape, found.weight_shape) == ((2, 32, 6, 8, 8), (48, 32, 3, 3, 3))
    assert found.padding == (1,) * 6


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"inputs": "5;18,3,16,16;2,6,3,8,8,16", "outputs": "2,6,2,8,8,16"}, "no cubic kernel over 2 groups"),
        ({"inputs": "5;48,32,3,3,3;2,48,6,8,8", "outputs": "2,99,6,8,8"}, "without groups"),
        ({"inputs": "5;48,32,3,3,3;2,48,6", "outputs": "2,32,6,8,8"}, "not two images"),
        ({"outputs": "2,6,2,8,8,16", "Input Formats": "ND;DHWCN;NDHWC"}, "a tensor is stored as DHWCN"),
    ],
)
def test_a_volume_that_cannot_be_used_says_why(tmp_path, changes, reason):
    found = one(tmp_path, VOLUME | changes)
    assert isinstance(found, Unusable)
    assert reason in found.reason


def test_stride_and_padding_follow_from_the_sizes_and_are_told_as_inferred(tmp_path):
    halved = one(tmp_path, INPUT | {"inputs": f"4;{WEIGHT};2,3,6,5,16"})
    assert (halved.stride, halved.padding) == ((2, 2), (1, 1, 1, 1))
    assert "stride [2, 2] and padding [1, 1, 1, 1] inferred from the sizes" in halved.inferred


def test_the_inferred_window_is_that_of_the_estimate(tmp_path):
    """28 -> 26 under 3 x 3 is a layer without padding: as a table would tell it."""
    found = one(tmp_path, INPUT | plain(28, 26, 3))
    told = replace(found, id="told", stride=(1, 1), padding=(0, 0))
    mine, other = compare_rows([found, told]).cases
    assert mine.estimated == other.estimated


def test_a_batch_and_its_products(tmp_path):
    batched = PRODUCT | {"type": "BatchMatMulV2", "inputs": "3,64,32;3,32,48", "outputs": "3,64,48"}
    found = one(tmp_path, batched)
    assert (found.batch, found.m, found.k, found.n) == (3, 64, 32, 48)


def test_hf32_is_what_the_profile_says(tmp_path):
    single = PRODUCT | {"types": "FLOAT;FLOAT", "HF32 Eligible": "YES"}
    assert one(tmp_path, single).compute_dtype == "hf32"
    assert one(tmp_path, single | {"HF32 Eligible": "NO"}).compute_dtype == "float32"
    # Half precision is no HF32, whatever the profile says of it.
    assert one(tmp_path, PRODUCT | {"HF32 Eligible": "YES"}).compute_dtype == "bfloat16"


def test_equal_kernels_become_one_case_with_the_median(tmp_path):
    runs = [
        PRODUCT | {"us": us, "aic_mac_time(us)": mac} for us, mac in (("10", "4"), ("30", "6"), ("11", "5"))
    ]
    other = PRODUCT | {"name": "other", "inputs": "512,128;384,128"}
    found = read_msprof(write(tmp_path, DETAILS, *runs, other), "910B4")
    assert [row.id for row in found] == ["mm", "other"]
    assert (found[0].measured, found[0].counters["M"]) == (11, 5)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"type": "TransData"}, "neither a matrix product nor a gradient"),
        ({"us": ""}, "are missing"),
        ({"types": "INT64;INT64"}, "are missing"),
        ({"inputs": ""}, "are missing"),
        ({"outputs": "N/A"}, "are missing"),
        ({"inputs": "512,256"}, "not two matrices"),
        ({"inputs": "512,256;99,99"}, "do not give"),
        ({"outputs": "0,384"}, "do not give"),
        ({"us": "fast"}, "duration 'fast'"),
        ({"us": "nan"}, "duration 'nan'"),
        ({"us": "inf"}, "are missing"),
        ({"us": "-3"}, "are missing"),
        ({"inputs": "9" * 5000 + ",1;1,1"}, "shapes [(1, 1)] are not two matrices"),
        ({"inputs": "a,b;c,d"}, "are missing"),
    ],
)
def test_a_kernel_that_cannot_be_used_says_why(tmp_path, changes, reason):
    found = one(tmp_path, PRODUCT | changes)
    assert isinstance(found, Unusable)
    assert found.id == "mm"
    assert reason in found.reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"inputs": f"4;{RESULT}"}, "not two images"),
        ({"inputs": f"4;17,3,16,16;{RESULT}"}, "no square kernel"),
        ({"inputs": f"4;{WEIGHT};2,3,0,0,16"}, "is empty"),
        ({"inputs": "4;48,8,3,3;2,48,12,10", "outputs": "2,32,12,10"}, "without groups"),
        (plain(12, 17, 3), "no stride and padding lead from 12 to 17 with a kernel of 3"),
        (plain(4, 2, 3), "stride 1 with padding 0, stride 2 with padding 2"),
    ],
)
def test_a_gradient_that_cannot_be_used_says_why(tmp_path, changes, reason):
    found = one(tmp_path, INPUT | changes)
    assert isinstance(found, Unusable)
    assert reason in found.reason


def test_a_profile_lacking_a_column_is_refused(tmp_path):
    path = tmp_path / "profile.csv"
    path.write_text("Name,Type\nmm,MatMul\n")
    with pytest.raises(DataError, match=r"has no column Duration\(us\) or Task Duration\(us\)"):
        read_msprof(path, "910B4")


def test_a_short_line_is_named(tmp_path):
    path = tmp_path / "profile.csv"
    path.write_text(",".join(DETAILS.values()) + "\nmm,MatMul\n")
    (found,) = read_msprof(path, "910B4")
    assert isinstance(found, Unusable)


@pytest.mark.parametrize("name", ["none.csv", "."])
def test_a_profile_that_cannot_be_read_is_refused(tmp_path, name):
    with pytest.raises(DataError, match="cannot be read"):
        read_msprof(tmp_path / name, "910B4")


def test_what_is_read_can_be_compared(tmp_path):
    rows = read_msprof(write(tmp_path, SUMMARY, PRODUCT, INPUT, FILTER), "910B2")
    found = compare_rows(rows)
    assert found.unusable == ()
    assert [case.kind for case in found.cases] == ["matmul", "convolution", "convolution"]
    assert all(isinstance(case, MeasuredCase) and case.variant == "910B2" for case in found.cases)
    assert found.cases[0].bounds[0] == {"MTE2"}
    assert all("L2 taken to hold the first input alone" in case.note for case in found.cases)
    assert ["stride [1, 1] and padding" in case.note for case in found.cases] == [False, True, True]


def test_a_kernel_of_a_step_begins_with_what_the_kernel_before_has_left(tmp_path):
    # The same kernel that repeats finds all operands in L2, the one of a step brings the others from memory.
    row = one(tmp_path, PRODUCT)
    assert row.l2_start == "handed"
    step, again = compare_rows([row, replace(row, l2_start="warm")]).cases
    assert step.estimated > again.estimated


def test_a_gradient_of_a_step_finds_both_operands_as_its_call_has_just_laid_them_out(tmp_path):
    row = one(tmp_path, FILTER)
    assert row.l2_start == "handed"
    starts = ("handed", "warm", "cold")
    step, again, cold = compare_rows([replace(row, l2_start=start) for start in starts]).cases
    assert step.estimated == again.estimated < cold.estimated


@pytest.mark.parametrize(("text", "blocks"), [("20", 20), ("", 0), ("N/A", 0), ("\u00b2", 0)])
def test_blocks_are_a_number_or_not_told(tmp_path, text, blocks):
    assert one(tmp_path, PRODUCT | {"blocks": text}).blocks == blocks


@pytest.mark.parametrize("text", ["nan", "inf", "N/A", "", "-1"])
def test_a_counter_that_is_no_time_tells_nothing(tmp_path, text):
    assert "M" not in one(tmp_path, PRODUCT | {"aic_mac_time(us)": text}).counters
