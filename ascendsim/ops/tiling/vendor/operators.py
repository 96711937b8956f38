"""Which rule of which operator plans a convolution's gradient on which product, as far as rules are known.

`product_plan` asks in this order; where none answers, our own search plans:

asked            products       gradients                                     rules
first_plan       910, 310P      of one group; not grad_input, if transposed   first.py
library_plan     910B, 910_93   of lines and images, not transposed           arch22/library*.py
product_tiling   910B, 910_93   of volumes; grad_weight in a fixed order      arch22/dgrad.py, wgrad_*.py
product_tiling   910_95         all                                           arch35

The first two make the `Plan` of a loop nest at once. For the last, `operator_plan` makes a `VendorPlan`, in
the operator's own terms, which `nest_plans.py` turns into a `Plan`.
"""

from __future__ import annotations

from dataclasses import replace

from ascendsim.errors import CapacityError, UnsupportedError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import merged
from ascendsim.ops.problems.folded import NEWEST, OLDER
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.vendor.arch22.dgrad import basic_block as dgrad_block
from ascendsim.ops.tiling.vendor.arch22.dgrad import core_grid as dgrad_grid
from ascendsim.ops.tiling.vendor.arch22.library import library
from ascendsim.ops.tiling.vendor.arch22.wgrad_blocks import basic_block as wgrad_block
from ascendsim.ops.tiling.vendor.arch22.wgrad_blocks import stream_k as wgrad_streams
from ascendsim.ops.tiling.vendor.arch22.wgrad_blocks import takes_basic_blocks
from ascendsim.ops.tiling.vendor.arch22.wgrad_grid import core_grid as wgrad_grid
from ascendsim.ops.tiling.vendor.arch35.dgrad import grad_input as dgrad_35
from ascendsim.ops.tiling.vendor.arch35.wgrad import stream_k as wgrad_35
from ascendsim.ops.tiling.vendor.arch35.wgrad import takes_winograd, winograd
from ascendsim.ops.tiling.vendor.layer import FRACTAL, LayerSizes, Machine, VendorPlan, other_cube
from ascendsim.ops.tiling.vendor.nest_plans import images_plan, lacking, nest_plan


def product_plan(request: PlanRequest) -> tuple[Plan | None, str]:
    """Return the plan that the product's operator takes; or None, and why not if a rule says so."""
    where = f"product's plan of {request.gradient} on {request.profile.variant}"
    cube = other_cube(request.profile, request.compute_dtype)
    if cube:
        return None, f"{where}: {cube}"
    problem, profile = request.kernel, request.profile
    # In an order that is fixed the operators of volumes add the grad_weight of images, too.
    streamed = request.gradient == "grad_weight" and request.deterministic
    found = first_plan(request) or (None if streamed else library_plan(request))
    if found is not None:
        return found, ""
    # A call with five axes is one of volumes, even if they have one depth.
    volumes = problem.rank == 3 or streamed
    if profile.npu_arch != NEWEST and (profile.npu_arch != OLDER or not volumes):
        return None, ""

    # Groups that no change of layout here merges stay apart, whatever the operator does.
    apart = request.usual_merge == 1 < problem.groups
    try:
        return product_tiling(replace(request, group_merge=request.group_merge or int(apart))), ""
    except (CapacityError, UnsupportedError) as error:
        # What to do instead, which follows the reason, is what a search does.
        return None, str(error).partition("; ")[0]


def first_plan(request: PlanRequest, *, tuned: bool = False) -> Plan | None:
    """Return the plan of the first generation; None on other ones, or where no rule is known.

    tuned   whether to search it as its tuned entries were, also where none is known (`first.py`)
    """
    profile, whole = request.profile, request.whole
    # The grad_input of a transposed convolution is another operator's.
    known = whole.groups == 1 and not (request.gradient == "grad_input" and whole.transposed)
    if profile.core_structure != "unified" or not known:
        return None
    # Imported here and below: calls of all products come by, and the rules are of one generation.
    from ascendsim.ops.tiling.vendor.first import has_entry, tuned_tiling

    found = usual_plan(request, tuned_tiling(request), "tuned") if tuned or has_entry(request) else None
    if found is not None or tuned:
        return found and replace(found, chosen_by="tuned")
    if request.gradient == "grad_input":
        from ascendsim.ops.tiling.vendor.first import first_dgrad

        return usual_plan(request, first_dgrad(request.gemm, profile, request.blocks), "first generation")
    from ascendsim.ops.tiling.vendor.first import first_wgrad

    return usual_plan(request, first_wgrad(request.gemm, profile, request.blocks), "first generation")


