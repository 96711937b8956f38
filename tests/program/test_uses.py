"""Are the slots of instructions noted as they use them?"""

import random

import pytest

from ascendsim.errors import ProgramError
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.places import Gm
from ascendsim.program.uses import Uses
from ascendsim.vector.instructions import Add, CopyGmToUb
from tests.helpers.nests import ROWS, TOY, Nest

ROW = Gm(ROWS, (0, 0, slice(0, 8)))


def test_reads_and_writes_of_each_instruction():
    b = ProgramBuilder(TOY)
    one, two = b.slots("UB", 32, "row", 2)
    piece = b.handover(32, "piece").next()
    b.add(CopyGmToUb(one, ROW, 32, (8,)))
    b.add(CopyGmToUb(two, ROW, 32, (8,)), writes=(piece,))
    b.add(Add(two, one, 8), reads=(piece,))
    (unit,) = b.build().units
    # Slots 0, 1 and 2, twice their numbers: written are 0; then 1 and the piece; an Add reads both, and the
    # piece besides, and writes the first one.
    assert (list(unit.uses.slots), list(unit.uses.ends)) == ([1, 3, 5, 2, 0, 4, 3], [1, 3, 7])
    assert unit.uses.written == unit.written == {0, 1, 2}


def test_an_instruction_that_is_refused_is_not_noted():
    b = ProgramBuilder(TOY)
    one, two = b.slots("UB", 32, "row", 2)
    b.add(CopyGmToUb(one, ROW, 32, (8,)))
    with pytest.raises(ProgramError, match=r"instruction 1 .* which nothing has written"):
        b.add(Add(one, two, 8))
    b.add(Add(one, one, 8))
    (unit,) = b.build().units
    assert (list(unit.uses.slots), list(unit.uses.ends)) == ([1, 0, 0, 1], [1, 4])


@pytest.mark.parametrize("seed", range(20))
def test_uses_of_random_nests_are_those_of_their_instructions(seed):
    for unit in Nest(random.Random(seed)).emit(ProgramBuilder(TOY)).units:
        assert unit.uses == Uses.of(unit.instructions, unit.posts)
