"""Small convolutions, those for Winograd too, their tensors, and how to run them, waits left out."""

import random
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from ascendsim import Tiling
from ascendsim.errors import ProgramError
from ascendsim.functional import run_kernel
from ascendsim.instructions.fixpipe import Fixpipe
from ascendsim.instructions.vector import Add, CopyGmToUb, CopyUbToGm
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.casts import round_to
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.ops.gradients.call import Gradients
from ascendsim.ops.lowering.call import Call
from ascendsim.ops.lowering.graph import TransData
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.lowering.layouts import unpack_weight
from ascendsim.ops.plan import GRID, Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.orders import Clusters, WinogradOrder
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.running import execute
from ascendsim.profile import load_profile
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.program import NestProgram, ProgramBuilder
from ascendsim.program.waits import HAZARDS
from ascendsim.program.walk import Axis, alike
from ascendsim.timing.kernel import time_kernel
from ascendsim.timing.timeline import arrivals as arrival_order
from tests.helpers.slow_tilings import plans_of
from tests.helpers.toy_machines import toy_split, toy_unified

# -------------------------------------------------------------------------------------------------------
# Random loop nests as trees, written twice: as a `Nest`, and as plain loops that append every instruction.
# -------------------------------------------------------------------------------------------------------
# A tree is a list of steps:
#     ("loop", name, extent, body)      an index from 0
#     ("span", name, of, counts, body)  an index that goes through run `of` of runs that follow each other
#     ("hold", ring, tile, place, body) a tile told by some indices; the body follows where it was not
#     there,
#                                       and brings it into the place that an index names, or None: in turn
#     ("next", ring)                    the next slot of a ring
#     ("forget", ring)
#     ("when", of, mask, body)          where the mask has a bit for an index
#     ("set", value)                    the one variable
#     ("copy", ring, index, column) / ("add", ring, ring, kind of lanes) / ("write", ring, index, column)
# Indices are named; "task" is that of the task. What stands in `rows` below says which row an index means.

TOY = toy_split()
ROWS = GmTensor("rows", (200, 3, 8), "float32", 4)
OUT = GmTensor("out", (200, 3, 8), "float32", 4, "output")
TASKS = 7
# What an addition costs by the index that its lanes follow from, and by the variable.
LANES = (8, 4, 8, 6)
WHOLE = slice(0, 8)


class ImageBlock(NamedTuple):
    """A base block of grad_input, by its pixels and columns."""

    group: int
    image: int
    depth: int
    first_pixel: int
    pixels: int
    first_column: int
    columns: int
    phase: int = 0


class FilterBlock(NamedTuple):
    """A base block of grad_weight, by its rows and columns."""

    group: int
    depth: int
    part: int
    first_row: int
    rows: int
    columns: tuple


def blocks_of(cut, tasks):
    """The base blocks that tasks of a cut stand for, which name tiles by number."""
    found = []
    for task in tasks:
        if hasattr(task, "part"):
            told = *map(int, (task.group, task.depth, task.part)), *cut.row_tiles[task.row]
            found.append(FilterBlock(*told, cut.column_blocks[task.column]))
            continue
        phase = int(getattr(task, "phase", 0))
        tiles = (cut.cuts[phase] if hasattr(cut, "cuts") else cut).pixel_tiles[task.pixels]
        told = *map(int, (task.group, task.image, task.depth)), *tiles, *cut.column_tiles[task.columns]
        found.append(ImageBlock(*told, phase))
    return found


def segments_of(cut, depth, part):
    """What a part of a reduction has at a kernel depth: both depths, and image and pixels of each range."""
    return [
        (own.small, own.big, (image, *cut.runs[number]))
        for own in cut.part(depth, part)
        for image in range(own.image, own.image + own.images)
        for number in range(own.first, own.first + own.ranges)
    ]


class Tiles:
    """The tiles of a ring, by what they hold, for a program that is appended instruction by instruction."""

    def __init__(self, ring):
        self.ring, self.held = ring, {}

    def point(self, place):
        """Say which of its slots comes next, by number modulo how many there are."""
        while (self.ring.turn + 1 - place) % self.ring.count:
            self.ring.next()

    def next(self, tile=None):
        slot = self.ring.next()
        self.held[slot.index] = tile, slot
        return slot

    def find(self, tile):
        return next((slot for held, slot in self.held.values() if held == tile), None)

    def forget(self):
        self.held = {}


