"""Vector kernels of a training step: softmax, layer norm, gradients of activations, and a step of Adam.

Each is a loop over pieces of rows, of which one arrives while another is worked on. Beside it stands what it
means in numpy, in the same order of roundings: results are equal bit for bit.

Run it with `python examples/13_softmax_norm_and_adam.py`.
"""

from functools import partial

import numpy as np

from ascendsim import load_profile
from ascendsim.functional import run_kernel
from ascendsim.instructions.elementwise import Binary, Compare, MulAdd, Select, Unary
from ascendsim.instructions.rowwise import BinaryRows, Brcb, ReduceRows
from ascendsim.instructions.vector import CopyGmToUb, CopyUbToGm
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase, unknown_costs
from ascendsim.program.places import Gm, GmTensor
from ascendsim.program.program import ProgramBuilder
from ascendsim.timing.kernel import measure_kernel

ROWS, COLUMNS, EACH, CORES = 128, 512, 8, 4
SIZE = EACH * COLUMNS
F32 = np.float32
BETAS, RATE, EPSILON, STEP = (0.9, 0.999), 1e-3, 1e-8, 10


def softmax(on, x, y):
    """Take away the largest of a row, take exponentials, divide by their sum."""
    (t,) = on.take(x)
    for reduce, combine in (("Max", "Sub"), ("Sum", "Div")):
        if reduce == "Sum":
            on.add(Unary(t, t, "Exp", SIZE))
        on.add(ReduceRows(on.number, t, on.scratch, reduce, EACH, COLUMNS))
        on.add(Brcb(on.blocks, on.number, EACH))
        on.add(BinaryRows(t, t, on.blocks, combine, EACH, COLUMNS))
    return {y: t}


def softmax_in_numpy(x):
    """Return the softmax of each row."""
    powers = np.exp((x - x.max(1, keepdims=True)).astype(np.float64)).astype(F32)
    return (powers / row_sums(powers),)


def layer_norm(on, x, gamma, beta, y):
    """Take away the mean of a row, divide by the deviation, scale and move each column."""
    t, g, b, squares = on.take(x, gamma, beta, None)

    def mean(of):
        on.add(ReduceRows(on.number, of, on.scratch, "Sum", EACH, COLUMNS))
        on.add(Unary(on.number, on.number, "Muls", EACH, scalar=1 / COLUMNS))

    mean(t)
    on.add(Brcb(on.blocks, on.number, EACH))
    on.add(BinaryRows(t, t, on.blocks, "Sub", EACH, COLUMNS))
    on.add(Binary(squares, t, t, "Mul", SIZE))
    mean(squares)
    on.add(Unary(on.number, on.number, "Adds", EACH, scalar=1e-5))
    on.add(Unary(on.number, on.number, "Sqrt", EACH))
    on.add(Brcb(on.blocks, on.number, EACH))
    on.add(BinaryRows(t, t, on.blocks, "Div", EACH, COLUMNS))
    on.add(BinaryRows(t, t, g, "Mul", EACH, COLUMNS, along="columns"))
    on.add(BinaryRows(t, t, b, "Add", EACH, COLUMNS, along="columns"))
    return {y: t}


def layer_norm_in_numpy(x, gamma, beta):
    """Return the layer norm of each row."""
    apart = x - row_sums(x) * F32(1 / COLUMNS)
    deviation = np.sqrt(row_sums(apart * apart) * F32(1 / COLUMNS) + F32(1e-5))
    return (apart / deviation * gamma + beta,)


def relu_gradient(on, x, dy, dx):
    """Keep the gradient where the input was above zero."""
    t, d, mask = on.take(x, dy, None)
    on.add(Compare(mask, t, None, "GT", SIZE, scalar=0))
    on.add(Select(d, mask, d, None, SIZE, scalar=0))
    return {dx: d}


def relu_gradient_in_numpy(x, dy):
    """Return the gradient of ReLU."""
    return (np.where(x > 0, dy, F32(0)),)


def gelu_gradient(on, x, dy, dx):
    """Make the gradient of x * sigmoid(1.702 x), which stands for GELU."""
    t, d, s, u = on.take(x, dy, None, None)
    on.add(Unary(s, t, "Muls", SIZE, scalar=-1.702))
    on.add(Unary(s, s, "Exp", SIZE))
    on.add(Unary(s, s, "Adds", SIZE, scalar=1))
    on.add(Unary(s, s, "Reciprocal", SIZE))
    on.add(Unary(u, s, "Muls", SIZE, scalar=-1))
    on.add(Unary(u, u, "Adds", SIZE, scalar=1))
    on.add(Binary(u, u, s, "Mul", SIZE))
    on.add(Binary(u, u, t, "Mul", SIZE))
    on.add(MulAdd(s, u, None, SIZE, scalar=1.702))
    on.add(Binary(d, d, s, "Mul", SIZE))
    return {dx: d}


def gelu_gradient_in_numpy(x, dy):
    """Return the gradient of GELU."""
    s = np.exp((x * F32(-1.702)).astype(np.float64)).astype(F32) + F32(1)
    s = (1 / s.astype(np.float64)).astype(F32)
    return (dy * (s + (s * F32(-1) + F32(1)) * s * x * F32(1.702)),)


