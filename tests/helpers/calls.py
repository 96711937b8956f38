"""Calls of the operators and of the interface: how to draw, break, run and check them."""

from dataclasses import dataclass, fields, replace

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from ascendsim import convolution_backward
from ascendsim.aclnn import (
    AclTensor,
    conv_tbc_backward_get_workspace_size,
    convolution_backward_get_workspace_size,
)
from ascendsim.errors import AclnnError, ShapeError
from ascendsim.numerics.casts import decode, encode, hf32, round_to
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.numerics.hifloat8 import HiFloat8Array
from ascendsim.ops.operands import Operand, spread
from ascendsim.ops.options.asked import decide
from ascendsim.ops.options.call import Options
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.rules import ConvolutionBackwardCall, ConvTbcBackwardCall, TensorDescription, resolve
from tests.helpers.conv_cases import assert_same_bits

# -------------------------------------------------------------------------------------------------------
# Calls that every rule set accepts, ways to break them, and what the rules answer: shared by their tests.
# -------------------------------------------------------------------------------------------------------

T = TensorDescription
LAYOUTS = {3: "NCL", 4: "NCHW", 5: "NCDHW"}


def conv(
    input=(2, 4, 5, 6, 7),
    weight=(6, 2, 3, 3, 3),
    stride=1,
    padding=1,
    dilation=1,
    transposed=False,
    output_padding=0,
    groups=2,
    mask=(True, True, True),
    cube_math_type=0,
    dtype="float32",
    grad_output=None,
):
    """Describe a call whose shapes fit; the default is a grouped 3-D convolution with every gradient."""
    axes = len(input) - 2
    spread = {
        name: (value,) * axes if isinstance(value, int) else tuple(value)
        for name, value in (
            *(("stride", stride), ("padding", padding), ("dilation", dilation)),
            ("output_padding", output_padding),
        )
    }
    shape = grad_output or _grad_output(input, weight, transposed, groups, **spread)
    layout = LAYOUTS[len(input)]
    return ConvolutionBackwardCall(
        T(shape, dtype, layout),
        T(input, dtype, layout),
        T(weight, dtype, layout),
        (shape[1],),
        spread["stride"],
        spread["padding"],
        spread["dilation"],
        transposed,
        spread["output_padding"],
        groups,
        mask,
        cube_math_type,
        T(input, dtype, layout),
        T(weight, dtype, layout),
        T((shape[1],), dtype, "ND"),
    )


