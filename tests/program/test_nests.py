"""Does the code of a task recur for tasks like it, with its loops and the tasks inside of it?"""

import random
from itertools import pairwise
from typing import NamedTuple

import pytest

from ascendsim.errors import ProgramError
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.loops.labels import place_in
from ascendsim.program.loops.laps import Lap, told_apart
from ascendsim.program.places import Gm
from ascendsim.program.units import Nest as NestOfSteps
from ascendsim.program.units import Part, Segment, Step, Unit
from ascendsim.program.uses import Uses
from ascendsim.timing.fast.code import CodeBook
from ascendsim.timing.fast.compiled import state as f
from ascendsim.timing.fast.laid import Laid
from ascendsim.timing.fast.lanes import SliceBook
from ascendsim.timing.fast.layouts import Layouts
from ascendsim.timing.fast.rows import CodeRows
from ascendsim.vector.instructions import CopyGmToUb
from tests.helpers.nests import ROWS, TOY, Nest, Unrolling, plain


def cell(task):
    """The row of a lap in a column: a task is (strip, lap), a strip (column,)."""
    (column,), row = task
    return row, column, slice(0, 8)


def strips(builder, columns, rows=9):
    """Load the first `rows` rows of each column into a ring of two, in a task of its own."""
    ring, written = builder.ring("UB", 32, "row", 2), []
    for column in columns:
        for strip in builder.once((column,), "strip", {ring: ((column,),)}):
            for lap in builder.loop(range(rows)):
                for task in builder.once((strip, lap), "row", {ring: ((strip, lap),)}):
                    written.append((column, int(lap)))
                    slot = ring.next((strip, lap))
                    builder.add(CopyGmToUb(slot, builder.gm(ROWS, cell, task), 32, (8,)))
    return builder.build(), written


# --- what is written down


def test_a_like_task_repeats_loops_and_inner_tasks_with_slices_of_its_own():
    looped, written = strips(ProgramBuilder(TOY), [0, 2, 1])
    straight, all_rows = strips(Unrolling(TOY), [0, 2, 1])
    assert plain(looped) == plain(straight)
    # The ring before its first slot, and behind one: rows 0 and 1. Whose turn it is does not count: strip 2
    # finds the ring at slot 0, strip 1 at slot 1, and runs what strip 2 has written down one turn further on.
    assert written == [(0, 0), (0, 1)]
    assert len(all_rows) == 27
    assert len({step.unit for step in looped.steps}) == 2
    assert [step.turns for step in looped.steps] == [None, None, (1, 0)]
    assert len(looped.units) == 2


def test_the_code_of_equal_strips_is_one_nest():
    # Ten rows bring the ring back to where it was, so from the second strip on all find the same.
    looped, _ = strips(ProgramBuilder(TOY), [0, 1, 2, 0], rows=10)
    first, *others = [step.unit for step in looped.steps]
    assert len({first, *others}) == 2
    assert all(isinstance(nest, NestOfSteps) for nest in others)
    assert [len(nest) for nest in others] == [10, 10, 10]
    assert len(looped) == len(looped.instructions) == 40


def test_a_task_in_one_piece_is_a_unit():
    looped, _ = strips(ProgramBuilder(TOY), [0], rows=1)
    (step,) = looped.steps
    assert isinstance(step.unit, NestOfSteps)
    assert isinstance(step.unit.steps[0].unit, Unit)


def test_a_loop_without_code_is_no_segment():
    b = ProgramBuilder(TOY)
    for _ in b.loop(range(5)):
        pass
    assert b.build().segments == ()


def folded(task, columns):
    """A tile of which another part is seen for each task."""
    return task[0], columns


def viewed(builder, tasks=4):
    """Copy a slice for each task, seen its own way, behind one that all see alike."""
    (slot,) = builder.slots("UB", 32, "row")
    for number in range(tasks):
        for task in builder.once((number,), "seen"):
            builder.add(CopyGmToUb(slot, builder.gm(ROWS, own_row, task), 32, (0, 8)))
            view = builder.view(folded, task, 8)
            builder.add(CopyGmToUb(slot, builder.gm(ROWS, own_row, task), 32, view))
    return builder.build()


