"""Is the code of a task found by what tells it from the task before as it is by all rings?"""

import random

import pytest

from ascendsim import ConvProblem, load_profile
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.loops.follows import Follows
from ascendsim.program.loops.rings import Ring
from ascendsim.vector.instructions import Add, CopyGmToUb
from tests.nests import ROWS, TOY, Unrolling, plain
from tests.random_tilings import random_times


def left(task, box):
    return task[0], box, slice(0, 8)


def right(task):
    return 100 + task[1], 0, slice(0, 8)


class Blocks:
    """Base blocks (row, column) in a random order, with tiles of either side, as gradients load them.

    The left tile of a row comes in `boxes` pieces; a ring that is nobody's place is used in turn, another
    one asked whether it begins. A row and a column are places as they are or within a tuple.
    """

    def __init__(self, seed):
        rng = random.Random(seed)
        self.copies = [rng.randint(1, 3) for _ in range(4)]
        self.boxes = rng.randint(1, 2)
        self.within = rng.random() < 0.7
        rows, columns = range(rng.randint(1, 5)), range(rng.randint(1, 6))
        self.programs = []
        for _ in range(3):
            blocks = [(row, column) for row in rows for column in columns]
            if rng.random() < 0.3:
                rng.shuffle(blocks)
            self.programs.append(blocks[rng.randrange(2) :])
        self.odd = rng.randrange(6)

    def emit(self, builder):
        self.b = builder
        made = [builder.ring("UB", 32, name, count) for name, count in zip("lrst", self.copies, strict=True)]
        self.left, self.right, self.turned, self.asked = made
        programs = []
        for tasks in self.programs:
            builder.restart()
            for task in tasks:
                self._block(task)
            programs.append(builder.build())
        return programs

    def _block(self, task):
        row, column = ("row", task[0]), ("column", task[1])
        places = {self.left: (row,), self.right: (column,)}
        for made in self.b.once(task, task[1] == self.odd, places):
            self.asked.next()
            for box in range(self.boxes):
                tile = self._held(self.left, (row, box) if self.within else row, left, made, box)
                other = self._held(self.right, (column, 0) if self.within else column, right, made)
                slot = self.turned.next()
                self.b.add(CopyGmToUb(slot, self.b.gm(ROWS, right, made), 32, (8,)))
                self.b.add(Add(slot, tile, 8))
                self.b.add(Add(slot, other, 8))
            self.b.add(CopyGmToUb(self.asked.last, self.b.gm(ROWS, right, made), 32, (8,)))
            if task[1] == self.odd:
                self.b.add(Add(self.asked.last, slot, 4 if self.asked.begins() else 8))

    def _held(self, ring, place, find, *args):
        slot = ring.find(place, None)
        if slot is None:
            slot = ring.next(place, None)
            self.b.add(CopyGmToUb(slot, self.b.gm(ROWS, find, *args), 32, (8,)))
        return slot


def shelf_of(task, box=0):
    return 10 * task[0][0][1] + task[0][1], box, slice(0, 8)


def aisle_of(task, box=0):
    return 10 * task[0][1] + box, 0, slice(0, 8)


class Shelves(Blocks):
    """Tasks of an aisle, which want a tile of one of its shelves, and tasks of a shelf, which want it whole.

    So a shelf is a place of the task's own, and a place within that of another task.
    """

    def __init__(self, seed):
        rng = random.Random(seed)
        aisles = [("aisle", number) for number in range(2)]
        places = [*aisles, *((aisle, number) for aisle in aisles for number in range(2))]
        self.programs = [[(rng.choice(places), rng.randrange(2)) for _ in range(60)]]
        self.copies = rng.randint(1, 3)

    def emit(self, builder):
        self.b, self.left = builder, builder.ring("UB", 32, "l", self.copies)
        builder.restart()
        for place, box in self.programs[0]:
            whole = isinstance(place[0], tuple)
            for made in builder.once((place,), (whole, box), {self.left: (place,)}):
                wanted, find = (made[0], shelf_of) if whole else ((made[0], box), aisle_of)
                builder.add(Add(self._held(self.left, wanted, find, made, box), self.left.last, 8))
        return [builder.build()]


