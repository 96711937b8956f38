"""Checked calls: a typed call beside the rules that hold for it, for the checks to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar, cast

from ascendsim.errors import AclnnError
from ascendsim.rules.model import ABSENT, REFUSED, ConvolutionRules, CubeMath, Limit, TbcRules
from ascendsim.rules.typed import (
    GRADIENTS,
    Call,
    ConvolutionBackwardCall,
    ConvTbcBackwardCall,
    CubeMathType,
    Tensor,
)

# Only the 910_95 has them.
EIGHT_BITS = ("hifloat8", "float8_e4m3fn", "float8_e5m2")
# In the order of their numbers.
CUBE_MATH_TYPES = tuple(CubeMathType.__members__)
# From the least to the most precise, for the page that asks for "the more precise" of two.
PRECISION = (*EIGHT_BITS, "bfloat16", "float16", "float32")


def promote(dtypes: Sequence[str], mixed_eight_bit: str) -> str:
    """Return the common dtype: equal ones stay, other mixes give float32, "refused" if there is none.

    An 8-bit dtype beside another one is a matter of the rule set.
    """
    if len(set(dtypes)) == 1:
        return dtypes[0]
    # float32 holds every value of float16 and of bfloat16, which hold not all of each other.
    return mixed_eight_bit if set(dtypes) & set(EIGHT_BITS) else "float32"


def more_precise(dtypes: Sequence[str]) -> str:
    """Return the dtype with the most mantissa bits."""
    return max(dtypes, key=lambda name: PRECISION.index(name) if name in PRECISION else -1)


def cube_dtype(promoted: str, cube_math_type: int, table: CubeMath) -> str:
    """Return the format in which the cube computes, or the word for a refusal."""
    row = table.get(promoted)
    if row is None or not 0 <= cube_math_type < len(row):
        return REFUSED
    return row[cube_math_type]


def cube_math_problem(
    dtypes: Sequence[str], promoted: str, cube_math_type: int, table: CubeMath
) -> str | None:
    """Say why a cubeMathType is not allowed for these inputs on this product."""
    if not 0 <= cube_math_type < len(CUBE_MATH_TYPES):
        names = ", ".join(f"{value} ({name})" for value, name in enumerate(CUBE_MATH_TYPES))
        return f"cube_math_type is {cube_math_type}; it must be one of {names}"
    # After the range, which is wrong whatever the inputs are.
    if promoted == REFUSED:
        return f"grad_output, input and weight are {', '.join(dtypes)}, which have no common dtype"
    if cube_dtype(promoted, cube_math_type, table) != REFUSED:
        return None
    row = table.get(promoted, ())
    allowed = [str(value) for value, outcome in enumerate(row) if outcome != REFUSED]
    what = "the inputs are" if len(set(dtypes)) == 1 else "the inputs promote to"
    return (
        f"cube_math_type is {cube_math_type} ({CUBE_MATH_TYPES[cube_math_type]}), which is not supported "
        f"where {what} {promoted}; allowed there: {', '.join(allowed) or 'none'}"
    )


def cube_math_warnings(
    promoted: str, cube_math_type: int, compute: str, warned: Mapping[str, tuple[int, ...]]
) -> tuple[str, ...]:
    """Return the operator's log lines about a cubeMathType that does not do what its name says."""
    # Nothing is logged about a call that fails.
    if compute in (REFUSED, ABSENT) or cube_math_type not in warned.get(promoted, ()):
        return ()
    name = CUBE_MATH_TYPES[cube_math_type]
    return (f"cube_math_type {cube_math_type} ({name}) with {promoted} inputs computes in {compute}",)


# The one axis of 1-D is W, so that names are counted from the end.
AXES = "DHW"


# Its subclasses say their fields' types and have none of their own: to make a dataclass takes a while.
@dataclass(frozen=True)
class Checked:
    """A call of either interface with its rules; the checks of one interface get the subclass."""

    call: Call
    product: str
    rules: ConvolutionRules | TbcRules

    def optional(self, name: str) -> Tensor | None:
        """Return a tensor of the call that may be null."""
        return cast("Tensor | None", getattr(self.call, name))

    def tensor(self, name: str) -> Tensor:
        """Return a tensor that the null checks have found to be there."""
        found = self.optional(name)
        # No message to a user: check 1 or 3 has refused null tensors before anybody asks.
        assert found is not None
        return found

    def present(self, *names: str) -> list[tuple[str, Tensor]]:
        """Return those of the named tensors that are not null, by name."""
        return [(name, tensor) for name in names if (tensor := self.optional(name)) is not None]

    @property
    def cube_math_type(self) -> int:
        """The cubeMathType argument."""
        return self.call.cube_math_type

    @property
    def dtypes(self) -> dict[str, str]:
        """Dtype of every tensor that is not null."""
        return {name: tensor.dtype for name, tensor in self.present(*self.call.tensors)}

    @property
    def input_dtypes(self) -> tuple[str, str, str]:
        """Dtypes of the three tensors that take part in promotion."""
        return self.tensor("grad_output").dtype, self.tensor("input").dtype, self.tensor("weight").dtype

    @property
    def promoted_dtype(self) -> str:
        """The dtype that the three inputs are promoted to, or "refused"."""
        # The page of conv_tbc knows no 8-bit format, and so no rule for a mix with one.
        mixed = self.rules.eight_bit.mixed if isinstance(self.rules, ConvolutionRules) else "float32"
        return promote(self.input_dtypes, mixed)

    @property
    def cube_math(self) -> CubeMath:
        """Compute dtypes of this product by promoted dtype; empty where the rules have none."""
        return self.rules.cube_math.get(self.product, {})

    @property
    def compute_dtype(self) -> str:
        """Format that the cube multiplies, or "refused" or "absent" (see `model`)."""
        return cube_dtype(self.promoted_dtype, self.cube_math_type, self.cube_math)