def own_row(task):
    return task[0], 0, slice(0, 8)


def test_how_a_tile_is_read_follows_from_the_task():
    looped, straight = viewed(ProgramBuilder(TOY)), viewed(Unrolling(TOY))
    assert len(looped.units) == 1
    # The first two instructions have equal views, and only the second one's is found for each task.
    seen = [made.tile_shape for made in looped.instructions]
    assert seen == [(0, 8), (0, 8), (0, 8), (1, 8), (0, 8), (2, 8), (0, 8), (3, 8)]
    assert plain(looped) == plain(straight)


# --- what is refused


def emit_strip(inner, find_for=None):
    """Write down a task inside task (0,), or a slice for another one."""
    b = ProgramBuilder(TOY)
    (slot,) = b.slots("UB", 32, "row")
    for _ in b.once((0,), "strip"):
        if find_for is not None:
            b.gm(ROWS, cell, find_for)
        for task in b.once(inner, "row"):
            b.add(CopyGmToUb(slot, b.gm(ROWS, cell, task), 32, (8,)))


def test_an_inner_task_that_does_not_begin_with_the_outer_one_is_refused():
    emit_strip(((0,), 4))
    with pytest.raises(ProgramError, match=r"task \(\(1,\), 4\) is written down inside of task \(0,\)"):
        emit_strip(((1,), 4))


def test_a_slice_of_another_task_is_refused():
    with pytest.raises(ProgramError, match=r"task \(0,\) finds a slice by cell for task \(\(0,\), 4"):
        emit_strip(((0,), 4), find_for=((0,), 4))


def emit_view(of, taken, copies=1):
    """Return a program of task (0,), with a view for a task, and instructions with what is taken of it."""
    b = ProgramBuilder(TOY)
    (slot,) = b.slots("UB", 32, "row")
    for task in b.once((0,), "seen"):
        view = b.view(folded, of, 8)
        for _ in range(copies):
            b.add(CopyGmToUb(slot, b.gm(ROWS, own_row, task), 32, taken(view)))
    return b.build()


def test_a_view_of_another_task_is_refused():
    emit_view((0,), tuple)
    with pytest.raises(ProgramError, match=r"task \(0,\) finds a view by folded for task \(1,\)"):
        emit_view((1,), tuple)


def test_a_view_that_no_instruction_has_is_refused():
    # One that equals it is not enough: it would be the same for all tasks.
    with pytest.raises(ProgramError, match="finds 1 views by folded, and 0 of its instructions have one"):
        emit_view((0,), lambda view: (*view,))


def test_a_view_that_two_instructions_have_is_refused():
    # Only one of them would be found anew for another task. Who only asks for costs finds no view.
    program = emit_view((0,), tuple, copies=2)
    with pytest.raises(ProgramError, match="finds 1 views by folded, and 2 of its instructions have one"):
        _ = program.instructions


# --- how inner tasks and places follow


class Load(NamedTuple):
    """A task inside another one."""

    task: tuple
    row: int


@pytest.mark.parametrize(
    ("inner", "other"),
    [((1, 2), (7, 8)), (((1, 2), 5, "x"), ((7, 8), 5, "x")), (Load((1, 2), 5), Load((7, 8), 5))],
    ids=["itself", "tuple", "record"],
)
def test_a_part_follows_from_another_whole(inner, other):
    found = Part.of(inner, (1, 2)).within((7, 8))
    assert (found, type(found)) == (other, type(other))


def test_a_place_is_one_of_some_or_begins_with_one():
    places = ("x", ("a", 1), ("b", 2))
    assert [place_in(place, places) for place in ("x", ("b", 2), (("b", 2), 7), ("x", 9))] == [0, 2, 2, 0]
    assert [place_in(place, places) for place in (("a", 2), (("a", 2), 1), (), "y", None)] == [-1] * 5


