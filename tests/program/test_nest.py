"""Does a loop nest, and what the engine notes of its next steps, say what plain loops and sets say?"""

import random
from typing import NamedTuple

import numpy as np
import pytest

from ascendsim.errors import ProgramError
from ascendsim.instructions.vector import Add, CopyGmToUb
from ascendsim.program import walk as w
from ascendsim.program.instruction import SlotToSlot
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, Slot
from ascendsim.program.program import NestProgram, walk_memory
from ascendsim.program.walk import Axis
from ascendsim.timing import compiled_flows as f
from ascendsim.timing.compiled_held import BACK, note_needs
from ascendsim.timing.compiled_phase import laid_out
from ascendsim.timing.kernel import measure_kernel
from tests.helpers.conv_cases import OUT, ROWS, TOY, both_of, copy, nest_kernel, plain, row_of

# --- Does a loop nest say what plain loops say? Held to loops that append every instruction. -----------


@pytest.mark.parametrize("seed", range(60))
def test_a_random_nest_is_the_loops_that_it_says(seed):
    program, loops = both_of(random.Random(seed))
    assert plain(program) == plain(loops)
    assert len(program) == len(loops)


@pytest.mark.parametrize("seed", range(20))
def test_both_engines_take_a_nest_for_the_loops_that_it_says(seed):
    made = [both_of(random.Random(100 * seed + core)) for core in range(2)]
    nests, loops = (nest_kernel(*own) for own in zip(*made, strict=True))
    start = ("warm", "cold")[seed % 2]
    taken = [
        measure_kernel(kernel, TOY, engine=engine, l2_start=start)
        for kernel in (nests, loops)
        for engine in ("compiled", "simpy")
    ]
    assert taken[0].cycles > 0
    assert all(one == taken[0] for one in taken[1:])


@pytest.mark.parametrize("seed", range(20))
def test_the_walk_in_plain_python_is_the_compiled_one(seed):
    program, _ = both_of(random.Random(seed))
    for mode in (w.ROWS, w.TRANSFERS, w.PLACED):
        memories = [walk_memory([program]) for _ in range(2)]
        rows = [np.zeros(30, np.int64) for _ in range(2)]
        while True:
            ends = [
                walk(memory, 0, at, own, 0, len(own), mode)
                for walk, (memory, (at,)), own in zip(
                    (w.WALKER, w.WALKER.python), memories, rows, strict=True
                )
            ]
            assert ends[0] == ends[1]
            assert rows[0].tolist() == rows[1].tolist()
            assert memories[0][0].tolist() == memories[1][0].tolist()
            if not ends[0]:
                break


@pytest.mark.parametrize("seed", range(40))
def test_what_moves_is_found_without_looking_at_the_rest(seed):
    # Loops in which nothing moves are passed over. Equal numbers are equal slices, and the other way round.
    program, loops = both_of(random.Random(seed))
    moved = [row for rows in program.walked(w.TRANSFERS) for row in rows.tolist()]
    slices = [(made.gm.tensor.name, str(made.gm.index)) for made in loops.instructions if made.gm]
    assert len(moved) == len(slices)
    assert len(set(zip([number for _, number in moved], slices, strict=True))) == len(set(slices))
    assert len({number for _, number in moved}) == len(set(slices))


def test_memory_does_not_grow_with_loops():
    nest = Nest(TOY)
    ring = nest.ring("UB", 32, "row", 2)
    nest.task(task=1)
    with nest.loop(1 << 20, "row") as row:
        nest.emit(lambda slot, at: copy(slot, at % 60, 0), [nest.next(ring)], [row], slice_at=[row])
    program = NestProgram(nest, np.zeros((1, 1), np.int64))
    assert len(program) == 1 << 20
    assert len(walk_memory([program])[0]) < 200


# --- what cannot be shared is refused


