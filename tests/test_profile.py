"""Does every product load, is every figure sourced, and do bad files say why?"""

import dataclasses
import pickle
import re
import shutil
import subprocess
import sys
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest
from toy_profiles import toy_split, toy_unified

import ascendsim
from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.profile import configs_directory, list_products, load_profile

PLAIN = {"910B": "910B2", "910_93": "910_9382", "910_95": "950PR_9589", "310P": "310P3", "910": "910A"}
VARIANTS = [variant for product in list_products() for variant in product.variants]
EVERY = pytest.mark.parametrize("variant", VARIANTS)


@pytest.fixture(scope="module")
def profiles():
    return {variant: load_profile(variant) for variant in VARIANTS}


@pytest.fixture(scope="module")
def b2():
    return load_profile("910B")


def write(tmp_path, text, name="mine.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def refusal(name, overrides=None):
    with pytest.raises(ConfigError) as caught:
        load_profile(name, overrides)
    return str(caught.value)


# ---- Does every product load, under which names?


@EVERY
def test_every_variant_loads_under_its_name(profiles, variant):
    assert profiles[variant].variant == variant


def test_what_is_shipped():
    assert {p.name: p.default_variant for p in list_products()} == PLAIN
    # 6 + 7 + (10 PR + 25 DT) + 4 + 5
    assert {p.name: len(p.variants) for p in list_products()} == {
        "910B": 6,
        "910_93": 7,
        "910_95": 35,
        "310P": 4,
        "910": 5,
    }


@pytest.mark.parametrize("plain", PLAIN)
def test_a_plain_name_means_its_usual_variant(plain):
    profile = load_profile(plain)
    assert (profile.product, profile.variant) == (plain, PLAIN[plain])


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("910B3", "910B3"),
        ("Ascend910B3", "910B3"),
        ("ascend910b3", "910B3"),
        ("Ascend910_9382", "910_9382"),
        ("950PR_9589", "950PR_9589"),
        ("Ascend950PR_9589", "950PR_9589"),
        ("Ascend310P3", "310P3"),
        ("Ascend910A", "910A"),
        ("910B4-1", "910B4-1"),
        # The vendor's file of this name is of the older part, but the name means the A2 family today.
        ("Ascend910B", "910B2"),
        ("910B_old_1001", "910B_old_1001"),
    ],
)
def test_vendor_and_variant_names_work(name, variant):
    assert load_profile(name).variant == variant


def test_variants_differ_in_what_the_table_says():
    # cube cores, vector cores, MHz, L2 MiB
    rows = {
        "910B1": (24, 48, 1850, 192),
        "910B3": (20, 40, 1800, 192),
        "910B4": (20, 40, 1650, 96),
        "910_9372": (20, 40, 1800, 192),
        "950DT_9591": (36, 72, 1800, 128),
        "310P1": (10, 8, 1060, 16),
        "910B_old_1001": (30, 0, 900, 32),
    }
    for name, row in rows.items():
        p = load_profile(name)
        assert (p.cores.cube, p.cores.vector, p.clock.cube_mhz, p.l2.capacity_bytes >> 20) == row


@pytest.mark.parametrize(
    ("variant", "teraflops"),
    [
        ("910B1", 363.7),
        ("910B2", 353.9),
        ("910B3", 294.9),
        ("910B4", 245.8 * 1650 / 1500),  # at the measured clock; the vendor's file has 1500 MHz
        ("910_9382", 353.9),
        ("910_9362", 245.8),
        ("950PR_9589", 432.5),
        ("950PR_9579", 378.5),
        ("950PR_950z", 54.1),
        ("950DT_9591", 530.8),
        ("950DT_950x", 108.1),
        ("310P1", 86.8),
        ("310P3", 69.5),
        ("310P5", 52.4),
        ("310P7", 36.0),
        ("910A", 262.1),
        ("910ProA", 288.4),
        ("910ProB", 282.6),
        ("910PremiumA", 319.8),
        ("910B_old_1001", 221.2),
    ],
)
def test_peaks_follow_from_cores_rates_and_clocks(profiles, variant, teraflops):
    """Compare with the planning numbers of the variant table: cores x 4096 x 2 x clock."""
    p = profiles[variant]
    peak = p.cores.cube * p.cube.rates["float16"].macs_per_cycle * 2 * p.clock.cube_mhz * 1e6 / 1e12
    assert peak == pytest.approx(teraflops, abs=0.06)


