"""Does the script that reads the words of the sources of measured cases make columns of them?"""

import csv
import json

import pytest

import measured_rows
from ablation import fitted
from ascendsim.validate.run import compare_rows, quoted_rows
from ascendsim.validate.schema import MeasuredRow, Unusable, read_row, read_rows
from prose.chips import variant_of, vector_kind
from prose.copies import instruction_cells, stream_cells
from prose.gradients import gradient_cells
from prose.products import is_product, product_cells, tile_cells
from prose.raw import COLUMNS, SkipError, busy_us, read_line
from prose.vectors import layout_cells

REAL = {
    "chip_variant": "910B1 (24 AIC)",
    "strength": "real-hardware",
    "source": "a table",
    "dtype": "float16",
}
OBJECTS = {"sizes": "shapes_json", "window": "stride_pad_dil_groups_json", "counters": "other_counters_json"}
SQUARE = {"M": 512, "K": 256, "N": 384}
LAYER = {"N": 2, "Cin": 32, "Hi": 12, "Wi": 10, "Cout": 48, "Kh": 3, "Kw": 3, "Ho": 12, "Wo": 10}
TILES = {"baseM": 128, "baseN": 256, "baseK": 128, "k_steps_inferred": 1, "tiles_on_core": 2}


def line(name, op, **cells):
    """Return a line of a table: objects as JSON, `us` and `cycles` as numbers."""
    for short, column in (*OBJECTS.items(), ("us", "measured_us"), ("cycles", "measured_cycles")):
        if short in cells:
            value = cells.pop(short)
            cells[column] = json.dumps(value) if short in OBJECTS else str(value)
    return REAL | {"id": name, "op": op} | cells


def raw(name, op, **cells):
    return read_line(name, line(name, op, **cells))


def rows(*lines):
    """Convert lines and read what comes of them as the package does."""
    texts = [
        {key: measured_rows.cell(value) for key, value in row.items()} for row in measured_rows.convert(lines)
    ]
    return [read_row(text) for text in texts]


def copy(name="mskpp-copy", **cells):
    return line(name, "MOV GM_TO_L1", **{"sizes": {"bytes": 1024}, "cycles": 173} | cells)


def product(**cells):
    sizes = SQUARE | cells.pop("sizes", {})
    return raw("mm", cells.pop("op", "MatMulV3"), sizes=sizes, us=10, **cells)


# --- reading a line -----------------------------------------------------------------------------------------


def test_cells_become_numbers_and_objects():
    found = raw("a", "MatMul", sizes={"M": 3}, us=1.5, cycles=0)
    assert (found.id, found.sizes, found.window, found.us, found.cycles) == ("a", {"M": 3}, {}, 1.5, None)


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
        {"shapes_json": "{}"},  # neither bytes nor repeats
        {"shapes_json": '{"bytes": 10}', "other_counters_json": '{"GiB_per_s": "x"}'},
    ],
)
def test_a_line_that_cannot_be_read_is_named_and_the_others_are_read(cells):
    bad, good = rows(copy("mskpp-bad") | cells, copy("mskpp-good"))
    assert isinstance(bad, Unusable)
    assert bad.id == "mskpp-bad"
    assert bad.reason.startswith("cannot be read: ")
    assert good.id == "mskpp-good"


def test_a_line_without_a_name_is_named_by_its_number():
    assert [row.id for row in rows(copy(""), copy("", cycles=5))] == ["line 2", "line 3"]


def test_counters_come_as_times_or_as_shares_of_the_duration():
    told = {"aic_mac_time(us)": 3.5, "aic_mte1_time(us)": "N/A", "TLOAD_pct": 80}
    assert busy_us(raw("a", "", counters=told, us=10)) == {"m_us": 3.5, "mte2_us": 8.0}
    assert busy_us(raw("a", "", counters=told)) == {"m_us": 3.5}


# --- what a source calls things -----------------------------------------------------------------------------


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


# --- single instructions and streams ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counters", "cycles"),
    [
        ({"cycles_per_transfer_derived": 12.5, "GiB_per_s": 1}, 12.5),
        ({"GiB_per_s": 1024 / (1 << 30) * 1e9}, 1.85),  # 1024 bytes in a nanosecond, at 1850 MHz
        ({}, 173.0),
    ],
)
def test_what_a_row_measured_for_one_instruction(counters, cycles):
    made = raw("mskpp-x", "MOV GM_TO_L1", sizes={"bytes": 1024}, cycles=173, counters=counters)
    assert instruction_cells(made, "910B1")["measured_cycles"] == pytest.approx(cycles)


