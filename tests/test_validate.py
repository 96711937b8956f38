"""Are measured cases read as their sources mean them, and compared by the right statistics?"""

import csv
import json
import math
from dataclasses import replace

import pytest

from ascendsim import MatmulProblem, estimate_matmul
from ascendsim.errors import AscendSimError, DataError
from ascendsim.profile import load_profile
from ascendsim.timing.kernel import time_kernel
from ascendsim.validate.compare import Case, busiest, quantile, rank_correlation, summarise
from ascendsim.validate.constants import CONSTANTS, role_of
from ascendsim.validate.convolutions import convolution_case
from ascendsim.validate.counters import active_cycles, bounds_of, core_active_cycles, measured_counters
from ascendsim.validate.matmul_rows import run_of
from ascendsim.validate.matmuls import is_matmul, matmul_case
from ascendsim.validate.primitives import measured_cycles, primitive_case
from ascendsim.validate.products import variant_of
from ascendsim.validate.rows import COLUMNS, Row, Unusable, l2_start_of, read_rows
from ascendsim.validate.run import class_of, compare_rows
from ascendsim.validate.streams import stream_case
from ascendsim.validate.targets import TARGETS, reached
from ascendsim.validate.vector_kinds import vector_kind

PLAIN = Row(
    *("plain", "910B", "910B1 (24 AIC)", "MOV GM_TO_L1", "float16", "", ""),
    *({"bytes": 1024}, {}, None, 173.0, {}, "a table", "real-hardware", ""),
)


def row(name="row", **values):
    return replace(PLAIN, id=name, **values)


def matmul(**values):
    sizes = {"M": 512, "K": 256, "N": 384, **values.pop("sizes", {})}
    return row("mm", op="MatMulV3", sizes=sizes, us=10.0, cycles=None, **values)


def write_table(folder, *lines, columns=COLUMNS):
    path = folder / "table.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        table.writerows(lines)
    return path


def line(**cells):
    return [cells.get(column, "") for column in COLUMNS]


# --- reading a table ----------------------------------------------------------------------------------------


def test_cells_become_numbers_and_objects(tmp_path):
    made = line(id="a", op="MatMul", shapes_json='{"M": 3}', measured_us="1.5", measured_cycles="0")
    (found,) = read_rows(write_table(tmp_path, made))
    assert (found.id, found.sizes, found.window, found.us, found.cycles) == ("a", {"M": 3}, {}, 1.5, None)


def test_columns_beyond_the_known_are_ignored(tmp_path):
    made = [*line(id="a"), "more"]
    (found,) = read_rows(write_table(tmp_path, made, columns=(*COLUMNS, "extra")))
    assert found.id == "a"


@pytest.mark.parametrize(
    "cells",
    [
        {"shapes_json": "{"},
        {"shapes_json": "[1, 2]"},
        {"other_counters_json": "3"},
        {"measured_us": "fast"},
        {"measured_cycles": "-1"},
        {"measured_us": "nan"},
        {"measured_us": "inf"},
        {"measured_cycles": "1e999"},
        {"shapes_json": '{"M": NaN}'},
        {"other_counters_json": '{"aic_mac_time(us)": -Infinity}'},
        {"other_counters_json": '{"GiB_per_s": 1e999}'},
    ],
)
def test_a_row_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path, cells):
    bad, good = read_rows(write_table(tmp_path, line(id="bad", **cells), line(id="good")))
    assert isinstance(bad, Unusable)
    assert bad.id == "bad"
    assert bad.reason.startswith("cannot be read: ")
    assert good.id == "good"


def test_a_row_without_a_name_is_named_by_its_line(tmp_path):
    bad, unnamed = read_rows(write_table(tmp_path, line(measured_us="x"), line(op="MatMul")))
    assert (bad.id, unnamed.id) == ("line 2", "line 3")


def test_a_short_line_is_read_as_far_as_it_goes(tmp_path):
    (found,) = read_rows(write_table(tmp_path, ["short", "910B"]))
    assert (found.id, found.us, found.sizes) == ("short", None, {})


def test_a_missing_column_is_named(tmp_path):
    path = write_table(tmp_path, columns=[name for name in COLUMNS if name != "strength"])
    with pytest.raises(DataError, match="has no column strength"):
        read_rows(path)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00"])
