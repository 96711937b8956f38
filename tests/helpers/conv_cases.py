"""Small convolutions, their tensors, and how to run them: shared by the tests of the operator."""

import random
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
from hypothesis import strategies as st

from ascendsim.cube.movers import Fixpipe
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.formats.casts import round_to
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype
from ascendsim.ops.lowering.call import Call
from ascendsim.ops.lowering.graph import TransData
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.lowering.layouts import unpack_weight
from ascendsim.ops.plan import GRID, Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.running import execute
from ascendsim.profile import load_profile
from ascendsim.timing.kernel import time_kernel
from ascendsim.timing.timeline import arrivals as arrival_order
from ascendsim.vector.instructions import CopyUbToGm
from tests.helpers.requests import plans_of
from tests.helpers.toy_profiles import toy_split, toy_unified

# A few cores and buffers of a few KiB, so that a few hundred pixels make many tiles; meeting costs little, so
# that reductions are split.
SPLIT = toy_split(**{"cores.cube": 5, "cores.vector": 10, "sync.barrier_us": 0.01})
UNIFIED = toy_unified(**{"cores.cube": 3, "sync.barrier_us": 0.01})
# (format of all tensors, cube_math_type): every way the cube multiplies on these products
MODES = (
    ("float16", 0),
    ("bfloat16", 0),
    ("float32", 0),
    ("float32", 1),
    ("float32", 2),
    ("float32", 3),
)
# What the cube multiplies where it is not the tensors' own format.
COMPUTES = {
    ("float32", 1): "hf32",
    ("float32", 2): "float16",
    ("float32", 3): "hf32",
}
DATA = ("normal", "wide", "special", "integers")
GRADIENTS = ("grad_input", "grad_weight", "grad_bias")


@dataclass(frozen=True)
class Case:
    """One call on random data; its text is the name of the test."""

    problem: ConvProblem
    dtype: str = "float16"
    cube_math_type: int = 0
    data: str = "normal"
    profile: object = SPLIT
    deterministic: bool = False
    order: str | int = "program"
    seed: int = 0
    accumulation: str | None = None
    splits: tuple[int, int] = (0, 0)
    tilings: tuple = ()

    def __str__(self):
        p = self.problem
        shape = "x".join(map(str, p.input)) + "_k" + "x".join(map(str, p.weight))
        attributes = f"s{p.stride}p{p.padding}d{p.dilation}g{p.groups}" + ("T" if p.transposed else "")
        mode = f"{self.dtype}-{self.cube_math_type}-{self.data}-{self.order}"
        split = "-split{}and{}".format(*self.splits) if any(self.splits) else ""
        return f"{shape}-{attributes}-{mode}-{self.profile.variant}{split}".replace(" ", "")

    def call(self):
        """Resolve the case as the API does; `splits` cut the two reductions where the plan would not."""
        call = call_of(
            self.problem,
            self.dtype,
            self.cube_math_type,
            profile=self.profile,
            deterministic=self.deterministic,
            accumulation=self.accumulation,
            tilings=dict(self.tilings),
        )
        return split(call, *self.splits)

    def tensors(self):
        """Draw the tensors."""
        return tensors_of(self.problem, self.dtype, self.data, self.seed)


@cache
def profile_of(name):
    """A product, of those that are shipped or of the two toys."""
    return {"toy_split": SPLIT, "toy_unified": UNIFIED}.get(name) or load_profile(name)


def call_of(
    problem,
    dtype="float16",
    cube_math_type=0,
    *,
    profile=SPLIT,
    deterministic=False,
    accumulation=None,
    tilings=None,
):
    """Make the record that fixes the kernels of a call whose tensors all have one format."""
    compute = COMPUTES.get((dtype, cube_math_type), dtype)
    model = AccumulationModel.parse(accumulation or profile.accumulation[compute])
    names = ("grad_output", "input", "weight", *GRADIENTS)
    return Call(
        problem,
        profile,
        compute,
        dict.fromkeys(names, dtype),
        model.resolve(profile.cube.rates[compute].block_k),
        deterministic,
        plans_of(problem, GRADIENTS[:2], compute, profile, tilings or {}, {}, deterministic=deterministic),
    )


