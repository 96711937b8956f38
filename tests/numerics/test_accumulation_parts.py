"""Do the parts of the compiled kernels keep their promises, also in memory that was used before?"""

import math
import os
import random
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from threading import Thread

import numba
import numpy as np
import pytest

from ascendsim.native.default_arithmetic import control_word
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.accumulation_twins import rounded, term
from ascendsim.numerics.compiled import jit
from ascendsim.numerics.compiled.accumulate import accumulate
from ascendsim.numerics.compiled.block_sums import cut, is_normal
from ascendsim.numerics.compiled.packing import MOST_KEPT, SCRATCH, Scratch
from ascendsim.numerics.compiled.panel_rounding import (
    LIMBS,
    MODES,
    add_term,
    clear,
    exact_sum,
    half_by_addition,
    into_single,
    sticky_value,
    store,
    tile,
)
from ascendsim.numerics.compiled.panels import (
    LANES,
    ROWS,
    has_rounded,
    nearest_single,
    out_of_line,
    round_to_nearest,
    to_single,
)
from ascendsim.numerics.compiled.workspace import extent, is_narrow
from ascendsim.numerics.dtypes import FLOAT16, FLOAT32

# --- May kernel calls take their memory in turn? What an earlier call has left there changes no bit. ---

MODELS = [
    *("seq:RNE", "seq:RNA", "seq-muladd:RZ", "block:16:RNE", "block:16:RZ", "block:4:RNE+split3"),
    *("block-add:8:RNE:RZ", "tree:16:adjacent:RNE", "tree:8:halves:RNA", "align:16:F24:RZ:acc"),
    *("exact-mmad:RNE", "fp16-acc(seq:RNE)", "fp16-acc(block:4:RNE)"),
]


def operands(spread):
    rng = np.random.default_rng(spread)
    a, b = rng.standard_normal((10, 37)), rng.standard_normal((37, LANES + 3))
    a *= 2.0 ** rng.integers(-spread, spread + 1, a.shape)
    return a.astype(np.float32), b.astype(np.float32)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("spread", [0, 60])  # proven at once; summed with errors and as long integers
def test_what_another_call_has_left_changes_nothing(model, spread):
    a, b = operands(spread)
    results = []
    for left in (np.nan, 0.0, -1e30):
        c = np.zeros((len(a), b.shape[1]), np.float32)
        for element in (np.float64, np.float32):
            SCRATCH.lend(1, element).fill(left)
        accumulate(AccumulationModel.parse(model), a, b, c)
        results.append(c.tobytes())
    assert len(set(results)) == 1


def test_a_thread_never_gets_the_memory_of_another():
    ours, theirs = SCRATCH.lend(8, np.float64), []
    thread = Thread(target=lambda: theirs.append(SCRATCH.lend(8, np.float64)))
    thread.start()
    thread.join()
    assert not np.shares_memory(ours, theirs[0])


def test_memory_is_kept_unless_it_is_too_small_or_the_call_is_large():
    scratch = Scratch()
    first = scratch.lend(100, np.float64)
    assert scratch.lend(50, np.float64) is first
    assert scratch.lend(101, np.float64).size >= 101
    assert scratch.lend(7, np.float32).dtype == np.float32
    assert scratch.lend(MOST_KEPT + 1, np.float64).size > MOST_KEPT
    assert scratch.lend(100, np.float64).size <= MOST_KEPT


# --- Do the parts of the compiled kernels keep the promises that the kernels rely on? ------------------

PANEL = ROWS * LANES


@numba.njit
def round_to_half(x, result, mode):
    for first in range(0, x.size, PANEL):
        store(half_by_addition(tile(x, first, LANES), mode), result, first, LANES)


@numba.njit
def round_to_single(x, result, mode):
    for first in range(0, x.size, PANEL):
        store(into_single(tile(x, first, LANES), mode), result, first, LANES)


@numba.njit
def round_by_bits(x, result):
    for first in range(0, x.size, PANEL):
        store(to_single(nearest_single(tile(x, first, LANES))), result, first, LANES)


@numba.njit
def round_by_cutting(x, result):
    for first in range(0, x.size, PANEL):
        store(to_single(cut(tile(x, first, LANES))), result, first, LANES)