def test_what_is_no_table_is_refused(tmp_path, content):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"table\.csv"):
        read_rows(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_rows(tmp_path / "none.csv")


# --- what a source calls the chip ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "variant"),
    [
        ("910B2 (24 AIC @1800 MHz)", "910B2"),
        ("Ascend910B4-1", "910B4-1"),
        ("910B4-class (20 AIC @1650 MHz; name not in the CSV)", "910B4"),
        ("910B3-class (20 AIC @1800 MHz)", "910B3"),
        ("first-generation 910 (dav-1001/C100), 30 AI cores", "910B_old_1001"),
        ("A3 (910_93, 24 cores)", "910_9391"),
        ("Ascend910_9382", "910_9382"),
        ("950PR", "950PR_9589"),
        ("Ascend950DT_9582", "950DT_9582"),
        ("310P3", "310P3"),
        ("a graphics card", None),
        ("", None),
        ("1910B2x", None),
    ],
)
def test_the_variant_of_a_row(text, variant):
    assert variant_of(text) == variant


# --- statistics ---------------------------------------------------------------------------------------------


def case(measured, estimated, name="x", **values):
    return Case(name, "matmul", "group", "910B1", "us", measured, estimated, "a table", **values)


def test_the_error_is_relative_to_the_measurement():
    assert case(200, 150).error == -0.25
    assert case(200, 250).error == 0.25


@pytest.mark.parametrize(("share", "value"), [(0, 1), (0.5, 2.5), (1, 4), (0.95, 3.85)])
def test_a_quantile_lies_straight_between_its_neighbours(share, value):
    assert quantile([1, 2, 3, 4], share) == pytest.approx(value)


def test_a_quantile_of_one_number_is_that_number():
    assert quantile([7.0], 0.95) == 7.0


@pytest.mark.parametrize(
    ("one", "other", "rank"),
    [
        ([1, 2, 3], [10, 20, 90], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 3, 2, 4], 0.8),
        # Ties share the mean of their ranks: 1.5, 1.5, 3 and 1, 2, 3.
        ([5, 5, 9], [1, 2, 3], math.sqrt(3) / 2),
    ],
)
def test_rank_correlation_is_spearmans(one, other, rank):
    assert rank_correlation(one, other) == pytest.approx(rank)


@pytest.mark.parametrize(("one", "other"), [([1, 2], [1, 2]), ([1, 1, 1], [1, 2, 3])])
def test_there_is_no_rank_correlation_of_too_little(one, other):
    assert math.isnan(rank_correlation(one, other))


def test_a_summary_takes_absolute_errors_and_names_the_worst():
    found = summarise([case(100, 90, "a"), case(100, 130, "b"), case(100, 102, "c")])
    assert (found.count, found.worst_id) == (3, "b")
    assert (found.median, found.mean, found.worst) == pytest.approx((0.1, 0.14, 0.3))


def test_pipes_within_seven_percent_of_the_busiest_are_all_busiest():
    assert busiest({"M": 100, "MTE1": 93.1, "MTE2": 92.9}) == {"M", "MTE1"}
    assert busiest({}) == frozenset()


@pytest.mark.parametrize(
    ("measured", "estimated", "right"),
    [("M", "M", True), (("M", "MTE2"), "MTE2", True), ("M", "MTE1", False), ((), "M", None), ("M", (), None)],
)
def test_a_bound_is_right_if_both_name_a_common_pipe(measured, estimated, right):
    bounds = (
        frozenset((measured,) if isinstance(measured, str) else measured),
        frozenset((estimated,) if isinstance(estimated, str) else estimated),
    )
    assert case(1, 1, bounds=bounds).bound_right is right


# --- counters -----------------------------------------------------------------------------------------------


def test_counters_come_as_times_or_as_shares_of_the_duration():
    told = {"aic_mac_time(us)": 3.5, "aic_mte1_time(us)": "N/A", "TLOAD_pct": 80}
    assert measured_counters(told, 10.0) == {"M": 3.5, "MTE2": 8.0}
    assert measured_counters(told, None) == {"M": 3.5}


