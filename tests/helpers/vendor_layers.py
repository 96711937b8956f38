"""Layers and cores for tests of the products' rules: what these ask for, without a profile."""

from ascendsim import ConvProblem
from ascendsim.ops.tiling.vendor.layer import Layer, Layouts, Machine
from ascendsim.ops.tiling.vendor.operators import plan_of_layer

# 910B2 and the 32 cores of a 910_95.
ARCH22 = Machine(524288, 65536, 65536, 131072, 196608, 24)
ARCH35 = Machine(524288, 65536, 65536, 262144, 253952, 32)
LAST = Layouts("NDHWC", "NCDHW", "NDHWC")


def layer(input, weight, *attributes, dtype="float16", hf32=False, layouts=None, **more):
    """A layer as the rules see it; attributes as those of a convolution."""
    found = Layer.of(ConvProblem(input, weight, *attributes, **more), "hf32" if hf32 else dtype)
    return found if layouts is None else found._replace(layouts=layouts)


def square(channels, out, size, kernel=3, stride=1, batch=1, padding=None, **more):
    """A layer of square images and kernels, padded so that unit steps keep the size."""
    pad = kernel // 2 if padding is None else padding
    return layer((batch, channels, size, size), (out, channels, kernel, kernel), stride, pad, **more)


def rows(height, width, channels, out, batch=128, kernel=1, **more):
    """Images of any height and width, padded likewise; 128 of them are no few tasks for 32 cores."""
    return layer((batch, channels, height, width), (out, channels, kernel, kernel), 1, kernel // 2, **more)


def plan(layer, gradient, machine, dtype="float16", **more):
    """What the operator chooses on either generation of cores, which L0C tells apart here."""
    arch = "2201" if machine.l0c == ARCH22.l0c else "3510"
    return plan_of_layer(layer, machine, gradient, dtype, arch, **more)


def base(plan):
    """The sides of the base block of a plan, or of a tiling."""
    return plan.base_m, plan.base_n, plan.base_k
