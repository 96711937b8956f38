"""What the product's own operator asks for as workspace, for a kernel that follows the operator's plan."""

from __future__ import annotations

from ascendsim.errors import CapacityError, UnsupportedError
from ascendsim.ops.lowering.call import Call
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.vendor.operators import operator_plan
from ascendsim.ops.tiling.vendor.product_tiling import product_tiling
from ascendsim.ops.tiling.vendor.workspace import operator_workspace

# The operators whose host code is public; what older ones ask for is not known.
PUBLIC = ("Conv3DBackpropInputV2", "Conv3DBackpropFilterV2")


def asked_by_operator(call: Call, gradient: str, op_type: str) -> int | None:
    """Return the bytes that an operator asks for beside the tensors of its kernel.

    gradient, op_type   the name of a kernel of the call, and its type
    None                it is another kernel, does not follow the operator's plan, or no formula is known
    """
    plan = call.plans.get(gradient)
    if op_type not in PUBLIC or plan is None or plan.chosen_by != "product":
        return None
    asked = PlanRequest(
        call.problem, gradient, call.compute_dtype, call.profile, deterministic=call.deterministic
    )
    try:
        # float32 gradients of the 910B follow another library.
        if plan != product_tiling(asked):
            return None
        found = operator_plan(asked)
    except (CapacityError, UnsupportedError):
        return None
    arch, fixed = call.profile.npu_arch, call.deterministic
    return operator_workspace(found, asked.layer, asked.machine, gradient, arch, deterministic=fixed)