def test_repeats_count_as_fractals():
    # Two fractals of 512 bytes in a microsecond are 1850 cycles.
    made = raw(
        "a", "LOAD repeat L1_TO_L0A", sizes={"repeat": 2}, counters={"GiB_per_s": 1024 / (1 << 30) * 1e6}
    )
    assert instruction_cells(made, "910B1")["measured_cycles"] == pytest.approx(1850)


@pytest.mark.parametrize(
    ("op", "path", "relayout", "in_a_row"),
    [
        ("MOV GM_TO_L1", "GM_L1", False, False),
        ("MOV GM_TO_L1_TRANS", "GM_L1", True, False),
        ("MOV UB_TO_GM", "UB_GM", False, False),
        ("MOV L0C_TO_GM_TRANS", "L0C_GM", True, True),
        ("MOV L1_TO_BT", "L1_BT", False, True),
    ],
)
def test_copies_with_gm_are_timed_alone_and_the_others_in_a_row(op, path, relayout, in_a_row):
    found = instruction_cells(raw("a", op, sizes={"bytes": 64}, cycles=3), "910B1")
    assert (found["path"], found["relayout"], found["in_a_row"]) == (path, relayout, in_a_row)
    assert found["group"] == op.removeprefix("MOV ").replace("_TO_", "->")


def test_products_of_one_table_are_timed_alone():
    made = raw("mskpp-mmad", "MMAD", sizes={"M": 16, "K": 32, "N": 48}, cycles=25)
    alone, others = (instruction_cells(made, variant) for variant in ("910B3", "910B1"))
    assert (alone["m"], alone["k"], alone["n"], alone["in_a_row"]) == (16, 32, 48, False)
    assert others["in_a_row"]


def test_a_sample_moves_its_tensor_in_tiles():
    found = stream_cells(raw("ad-dc-l1", "GM->L1", sizes={"desc": "tile 64x128, 302 MB"}, us=300), "910B1")
    assert (found["cores"], found["tile_rows"], found["tile_bytes"]) == (24, 64, 2 * 64 * 128)
    again = stream_cells(raw("ad-dc-ub", "GM->UB, 4x re-read", us=300), "910B1")
    assert (again["cores"], again["moved_bytes"]) == (48, 4 * found["moved_bytes"])


def test_working_sets_are_read_until_two_gib_have_moved():
    for mib, moved in ((4, 2048), (1024, 2048), (2048, 4096)):
        made = raw("kir-950dt-GM_UB-x", "GM_UB", sizes={"working_set_MiB": mib, "cores": 8}, us=900)
        found = stream_cells(made, "950DT_9582")
        assert (found["bytes"], found["moved_bytes"]) == (mib << 20, moved << 20)


def test_a_rate_and_a_time_tell_what_moved():
    # 5 TB/s for 100 us are 500 MB.
    sizes, counters = {"working_set_MiB": 8}, {"TB_per_s": 5.0}
    made = raw("kir-950dt-ws-shared-8", "shared read", sizes=sizes, counters=counters, us=100)
    found = stream_cells(made, "950DT_9582")
    assert (found["moved_bytes"], found["cores"], found["shared"]) == (500_000_000, 64, True)


def test_one_copy_by_one_core_is_no_stream():
    (row,) = rows(line("kir-a3-gmub-4096", "GM->UB", sizes={"bytes": 4096}, us=0.2))
    assert (row.kernel, row.path, row.bytes) == ("copy_and_wait", "GM_UB", 4096)


@pytest.mark.parametrize("name", ["ad-add-1", "kir-a3-cap", "ad-dc-same"])
def test_a_stream_whose_bytes_are_not_told_is_named(name):
    (row,) = rows(line(name, "copies", us=1))
    assert row == Unusable(name, "what its copies move is not told", "primitives")


# --- matrix products ----------------------------------------------------------------------------------------


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
    assert is_product(raw("a", op)) is one


@pytest.mark.parametrize(
    ("sizes", "turned"),
    [
        ({}, (False, False)),
        ({"A": [512, 256], "B": [256, 384]}, (False, False)),
        ({"A": [256, 512], "B": [384, 256]}, (True, True)),
        ({"transA": True, "transB": False, "B": [384, 256]}, (True, False)),
        ({"A": [7, 7]}, (False, False)),
        ({"K": 512, "A": [512, 512]}, (False, False)),  # a square one is taken as stored
    ],
)
def test_how_operands_are_stored(sizes, turned):
    found = product_cells(product(sizes=sizes), "910B1")
    assert (found["transpose_a"], found["transpose_b"]) == turned


