"""The choice of a plan, made once for each gradient of a call; everything else reads it from there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING
from weakref import ref

from ascendsim.arguments import refusal
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.dilated import kernel_problem
from ascendsim.ops.tiling.asked import require_asked, require_merge, require_multiplied, require_switches
from ascendsim.ops.tiling.vendor.layer import PLAIN_LAYOUTS, Layouts
from ascendsim.ops.tiling.vendor.product import product_plan
from ascendsim.profile import Profile

if TYPE_CHECKING:
    from ascendsim.ops.problems.matmul import MatmulProblem

STRATEGIES = ("product", "search")


def choose_tiling(
    problem: ConvProblem | MatmulProblem,
    gradient: str,
    dtype: str,
    profile: Profile,
    *,
    hf32: bool = False,
    deterministic: bool = False,
    layouts: Layouts | None = None,
    transposed_forward: bool = False,
    out_dtype: str | None = None,
    strategy: str = "product",
    group_merge: int = 0,
) -> Plan:
    """Return the plan of one gradient, or of a matrix product.

    problem    a ConvProblem for "grad_input" and "grad_weight", a MatmulProblem for "matmul"
    gradient   what is computed
    dtype      the format in which the operands lie in memory; hf32: float32 that the cube rounds to HF32
    out_dtype  the format in which a matrix product or grad_input leaves the cube; None: the usual one
    deterministic  whether parts of grad_weight may be added in one order only, for which operators plan anew
    layouts    how the user's tensors lie, which some operators plan by; None: channels first
    transposed_forward  whether grad_input is to be planned as the forward pass of a transposed convolution,
               the same kernel; no call runs one
    strategy   "product": as the product's operators choose, where their rules are known; "search": this
               simulator's own search

    group_merge  groups that are computed as one; 0: as many as the product's operator takes, whichever the
                 strategy

    Raises     CapacityError if no tile fits into the buffers; UnsupportedError for a format that the cube
               does not multiply; ConfigError for another argument without a meaning
    """
    where = "choose_tiling"
    require_asked(where, problem, gradient, dtype, profile)
    require_switches(where, hf32=hf32, deterministic=deterministic, transposed_forward=transposed_forward)
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise refusal(f"{where}: strategy", strategy, f"one of {', '.join(STRATEGIES)}")
    if not isinstance(layouts, Layouts | None):
        raise refusal(f"{where}: layouts", layouts, "Layouts(...), or None")
    if not isinstance(out_dtype, str | None):
        raise refusal(f"{where}: out_dtype", out_dtype, "the name of a format, or None")
    require_multiplied(where, dtype, profile, hf32=hf32)
    group_merge = require_merge(where, group_merge)
    if isinstance(problem, ConvProblem):
        problem = kernel_problem(problem, gradient, dtype, profile)
    machine = _Machine(profile.told, ref(profile))
    return _remembered(
        problem,
        gradient,
        dtype,
        hf32,
        deterministic,
        layouts or PLAIN_LAYOUTS,
        transposed_forward,
        out_dtype,
        strategy,
        group_merge,
        machine,
    )


def product_of_gradient(
    problem: MatmulProblem, compute_dtype: str, out_dtype: str | None, profile: Profile
) -> Plan:
    """Return the plan of the matrix product by which the product's interface makes a gradient."""
    return _product_remembered(problem, compute_dtype, out_dtype, _Machine(profile.told, ref(profile)))


@dataclass(frozen=True)
class _Machine:
    """A profile, equal to every other one that says the same; it is not kept alive by what is remembered."""

    told: str
    profile: ref[Profile] = field(compare=False)


@lru_cache(maxsize=2048)
def _product_remembered(
    problem: MatmulProblem, compute_dtype: str, out_dtype: str | None, machine: _Machine
) -> Plan:
    profile = machine.profile()
    # It is the caller's, who still holds it.
    assert profile is not None
    # Imported here: most calls have no matrix product.
    from ascendsim.ops.problems.matmul import MatmulGemm
    from ascendsim.ops.tiling.vendor.matmul import vendor_tiling

    gemm = MatmulGemm.of(problem, compute_dtype, out_dtype)
    tiling, _ = vendor_tiling(gemm, profile, None, basic=True)
    return Plan("matmul", tiling, chosen_by="product")


# A choice depends on nothing but its arguments. So many are a network of a hundred layers on some products.
@lru_cache(maxsize=2048)
def _remembered(
    problem: ConvProblem | MatmulProblem,
    gradient: str,
    dtype: str,
    hf32: bool,
    deterministic: bool,
    layouts: Layouts,
    transposed_forward: bool,
    out_dtype: str | None,
    strategy: str,
    group_merge: int,
    machine: _Machine,
) -> Plan:
    """Return what `search_plan` or `product_plan` do; who asks again for a problem is not kept waiting."""
    profile, compute_dtype = machine.profile(), "hf32" if hf32 else dtype
    # It is the caller's, who still holds it.
    assert profile is not None
    why = ""
    if strategy == "product" and isinstance(problem, ConvProblem):
        plan, why = product_plan(
            *(problem, gradient, compute_dtype, profile, out_dtype),
            deterministic=deterministic,
            merge=group_merge,
            layouts=layouts,
            transposed_forward=transposed_forward,
        )
        if plan is not None:
            return replace(plan, chosen_by="product")
    # Imported here: most calls are planned as the product does, and search nothing.
    from ascendsim.ops.tiling.search.plan import search_plan

    found = search_plan(problem, gradient, compute_dtype, profile, out_dtype, group_merge)
    return replace(found, chosen_by="search", instead=why)