def split(call, image_parts, filter_parts):
    """Return the call with the reductions of grad_input and grad_weight in so many parts (0: as planned)."""
    plans = dict(call.plans)
    if image_parts:
        parts = min(image_parts, image_schedule(call).gemm.channel_groups)
        plans["grad_input"] = Plan("dgrad", replace(plans["grad_input"].tiling, k_split=parts))
    if filter_parts:
        cores = call.profile.cores.cube
        # Instead of a grid, which cuts the reduction its own way.
        whole = replace(plans["grad_weight"].tiling, **dict.fromkeys(GRID, 0))
        tiling = replace(whole, k_split=filter_parts, used_cores=cores)
        plans["grad_weight"] = Plan("wgrad", tiling)
    return replace(call, plans=plans)


def tensors_of(problem, dtype="float16", data="normal", seed=0):
    """Draw grad_output, input and weight as float32 carriers on the grid of a format."""
    rng = np.random.default_rng(seed)
    shapes = {"grad_output": problem.grad_output, "input": problem.input, "weight": problem.weight}
    return {name: draw(rng, shape, dtype, data) for name, shape in shapes.items()}


def draw(rng, shape, dtype, data):
    """Draw one tensor.

    normal    standard normal
    wide      random signs and exponents, so that sums cancel and most terms lie far below the largest
    special   normal with a few Inf, NaN, subnormals, signed zeros and largest values
    integers  whole numbers of at most 8 in magnitude: every sum is exact
    """
    fmt = lookup_dtype(dtype)
    values = rng.standard_normal(shape)
    if data == "wide":
        values = np.ldexp(values, rng.integers(-14, 15, shape))
    elif data == "integers":
        values = rng.integers(-8, 9, shape)
    elif data == "special":
        least = np.ldexp(1.0, fmt.min_exponent - fmt.mantissa_bits)
        rare = np.array([np.inf, -np.inf, np.nan, least, -least, 3 * least, 0.0, -0.0, fmt.max_finite])
        chosen = rng.random(shape) < 0.03
        values = np.where(chosen, rng.choice(rare, shape), values)
    with np.errstate(over="ignore", under="ignore"):
        return round_to(np.asarray(values, np.float32), fmt)


def kernels_with_inputs(call, tensors, mask=(True, True, True)):
    """Yield every kernel of a call with the tensors in GM that it begins with, and run it afterwards."""
    graph = lower(call, mask)
    gm = {graph.inputs[name].name: values for name, values in tensors.items()}
    for node in graph.nodes:
        if isinstance(node, TransData):
            gm[node.target.name] = node.convert(gm[node.source.name].reshape(node.source.shape))
        else:
            yield node, {name: gm[name] for name, t in node.tensors.items() if t.role == "input"}
            execute(node, call.profile, gm)


def run(call, tensors, order="program", mask=(True, True, True), alter=None):
    """Execute all kernels of a call; return the gradients, and the arrivals of atomic parts or None.

    `alter` changes a kernel before it runs.
    """
    graph = lower(call, mask)
    gm = {graph.inputs[name].name: values for name, values in tensors.items()}
    arrivals = None
    for node in graph.nodes:
        if isinstance(node, TransData):
            gm[node.target.name] = node.convert(gm[node.source.name].reshape(node.source.shape))
            continue
        observe = None
        if node.name == "grad_weight" and is_atomic(call):
            observe = arrivals = Arrivals(call)
        steps = order
        if order == "arrival":
            steps = arrival_order(node, time_kernel(node, call.profile, folded=False))
        execute(alter(node) if alter else node, call.profile, gm, steps, observe)
    gradients = {name: gm[tensor.name].reshape(tensor.shape) for name, tensor in graph.outputs.items()}
    return gradients, arrivals.by_weight() if arrivals else None


def image_schedule(call):
    """Return the schedule of grad_input as the call has it."""
    return call.schedule("grad_input")


def filter_schedule(call):
    """Return the schedule of grad_weight as the call has it."""
    return call.schedule("grad_weight")


def blocks_dealt(call):
    """(part, first row, first column) of the base blocks of grad_weight, by core."""
    cores = call.schedule("grad_weight").dealt()
    return [[(t.part, t.first_row, t.columns.first_column) for t in tasks] for tasks in cores]


