"""The choice of a plan, made once for each gradient of a call; everything else reads it from there."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from weakref import ref

from ascendsim.errors import ConfigError, UnsupportedError, refusal
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.matmul import MatmulGemm
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.search.dgrad import dgrad_tilings
from ascendsim.ops.tiling.search.matmul import matmul_tiling
from ascendsim.ops.tiling.search.wgrad import wgrad_tilings
from ascendsim.ops.tiling.timed import fastest_of_few, short_buffer
from ascendsim.ops.tiling.vendor.layer import other_cube
from ascendsim.ops.tiling.vendor.matmul import operator_tiling
from ascendsim.ops.tiling.vendor.operators import first_plan, matmul_plan, product_plan
from ascendsim.profile import Profile, load_profile

# What a user may ask for, and what a call asks for besides.
STRATEGIES = ("product", "search", "tuned")
INNER = ("shares", "interface")


def choose(request: PlanRequest, strategy: str = "product") -> Plan:
    """Return the plan of one gradient, or of a matrix product.

    "product"    as the product's operators choose, where their rules are known, else the search
    "search"     this simulator's own search
    "tuned"      as the tuned entries of the first generation were found; other generations have none. Of a
                 matrix product "product", and the plan says so
    "shares"     the operators' nests of shares, also where a call does not follow them by default
    "interface"  of a matrix product by which the product's interface makes a gradient: its own kernel's

    Raises     CapacityError if no tile fits into the buffers; UnsupportedError of "shares" where the rules
               refuse the layer, and of "tuned" for other generations
    """
    if not isinstance(strategy, str) or strategy not in STRATEGIES + INNER:
        raise refusal("choose: strategy", strategy, f"one of {', '.join(STRATEGIES)}")
    return _remembered(_PlanKey(request.told, strategy, ref(request)))


@dataclass(frozen=True)
class _PlanKey:
    """A key of a request, equal for equal choices; it keeps neither the request nor its profile alive."""

    told: Hashable
    strategy: str
    request: ref[PlanRequest] = field(compare=False)


# A choice depends on nothing but its request. So many are a network of a hundred layers on some products.
@lru_cache(maxsize=2048)
def _remembered(asked: _PlanKey) -> Plan:
    """Return the plan; who asks again for a problem is not kept waiting."""
    request, strategy, why = asked.request(), asked.strategy, ""
    # It is the caller's, who still holds it.
    assert request is not None
    if strategy == "shares":
        return _by_shares(request)
    if strategy == "interface":
        return _by_interface(request)
    if strategy == "tuned":
        return _tuned(request)
    if strategy == "product":
        of_conv = isinstance(request.problem, ConvProblem)
        plan, why = product_plan(request) if of_conv else matmul_plan(request)
        # Rules know the parts that were made; under other buffers all tasks are dealt to see if a plan fits.
        own = plan is not None and of_conv and not _has_made_buffers(request.profile)
        short = short_buffer(plan, request) if plan is not None and own else ""
        if plan is not None and not short:
            return replace(plan, chosen_by=plan.chosen_by or "product")
        if short:
            why = f"product's plan of {request.gradient} on {request.profile.variant}: {short}"

    return replace(search_plan(request), chosen_by="search", instead=why)


def _has_made_buffers(profile: Profile) -> bool:
    """Return whether a profile has the buffers of a part that was made."""
    try:
        return load_profile(profile.variant).buffers == profile.buffers
    except ConfigError:
        return False


def _by_shares(request: PlanRequest) -> Plan:
    if not isinstance(request.problem, ConvProblem):
        raise UnsupportedError("matrix products have no nest that deals shares; leave schedule out")
    # Imported here: the host code of operators that most calls do not use.
    from ascendsim.ops.tiling.vendor.operators import product_tiling

    return replace(product_tiling(request, by_winograd=False), chosen_by="product")


def _tuned(request: PlanRequest) -> Plan:
    of_conv = isinstance(request.problem, ConvProblem)
    if not of_conv and request.profile.core_structure == "unified":
        # A network has products beside convolutions: the entries are of these alone.
        why = f"tuned plan of a matrix product on {request.profile.variant}: only convolutions have one"
        return replace(choose(request), instead=why)
    found = first_plan(request, tuned=True) if of_conv else None
    if found is None:
        raise UnsupportedError(
            f"tuned plan of {request.gradient} on {request.profile.variant}: only convolutions of one group "
            "on 910 and 310P have tuned plans, and not the grad_input of transposed ones; take product or "
            "search"
        )
    return found


def _by_interface(request: PlanRequest) -> Plan:
    # Imported here: most calls have no matrix product.
    from ascendsim.ops.tiling.vendor.matmul import vendor_tiling

    cube = other_cube(request.profile, request.compute_dtype)
    if cube:
        why = f"product's plan of a matrix product on {request.profile.variant}: {cube}"
        return replace(search_plan(request), chosen_by="search", instead=why)
    tiling, rule = vendor_tiling(request.gemm, request.profile, None, planned=True)
    return Plan("matmul", tiling, chosen_by="product", rule=rule)


def search_plan(request: PlanRequest) -> Plan:
    """Search the plan of one gradient, or of a matrix product.

    Costs of instructions rank the candidates; the best few are timed.

    Raises   CapacityError if no tile fits into the buffers
    """
    gemm, profile = request.gemm, request.profile
    if isinstance(gemm, MatmulGemm):
        # The operator's own plan is one more candidate: it beats what the search finds on many shapes.
        planned, _ = operator_tiling(gemm, profile)
        return Plan("matmul", matmul_tiling(gemm, profile, others=[planned] if planned else []))
    if request.gradient == "grad_input":
        tiling = fastest_of_few(Dgrad, gemm, profile, dgrad_tilings(gemm, profile))
        return Plan("dgrad", replace(tiling, group_merge=request.merge))
    tiling = fastest_of_few(Wgrad, gemm, profile, wgrad_tilings(gemm, profile))
    return Plan("wgrad", replace(tiling, group_merge=request.merge))