class RandomNest:
    """A random tree, and the rings that it uses: tiles of rings 0 and 1 are found again."""

    def __init__(self, rng):
        self.rng = rng
        self.copies = [rng.randint(1, 3) for _ in range(4)]
        self.names = 0
        # All slots are filled first, so that nothing is read that nothing has written.
        fill = [
            step
            for ring, copies in enumerate(self.copies)
            for step in [("next", ring), ("copy", ring, "task", 0)] * copies
        ]
        self.tree = [*fill, *self._body(2, ["task"])]

    def _body(self, depth, names):
        return [self._step(depth, names) for _ in range(self.rng.randint(2, 5))]

    def _step(self, depth, names):
        rng = self.rng
        kinds = ["next", "copy", "add", "add", "write", "set", "hold", "forget"]
        kind = rng.choice(kinds + (["loop", "span", "when", "hold", "loop"] if depth else []))
        some = rng.choice(names)
        if kind == "loop":
            name = self._name()
            return "loop", name, rng.randint(1, 4), self._body(depth - 1, [*names, name])
        if kind == "span":
            name, counts = self._name(), [rng.randrange(3) for _ in range(TASKS)]
            return "span", name, some, counts, self._body(depth - 1, [*names, name])
        if kind == "when":
            return "when", some, rng.randrange(1 << TASKS), self._body(depth - 1, names)
        if kind == "hold":
            ring, column = rng.randrange(2), rng.randrange(3)
            body = [("copy", ring, some, column)]
            return (
                "hold",
                ring,
                (some,),
                rng.choice([None, *names]),
                body + (self._body(0, names) if depth and rng.random() < 0.3 else []),
            )
        if kind in ("next", "forget"):
            return kind, rng.randrange(2, 4) if kind == "next" else rng.randrange(2)
        if kind == "set":
            return "set", rng.randrange(2)
        if kind == "add":
            return "add", rng.randrange(4), rng.randrange(4), some
        return kind, rng.randrange(4), some, rng.randrange(3)

    def _name(self):
        self.names += 1
        return f"i{self.names}"


def row_of(index):
    """The row of the tensors that an index means."""
    return 3 * index + 1


def copy(slot, index, column):
    """The copy of a row."""
    return CopyGmToUb(slot, Gm(ROWS, (row_of(index), column, WHOLE)), 32, (8,))


def write(slot, index, column):
    """The copy of a slot to a row."""
    return CopyUbToGm(Gm(OUT, (row_of(index), column, WHOLE)), slot, 32)


def add(goal, slot, index, variable):
    """An addition; of odd rows none where the variable is set."""
    if variable and index % 4 == 1:
        return None
    return Add(goal, slot, LANES[index % 4])


# An index is below this, whatever it is the index of.
MOST = 16
LANED = Axis(MOST, alike([(LANES[index % 4], index % 4 == 1) for index in range(MOST)]))
SET = Axis(2, range(2))


def nest_of(random, profile=TOY):
    """The tree as a nest."""
    nest = Nest(profile, "random")
    rings = [nest.ring("UB", 32, f"ring {n}", copies) for n, copies in enumerate(random.copies)]
    (task,) = nest.task(task=MOST)
    newest = [nest.let(ring.first, f"newest of {n}") for n, ring in enumerate(rings)]
    for number, ring in zip(newest, rings, strict=True):
        number.axis = Axis(ring.first + ring.count)
    variable = nest.let(0, "variable", SET)
    laned = nest.table(range(MOST), LANED, "lanes of")

    def body(steps, indices):
        for kind, *told in steps:
            if kind == "loop":
                name, extent, inner = told
                with nest.loop(extent, name) as index:
                    body(inner, indices | {name: index})
            elif kind == "span":
                name, of, counts, inner = told
                runs = nest.spans([*counts, *[0] * (MOST - len(counts))], MOST, name)
                with nest.loop(runs[indices[of]], name) as index:
                    body(inner, indices | {name: index})
            elif kind == "when":
                of, mask, inner = told
                with nest.when(nest.table([mask >> bit & 1 for bit in range(MOST)])[indices[of]]):
                    body(inner, indices)
            elif kind == "hold":
                ring, tile, place, inner = told
                chosen = None if place is None else indices[place]
                with nest.hold(rings[ring], *[indices[name] for name in tile], place=chosen) as slot:
                    nest.set(newest[ring], slot)
                    body(inner, indices)
                nest.set(newest[ring], slot)
            elif kind == "next":
                nest.set(newest[told[0]], nest.next(rings[told[0]]))
            elif kind == "forget":
                nest.forget(rings[told[0]])
            elif kind == "set":
                nest.set(variable, told[0])
            elif kind == "add":
                goal, source, of = told
                nest.emit(add, [newest[goal], newest[source]], [laned[indices[of]], variable])
            else:
                ring, of, column = told
                nest.emit(
                    {"copy": copy, "write": write}[kind], [newest[ring]], [sized(indices[of]), sized(column)]
                )

    def sized(index):
        # Slices of one tensor are told by numbers of equal extents.
        return (
            nest.table(range(MOST), MOST, "row of")[index]
            if not isinstance(index, int)
            else nest.let(index, "column", 3)
        )

    body(random.tree, {"task": task})
    return nest