def steps_of(kernel):
    """The instructions of the phase on the cube, of all cores."""
    [phase] = [phase for phase in kernel.phases if phase.name == "compute"]
    return [step for work in phase.work for step in work.build().instructions]


def is_atomic(call):
    """Whether the parts of grad_weight are added atomically."""
    return filter_schedule(call).atomic


class Arrivals:
    """Observes in which order the parts of grad_weight are added to each element."""

    def __init__(self, call):
        self._call = call
        schedule = filter_schedule(call)
        shape = schedule.gemm.output.shape
        self._parts = schedule.order().k_split
        self._order = np.full((self._parts, *shape), -1)
        self._count = np.zeros(shape, int)
        # What each core still has to write: its tasks in order, and the columns of the first that are left.
        self._tasks = [list(tasks) for tasks in schedule.dealt()]
        self._written = [0] * len(self._tasks)

    def __call__(self, phase, core, instruction):
        del phase
        if not (isinstance(instruction, Fixpipe | CopyUbToGm) and instruction.atomic):
            return
        tasks = self._tasks[core.index]
        task, place = tasks[0], instruction.dst.index
        assert place[:2] == (task.group, task.depth)
        counts = self._count[place]
        np.put_along_axis(self._order[:, *place], counts[None], task.part, axis=0)
        counts += 1
        self._written[core.index] += counts.shape[1]
        if self._written[core.index] == task.columns.groups * self._call.c0:
            tasks.pop(0)
            self._written[core.index] = 0

    def by_weight(self):
        """Return (parts, *weight): the part that was added first, second, ... to each element of weight.

        A part that reduces nothing adds nothing; the definition adds its +0 last, which changes no sum.
        """
        for part in range(self._parts):
            missing = ~(self._order == part).any(axis=0)
            places = np.nonzero(missing)
            self._order[self._count[places], *places] = part
            self._count[places] += 1
        problem, c0 = self._call.problem_of("grad_weight"), self._call.c0
        return np.stack([unpack_weight(order, problem, c0) for order in self._order])


def assert_same_bits(got, want, what=""):
    """Compare two float32 arrays bit for bit; any NaN equals any other."""
    assert got.shape == want.shape
    same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
    if not same.all():
        place = tuple(int(i) for i in np.argwhere(~same)[0])
        raise AssertionError(
            f"{what}: {(~same).sum()} of {same.size} differ, first at {place}: {got[place]!r}, "
            f"not {want[place]!r}"
        )


def check_bits(case, *orders):
    """Run a case, in its own order if none is named, and compare its gradients with the ordered reference."""
    call, tensors = case.call(), case.tensors()
    want = None
    for order in orders or (case.order,):
        got, arrivals = run(call, tensors, order)
        if want is None or arrivals is not None:
            want = reference_gradients(call, **tensors, arrivals=arrivals)
        for name in GRADIENTS:
            assert_same_bits(got[name], want[name], f"{name} in order {order}")


def grid_2d(seed=0, per_shape=1):
    """Return cases over strides 1..3, paddings 0..2, dilations 1..2, kernels 1, 2, 3, 5; the rest is random.

    Sizes are odd and channels no multiple of C0, so that every tile has tails; most problems are small enough
    for the Fraction twin.
    """
    rng = random.Random(seed)
    cases = []
    for stride, padding, dilation, kernel in product((1, 2, 3), (0, 1, 2), (1, 2), (1, 2, 3, 5)):
        for _ in range(per_shape):
            cases.append(_grid_case(rng, stride, padding, dilation, kernel))
    return cases


def _grid_case(rng, stride, padding, dilation, kernel):
    least = max(1, dilation * (kernel - 1) + 1 - 2 * padding)
    height, width = (least + rng.choice((0, 1, 4, 9)) for _ in range(2))
    batch, inputs, outputs = rng.choice(((1, 2, 3), (2, 17, 6), (1, 5, 19), (3, 20, 33), (2, 33, 18)))
    problem = ConvProblem(
        (batch, inputs, height, width), (outputs, inputs, kernel, kernel), stride, padding, dilation
    )
    return dress(rng, problem)