# Of grad_input all even cuts of the channels are looked at: with more than any network has that would take
# minutes.
MOST_CHANNELS = 2**16
# What its kernels multiply; a core that is given a rate for 8 bits is not one that it knows.
FORMATS = ("float32", "float16", "bfloat16")


def library_plan(request: PlanRequest) -> Plan | None:
    """Return the plan of a 2-D gradient, None where the library does not make it or no rule is known."""
    profile, whole = request.profile, request.whole
    # Five axes make a call one of volumes, whose operators are others, even if they have one depth.
    known = whole.rank < 3 and not whole.transposed
    if profile.npu_arch != OLDER or not known or request.stored not in FORMATS:
        return None
    # Only the library of grad_weight tells how it takes several groups.
    if whole.groups > 1 and (request.gradient == "grad_input" or whole.rank == 1):
        return None
    if request.gradient == "grad_input":
        if max(whole.small_channels, whole.big_channels) > MOST_CHANNELS:
            return None
        from ascendsim.ops.tiling.vendor.arch22.library_dgrad import library_dgrad

        return usual_plan(request, library_dgrad(request.gemm, profile, request.blocks), "our own")
    if whole.rank == 1:
        # The library has no rules of its own for lines, and takes the older ones.
        from ascendsim.ops.tiling.vendor.first import first_wgrad

        return usual_plan(request, first_wgrad(request.gemm, profile, request.blocks), "first generation")
    merge = request.group_merge
    layer = request.layer.merged(merge)._replace(merges=False) if merge else request.layer
    plan = library(layer, request.machine, flat=True, cells=request.blocks)
    return images_plan(request, plan) if plan else None


def usual_plan(request: PlanRequest, tiling: Tiling | None, rule: str) -> Plan | None:
    """Return the plan of the usual nest by the tiling of merged groups that a rule made; None of none.

    rule   "our own" where the operator's library is not public, and measured kernels alone hold the plan
    """
    if tiling is None:
        return None
    nest = {"grad_input": "dgrad", "grad_weight": "wgrad"}[request.gradient]
    return Plan(nest, replace(tiling, group_merge=request.merge), rule=rule)


@default_arithmetic
def product_tiling(request: PlanRequest, *, by_winograd: bool = True) -> Plan:
    """Return the plan of one gradient as the product chooses it (`operator_plan`), for a loop nest.

    Raises   UnsupportedError also where no loop nest executes the plan
    """
    found = operator_plan(request, by_winograd=by_winograd)
    problem = merged(request.kernel, found.group_merge)
    missing = lacking(found, request)
    if missing:
        raise UnsupportedError(
            f"product's plan of {request.gradient} on {request.profile.variant}: {found.strategy} with "
            f"{missing} has no loop nest here; take this simulator's own plan"
        )
    return nest_plan(found, request, problem)


DTYPES = ("float16", "bfloat16", "float32")
# The operator of 910_95 takes 8 bits for the gradient of the input alone.
EIGHT_BITS = ("hifloat8",)
# The widest step of load3d; 910_95 splits kernels with wider ones, 910B and 910_93 refuse them.
MOST_STRIDE = 63


def _require_known(request: PlanRequest, layer: LayerSizes) -> None:
    """Refuse what the operators refuse, and what no rule is known for.

    Raises   UnsupportedError with the reason
    """
    arch, gradient, dtype = request.profile.npu_arch, request.gradient, request.stored
    reason = ""
    if arch not in (OLDER, NEWEST):
        reason = "only 910B, 910_93 and 910_95 have known rules"
    elif dtype not in DTYPES and not (arch == NEWEST and gradient == "grad_input" and dtype in EIGHT_BITS):
        reason = f"the operator does not take {dtype}"
    elif gradient == "grad_input" and request.kernel.transposed:
        reason = "grad_input of a transposed convolution is a forward convolution, another operator"
    elif arch == OLDER and max(layer.stride[1:]) > MOST_STRIDE:
        reason = f"a stride above {MOST_STRIDE} is refused by the operator (load3d cannot step so wide)"
    elif arch == OLDER and gradient == "grad_input" and layer.merge_factor(layer.c0) < layer.groups:
        reason = "grad_input of several groups is tiled by the vendor's closed library"
    if reason:
        raise UnsupportedError(f"product's plan of {gradient} on {request.profile.variant}: {reason}")


