"""In what does the cube compute a call, and which formats does a rule set let through?"""

from dataclasses import replace
from itertools import product

import pytest

from ascendsim import ConvProblem, estimate
from ascendsim.errors import AclnnError, ConfigError
from ascendsim.profile import list_products, load_profile
from ascendsim.rules import load_rules, resolve, rule_product
from ascendsim.rules.resolve import with_cube
from tests.helpers.calls import answer, changed, conv, tbc
from tests.helpers.outside_records import cube_math_rows

# --- In what does the cube compute, for every dtype, cubeMathType, product and rule set? ---------------

REFUSED = (161002, "14")
# (product, dtype) -> compute dtype for cubeMathType 0, 1, 2, 3; None: refused at check 14. Transposed with
# grad_input alone, so that 8-bit calls are possible.
A2 = {
    "float32": ("float32", "hf32", "float16", "hf32"),
    "float16": ("float16",) * 4,
    "bfloat16": ("bfloat16", "bfloat16", "float16", "bfloat16"),
}
OLD = {"float32": (None, "float16", "float16", None), "float16": ("float16",) * 4}
EIGHT = {"hifloat8": ("hifloat8",) * 4}
SHIPPED = {"910_95": A2 | EIGHT, "910_93": A2, "910B": A2, "310P": OLD, "910": OLD}
NO_BF16_IN_FP16 = {"bfloat16": ("bfloat16", "bfloat16", None, "bfloat16")}
PAGE_000 = A2 | NO_BF16_IN_FP16
E4M3 = {"float8_e4m3fn": ("float8_e4m3fn",) * 4}
E5M2 = {"float8_e5m2": ("float8_e5m2",) * 4}
# Page 001 and 002: nothing but FLOAT with type 3.
PAGE_001 = A2 | {
    "float16": ("float16", "float16", "float16", None),
    "bfloat16": ("bfloat16", "bfloat16", None, None),
}
EXPECTED = {
    "shipped": SHIPPED,
    "documented": {
        "910_95": PAGE_000 | EIGHT | E4M3,
        "910_93": PAGE_000,
        "910B": PAGE_000,
        "310P": OLD,
        "910": OLD,
    },
    "documented-001": {"910B": PAGE_001, "310P": OLD, "910": OLD},
    "documented-002": {"910B": PAGE_001, "910_93": PAGE_001},
    "documented-004": {"910B": A2, "910": OLD},
    "hardware": {**SHIPPED, "910_95": A2 | EIGHT | E4M3 | E5M2},
}
ROWS = [
    (rules, name, dtype, cube_math_type, compute)
    for rules, products in EXPECTED.items()
    for name, dtypes in products.items()
    for dtype, row in dtypes.items()
    for cube_math_type, compute in enumerate(row)
]


@pytest.mark.parametrize(("rules", "name", "dtype", "cube_math_type", "compute"), ROWS)
def test_the_compute_dtype(rules, name, dtype, cube_math_type, compute):
    call = conv(
        (2, 4, 6, 7),
        (4, 6, 3, 3),
        groups=1,
        transposed=True,
        dtype=dtype,
        mask=(True, False, False),
        cube_math_type=cube_math_type,
    )
    if compute is None:
        assert answer(call, name, rules) == REFUSED
    else:
        decision = resolve(call, name, rules)
        assert (decision.compute_dtype, decision.promoted_dtype) == (compute, dtype)


def test_float32_on_310p_fails_inside_where_page_004_forgot_it():
    call = conv((2, 4, 6, 7), (6, 4, 3, 3), groups=1, cube_math_type=0)
    assert answer(call, "310P", "documented-004") == (561103, "31")
    assert answer(call, "910", "documented-004") == REFUSED


@pytest.mark.parametrize(
    ("cube_math_type", "status"), [(0, 0), (3, 0), (4, 161002), (5, 161002), (-1, 161002)]
)
@pytest.mark.parametrize("rules", EXPECTED)
def test_only_four_values_are_known(rules, cube_math_type, status):
    assert answer(conv(cube_math_type=cube_math_type), "910B", rules)[0] == status


