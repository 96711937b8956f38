"""Is what follows a known link the code that would be written down, for every round and program?"""

import random

import pytest

from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.loops.laps import Lap
from ascendsim.vector.instructions import Add, CopyGmToUb
from tests.helpers.nests import ROWS, TOY, Unrolling, plain

BLOCKS = [(row, column) for row in range(5) for column in range(4)]


def row_of(task, on=0):
    return task[0], (task[1] + on) % 3, slice(0, 8)


def column_of(task):
    return 100 + task[2], 0, slice(0, 8)


class Images:
    """Programs that each make a range of the blocks of some images, as cores do.

    A block (image, row, column) wants a tile of its row of the image, and one of its column of any image; it
    adds to slots that are taken in turn. `odd` blocks ask whether a slot begins, or forget a tile, or take a
    slot that nothing else does.
    """

    def __init__(self, seed):
        rng = random.Random(seed)
        self.copies = [rng.randint(1, 3) for _ in range(4)]
        self.odd = {block: rng.choice(("asks", "forgets", "spare")) for block in rng.sample(BLOCKS, 3)}
        # Several ranges in some programs: an image, and the beginning of another one.
        self.programs = [
            [(rng.randrange(9), *sorted(rng.sample(range(21), 2))) for _ in range(rng.randint(1, 3))]
            for _ in range(6)
        ]
        self.emitted = 0

    def emit(self, builder):
        self.b = builder
        made = [builder.ring("UB", 32, name, count) for name, count in zip("lrst", self.copies, strict=True)]
        self.left, self.right, self.turned, self.asked = made
        (self.spare,) = builder.slots("UB", 32, "spare")
        programs = []
        for ranges in self.programs:
            builder.restart()
            self.asked.next()
            for image, first, last in ranges:
                for lap, (row, column) in builder.chain(image, BLOCKS[first:last], "body"):
                    self.emitted += 1
                    self._block((lap, row, column))
            programs.append(builder.build())
        return programs

    def _block(self, task):
        lap, row, column = task
        odd = self.odd.get((row, column))
        places = {self.left: ((lap, row),), self.right: (("column", column),)}
        for made in self.b.once(task, odd, places):
            slot = self.turned.next()
            tile = self._held(self.left, (lap, row), row_of, made)
            other = self._held(self.right, ("column", column), column_of, made)
            self.b.add(CopyGmToUb(slot, self.b.gm(ROWS, row_of, made, 1), 32, (8,)))
            self.b.add(Add(slot, tile, 8))
            self.b.add(Add(slot, other, 8))
            if odd == "asks":
                self.b.add(CopyGmToUb(self.asked.last, self.b.gm(ROWS, column_of, made), 32, (8,)))
                self.b.add(Add(self.asked.last, slot, 4 if self.asked.begins() else 8))
            if odd == "spare":
                self.b.add(CopyGmToUb(self.spare, self.b.gm(ROWS, column_of, made), 32, (8,)))
        if odd == "forgets":
            self.left.forget()

    def _held(self, ring, place, find, task):
        slot = ring.find(place)
        if slot is None:
            slot = ring.next(place)
            self.b.add(CopyGmToUb(slot, self.b.gm(ROWS, find, task), 32, (8,)))
        return slot


@pytest.mark.parametrize("seed", range(80))
def test_random_chains_are_the_instructions_of_all_links_written_out(seed):
    linked, straight = Images(seed), Images(seed)
    found, whole = linked.emit(ProgramBuilder(TOY)), straight.emit(Unrolling(TOY))
    assert [plain(program) for program in found] == [plain(program) for program in whole]
    assert [len(program) for program in found] == [len(program) for program in whole]
    assert straight.emitted == sum(last - first for ranges in linked.programs for _, first, last in ranges)


def test_a_program_that_begins_inside_of_an_image_goes_on_as_an_earlier_one_did():
    images = Images(0)
    images.copies, images.odd = [1, 1, 1, 1], {}
    images.programs = [[(0, 0, 20)], [(4, 0, 20)], [(7, 6, 20)], [(2, 0, 20), (3, 0, 9)]]
    alone, *programs = images.emit(ProgramBuilder(TOY))
    # All of image 0, before there is another one, and of image 4. Of image 7 the first, which finds no tile
    # of its row, and leaves all as in image 4. None of image 2, and of image 3 the first, which finds others.
    assert images.emitted == 20 + 20 + 1 + 1
    assert [segment.shift for segment in alone.segments] == [0]
    assert all(
        mine is known for mine, known in zip(programs[1].steps[1:], programs[0].steps[7:], strict=True)
    )
    shifts = [[segment.shift for segment in program.segments] for program in programs]
    assert shifts == [[4], [7], [2, 3]]


def test_links_inside_of_a_task_or_a_loop_are_all_emitted():
    b = ProgramBuilder(TOY)
    for task in b.once(("outer",), "shape"):
        assert [(type(lap), lap, link) for lap, link in b.chain(3, "ab", task)] == [
            (Lap, 3, "a"),
            (Lap, 3, "b"),
        ]
    for _ in b.loop(range(2)):
        assert [(type(lap), lap, link) for lap, link in b.chain(3, "ab", None)] == [
            (int, 3, "a"),
            (int, 3, "b"),
        ]


def test_a_slot_that_the_known_links_write_counts_as_written():
    b = ProgramBuilder(TOY)
    first, second = b.slots("UB", 32, "tile", 2)
    programs = []
    for image in (1, 6):
        b.restart()
        for lap, link in b.chain(image, range(3), None):
            for task in b.once((lap, 0, link), link):
                b.add(CopyGmToUb((first, second)[link % 2], b.gm(ROWS, row_of, task), 32, (8,)))
        # Nothing of the second program has been emitted.
        b.add(Add(first, second, 8))
        programs.append(b.build())
    assert [len(program) for program in programs] == [4, 4]
    assert [str(made.gm.index[0]) for made in programs[1].instructions if made.gm] == ["6"] * 3
