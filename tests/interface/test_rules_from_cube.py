"""Does the rule set `hardware` take what the cube of the profile multiplies, and nothing else?"""

from dataclasses import replace

import pytest

from ascendsim import ConvProblem, estimate
from ascendsim.errors import AclnnError, ConfigError
from ascendsim.profile import list_products, load_profile
from ascendsim.rules import load_rules, resolve, rule_product
from ascendsim.rules.from_cube import with_cube
from tests.helpers.rules_calls import answer, changed, conv, tbc

PRODUCTS = tuple(product.name for product in list_products())
E4M3 = "float8_e4m3fn"


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
        [cube.rates.{E4M3}]
        k0 = {{ value = 32, {source} }}
        block_k = {{ value = 32, {source} }}
        [accumulation]
        {E4M3} = {{ value = "block:32:RNE", {source} }}
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
    call = conv(dtype=E4M3)
    assert answer(call, "910B", "hardware") == (161002, "4")
    assert resolve(call, with_float8, "hardware").compute_dtype == E4M3
    assert resolve(tbc(dtype=E4M3), with_float8, "hardware").compute_dtype == E4M3
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
        for dtype in (E4M3, "float16")
    ]
    assert times[0].compute_dtype == E4M3
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
    assert resolve(conv(dtype=E4M3), with_float8, path).compute_dtype == E4M3


def test_tables_of_one_s_own_need_the_switch(tmp_path):
    path = own(tmp_path, 'from_cube = false\n[convolution.dtypes]\n910B = ["float16"]')
    assert answer(conv(dtype="float16"), "910B", path) == (0, "")
    assert answer(conv(dtype="float32"), "910B", path) == (161002, "4")
