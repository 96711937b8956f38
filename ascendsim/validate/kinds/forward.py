"""Measured convolutions, forward, against their estimates.

This simulator has no forward pass; the grad_input of a transposed convolution is one, by the loop nest of
other gradients of inputs. So such rows judge that nest: under the tiling that ran where the row tells it, and
on the first generation under the rules of grad_input for as many blocks as ran.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ascendsim.errors import DataError
from ascendsim.ops.convolution_backward import estimate
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.tiling.vendor.first.dgrad import first_dgrad
from ascendsim.validate.compare import Estimate
from ascendsim.validate.kinds.counters import active_us
from ascendsim.validate.kinds.kernels import CONV_NOTE, given_plan, stored_format
from ascendsim.validate.reading import refuse_beyond_memory
from ascendsim.validate.schema import Row

if TYPE_CHECKING:
    from ascendsim.profile import Profile

RULES_NOTE = "tiling inferred: as the rules cut a grad_input of the same size"


def forward_us(row: Row, profile: Profile) -> Estimate:
    """Return the microseconds of a convolution's own kernel, under the plan of `forward_plan`.

    Raises   AscendSimError if the sizes do not fit each other, the product or the tiling
    """
    problem = forward_problem(row)
    refuse_beyond_memory(max(prod(problem.input), prod(problem.grad_output)))
    stored, math_type = stored_format(row, profile)
    plan, note = forward_plan(row, problem, stored, profile)
    result = estimate(
        problem,
        stored,
        math_type,
        product=profile,
        output_mask=(True, False, False),
        l2_start=row.l2_start,
        rules="hardware",
        engine="compiled",
        tiling={"grad_input": plan} if plan else None,
    )
    kernel = next(kernel for kernel in result.kernels if kernel.name == "grad_input")
    return Estimate(kernel.time_us, active_us(kernel.timeline, profile), note)


def forward_plan(row: Row, problem: ConvProblem, stored: str, profile: Profile) -> tuple[Plan | None, str]:
    """Return the plan that a row is run under, and what was inferred for it.

    No plan leaves it to the simulator's own choice.

    stored   the format of the operands in memory

    Raises   DataError if a plan is given in part
    """
    given = given_plan(row)
    if given:
        return Plan("dgrad", Tiling(**given)), ""
    # Where cube and vector unit are one core the rules deal whole images, whatever a block makes of its own.
    if row.blocks and profile.core_structure == "unified" and row.groups == 1:
        tiling = first_dgrad(DgradGemm.of(problem, stored), profile, row.blocks)
        if tiling:
            return Plan("dgrad", tiling), f"{RULES_NOTE}, {row.blocks} blocks as measured"
    return None, CONV_NOTE


def forward_problem(row: Row) -> ConvProblem:
    """Return the transposed convolution whose grad_input is the convolution of a row.

    Raises   DataError if no output comes of the sizes
    """
    batch, _, *big = row.input_shape
    made, _, *kernel = row.weight_shape
    axes = range(len(big))
    stride, dilation = row.stride or (1,) * len(big), row.dilation or (1,) * len(big)
    pads = row.padding or (0,) * len(big)
    both = [2 * pads[at] if len(pads) == len(big) else pads[2 * at] + pads[2 * at + 1] for at in axes]
    # Rows that the last step of the stride leaves over are what output_padding adds the other way round.
    steps = [divmod(big[at] + both[at] - (kernel[at] - 1) * dilation[at] - 1, stride[at]) for at in axes]
    if any(count < 0 for count, _ in steps):
        shapes = "x".join(map(str, row.input_shape)), "x".join(map(str, row.weight_shape))
        raise DataError(f"no output of {shapes[1]} fits in {shapes[0]}; give an input as large as the kernel")
    return ConvProblem(
        (batch, made, *(count + 1 for count, _ in steps)),
        row.weight_shape,
        stride,
        pads,
        dilation,
        True,
        tuple(rest for _, rest in steps),
        row.groups,
    )