def lanes_nest(costs):
    """A nest whose additions cost by the index."""
    nest = Nest(TOY, "lanes")
    (x,) = nest.slots("UB", 32, "x")
    (index,) = nest.task(index=Axis(3, costs))
    nest.emit(copy, [x], [0, 0])
    nest.emit(lambda slot, at: Add(slot, slot, (8, 8, 200)[at]), [x], [index])
    return NestProgram(nest, np.array([[0], [1], [2]]))


def test_axes_that_tell_what_costs_apart_are_taken():
    program = lanes_nest((0, 0, 1))
    program.nest.check_axes()
    assert [made[2] for made in program.instructions if type(made) is Add] == [8, 8, 200]


@pytest.mark.parametrize("costs", [None, (0, 1, 1), (0, 0, 0)])
def test_axes_that_take_for_alike_what_is_not_are_refused(costs):
    program = lanes_nest(costs)
    with pytest.raises(ProgramError, match=r"makes Add.*200.*let `Axis.costs` separate"):
        program.nest.check_axes()
    with pytest.raises(ProgramError, match="does not cost what"):
        _ = program.instructions


def test_an_instruction_that_uses_other_slots_than_its_row_is_refused():
    nest = Nest(TOY, "slots")
    x, y = nest.slots("UB", 32, "x", 2)
    (index,) = nest.task(index=2)
    nest.emit(copy, [x], [0, 0])
    nest.emit(copy, [y], [0, 0])
    nest.emit(lambda one, other, at: Add(one, one if at else other, 8), [x, y], [index])
    with pytest.raises(ProgramError, match="uses other slots of its row"):
        _ = NestProgram(nest, np.array([[0], [1]])).instructions


def test_more_slots_than_a_row_names_are_refused():
    nest = Nest(TOY, "slots")
    slots = nest.slots("UB", 32, "x", 5)
    nest.task(task=1)
    with pytest.raises(ProgramError, match=r"names 5 slots; a row of a nest has 4: hand on neighbours"):
        nest.emit(lambda *slots: Add(slots[0], slots[4], 8), slots)


def test_a_ring_is_no_slot():
    nest = Nest(TOY, "slots")
    ring = nest.ring("UB", 32, "x", 2)
    with pytest.raises(ProgramError, match=r"emit is given Ring as a slot; give a tile"):
        nest.emit(copy, [ring], [0, 0])


@pytest.mark.parametrize("asked", [lambda row: row == 0, lambda row: row != 0, lambda row: row in [1]])
def test_a_number_of_a_nest_is_no_condition_of_python(asked):
    # Asked while the nest is written down, it would be answered once for all rows.
    (row,) = Nest(TOY).task(row=4)
    with pytest.raises(ProgramError, match=r"row is known only when the nest is walked; make a table"):
        asked(row)


def test_a_task_comes_before_what_is_done_for_it():
    nest = Nest(TOY, "late")
    nest.next(nest.ring("UB", 32, "x", 2))
    with pytest.raises(ProgramError, match="late: task must come first, and once"):
        nest.task(row=4)
    nest = Nest(TOY, "twice")
    # A table takes part in nothing until somebody looks it up.
    nest.table([1, 2])
    nest.task(row=4)
    with pytest.raises(ProgramError, match="twice: task must come first, and once"):
        nest.task(column=4)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([0, 1], r"tasks are int64 of shape \(2,\); .* a row for each task with the columns row, column"),
        ([[0, 1, 0]], r"tasks are int64 of shape \(1, 3\)"),
        ([[0.5, 1.0]], "tasks are float64"),
        ([[0, 1], [3, 3]], "column of task 1 is 3; it must be from 0 to 2"),
        ([[0, 1], [3, 2], [-1, 0]], "row of task 2 is -1; it must be from 0 to 3"),
    ],
)
def test_tasks_that_a_nest_has_not_are_refused(tasks, message):
    nest = Nest(TOY, "tasks")
    nest.task(row=4, column=3)
    with pytest.raises(ProgramError, match=f"tasks: {message}"):
        NestProgram(nest, np.array(tasks))
    for taken in ([[3, 2]], [[3.0, 2.0]], []):
        assert NestProgram(nest, np.array(taken)).tasks.tolist() == taken


