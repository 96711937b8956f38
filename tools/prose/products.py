"""Matrix products, with the plans that sources give, as columns."""

import re
from collections.abc import Sequence
from typing import Any

from ascendsim.profile import Profile, load_profile
from ascendsim.validate.msprof import OLDER, is_turned
from prose.raw import Raw, SkipError, busy_us

GROUPS = (
    ("pto-gemm", "published tilings"),
    ("ad-mm8192-case0", "published tilings"),
    ("ad-mm8192-case1", "published tilings"),
    ("ad-mm8192", "inferred tilings"),
    ("cat-opt", "inferred tilings"),
    ("msi-llm", "other, A2 generation"),
    ("mstt", "other, A2 generation"),
    ("cb-gemm", "other, A2 generation"),
    ("hpm", "other, first generation"),
    ("aicn-mm-", "bfloat16, 24 cores of the A2 generation"),
)
FORMATS = {"mxfp8": "float8_e4m3fn"}
# Words of a source, any of which says that its numbers are no measurement of these sizes.
REFUSALS = ("EXCLUDE", "do not use", "shape incomplete", "SHAPES NOT IN THE TRACE")
# The sample in which the vendor tunes 8192 x 8192 x 8192 step by step.
SAMPLE = "matrix_compute/matmul_high_performance"
# Profiles of steps of networks whose weights and activations are more than L2 holds: the first operand
# (activation, or gradient of the next layer) was just written, the other a pass ago.
STEPS = ("Ascend/msinsight", "Ascend/mstt")
# Runs whose operands all came from memory though no source says so. On the first generation batches
# of products in such steps run at memory's rate whether they move 19 MB or 400 MB; in one sample of matrix
# products MTE2 is as busy as misses make it (28 us at 1536; the model has 27 with them, 24 without).
FROM_MEMORY = ("Huawei-Performance-Model", "pto-isa")
# Runs with known tiles: steps of k that L1 holds at once, and the pipes whose counters are compared.
MOST_STEPS_IN_L1 = 4
TILE_PIPES = {"M": "m_us", "MTE1": "mte1_us", "FIX": "fix_us"}

# Runs in which so many weights take turns with one activation: that and the result are in L2, the weights if
# all of them fit beside the two.
ROTATING, WEIGHTS = "aicn-mm-", 6

# The times of one problem under a library's default tiling, and under the one that its guide comes to.
BASELINE, OPTIMISED = "baseline_us", "optimised_us"
# Rows, columns and reduction of the default block, 24 of which 20 cores take in two rounds; and of blocks
# that they take in one: the default turned, 4 x 5 of them, and 20 of 320 columns, whose slices L0B holds.
DEFAULT_BLOCK = 128, 256, 64
TUNED_BLOCKS = {"cat-opt-a": (256, 128, 64), "cat-opt-b": (32, 320, 48)}

Cells = dict[str, Any]


def is_product(raw: Raw) -> bool:
    """Tell whether a line measured a plain matrix product as one kernel, or the pipes of one."""
    name = raw.op.lower()
    fused = any(word in name for word in ("fusion", "quant", "grouped", "split-k", "mxfp4", "gelu"))
    return (("matmul" in name or "gemm" in name) and not fused) or is_tiles(raw)


def is_tiles(raw: Raw) -> bool:
    """Tell whether a line counted the pipes of one core over whole tiles."""
    return raw.id.startswith("cz-")


def l2_start_of(raw: Raw) -> str:
    """Return what L2 held of the operands: "warm" unless the source or its times tell otherwise."""
    if raw.id.startswith(ROTATING):
        return _rotated(raw)
    if "cold L2" in raw.notes or any(name in raw.source for name in FROM_MEMORY):
        return "cold"
    return "handed" if any(name in raw.source for name in STEPS) else "warm"


def _rotated(raw: Raw) -> str:
    """Return what L2 held in runs whose weights take turns."""
    m, k, n = (raw.sizes.get(key) or 0 for key in "MKN")
    held = 2 * (m * k + WEIGHTS * k * n + m * n)
    fits = held <= load_profile("910B1").l2.capacity_bytes
    return "warm" if fits else "handed"


def compute_dtype_of(raw: Raw) -> str:
    """Return what the cube multiplied."""
    single = raw.dtype in ("float32", "hf32")
    if single and (raw.math_mode.startswith("HF32") or "HF32 Eligible=YES" in raw.math_mode):
        return "hf32"
    return FORMATS.get(raw.dtype, raw.dtype)