@pytest.mark.parametrize(
    ("grad_output", "input", "weight", "promoted"),
    [
        ("float32", "float16", "float16", "float32"),
        ("float16", "bfloat16", "float16", "float32"),
        ("bfloat16", "float32", "bfloat16", "float32"),
        ("bfloat16", "bfloat16", "bfloat16", "bfloat16"),
    ],
)
@pytest.mark.parametrize("cube_math_type", range(4))
def test_promotion(grad_output, input, weight, promoted, cube_math_type):
    dtypes = {"grad_output": grad_output, "input": input, "weight": weight}
    gradients = {"grad_input": input, "grad_weight": weight, "grad_bias": grad_output}
    call = changed(
        conv((2, 4, 6, 7), (6, 4, 3, 3), groups=1, cube_math_type=cube_math_type),
        {f"{name}.dtype": dtype for name, dtype in (dtypes | gradients).items()},
    )
    decision = resolve(call, "910_95", "shipped")
    assert decision.promoted_dtype == promoted
    assert decision.compute_dtype == A2[promoted][cube_math_type]
    assert decision.dtypes == dtypes | gradients


def test_eight_bits_beside_another_format_are_float32_for_studies_only():
    call = changed(conv(dtype="float16"), {"input.dtype": "hifloat8", "grad_input.dtype": "hifloat8"})
    assert resolve(call, "910_95", "hardware").promoted_dtype == "float32"
    assert answer(call, "910_95", "documented") == (161002, "8")
    # The operator's intercept looks at calls that ask for a convolution; the rest has no common dtype.
    asked_for_nothing = changed(call, {"output_mask": (False, False, False)})
    assert answer(asked_for_nothing, "910_95", "shipped") == REFUSED


def test_the_operator_logs_options_that_do_nothing():
    assert resolve(conv(dtype="float16", cube_math_type=3), "910B", "shipped").warnings
    assert not resolve(conv(dtype="float16", cube_math_type=2), "910B", "shipped").warnings
    (warning,) = resolve(conv(dtype="bfloat16", cube_math_type=2), "910B", "shipped").warnings
    assert "computes in float16" in warning


TBC_003 = PAGE_001  # page 003 has the same table for conv_tbc


@pytest.mark.parametrize(("dtype", "cube_math_type"), list(product(TBC_003, range(4))))
@pytest.mark.parametrize("rules", ["documented", "shipped"])
def test_the_compute_dtype_of_conv_tbc(rules, dtype, cube_math_type):
    compute = (TBC_003 if rules == "documented" else A2)[dtype][cube_math_type]
    call = tbc(dtype=dtype, cube_math_type=cube_math_type)
    if compute is None:
        assert answer(call, "910B", rules) == (161002, "6")
    else:
        assert resolve(call, "910B", rules).compute_dtype == compute


def test_the_outside_table_agrees(data_dir):
    rows = cube_math_rows(data_dir)
    wrong = []
    for name, dtype, cube_math_type, status, compute in rows:
        call = conv(
            (2, 4, 6, 7),
            (4, 6, 3, 3),
            groups=1,
            transposed=True,
            dtype=dtype,
            mask=(True, False, False),
            cube_math_type=cube_math_type,
        )
        got = answer(call, name, "shipped")[0]
        if got != status or (not status and resolve(call, name, "shipped").compute_dtype != compute):
            wrong.append((name, dtype, cube_math_type, got))
    assert not wrong
    print(f"{len(rows)} rows of the outside table agree")
    assert len(rows) == 80  # 64 rows, of which 16 speak of two products


# --- Which 8-bit calls pass, on the only product that has 8-bit formats? -------------------------------

MASKS = list(product((False, True), repeat=3))


def eight(dtype="hifloat8", transposed=True, mask=(True, False, False)):
    weight = (4, 6, 3, 3) if transposed else (6, 4, 3, 3)
    return conv((2, 4, 6, 7), weight, groups=1, transposed=transposed, dtype=dtype, mask=mask)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["hifloat8", "float8_e4m3fn"])
def test_the_page_asks_for_transposed_and_grad_input(dtype, transposed, mask):
    call = eight(dtype, transposed, mask)
    if transposed and mask[0]:  # whatever else the mask asks for
        assert resolve(call, "910_95").compute_dtype == dtype
    else:
        assert answer(call, "910_95") == (161002, "8")


@pytest.mark.parametrize("name", ["910_93", "910B", "310P", "910"])
@pytest.mark.parametrize("rules", ["documented", "shipped", "hardware"])
def test_other_products_have_no_8_bits(name, rules):
    assert answer(eight(), name, rules) == (161002, "4")


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["hifloat8", "float8_e4m3fn", "float8_e5m2"])
def test_studies_take_every_gradient(dtype, transposed, mask):
    assert resolve(eight(dtype, transposed, mask), "910_95", "hardware").compute_dtype == dtype


def test_e5m2_is_for_studies_only():
    assert answer(eight("float8_e5m2"), "910_95", "documented") == (161002, "4")
    assert answer(eight("float8_e5m2"), "910_95", "shipped") == (161002, "4")


