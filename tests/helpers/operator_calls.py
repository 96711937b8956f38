"""Whole calls of the two operators on random tensors: how to draw, run and check them; shared by tests."""

from dataclasses import dataclass, replace

import numpy as np

from ascendsim import convolution_backward
from ascendsim.numerics.formats.casts import decode, encode, hf32, round_to
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype
from ascendsim.numerics.formats.hifloat8 import HiFloat8Array
from ascendsim.ops.operands import Operand, spread
from ascendsim.ops.options.asked import decide
from ascendsim.ops.options.call import Options
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.rules import ConvolutionBackwardCall
from tests.helpers.conv_cases import assert_same_bits

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


def changed(case, **fields):
    """Return the case with some fields changed."""
    return replace(case, **fields)
