"""Is every figure of a product sourced, and every fitted one marked with its rows?"""

import re
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest

from ablation import fitted
from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.profile import configs_directory, list_products, load_profile
from ascendsim.profile.memory import (
    L2,
    DataPath,
    FixpipeRates,
    LinkFigures,
    Load2d,
    Load3d,
    Package,
    Vector,
)
from ascendsim.studies.identify.folder import (
    FLOAT32,
    MODELS,
    TOLERANCE,
    effective_bits,
    rank_by_public_figures,
)
from tests.helpers.toy_machines import EVERY, PLAIN

# --- Is every figure of a product sourced, and are structures and laws what the documents say? ---------

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
    assert ("no convolution by itself" in load_profile(plain).evidence) == (plain == "310P")


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
    assert p.fixpipe == FixpipeRates()
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
    assert b2.load3d["L0A"].fractal_cycles(stride, rows) == l0a_cycles
    assert b2.load3d["L0B"].fractal_cycles(stride, rows) == l0b_cycles
    a5 = load_profile("910_95")
    assert a5.load3d["L0B"].fractal_cycles(stride, rows) == l0a_cycles


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


@pytest.mark.parametrize("plain", PLAIN)
def test_default_models_and_their_alternatives_have_names_that_parse(plain):
    for path, figure in load_profile(plain).figures.items():
        if path.startswith("accumulation."):
            assert [str(AccumulationModel.parse(text)) for text in figure.range] == list(figure.range)


# --- Is every figure that was fitted on measurements marked, with the rows that it was fitted on? ------

PRODUCTS = tuple(product.name for product in list_products())
# Measured figures that were fitted on no row of the table, by path, and why.
NOT_FITTED = {
    "paths.L1_GM.bytes_per_cycle": "a published peak; no row goes that way",
    "paths.UB_GM.bytes_per_cycle": "a published peak of the 910B; the other products are fitted",
    "paths.UB_GM.drain_bytes_per_cycle": "of the 910_93, as its rate: nothing slows down there",
    "paths.GM_UB.bytes_per_cycle": "of the 950DT, as what a core can take of the link, which binds it",
    "links.l2_read.efficiency": "a published rate of all cores; the rows at hand read memory, too",
    "links.l2_read.vector_tb_per_s": "the same; the 950DT has rows, and is fitted",
    "links.l2_read.per_core_bytes_per_cycle": "the rate of paths.GM_L1",
    "links.l2_read.per_vector_core_bytes_per_cycle": "the rate of paths.GM_UB",
    "links.l2_write.efficiency": "of the 910: kernels of other networks that add large results, no rows here",
    "links.memory.efficiency": "of the 310P: images a second of two networks; the other products are fitted",
    "links.l2_write.per_vector_core_bytes_per_cycle": "the rate of paths.UB_GM",
    "links.memory.per_vector_core_bytes_per_cycle": "a published plateau of one core of the 910_93",
    "l2.most_fetches": "fitted on half of the products of a table of its own, not of this one",
    "scalar.start_us": "read from a document about the 910B; the 910 has rows, and is fitted",
}
# What a figure of that name is where its mechanism takes no part: no time, one cycle, all of a rate.
NEUTRAL = {"head_cycles": 0, "efficiency": 1, "repeat_cycles": 1}


def neutral(path, value):
    """A measured figure that only confirms the plainest rule is no constant."""
    return any(part in NEUTRAL and value == NEUTRAL[part] for part in path.split(".")[-2:])


def unmarked(product):
    """The paths of the figures that were measured, say more than the plainest rule, and are not marked."""
    return {
        path
        for path, figure in load_profile(product).figures.items()
        if figure.confidence == "measured" and not figure.fitted_on and not neutral(path, figure.value)
    }


@pytest.mark.parametrize("product", PRODUCTS)
def test_every_measured_figure_is_marked_or_says_why_not(product):
    assert unmarked(product) <= set(NOT_FITTED)


def test_no_reason_is_given_in_vain():
    assert set(NOT_FITTED) <= set().union(*map(unmarked, PRODUCTS))


@pytest.mark.parametrize("product", PRODUCTS)
def test_without_a_fitted_figure_the_product_can_still_be_built(product):
    for path, figure in fitted(product).items():
        assert figure.confidence == "measured", path
        assert figure.source, path
        other = load_profile(product, overrides={path: figure.without}).figures[path]
        # A value that the caller gives was fitted on nothing.
        assert (other.value, other.fitted_on) == (figure.without, ()), path