@default_arithmetic
def operator_plan(request: PlanRequest, *, by_winograd: bool = True) -> VendorPlan:
    """Return the plan of one gradient as the operators of 910B, 910_93 and 910_95 choose it.

    by_winograd   whether grad_weight may be computed by Winograd, where the operator does so

    Raises   UnsupportedError where the operator refuses the layer, or its rule is not known; CapacityError
             if no tile fits in L1
    Source   how the host code of the public operators (ops-nn) chooses, held against the tilings that their
             unit tests expect
    """
    gradient, merge, machine, arch = (
        request.gradient,
        request.group_merge,
        request.machine,
        request.profile.npu_arch,
    )
    layer = request.layer.merged(merge)._replace(merges=False) if merge else request.layer
    _require_known(request, layer)
    arguments = layer, machine, gradient, request.stored, arch
    plan = plan_of_layer(*arguments, deterministic=request.deterministic, by_winograd=by_winograd)
    if plan is not None:
        return replace(plan, group_merge=merge) if merge else plan
    where = f"product's plan of {gradient} on {request.profile.variant}"
    if gradient == "grad_input" and arch == OLDER and not _has_blocks(layer):
        raise UnsupportedError(
            f"{where}: no core grid suits this layer, so that the vendor's closed library tiles it; give a "
            "tiling of your own"
        )
    raise CapacityError(
        f"{where}: no tile fits in L1 ({machine.l1} bytes) by the operator's rules, so that it refuses the "
        "layer; make its rows or its kernel smaller"
    )


def plan_of_layer(
    layer: LayerSizes,
    machine: Machine,
    gradient: str,
    dtype: str,
    arch: str,
    *,
    deterministic: bool = False,
    by_winograd: bool = True,
) -> VendorPlan | None:
    """Return the plan of the operator's first strategy that takes the layer; None if no tile fits in L1.

    arch   the npu_arch: "2201" for 910B and 910_93, "3510" for 910_95
    """
    if arch == NEWEST:
        if gradient == "grad_input":
            return dgrad_35(layer, machine)
        found = winograd(layer, machine) if by_winograd and takes_winograd(layer) else None
        return found or wgrad_35(layer, machine)
    if gradient == "grad_input":
        # Two strategies, and no third: the library's own tiling, which takes over, is not public. Both are
        # for one group as the weights have it, which several may be merged into.
        factor = layer.merge_factor(layer.c0)
        whole = layer.merged(factor)
        plan = dgrad_block(whole, machine) if _has_blocks(layer) else dgrad_grid(whole, machine)
        return plan and replace(plan, group_merge=factor)
    if deterministic:
        return wgrad_streams(layer, machine)
    if takes_basic_blocks(layer.merged(layer.merge_factor(FRACTAL))):
        return wgrad_block(layer, machine)
    grid = wgrad_grid(layer, machine) if dtype == "bfloat16" else None
    return grid or library(layer, machine)


def _has_blocks(layer: LayerSizes) -> bool:
    """Return whether grad_input of 910B and 910_93 is computed by basic blocks."""
    return layer.itemsize == 2 and not layer.transposed_forward


def matmul_plan(request: PlanRequest) -> tuple[Plan | None, str]:
    """Return the plan of a matrix product as its operator chooses it; or None, and why not."""
    # Imported here: most calls have no matrix product.
    from ascendsim.ops.tiling.vendor.matmul import operator_tiling

    tiling, rule = operator_tiling(request.gemm, request.profile)
    if tiling is None:
        return None, f"product's plan of a matrix product on {request.profile.variant}: {rule}"
    return Plan("matmul", tiling, rule=rule), ""