def test_neighbours_are_handed_on_together():
    nest = Nest(TOY)
    ring = nest.ring("UB", 32, "x", 2, width=3)
    (index,) = nest.task(index=4)
    first = nest.next(ring)
    met = []

    def make(slots, at):
        met.append(([slot.index for slot in slots], at))
        return CopyGmToUb(slots[2], Gm(ROWS, (at, 0, slice(0, 8))), 32, (8,))

    nest.emit(make, [(first, 3)], [index])
    program = NestProgram(nest, np.array([[0], [1], [2]]))
    assert [made.dst.index for made in program.instructions] == [2, 5, 2]
    assert met[1:] == [([0, 1, 2], 0), ([3, 4, 5], 1), ([0, 1, 2], 2)]


def test_a_variable_of_which_some_values_are_alike_is_refused():
    nest = Nest(TOY, "variables")
    nest.task(task=1)
    with pytest.raises(ProgramError, match="some indices of the axis of variable begun are alike"):
        nest.let(0, "begun", Axis(3, (0, 1, 1)))


def test_a_variable_is_set_to_nothing_beyond_its_extent():
    nest = Nest(TOY, "variables")
    nest.task(task=1)
    nest.set(nest.let(0, "ends", 3), 2)
    with pytest.raises(ProgramError, match="variable begun is set to 1, but ends at 0; say how far"):
        nest.set(nest.let(0, "begun"), 1)


def test_more_slices_than_a_number_tells_are_refused():
    nest = Nest(TOY, "large")
    (x,) = nest.slots("UB", 32, "x")
    rows, columns = nest.task(row=1 << 40, column=1 << 40)
    with pytest.raises(ProgramError, match=r"large: .*2\*\*62"):
        nest.emit(copy, [x], [rows, columns])


def test_an_index_without_a_place_is_refused():
    nest = Nest(TOY, "none")
    (x,) = nest.slots("UB", 32, "x")
    nest.task(task=1)
    with (
        pytest.raises(ProgramError, match=r"none: copy by \(row, 0\) of extents \[0, 1\]; an index has 1 or"),
        nest.loop(0, "row") as row,
    ):
        nest.emit(copy, [x], [row, 0])


def test_the_engine_wants_a_slice_of_what_moves():
    class Nowhere(CopyGmToUb):
        gm = None

    nest = Nest(TOY, "nowhere")
    (x,) = nest.slots("UB", 32, "x")
    nest.task(task=1)
    nest.emit(lambda slot: Nowhere(slot, Gm(ROWS, (0, 0, slice(0, 8))), 32, (8,)), [x])
    kernel = nest_kernel(NestProgram(nest, np.zeros((1, 1), np.int64)))
    with pytest.raises(ProgramError, match="nest nowhere: Nowhere moves bytes and names no slice"):
        measure_kernel(kernel, TOY)


# --- how it reads


def test_it_prints_as_a_reader_would_write_it():
    nest = Nest(TOY, "doubled")
    ring, results = nest.ring("UB", 32, "Row", 2), nest.ring("UB", 32, "Result", 2)
    (block,) = nest.task(block=4)
    runs = nest.spans([2, 1, 0, 1], 60, "rows")
    odd = nest.table([0, 1, 0, 1], name="odd")
    with nest.loop(runs[block], "row") as row:
        with nest.hold(ring, row) as slot:
            nest.emit(copy, [slot], [row, 0])
        result = nest.next(results)
        nest.emit(copy, [result], [row, 1])
        with nest.when(odd[block]):
            nest.emit(lambda goal, source: Add(goal, source, 8), [result, slot])
    nest.forget(ring)
    assert str(nest).splitlines() == [
        "doubled: for each task (block):",
        "    for row in rows[block]:",
        "        row = Row of (row); unless it is there:",
        "            CopyGmToUb(row) at (row, 0)",
        "        result = next Result",
        "        CopyGmToUb(result) at (row, 1)",
        "        when odd[block]:",
        "            Add(result, row)",
        "    forget Row",
    ]
    assert row_of(0) == 1
    assert OUT.role == "output"
    assert isinstance(nest.slots_reserved[0], Slot)


