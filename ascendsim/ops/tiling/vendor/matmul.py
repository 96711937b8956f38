"""The tilings of the products' own matrix products: what their operator plans, as far as the nest runs it."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import NamedTuple

from ascendsim.errors import CapacityError
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.folded import NEWEST, OLDER
from ascendsim.ops.problems.matmul import MatmulGemm
from ascendsim.ops.tiling.search.matmul import block_tiling, ranked
from ascendsim.ops.tiling.vendor import matmul_950
from ascendsim.ops.tiling.vendor.layer import other_cube
from ascendsim.ops.tiling.vendor.matmul_910b import plan_910b
from ascendsim.ops.tiling.vendor.matmul_templates import Matmul910Sizes
from ascendsim.profile import Profile

FORMATS = ("float32", "float16", "bfloat16")
# Rows of blocks that are walked together, column by column: the kernel of 910B walks tiles of L2 on a
# diagonal, which no tiling here can say.
PANEL = 4
MOST_SLICES = 4  # of k in a tile of L1 on 910_95


class OperatorTiling(NamedTuple):
    """The tiling of a product as its operator plans it; or None, and why not.

    rule   the rule that made it, and what of the operator's kernel it leaves out
    """

    tiling: Tiling | None
    rule: str


def operator_tiling(gemm: MatmulGemm, profile: Profile) -> OperatorTiling:
    """Return the plan of the operator of 910B, 910_93 or 910_95, where the nest of a product can run it.

    The bank of tuned plans, which the operator asks first, is not public.
    """
    reason = _unknown(gemm, profile)
    if reason:
        return OperatorTiling(None, reason)
    found = _of_910b(gemm, profile) if profile.npu_arch == OLDER else _of_950(gemm, profile)
    # The operator knows the parts that were made; a profile of one's own may have smaller buffers.
    if found.tiling is not None and not _fits(found.tiling, gemm, profile):
        return OperatorTiling(None, f"its blocks do not fit into the buffers of {profile.variant}")
    return found


def _unknown(gemm: MatmulGemm, profile: Profile) -> str:
    """Return why no rule is known for a product; "" where one is."""
    cube = other_cube(profile, gemm.compute_dtype)
    if cube:
        return cube
    if profile.npu_arch not in (OLDER, NEWEST):
        return "only the matrix products of 910B, 910_93 and 910_95 have known rules"
    if gemm.a.dtype not in FORMATS:
        return f"the rules of {gemm.a.dtype} are not known"
    if gemm.problem.batch > 1:
        return "a batch of products has an operator of its own, whose rules were never held against any plan"
    if gemm.problem.layout != "ND":
        return "the rules are for operands in rows, not for fractals"
    return ""


def _of_910b(gemm: MatmulGemm, profile: Profile) -> OperatorTiling:
    p, size = gemm.problem, gemm.a.itemsize
    plan = plan_910b(
        Matmul910Sizes(
            *(p.m, p.k, p.n, p.transpose_a, p.transpose_b, size, gemm.c.itemsize),
            hf32=gemm.compute_dtype == "hf32",
            bias=False,
            nz=False,
            cores=profile.cores.cube,
            l2=profile.l2.capacity_bytes,
        )
    )
    if plan is None:
        return OperatorTiling(None, "few rows: the operator takes them from code that is not public")
    if plan.split != "base" or plan.write_out != "base":
        return OperatorTiling(None, f"{plan.rule}: no nest here runs that")
    held = plan.full_load
    rows, columns, _ = plan.single_core
    blocks = ceil(p.m / rows) * ceil(p.n / columns)
    tiling = Tiling(
        *(*plan.base, plan.step_ka, plan.step_kb),
        al1_buffers=1 if held == "a" else 2,
        bl1_buffers=1 if held == "b" else 2,
        cl0_buffers=plan.l0c_copies,
        # A single-core block that is no base block is cut into tiles by itself.
        single_core_m=rows if rows > plan.base[0] else 0,
        swizzle=min(PANEL, plan.l2_tile_blocks[0]),
        used_cores=min(plan.used_cores, blocks),
        panels="rows",
        reuse_l1=held != "base",
        unit_flag=plan.l0c_copies == 1,
        fractals_first="a" * plan.convert_a + "b" * plan.convert_b,
    )
    return OperatorTiling(tiling, plan.rule)


def _of_950(gemm: MatmulGemm, profile: Profile) -> OperatorTiling:
    p, size = gemm.problem, gemm.a.itemsize
    if gemm.compute_dtype == "float32":
        return OperatorTiling(None, "the rules for float32 that is not rounded are not known well enough")
    plan = matmul_950.plan_950(
        matmul_950.Matmul950Sizes(
            *(p.m, p.k, p.n, p.transpose_a, p.transpose_b, size, gemm.c.itemsize),
            hf32=gemm.compute_dtype == "hf32",
            bias=False,
            cores=profile.cores.cube,
            ghz=profile.clock.cube_mhz / 1000,
            l2=profile.l2.capacity_bytes,
        )
    )
    if plan.rule != matmul_950.WINDOWS or plan.write_out != matmul_950.AT_ONCE:
        return OperatorTiling(None, f"{plan.rule}: no nest here runs that")
    m, n, k = plan.base
    steps = profile.buffers["L1"].capacity_bytes // (2 * (m + n) * k * size)
    left = "; left out: blocks of the last round cut in parts" if plan.tail != (1, 1) else ""
    tiling = Tiling(
        *(m, n, k, *(max(1, min(steps, MOST_SLICES)),) * 2),
        cl0_buffers=plan.l0c_copies,
        swizzle=min(PANEL, ceil(p.m / m)),
        used_cores=plan.used_cores,
        panels="rows",
        reuse_l1=plan.full_load != "none",
        unit_flag=plan.l0c_copies == 1,
    )
    return OperatorTiling(tiling, plan.rule + left)


def _fits(t: Tiling, gemm: MatmulGemm, profile: Profile) -> bool:
    """Return whether the tiles of a tiling fit into the buffers."""
    size, buffers = gemm.a.itemsize, profile.buffers
    deep = -(-gemm.problem.k // 16) * 16
    l1 = t.base_m * t.al1_buffers * min(t.step_ka * t.base_k, deep)
    l1 += t.base_n * t.bl1_buffers * min(t.step_kb * t.base_k, deep)
    needs = {
        "L1": l1 * size,
        "L0A": t.al0_buffers * t.base_m * t.base_k * size,
        "L0B": t.bl0_buffers * t.base_n * t.base_k * size,
        "L0C": 4 * t.cl0_buffers * t.base_m * t.base_n,
    }
    return all(need <= buffers[name].capacity_bytes for name, need in needs.items())


def vendor_tiling(
    gemm: MatmulGemm, profile: Profile, blocks: int | None, *, planned: bool
) -> tuple[Tiling, str]:
    """Return the tiling that the vendor's kernel took, as far as it is known, and what it is.

    `blocks` are those that ran, where a profile lists them; `planned` says whether the kernel's rules
    are known (those of MatMulV2 are not). Its plans are for all cores of the product.

    The kernels bring both operands of every tile: where one side is a prime number of fractals, so that tiles
    can only be so large, the times are those of both. Where cores are unified they cut c into that many equal
    blocks; elsewhere blocks are cores.
    """
    if planned and blocks in (None, profile.cores.cube):
        tiling, rule = operator_tiling(gemm, profile)
        if tiling is not None:
            return tiling, f"by the rules of the product's operator: {rule}"
    own = "this simulator's choice, both operands brought for every tile"
    if blocks is not None and profile.core_structure == "unified" and gemm.problem.batch == 1:
        try:
            return block_tiling(gemm, profile, blocks), own
        except CapacityError:
            pass  # no grid of so many blocks: then they were cut in some other way
    # By rank alone: timing would compare tilings under the reuse that this kernel is known not to have.
    return replace(ranked(gemm, profile, blocks)[0], reuse_l1=False), own