def test_the_measured_clock_of_the_910b4_keeps_the_file_s_in_its_source():
    figure = load_profile("910B4").figures["clock.cube_mhz"]
    assert (figure.value, figure.confidence, figure.range) == (1650, "measured", (1500, 1650))
    assert "1500" in figure.source


# ---- Is every figure sourced?


@EVERY
def test_every_figure_has_source_and_confidence(profiles, variant):
    known = {"vendor file", "vendor doc", "measured", "paper", "derived", "assumed"}
    for path, figure in profiles[variant].figures.items():
        assert len(figure.source) > 3, path
        assert figure.confidence in known, path


@EVERY
def test_an_assumed_figure_has_a_range_around_it(profiles, variant):
    for path, figure in profiles[variant].assumed().items():
        if isinstance(figure.value, str | tuple | list):
            assert figure.value in figure.range, path
            assert len(figure.range) > 1, path
        else:
            low, high = figure.range
            assert low <= figure.value <= high, path
            assert low < high, path


@pytest.mark.parametrize("plain", PLAIN)
def test_source_tags_are_explained(plain):
    """A source that starts with a tag in capitals points into the table of sources."""
    profile = load_profile(plain)
    for path, figure in profile.figures.items():
        tag = re.match(r"[A-Z][A-Z0-9]+\b", figure.source)
        assert tag is None or tag[0] in profile.sources, f"{path}: {figure.source}"


@pytest.mark.parametrize("plain", PLAIN)
def test_no_declared_source_is_unused(plain):
    """Look in all variants: a tag may serve only one of them."""
    text = (configs_directory() / f"{plain}.toml").read_text()
    for tag in tomllib.loads(text)["sources"]:
        assert re.search(rf'(source|note) = "[^"\n]*\b{tag}\b', text), tag


def test_derived_figures_say_how(b2):
    figure = b2.figures["links.memory.total_bytes_per_cycle"]
    assert figure.confidence == "derived"
    assert "efficiency" in figure.source


@pytest.mark.parametrize("plain", PLAIN)
def test_every_product_says_what_its_evidence_is(plain):
    assert len(load_profile(plain).evidence) > 20
    assert ("no kernel measurement" in load_profile(plain).evidence) == (plain == "310P")


# ---- Are the structures what the documents say?


def test_paths_of_the_910b_family():
    for name in ("910B", "910_93"):
        p = load_profile(name)
        assert p.core_structure == "split"
        assert p.has_path("L0C", "GM")
        assert p.has_path("L1", "GM")
        for absent in (("L0C", "UB"), ("UB", "L1"), ("L1", "UB")):
            assert not p.has_path(*absent)


def test_paths_of_the_910_95():
    p = load_profile("910_95")
    assert p.core_structure == "split"
    for present in (("L0C", "GM"), ("L0C", "UB"), ("UB", "L1"), ("L0C", "L1")):
        assert p.has_path(*present)
    assert not p.has_path("L1", "GM")


@pytest.mark.parametrize("name", ["310P", "910"])
def test_unified_products_have_no_fixpipe(name):
    p = load_profile(name)
    assert p.core_structure == "unified"
    assert not p.has_path("L0C", "GM")
    assert p.path("L0C", "UB").pipe == "V"
    assert "FIX" not in {path.pipe for path in p.paths.values()}
    assert dict(p.fixpipe.elements_per_cycle) == {}
    assert "BT" not in p.buffers


def test_the_910b_has_the_documented_rates_and_not_the_file_s_stale_ones(b2):
    assert b2.paths["L1_L0A"].bytes_per_cycle == 256
    assert b2.paths["L1_L0B"].bytes_per_cycle == 128


def test_cube_rates_by_dtype():
    # MAC/cycle/core of the theoretical performance table
    tables = {
        "910B": {"float16": 4096, "bfloat16": 4096, "float32": 1024, "hf32": 2048, "int8": 8192},
        "910": {"float16": 4096, "int8": 8192},
        "910_95": {
            "float16": 4096,
            "bfloat16": 4096,
            "float32": 256,
            "hf32": 2048,
            "int8": 8192,
            "float8_e4m3fn": 8192,
            "float8_e5m2": 8192,
            "hifloat8": 8192,
        },
    }
    for name, table in tables.items():
        rates = load_profile(name).cube.rates
        assert {dtype: rate.macs_per_cycle for dtype, rate in rates.items()} == table


def test_k0_is_32_bytes_of_the_operand(b2):
    assert {d: r.k0 for d, r in b2.cube.rates.items()} == {
        "float16": 16,
        "bfloat16": 16,
        "float32": 8,
        "hf32": 8,
        "int8": 32,
    }


