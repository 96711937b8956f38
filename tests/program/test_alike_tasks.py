"""Is the code of a task that is like an earlier one found, and is it what the task written out would be?"""

import random

import pytest

from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.loops.laps import Lap, moved
from ascendsim.program.loops.rings import Change
from ascendsim.vector.instructions import Add, CopyGmToUb
from tests.helpers.nests import ROWS, TOY, Unrolling, plain


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


def require_as_written_out(tasks):
    """Refuse programs of tasks that are other instructions than all of them written out."""
    looped, straight = tasks.emit(ProgramBuilder(TOY)), tasks.emit(Unrolling(TOY))
    assert [plain(program) for program in looped] == [plain(program) for program in straight]


@pytest.mark.parametrize("seed", range(80))
def test_random_blocks_are_the_instructions_of_all_tasks_written_out(seed):
    require_as_written_out(Blocks(seed))


@pytest.mark.parametrize("seed", range(40))
def test_a_place_may_be_a_task_s_own_and_within_that_of_another(seed):
    require_as_written_out(Shelves(seed))


def test_of_a_long_row_of_blocks_all_but_the_first_few_are_known():
    blocks = Blocks(0)
    blocks.copies, blocks.boxes, blocks.within, blocks.odd = [2, 2, 2, 1], 1, True, -1
    blocks.programs = [[(row, column) for row in range(10) for column in range(8)]]
    [program] = blocks.emit(ProgramBuilder(TOY))
    # A block begins a row or goes on in it, and finds none, one or two tiles in the other slots: few kinds.
    assert len(program.units) <= 10 < len(program.steps) == 80


def test_what_touches_a_ring_between_two_tasks_is_noticed():
    blocks = Blocks(0)
    blocks.copies, blocks.boxes, blocks.within, blocks.odd = [1, 1, 1, 1], 1, True, -1
    blocks.programs = [[(0, column) for column in range(8)]]
    block = blocks._block

    def forgetting(task):
        block(task)
        # The left tile has to be loaded again by every second block.
        if task[1] % 2:
            blocks.left.forget()

    blocks._block = forgetting
    require_as_written_out(blocks)


class Passing(Blocks):
    """Blocks between which tasks of another kind pass through the ring of left tiles.

    What they leave there has no name, one that nobody was told, or one of their own; some forget all tiles.
    """

    def __init__(self, seed):
        super().__init__(seed)
        rng = random.Random(seed + 1000)
        self.passing = [[rng.choice(("", "", "none", "other", "own", "forget")) for _ in tasks]
                        for tasks in self.programs]  # fmt: skip
        self.turns = rng.randint(1, 3)
        self.laps = rng.randint(1, 3)

    def emit(self, builder):
        plan = iter([kind for tasks in self.passing for kind in tasks])
        block = super()._block

        def both(task):
            block(task)
            self._pass(task, next(plan))

        self._block = both
        return super().emit(builder)

    def _pass(self, task, kind):
        row = ("row", task[0])
        own = {self.left: (row,)} if kind == "own" else None
        for made in self.b.once((*task, "pass"), kind, own) if kind else ():
            for _ in self.b.loop(range(self.laps)):
                for _ in range(self.turns):
                    slot = self.left.next(("nobody", made[0]) if kind == "other" else None)
                    self.b.add(CopyGmToUb(slot, self.b.gm(ROWS, right, made), 32, (8,)))
            if kind == "own":
                self._held(self.left, ("row", made[0]), row_of, made)
            if kind == "forget":
                self.left.forget()


@pytest.mark.parametrize("seed", range(80))
def test_a_tile_is_gone_where_known_code_took_its_slot(seed):
    require_as_written_out(Passing(seed))