@pytest.mark.parametrize("mask", MASKS)
def test_the_operator_never_takes_e4m3fn(mask):
    # transposed: not in its list; not transposed: intercepted. With no gradient asked for nothing looks.
    assert answer(eight("float8_e4m3fn", True, mask), "910_95", "shipped") == (161002, "4")
    expected = (0, "") if not any(mask) else (561103, "30") if mask == (False, False, True) else (161002, "8")
    assert answer(eight("float8_e4m3fn", False, mask), "910_95", "shipped") == expected


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ((False, False, False), (0, "")),
        ((True, False, False), (0, "")),  # the usable combination
        ((False, False, True), (561103, "30")),  # no kernel sums into 8 bits
        ((True, False, True), (561103, "30")),
        ((False, True, False), (161002, "8")),
        ((True, True, False), (161002, "8")),  # grad_weight of hifloat8 must be float32
    ],
)
def test_the_operator_takes_grad_input_of_transposed_hifloat8(mask, expected):
    assert answer(eight(mask=mask), "910_95", "shipped") == expected


def test_grad_weight_of_hifloat8_passes_the_checks_and_finds_no_kernel():
    call = changed(eight(mask=(True, True, False)), {"grad_weight.dtype": "float32"})
    assert answer(call, "910_95", "shipped") == (561103, "31")
    # ... unless one of its own conditions fails first.
    spared = changed(call, {"stride": (2, 2), "output_padding": (1, 0), "grad_output.shape": (2, 6, 12, 13)})
    assert answer(spared, "910_95", "shipped") == (161002, "8")
    grouped = changed(call, {"groups": 2})
    assert answer(grouped, "910_95", "shipped") == (161002, "8")


def test_the_hole_in_the_intercept():
    # Not transposed, grad_weight null: the test for "transposed and output_mask[0]" is left out.
    call = changed(eight(transposed=False), {"grad_weight": None})
    assert answer(call, "910_95", "shipped") == (561103, "31")
    assert answer(eight(transposed=False), "910_95", "shipped") == (161002, "8")


@pytest.mark.parametrize(
    "partners",
    [("grad_output", "grad_bias"), ("input", "grad_input"), ("weight", "grad_weight")],
)
def test_the_operator_wants_one_8_bit_type_throughout(partners):
    # Each tensor with its gradient, so that the equality of outputs (checks 5 to 7) holds.
    call = changed(eight(), {f"{name}.dtype": "float16" for name in partners})
    assert answer(call, "910_95", "shipped") == (161002, "8")


def test_a_masked_null_grad_bias_is_not_looked_at():
    call = changed(eight(), {"grad_bias": None})
    assert answer(call, "910_95", "shipped") == (0, "")
    assert answer(call, "910_95", "documented") == (0, "")


# --- Does the rule set `hardware` take what the cube of the profile multiplies, and nothing else? ------

PRODUCTS = tuple(product.name for product in list_products())
CUBE_E4M3 = "float8_e4m3fn"


def without(profile, *dtypes):
    """The product with a cube that does not multiply some formats."""
    rates = {name: rate for name, rate in profile.cube.rates.items() if name not in dtypes}
    return replace(profile, cube=replace(profile.cube, rates=rates))


def computes(dtype, cube_math_type, product):
    return resolve(conv(dtype=dtype, cube_math_type=cube_math_type), product, "hardware").compute_dtype


@pytest.fixture
def with_float8(tmp_path):
    """A 910B3 of one's own whose cube has another rate."""
    path = tmp_path / "mine.toml"
    source = 'source = "our wish", confidence = "derived"'
    path.write_text(f"""
        base = "910B3"
        [cube.rates.{CUBE_E4M3}]
        k0 = {{ value = 32, {source} }}
        block_k = {{ value = 32, {source} }}
        [accumulation]
        {CUBE_E4M3} = {{ value = "block:32:RNE", {source} }}
    """)
    return load_profile(path)


# ---- The products


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_tensor_format_that_the_cube_multiplies_is_taken(name):
    profile = load_profile(name)
    cube, family = set(profile.cube.rates), rule_product(profile)
    tables = with_cube(load_rules("hardware"), family, profile)
    for part in (tables.convolution, tables.tbc):
        # hf32 lies in memory as float32, and no operator of the interface takes int8. float32 tensors are
        # also taken by cubes without float32: cubeMathType 1 and 2 cast them to float16.
        assert set(part.dtypes[family]) == cube - {"hf32", "int8"} | {"float32"}
        assert {to for row in part.cube_math[family].values() for to in row} <= cube | {"refused"}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_name_means_what_its_profile_means(name):
    call = conv(dtype="float16")
    assert resolve(call, name, "hardware") == resolve(call, load_profile(name), "hardware")
    rules, profile = load_rules("hardware"), load_profile(name)
    family = rule_product(profile)
    assert with_cube(rules, family, name) == with_cube(rules, family, profile)