def _grad_output(input, weight, transposed, groups, stride, padding, dilation, output_padding):
    axes = range(len(input) - 2)
    pads = padding if len(padding) == len(axes) else None
    sizes = []
    for i in axes:
        both = 2 * pads[i] if pads else padding[2 * i] + padding[2 * i + 1]
        span = dilation[i] * (weight[2 + i] - 1) + 1
        if transposed:
            sizes.append((input[2 + i] - 1) * stride[i] - both + span + output_padding[i])
        else:
            sizes.append((input[2 + i] + both - span) // stride[i] + 1)
    return (input[0], weight[1] * groups if transposed else weight[0], *sizes)


def tbc(time=7, batch=2, channels=3, taps=3, made=4, pad=1, dtype="float32", cube_math_type=0, layout="ND"):
    """Describe a call of conv_tbc backward whose shapes fit."""
    shapes = {
        "grad_output": (time + 2 * pad + 1 - taps, batch, made),
        "input": (time, batch, channels),
        "weight": (taps, channels, made),
        "bias": (made,),
    }
    given = {name: T(shape, dtype, "ND" if name == "bias" else layout) for name, shape in shapes.items()}
    return ConvTbcBackwardCall(**given, pad=pad, cube_math_type=cube_math_type).with_usual_outputs()


def changed(call, changes):
    """Return the call with fields replaced; "input.dtype" names a field of one of its tensors."""
    for path, value in changes.items():
        name, _, inner = path.partition(".")
        if inner:
            value = replace(getattr(call, name), **{inner: value})
        call = replace(call, **{name: value})
    return call


def answer(call, product="910B", rules="documented"):
    """Return (0, "") of an accepted call, else the status and the number of the check that failed."""
    try:
        resolve(call, product, rules)
    except AclnnError as error:
        return error.status, error.check.partition(" ")[0]
    return 0, ""


# --- Calls of the two-phase interface with values, made of the descriptions of `calls`. ----------

OUTPUTS = ("grad_input", "grad_weight", "grad_bias")


def random_array(shape, dtype, seed=0):
    """Return random values on the grid of a dtype, as they are stored."""
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return encode(round_to(values, dtype), dtype)


def arguments_of(call, *, arrays=True):
    """Return the arguments of the first phase by name: tensors with random values, or shapes alone."""
    given = {}
    for seed, entry in enumerate(fields(call)):
        value = getattr(call, entry.name)
        if entry.name in call.tensors and value is not None:
            held = random_array(value.shape, value.dtype, seed) if arrays else value.shape
            if arrays and entry.name in OUTPUTS:
                memory = getattr(held, "codes", held)
                memory[...] = np.ones(memory.shape).astype(memory.dtype)  # anything but the answer
            value = AclTensor(held, value.dtype, value.format)
        given[entry.name] = value
    return given


def first_phase(call, arguments=None, **options):
    """Run the first phase of a described call."""
    tbc = isinstance(call, ConvTbcBackwardCall)
    function = conv_tbc_backward_get_workspace_size if tbc else convolution_backward_get_workspace_size
    return function(**(arguments or arguments_of(call)), **options)


# -------------------------------------------------------------------------------------------------------
# Whole calls of the two operators on random tensors: how to draw, run and check them; shared by tests.
# -------------------------------------------------------------------------------------------------------

GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
INPUTS = ("grad_output", "input", "weight")
UNIT = 2.0**-24  # half the distance of neighbouring float32 values, relative


def names(result):
    """The kernels of a call, in order."""
    return [kernel.name for kernel in result.kernels]


def plain(array):
    return array


def permuted(array):
    """The same values, the first axis fastest in memory."""
    return np.asfortranarray(array)


def every_second(array):
    wide = np.zeros((*array.shape[:-1], array.shape[-1] * 2), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def backwards(array):
    return array[::-1].copy()[::-1]


LAYS = (plain, permuted, every_second, backwards)


@dataclass(frozen=True)
class ApiCall:
    """One call of `convolution_backward` on random data, by value."""

    problem: ConvProblem
    dtypes: tuple = ("float16",) * 3
    cube_math_type: int = 0
    product: str = "910B"
    mask: tuple = (True, True, True)
    output_dtypes: tuple = (None, None, None)
    lays: tuple = (plain,) * 3
    deterministic: bool | None = None
    order: str | int = "program"
    accumulation: str | None = None
    rules: str = "documented"
    seed: int = 0
    scale: float = 1.0

    def carriers(self):
        """Draw the tensors as float32 values on the grids of their formats."""
        rng = np.random.default_rng(self.seed)
        shapes = (self.problem.grad_output, self.problem.input, self.problem.weight)
        return [
            round_to((rng.standard_normal(shape) * self.scale).astype(np.float32), dtype)
            for shape, dtype in zip(shapes, self.dtypes, strict=True)
        ]

    def arrays(self):
        """Return the tensors as a user would hold them, laid out as the case says."""
        stored = [encode(c, dtype) for c, dtype in zip(self.carriers(), self.dtypes, strict=True)]
        return [
            HiFloat8Array(lay(a.codes)) if isinstance(a, HiFloat8Array) else lay(a)
            for a, lay in zip(stored, self.lays, strict=True)
        ]

    @property
    def attributes(self):
        """stride, padding, dilation, transposed, output_padding, groups."""
        p = self.problem
        return p.stride, p.padding, p.dilation, p.transposed, p.output_padding, p.groups

    @property
    def options(self):
        """The keywords that the call is made with, but for the order."""
        return {
            "product": self.product,
            "accumulation": self.accumulation,
            "deterministic": self.deterministic,
            "output_dtypes": self.output_dtypes,
            "rules": self.rules,
        }

    def run(self, **more):
        """Make the call, with more keywords if they are given."""
        sizes = [self.problem.grad_output[1]]
        return convolution_backward(
            *self.arrays(),
            sizes,
            *self.attributes,
            self.mask,
            self.cube_math_type,
            order=self.order,
            **self.options,
            **more,
        )

    def resolved(self):
        """Return everything that fixes the kernels, as the operator resolves it."""
        options = Options(**self.options)
        axes = self.problem.rank
        attributes = [
            spread(value, axes) if not isinstance(value, bool) else value for value in self.attributes
        ]
        attributes[5] = self.problem.groups
        asked = ConvolutionBackwardCall(
            *(Operand.of(array).described for array in self.arrays()),
            (self.problem.grad_output[1],),
            *attributes,
            self.mask,
            self.cube_math_type,
        )
        return options.call(self.problem, decide(asked, options), {})

    def reference(self):
        """Return the gradients by definition, None where masked, as float32 carriers."""
        call = self.resolved()
        named = dict(zip(INPUTS, self.carriers(), strict=True))
        made = reference_gradients(call, **named, arrivals=in_order(call), mask=self.mask)
        return [made.get(name) for name in GRADIENTS]


def in_order(call):
    """Return arrivals of atomic parts one after the other, which is program order; None where kept apart."""
    k_split = call.plans["grad_weight"].tiling.k_split if "grad_weight" in call.plans else 1
    if call.deterministic or k_split == 1:
        return None
    parts = np.arange(k_split).reshape(-1, *(1 for _ in call.problem.weight))
    return np.broadcast_to(parts, (k_split, *call.problem.weight)).copy()


def gradients(result):
    """Return the gradients of a result."""
    return [getattr(result, name) for name in GRADIENTS]


def as_carrier(array):
    """Return a stored tensor as float32."""
    return decode(array, array.dtype if isinstance(array, HiFloat8Array) else lookup_dtype(array.dtype))


def check_against_reference(case):
    """Run a call and compare every gradient bit for bit with the ordered reference; return its result."""
    result = case.run()
    for name, got, want in zip(GRADIENTS, gradients(result), case.reference(), strict=True):
        assert (got is None) == (want is None), name
        if got is not None:
            assert_same_bits(as_carrier(got), want, name)
    return result


def on_the_cube(call, name, carrier):
    """Return a tensor as the cube multiplies it, from the formats alone."""
    stored = round_to(carrier, call.storage) if call.dtypes[name] != call.storage.name else carrier
    if call.compute_dtype != "hf32":
        return stored
    return hf32(stored, call.profile.cube.hf32_mantissa_bits, "RNE")


def with_changes(case, **fields):
    """Return the case with some fields changed."""
    return replace(case, **fields)


# --- A hypothesis strategy for whole calls: every dimension of the interface, small sizes. -------------

FLOATS = ("float16", "bfloat16", "float32")
SPLIT_PRODUCTS = ("910B", "910_93", "910_95")
OLD_PRODUCTS = ("310P", "910")
MODELS = (
    None,
    "seq:RNE",
    "block:cube_k:RZ",
    "block-add:cube_k:RNE:RNE",
    "tree:8:adjacent:RNE",
    "align:cube_k:F24:RZ:acc",
    "exact:RNE",
    "exact-mmad:RNE",
)


@st.composite
def problems(draw, ranks=(1, 2, 3)):
    """Draw a convolution: dims, transposed, groups, stride, padding (2 and 4), dilation, output_padding."""
    rank = draw(st.sampled_from(ranks))
    transposed = draw(st.booleans())
    kernel, stride, dilation, padding = (
        draw(st.tuples(*[values] * rank))
        for values in (st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2))
    )
    sizes = draw(st.tuples(*[st.integers(1, 7 if rank < 3 else 4)] * rank))
    if rank == 2 and draw(st.booleans()):
        padding = draw(st.tuples(*[st.integers(0, 2)] * 4))
    spare = tuple(draw(st.integers(0, s - 1)) if transposed else 0 for s in stride)
    groups = draw(st.sampled_from((1, 1, 1, 2, 3, 5)))
    # depthwise and beyond: one channel a group on either side, or several on one of them
    small, big = (draw(st.sampled_from((1, 1, 2, 3, 17))) for _ in range(2))
    batch = draw(st.integers(1, 3))
    weight = (groups * small, big, *kernel)
    input_channels = groups * (small if transposed else big)
    try:
        return ConvProblem(
            (batch, input_channels, *sizes), weight, stride, padding, dilation, transposed, spare, groups
        )
    except ShapeError:
        assume(False)
        raise


@st.composite
def types(draw, product):
    """Draw the formats of the inputs, equal or mixed, and a cube_math_type that the pages support."""
    if product in OLD_PRODUCTS:
        names = draw(st.sampled_from((("float16",) * 3, ("float32",) * 3, ("float16", "float32", "float16"))))
        return names, draw(st.sampled_from((1, 2) if "float32" in names else (0, 1, 2, 3)))
    equal = st.sampled_from(FLOATS).map(lambda name: (name,) * 3)
    names = draw(st.one_of(equal, st.tuples(*[st.sampled_from(FLOATS)] * 3)))
    return names, draw(st.sampled_from((0, 1, 3) if set(names) == {"bfloat16"} else (0, 1, 2, 3)))


@st.composite
def eight_bit_types(draw):
    """Draw one of the 8-bit formats for all tensors: 910_95, rule set "hardware"."""
    name = draw(st.sampled_from(("hifloat8", "float8_e4m3fn", "float8_e5m2")))
    return (name,) * 3, 0


@st.composite
def calls(draw):
    """Draw a call that the documented rules (or, for 8 bits, the hardware) accept."""
    product = draw(st.sampled_from((*SPLIT_PRODUCTS, *OLD_PRODUCTS)))
    problem = draw(problems((1, 2) if product in OLD_PRODUCTS else (1, 2, 3)))
    eight_bit = product == "910_95" and draw(st.integers(0, 3)) == 0
    names, cube_math_type = draw(eight_bit_types() if eight_bit else types(product))
    # The pages tie grad_input to input and grad_bias to grad_output; grad_weight is free.
    weights = (*FLOATS, None) if product in SPLIT_PRODUCTS else ("float16", "float32", None)
    return ApiCall(
        problem,
        names,
        cube_math_type,
        product,
        draw(st.tuples(*[st.booleans()] * 3)),
        (None, None if eight_bit else draw(st.sampled_from(weights)), None),
        draw(st.tuples(*[st.sampled_from((plain, *LAYS))] * 3)),
        draw(st.sampled_from((None, True, False))),
        accumulation=draw(st.sampled_from(MODELS)),
        rules="hardware" if eight_bit else "documented",
        seed=draw(st.integers(0, 999)),
    )