def plain_of(random, tasks, profile=TOY):
    """The tree as plain loops: every instruction appended, for one task after the other."""
    b = ProgramBuilder(profile)
    rings = [Tiles(b.ring("UB", 32, f"ring {n}", copies)) for n, copies in enumerate(random.copies)]

    def body(steps, indices, state):
        for kind, *told in steps:
            if kind == "loop":
                name, extent, inner = told
                for index in range(extent):
                    body(inner, indices | {name: index}, state)
            elif kind == "span":
                name, of, counts, inner = told
                counts = [*counts, *[0] * (MOST - len(counts))]
                first = sum(counts[: indices[of]])
                for index in range(first, first + counts[indices[of]]):
                    body(inner, indices | {name: index}, state)
            elif kind == "when":
                of, mask, inner = told
                if mask >> indices[of] & 1:
                    body(inner, indices, state)
            elif kind == "hold":
                ring, tile, place, inner = told
                key = tuple(indices[name] for name in tile)
                slot, chosen = rings[ring].find(key), None if place is None else indices[place]
                if chosen is not None:
                    rings[ring].point(chosen)
                if slot is None:
                    slot = state[ring] = rings[ring].next(key)
                    body(inner, indices, state)
                state[ring] = slot
            elif kind == "next":
                state[told[0]] = rings[told[0]].next()
            elif kind == "forget":
                rings[told[0]].forget()
            elif kind == "set":
                state["variable"] = told[0]
            elif kind == "add":
                goal, source, of = told
                made = add(state[goal], state[source], indices[of], state["variable"])
                if made is not None:
                    b.add(made)
            else:
                ring, of, column = told
                b.add({"copy": copy, "write": write}[kind](state[ring], indices[of], column))

    for task in tasks:
        state = {n: tiles.ring.slots[0] for n, tiles in enumerate(rings)} | {"variable": 0}
        body(random.tree, {"task": task}, state)
    return b.build()


def both_of(rng, tasks=None):
    """A random nest for some tasks as a program, and the same as plain loops."""
    random = RandomNest(rng)
    tasks = [rng.randrange(TASKS) for _ in range(rng.randint(1, 6))] if tasks is None else tasks
    program = NestProgram(nest_of(random), np.array(tasks, np.int64).reshape(-1, 1))
    return program, plain_of(random, tasks)


def plain(program):
    """What a program says, with slots by place, so that those of two builders compare."""
    return (
        [plain_instruction(made) for made in program.instructions],
        (program.done_back, program.end_back, dict(program.trail_back)),
        (dict(program.buffer_bytes), [(slot.buffer, slot.size_bytes) for slot in program.slots]),
    )


def plain_instruction(made):
    """An instruction with its slots by place, and its slice of GM by name and index."""
    fields = [plain_slot(f) if isinstance(f, Slot) else f for f in made]
    fields = [[plain_slot(slot) for slot in f] if slots_of(f) else f for f in fields]
    return type(made), [(f.tensor.name, f.index) if hasattr(f, "tensor") else f for f in fields]


def plain_slot(slot):
    return slot.buffer, slot.index, slot.size_bytes


def slots_of(field):
    """Whether a field is a tuple of slots."""
    return type(field) is tuple and bool(field) and all(isinstance(one, Slot) for one in field)


def nest_kernel(*programs):
    """A kernel of vector cores, each with a program of its own."""
    work = [CoreWork(Core("vector", n), n, lambda made=made: made) for n, made in enumerate(programs)]
    return Kernel("nest", (Phase("nest", tuple(work)),), {t.name: t for t in (ROWS, OUT)}, math=None)


# --- Small convolutions, their tensors, and how to run them: shared by the tests of the operator. ------

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
    schedule = call.schedule("grad_weight")
    cores = [blocks_of(schedule.tasks, tasks) for tasks in schedule.dealt()]
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
        self._tasks = [blocks_of(schedule.tasks, tasks) for tasks in schedule.dealt()]
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


# --- Small convolutions that Winograd may compute, and what the tests of it share. ---------------------

# Odd sizes end inside a tile; one image has a single row of tiles, one 17 tiles across.
PROBLEMS = {
    "padded": ConvProblem((2, 20, 9, 11), (17, 20, 3, 3), 1, 1),
    "no padding": ConvProblem((3, 8, 6, 7), (24, 8, 3, 3)),
    "uneven padding": ConvProblem((1, 5, 6, 4), (3, 5, 3, 3), 1, (3, 1)),
    "much padding": ConvProblem((1, 9, 4, 5), (8, 9, 3, 3), 1, 8),
    "one row": ConvProblem((2, 6, 2, 33), (9, 6, 3, 3), 1, 1),
    "transposed": ConvProblem((2, 12, 7, 6), (12, 9, 3, 3), 1, 1, transposed=True),
    "depth of one": ConvProblem((1, 8, 1, 9, 7), (8, 8, 1, 3, 3), 1, (0, 1, 1)),
}