def test_tasks_may_give_their_rings_in_any_order():
    made = ProgramBuilder(TOY)
    left, right = (made.ring("UB", 32, name, 1) for name in "lr")
    for number in range(4):
        task = (number, 10 + number)
        places = {left: (("row", number),), right: (("column", number),)}
        for block in made.once(task, "block", places if number % 2 else dict(reversed(places.items()))):
            for ring, place, find in ((left, "row", row_of), (right, "column", column_of)):
                slot = ring.next((place, block[0]))
                made.add(CopyGmToUb(slot, made.gm(ROWS, find, block), 32, (8,)))
    program = made.build()
    assert [each.gm.index[0] for each in program.instructions] == [0, 10, 1, 11, 2, 12, 3, 13]
    # The places of a step are those that its code numbers.
    for unit, _, _, places, *_ in program.steps:
        assert [places[aim.place][0] for aim in unit.aims] == ["row", "column"]


def row_of(task):
    return task[0], 0, slice(0, 8)


def column_of(task):
    return task[1], 0, slice(0, 8)


# --- what a ring holds, left as code says it and put together on demand


PLACES = ("a", ("b", 1), "c")
RESTS = (None, (Lap(2), 5), (7,))
WHATS = (None, "box", (Lap(4), "tap"))


def labelled(ring, slot, places, lap):
    """Say plainly what a slot holds of some places: the number of one, how it goes on, and what."""
    tile = ring.whole().tiles[slot.index]
    if tile is None:
        return None
    place, what = tile
    if place in places:
        return places.index(place), None, moved(what, -lap)
    if isinstance(place, tuple) and place[0] in places:
        return places.index(place[0]), moved(place[1:], -lap), moved(what, -lap)
    return None


@pytest.mark.parametrize("seed", range(60))
def test_tiles_of_known_code_are_those_that_would_have_been_written(seed):
    rng = random.Random(seed)
    count = rng.randint(1, 3)
    quick, plainly = (ProgramBuilder(TOY).ring("UB", 32, "tile", count) for _ in range(2))
    for ring in (quick, plainly):
        ring.next("first")
    for _ in range(12):
        place, rest, what = rng.choice(PLACES), rng.choice(RESTS), rng.choice(WHATS)
        lap = rng.randrange(4)
        # What code leaves that has taken one slot: seen from its begin, that slot is the next in turn.
        _, quick.at, _, fills = quick.move(Change(quick, 1, True, 1, ((1, (0, rest, what)),)))
        quick.fill(fills, (place,), lap)
        rest, what = moved((rest, what), lap)
        plainly.next(place if rest is None else (place, *rest), what)
        seen = tuple(rng.sample([*PLACES, ("a", 7), ("a", Lap(3), 5), (("b", 1), 7)], 2))
        wanted = rng.randrange(4)
        assert quick.whole(wanted) == plainly.whole(wanted)
        labels = quick.labels(seen, wanted)
        assert labels == plainly.labels(seen, wanted)
        assert labels == tuple([labelled(quick, slot, seen, wanted) for slot in quick.slots])
        assert quick.found(labels) == plainly.found(labels)
        assert quick.held_by(quick.last) == plainly.held_by(plainly.last)
        tile = plainly.held_by(plainly.last), what
        assert quick.find(*tile).index == plainly.find(*tile).index


@pytest.mark.parametrize("seed", range(40))
def test_what_code_finds_tells_states_apart_and_nothing_else(seed):
    rng = random.Random(seed)
    told, asked = rng.random() < 0.3, rng.random() < 0.5
    builder = ProgramBuilder(TOY)
    ring = builder.handover(32, "p", 2) if told else builder.ring("UB", 32, "tile", 2, asked=asked)
    found = {}
    for _ in range(40):
        ring.next(rng.choice(PLACES), rng.choice(WHATS))
        if (told or asked) and rng.random() < 0.5:
            ring.begins()
        held = [labelled(ring, slot, PLACES[:2], 0) for slot in ring.slots]
        turn = ring.last.index
        # What may not be asked, and of a ring that nobody is told the turn of that turn, tells nothing apart.
        state = ring.at.fresh, ring.turn if told else None, *(held if told else held[turn:] + held[:turn])
        assert found.setdefault(ring.found(ring.labels(PLACES[:2], 0)), state) == state
    assert len(found) == len(set(found.values())) > 1