def sliced(slice_at):
    """A nest that copies the rows of two indices, and says by what slices are told."""
    nest = Nest(TOY, "sliced")
    (x,) = nest.slots("UB", 32, "x")
    row, column, half = nest.task(row=4, column=3, half=2)
    told = {"all": [row, column], "few": [row], "many": [row, column, half]}[slice_at]
    nest.emit(lambda slot, at, other: copy(slot, at, other), [x], [row, column], slice_at=told)
    return NestProgram(nest, np.array([[0, 0, 0], [1, 2, 0], [1, 1, 0], [1, 2, 1]]))


def test_slices_that_are_told_apart_otherwise_than_they_lie_are_refused():
    sliced("all").check_slices()
    with pytest.raises(
        ProgramError, match=r"rows\[4, 1.*\] of global memory and rows\[4, 2.*have one number"
    ):
        sliced("few").check_slices()
    with pytest.raises(ProgramError, match=r"rows\[4, 2, .*\] of global memory has several numbers"):
        sliced("many").check_slices()


def test_a_digest_tells_shapes_and_what_is_met_again_apart():
    def digest(rows):
        nest = Nest(TOY, "digest")
        (x,) = nest.slots("UB", 32, "x")
        (row,) = nest.task(row=Axis(4, (0, 0, 0, 1)))
        nest.emit(lambda slot, at: copy(slot, at, 0), [x], [row])
        nest.emit(lambda slot, at: Add(slot, slot, 200 if at == 3 else 8), [x], [row])
        return NestProgram(nest, np.array(rows).reshape(-1, 1)).digest(known)

    known = {}
    assert digest([0, 1]) == digest([2, 1])
    assert digest([0, 0]) == digest([1, 1]) != digest([0, 1])
    assert digest([0, 3]) != digest([0, 1])


# --- what would be walked in silence as something else


def one(write):
    """The program of a nest for one task, written by a function of the nest and a slot that is filled."""
    nest = Nest(TOY, "one")
    (x,) = nest.slots("UB", 32, "x")
    (task,) = nest.task(task=4)
    nest.emit(copy, [x], [0, 0])
    write(nest, x, task)
    return NestProgram(nest, np.zeros((1, 1), np.int64))


def plus(slot):
    return Add(slot, slot, 8)


def row(slot, at):
    return copy(slot, at, 0)


def copy_last(slot, at):
    return row(slot, 5) if at else plus(slot)


def looks_up_in_a_loop(nest, x, _task):
    table = nest.table([0, 1, 2], 200)
    with nest.loop(3, "i") as i:
        found = table[i]
        nest.emit(plus, [x])
    nest.emit(row, [x], [found], slice_at=[found, nest.let(0, "column", 3)])


def takes_turns_in_a_loop(nest, x, _task):
    ring = nest.handover(0, "turn", 3)
    with nest.loop(4, "i"):
        nest.next(ring)
        nest.emit(plus, [x])
    nest.emit(row, [x], [nest.next(ring).turn], slice_at=[nest.next(ring).turn, nest.let(0, "column", 3)])


def moves_in_one_class(nest, x, _task):
    with nest.loop(Axis(2, (0, 1)), "i") as i:
        nest.emit(copy_last, [x], [i])


