"""Is code that was written down once right where it finds its rings at other turns?"""

import pytest

from ascendsim.errors import ProgramError
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.loops.turns import joined, turned_instruction, turned_on, turned_post
from ascendsim.program.places import Gm, Slot
from ascendsim.program.posts import Post
from ascendsim.vector.instructions import Add, CopyGmToUb
from ascendsim.vector.winograd import ToTaps
from tests.helpers.fake_machine import Fake
from tests.helpers.nests import ROWS, TOY, row_of

A, B, C, D, E = SLOTS = tuple(Slot("UB", 32, name, index) for index, name in enumerate("ABCDE"))


def test_which_slot_stands_in_the_place_of_which():
    # A, B and C one turn on: A's place is taken by B, B's by C, C's by A. D and E two turns on: as they are.
    assert turned_on(5, [((A, B, C), 1), ((D, E), 0)]) == (1, 2, 0, 3, 4)
    assert turned_on(5, [((B, C), 1), ((D, E), 1)]) == (0, 2, 1, 4, 3)
    assert turned_on(5, [((A, B, C), 0), ((D, E), 0)]) is None


def test_turns_inside_of_turns_add_up():
    once = turned_on(5, [((A, B, C), 1)])
    assert joined(once, once) == turned_on(5, [((A, B, C), 2)])
    assert joined(None, once) is joined(once, None) is once
    assert joined(None, None) is None


def test_an_instruction_and_a_post_on_other_slots():
    turns = (1, 2, 0, 4, 3)
    assert turned_instruction(Add(A, D, 8), turns, SLOTS) == Add(B, E, 8)
    load = CopyGmToUb(C, Gm(ROWS, (1, 0, slice(0, 8))), 32, (8,))
    assert turned_instruction(load, turns, SLOTS) == load._replace(dst=A)
    assert turned_post(Post(1, (A,), (D, C)), turns, SLOTS) == Post(1, (B,), (E, A))


def test_several_slots_in_one_field_are_turned_too():
    # The sums at several points that ToTaps brings to taps lie in as many slots.
    turns = (1, 2, 0, 4, 3)
    taps = ToTaps(D, (A, B, C), 1, 8, 8, False)
    turned = turned_instruction(taps, turns, SLOTS)
    assert turned == ToTaps(E, (B, C, A), 1, 8, 8, False)
    assert (turned.reads, turned.writes) == ((B, C, A), (E,))


def alternating(builder, tasks, copies=2):
    """Each task loads a row into the next slot of one ring and adds it to the next one of another."""
    rows = builder.ring("UB", 32, "row", copies, asked=False)
    sums = builder.ring("UB", 32, "sum", 3, asked=False)
    written = []
    for number in range(tasks):
        for task in builder.once(((0,), number), "rows"):
            written.append(number)
            builder.add(CopyGmToUb(rows.next(), builder.gm(ROWS, row_of, task, 0, 0), 32, (8,)))
            builder.add(CopyGmToUb(sums.next(), builder.gm(ROWS, row_of, task, 0, 1), 32, (8,)))
            builder.add(Add(sums.last, rows.last, 8))
    return builder.build(), written


def test_tasks_that_differ_by_turns_alone_are_written_down_once():
    program, written = alternating(ProgramBuilder(TOY), 7)
    assert written == [0]
    # Two slots of rows and three of sums: slots 0, 1 and 2, 3, 4.
    adds = [(made.src.index, made.dst.index) for made in program.instructions[2::3]]
    assert adds == [(0, 2), (1, 3), (0, 4), (1, 2), (0, 3), (1, 4), (0, 2)]
    assert [made.src.index[0] for made in program.instructions[::3]] == list(range(7))
    # Code is turned only where it uses the ring; six turns bring both back.
    assert program.steps[0].turns is program.steps[6].turns is None