@numba.njit
def is_in_range(reach, unit):
    return is_normal(reach, unit)


@numba.njit
def add_exactly(x, y, result):
    for first in range(0, x.size, PANEL):
        store(exact_sum(tile(x, first, LANES), tile(y, first, LANES)), result, first, LANES)


def whole_panels(values: list[float], dtype: type) -> np.ndarray:
    """Return an array of the values, filled up with zeros to whole panels."""
    array = np.zeros(-(-len(values) // PANEL) * PANEL, dtype)
    array[: len(values)] = values
    return array


def is_sticky(found: float, exact: int) -> bool:
    """Tell whether a double stands for an exact value: equal, or beside it and odd."""
    numerator, denominator = found.as_integer_ratio()
    value = numerator * (1 << 400) // denominator
    if value == exact:
        return True
    odd = np.float64(found).view(np.int64) & 1 == 1
    return bool(odd) and abs(value - exact) < int(math.ulp(found) * 2.0**400)


@pytest.mark.parametrize("mode", MODES)
def test_rounding_into_binary16_by_addition_is_right_around_every_value(mode: str) -> None:
    # All finite halves of a few binades, the subnormals and the top; their midpoints, and neighbours of all.
    codes = [*range(0x0012), *range(0x03F0, 0x0410), *range(0x3BF8, 0x3C08), *range(0x7BF0, 0x7C00)]
    halves = [float(v) for v in np.array(codes, np.uint16).view(np.float16)] + [65536.0]
    points = halves + [(x + y) / 2 for x, y in pairwise(halves)]
    near = [float(np.nextafter(np.float32(p), np.float32(s))) for p in points for s in (0.0, 1e9)]
    values = [s * v for v in points + near + [1e30, 2.0**-149] for s in (1.0, -1.0)]
    x = whole_panels(values, np.float32)
    found = np.empty_like(x)
    round_to_half(x, found, MODES[mode])
    for value, result in zip(x.tolist(), found.tolist(), strict=True):
        assert result == rounded(term(value), mode, FLOAT16)
        assert math.copysign(1, result) == math.copysign(1, value)


def test_rounding_into_binary16_keeps_special_values() -> None:
    x = whole_panels([math.inf, -math.inf, math.nan], np.float32)
    for mode in MODES.values():
        found = np.empty_like(x)
        round_to_half(x, found, mode)
        assert found[:2].tolist() == [math.inf, -math.inf]
        assert math.isnan(found[2])


@pytest.mark.parametrize("mode", MODES)
def test_rounding_into_binary32_is_right_at_ties_and_edges(mode: str) -> None:
    # Values, midpoints and their double neighbours: around 1, in the subnormals, at the top, and below all.
    singles = np.array(
        [0, 1, 2, 3, 0x7FFFFF, 0x800000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x7F7FFFFF], np.uint32
    )
    base = [float(v) for v in singles.view(np.float32)]
    points = base + [v + math.ulp(v) * 2.0**28 for v in base[4:]] + [2.0**-150, 3 * 2.0**-150, 2.0**-200]
    values = [f for p in points for f in (p, math.nextafter(p, 0), math.nextafter(p, math.inf))]
    values += [-v for v in values] + [2.0**128, math.inf, -math.inf]
    x = whole_panels(values, np.float64)
    found = np.empty(x.shape, np.float32)
    round_to_single(x, found, MODES[mode])
    expected = [rounded(v if math.isinf(v) else exact_term(v), mode, FLOAT32) for v in x.tolist()]
    assert found.tolist() == expected


def test_a_process_that_compiles_nothing_else_can_set_the_rounding_mode():
    # Instructions in text need a part of the compiler that other code may have started by chance.
    code = (
        "import numba\n"
        "from ascendsim.numerics.compiled.panels import round_to_nearest, round_toward_zero\n"
        "@numba.njit\n"
        "def cut(x, y):\n"
        "    round_toward_zero()\n"
        "    total = x + y\n"
        "    round_to_nearest()\n"
        "    return total\n"
        "cut(1.0, 2.0)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_bits_round_to_nearest_singles_wherever_these_are_in_range() -> None:
    # Around singles, their midpoints and powers of two: at the largest multiples of a unit that a double
    # holds, in the middle of the range, and where singles are subnormal; zeros keep their sign.
    rng, cases = random.Random(3), [0.0, -0.0]
    for exponent in (-149, -130, 0, 30, 74):
        unit = 2.0**exponent
        assert is_in_range(0.999999 * 2.0**53 * unit, unit)
        for bits in (20, 24, 25, 26, 30, 52, 53):
            ends = [
                2 ** (bits - 1),
                2**bits - 1,
                *(rng.randrange(2 ** (bits - 1), 2**bits) for _ in range(40)),
            ]
            place = 2 ** max(bits - 24, 0)
            for number in ends:
                single, half = number // place * place, place // 2
                near = {n + d for n in (single, single + half, single + place) for d in (-2, -1, 0, 1, 2)}
                cases += [sign * n * unit for n in near | {number} for sign in (1, -1)]
    x = whole_panels(cases, np.float64)
    found = np.empty(x.shape, np.float32)
    round_by_bits(x, found)
    assert found.tobytes() == x.astype(np.float32).tobytes()


def test_cutting_rounds_toward_zero_wherever_it_is_taken() -> None:
    rng, values = random.Random(4), [0.0, -0.0, 2.0**-149, 2.0**-126 - 2.0**-149, 2.0**127]
    for exponent in (-149, 0, 74):
        values += [sign * rng.randrange(1, 2**bits) * 2.0**exponent
                   for bits in (1, 20, 24, 25, 40, 53) for sign in (1, -1) for _ in range(30)]  # fmt: skip
    x = whole_panels(values, np.float64)
    found = np.empty(x.shape, np.float32)
    round_by_cutting(x, found)
    for value, result in zip(values, found.tolist(), strict=False):
        assert result == (rounded(exact_term(value), "RZ", FLOAT32) if value else 0.0)
        assert math.copysign(1, result) == math.copysign(1, value)


def test_bits_are_not_rounded_beyond_the_range_of_singles() -> None:
    assert is_in_range(2.0**127, 2.0**100)
    assert not is_in_range(2.0**127 * 1.0001, 2.0**100)
    assert is_in_range(2.0**-140, 2.0**-149)
    assert not is_in_range(2.0**-140, 2.0**-150)


@numba.njit
def _added(x, y, result):
    out_of_line()
    result[0] = x + y


@numba.njit
def adds_without_rounding(x, y, result):
    round_to_nearest()
    _added(x, y, result)
    return not has_rounded()


@pytest.mark.skipif(not control_word().rounded, reason="this processor notes rounding in another word")
def test_the_processor_tells_whether_it_has_rounded_since_it_was_asked_to_forget() -> None:
    # A bit below the last place, far above and far below one, and what is exact after it.
    result = np.empty(1)
    for size in (1.0, 2.0**100, 2.0**-200):
        assert adds_without_rounding(size, size * 2.0**-52, result)
        assert not adds_without_rounding(size, size * 2.0**-53, result)
        assert not adds_without_rounding(size, -size * 2.0**-60, result)
    assert adds_without_rounding(1.0, 2.0, result)


def exact_term(value: float) -> int | float:
    """Return a double in units of 2^-298, with a trace of what lies below (rounding needs no more)."""
    scaled = abs(value) * 2.0**298
    whole = int(scaled) | (scaled != int(scaled))
    return (whole if value > 0 else -whole) or value


def test_an_exact_sum_of_two_doubles_is_sticky() -> None:
    rng = random.Random(5)
    pairs = [(rng.uniform(-2, 2) * 2.0 ** rng.randrange(-60, 60), rng.uniform(-2, 2)) for _ in range(300)]
    pairs += [(1.0, 2.0**-60), (1.0, -(2.0**-60)), (1 + 2.0**-52, -(2.0**-60)), (3.0, -3.0), (1.0, 2.0**-52)]
    x, y = (whole_panels([p[i] for p in pairs], np.float64) for i in (0, 1))
    found = np.empty_like(x)
    add_exactly(x, y, found)
    for a, b, total in zip(x.tolist(), y.tolist(), found.tolist(), strict=True):
        exact = sum(n * (1 << 400) // d for n, d in (a.as_integer_ratio(), b.as_integer_ratio()))
        assert is_sticky(total, exact)


def test_special_sums_are_those_of_ieee() -> None:
    x = whole_panels([math.inf, math.inf, math.nan, -0.0, -0.0], np.float64)
    y = whole_panels([1.0, -math.inf, 1.0, -0.0, 0.0], np.float64)
    found = np.empty_like(x)
    add_exactly(x, y, found)
    assert str(found[:5].tolist()) == "[inf, nan, nan, -0.0, 0.0]"


def long_sum(memory: np.ndarray, terms: list[float]) -> float:
    """Sum terms in a long integer that is zero before and after."""
    indices = [add_term(memory, 0, t) for t in terms]
    return float(sticky_value(memory, 0, min(indices), max(indices)))


def empty_memory() -> np.ndarray:
    memory = np.empty((1, LIMBS))
    clear(memory, 0)
    return memory


def test_long_integers_lose_nothing() -> None:
    rng = random.Random(2)
    memory = empty_memory()
    for count in (1, 2, 5, 40) * 25:
        terms = [
            rng.choice([-1, 1]) * rng.getrandbits(48) * 2.0 ** rng.randrange(-298, 208) for _ in range(count)
        ]
        terms += [-t for t in terms[: count // 2]]  # so that the largest cancel
        exact = sum(n * (1 << 400) // d for n, d in (t.as_integer_ratio() for t in terms))
        assert is_sticky(long_sum(memory, terms), exact)


def test_a_single_bit_far_below_decides_that_a_long_integer_is_odd() -> None:
    # 2^200 + 2^-290: the lowest bit is 13 limbs below the kept ones, and must still be seen. Just below 2^200
    # the odd neighbour is the next double down.
    memory, large, small = empty_memory(), 2.0**200, 2.0**-290
    assert long_sum(memory, [large, 0.0]) == large
    assert long_sum(memory, [large, small]) == large + math.ulp(large)
    assert long_sum(memory, [large, -small]) == math.nextafter(large, 0)
    assert long_sum(memory, [-large, small]) == -math.nextafter(large, 0)


def test_long_integers_go_to_both_ends_and_cancel_to_plus_zero() -> None:
    memory, largest = empty_memory(), (2.0**24 - 1) ** 2 * 2.0**208
    assert long_sum(memory, [2.0**-298]) == 2.0**-298
    assert long_sum(memory, [largest] * 4) == 4 * largest
    assert str(long_sum(memory, [-largest, 2.0**-298, largest, -(2.0**-298)])) == "0.0"
    assert not memory.view(np.int64).any()


@pytest.mark.parametrize(
    ("values", "largest", "lowest_bit"),
    [
        ([6.0, -0.75, 0.0], 6.0, 0.25),  # 0.75 = 3 * 2^-2
        ([0.0, -0.0], 0.0, math.inf),
        ([2.0**-149, 2.0**127], 2.0**127, 2.0**-149),
        ([1 + 2.0**-23], 1 + 2.0**-23, 2.0**-23),
        ([math.inf, 1.0], math.inf, 1.0),
    ],
)
def test_extents_are_the_largest_magnitude_and_the_lowest_bit(
    values: list[float], largest: float, lowest_bit: float
) -> None:
    array = np.array([[math.pi, *values, math.pi]], np.float32)
    assert extent(array, 1, 1 + len(values)) == (largest, lowest_bit)


def test_a_nan_admits_no_bound() -> None:
    largest, _ = extent(np.array([[1.0, math.nan]], np.float32), 0, 2)
    assert not largest <= math.inf


@pytest.mark.parametrize(
    ("value", "narrow"), [(1 + 2.0**-11, True), (1 + 2.0**-12, False), (2.0**31, False), (2.0**-31, False)]
)
def test_narrow_means_twelve_bits_and_a_middling_exponent(value: float, narrow: bool) -> None:
    assert is_narrow(np.array([[0.0, 1.0, value]], np.float32), 2.0**30) == narrow


def test_one_changed_character_gives_another_cache_folder(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    before = jit.sources_hash(tmp_path)
    (tmp_path / "a.py").write_text("x = 2\n")
    assert jit.sources_hash(tmp_path) != before
    (tmp_path / "a.py").write_text("x = 1\n")
    assert jit.sources_hash(tmp_path) == before


def run_python(code: str, **variables: str) -> str:
    environment = os.environ | variables
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_others_keep_the_cache_folder_they_set(tmp_path: Path) -> None:
    code = (
        "import numba, ascendsim.numerics.compiled.block_kernels\n"
        "from ascendsim.numerics.compiled.jit import cache_folder\n"
        "print(numba.config.CACHE_DIR, cache_folder())"
    )
    theirs, ours = run_python(code, NUMBA_CACHE_DIR=str(tmp_path)).split()
    assert theirs == str(tmp_path)
    assert Path(ours).parent == tmp_path / "ascendsim"


def test_cache_folders_of_other_sources_go_after_a_day(tmp_path: Path) -> None:
    base = tmp_path / "ascendsim"
    names = ("numba-old", "removed-old", "numba-recent", "native", "something else")
    for name in names:
        (base / name).mkdir(parents=True)
        (base / name / "code").write_text("")
        used = time.time() - 3600 * (1 if name == "numba-recent" else 25)
        os.utime(base / name, (used, used))
    code = "from ascendsim.numerics.compiled.jit import cache_folder; print(cache_folder())"
    ours = Path(run_python(code, NUMBA_CACHE_DIR=str(tmp_path)))
    left = {path.name for path in base.iterdir()}
    assert left == {*names, ours.name} - {"numba-old", "removed-old"}
    # Used again, although nothing was written: it must not look old to the next process.
    os.utime(ours, (used, used))
    run_python(code, NUMBA_CACHE_DIR=str(tmp_path))
    assert time.time() - ours.stat().st_mtime < 3600


def test_a_process_whose_cache_folder_is_removed_goes_on(tmp_path: Path) -> None:
    code = (
        "import shutil\n"
        "from ascendsim.numerics.compiled.jit import cache_folder, kernel\n"
        "folder = cache_folder(); shutil.rmtree(folder)\n"
        "from tests.helpers.native_functions import read_at\n"
        "import numpy as np\n"
        "print(kernel(read_at)(np.array([5, 6, 7]), 1), any(folder.glob('read_at-*')))"
    )
    found = run_python(code, NUMBA_CACHE_DIR=str(tmp_path))
    assert found == "6 True"


def test_without_a_cache_folder_kernels_are_compiled_for_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code = (
        "from ascendsim.numerics.compiled.jit import cache_folder, kernel\n"
        "from tests.helpers.native_functions import read_at\n"
        "import numpy as np\n"
        "print(cache_folder(), kernel(read_at)(np.array([5, 6, 7]), 1))"
    )
    found = run_python(code, NUMBA_CACHE_DIR="", XDG_CACHE_HOME=str(tmp_path / "file"), TMPDIR=str(tmp_path))
    assert found == "None 6"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
@pytest.mark.parametrize("features", ["", "+avx2,+fma,+f16c"])
def test_narrower_machines_give_the_same_bits(features: str, tmp_path: Path) -> None:
    import platform

    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the features are those of x86-64")
    code = (
        "import hashlib, numpy as np\n"
        "from tests.helpers.format_samples import CLASSES, GRIDS, tile\n"
        "from ascendsim.numerics.compiled.accumulate import accumulate\n"
        "from ascendsim.numerics.accumulation import AccumulationModel\n"
        "digest = hashlib.sha256(); np.seterr(all='ignore')\n"
        "for text in ('seq:RNE', 'block:16:RNE', 'block:4:RZ', 'tree:8:halves:RNE', 'align:16:F24:RZ:acc',\n"
        "             'fp16-acc(seq:RNE)', 'fp16-acc(block:4:RNE)'):\n"
        "    for kind in CLASSES:\n"
        "        for grid in GRIDS:\n"
        "            a, b, c = tile(kind, grid, 5, 19, 37)\n"
        "            accumulate(AccumulationModel.parse(text), a, b, c)\n"
        "            digest.update(np.where(np.isnan(c), np.float32(0), c).tobytes())\n"
        "print(digest.hexdigest())\n"
    )
    here = run_python(code, XDG_CACHE_HOME=str(tmp_path))
    there = run_python(
        code, XDG_CACHE_HOME=str(tmp_path), NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES=features
    )
    assert here == there