def test_hf32_width_differs_and_is_refused_where_there_is_none(b2):
    assert b2.cube.hf32_mantissa_bits == 11
    assert load_profile("910_95").cube.hf32_mantissa_bits == 10
    with pytest.raises(UnsupportedError, match="hf32"):
        _ = load_profile("910").cube.hf32_mantissa_bits


def test_accumulation_blocks_are_the_cube_s_k_per_cycle():
    for name in PLAIN:
        p = load_profile(name)
        for dtype, model in p.accumulation.items():
            block_k = p.cube.rates[dtype].block_k
            assert model == (f"block:{block_k}:RNE" if block_k > 1 else "seq:RNE")


def test_only_the_950_is_deterministic_by_default():
    assert {name for name in PLAIN if load_profile(name).deterministic_default} == {"910_95"}


def test_queues_of_the_two_kinds_of_core(b2):
    assert b2.queues["MTE2"] == 32
    assert b2.vector_queues["MTE2"] == 16
    assert b2.queues["V"] == b2.vector_queues["V"] == 64
    unified = load_profile("910")
    assert unified.queues == unified.vector_queues


# ---- Are the rate laws the documents'?


@pytest.mark.parametrize(
    ("stride", "rows", "l0a_cycles", "l0b_cycles"),
    [  # of a 512-byte fractal, from the theoretical performance table of the 2201
        (1, 1, 2, 4),  # 256 and 128 bytes a cycle
        (1, 2, 4, 6),  # n + 2, n + 4
        (1, 16, 16, 18),  # 18 and 20, limited to 32 bytes a cycle and 512 / 18
        (2, 1, 4, 6),  # 2 s, 2 s + 2
        (4, 3, 11, 13),  # 2 s + n, 2 s + 2 + n
        (8, 1, 16, 18),
        (8, 4, 16, 18),
        (3, 1, 16, 18),  # other strides
        (5, 7, 16, 18),
    ],
)
def test_load3d_follows_the_table(b2, stride, rows, l0a_cycles, l0b_cycles):
    assert b2.load3d_bytes_per_cycle("L0A", stride, rows) == Fraction(512, l0a_cycles)
    assert b2.load3d_bytes_per_cycle("L0B", stride, rows) == Fraction(512, l0b_cycles)
    a5 = load_profile("910_95")
    assert a5.load3d_bytes_per_cycle("L0B", stride, rows) == Fraction(512, l0a_cycles)


def test_totals_of_links_are_exact_and_follow_from_terabytes_and_clock(b2, profiles):
    # 1.6 TB/s x 0.90 / 1.8 GHz = 800 bytes a cycle
    assert b2.links["memory"].total_bytes_per_cycle == 800
    # 5.2 x 0.95 / 1.8 = 2744.444..., rounded down to thousandths
    assert b2.links["l2_read"].total_bytes_per_cycle == Fraction(2744444, 1000)
    for profile in profiles.values():
        for link in profile.links.values():
            assert isinstance(link.total_bytes_per_cycle, int | Fraction)
            assert Fraction(link.per_core_bytes_per_cycle).denominator <= 1000


def test_times_become_cycles_of_the_cube_clock_rounded_up():
    assert load_profile("910B").sync.barrier_cycles == 1800  # 1 us at 1800 MHz
    assert load_profile("910B").scalar.start_cycles == 3942  # 2.19 us
    assert load_profile("910B", {"sync.barrier_us": 0.3001}).sync.barrier_cycles == 541  # 540.18


def test_launch_grows_with_the_cores(b2):
    # the task durations of 910B2 convolutions exceed their core times by 1.5 to 5.2 us
    assert b2.launch_us(1) < b2.launch_us(24)
    assert 1.5 <= b2.launch_us(24) <= 5.2


# ---- Do bad files say why?


def test_all_problems_of_a_file_come_in_one_error(tmp_path):
    path = write(
        tmp_path,
        """
        base = "910B3"
        [cores]
        cube = { value = "20", source = "guess", confidence = "measured" }
        vector = { value = 40, confidence = "sure" }
        [links.memory]
        efficency = { value = 0.9, source = "guess", confidence = "measured" }
        efficiency = { value = 0.95, source = "guess", confidence = "assumed" }
        [paths.GM_L0C]
        [l2]
        capacity_bytes = 5
        line_bytes = { vaule = 512, source = "guess", confidence = "measured" }
        """,
    )
    message = refusal(path)
    assert f"{path}: 9 problems" in message
    for line in (
        "cores.cube.value: got '20', expected an integer of at least 1",
        "cores.vector.source: missing; expected a text that says where the value comes from",
        "cores.vector.confidence: got 'sure', expected one of vendor file, vendor doc, measured",
        "links.memory.efficency: unknown key; did you mean efficiency?",
        "links.memory.efficiency: an assumed figure must carry a range",
        "paths.GM_L0C: unknown key; did you mean",
        "l2.line_bytes.value: missing; expected an integer of at least 1",
        "l2.line_bytes.vaule: unknown key; did you mean value?",
        "l2.capacity_bytes: got 5, expected a figure { value, source, confidence }, its value an integer",
    ):
        assert f"{path}: {line}" in message