@pytest.mark.parametrize("layout", ["ND, B transposed", "ND, B n x k"])
def test_a_layout_may_tell_that_b_is_turned(layout):
    assert product_cells(product(layout=layout), "910B1")["transpose_b"]


@pytest.mark.parametrize(
    ("listed", "turned"), [("81920,512;256,384", True), ("512,256;256,384", False), ("", False)]
)
def test_a_profilers_list_of_inputs_tells_whether_a_is_turned(listed, turned):
    # The rows of a turned a end in m = 512.
    found = product_cells(product(counters={"input_shapes": listed}), "910B1")
    assert found["transpose_a"] == turned


def test_blocked_operands_hf32_and_older_kernels_are_understood():
    single = product(layout="FRACTAL_NZ", dtype="float32", math_mode="HF32 (2048)", op="MatMulV2")
    found = product_cells(single, "910B1")
    assert (found["layout"], found["compute_dtype"], found["strategy"]) == ("NZ", "hf32", "search")
    assert product_cells(product(math_mode="HF32 (2048)"), "910B1")["compute_dtype"] == "float16"


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
    assert product_cells(product(source=source, notes=notes), "910B1")["l2_start"] == start


def test_a_published_base_block_is_kept():
    found = product_cells(product(counters={"base": "128x64x256", "split": "4x6"}), "910_9391")
    assert [found[f"base_{axis}"] for axis in "mnk"] == [128, 256, 64]
    assert (found["single_core_m"], found["single_core_n"], found["used_cores"]) == (128, 64, 24)


@pytest.mark.parametrize("base", ["0x0x0", "64x64", "64x64x64x64"])
def test_a_base_block_that_is_none_is_named(base):
    with pytest.raises(SkipError, match=f"its base is '{base}'; it must be 3 positive numbers"):
        product_cells(product(counters={"base": base}), "910B1")


@pytest.mark.parametrize(
    ("tuning", "variant", "plan"),
    [
        ("single core, base 64x64x64", "910B1", (64, 64, 8192, 8192, 1)),
        # 8192 / 12 = 683 columns, up to a fractal 688.
        ("multi-core split 2x12 (A2)", "910B1", (128, 256, 4096, 688, 24)),
        # 8192 / 6 = 1366 columns, up to a tile 1536.
        ("+MDL (big-packet L1)", "910B1", (128, 256, 2048, 1536, 24)),
        ("+L2 split", "950PR_9589", (256, 256, 2048, 512, 32)),
    ],
)
def test_the_plans_of_the_vendors_walk(tuning, variant, plan):
    source = "examples/01_matrix_compute/matmul_high_performance/README.md"
    found = product_cells(product(source=source, counters={"tuning": tuning}), variant)
    names = ("base_m", "base_n", "single_core_m", "single_core_n", "used_cores")
    assert tuple(found[name] for name in names) == plan
    assert "inferred" in found["inferred"]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"sizes": {"K": None}}, "its sizes are not all given"),
        ({"notes": "EXCLUDE: odd"}, "its source says: exclude"),
    ],
)
def test_a_product_that_cannot_be_run_says_why(cells, reason):
    with pytest.raises(SkipError, match=reason):
        product_cells(product(**cells), "910B1")


def test_a_run_with_known_tiles_becomes_a_row_for_each_pipe():
    made = line("cz-r1", "tiles", sizes=TILES, counters={"cube_us": 1.2, "mte1_us": 0.8, "fixpipe_us": 1.8})
    found = rows(made | {"chip_variant": "910B3"})
    assert [(row.id, row.pipe, row.measured) for row in found] == [
        ("cz-r1 M", "M", 1.2),
        ("cz-r1 MTE1", "MTE1", 0.8),
        ("cz-r1 FIX", "FIX", 1.8),
    ]
    # 8 rows of 4 tiles of 128 x 256, one step of 128 deep.
    assert {(row.m, row.k, row.n, row.used_cores) for row in found} == {(1024, 128, 1024, 20)}


def test_a_run_without_the_time_of_a_pipe_names_it():
    with pytest.raises(SkipError, match="gives no busy time of M, FIX"):
        tile_cells(raw("cz-r1", "tiles", sizes=TILES, counters={"mte1_us": 0.8}), "910B3")


