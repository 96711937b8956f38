"""Random loop nests over rings, as schedules write them, and a builder that unrolls them."""

from ascendsim.ops.schedules import blocks
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.places import GmTensor, Slot
from ascendsim.vector.instructions import Add, CopyGmToUb, CopyUbToGm
from tests.helpers.toy_profiles import toy_split

TOY = toy_split()
ROWS = GmTensor("rows", (200, 3, 8), "float32", 4)
OUT = GmTensor("out", (200, 3, 8), "float32", 4, "output")
NO_STRIP = (0,)


class Unrolling(ProgramBuilder):
    """Emits every round of every loop, and the code of every task."""

    def loop(self, laps, body=None):  # noqa: ARG002 - of the same signature
        """Every round, by plain numbers."""
        yield from laps

    def chain(self, lap, links, body):
        """Every link, in the round that it is of."""
        del body
        return ((lap, link) for link in links)

    def once(self, task, shape, places=None, lap=0):
        """The task, whether its code is known or not."""
        del shape, places, lap
        yield task


class Nest:
    """Loops with random bodies: always the same code, whichever builder it is written to.

    Rings 0 and 1 hold tiles that are looked for, 2 and 3 are used in turn only. A body has units, each of
    which loads tiles (of its lap, of the next, or of none), adds, and writes; some stand outside of units.
    Some loops are the code of a task as a whole, which is then written for several strips.

    A task inside a loop is (strip, lap, number of the loop, turn of the inner loop).
    """

    def __init__(self, rng):
        self.copies = [rng.randint(1, 3) for _ in range(4)]
        self.loops = []
        for _ in range(rng.randint(1, 4)):
            begin = rng.randrange(20)
            body = [self._unit(rng, number) for number in range(rng.randint(1, 3))]
            inner = rng.choice((0, 0, 2, 3))
            # Strips, and where in the strip the loop begins.
            strips = rng.choice(((), (), ((1, 0),), ((0, 3), (1, 3)), ((0, 5), (0, 2), (2, 0), (1, 2))))
            rounds, step = rng.randint(1, 12), rng.choice((1, 1, 2, 3))
            self.loops.append((range(begin, begin + rounds * step, step), inner, body, strips))

    def _unit(self, rng, number):
        actions = [
            (rng.choice(("own", "own", "next", "fixed", "add", "add", "write", "first")), rng.randrange(2),
             rng.randrange(2), rng.randrange(3))
            for _ in range(rng.randint(1, 5))
        ]  # fmt: skip
        return number, rng.random() < 0.8, actions

    def emit(self, builder):
        """The program of the nest."""
        self.b = builder
        self.rings = [builder.ring("UB", 32, f"ring {n}", copies) for n, copies in enumerate(self.copies)]
        return self.again()

    def again(self):
        """The program once more, with what the builder knows by now."""
        self.b.restart()
        for ring in self.rings:
            for _ in range(len(ring.slots)):
                first = self.b.gm(ROWS, row_of, (NO_STRIP, 0), 0, 0)
                self.b.add(CopyGmToUb(ring.next("filled"), first, 32, (8,)))
        for number, (_, _, _, strips) in enumerate(self.loops):
            for strip, on in strips:
                places = {self.rings[ring]: (strip_of((strip,)),) for ring in range(2)}
                for made in self.b.once((strip,), ("strip", number), places, on):
                    self._loop(made, number, on)
            if not strips:
                self._loop(NO_STRIP, number, 0)
        return self.b.build()

    def _loop(self, strip, number, on):
        laps, inner, body, _ = self.loops[number]
        for lap in self.b.loop(range(laps.start + on, laps.stop + on, laps.step)):
            for turn in self.b.loop(range(inner)) if inner else (0,):
                for unit, once, actions in body:
                    # What stands outside of units has no task of its own, so that of a strip is one.
                    self._append((strip, lap, number, turn), unit, once or strip is not NO_STRIP, actions)

    def _append(self, task, unit, once, actions):
        if not once:
            self._act(task, actions)
            return
        places = {
            self.rings[ring]: tuple(place_of(task, kind) for kind in ("own", "next", "fixed"))
            for ring in range(2)
        }
        # The lap is not part of the shape: only slices of GM may follow from it.
        for made in self.b.once(task, (task[2:], unit), places):
            self._act(made, actions)

    def _act(self, task, actions):
        b, rings = self.b, self.rings
        for kind, tiles, turns, column in actions:
            ring, other = rings[tiles], rings[2 + turns]
            if kind in ("own", "next", "fixed"):
                place = place_of(task, kind)
                if ring.find(place, column) is None:
                    slot, offset = ring.next(place, column), 1 if kind == "next" else 0
                    find = row_of if kind != "fixed" else fixed
                    b.add(CopyGmToUb(slot, b.gm(ROWS, find, task, offset, column), 32, (8,)))
            elif kind == "add":
                b.add(Add(other.next(), ring.last, 8))
            elif kind == "write":
                b.add(CopyUbToGm(b.gm(OUT, row_of, task, 0, column), other.last, 32))
            else:
                b.add(Add(other.last, ring.last, 4 if other.begins() else 8))


def row_of(task, offset, column):
    """The row of a lap, or of the one after it."""
    return task[1] + offset, (column + task[0][0]) % 3, slice(0, 8)


def fixed(task, offset, column):
    """A row that belongs to no lap."""
    return 190 + offset, (column + task[3] + task[0][0]) % 3, slice(0, 8)


def place_of(task, kind):
    """What tells a tile from others in its ring."""
    rest = {"own": ("row", task[1]), "next": ("row", task[1] + 1), "fixed": ("fixed", task[3])}
    return strip_of(task[0]), *rest[kind]


def strip_of(strip):
    """What the places of all tiles of a strip begin with."""
    return "rows", *strip


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


def assert_unrolled_alike(programs, monkeypatch):
    """Write programs with loops and without: the instructions must be the same. Return those with."""
    looped = programs()
    with monkeypatch.context() as patched:
        patched.setattr(blocks, "ProgramBuilder", Unrolling)
        unrolled = programs()
    for one, other in zip(looped, unrolled, strict=True):
        assert plain(one) == plain(other)
        assert len(one) == len(other)
    return looped
