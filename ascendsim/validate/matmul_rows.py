"""Measured matrix products as problems and plans; a plan that the source does not give is named inferred."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ascendsim.errors import ShapeError
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.hf32 import stored_name
from ascendsim.ops.problems.matmul import MatmulGemm, MatmulProblem
from ascendsim.ops.tiling.choose import choose_tiling
from ascendsim.ops.tiling.vendor.matmul import basic_tiling, product_tiling
from ascendsim.validate.rows import l2_start_of

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.validate.rows import Row

# The kernel before MatMulV3; its counters are not those of basic blocks.
OLDER = "MatMulV2"
# Operand formats by what the sources write.
_FORMATS = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float32",
    "hf32": "float32",
    "mxfp8": "float8_e4m3fn",
}
# The sample in which the vendor tunes 8192 x 8192 x 8192 step by step.
SAMPLE = "matrix_compute/matmul_high_performance"


@dataclass(frozen=True)
class Run:
    """How to run a measured product: the call, and what was inferred for it."""

    problem: MatmulProblem
    dtype: str
    cube_math_type: int
    tiling: Tiling
    out_dtype: str | None = None
    l2_start: str = "warm"
    note: str = ""


def run_of(row: Row, profile: Profile) -> Run | str:
    """Return how to run a row, or why it cannot be."""
    dtype = _FORMATS.get(row.dtype)
    if dtype is None or (dtype not in profile.cube.rates and dtype != "float32"):
        return f"operands of {row.dtype} are not multiplied here"
    problem = _problem(row)
    if isinstance(problem, str):
        return problem
    math_type = 3 if "HF32 Eligible=YES" in row.math_mode or row.math_mode.startswith("HF32") else 0
    start = l2_start_of(row)
    plan = _published_plan(row, profile)
    if plan is not None:
        tiling, note, out = plan
        return Run(problem, dtype, math_type, tiling, out, start, note)
    rate = "hf32" if math_type == 3 else dtype
    tiling, note = _chosen(row, problem, profile, rate)
    return Run(problem, dtype, math_type, tiling, None, start, f"tiling inferred: {note}")


def _problem(row: Row) -> MatmulProblem | str:
    """Return the product of a row from M, K, N and, where given, the stored shapes of a and b."""
    sizes = {key: row.sizes.get(key) for key in "MKN"}
    if not all(isinstance(value, int) for value in sizes.values()):
        return "its sizes are not all given"
    m, k, n = (int(row.sizes[key]) for key in "MKN")
    turned_a = _turned(row.sizes, "transA", "A", (m, k)) or _ends_in(row, m, k)
    turned_b = (
        _turned(row.sizes, "transB", "B", (k, n)) or "B transposed" in row.layout or "B n x k" in row.layout
    )
    layout = "NZ" if "NZ" in row.layout else "ND"
    try:
        return MatmulProblem(m, k, n, int(row.sizes.get("batch") or 1), turned_a, turned_b, layout)
    except ShapeError as error:
        return str(error)


def _ends_in(row: Row, m: int, k: int) -> bool:
    """Tell whether the profiler's list of inputs has a first one whose rows are those of a turned a."""
    listed = re.match(r"[\d,]*?(\d+);", str(row.counters.get("input_shapes", "")))
    return listed is not None and m != k and int(listed[1]) == m


def _turned(sizes: Mapping[str, Any], flag: str, shape: str, plain: tuple[int, int]) -> bool:
    """Tell whether an operand is stored the other way round, from a flag or from its shape."""
    if isinstance(sizes.get(flag), bool):
        return bool(sizes[flag])
    stored = sizes.get(shape)
    return isinstance(stored, list) and tuple(stored) != plain and tuple(stored[::-1]) == plain


def _chosen(row: Row, problem: MatmulProblem, profile: Profile, compute: str) -> tuple[Tiling, str]:
    """Return the plan for the number of blocks that ran, and what it is."""
    gemm = MatmulGemm.of(problem, compute)
    blocks = row.counters.get("block_dim")
    known = product_tiling(gemm, profile, blocks if isinstance(blocks, int) else None, basic=row.op != OLDER)
    if known is None:
        known = choose_tiling(
            problem, "product", stored_name(compute), profile, hf32=compute == "hf32"
        ).tiling
    basic = known == basic_tiling(gemm, profile, blocks)
    own = "this simulator's choice, both operands brought for every tile"
    return replace(known, reuse_l1=False), "the basic blocks of the product's kernels" if basic else own


def _published_plan(row: Row, profile: Profile) -> tuple[Tiling, str, str | None] | None:
    """Return the plan that a source gives, what of it is inferred, and the format of its results."""
    tuning = str(row.counters.get("tuning", ""))
    if tuning and SAMPLE in row.source:
        tiling, note = _sample_plan(tuning, profile)
        return tiling, note, "float16"
    base = re.fullmatch(r"(\d+)x(\d+)x(\d+)", str(row.counters.get("base", "")))
    if base:
        m, k, n = (int(number) for number in base.groups())
        return _grid_plan(row, m, k, n, profile), "four slices in L1 and float32 results inferred", "float32"
    return None


def _grid_plan(row: Row, m: int, k: int, n: int, profile: Profile) -> Tiling:
    """Return the plan of a kernel that cuts c into a grid with one block for each core."""
    grid = re.fullmatch(r"(\d+)x(\d+)", str(row.counters.get("split", "")))
    down, across = (int(number) for number in grid.groups()) if grid else (4, profile.cores.cube // 4)
    return Tiling(
        *(m, n, k, 4, 4),
        single_core_m=-(-int(row.sizes["M"]) // down),
        single_core_n=-(-int(row.sizes["N"]) // across),
        used_cores=down * across,
    )


def _sample_plan(tuning: str, profile: Profile) -> tuple[Tiling, str]:
    """Return the plan of a step of the vendor's tuning walk through 8192 x 8192 x 8192."""
    wide = profile.buffers["L0C"].capacity_bytes >= 256 * 1024
    m, n = (256, 256) if wide else (128, 256)
    if "base 64x64x64" in tuning:
        m = n = 64
    if "single core" in tuning:
        note = "one copy in L1, one slice, the whole product one block: inferred from the counters"
        one: dict[str, Any] = {"single_core_m": 8192, "single_core_n": 8192}
        return Tiling(m, n, 64, **one, al1_buffers=1, bl1_buffers=1), note
    down, across = (4, 8) if wide else ((2, 12) if "2x12" in tuning else (4, 6))
    grid: dict[str, Any] = {
        "single_core_m": 8192 // down,
        "single_core_n": -(-8192 // across // n) * n
        if "2x12" not in tuning
        else -(-8192 // across // 16) * 16,
        "used_cores": down * across,
    }
    if "multi-core split" in tuning:
        note = f"grid of {down} x {across}, one copy in L1, one slice: inferred"
        return Tiling(m, n, 64, al1_buffers=1, bl1_buffers=1, **grid), note
    note = f"grid of {down} x {across}, two copies of four slices in L1: inferred"
    if "L2 split" in tuning and wide:
        grid |= {"single_core_n": grid["single_core_n"] // 2, "swizzle": down}
        note += "; half the columns at a time"
    step_b = 2 if "MDL" in tuning and not wide else 4
    if step_b == 2:
        note += ", two of b"
    return Tiling(m, n, 64, 4, step_b, **grid), note