@pytest.mark.parametrize(
    "marks",
    [
        'fitted_on = ["row"]',
        "without = 0.5",
        'fitted_on = ["row"], without = 0.9',  # the value itself
        'fitted_on = ["row"], without = 0.5, range = [0.8, 1.0]',
    ],
)
def test_a_mark_names_rows_and_another_value_of_a_measured_figure(tmp_path, marks):
    confidence = "assumed" if "range" in marks else "measured"
    path = tmp_path / "mine.toml"
    figure = f'{{ value = 0.9, source = "x", confidence = "{confidence}", {marks} }}'
    path.write_text(f'base = "910B"\n[links.memory]\nefficiency = {figure}\n')
    with pytest.raises(ConfigError, match=r"links\.memory\.efficiency: a fitted figure must be measured and"):
        load_profile(path)


def test_rows_are_a_list_of_texts_and_the_other_value_is_one_of_the_figure(tmp_path):
    path = tmp_path / "mine.toml"
    figure = '{ value = 0.9, source = "x", confidence = "measured", fitted_on = "row", without = "none" }'
    path.write_text(f'base = "910B"\n[links.memory]\nefficiency = {figure}\n')
    with pytest.raises(ConfigError) as caught:
        load_profile(path)
    assert "efficiency.fitted_on: got 'row', expected a list of texts" in str(caught.value)
    assert "efficiency.without: got 'none', expected a number from 0.01 to 1" in str(caught.value)


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_figure_taken_from_another_one_is_that_one(product):
    # "as on the 910B" and "as UB_GM" name the same figure there; longer texts say what differs.
    figures = load_profile(product).figures
    others = load_profile("910B").figures
    for path, figure in figures.items():
        source = figure.source.removeprefix("as ")
        twin = f"paths.{source.removeprefix('paths.')}.{path.rsplit('.', 1)[-1]}"
        if figure.source == "as on the 910B":
            assert figure.value == others[path].value, path
        elif source != figure.source and twin in figures:
            assert figure.value == figures[twin].value, path


# --- Do our models rank by the published figures of float32 as the page on arithmetic says? ------------

PAGE = (Path(__file__).parents[2] / "docs" / "arithmetic.md").read_text()


@pytest.fixture(scope="module")
def ranked():
    return rank_by_public_figures()


def test_four_exact_products_and_one_rounding_to_nearest_are_favoured(ranked):
    assert ranked[0].model == "block:4:RNE"
    # An align model with bits to spare rounds the same exact sums: the figures cannot tell the two apart.
    assert [one.model for one in ranked if one.fits] == ["block:4:RNE", "align:4:F26:RNE"]


def test_the_order_of_the_question_does_not_favour_a_model_that_fits_worse():
    backwards = rank_by_public_figures(MODELS[::-1])
    assert {one.model for one in backwards[:2]} == {"block:4:RNE", "align:4:F26:RNE"}
    assert not any(one.fits for one in backwards[2:])


def test_models_that_round_toward_zero_are_far_off(ranked):
    for one in ranked:
        if ":RZ" in one.model:
            assert one.off > 1.5


def test_the_metric_as_read_gives_the_figures_of_a_cpu():
    # Published for a CPU, which adds one product after the other: 23.0 and 23.5.
    for figure, bits in zip(FLOAT32, (23.0, 23.5), strict=True):
        assert effective_bits("seq:RNE", figure.work) == pytest.approx(bits, abs=TOLERANCE / 2)


def test_hf32_of_eleven_bits_to_nearest_fits_and_others_do_not():
    def off(width, ties):
        # Published for HF32: 12.7 on matrices of 64 x 64.
        return abs(effective_bits("block:8:RNE", (64, 64, 64), width, ties) - 12.7)

    assert off(11, "RNE") <= TOLERANCE
    assert min(off(11, "RZ"), off(10, "RNE"), off(10, "RNA")) > 0.9


def test_the_page_gives_these_figures(ranked):
    rows = dict(re.findall(r"^\| `([^`]+)` \| ([0-9.]+, [0-9.]+) \|", PAGE, re.MULTILINE))
    told = {one.model: ", ".join(f"{bits:.1f}" for bits in one.bits) for one in ranked}
    assert rows == told
    (k, m, n), (fewer, *_) = (figure.work for figure in FLOAT32)
    square, short = (figure.bits for figure in FLOAT32)
    assert k == m == n
    work = f" {square} for {m} x {n} matrices and {short} for sums of {fewer} products "
    assert work in " ".join(PAGE.split())


def test_what_a_product_does_not_state_costs_nothing_and_shares_nothing():
    path = DataPath("MTE2", 32, 1, 2)
    assert path[4:] == (0,) * 10
    assert path.requests(1000, 3) == (0, 0)
    assert (path.pace_cycles(9, 9), path.padding_cycles(9), path.writing_peak(10**6)) == (0, 0, 32)
    assert path.times(5) == (1, 2)
    assert path.turning == path
    assert FixpipeRates() == (0, 0, 0, 0, 0)
    assert Load2d(1, 2, 3).turned_block_cycles == 0
    law = Load3d(512, 2, 1, 16, 0, (1,), 6, "matrix")
    assert (law.transposes, law.turned_cycles, law.turned(9, 4)) == (False, 0, 0)
    assert L2(1, 1, 1)[3:] == (1, False)
    assert Package() == (1, None, None)
    vector = Vector(256, 0, 0, 0, {}, {}, {}, {})
    assert (vector.pixel_block_cycles, vector.tap_block_cycles) == (0, 0)
    link = LinkFigures(1.0, 1.0, 64, 64, 8, 4, 0)
    assert (link.of_a_pair, link.exact_shared_efficiency, link.vector_part) == (4, 1, 1)