def test_a_product_without_a_file_is_still_a_status():
    assert answer(conv(), "310B", "hardware") == (161002, "3a")
    assert answer(tbc(), "Ascend310", "hardware") == (161002, "1a")


def test_the_bias_of_conv_tbc_may_have_a_format_that_no_cube_reads():
    # The 310P has no bfloat16 in its cube, and bias lends grad_bias nothing but its shape.
    call = changed(tbc(dtype="float16"), {"bias.dtype": "bfloat16"})
    assert answer(call, "310P", "hardware") == (0, "")
    assert answer(changed(call, {"input.dtype": "bfloat16"}), "310P", "hardware") == (161002, "2")


# ---- A profile of one's own


def test_a_rate_more_is_a_format_more(with_float8):
    call = conv(dtype=CUBE_E4M3)
    assert answer(call, "910B", "hardware") == (161002, "4")
    assert resolve(call, with_float8, "hardware").compute_dtype == CUBE_E4M3
    assert resolve(tbc(dtype=CUBE_E4M3), with_float8, "hardware").compute_dtype == CUBE_E4M3
    # Documents and the shipped operator speak of products, not of cubes.
    for rules in ("documented", "shipped"):
        with pytest.raises(AclnnError, match="check 4"):
            resolve(call, with_float8, rules)


def test_a_rate_more_runs(with_float8):
    # 256 products of k in float8 are 8 steps of 32 in the cube, in float16 16 of 16; each pixel is loaded for
    # nine taps, so that it is not the loads that take the time.
    problem = ConvProblem((1, 256, 16, 16), (256, 256, 3, 3), 1, 1)
    times = [
        estimate(
            problem, dtype=dtype, product=with_float8, rules="hardware", output_mask=(True, False, False)
        )
        for dtype in (CUBE_E4M3, "float16")
    ]
    assert times[0].compute_dtype == CUBE_E4M3
    assert times[0].cycles < times[1].cycles


def test_a_rate_less_is_a_format_less():
    p = load_profile("910B")
    assert computes("bfloat16", 0, p) == "bfloat16"
    assert answer(conv(dtype="bfloat16"), without(p, "bfloat16"), "hardware") == (161002, "4")
    assert answer(conv(dtype="bfloat16"), without(p, "bfloat16"), "shipped") == (0, "")


@pytest.mark.parametrize(
    ("missing", "outcomes"),
    [
        ((), ("float32", "hf32", "float16", "hf32")),
        # "Lower precision" is HF32 only where there is HF32.
        (("hf32",), ("float32", "float16", "float16", None)),
        (("float32",), (None, "hf32", "float16", "hf32")),
        (("float32", "hf32"), (None, "float16", "float16", None)),  # as the 910 has it
    ],
)
def test_float32_goes_where_the_cube_lets_it(missing, outcomes):
    p = without(load_profile("910B"), *missing)
    for cube_math_type, compute in enumerate(outcomes):
        if compute is None:
            call = conv(dtype="float32", cube_math_type=cube_math_type)
            assert answer(call, p, "hardware") == (161002, "14")
        else:
            assert computes("float32", cube_math_type, p) == compute


# ---- A rule set of one's own


def own(tmp_path, text):
    path = tmp_path / "own.toml"
    path.write_text(f'base = "hardware"\n{text}')
    return path


@pytest.mark.parametrize(
    "table", ["convolution.dtypes", "convolution.dtypes_transposed", "tbc.cube_math.910B"]
)
def test_a_table_that_nobody_would_read_is_refused(tmp_path, table):
    path = own(tmp_path, f'[{table}]\n910B = ["float16"]')
    part, name = table.split(".")[:2]
    with pytest.raises(ConfigError, match=f"own.toml: {part}.{name}: not read where from_cube is true"):
        load_rules(path)


def test_what_the_cube_does_not_say_can_be_changed(tmp_path, with_float8):
    path = own(tmp_path, "[convolution]\nbatch = false\n")
    assert resolve(conv(dtype=CUBE_E4M3), with_float8, path).compute_dtype == CUBE_E4M3


def test_tables_of_one_s_own_need_the_switch(tmp_path):
    path = own(tmp_path, 'from_cube = false\n[convolution.dtypes]\n910B = ["float16"]')
    assert answer(conv(dtype="float16"), "910B", path) == (0, "")
    assert answer(conv(dtype="float32"), "910B", path) == (161002, "4")