def test_a_key_without_its_laps_is_that_of_other_rounds():
    assert told_apart((1, (Lap(4), 4), Lap(6))) == ((1, ((Lap, 0), 4), (Lap, 2)), 4)
    assert told_apart((1, (Lap(7), 4), Lap(9))) == ((1, ((Lap, 0), 4), (Lap, 2)), 7)
    # A number that equals a lap is none.
    assert told_apart((Lap(0), 0))[0] != told_apart((0, 0))[0]
    assert told_apart((Lap(0), Lap(1)))[0] != told_apart((Lap(0), Lap(2)))[0]
    assert told_apart(("x", 3)) == (("x", 3), 0)


# --- what the compiled engine makes of it, against the instructions one by one


def named_by(programs):
    """The number of every transfer's slice as the compiled engine sees it, and the slice itself."""
    book = CodeBook(TOY)
    layouts = Layouts(book)
    laid = Laid(layouts, programs)
    found, named = [], []
    columns = SliceBook(book, layouts, laid).numbers(), laid.traffics(), laid.cores()
    for program, numbers, moved, cores in zip(programs, *columns, strict=True):
        moving = [made for made in program.instructions if made.gm is not None]
        traffics = [book.traffics[number] for number in moved]
        assert [traffic.tensor for traffic in traffics] == [made.gm.tensor for made in moving]
        assert cores.tolist() == [0] * len(moving)
        found += numbers.tolist()
        named += [(made.gm.tensor.name, str(made.gm.index)) for made in moving]
    return found, named


def assert_numbered(programs):
    """Equal numbers for equal slices: as many pairs as numbers, and as many as slices."""
    found, named = named_by(programs)
    assert len(set(zip(found, named, strict=True))) == len(set(found)) == len(set(named))


@pytest.mark.parametrize("seed", range(60))
def test_transfers_of_random_nests_and_the_slices_that_they_name(seed):
    rng = random.Random(seed)
    assert_numbered([Nest(rng).emit(ProgramBuilder(TOY)) for _ in range(2)])


def test_places_that_the_outer_task_does_not_tell_are_kept_apart():
    b = ProgramBuilder(TOY)
    ring = b.ring("UB", 32, "row", 2)
    for column in (0, 1, 0):
        for strip in b.once((column,), "strip"):
            for lap in b.loop(range(9)):
                for side in (0, 10):
                    # Both places go on with the lap, and nothing tells that they belong to the strip.
                    place = (column, side), lap
                    for task in b.once((strip, lap, side), "row", {ring: (place,)}):
                        gm = b.gm(ROWS, lambda task: cell((task[0], task[1] + task[2])), task)
                        b.add(CopyGmToUb(ring.next(place), gm, 32, (8,)))
    assert_numbered([b.build()])


def row_of(task):
    block = task[0] if isinstance(task[0], tuple) else task
    return block[0], 0, slice(0, 8)


def column_of(task):
    block = task[0] if isinstance(task[0], tuple) else task
    return block[1], 1, slice(0, 8)


@pytest.mark.parametrize("parts", [False, True])
def test_equal_places_of_two_rings_tell_the_tiles_of_each(parts):
    # Row and column of the second block are equal numbers, and its code is that of all that follow, of
    # which no ring holds a tile. Row 5 comes again with another column.
    b = ProgramBuilder(TOY)
    rings = b.ring("UB", 32, "l", 2), b.ring("UB", 32, "r", 2)
    for block in ((1, 2), (0, 0), (5, 6), (7, 8), (9, 1), (5, 3)):
        for task in b.once(block, "block", {ring: ((at,),) for ring, at in zip(rings, block, strict=True)}):
            places, made = [(at,) for at in task], iter((task,))
            if parts:
                places = [(place, 4) for place in places]
                own = {ring: (place,) for ring, place in zip(rings, places, strict=True)}
                made = b.once((task, "part"), "part", own)
            for part in made:
                for ring, place, find in zip(rings, places, (row_of, column_of), strict=True):
                    b.add(CopyGmToUb(ring.next(place), b.gm(ROWS, find, part), 32, (8,)))
    assert_numbered([b.build()])