def slow_requests(run, begin, whole):
    """Count the requests of a run of blocks: whole ones between boundaries, the rests in bursts."""
    count, at, end = 0, begin, begin + run
    while at < end:
        upto = min(end, at // whole * whole + whole)
        left = upto - at
        if left == whole:
            count += 1
        else:
            for burst in (16, 8, 4, 3, 2, 1):
                while left >= burst:
                    left, count = left - burst, count + 1
        at = upto
    return count


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("request_bytes", [32, 128, 512, 1024])
def test_requests_are_those_of_the_definition(request_bytes, aligned):
    path = DataPath("MTE2", 174, 0, 206, request_bytes=request_bytes, request_fixed_share=0.53)
    whole = request_bytes // 32
    for blocks in (*range(1, 40), 64, 65):
        for rows in (1, 3):
            starts = [0] if aligned else range(whole)
            count = Fraction(sum(slow_requests(blocks, begin, whole) for begin in starts), len(starts))
            # One byte of the last block of each run is enough.
            for size in (32 * blocks, 32 * (blocks - 1) + 1):
                found = path.requests(rows * size, rows, aligned)
                assert found.number == rows * count
                fixed = Fraction(53, 100)
                assert found.occupied_bytes == rows * (
                    fixed * count * request_bytes + (1 - fixed) * blocks * 32
                )


def test_the_rate_of_a_copy_by_its_requests():
    path = DataPath("MTE2", 100, 3, 206, spread_cycles=95, row_cycles=1.5, request_bytes=512)
    assert path.peak(4096, 0, Fraction(0)) == 100
    # Sixteen requests go at the pace of full ones, 8192 bytes: half the bytes in that time.
    assert path.peak(4096, 16, Fraction(0)) == 50
    assert path.peak(4096, 16, Fraction(6144)) == 75
    # With a pace of its own others go between; full requests waste nothing.
    assert path.peak(4096, 16, Fraction(6144), pace=1) == 150
    assert path.peak(8192, 16, Fraction(8192)) == 100
    # Rows at their own cycles beside requests of 5.12 cycles: 15 + 20.48.
    assert path.pace_cycles(10, 4) == 36
    assert path.padding_cycles(3) == 5
    # The farthest of n requests is on average 1 / (n + 1) of the spread nearer.
    assert [path.times(n) for n in (0, 1, 4, 95)] == [(3, 206), (3, 159), (3, 187), (3, 206)]


def test_a_write_leaves_at_the_pace_of_the_far_side_once_its_buffer_is_full():
    path = DataPath("MTE3", 100, 0, 0, buffer_bytes=1000, drain_bytes_per_cycle=50)
    # Of 4000 bytes 3000 are drained, in 60 cycles; 1500 leave 500, which take 10: slower is the way out.
    assert [path.writing_peak(size) for size in (1000, 1001, 1500, 4000)] == [100, 100, 100, Fraction(200, 3)]
    assert path._replace(drain_bytes_per_cycle=0).writing_peak(4000) == 100
    turned = path._replace(transposing_bytes_per_cycle=70).turning
    assert (turned.bytes_per_cycle, turned.pipe) == (70, "MTE3")


@pytest.mark.parametrize(
    ("size", "rows", "fetched"), [(1, 1, 128), (128, 1, 128), (129, 1, 256), (300, 3, 384), (390, 3, 768)]
)
def test_memory_answers_in_whole_sectors(size, rows, fetched):
    assert L2(1 << 20, 512, 128).fetched_bytes(size, rows) == fetched


def test_a_law_of_load3d_by_hand():
    law = Load3d(512, 2, 1, 16, 3, (1, 2, 4), 6, "line", turned_cycles=Fraction(7, 2))
    # Two cycles a stride, one a row from the second on, sixteen at most, and three more.
    cases = {(1, 1): 5, (1, 2): 7, (2, 1): 7, (4, 8): 19, (4, 9): 19, (3, 1): 19}
    assert {case: law.fractal_cycles(*case) for case in cases} == cases
    # A line goes along the longer side.
    assert [law.commands(*sides) for sides in ((4, 9), (9, 4), (5, 5))] == [4, 4, 5]
    assert law._replace(command_covers="matrix").commands(4, 9) == 1
    assert [law.turned(4, size) for size in (1, 2, 4)] == [0, 0, 14]