class CheckedConvolution(Checked):
    """A call of aclnnConvolutionBackward with its rules.

    The small side has one position per kernel placement, the big side is what the kernel slides over: input
    and grad_output, or the other way round when transposed.
    """

    call: ConvolutionBackwardCall
    rules: ConvolutionRules

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return an array attribute that the null checks have found to be there."""
        values = getattr(self.call, name)
        assert values is not None
        return cast("tuple[int, ...]", values)

    @property
    def mask(self) -> tuple[bool, ...]:
        """The output mask."""
        return cast("tuple[bool, ...]", tuple(self.call.output_mask or ()))

    @property
    def rank(self) -> int:
        """Rank of input."""
        return self.tensor("input").rank

    @property
    def big(self) -> Tensor:
        """The tensor that the kernel slides over."""
        return self.tensor("grad_output" if self.call.transposed else "input")

    @property
    def small(self) -> Tensor:
        """The tensor with one position per kernel placement."""
        return self.tensor("input" if self.call.transposed else "grad_output")

    @property
    def big_name(self) -> str:
        """Name of the big side's tensor."""
        return "grad_output" if self.call.transposed else "input"

    @property
    def small_name(self) -> str:
        """Name of the small side's tensor."""
        return "input" if self.call.transposed else "grad_output"

    @property
    def axes(self) -> str:
        """Names of the spatial axes: W, HW or DHW."""
        return AXES[5 - self.rank :]

    def pads(self, axis: int) -> tuple[int, int]:
        """Return the padding before and after a spatial axis; the lengths have been checked."""
        values = self.numbers("padding")
        if self.rank == 4 and len(values) == 4:
            # Four values are top, bottom, left, right; everywhere else one value stands for both sides.
            return values[2 * axis], values[2 * axis + 1]
        return values[axis], values[axis]

    def span(self, axis: int) -> int:
        """Return the extent of the dilated kernel along a spatial axis."""
        # k taps with d - 1 gaps between neighbours: (k - 1) d + 1.
        return (self.tensor("weight").shape[2 + axis] - 1) * self.numbers("dilation")[axis] + 1

    def room(self, axis: int) -> int:
        """Return the distance that the kernel can slide: the padded big side less the dilated kernel."""
        return self.big.shape[2 + axis] + sum(self.pads(axis)) - self.span(axis)

    def placements(self, axis: int) -> int:
        """Return the size that the small side must have along an axis."""
        # The first placement is at 0, then one for every whole stride in the room that is left.
        return self.room(axis) // self.numbers("stride")[axis] + 1


class CheckedTbc(Checked):
    """A call of aclnnConvTbcBackward with its rules."""

    call: ConvTbcBackwardCall
    rules: TbcRules


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
    """Return whether a limit of this product concerns this call."""
    if limit.ranks and c.rank not in limit.ranks:
        return False
    if limit.transposed is not None and limit.transposed != c.call.transposed:
        return False
    # Limits of an inner operator bind only calls that run it.
    if limit.gradient and not c.mask[GRADIENTS.index(limit.gradient)]:
        return False
    # Other calls that the newer kernel refuses go to an older one, which has no limit here.
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


# A check of any call serves in the order of one interface.
SomeChecked = TypeVar("SomeChecked", contravariant=True)
# ACLNN_ERR_PARAM_INVALID, ACLNN_ERR_PARAM_NULLPTR, ACLNN_ERR_INNER_NULLPTR.
INVALID, NULL, INNER = 161002, 161001, 561103


class Check(NamedTuple, Generic[SomeChecked]):
    """One row of the order of checks: `find` returns the problem, or None."""

    # A text, since rules that only pages state stand between the operator's own numbers: 3a, 24b.
    number: str
    name: str
    find: Callable[[SomeChecked], str | None]
    status: int = INVALID


def run(checks: Iterable[Check[SomeChecked]], call: SomeChecked) -> None:
    """Run checks in order.

    Raises   AclnnError of the first that finds something
    """
    for check in checks:
        # Later checks rely on what earlier ones have found to hold; so no check runs after a failure.
        reason = check.find(call)
        if reason is not None:
            raise AclnnError(check.status, f"{check.number} ({check.name})", reason)


def listed(values: Iterable[object]) -> str:
    """Join values for a message."""
    return ", ".join(map(str, values))


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
