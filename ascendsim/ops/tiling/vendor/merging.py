"""How many groups of a convolution the product's operator computes as one."""

from __future__ import annotations

from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.hf32 import stored_name
from ascendsim.ops.problems.packed import C0_BYTES
from ascendsim.profile import Profile


def product_merge(problem: ConvProblem, gradient: str, compute_dtype: str, profile: Profile) -> int:
    """Return how many groups the operator of a gradient takes as one; 1: each by itself.

    910, 310P, 910B, 910_93   as many as fill groups of C0 channels and fractals, as FRACTAL_Z, the layout of
                              the weights, has it; one by one where a box of the change of layout, C0 whole
                              channels of one group, does not fit in half of UB
    910_95                    the same where vector cores have room for the block-diagonal weights; of the
                              grad_input of a transposed convolution, a forward one, no rule is known: 1

    Source   the tilings that the operators' unit tests expect, and their host code; of 910 and 310P, which
             store weights in the same layout, our reading
    """
    if problem.groups == 1:
        return 1
    # Imported here and below: most calls have one group.
    from ascendsim.ops.tiling.vendor.layer import FRACTAL, Layer, Machine

    layer = Layer.of(problem, stored_name(compute_dtype))
    machine, weight = Machine.of(profile), gradient == "grad_weight"
    if not profile.generation.changes_layouts:
        from ascendsim.ops.tiling.vendor.arch35.dgrad import merge_factor as dgrad_35
        from ascendsim.ops.tiling.vendor.arch35.wgrad import merge_factor as wgrad_35

        if weight:
            return wgrad_35(layer, machine)
        return 1 if problem.transposed else dgrad_35(layer, machine)
    longest = max(layer.ci, layer.co) * layer.c0 * C0_BYTES
    return layer.merge_factor(FRACTAL if weight else layer.c0) if 2 * longest <= machine.ub else 1