def adam(on, p, m, v, g, p1, m1, v1):
    """Step parameters p by a gradient g, with its mean m and its mean of squares v."""
    t_p, t_m, t_v, t_g, t = on.take(p, m, v, g, None)
    (first, second), by = BETAS, {"elements": SIZE}
    on.add(Unary(t_m, t_m, "Muls", **by, scalar=first))
    on.add(MulAdd(t_m, t_g, None, **by, scalar=1 - first))
    on.add(Binary(t_g, t_g, t_g, "Mul", **by))
    on.add(Unary(t_v, t_v, "Muls", **by, scalar=second))
    on.add(MulAdd(t_v, t_g, None, **by, scalar=1 - second))
    on.add(Unary(t, t_v, "Muls", **by, scalar=1 / (1 - second**STEP)))
    on.add(Unary(t, t, "Sqrt", **by))
    on.add(Unary(t, t, "Adds", **by, scalar=EPSILON))
    on.add(Binary(t, t_m, t, "Div", **by))
    on.add(MulAdd(t_p, t, None, **by, scalar=-RATE / (1 - first**STEP)))
    return {p1: t_p, m1: t_m, v1: t_v}


def adam_in_numpy(p, m, v, g):
    """Return parameters and both means after a step."""
    first, second = BETAS
    m = m * F32(first) + g * F32(1 - first)
    v = v * F32(second) + g * g * F32(1 - second)
    root = np.sqrt(v * F32(1 / (1 - second**STEP))) + F32(EPSILON)
    return p + m / root * F32(-RATE / (1 - first**STEP)), m, v


def row_sums(x):
    """Add groups of 64 from left to right, then the 64 lanes by halves, as `ReduceRows` does."""
    lanes = x[:, :64]
    for at in range(64, x.shape[1], 64):
        lanes = lanes + x[:, at : at + 64]
    while lanes.shape[1] > 1:
        lanes = lanes[:, : lanes.shape[1] // 2] + lanes[:, lanes.shape[1] // 2 :]
    return lanes


# Name: what it does here and in numpy, tensors that are read, tensors that are written.
KERNELS = {
    "softmax": (softmax, softmax_in_numpy, "x", "y"),
    "layer norm": (layer_norm, layer_norm_in_numpy, "x gamma beta", "y"),
    "gradient of ReLU": (relu_gradient, relu_gradient_in_numpy, "x dy", "dx"),
    "gradient of GELU": (gelu_gradient, gelu_gradient_in_numpy, "x dy", "dx"),
    "Adam": (adam, adam_in_numpy, "p m v g", "p1 m1 v1"),
}


class Pieces:
    """The program of a vector core under way: what `body` adds for each of its pieces of rows."""

    def __init__(self, profile, body, tensors, core):
        self._builder, self._rings = ProgramBuilder(profile), {}
        # One number for each row, each over a block, and a repeat for each.
        sizes = {"number": 4, "blocks": 32, "scratch": 256}
        self.number, self.blocks, self.scratch = (
            self._builder.slots("UB", EACH * size, name)[0] for name, size in sizes.items()
        )
        self.add = self._builder.add
        for first in range(core * EACH, ROWS, CORES * EACH):
            self._rows = slice(first, first + EACH)
            for tensor, made in body(self, *tensors).items():
                self.add(CopyUbToGm.of(Gm(tensor, (self._rows,)), made))
        self.program = self._builder.build()

    def take(self, *wanted):
        """Return a tile for each tensor, with its rows or its only one; for None an empty tile."""
        got = []
        for at, tensor in enumerate(wanted):
            if at not in self._rings:
                name = tensor.name if tensor else f"tile{at}"
                self._rings[at] = self._builder.ring("UB", SIZE * 4, name, 2)
            got.append(self._rings[at].next())
            if tensor is not None:
                rows = self._rows if len(tensor.shape) == 2 else slice(0, COLUMNS)
                self.add(CopyGmToUb.of(got[-1], Gm(tensor, (rows,))))
        return got


def program(profile, body, tensors, core):
    """Return the program of a vector core."""
    return Pieces(profile, body, tensors, core).program


def kernel_of(name, profile):
    """Return a kernel, and drawn values of what it reads."""
    body, _, read, written = KERNELS[name]
    rng = np.random.default_rng(0)
    shapes = {each: (COLUMNS,) if each in ("gamma", "beta") else (ROWS, COLUMNS) for each in read.split()}
    tensors = {each: GmTensor.of(each, shape, "float32") for each, shape in shapes.items()}
    for each in written.split():
        tensors[each] = GmTensor.of(each, (ROWS, COLUMNS), "float32", "output")
    made = partial(program, profile, body, tensors.values())
    works = [CoreWork(Core("vector", core), name, partial(made, core)) for core in range(CORES)]
    math = MathSettings(AccumulationModel.parse("exact:RNE"))  # of a cube, which does nothing here
    drawn = {each: rng.standard_normal(shape, F32) for each, shape in shapes.items()}
    if "v" in drawn:
        drawn["v"] = np.abs(drawn["v"])  # a mean of squares
    return Kernel(name, (Phase("all", works),), tensors, math), drawn


if __name__ == "__main__":
    profile = load_profile("910B2")
    for name, (_, in_numpy, _, written) in KERNELS.items():
        kernel, tensors = kernel_of(name, profile)
        due = in_numpy(*tensors.values())
        run_kernel(kernel, tensors)
        right = all(map(np.array_equal, [tensors[each] for each in written.split()], due))
        cycles = [measure_kernel(kernel, profile, engine=engine).cycles for engine in ("simpy", "compiled")]
        print(f"{name}: right: {right}; cycles: {cycles}; {unknown_costs(kernel, profile)}")
