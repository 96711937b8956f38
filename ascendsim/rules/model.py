"""A rule set as frozen records; docs/interface.md explains every key where it is written for users.

They are named tuples: every call imports them, and a dataclass takes five times as long to make. Annotations
are not put off: `build` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from ascendsim.rules.typed import GRADIENTS, INPUTS

# Formats of tensors that some product multiplies, in the order in which messages list them. No operator of
# the interface takes int8.
DTYPES = ("float32", "float16", "bfloat16", "hifloat8", "float8_e4m3fn", "float8_e5m2")

# Storage formats, in the vendor's spelling without its prefix.
FORMATS = (
    *("NCHW", "NHWC", "ND", "NC1HWC0", "FRACTAL_Z", "NC1HWC0_C04", "HWCN", "NDHWC", "FRACTAL_NZ", "NCDHW"),
    *("NDC1HWC0", "FRACTAL_Z_3D", "NC", "NCL"),
)


# Refused by a rule (161002), or asking for a unit that the cube does not have (561103).
REFUSED, ABSENT = "refused", "absent"


class OneOf(NamedTuple):
    """The allowed values of an entry of a rule file: `known`; without any, the products of the rules."""

    what: str
    known: tuple[str | int, ...] = ()


# A misspelt name would fit nothing, so that its rule would be void without a word: `build` looks each up.
Family = Annotated[str, OneOf("product")]
DType = Annotated[str, OneOf("dtype", DTYPES)]
Computed = Annotated[str, OneOf("compute dtype", (*DTYPES, "hf32", REFUSED, ABSENT))]
Layout = Annotated[str, OneOf("format", FORMATS)]
Axis = Annotated[str, OneOf("axis", ("D", "H", "W"))]
Rank = Annotated[int, OneOf("rank", (3, 4, 5))]
Output = Annotated[str, OneOf("output", GRADIENTS)]
Source = Annotated[str, OneOf("input", (*INPUTS, "bias"))]
TensorName = Annotated[str, OneOf("tensor", (*INPUTS, *GRADIENTS))]
MayBeNull = Annotated[str, OneOf("parameter", ("bias_sizes", *GRADIENTS))]
CubeMathType = Annotated[int, OneOf("cubeMathType", (0, 1, 2, 3))]

Names = tuple[str, ...]
Families = tuple[Family, ...]
DTypes = Mapping[Family, tuple[DType, ...]]
# Which tensors an output has its dtype from: none, one, or the more precise of two.
OutputDTypes = Mapping[Family, Mapping[Output, tuple[Source, ...]]]
# Promoted dtype -> what the cube computes in for cubeMathType 0, 1, 2, 3.
CubeMath = Mapping[DType, tuple[Computed, ...]]
Warned = Mapping[DType, tuple[CubeMathType, ...]]
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


class Limit(NamedTuple):
    """One upper limit.

    of                  stride, padding, dilation, kernel, groups, grad_output, input, weight (any extent),
                        "backward padding" (of the data gradient) or "grad_input area" (H x W)
    max, at_most        the largest value; or the name of what it may not exceed on the same axis; a row has
                        one of them
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
    max: int | None = None
    at_most: Literal["", "kernel"] = ""
    axes: tuple[Axis, ...] = ()
    ranks: tuple[Rank, ...] = ()
    products: Families = ()
    transposed: bool | None = None
    gradient: Literal["", "grad_input", "grad_weight"] = ""
    only: Literal["", "float32 or grouped"] = ""
    unless_kernel_is_1: bool = False


class EightBit(NamedTuple):
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


class GradBiasFormat(NamedTuple):
    """Products on which gradBias must be ND."""

    products: Families
    transposed_too: bool


class OutputPadding(NamedTuple):
    """Values and lengths of outputPadding."""

    below_stride_ranks: tuple[Rank, ...]
    zero_unless_transposed: bool
    lengths_2d: tuple[int, ...]


class GroupsDivide(NamedTuple):
    """Products on which groups must divide the channels of the small side (Cout, when not transposed)."""

    products: Families
    only_depthwise: bool


class Empty(NamedTuple):
    """Empty tensors of a convolution.

    products           where an empty input or weight skips the checks of shapes
    related            whether grad_output must still follow from the rest, and attributes be in range
    needs_n_or_c       whether N or C of input must be 0: "always", or only if the mask asks for "grad_input"
    weight_n_positive  whether weight.shape[0] must be above 0 also when not transposed
    four_pads          which of 4 pads an axis is tested with: both of its "sides", or its "axis number" twice
    """

    products: Families
    needs_n_or_c: Literal["always", "grad_input"]
    weight_n_positive: bool
    four_pads: Literal["sides", "axis number"]
    related: bool


class ConvolutionRules(NamedTuple):
    """Rules of aclnnConvolutionBackward; by product where products differ."""

    products: Families
    products_3d: Families
    never_null: tuple[MayBeNull, ...]
    bias_sizes: Literal["always", "empty only"]
    contiguous_outputs: bool
    equal_formats: tuple[tuple[TensorName, ...], ...]
    # Ranks whose sizes check 24 relates; others are related at 31, with another status.
    related_ranks: tuple[Rank, ...]
    batch: bool
    squeezed_grad_weight: Families
    wide_grad_bias: Families
    depthwise_3d_bfloat16: Families
    dtypes: DTypes
    dtypes_transposed: DTypes
    output_dtypes: OutputDTypes
    eight_bit: EightBit
    formats: Mapping[Rank, tuple[Layout, ...]]
    grad_bias_format: GradBiasFormat
    output_padding: OutputPadding
    groups_divide: GroupsDivide
    empty: Empty
    cube_math: Mapping[Family, CubeMath]
    cube_math_warnings: Warned
    limits: tuple[Limit, ...]


class TbcRules(NamedTuple):
    """Rules of aclnnConvTbcBackward.

    empty  "refused", "only beside grad_output" (which itself must not be empty) or "allowed"
    """

    products: Families
    contiguous_outputs: bool
    equal_inputs: bool
    formats: tuple[Layout, ...]
    bias_formats: tuple[Layout, ...]
    empty: Literal["refused", "only beside grad_output", "allowed"]
    empty_grad_bias: Literal["sum", "count", "zeros"]
    dtypes: DTypes
    bias_dtypes: DTypes
    output_dtypes: OutputDTypes
    cube_math: Mapping[Family, CubeMath]
    cube_math_warnings: Warned
    limits: tuple[Limit, ...]


class Determinism(NamedTuple):
    """Whether grad_weight is added in one order.

    default      "off": a switch that somebody has to set; "product": as the product's figures say
    fixed_order  where the order is one and the same whatever the switch says
    """

    default: Literal["off", "product"]
    fixed_order: Families


class RuleSet(NamedTuple):
    """Rules of one document, or of the shipped operator.

    from_cube       True: `dtypes`, `dtypes_transposed` and `cube_math` of a product are those that its cube
                    multiplies (see `from_cube.with_cube`), whatever the tables of the bases say
    direct_outputs  True: every gradient leaves the core in the format asked for. False, as the operator has
                    it: grad_input leaves in the format that the cube multiplies, grad_bias in that of
                    grad_output, and a Cast kernel makes what was asked for
    """

    name: str
    title: str
    determinism: Determinism
    convolution: ConvolutionRules
    tbc: TbcRules
    from_cube: bool = False
    direct_outputs: bool = False


class ProductName(NamedTuple):
    """A product as the interface knows it, and how it is called elsewhere (lower case, without "ascend")."""

    name: str
    title: str
    arch: str
    names: Names
    prefixes: Names
