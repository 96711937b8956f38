"""Random loop nests as trees, written twice: as a `Nest`, and as plain loops that append every instruction.

A tree is a list of steps:
    ("loop", name, extent, body)      an index from 0
    ("span", name, of, counts, body)  an index that goes through run `of` of runs that follow each other
    ("hold", ring, tile, place, body) a tile told by some indices; the body follows where it was not there,
                                      and brings it into the place that an index names, or None: in turn
    ("next", ring)                    the next slot of a ring
    ("forget", ring)
    ("when", of, mask, body)          where the mask has a bit for an index
    ("set", value)                    the one variable
    ("copy", ring, index, column) / ("add", ring, ring, kind of lanes) / ("write", ring, index, column)
Indices are named; "task" is that of the task. What stands in `rows` below says which row an index means.
"""

import numpy as np

from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.program import NestProgram, ProgramBuilder
from ascendsim.program.walk import Axis, alike
from ascendsim.vector.instructions import Add, CopyGmToUb, CopyUbToGm
from tests.helpers.toy_profiles import toy_split

TOY = toy_split()
ROWS = GmTensor("rows", (200, 3, 8), "float32", 4)
OUT = GmTensor("out", (200, 3, 8), "float32", 4, "output")
TASKS = 7
# What an addition costs by the index that its lanes follow from, and by the variable.
LANES = (8, 4, 8, 6)
WHOLE = slice(0, 8)


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
