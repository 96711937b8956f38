"""The checks that both interfaces make alike, each at a place of its own in their orders."""

from __future__ import annotations

from ascendsim.rules.calls import GRADIENTS
from ascendsim.rules.checked import Checked, CheckedConvolution, CheckedTbc
from ascendsim.rules.cube_math import cube_math_problem
from ascendsim.rules.limits import first_exceeded
from ascendsim.rules.order import INNER, INVALID


def contiguous_outputs(c: Checked) -> str | None:
    """Find an output, asked for or not, with gaps between its elements, where the page wants none."""
    # The operator copies its results through the view.
    for name, tensor in c.present(*GRADIENTS) if c.rules.contiguous_outputs else ():
        if not tensor.is_contiguous:
            return f"{name} of shape {tensor.shape} has strides {tensor.strides}; outputs must be contiguous"
    return None


def cube_math(c: Checked) -> str | None:
    """Find a cubeMathType that is not allowed for these inputs on this product."""
    return cube_math_problem(c.input_dtypes, c.promoted_dtype, c.cube_math_type, c.cube_math)


def stated_limits(c: CheckedConvolution | CheckedTbc) -> str | None:
    """Find a size or attribute above a limit that answers 161002."""
    return first_exceeded(c, INVALID)


def inner_limits(c: CheckedConvolution | CheckedTbc) -> str | None:
    """Find a size or attribute above a limit of the inner operators, which answers 561103."""
    return first_exceeded(c, INNER)