def dress(rng, problem):
    """Return a case of the problem with everything else chosen at random."""
    dtype, cube_math_type = rng.choice(MODES)
    return Case(
        problem,
        dtype,
        cube_math_type,
        rng.choice(DATA),
        rng.choice((SPLIT, SPLIT, UNIFIED)),
        rng.random() < 0.3,
        rng.choice(("program", "arrival", rng.randrange(1000), rng.randrange(1000))),
        rng.randrange(1000),
        splits=rng.choice(((0, 0), (0, 0), (0, 2), (0, 5), (2, 3))),
    )


def other_ranks(seed=0):
    """Return cases in one and three dimensions, with groups, transposed and with a pad per side."""
    problems = [
        ConvProblem((2, 3, 9), (4, 3, 3), 2, 1),
        ConvProblem((1, 17, 12), (5, 17, 2), 3, 0, 1),
        ConvProblem((1, 3, 5, 6, 7), (4, 3, 3, 3, 3), 1, 1),
        ConvProblem((2, 5, 7, 6, 5), (3, 5, 2, 3, 1), (2, 1, 2), (0, 1, 0), (2, 1, 1)),
        # every second depth of the input meets no tap: those depths are zero-filled
        ConvProblem((1, 3, 6, 4, 4), (2, 3, 1, 3, 3), (2, 1, 1), (0, 1, 1)),
        # the last tap in depth reads only padding for most outputs
        ConvProblem((1, 2, 3, 4, 4), (3, 2, 3, 2, 2), (3, 1, 1), (2, 0, 0), (2, 1, 1)),
        ConvProblem((2, 6, 7, 8), (9, 2, 3, 3), 1, 1, groups=3),
        ConvProblem((1, 8, 6, 6), (8, 1, 3, 3), 2, 1, groups=8),
        ConvProblem((2, 5, 6, 5), (5, 3, 3, 3), 2, 1, transposed=True, output_padding=1),
        ConvProblem((1, 19, 4, 7), (19, 2, 2, 4), (1, 3), (0, 2), (1, 1), True, (0, 1)),
        ConvProblem((1, 6, 4, 5), (6, 3, 3, 3), 2, 1, transposed=True, groups=2),
        ConvProblem((1, 4, 3, 4, 3), (4, 2, 2, 2, 2), 2, 0, transposed=True, groups=2),
        ConvProblem((1, 3, 8, 9), (4, 3, 3, 3), 2, (0, 1, 2, 1)),
    ]
    rng = random.Random(seed)
    return [dress(rng, problem) for problem in problems]


@st.composite
def problems(draw, most_channels=40, most_pixels=900):
    """Draw a convolution of any rank, with odd sizes, any channels, groups, transposed or not."""
    rank = draw(st.sampled_from((1, 2, 2, 2, 3)))
    longest = int(most_pixels ** (1 / rank))
    widest = {1: 40, 2: 12, 3: 4}[rank]
    transposed, groups = draw(st.booleans()), draw(st.sampled_from((1, 1, 1, 2, 3)))
    axes = []
    for _ in range(rank):
        kernel, stride, dilation = (draw(st.integers(1, most)) for most in (widest, 4, 3))
        padding = draw(st.integers(0, 4))
        span = dilation * (kernel - 1) + 1
        if transposed:
            # the smallest input whose output has a pixel
            least = max(1, -(-(2 * padding + 1 - span) // stride) + 1)
            spare = draw(st.integers(0, max(stride, dilation) - 1))
        else:
            least, spare = max(1, span - 2 * padding), 0
        axes.append((least + draw(st.integers(0, longest)), kernel, stride, padding, dilation, spare))
    sizes, kernels, strides, paddings, dilations, spares = zip(*axes, strict=True)
    batch, inputs, outputs = (draw(st.integers(1, most)) for most in (3, most_channels, most_channels))
    weight = (inputs * groups, outputs) if transposed else (outputs * groups, inputs)
    return ConvProblem(
        (batch, inputs * groups, *sizes),
        (*weight, *kernels),
        strides,
        paddings,
        dilations,
        transposed,
        spares,
        groups,
    )