@pytest.mark.parametrize(
    ("measured", "bounds"),
    [
        ({"M": 5.0, "MTE2": 3.0}, ({"M"}, {"MTE2"})),  # of the two that were measured
        ({"M": 5.0}, ({"M"}, {"M"})),
        ({}, (set(), {"MTE3"})),  # of all but S
    ],
)
def test_the_estimated_bound_is_among_the_measured_pipes_or_all_but_s(measured, bounds):
    assert bounds_of(measured, {"S": 9.0, "M": 4.0, "MTE2": 6.0, "MTE3": 8.0}) == bounds


def test_a_pipe_is_active_while_anything_of_it_is_under_way():
    """The union of start..done over the instructions of a pipe, found instant by instant."""
    kernel = estimate_matmul(MatmulProblem(100, 90, 80), product="910B").kernels[-1].kernel
    timeline = time_kernel(kernel, load_profile("910B"))
    phase = timeline.phases[0]
    totals = {}
    for work in phase.cores:
        covered = {}
        for instruction, start, done in zip(work.program.instructions, work.start, work.done, strict=True):
            covered.setdefault(instruction.pipe, set()).update(range(start, done))
        lengths = {pipe: len(instants) for pipe, instants in covered.items()}
        assert core_active_cycles(work) == lengths
        for pipe, cycles in lengths.items():
            totals[pipe] = totals.get(pipe, 0) + cycles * len(work.cores)
    cores = sum(len(work.cores) for work in phase.cores)
    assert active_cycles(timeline) == {pipe: total / cores for pipe, total in totals.items()}


# --- primitives ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counters", "cycles"),
    [
        ({"cycles_per_transfer_derived": 12.5, "GiB_per_s": 1}, 12.5),
        ({"GiB_per_s": 1024 / (1 << 30) * 1e9}, 1.85),  # 1024 bytes in a nanosecond, at 1850 MHz
        ({}, 173.0),
    ],
)
def test_what_a_row_measured_for_one_instruction(counters, cycles):
    assert measured_cycles(row(counters=counters), 1850) == pytest.approx(cycles)


def test_repeats_count_as_fractals():
    loads = row(
        op="LOAD repeat L1_TO_L0A", sizes={"repeat": 2}, counters={"GiB_per_s": 1000 / (1 << 30) * 1e9}
    )
    assert measured_cycles(loads, 1000) == pytest.approx(1.024)


def test_a_primitive_is_compared_in_cycles():
    found = primitive_case(row("mskpp-x"), "910B1")
    assert (found.kind, found.group, found.unit, found.measured) == ("primitives", "GM->L1", "cycles", 173.0)
    assert abs(found.error) < 0.05


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"cycles": None}, "neither cycles nor a rate"),
        ({"op": "MOV GM_TO_MARS"}, "no path"),
        ({"op": "JUMP"}, "no instruction"),
        ({"op": "LOAD repeat GM_TO_MARS", "sizes": {"repeat": 1}}, "no path"),
    ],
)
def test_a_primitive_that_cannot_be_run_says_why(values, reason):
    found = primitive_case(row("mskpp-x", **values), "910B1")
    assert isinstance(found, Unusable)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("VADD_FP16_FP16_FP16", "binary"),
        ("VABS_FP16_FP16", "unary"),
        ("VADDS_FP16_FP16", "unary"),
        ("VADDS_INT32_INT32", "scalar_integer"),
        ("VDIV_FP16_FP16_FP16", "divide_16bit"),
        ("VDIV_FP32_FP32_FP32", "divide"),
        ("VEXP_FP32_FP32", "exp_32bit"),
        ("VLN_FP16_FP16", "exp"),
        ("VMADD_FP16_FP16_FP16", "multiply_add"),
        ("VMLA_FP16_FP16_FP32", "multiply_add_widening"),
        ("VCADD_FP32_FP32", "reduce_add_32bit"),
        ("VCONV_FP32_FP16", "cast"),
        ("VCONVVDEQ_INT16_FP16", "dequantise"),
        ("VCMPV_EQ_FP16_FP16", "compare_to_mask"),
        ("VCMPVS_EQ_FP16_FP16", "compare_scalar_to_mask"),
        ("VTRANSPOSE_16BIT", "transpose"),
    ],
)
def test_the_kind_of_a_vector_instruction(name, kind):
    assert vector_kind(name) == kind


# --- streams ------------------------------------------------------------------------------------------------