def product_cells(raw: Raw, variant: str) -> Cells:
    """Return the columns of a product; those of its plan if the source gives one."""
    if raw.us is None:
        raise SkipError("gives no time")
    for word in REFUSALS:
        if word in raw.notes:
            raise SkipError(f"its source says: {word.lower()}")
    m, k, n = (raw.sizes.get(key) for key in "MKN")
    if m is None or k is None or n is None:
        raise SkipError("its sizes are not all given")
    turned_b = "B transposed" in raw.layout or "B n x k" in raw.layout
    return {
        "measured_us": raw.us,
        "compute_dtype": compute_dtype_of(raw),
        "l2_start": l2_start_of(raw),
        "m": m,
        "k": k,
        "n": n,
        "batch": raw.sizes.get("batch") or 1,
        "transpose_a": _turned(raw, "transA", "A", (m, k)) or _ends_in(raw, m, k),
        "transpose_b": _turned(raw, "transB", "B", (k, n))
        or turned_b
        or raw.sizes.get("transpose_b") is True,
        "layout": "NZ" if "NZ" in raw.layout else "ND",
        "blocks": raw.counters.get("block_dim"),
        # The kernel's name in those runs is one for all rows of the table, none that was profiled.
        "strategy": "search" if raw.op == OLDER and not raw.id.startswith(ROTATING) else None,
        "group": next((group for prefix, group in GROUPS if raw.id.startswith(prefix)), None),
        **busy_us(raw),
        **_plan(raw, load_profile(variant)),
    }


def _turned(raw: Raw, flag: str, shape: str, plain: Sequence[int]) -> bool:
    """Tell whether an operand is stored the other way round, from a flag or from its shape."""
    if isinstance(raw.sizes.get(flag), bool):
        return raw.sizes[flag]
    stored = raw.sizes.get(shape)
    return isinstance(stored, list) and is_turned(tuple(stored), tuple(plain))


def _ends_in(raw: Raw, m: int, k: int) -> bool:
    """Tell whether the profiler's list of inputs has a first one whose rows are those of a turned a."""
    listed = re.match(r"[\d,]*?(\d+);", str(raw.counters.get("input_shapes", "")))
    return listed is not None and m != k and int(listed[1]) == m


def _plan(raw: Raw, profile: Profile) -> Cells:
    """Return the plan that a source gives, what of it is inferred, and the format of its results."""
    tuning = str(raw.counters.get("tuning", ""))
    if tuning and SAMPLE in raw.source:
        return _sample_plan(tuning, profile) | {"out_dtype": "float16"}
    return _grid_plan(raw, profile) if "base" in raw.counters else {}