@pytest.fixture
def asked(monkeypatch):
    """How often the next task was found without a look at all rings, and how often it was not."""
    counts = {True: 0, False: 0}
    answer = Follows.answer

    def counted(self, *args):
        found = answer(self, *args)
        counts[found is not None] += 1
        return found

    monkeypatch.setattr(Follows, "answer", counted)
    return counts


@pytest.mark.parametrize("seed", range(80))
def test_random_blocks_are_the_instructions_of_all_tasks_written_out(seed):
    looped = Blocks(seed).emit(ProgramBuilder(TOY))
    straight = Blocks(seed).emit(Unrolling(TOY))
    assert [plain(program) for program in looped] == [plain(program) for program in straight]


@pytest.mark.parametrize("seed", range(40))
def test_a_place_may_be_a_task_s_own_and_within_that_of_another(seed):
    looped = Shelves(seed).emit(ProgramBuilder(TOY))
    straight = Shelves(seed).emit(Unrolling(TOY))
    assert [plain(program) for program in looped] == [plain(program) for program in straight]


def test_of_a_long_row_of_blocks_all_but_the_first_few_are_found_so(asked):
    blocks = Blocks(0)
    blocks.copies, blocks.boxes, blocks.within, blocks.odd = [2, 2, 2, 1], 1, True, -1
    blocks.programs = [[(row, column) for row in range(10) for column in range(8)]]
    blocks.emit(ProgramBuilder(TOY))
    # A block begins a row or goes on in it, and finds none, one or two tiles in the other slots: few kinds.
    assert asked[True] >= 70


def test_what_touches_a_ring_between_two_tasks_is_noticed(asked):
    blocks = Blocks(0)
    blocks.copies, blocks.boxes, blocks.within, blocks.odd = [1, 1, 1, 1], 1, True, -1
    blocks.programs = [[(0, column) for column in range(8)]]

    def emit(builder):
        block = blocks._block

        def forgetting(task):
            block(task)
            # The left tile has to be loaded again by every second block.
            if task[1] % 2:
                blocks.left.forget()

        blocks._block = forgetting
        try:
            return blocks.emit(builder)
        finally:
            blocks._block = block

    assert [plain(made) for made in emit(ProgramBuilder(TOY))] == [
        plain(made) for made in emit(Unrolling(TOY))
    ]
    assert asked[True]


@pytest.mark.parametrize("change", ["next", "begins", "forget", "restart"])
def test_a_ring_says_that_it_was_touched(change):
    ring = ProgramBuilder(TOY).ring("UB", 32, "tile", 2)
    ring.next()
    ring.touched = False
    getattr(ring, change)()
    assert ring.touched


# --- which places the tiles of a ring are of


def held(*places):
    ring: Ring = ProgramBuilder(TOY).ring("UB", 32, "tile", 3)
    for place in places:
        ring.next(place, "box")
    return ring


def test_tiles_are_told_by_the_places_they_are_of_and_by_how_these_go_on():
    ring = held((("row", 1), 5), "column", (("row", 2), 6))
    # From slot 2, whose turn it is: row 2, then row 1 in slot 0, then the column in slot 1.
    assert ring.met((("row", 1), "column")) == (-1, 0, 1)
    assert ring.met((("row", 2),)) == (0, -1, -1)
    assert ring.standing() == (0, True, (((6,), "box"), ((5,), "box"), (None, "box")))
    assert held().met(("column",)) == (-1, -1, -1)


def test_a_place_that_looks_like_one_within_another_but_is_the_task_s_own_is_not_told():
    # What is known of the tile is only how its place goes on, (5,); as a place of its own it would not.
    assert held((("row", 1), 5)).met(((("row", 1), 5),)) is None
    # And of a place that is a plain number nothing goes on.
    assert held(("row", 5)).met(("row",)) is None


# --- whole kernels


@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_cycles_of_random_tilings_are_those_without_it(gradient, monkeypatch):
    profile = load_profile("910B2")
    problem = ConvProblem(input=(3, 32, 20, 20), weight=(48, 32, 3, 3), padding=1)
    fast = random_times(problem, gradient, profile, 6, seed=1)
    monkeypatch.setattr(Follows, "question", lambda *_: None)
    assert random_times(problem, gradient, profile, 6, seed=1) == fast