def test_a_missing_figure_is_named_and_never_filled_in(tmp_path):
    text = (configs_directory() / "910B.toml").read_text()
    path = write(tmp_path, re.sub(r"(?m)^issue_cycles = .*$", "", text))
    assert "scalar.issue_cycles: missing; expected a figure" in refusal(path)


def test_a_problem_in_a_variant_names_the_variant(tmp_path):
    text = (configs_directory() / "910B.toml").read_text()
    text = text.replace(
        'cores.cube = { value = 24, source = "INI Ascend910B2.ini"', "cores.cube = { value = 0"
    )
    message = refusal(write(tmp_path, text))
    assert "variants.910B2.cores.cube.value: got 0, expected an integer of at least 1" in message
    assert "variants.910B2.cores.cube.source: missing" in message


@pytest.mark.parametrize(
    ("figure", "why"),
    [
        ('value = 0.9, source = "x", confidence = "assumed", range = [0.95, 1.0]', "the value inside"),
        ('value = 0.9, source = "x", confidence = "assumed", range = [0.9]', "[low, high]"),
        ('value = 0.9, source = "", confidence = "measured"', "where the value comes from"),
        ('value = nan, source = "x", confidence = "measured"', "a number from 0.01 to 1"),
        ('value = true, source = "x", confidence = "measured"', "a number from 0.01 to 1"),
        ('value = 0.9, source = "x", confidence = "measured", sorce = "y"', "did you mean source?"),
    ],
)
def test_a_bad_figure_says_why(tmp_path, figure, why):
    message = refusal(write(tmp_path, f'base = "910B"\n[links.memory]\nefficiency = {{ {figure} }}'))
    assert "links.memory.efficiency" in message
    assert why in message


def test_a_text_figure_must_be_among_its_alternatives(tmp_path):
    figure = 'value = "seq:RNE", source = "x", confidence = "assumed", range = ["block:16:RNE"]'
    message = refusal(write(tmp_path, f'base = "910B"\n[accumulation]\nfloat16 = {{ {figure} }}'))
    assert "accumulation.float16: the range must list the alternatives" in message


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"cores__vector": 0}, "cores.vector: got 0"),
        ({"paths.L0C_L1.pipe": "V", "queues": {"cube": {"M": 4}}}, "no queue depth"),
        ({"accumulation": {"float16": "seq:RNE"}}, "accumulation.float32: missing"),
    ],
)
def test_figures_that_contradict_each_other_are_refused(changes, why):
    with pytest.raises(ConfigError, match=re.escape(why)):
        toy_split(**changes)


def test_results_must_have_a_way_out_of_the_cube():
    with pytest.raises(ConfigError, match="results cannot leave the cube"):
        toy_split(without=("L0C_GM",))