# --- convolution gradients ----------------------------------------------------------------------------------


def gradient(op="Conv2DBackpropInput", sizes=LAYER, **window):
    return raw("conv", op, sizes=sizes, window={"stride": 1} | window, us=20)


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
def test_spellings_of_one_geometry_give_the_same_columns(window):
    found = gradient_cells(gradient(**window))
    assert (found["input_shape"], found["weight_shape"]) == ((2, 32, 12, 10), (48, 32, 3, 3))
    assert (found["stride"], tuple(found["padding"]), found["groups"]) == ([1, 1], (1, 1, 1, 1), 1)


def test_padding_that_differs_between_the_sides_follows_from_the_sizes():
    # (12 - 1) 2 + 3 - 24 = 1, behind.
    found = gradient_cells(gradient(sizes=LAYER | {"Hi": 24, "Wi": 20}, stride=2))
    assert tuple(found["padding"]) == (0, 1, 0, 1)


def test_three_dimensions_have_one_padding_each():
    sizes = LAYER | {"Di": 4, "Kd": 3, "Do": 4}
    found = gradient_cells(gradient("Conv3DBackpropFilter", sizes))
    assert (found["input_shape"], list(found["padding"])) == ((2, 32, 4, 12, 10), [1, 1, 1])
    with pytest.raises(SkipError, match="differs between the sides"):
        gradient_cells(gradient("Conv3DBackpropFilter", sizes | {"Kd": 2}))


@pytest.mark.parametrize(
    ("sizes", "window", "reason"),
    [
        ({"N": 2}, {"stride": 1}, "cannot be read: KeyError"),
        (LAYER, {}, "cannot be read: KeyError('stride')"),
        (LAYER | {"Ho": 1}, {"stride": 1}, "an output of [1, 10] does not follow from an input of [12, 10]"),
        (LAYER | {"Cin": "many"}, {"stride": 1}, "cannot be read: TypeError"),
        (LAYER, {"stride": [1]}, "its stride is [1]; it must be one value, or one for each of 2 axes"),
        (LAYER, {"stride": 0}, "cannot be read: ZeroDivisionError"),
    ],
)
def test_a_geometry_that_does_not_fit_is_named(sizes, window, reason):
    (row,) = rows(line("conv", "Conv2DBackpropInput", sizes=sizes, window=window, us=20))
    assert isinstance(row, Unusable)
    assert row.reason.startswith(reason)


# --- a whole table ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "op", "kernel"),
    [
        ("mskpp-x", "MOV GM_TO_L1", "move"),
        ("mskpp-x", "VEC VADD_FP16", "vector"),
        ("other-x", "VEC VADD_FP16", None),
        ("ad-dc-x", "copies", "stream"),
        ("cz-r1", "tiles", "matmul"),
        ("x", "MatMul", "matmul"),
        ("x", "Conv3DBackpropFilterV2", "grad_weight"),
        ("x", "Conv2DBackpropInputD", "grad_input"),
        ("x", "TransData", None),  # whose layouts are not told
    ],
)
def test_what_a_line_measured(name, op, kernel):
    assert measured_rows.kernel_of(raw(name, op)) == kernel


def test_what_cannot_be_compared_is_kept_with_its_reason():
    found = rows(
        copy(),
        copy("mskpp-2"),
        copy("mskpp-3", strength="vendor-sim"),
        copy("mskpp-4", chip_variant="something"),
        copy("mskpp-GM_TO_UB-910b1-1"),
        copy("mskpp-5", cycles=0),
        line("other", "TransData"),
    )
    assert isinstance(found[0], MeasuredRow)
    assert [(row.id, row.reason, row.kind) for row in found[1:]] == [
        ("mskpp-2", "repeats another row", "primitives"),
        ("mskpp-3", "not measured on a chip: vendor-sim", "primitives"),
        ("mskpp-4", "something: no product of these", "primitives"),
        ("mskpp-GM_TO_UB-910b1-1", "contradicted by other measurements of the same path", "primitives"),
        ("mskpp-5", "gives neither cycles nor a rate", "primitives"),
        ("other", "TransData: no class of these", ""),
    ]


def test_rows_that_a_figure_names_are_fitted_and_no_others():
    assert measured_rows.role_of("mskpp-vec-VADD") == "fit"
    assert measured_rows.role_of("ad-mm8192-case2-950") == "judge"
    assert measured_rows.role_of("cz-r2-1t FIX") == "fit"
    assert measured_rows.role_of("cz-r3-1t FIX") == "report"


