"""A rule set as frozen records; docs/interface.md explains every key where it is written for users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Names = tuple[str, ...]
ByProduct = Mapping[str, Names]
# Promoted dtype -> what the cube computes in for cubeMathType 0, 1, 2, 3.
CubeMath = Mapping[str, Names]
Quantity = Literal[
    "stride",
    "padding",
    "dilation",
    "kernel",
    "groups",
    "grad_output",
    "input",
    "weight",
    "backward padding",
    "grad_input area",
]
# Refused by a rule (161002), or asking for a unit that the cube does not have (561103).
REFUSED, ABSENT = "refused", "absent"


@dataclass(frozen=True)
class Limit:
    """One upper limit.

    of                  stride, padding, dilation, kernel, groups, grad_output, input, weight (any extent),
                        "backward padding" (of the data gradient) or "grad_input area" (H x W)
    max, at_most        the largest value; or the name of what it may not exceed on the same axis
    axes                D, H, W; the one axis of 1-D is W, those of 2-D are H and W. Empty: all
    ranks, products     of tensors, and families; empty: all
    transposed          true or false where the limit holds for one of them only
    gradient            grad_input or grad_weight where it binds only a call that asks for that one
    only                "float32 or grouped" where it binds no other call
    unless_kernel_is_1  no limit on an axis whose kernel has one tap
    status, source      what the call answers, and who says so
    """

    of: Quantity
    # Pages divide: extents of tensors are 161002, attributes 561103.
    status: Literal[161002, 561103]
    source: str
    # -1 bounds nothing by itself: such a row names `at_most`.
    max: int = -1
    at_most: Literal["", "kernel"] = ""
    axes: Names = ()
    ranks: tuple[int, ...] = ()
    products: Names = ()
    transposed: bool | None = None
    gradient: Literal["", "grad_input", "grad_weight"] = ""
    only: Literal["", "float32 or grouped"] = ""
    unless_kernel_is_1: bool = False


@dataclass(frozen=True)
class EightBit:
    """Conditions under which 8-bit tensors are allowed.

    needs_transposed_grad_input  "always", "both outputs" (only tested when gradInput and gradWeight are both
                                 there) or "never"
    uniform                      which tensors must share the 8-bit format: "inputs", "by gradient", "never"
    kernels                      what can run: "all" or "transposed grad_input" (and hifloat8 alone)
    mixed                        what 8 bits beside another format are read as: a dtype, or "refused"
    """

    needs_transposed_grad_input: Literal["always", "both outputs", "never"]
    uniform: Literal["inputs", "by gradient", "never"]
    kernels: Literal["all", "transposed grad_input"]
    mixed: Literal["refused", "float32"]


@dataclass(frozen=True)
class GradBiasFormat:
    """Products on which gradBias must be ND."""

    products: Names
    transposed_too: bool


@dataclass(frozen=True)
class OutputPadding:
    """Values and lengths of outputPadding."""

    below_stride_ranks: tuple[int, ...]
    zero_unless_transposed: bool
    lengths_2d: tuple[int, ...]


@dataclass(frozen=True)
class GroupsDivide:
    """Products on which groups must divide the channels of the small side (Cout, when not transposed)."""

    products: Names
    only_depthwise: bool


@dataclass(frozen=True)
class Empty:
    """Empty tensors of a convolution.

    products           where an empty input or weight skips the checks of shapes
    needs_n_or_c       whether N or C of input must be 0: "always", or only if the mask asks for "grad_input"
    weight_n_positive  whether weight.shape[0] must be above 0 also when not transposed
    four_pads          which of 4 pads an axis is tested with: both of its "sides", or its "axis number" twice
    """

    products: Names
    needs_n_or_c: Literal["always", "grad_input"]
    weight_n_positive: bool
    four_pads: Literal["sides", "axis number"]


@dataclass(frozen=True)
class ConvolutionRules:
    """Rules of aclnnConvolutionBackward; by product where products differ."""

    products: Names
    products_3d: Names
    never_null: Names
    bias_sizes: Literal["always", "empty only"]
    equal_formats: tuple[Names, ...]
    # Ranks whose sizes check 24 relates; others are related at 31, with another status.
    related_ranks: tuple[int, ...]
    batch: bool
    squeezed_grad_weight: Names
    wide_grad_bias: Names
    depthwise_3d_bfloat16: Names
    dtypes: ByProduct
    dtypes_transposed: ByProduct
    output_dtypes: Mapping[str, ByProduct]
    eight_bit: EightBit
    formats: Mapping[int, Names]
    grad_bias_format: GradBiasFormat
    output_padding: OutputPadding
    groups_divide: GroupsDivide
    empty: Empty
    cube_math: Mapping[str, CubeMath]
    cube_math_warnings: Mapping[str, tuple[int, ...]]
    limits: tuple[Limit, ...]


@dataclass(frozen=True)
class TbcRules:
    """Rules of aclnnConvTbcBackward.

    empty  "refused", "only beside grad_output" (which itself must not be empty) or "allowed"
    """

    products: Names
    equal_inputs: bool
    formats: Names
    bias_formats: Names
    empty: Literal["refused", "only beside grad_output", "allowed"]
    empty_grad_bias: Literal["sum", "count", "zeros"]
    dtypes: ByProduct
    bias_dtypes: ByProduct
    output_dtypes: Mapping[str, ByProduct]
    cube_math: Mapping[str, CubeMath]
    cube_math_warnings: Mapping[str, tuple[int, ...]]
    limits: tuple[Limit, ...]


@dataclass(frozen=True)
class RuleSet:
    """Rules of one document, or of the shipped operator.

    from_cube       True: `dtypes`, `dtypes_transposed` and `cube_math` of a product are those that its cube
                    multiplies (see `from_cube.with_cube`), whatever the tables of the bases say
    direct_outputs  True: every gradient leaves the core in the format asked for. False, as the operator has
                    it: grad_input leaves in the format that the cube multiplies, grad_bias in that of
                    grad_output, and a Cast kernel makes what was asked for
    """

    name: str
    title: str
    convolution: ConvolutionRules
    tbc: TbcRules
    from_cube: bool = False
    direct_outputs: bool = False


@dataclass(frozen=True)
class ProductName:
    """A product as the interface knows it, and how it is called elsewhere (lower case, without "ascend")."""

    name: str
    title: str
    arch: str
    names: Names
    prefixes: Names
