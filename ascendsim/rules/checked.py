"""Checked calls: a typed call beside the rules that hold for it, for the checks to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from ascendsim.rules.calls import Call, ConvolutionBackwardCall, ConvTbcBackwardCall
from ascendsim.rules.cube_math import cube_dtype, promote
from ascendsim.rules.model import ConvolutionRules, CubeMath, TbcRules
from ascendsim.rules.typed import Tensor

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
        """Common dtype of those three, or "refused"."""
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
        """Return how far the kernel can slide: the padded big side less the dilated kernel."""
        return self.big.shape[2 + axis] + sum(self.pads(axis)) - self.span(axis)

    def placements(self, axis: int) -> int:
        """Return how many positions the small side must have along an axis."""
        # The first placement is at 0, then one for every whole stride in the room that is left.
        return self.room(axis) // self.numbers("stride")[axis] + 1


class CheckedTbc(Checked):
    """A call of aclnnConvTbcBackward with its rules."""

    call: ConvTbcBackwardCall
    rules: TbcRules
