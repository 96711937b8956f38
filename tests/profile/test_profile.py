"""Does every product load, under which names, quickly and from where?"""

import dataclasses
import pickle
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import ascendsim
from ascendsim.errors import UnsupportedError
from ascendsim.profile import configs_directory, list_products, load_profile
from tests.helpers.shipped_products import EVERY, PLAIN
from tests.helpers.toy_profiles import toy_split, toy_unified

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


# ---- What kind of value is a profile?


def test_a_profile_is_frozen_and_its_own_key(b2):
    with pytest.raises(dataclasses.FrozenInstanceError):
        b2.variant = "x"
    with pytest.raises(TypeError):
        b2.paths["GM_L1"] = None
    again = load_profile("910B", {"cores.cube": b2.cores.cube})
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
    assert not loaded & {"pydantic_core", "numpy", "ml_dtypes", "numba", "matplotlib", "simpy", "rich"}
