"""The legal cuts of a gradient of a convolution, its groups merged as the product's operator has them."""

from __future__ import annotations

from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.problems.dilated import kernel_problem
from ascendsim.ops.problems.merged import merged
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.tiling.legal.dgrad import DgradSpace
from ascendsim.ops.tiling.legal.space import Space
from ascendsim.ops.tiling.legal.wgrad import WgradSpace
from ascendsim.ops.tiling.vendor.merging import product_merge
from ascendsim.profile import Profile


def space_of(problem: ConvProblem, gradient: str, compute_dtype: str, profile: Profile) -> Space:
    """Return the cuts of "grad_input" or "grad_weight", whose operands the cube multiplies so."""
    problem = kernel_problem(problem, gradient, compute_dtype, profile)
    merge = product_merge(problem, gradient, compute_dtype, profile)
    whole = merged(problem, merge)
    space: Space
    if gradient == "grad_input":
        space = DgradSpace(DgradGemm.of(whole, compute_dtype), profile)
    else:
        space = WgradSpace(WgradGemm.of(whole, compute_dtype), profile)
    space.group_merge = merge
    return space