def _grid_plan(raw: Raw, profile: Profile) -> Cells:
    """Return the plan of a kernel that cuts c into a grid with one block for each core."""
    m, k, n = extents(raw, "base", 3)
    down, across = extents(raw, "split", 2) if "split" in raw.counters else (4, profile.cores.cube // 4)
    base = {"base_m": m, "base_n": n, "base_k": k, "step_ka": 4, "step_kb": 4}
    return base | {
        "single_core_m": -(-raw.sizes["M"] // down),
        "single_core_n": -(-raw.sizes["N"] // across),
        "used_cores": down * across,
        "out_dtype": "float32",
        "inferred": "four slices in L1 and float32 results inferred",
    }


def extents(raw: Raw, name: str, count: int) -> list[int]:
    """Return a counter such as "128x64x256" as positive numbers."""
    told = str(raw.counters[name])
    if not re.fullmatch("x".join(["[1-9][0-9]{0,8}"] * count), told):
        raise SkipError(f"its {name} is {told!r}; it must be {count} positive numbers with an x between them")
    return [int(part) for part in told.split("x")]


def _sample_plan(tuning: str, profile: Profile) -> Cells:
    """Return the plan of a step of the vendor's tuning walk through 8192 x 8192 x 8192."""
    wide = profile.buffers["L0C"].capacity_bytes >= 256 * 1024
    m, n = (256, 256) if wide else (128, 256)
    if "base 64x64x64" in tuning:
        m = n = 64
    base: Cells = {"base_m": m, "base_n": n, "base_k": 64}
    once = base | {"al1_buffers": 1, "bl1_buffers": 1}
    if "single core" in tuning:
        note = "one copy in L1, one slice, the whole product one block: inferred from the counters"
        return once | {"single_core_m": 8192, "single_core_n": 8192, "used_cores": 1, "inferred": note}
    narrow = "2x12" in tuning
    down, across = (4, 8) if wide else ((2, 12) if narrow else (4, 6))
    unit = 16 if narrow else n  # columns of a core's block are a multiple of
    grid: Cells = {"single_core_m": 8192 // down, "single_core_n": -(-8192 // across // unit) * unit}
    grid["used_cores"] = down * across
    if "multi-core split" in tuning:
        return once | grid | {"inferred": f"grid of {down} x {across}, one copy in L1, one slice: inferred"}
    note = f"grid of {down} x {across}, two copies of four slices in L1: inferred"
    if "L2 split" in tuning and wide:
        grid |= {"single_core_n": grid["single_core_n"] // 2, "swizzle": down}
        note += "; half the columns at a time"
    step_b = 2 if "MDL" in tuning and not wide else 4
    if step_b == 2:
        note += ", two of b"
    return base | grid | {"step_ka": 4, "step_kb": step_b, "inferred": note}


def tuned_cells(raw: Raw, variant: str) -> list[Cells]:
    """Return the columns of a product that was timed under two tilings: the optimised one, and the baseline.

    Raises   SkipError where nothing says what the optimised one is
    """
    if raw.id not in TUNED_BLOCKS:
        raise SkipError("its tilings are not known")
    cells, profile = product_cells(raw, variant), load_profile(variant)
    m, n, size = cells["m"], cells["n"], profile.l2.capacity_bytes
    fits = 2 * (m * cells["k"] + cells["k"] * n + m * n) <= size
    cells |= {
        "layout": "NZ" if "B in zN" in raw.notes else "ND",
        "l2_start": cells["l2_start"] if fits else "handed",
        "used_cores": profile.cores.cube,
    }
    found = []
    sides = (raw.id, OPTIMISED, TUNED_BLOCKS[raw.id]), (f"{raw.id} baseline", BASELINE, DEFAULT_BLOCK)
    for name, time, (rows, columns, slice_) in sides:
        note = f"blocks of {rows} x {columns} x {slice_}, four slices in L1: inferred"
        plan = {"base_m": rows, "base_n": columns, "base_k": slice_, "step_ka": 4, "step_kb": 4}
        found.append(cells | plan | {"id": name, "measured_us": raw.counters[time], "inferred": note})
    return found


def tile_cells(raw: Raw, variant: str) -> list[Cells]:
    """Return the columns of a run with known tiles, once for each pipe of one core that was counted.

    Its cores share 8 rows of 4 tiles, as 12 of its 20 cores took two tiles and 8 took one.
    """
    busy = busy_us(raw)
    untold = [pipe for pipe, column in TILE_PIPES.items() if not busy.get(column)]
    if untold:
        raise SkipError(f"gives no busy time of {', '.join(untold)}")
    steps = raw.sizes["k_steps_inferred"]
    m, n, k = (raw.sizes[key] for key in ("baseM", "baseN", "baseK"))
    # Up to four steps stay in L1 as a whole, once; beyond that two are brought while two are used.
    held, copies = (steps, 1) if steps <= MOST_STEPS_IN_L1 else (2, 2)
    sizes = {"m": 8 * m, "k": steps * k, "n": 4 * n, "compute_dtype": "float16", "out_dtype": "float16"}
    tile = {"base_m": m, "base_n": n, "base_k": k, "step_ka": held, "step_kb": held}
    block = {"single_core_m": m, "single_core_n": n, "used_cores": load_profile(variant).cores.cube}
    buffers = {"al1_buffers": copies, "bl1_buffers": copies, "bl0_buffers": 1}
    cells = {
        "tiles_on_core": raw.sizes["tiles_on_core"],
        "group": "pipes of one core",
        "inferred": "m, n, k and what L1 holds inferred from the number of tiles and the cube's time",
    }
    return [
        {"id": f"{raw.id} {pipe}", "pipe": pipe, "measured_us": busy[column]}
        | (sizes | tile | block | buffers | cells)
        for pipe, column in TILE_PIPES.items()
    ]