def test_only_numbers_of_licensed_sources_may_be_quoted():
    mine, theirs = rows(copy(source="hicann/pto-isa@1 README.md"), copy("mskpp-2"))
    assert (mine.quote, theirs.quote) == (True, False)


def test_a_table_becomes_a_table(tmp_path, capsys):
    given, made = tmp_path / "in.csv", tmp_path / "out.csv"
    with given.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, restval="")
        table.writeheader()
        table.writerows([copy(), copy("mskpp-2"), line("other", "TransData")])
    assert measured_rows.main([str(given), str(made)]) == 0
    assert capsys.readouterr().out == "3 rows, 2 of them skipped\n"
    row, *others = read_rows(made)
    assert (row.kernel, row.path, row.bytes, row.measured) == ("move", "GM_L1", 1024, 173.0)
    assert [other.reason for other in others] == ["repeats another row", "TransData: no class of these"]
    assert len(compare_rows([row]).cases) == 1
    assert measured_rows.main([str(given), str(tmp_path)]) == 2
    assert f"{tmp_path}: cannot be written: Is a directory" in capsys.readouterr().err


def test_mistakes_are_answered(tmp_path, capsys):
    assert measured_rows.main(["one"]) == 2
    assert "usage: python tools/measured_rows.py IN OUT" in capsys.readouterr().err
    path = tmp_path / "in.csv"
    path.write_text("id,op\n")
    assert measured_rows.main([str(path), "out"]) == 2
    assert "has no column chip, chip_variant" in capsys.readouterr().err
    assert measured_rows.main([str(tmp_path / "none"), "out"]) == 2
    assert "none: cannot be read: No such file" in capsys.readouterr().err


def test_the_roles_of_a_table_are_those_of_the_figures(measured_table):
    named = {
        prefix
        for product in ("910B", "910_93", "910_95", "310P", "910")
        for figure in fitted(product).values()
        for prefix in figure.fitted_on
    }
    table = [row for row in (*read_rows(measured_table), *quoted_rows()) if isinstance(row, MeasuredRow)]
    assert all((row.role == "fit") == row.id.startswith(tuple(named)) for row in table)
    # No figure names rows that are not there.
    assert all(any(row.id.startswith(prefix) for row in table) for prefix in named)


@pytest.mark.parametrize(
    ("layout", "sizes", "found"),
    [
        ("NCHW -> NC1HWC0:192", ((1, 48, 5, 5), (1, 6, 5, 5, 8)), ("NCHW->NC1HWC0", (1, 48, 5, 5), 8, None)),
        (
            "NCDHW -> FRACTAL_Z_3D",
            ((32, 3, 2, 4, 4), (32, 2, 16, 16)),
            ("NCDHW->FRACTAL_Z_3D", (32, 3, 2, 4, 4), 16, None),
        ),
        (
            "NDC1HWC0 -> NCDHW",
            ((2, 3, 1, 4, 4, 16), (2, 5, 3, 4, 4)),
            ("NDC1HWC0->NCDHW", (2, 5, 3, 4, 4), 16, None),
        ),
        # 32 groups of 25 taps: 25 x 2 fractals as one group; 2 merged ones of 16 are 25 x 2 x 2.
        (
            "FRACTAL_Z:1 -> FRACTAL_Z:32",
            ((25, 2, 16, 8), (100, 1, 16, 8)),
            ("FRACTAL_Z->FRACTAL_Z", (32, 1, 5, 5), 8, 32),
        ),
    ],
)
def test_changes_of_layout_tell_what_was_changed(layout, sizes, found):
    told = layout_cells(
        raw("x", "TransData", layout=layout, us=5, sizes=dict(zip(("in", "out"), sizes, strict=True)))
    )
    made = told["change"], tuple(told["input_shape"]), told["c0"], told.get("groups")
    assert made == found


def test_groups_whose_channels_are_not_told_are_skipped():
    # 9 taps are no 5 x 5, and 50 fractals have room for groups of more channels.
    for sizes in (
        {"in": (9, 2, 16, 8), "out": (36, 1, 16, 8)},
        {"in": (25, 2, 16, 8), "out": (50, 1, 16, 8)},
    ):
        with pytest.raises(SkipError, match="channels are not told"):
            layout_cells(raw("x", "TransData", layout="FRACTAL_Z:1 -> FRACTAL_Z:32", us=5, sizes=sizes))