@pytest.mark.parametrize("write", [looks_up_in_a_loop, takes_turns_in_a_loop, moves_in_one_class])
def test_a_loop_that_decides_what_moves_behind_it_is_walked(write):
    program = one(write)
    moved = [number for rows in program.walked(w.TRANSFERS) for number in rows[:, 1].tolist()]
    assert len(moved) == len([made for made in program.instructions if made.gm])
    kernel = nest_kernel(program)
    assert measure_kernel(kernel, TOY) == measure_kernel(kernel, TOY, engine="simpy")


def test_a_loop_in_which_nothing_moves_is_passed_over():
    def write(nest, x, _task):
        with nest.loop(1 << 30, "i"):
            nest.emit(plus, [x])
        nest.emit(row, [x], [_task])

    assert sum(map(len, one(write).walked(w.TRANSFERS))) == 2


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda nest, _x, task: nest.table([1, 2, 3])[task], "task"),
        (lambda nest, _x, _task: nest.table([1, 9], Axis(4)), "9"),
        (lambda nest, _x, _task: nest.spans([3, 3], Axis(4)), "6"),
        (lambda nest, _x, task: nest.table([[1, 2, 3, 4]])[task], "ind"),
        (lambda nest, x, _task: nest.emit(lambda slot: Add(slot, OTHER, 8), [x]), "was not handed"),
        (lambda nest, _x, task: nest.set(nest.let(0, "v"), task), "variable v"),
        (lambda _nest, _x, task: bool(task), "known only when"),
    ],
)
def test_what_a_nest_cannot_mean_is_refused(write, says):
    with pytest.raises(ProgramError, match=says):
        one(write)


OTHER = Slot("UB", 32, "other", 1)


class _Bare(NamedTuple):
    dst: Slot
    src: Slot


class Bare(_Bare, SlotToSlot):
    """An instruction that says neither where it runs nor what it means."""

    __slots__ = ()

    def cost(self, _profile):
        """Return nothing."""


class Free(Bare):
    """An instruction whose cost is nothing that could be added."""

    __slots__ = ()
    pipe, shape = "V", 1

    def execute(self, memory):
        """Do nothing."""


def test_an_instruction_that_lacks_what_is_asked_of_it_is_refused():
    with pytest.raises(ProgramError, match=r"one: instruction Bare has no pipe, shape, execute; .*`Command`"):
        one(lambda nest, x, _task: nest.emit(lambda slot: Bare(slot, slot), [x]))


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_an_instruction_without_a_cost_is_refused(engine):
    program = one(lambda nest, x, _task: nest.emit(lambda slot: Free(slot, slot), [x]))
    with pytest.raises(ProgramError, match=r"Free 1: cost\(profile\) returned None; .*`return Cost"):
        measure_kernel(nest_kernel(program), TOY, engine=engine)


def test_a_key_that_no_number_tells_is_refused():
    nest = Nest(TOY, "keys")
    ring = nest.ring("UB", 32, "x", 2)
    told = nest.task(**{f"i{n}": 1 << 16 for n in range(4)})
    with pytest.raises(ProgramError, match=r"keys: .*2\*\*62"), nest.hold(ring, *told):
        pass


@pytest.mark.parametrize("costs", [[7], [5, 5], [5, 5, 3, 5, 3, 9], [2, 1, 0], [0, 1, 1, 0]])
def test_an_axis_knows_the_first_index_of_each_class_of_costs(costs):
    axis = Axis(len(costs), costs)
    classes = list(dict.fromkeys(costs))
    assert list(axis.first_of) == [costs.index(cost) for cost in classes]
    if len(classes) > 1:
        assert axis.costs.tolist() == [classes.index(cost) for cost in costs]
    else:
        assert axis.costs is None


def test_an_axis_has_a_cost_for_each_index():
    with pytest.raises(ProgramError, match="10"):
        Axis(10, (0, 1))


# -------------------------------------------------------------------------------------------------------
# What does the compiled engine note about what the next transfers need? Held to sets and dictionaries.
# -------------------------------------------------------------------------------------------------------

PIPES = 7