def test_a_stream_takes_its_bytes_over_the_rate_of_its_link():
    sizes = {"working_set_MiB": 64, "cores": 64}
    one = row("kir-950dt-GM_UB-64", op="GM_UB stream", sizes=sizes, us=900.0)
    found = stream_case(one, "950DT_9582")
    link = load_profile("950DT_9582").links["l2_read"]
    # 2 GiB over what the vector cores reach together, and a little for the start.
    seconds = 2048 * (1 << 20) / (float(link.nominal_tb_per_s) * 1e12)
    assert found.group == "streams"
    assert seconds * 1e6 < found.estimated < seconds * 1e6 * 1.5


def test_one_copy_by_one_core_is_no_stream():
    found = stream_case(row("kir-a3-gmub", op="GM->UB", sizes={"bytes": 4096}, us=0.2), "910_9391")
    assert found.group == "one copy and its wait"


@pytest.mark.parametrize("name", ["ad-add-1", "kir-a3-cap"])
def test_a_stream_whose_bytes_are_not_told_is_named(name):
    assert isinstance(stream_case(row(name, sizes={}), "910B1"), Unusable)


# --- matrix products ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "turned"),
    [
        ({}, (False, False)),
        ({"A": [512, 256], "B": [256, 384]}, (False, False)),
        ({"A": [256, 512], "B": [384, 256]}, (True, True)),
        ({"transA": True, "transB": False, "B": [384, 256]}, (True, False)),
        ({"A": [7, 7]}, (False, False)),
    ],
)
def test_how_operands_are_stored(sizes, turned):
    problem = run_of(matmul(sizes=sizes), load_profile("910B1")).problem
    assert (problem.m, problem.k, problem.n) == (512, 256, 384)
    assert (problem.transpose_a, problem.transpose_b) == turned


@pytest.mark.parametrize(
    ("listed", "turned"), [("81920,512;256,384", True), ("512,256;256,384", False), ("", False)]
)
def test_a_profilers_list_of_inputs_tells_whether_a_is_turned(listed, turned):
    # The rows of a turned a end in m = 512.
    row = matmul(counters={"input_shapes": listed})
    assert run_of(row, load_profile("910B1")).problem.transpose_a == turned


def test_split_cores_take_basic_blocks_where_there_are_enough_of_them():
    large = matmul(sizes={"M": 4096, "N": 4096})
    run = run_of(large, load_profile("910B1"))
    assert (run.tiling.base_m, run.tiling.base_n, run.tiling.base_k) == (128, 256, 64)
    assert "basic blocks" in run.note
    older = run_of(replace(large, op="MatMulV2"), load_profile("910B1"))
    assert "basic blocks" not in older.note


def test_a_square_operand_is_taken_as_stored():
    problem = run_of(matmul(sizes={"K": 512, "A": [512, 512]}), load_profile("910B1")).problem
    assert not problem.transpose_a


def test_blocked_operands_cold_l2_and_hf32_are_understood():
    run = run_of(
        matmul(layout="FRACTAL_NZ", notes="cold L2", dtype="float32", math_mode="HF32 (2048)"),
        load_profile("910B1"),
    )
    assert (run.problem.layout, run.l2_start, run.cube_math_type, run.dtype) == ("NZ", "cold", 3, "float32")


@pytest.mark.parametrize(
    ("source", "notes", "start"),
    [
        ("a tutorial", "", "warm"),
        ("a tutorial", "cold L2", "cold"),
        ("Huawei-Performance-Model/x", "", "cold"),
        ("hicann/pto-isa@1 README.md", "", "cold"),
        ("Ascend/msinsight@1 kernel_details.csv", "", "handed"),
        ("Ascend/mstt@1", "cold L2", "cold"),
    ],
)
def test_where_operands_are_when_a_run_begins(source, notes, start):
    row = replace(matmul(notes=notes), source=source)
    assert l2_start_of(row) == run_of(row, load_profile("910B1")).l2_start == start


def test_inferred_plans_bring_both_operands_for_every_tile():
    for product in ("910B1", "910A"):
        run = run_of(matmul(counters={"block_dim": 6}), load_profile(product))
        assert not run.tiling.keep_pieces
        assert "both operands" in run.note