def test_broken_toml_says_the_line(tmp_path):
    message = refusal(write(tmp_path, "[cores]\ncube = {\n"))
    assert "is not valid TOML" in message
    assert "line 2" in message


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    assert "cannot be read: No such file" in refusal(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    assert "not text in UTF-8" in refusal(tmp_path / "bytes.toml")


def test_a_file_may_not_be_its_own_base(tmp_path):
    write(tmp_path, 'base = "two.toml"', "one.toml")
    write(tmp_path, 'base = "one.toml"', "two.toml")
    assert "leads back to itself" in refusal(tmp_path / "one.toml")


def test_what_a_file_says_about_itself_is_checked_too(tmp_path):
    message = refusal(write(tmp_path, 'base = 910\nvariants = "B1"\nsources = 3'))
    for key in ("base: got 910", "variants: got 'B1'", "sources: got 3"):
        assert key in message


def test_an_unknown_product_gets_a_hint():
    assert "did you mean 910B?" in refusal("ascend910bx")
    assert "did you mean 310P3?" in refusal("Ascend310P33")
    assert "products are 310P, 910, 910B, 910_93, 910_95. The path of a .toml file" in refusal("gpu")


# ---- Do a user's own file and overrides work?


def test_a_file_of_one_s_own_changes_what_it_says_and_nothing_else(tmp_path):
    path = write(
        tmp_path,
        """
        base = "910B3"
        [links.memory]
        efficiency = { value = 0.93, source = "our stream test", confidence = "measured" }
        """,
        "lab.toml",
    )
    mine, base = load_profile(path), load_profile("910B3")
    assert (mine.product, mine.variant) == ("910B", "lab")
    assert mine.figures["links.memory.efficiency"].source == "our stream test"
    differing = {path for path in base.figures if mine.figures[path] != base.figures[path]}
    assert differing == {"links.memory.efficiency", "links.memory.total_bytes_per_cycle"}


def test_a_base_beside_the_file_is_found_from_anywhere(tmp_path, monkeypatch):
    write(tmp_path, 'base = "910"', "one.toml")
    path = write(tmp_path, 'base = "one.toml"\nvariant = "two"', "two.toml")
    monkeypatch.chdir("/")
    assert load_profile(path).variant == "two"


def test_overrides_replace_values_and_leave_a_trace(b2):
    p = load_profile("910B", {"cores.cube": 30, "links.memory.efficiency": 0.8})
    assert p.cores.cube == 30
    assert p.links["memory"].total_bytes_per_cycle == Fraction(711111, 1000)  # 1.6e6 x 0.8 / 1800
    figure = p.figures["cores.cube"]
    assert (figure.value, figure.confidence) == (30, "override")
    assert "910B2 has 24" in figure.source
    assert b2.cores.cube == 24


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"cores.cub": 3}, "cores.cub: no such figure; did you mean cores.cube?"),
        ({"cores.cube": 0}, "cores.cube.value: got 0, expected an integer of at least 1"),
        ({"paths.L0C_UB.bytes_per_cycle": 3}, "paths.L0C_UB.bytes_per_cycle: no such figure"),
        ({"sync.barrier_cycles": 3}, "it follows from barrier_us"),
        ({"cores.vector": 0}, "expected at least 1 where core_structure is split"),
    ],
)
def test_bad_overrides_say_why(overrides, why):
    assert why in refusal("910B", overrides)


# ---- What kind of value is a profile?


def test_a_profile_is_frozen_and_its_own_key(b2):
    with pytest.raises(dataclasses.FrozenInstanceError):
        b2.variant = "x"
    with pytest.raises(TypeError):
        b2.paths["GM_L1"] = None
    again = load_profile("910B")
    assert {b2: 1, again: 2} == {again: 2, b2: 1}
    assert b2 != again


def test_what_a_product_lacks_is_refused_by_name(b2):
    with pytest.raises(UnsupportedError, match="910B2 has no path L0C->UB"):
        b2.path("L0C", "UB")
    with pytest.raises(UnsupportedError, match="does not take hifloat8"):
        b2.cube.rate("hifloat8")


def test_figures_can_be_sent_elsewhere(b2):
    figure = b2.figures["cores.cube"]
    assert pickle.loads(pickle.dumps(figure)) == figure


def test_the_toys_are_tiny_and_can_be_changed():
    split, unified = (
        toy_split(cube__mmad_head_cycles=0, **{"paths.GM_L1.bytes_per_cycle": 0.5}),
        toy_unified(),
    )
    assert split.cube.mmad_head_cycles == 0
    assert split.paths["GM_L1"].bytes_per_cycle == Fraction(1, 2)
    assert split.has_path("L0C", "GM")
    assert not unified.has_path("L0C", "GM")
    assert unified.links["l2_read"].total_bytes_per_cycle == 128
    assert unified.buffers["L1"].capacity_bytes == 8192


# ---- Is it where it must be, and quick?


def test_an_installed_package_brings_its_products(tmp_path):
    """Lay the package out as the wheel does, with the files inside, and load from another directory."""
    package = Path(ascendsim.__file__).parent
    shutil.copytree(package, tmp_path / "ascendsim", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(configs_directory(), tmp_path / "ascendsim" / "configs", dirs_exist_ok=True)
    code = (
        "from ascendsim.profile import *; p = load_profile('910_93'); print(p.variant, configs_directory())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd="/",
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["910_9382", str(tmp_path / "ascendsim" / "configs")]


def test_loading_needs_no_heavy_library():
    code = "import sys; from ascendsim.profile import load_profile; load_profile('910B'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "pydantic_core" in loaded
    assert not loaded & {"pydantic", "numpy", "ml_dtypes", "numba", "matplotlib", "simpy", "rich"}