def noted(unit):
    """What stands above the forms of rows (pipe, slots read, slots written, whether bytes move)."""
    most = max([len(reads) + len(writes) for _, reads, writes, _ in unit], default=0)
    forms = np.zeros((len(unit), f.USE + most), np.int64)
    for form, (pipe, reads, writes, moves) in zip(forms, unit, strict=True):
        uses = [2 * slot for slot in reads] + [2 * slot + 1 for slot in writes]
        form[[f.PIPE, f.MOVES, f.USES]] = pipe, moves, len(uses)
        form[f.USE : f.USE + len(uses)] = uses
    figures = np.zeros(f.MACHINE, np.int64)
    figures[f.PIPES], figures[f.FORM] = PIPES, forms.shape[1]
    tables = dict.fromkeys(f.TABLES, np.empty(0, np.int64)) | {
        "forms": forms,
        "needed": np.full(PIPES, -1),
        "wanted": np.full(4 * (1 + BACK), -1),
    }
    memory, _ = laid_out(figures, tables)
    rows = np.zeros(f.ROW * len(unit), np.int64)
    rows[:: f.ROW] = range(len(unit))
    note_needs(memory, rows, 0, len(rows))
    assert (rows[:: f.ROW] & 0xFFFFFFFF).tolist() == list(range(len(unit)))
    return (rows[:: f.ROW] >> 32).tolist()


def newest_needed(unit, at):
    """The newest instruction on each pipe that one needs, among the last few, directly or by others."""
    wanted, newest = set(unit[at][1]), {}
    for source in range(at - 1, max(-1, at - 1 - BACK), -1):
        pipe, reads, writes, _ = unit[source]
        if wanted & set(writes):
            newest.setdefault(pipe, source)
            wanted |= set(reads)
    return set(newest.values())


def defined(unit):
    """By the definition: a pipe's bit stands from what its next transfer needs back to its last transfer."""
    behind, needed, begins = [0] * len(unit), {}, {}
    for at in range(len(unit) - 1, -1, -1):
        pipe, _, _, moves = unit[at]
        needed[pipe] = needed.get(pipe, 0) | begins.get(at, 0)
        behind[at] = needed[pipe]
        if moves:
            needed = {other: bits & ~(1 << pipe) for other, bits in needed.items()}
            begins = dict.fromkeys(newest_needed(unit, at), 1 << pipe)
    return behind


def test_a_write_back_needs_the_product_and_the_loads_before_it():
    # A copy into slot 0 (pipe 4), a load from there into 1, a product of 1 into 2, and a result that moves
    # from 2 (pipe 5): it needs the product, so the load, so the copy. What stands first is no source, but
    # comes before the product on its pipe.
    unit = [(1, (), (), False), (4, (), (0,), True), (2, (0,), (1,), False), (1, (1,), (2,), False)]
    assert noted([*unit, (5, (2,), (), True)]) == [1 << 5] * 4 + [0]
    assert noted([(3, (), (), False), *unit[1:], (5, (2,), (), True)]) == [0, *[1 << 5] * 3, 0]


@pytest.mark.parametrize("seed", range(40))
def test_needs_of_random_code(seed):
    rng = random.Random(seed)

    def slots():
        return tuple(rng.sample(range(6), rng.randrange(3)))

    unit = [(rng.randrange(PIPES), slots(), slots(), rng.random() < 0.2) for _ in range(rng.randrange(60))]
    assert noted(unit) == defined(unit)


@pytest.mark.parametrize("back", range(1, BACK + 3))
def test_as_far_back_as_is_looked_and_no_further(back):
    # A transfer reads what an instruction has written `back` rows before; between them lie others.
    between = [(2, [], [], False)] * (back - 1)
    unit = [(1, [], [5], False), *between, (3, [5], [], True)]
    assert noted(unit) == defined(unit)
    assert bool(noted(unit)[0]) == (back <= BACK)