def test_the_measured_number_of_blocks_is_kept():
    run = run_of(matmul(counters={"block_dim": 6}), load_profile("910B1"))
    assert run.tiling.used_cores <= 6
    unified = run_of(matmul(counters={"block_dim": 6}), load_profile("910A"))
    t, p = unified.tiling, unified.problem
    assert -(-p.m // t.single_core_m) * -(-p.n // t.single_core_n) == 6


def test_a_published_base_block_is_kept():
    run = run_of(
        replace(matmul(counters={"base": "128x64x256", "split": "4x6"}), id="pto-gemm-x"),
        load_profile("910_9391"),
    )
    t = run.tiling
    assert (t.base_m, t.base_n, t.base_k, t.used_cores) == (128, 256, 64, 24)
    assert (t.single_core_m, t.single_core_n) == (128, 64)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"sizes": {"K": None}}, "not all given"),
        ({"dtype": "int4"}, "not multiplied here"),
        ({"notes": "EXCLUDE: odd"}, "its source says"),
        ({"us": None}, "gives no time"),
    ],
)
def test_a_product_that_cannot_be_run_says_why(values, reason):
    made = matmul(**{key: value for key, value in values.items() if key != "us"})
    made = replace(made, us=None) if "us" in values else made
    found = matmul_case(made, "910B1")
    assert isinstance(found, Unusable)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("op", "one"),
    [
        ("MatMulV3", True),
        ("gemm", True),
        ("BatchMatMul", True),
        ("FusionOp_MatMul_Mul", False),
        ("GroupedMatmul", False),
        ("QuantMatmul", False),
        ("Conv2D", False),
    ],
)
def test_which_kernels_are_plain_products(op, one):
    assert is_matmul(row(op=op)) is one


def test_a_product_is_compared_with_its_counters():
    found = matmul_case(matmul(counters={"aic_mac_time(us)": 2.0, "aic_mte2_time(us)": 9.0}), "910B1")
    assert (found.measured, found.unit) == (10.0, "us")
    assert set(found.counters) == {"M", "MTE2"}
    assert found.bounds[0] == {"MTE2"}
    assert "inferred" in found.note


# --- convolution gradients ----------------------------------------------------------------------------------

GEOMETRY = {"N": 2, "Cin": 32, "Hi": 12, "Wi": 10, "Cout": 48, "Kh": 3, "Kw": 3, "Ho": 12, "Wo": 10}


def gradient(op="Conv2DBackpropInput", sizes=None, **window):
    return row("conv", op=op, sizes=sizes or GEOMETRY, window={"stride": 1} | window, us=20.0)


@pytest.mark.parametrize("op", ["Conv2DBackpropInput", "Conv2DBackpropFilter", "Conv2DBackpropFilterV2"])
@pytest.mark.parametrize(
    "window",
    [
        {},  # the padding follows from the sizes
        {"stride": [1, 1], "pad": [1, 1], "dilation": [1, 1], "groups": 1},
        {"pad": [1, 1, 1, 1]},
        {"pad": [0, 0]},  # contradicts the sizes, which win
        {"pad": "SAME"},
    ],
)
def test_spellings_of_one_geometry_give_one_estimate(op, window):
    expected = convolution_case(gradient(op), "910B1").estimated
    assert convolution_case(gradient(op, **window), "910B1").estimated == expected


def test_padding_that_differs_between_the_sides_follows_from_the_sizes():
    found = convolution_case(gradient(sizes=GEOMETRY | {"Hi": 24, "Wi": 20}, stride=2), "910B1")
    assert isinstance(found, Case)


def test_three_dimensions_are_taken():
    sizes = GEOMETRY | {"Di": 4, "Kd": 3, "Do": 4}
    assert isinstance(convolution_case(gradient("Conv3DBackpropFilter", sizes), "910B1"), Case)


@pytest.mark.parametrize(
    "made",
    [
        gradient(sizes={"N": 2}),
        replace(gradient(), window={}),
        gradient(sizes=GEOMETRY | {"Ho": 1}),
        gradient(sizes=GEOMETRY | {"Cin": "many"}),
        gradient(groups=5),
    ],
)
def test_a_geometry_that_does_not_fit_is_named(made):
    found = convolution_case(made, "910B1")
    assert isinstance(found, Unusable)
    assert found.reason.startswith("its geometry cannot be used: ")