def of_row_7(task, _part):
    return 7, task[0], slice(0, 8)


@pytest.mark.parametrize("part", [8, slice(0, 8)])
def test_units_that_find_slices_alike_name_the_same_ones(part):
    # A slice cannot be hashed, so that nobody sees that two units have the same argument.
    b = ProgramBuilder(TOY)
    ring = b.ring("UB", 32, "row", 2)
    for shape in range(3):
        for column in (0, 1):
            for task in b.once((column,), shape, {ring: ((column,),)}):
                gm = b.gm(ROWS, of_row_7, task, part)
                b.add(CopyGmToUb(ring.next((column,)), gm, 32, (8,)))
    assert_numbered([b.build()])


def test_a_tile_is_found_once_for_all_tasks_and_rounds_that_name_its_place():
    calls = []

    def counted(task):
        calls.append(task)
        return cell(task)

    b = ProgramBuilder(TOY)
    ring = b.ring("UB", 32, "row", 2)
    for lap in b.loop(range(50)):
        for turn in range(3):
            # The turn is part of the task, but not of what tells its tile.
            place = (0,), lap
            for task in b.once(((0,), lap, turn), "row", {ring: (place,)}):
                b.add(
                    CopyGmToUb(ring.next(place), b.gm(ROWS, lambda task: counted(task[:2]), task), 32, (8,))
                )
    program = b.build()
    written = len(calls)
    book = CodeBook(TOY)
    layouts = Layouts(book)
    slices = SliceBook(book, layouts, Laid(layouts, [program]))
    (numbers,) = slices.numbers()
    # Once for each unit: 150 transfers, but the rings are found in few ways.
    assert len(program) == 150
    assert len(calls) - written == len(program.units) < 8
    # Three times the row of each round.
    assert [len(set(numbers[at : at + 3].tolist())) for at in range(0, 150, 3)] == [1] * 50
    assert len(set(numbers.tolist())) == 50


@pytest.mark.parametrize("seed", range(60))
def test_rows_of_code_in_the_order_of_the_instructions(seed):
    program = Nest(random.Random(seed)).emit(ProgramBuilder(TOY))
    book = CodeBook(TOY)
    rows = CodeRows(book)
    segments = rows.laid(program.steps, program.segments)
    laid = []
    for first, last, times in zip(*(iter(segments),) * 3, strict=True):
        assert first < last
        laid += times * [tuple(rows.steps[2 * at : 2 * at + 2]) for at in range(first, last)]
    assert laid == [book.rows(unit, turns) for _, unit, turns in program.turned()]
    # Their uses of slots are those of the instructions, written out.
    made = book.tables()
    uses = [
        made["uses"][slice(*made["code"][row, [f.FIRST_USE, f.LAST_USE]])].tolist()
        for rows_of_unit in laid
        for row in range(*rows_of_unit)
    ]
    slots, ends = Uses.of(program.instructions, program.posts)
    assert uses == [slots[first:last].tolist() for first, last in pairwise([0, *ends])]


def test_a_nest_in_a_loop_runs_as_often_as_the_loop():
    b = ProgramBuilder(TOY)
    (slot,) = b.slots("UB", 32, "row")
    unit = Unit((CopyGmToUb(slot, Gm(ROWS, (0, 0, slice(0, 8))), 32, (8,)),))
    rows = CodeRows(CodeBook(TOY))
    inner = NestOfSteps((Step(unit),), (Segment(0, 1, 3),))
    # Twice: the unit, then three times the unit, then the unit.
    laid = rows.laid((Step(unit), Step(inner), Step(unit)), (Segment(0, 3, 2),))
    assert sum(times * (last - first) for first, last, times in zip(*(iter(laid),) * 3, strict=True)) == 10
