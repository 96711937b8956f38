"""Upper limits: find the rows of a rule set that bind a call, and the first that it exceeds."""

from __future__ import annotations

from collections.abc import Iterator

from ascendsim.rules.calls import GRADIENTS
from ascendsim.rules.checked import CheckedConvolution, CheckedTbc
from ascendsim.rules.model import Limit

Measured = Iterator[tuple[int | None, str, int]]


def first_exceeded(c: CheckedConvolution | CheckedTbc, status: int) -> str | None:
    """Say which limit with this status the call exceeds, if any."""
    for limit in c.rules.limits:
        if limit.status != status or (limit.products and c.product not in limit.products):
            continue
        measured = _of_convolution(limit, c) if isinstance(c, CheckedConvolution) else _of_tbc(limit, c)
        for place, label, value in measured:
            # One row of the operator is relative: the stride in depth may not pass the kernel's depth.
            bound = limit.max if not limit.at_most else c.tensor("weight").shape[2 + (place or 0)]
            if bound is not None and value > bound:
                why = f"the {limit.at_most}, {bound}" if limit.at_most else str(bound)
                return f"{label} is {value}; it may not exceed {why} ({limit.source})"
    return None


def _binds(limit: Limit, c: CheckedConvolution) -> bool:
    """Tell whether a limit of this product concerns this call."""
    if limit.ranks and c.rank not in limit.ranks:
        return False
    if limit.transposed is not None and limit.transposed != c.call.transposed:
        return False
    # Limits of an inner operator bind only calls that run it.
    if limit.gradient and not c.mask[GRADIENTS.index(limit.gradient)]:
        return False
    # Other calls that the newer kernel refuses go to an older one, which has no such limit.
    if limit.only == "float32 or grouped":
        return c.compute_dtype in ("float32", "hf32") or c.call.groups > 1
    return True


def _of_convolution(limit: Limit, c: CheckedConvolution) -> Measured:
    """Yield (spatial axis or None, label, value) of everything in the call that a limit concerns."""
    if not _binds(limit, c):
        return
    weight = c.tensor("weight").shape
    if limit.of == "groups":
        yield None, "groups", c.call.groups
    elif limit.of == "grad_input area":
        # 1-D is a row of height 1; of 3-D the operator counts one plane.
        height, width = (1, *c.tensor("input").shape[2:])[-2:]
        yield None, "H x W of grad_input", height * width
    elif limit.of in ("grad_output", "input", "weight"):
        for place, value in enumerate(c.tensor(limit.of).shape):
            yield None, f"{limit.of}.shape[{place}]", value
    else:
        for axis, name in enumerate(c.axes):
            if limit.axes and name not in limit.axes:
                continue
            # A single tap has no neighbours to keep away from: the operator sets its dilation to 1.
            if limit.unless_kernel_is_1 and weight[2 + axis] == 1:
                continue
            for value in _along(limit.of, c, axis):
                yield axis, f"{limit.of} along {name}", value


def _along(what: str, c: CheckedConvolution, axis: int) -> tuple[int, ...]:
    """Return the values of an attribute along one axis."""
    if what == "padding":
        return c.pads(axis)
    if what == "kernel":
        return (c.tensor("weight").shape[2 + axis],)
    if what == "backward padding":
        # What grad_output, dilated by the stride, needs so that a plain convolution gives grad_input.
        before, _ = c.pads(axis)
        # Before: the taps that hang over. After: what is missing to the size of the big side, so that the sum
        # of both is the big side plus span - 1 less the dilated small side.
        dilated = (c.small.shape[2 + axis] - 1) * c.numbers("stride")[axis] + 1
        return c.span(axis) - 1 - before, c.big.shape[2 + axis] - dilated + before
    return (c.numbers(what)[axis],)


def _of_tbc(limit: Limit, c: CheckedTbc) -> Measured:
    if limit.of == "padding":
        yield None, "pad", c.call.pad
    elif limit.of == "kernel":
        yield None, "weight.shape[0]", c.tensor("weight").shape[0]
    else:
        for place, value in enumerate(c.tensor(limit.of).shape):
            yield None, f"{limit.of}.shape[{place}]", value