def order_of(problem, parts=1, streamed=()):
    """Return the order of a problem, of which some blocks are added in parts."""
    return WinogradOrder(Clusters.of(problem.batch, problem.small_size[1:]), parts, streamed)


PR = load_profile("950PR_9589")
ONLY_WEIGHT = (False, True, False)
SMALL = Tiling(16, 16, 32, used_cores=32)
# Four cores, and 2 x 3 blocks of 16 channels at least: two of them are left for the last round.
FOUR = load_profile("950PR_9589", {"cores.cube": 4, "cores.vector": 8})
PARTS = replace(SMALL, used_cores=4, k_split=2)
STREAMED = ConvProblem((3, 40, 9, 11), (20, 40, 3, 3), 1, 1)
WIDER = ConvProblem((3, 20, 9, 11), (40, 20, 3, 3), 1, 1)


def planned(problem, tiling=SMALL, profile=PR, **options):
    """A call whose grad_weight is made by Winograd."""
    call = call_of(problem, "float32", profile=profile, **options)
    return replace(call, plans=call.plans | {"grad_weight": Plan("wgrad_winograd", tiling)})


def kernel_of(problem, tiling=SMALL, profile=PR):
    [kernel] = lower(planned(problem, tiling, profile), ONLY_WEIGHT).kernels
    return kernel


def inputs_of(call, tensors):
    """Return the kernel of grad_weight, and the tensors in GM that it begins with."""
    found = [(kernel, dict(gm)) for kernel, gm in kernels_with_inputs(call, tensors)]
    [made] = [(kernel, gm) for kernel, gm in found if kernel.name == "grad_weight"]
    return made


CASES = [(problem, SMALL, PR) for problem in PROBLEMS.values()]
CASES += [(STREAMED, PARTS, FOUR), (WIDER, PARTS, FOUR)]
# Five clusters in parts of three and two; a block of five groups of channels, of which UB holds two.
CASES += [
    (ConvProblem((5, 40, 7, 7), (20, 40, 3, 3), 1, 1), PARTS, FOUR),
    (ConvProblem((2, 40, 9, 11), (17, 40, 3, 3), 1, 1), replace(SMALL, base_n=48), PR),
]
# Odd blocks of one core: its second block runs the first one's code with its sums in other slots.
CASES += [(ConvProblem((1, 48, 12, 12), (8, 48, 3, 3), 1, 1), replace(SMALL, used_cores=1), PR)]
NAMES = [*PROBLEMS, "parts", "parts of the turned one", "uneven parts", "pieces", "odd blocks"]


# -------------------------------------------------------------------------------------------------------
# What a gradient of any nest must be: the bits of its order, with and without instructions, by its waits.
# -------------------------------------------------------------------------------------------------------

MASKS = {"grad_input": (True, False, False), "grad_weight": (False, True, False)}


def assert_ordered(call, tensors, gradient):
    """Cores that take their instructions in another order make the bits of the ordered definition."""
    made, _ = run(call, tensors, 3, MASKS[gradient])
    want = reference_gradients(call, **tensors, mask=MASKS[gradient])
    assert_same_bits(made[gradient], want[gradient])


def assert_ordered_without_instructions(call, tensors, gradient):
    """A gradient can be made without instructions, with the bits of the ordered definition."""
    mask = MASKS[gradient]
    without = Gradients(call, tensors, "program")
    assert without.possible(mask) == mask
    want = reference_gradients(call, **tensors, mask=mask)
    assert_same_bits(without.make(mask)[gradient], want[gradient])


def assert_each_class_is_missed(outcomes):
    """All orders make one result with all waits, and others without some; `outcomes(hazards)` makes them."""
    right = outcomes(HAZARDS)
    assert len(right) == 1
    for missing in ("RAW", "WAR"):
        assert outcomes(HAZARDS - {missing}) - right


def outcomes_of(call, tensors, hazards, orders=4, gradient="grad_input"):
    """Return the different results of so many orders with these classes of waits; a failure counts as one."""
    [(kernel, gm)] = [(k, gm) for k, gm in kernels_with_inputs(call, tensors) if k.name == gradient]
    schedule = replace(call.schedule(gradient), hazards=hazards)
    kernel, found = replace(kernel, phases=schedule.phases()), set()
    for seed in range(orders):
        memory = dict(gm)
        try:
            run_kernel(kernel, memory, order=seed)
            found.add(memory[schedule.gemm.output.name].tobytes())
        except (ProgramError, ValueError) as error:
            found.add(str(error))
    return found