def test_turns_of_a_ring_that_code_does_not_use_are_none():
    b = ProgramBuilder(TOY)
    used, other = (b.ring("UB", 32, name, 2, asked=False) for name in ("used", "other"))
    for number in range(4):
        b.add(CopyGmToUb(other.next(), Gm(ROWS, (0, 0, slice(0, 8))), 32, (8,)))
        for task in b.once(((0,), number), "rows"):
            for _ in range(2):
                b.add(CopyGmToUb(used.next(), b.gm(ROWS, row_of, task, 0, 0), 32, (8,)))
    steps = [step for step in b.build().steps if step.task is not None]
    assert len(steps) == 4
    assert len({step.unit for step in steps}) == 1
    assert {step.turns for step in steps} == {None}


def test_slots_that_turned_code_writes_can_be_read():
    b = ProgramBuilder(TOY)
    ring = b.ring("UB", 32, "row", 2, asked=False)
    for number in range(2):
        for task in b.once(((0,), number), "rows"):
            assert number == 0
            b.add(CopyGmToUb(ring.next(), b.gm(ROWS, row_of, task, 0, 0), 32, (8,)))
    # Slot 1 was written by the code of slot 0, one turn on.
    assert ring.last.index == 1
    b.add(Add(ring.last, ring.last, 8))
    # A third slot nobody has written.
    (unwritten,) = b.slots("UB", 32, "unwritten")
    with pytest.raises(ProgramError, match="reads UB:unwritten"):
        b.add(Add(unwritten, unwritten, 8))


def test_what_crosses_cores_moves_with_the_turns():
    b = ProgramBuilder(TOY)
    ring = b.ring("UB", 32, "row", 2, asked=False)
    for number in range(2):
        for _ in b.once(((0,), number), "rows"):
            b.add(Fake("V"), on=1, writes=(ring.next(),))
    assert b.build().posts == {0: Post(1, (), (ring.slots[0],)), 1: Post(1, (), (ring.slots[1],))}


def test_whose_turn_it_is_can_be_asked_of_a_handover_alone():
    b = ProgramBuilder(TOY)
    pieces, ring = b.handover(32, "piece", 2), b.ring("UB", 32, "row", 2)
    written = []
    for number in range(4):
        for _ in b.once(((0,), number), "rows"):
            pieces.next()
            written.append(pieces.turn)
            ring.next()
    # So their turns tell code apart: before the first, behind slot 0, behind slot 1; the fourth is known.
    assert written == [0, 1, 0]
    with pytest.raises(ProgramError, match=r"row\[1\]: nobody can ask for the turn of this ring"):
        _ = ring.turn


def test_a_first_use_can_be_asked_of_a_ring_that_is_made_for_it():
    ring = ProgramBuilder(TOY).ring("UB", 32, "row", 2, asked=False)
    ring.next()
    with pytest.raises(ProgramError, match=r"row\[0\]: this ring was made without `asked`"):
        ring.begins()


def test_one_unit_known_as_two_tasks_has_the_turns_of_each():
    # The outer task turns the ring once before its one inner task, whose code so is the code of both; told
    # from the outer's begin it lies one turn behind. Alone the inner task takes the next slot.
    def emit(builder):
        ring = builder.ring("UB", 32, "row", 3, asked=False)
        for number, kind in enumerate(("outer", "inner", "outer", "inner", "outer")):
            task = (0,), number
            if kind == "outer":
                for outer in builder.once(task, "outer"):
                    ring.next()
                    inner(builder, ring, outer)
            else:
                inner(builder, ring, task)
        return builder.build()

    def inner(builder, ring, task):
        for made in builder.once(task, "inner"):
            builder.add(CopyGmToUb(ring.next(), builder.gm(ROWS, row_of, made, 0, 0), 32, (8,)))

    # Slots 1, 2, then 0 is skipped: 1, 2, and again 1.
    assert [made.dst.index for made in emit(ProgramBuilder(TOY)).instructions] == [1, 2, 1, 2, 1]