def test_a_gradient_without_counters_tells_its_estimated_bound_alone():
    found = convolution_case(gradient(), "910B1")
    assert found.bounds[0] == frozenset()
    assert found.bounds[1]
    assert found.bound_right is None


# --- a whole table ------------------------------------------------------------------------------------------


def test_classes_of_rows():
    assert class_of(row("mskpp-x", op="MOV GM_TO_L1")) == "primitives"
    assert class_of(row("ad-dc-x", op="copies")) == "primitives"
    assert class_of(row("cz-r1", op="tiles")) == "matmul"
    assert class_of(row(op="MatMul")) == "matmul"
    assert class_of(row(op="Conv3DBackpropFilter")) == "convolution"
    assert class_of(row(op="TransData")) is None


def test_what_is_not_compared_is_counted_with_its_reason():
    one = row("mskpp-1")
    rows = [
        one,
        replace(one, id="mskpp-2"),
        row("mskpp-3", strength="vendor-sim"),
        row("mskpp-4", chip_variant="something"),
        row("mskpp-GM_TO_UB-910b1-1", op="MOV GM_TO_UB"),
        row("other", op="TransData"),
        Unusable("broken", "cannot be read: why"),
    ]
    told = []
    found = compare_rows(rows, ["primitives"], told.append)
    assert [case.id for case in found.cases] == ["mskpp-1"]
    assert [(item.id, item.reason) for item in found.unusable] == [
        ("mskpp-2", "repeats another row"),
        ("mskpp-3", "not measured on a chip: vendor-sim"),
        ("mskpp-4", "something: no product of these"),
        ("mskpp-GM_TO_UB-910b1-1", "contradicted by other measurements of the same path"),
        ("other", "TransData: no class of these"),
        ("broken", "cannot be read: why"),
    ]
    assert told == [item.id for item in rows]


def test_rows_of_other_classes_are_left_out():
    assert compare_rows([row("mskpp-1")], ["matmul"]) == compare_rows([], ["matmul"])


def test_figures_can_be_replaced():
    slow = compare_rows([row("mskpp-1")], overrides=(("paths.GM_L1.latency_cycles", 2000),))
    assert slow.cases[0].estimated > 1000


def test_a_measured_run_is_reproducible_from_its_numbers():
    """Every case of the table can be kept as JSON and compared again."""
    found = compare_rows([row("mskpp-1")]).cases[0]
    again = compare_rows([replace(PLAIN, id="mskpp-1", sizes=json.loads('{"bytes": 1024}'))]).cases[0]
    assert found == again


# --- constants and aims -------------------------------------------------------------------------------------


def test_every_constant_is_a_measured_figure_whose_source_is_told():
    for product, constants in CONSTANTS.items():
        figures = load_profile(product).figures
        for constant in constants:
            figure = figures[constant.path]
            assert figure.confidence in ("measured", "derived", "assumed"), constant.path
            assert figure.source
            assert figure.value != constant.without, constant.path
            load_profile(product, overrides={constant.path: constant.without})


def test_no_constant_is_listed_twice():
    for constants in CONSTANTS.values():
        paths = [constant.path for constant in constants]
        assert len(set(paths)) == len(paths)


def test_rows_are_calibration_or_validation():
    assert role_of("mskpp-vec-VADD") == "calibration"
    assert role_of("ad-mm8192-case2-950") == "validation"
    assert role_of("mskpp-mmad-910b1-16x16x16") == "calibration"


def test_aims_take_the_rows_that_they_name():
    cases = [
        replace(case(100, 112, "pto-gemm-1"), bounds=(frozenset("M"), frozenset("M"))),
        replace(case(100, 120, "hpm-1")),
        replace(case(100, 101, "mskpp-1"), kind="primitives"),
    ]
    found = {(item.target.name, item.target.statistic): item for item in reached(cases)}
    assert found["matrix products, published tilings", "worst"].kept
    assert not found["those of the first generation", "median"].kept
    assert found["primitives", "p95"].value == pytest.approx(0.01)
    assert found["matrix products of this table", "bounds"].count == 1
    assert len(found) < len(TARGETS)


def test_errors_of_this_package_are_the_projects():
    assert issubclass(DataError, AscendSimError)
