"""Plans as tests ask for them: requests written in one line, with operands by their format in memory."""

from ascendsim.ops.tiling.choose import choose
from ascendsim.ops.tiling.given import plan_of
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.vendor.operators import operator_plan
from ascendsim.ops.tiling.vendor.product import first_plan, library_plan, product_plan
from ascendsim.ops.tiling.vendor.product_tiling import product_tiling


def asked(problem, gradient, dtype, profile, *, hf32=False, **more):
    """A request; hf32: float32 that the cube rounds."""
    return PlanRequest(problem, gradient, "hf32" if hf32 else dtype, profile, **more)


def chosen_plan(*of, strategy="product", **more):
    """The plan of a strategy."""
    return choose(asked(*of, **more), strategy)


def operators_plan(*of, by_winograd=True, **more):
    """The plan of the product's operator, in its own words."""
    return operator_plan(asked(*of, **more), by_winograd=by_winograd)


def nest_plan(*of, by_winograd=True, **more):
    """The same for a loop nest."""
    return product_tiling(asked(*of, **more), by_winograd=by_winograd)


def products_plan(*of, **more):
    """The plan of the product's rules, and why there is none."""
    return product_plan(asked(*of, **more))


def first_rule(*of, **more):
    """The plan by the rules of the first generation."""
    return first_plan(asked(*of, **more))


def library_rule(*of, **more):
    """The plan by the library of 2-D kernels."""
    return library_plan(asked(*of, **more))


def plans_of(problem, gradients, compute, profile, tilings=None, schedules=None, out_dtype=None, **more):
    """The plans of several gradients of a call, what the user gives of them by gradient."""
    given = tilings or {}, schedules or {}
    of = {
        gradient: PlanRequest(problem, gradient, compute, profile, out_dtype, **more)
        for gradient in gradients
    }
    return {name: plan_of(request, *(each.get(name) for each in given)) for name, request in of.items()}
