"""Do programs with loops say what the same nests say when every round is written out?"""

import random
from dataclasses import replace

import pytest

from ascendsim import ConvProblem, Tiling, load_profile
from ascendsim.cube.movers import LoadL0A
from ascendsim.errors import ProgramError
from ascendsim.ops.lowering.lower import lower
from ascendsim.program.builder import HAZARDS, ProgramBuilder
from ascendsim.program.loops.laps import Lap, first_lap, moved, named
from ascendsim.program.places import Gm
from ascendsim.program.program import Program
from ascendsim.program.units import Segment, Step, Unit
from ascendsim.vector.instructions import Add, CopyGmToUb
from tests.helpers.conv_cases import Case, call_of, grid_2d, other_ranks
from tests.helpers.fake_machine import Fake
from tests.helpers.nests import OUT, ROWS, TOY, Nest, Unrolling, assert_unrolled_alike, plain, row_of
from tests.schedules.test_schedules import MANY_TILES


def rows_program(laps, copies=2, builder=None):
    """Load the row of every lap into a ring of slots and add it to itself; return the laps emitted, too."""
    b = builder or ProgramBuilder(TOY)
    ring, emitted = b.ring("UB", 32, "row", copies), []
    for lap in b.loop(laps):
        emitted.append(int(lap))
        slot = ring.next()
        b.add(CopyGmToUb(slot, Gm(ROWS, (lap, 0, slice(0, 8))), 32, (8,)))
        b.add(Add(slot, slot, 8))
    return b.build(), emitted


# --- a loop's code


@pytest.mark.parametrize(
    ("copies", "count", "emitted", "segments"),
    [
        (1, 5, 2, [(0, 1, 1, 0, 0), (1, 2, 4, 0, 1)]),
        # Rounds 2 and 3 twice, then round 2 once more, moved on by four.
        (2, 7, 4, [(0, 2, 1, 0, 0), (2, 4, 2, 0, 2), (2, 3, 1, 4, 0)]),
        (3, 12, 6, [(0, 3, 1, 0, 0), (3, 6, 3, 0, 3)]),
        (2, 3, 3, [(0, 3, 1, 0, 0)]),  # no round repeats
        (2, 0, 0, []),
    ],
)
def test_a_loops_code_is_emitted_until_it_recurs(copies, count, emitted, segments):
    # Until all slots have been used, no round finds what another one found; then they find turn after turn.
    program, laps = rows_program(range(5, 5 + count), copies)
    assert laps == list(range(5, 5 + emitted))
    assert [tuple(segment) for segment in program.segments] == segments
    assert [made.src.index[0] for made in program.instructions if made.gm] == list(range(5, 5 + count))
    assert len(program) == len(program.instructions) == 2 * count


def test_the_shifts_of_a_segment_are_those_of_its_rounds():
    assert list(Segment(0, 1, 3, 4, 2).shifts()) == [4, 6, 8]
    assert list(Segment(0, 1, 1, 7).shifts()) == [7]


def test_a_loop_after_another_begins_with_what_the_first_has_left():
    b = ProgramBuilder(TOY)
    plain_one = Unrolling(TOY)
    programs = []
    for builder in (b, plain_one):
        ring = builder.ring("UB", 32, "row", 3)
        for laps in (range(7), range(4, 20), range(1)):
            for lap in builder.loop(laps):
                if ring.find(("row", lap)) is None:
                    slot = ring.next(("row", lap))
                    builder.add(CopyGmToUb(slot, Gm(ROWS, (lap, 0, slice(0, 8))), 32, (8,)))
                builder.add(Add(ring.last, ring.last, 8))
        programs.append(builder.build())
    assert plain(programs[0]) == plain(programs[1])
    # Rows 4 to 6 are still there when the second loop begins, so of 7 + 16 + 1 loads there are 3 less.
    assert sum(made.gm is not None for made in programs[0].instructions) == 21
    assert sum(len(step.unit.instructions) for step in programs[0].steps) < len(programs[0])


def test_a_loop_in_a_loop_goes_through_all_its_rounds_and_does_not_move_with_the_outer_one():
    programs = []
    for builder in (ProgramBuilder(TOY), Unrolling(TOY)):
        (slot,) = builder.slots("UB", 32, "tile")
        for lap in builder.loop(range(9)):
            for turn in builder.loop(range(2)):
                builder.add(CopyGmToUb(slot, Gm(ROWS, (lap, turn, slice(0, 8))), 32, (8,)))
        programs.append(builder.build())
    assert plain(programs[0]) == plain(programs[1])
    places = [made.src.index[:2] for made in programs[0].instructions]
    assert places == [(lap, turn) for lap in range(9) for turn in range(2)]
    assert len(programs[0].steps) == 1  # both rounds of the inner loop, once


# --- laps


@pytest.mark.parametrize(
    "wrong",
    [
        lambda lap: 10 - lap,
        lambda lap: -lap,
        lambda lap: lap + lap,
        lambda lap: lap - lap,
        lambda lap: lap << 1,
        lambda lap: lap**2,
        lambda lap: 7 % lap,
        lambda lap: lap < 3,
        lambda lap: min(lap, 3),
        lambda lap: lap * 2,
        lambda lap: 2 * lap,
        lambda lap: lap // 2,
        lambda lap: lap % 2,
        lambda lap: lap / 2,
    ],
)
def test_laps_move_by_constants_alone(wrong):
    with pytest.raises(ProgramError, match="lap 6 of a loop is used in a way that does not move on"):
        wrong(Lap(6))


def test_laps_are_moved_by_constants():
    for made, value in ((Lap(6) + 2, 8), (2 + Lap(6), 8), (Lap(6) - 2, 4)):
        assert (type(made), made) == (Lap, value)


def test_all_laps_in_a_value_are_moved_and_nothing_else():
    value = (1, Lap(2), ("x", (Lap(3), 4)), slice(0, 5))
    assert moved(value, 10) == (1, 12, ("x", (13, 4)), slice(0, 5))
    step = moved(Step(None, (Lap(1),)), 1)
    assert (type(step), step.task) == (Step, (2,))
    assert type(moved(Lap(1), 1)) is Lap


def test_a_slice_moves_where_its_index_names_a_lap():
    assert (named((0, Lap(3), 2)), named((0, 1))) == (1, -1)


# --- units


def test_a_unit_that_takes_a_slice_from_elsewhere_is_refused():
    b = ProgramBuilder(TOY)
    (slot,) = b.slots("UB", 32, "row")
    unit = b.once(((0,), 4), "rows")
    task = next(unit)
    b.add(CopyGmToUb(slot, b.gm(ROWS, row_of, task, 0, 0), 32, (8,)))
    b.add(CopyGmToUb(slot, Gm(ROWS, (5, 0, slice(0, 8))), 32, (8,)))
    with pytest.raises(ProgramError, match="has 2 instructions on global memory, of which 1 take their"):
        next(unit)


def test_code_of_a_like_task_is_appended_with_its_own_slices():
    b = ProgramBuilder(TOY)
    ring, emitted = b.ring("UB", 32, "row", 2), []
    for number in range(6):
        for task in b.once(((0,), number), "rows"):
            emitted.append(number)
            b.add(CopyGmToUb(ring.next(), b.gm(ROWS, row_of, task, 1, 2), 32, (8,)))
    program = b.build()
    assert emitted == [0, 1]  # the ring before its first slot, and behind one; whose turn it is counts not
    assert [made.src.index[0] for made in program.instructions] == [1, 2, 3, 4, 5, 6]
    assert len(b) == len(program) == 6
    assert len({id(step.unit) for step in program.steps}) == 2
    # Code of the second turn, so slot 1; one turn on, slot 0.
    assert [made.dst.index for made in program.instructions] == [0, 1, 0, 1, 0, 1]
    assert [step.turns for step in program.steps] == [None, None, (1, 0), None, (1, 0), None]


def test_units_stay_known_from_program_to_program_and_slots_are_written_by_them():
    b = ProgramBuilder(TOY)
    (slot,) = b.slots("UB", 32, "row")
    programs = []
    for number in range(2):
        b.restart()
        for task in b.once(((0,), number), "rows"):
            assert number == 0, "the second program appends what the first has emitted"
            b.add(CopyGmToUb(slot, b.gm(ROWS, row_of, task, 0, 0), 32, (8,)))
        b.add(Add(slot, slot, 8))  # refused if the unit had not written it
        programs.append(b.build())
    assert [made.instructions[0].src.index[0] for made in programs] == [0, 1]
    assert programs[0].steps[0].unit is programs[1].steps[0].unit


def test_another_program_on_the_same_slots_starts_from_nothing():
    b = ProgramBuilder(TOY)
    (x,) = b.slots("UB", 32, "x")
    for pipe in ("MTE2", "V"):
        b.add(Fake(pipe, writes=(x,)))
    first = b.build()
    b.restart()
    with pytest.raises(ProgramError, match="which nothing has written"):
        b.add(Fake("V", reads=(x,)))
    b.add(Fake("V", writes=(x,)))
    assert (len(first), len(b.build())) == (2, 1)
    assert list(b.build().after_done) == [()]
    assert b.build().slots == first.slots


# --- rings


def test_a_ring_is_known_to_a_unit_by_what_it_holds_of_it():
    ring = ProgramBuilder(TOY).ring("UB", 32, "tile", 3)
    ring.next("image 1", "box")
    ring.next("image 0", "box")
    labels = ring.labels(("image 0", "image 1"), 0)
    assert labels == ((1, None, "box"), (0, None, "box"), None)
    # Code that begins here counts from slot 1, which holds image 0; slot 2 holds nothing, slot 0 image 1.
    assert ring.found(labels) == ((0, True), (0, None, "box"), None, (1, None, "box"))
    assert ring.labels(("image 2",), 0) == (None, None, None)
    assert ring.found(None) == (0, True)
    assert (ring.begins(), ring.begins()) == (True, False)
    assert ring.found(None) == (0, False)


def move_on(ring, change, place):
    """Let a ring go on as code that has one place."""
    _, ring.at, _, fills = ring.move(change)
    ring.fill(fills, (place,), 0)


def test_a_ring_becomes_what_a_like_unit_left_and_keeps_what_that_did_not_touch():
    ring, other = (ProgramBuilder(TOY).ring("UB", 32, "tile", 3) for _ in range(2))
    ring.next("image 0", "box")
    at, before = ring.at, ring.labels(("image 1",), 0)
    ring.next("image 1", "box")
    # One turn on it has put image 1 there.
    change = ring.change(at, 1, before, ("image 1",), 0)
    assert change == (ring, 1, True, 1, ((1, (0, None, "box")),))
    other.next("image 6", "box")
    first = other.last
    move_on(other, change, "image 7")
    assert other.find("image 6", "box") is first
    assert other.find("image 7", "box").index == 1
    assert other.next().index == 2
    # Begun at slot 2 it has filled the next one in turn, slot 0.
    move_on(other, change, "image 8")
    assert other.find("image 8", "box") is first
    assert other.next().index == 1


def test_a_tile_that_code_finds_or_loads_again_is_there_before_and_behind_it():
    ring = ProgramBuilder(TOY).ring("UB", 32, "tile", 2)
    ring.next("image 0", "box")
    at, before = ring.at, ring.labels(("image 0",), 0)
    assert ring.change(at, 0, before, ("image 0",), 0).fills == ()
    ring.next("image 3")
    ring.next("image 0", "box")
    # Slot 1, one turn on, has lost what it held, a tile of no place of the code; slot 0 has the same again.
    assert ring.change(at, 2, before, ("image 0",), 0).fills == ((1, ()),)


def test_a_ring_is_told_from_a_round_and_taken_from_another():
    ring = ProgramBuilder(TOY).ring("UB", 32, "tile", 2)
    ring.next(("row", Lap(7)))
    ring.next(("row", 7))
    state = ring.whole(7)
    assert state == (1, True, ((("row", 0), None), (("row", 7), None)))
    ring.take(state, 9)
    assert ring.find(("row", 9)).index == 0
    assert ring.find(("row", 7)).index == 1  # no lap, so it stays
    ring.forget()
    assert ring.find(("row", 9)) is None


# --- random nests, against the same nests written out


@pytest.mark.parametrize("hazards", [HAZARDS, *(HAZARDS - {missing} for missing in sorted(HAZARDS))], ids=len)
@pytest.mark.parametrize("seed", range(60))
def test_a_nest_says_what_it_says_unrolled(seed, hazards):
    nest = Nest(random.Random(seed))
    unrolled = nest.emit(Unrolling(TOY, hazards))
    looped = nest.emit(ProgramBuilder(TOY, hazards))
    assert plain(looped) == plain(unrolled)
    assert len(looped) == len(unrolled) == len(unrolled.instructions)
    assert plain(nest.again()) == plain(unrolled)  # with all units known


def test_nests_repeat_most_of_their_code():
    programs = [Nest(random.Random(seed)).emit(ProgramBuilder(TOY)) for seed in range(60)]
    emitted = [code_of(program) for program in programs]
    assert sum(2 * own < len(program) for own, program in zip(emitted, programs, strict=True)) > 20
    assert sum(len(segment) > 0 and segment.by > 1 for p in programs for segment in p.segments) > 10


def code_of(program):
    """The number of instructions in distinct units of code."""
    return sum(len(unit.instructions) for unit in program.units)


# --- schedules

CASES = [
    *grid_2d(seed=2)[::6],
    *other_ranks(seed=2),
    *MANY_TILES,
    # long rows of equal tasks; two blocks of columns, so that images stay and weights come again
    Case(ConvProblem((9, 8, 7, 7), (24, 8, 3, 3), 2, 1)),
    Case(ConvProblem((40, 4, 2, 2), (4, 4, 1, 1))),
    Case(
        ConvProblem((7, 40, 6, 6), (40, 40, 3, 3), 1, 1),
        tilings=(
            ("grad_input", Tiling(16, 16, 16, 2, 9, bl1_buffers=1, used_cores=2)),
            ("grad_weight", Tiling(32, 32, 16, 4, 4, 1, 1, k_split=3, used_cores=2)),
        ),
    ),
    # five groups of channels in two and in three parts, the first of which is the shortest
    Case(
        ConvProblem((3, 40, 6, 6), (72, 40, 3, 3), 1, 1),
        tilings=(("grad_input", Tiling(16, 16, 16, 2, 9, bl1_buffers=1, k_split=2, used_cores=2)),),
    ),
    Case(
        ConvProblem((3, 40, 6, 6), (72, 40, 3, 3), 1, 1),
        tilings=(("grad_input", Tiling(16, 16, 32, 1, 1, cl0_buffers=1, k_split=3, used_cores=5)),),
    ),
]


def cube_programs(call):
    """The programs of both gradients, core by core."""
    return [
        work.build()
        for kernel in lower(call, (True, True, False)).kernels
        for phase in kernel.phases
        for work in phase.work
    ]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_programs_of_schedules_are_those_without_loops(case, monkeypatch):
    assert_unrolled_alike(lambda: cube_programs(case.call()), monkeypatch)


SMALL = ConvProblem((1, 20, 6, 5), (36, 20, 3, 3), 1, 1)


@pytest.mark.parametrize("product", ["toy", "910B", "310P", "910_95"])
@pytest.mark.parametrize("batch", range(1, 10))
def test_parts_of_images_at_any_batch_are_those_without_loops(batch, product, monkeypatch):
    # Cores get 5, 3, 24, 8 or 32 shares, so runs begin and end inside images.
    options = {} if product == "toy" else {"profile": load_profile(product)}
    problem = replace(SMALL, input=(batch, *SMALL.input[1:]))
    tilings = {"grad_input": Tiling(16, 16, 16, 2, 4), "grad_weight": Tiling(16, 32, 16, 1, 1, k_split=2)}
    looped = assert_unrolled_alike(
        lambda: cube_programs(call_of(problem, tilings=tilings, **options)), monkeypatch
    )
    assert batch < 9 or any(part.times > 1 for program in looped for part in program.segments)


@pytest.mark.parametrize("product", ["910B", "310P"])
def test_programs_of_a_real_layer_are_those_without_loops(product, monkeypatch):
    problem = ConvProblem((8, 64, 28, 28), (64, 64, 3, 3), 1, 1)
    looped = assert_unrolled_alike(
        lambda: cube_programs(call_of(problem, profile=load_profile(product))), monkeypatch
    )
    units = {unit for program in looped for unit in program.units}
    assert sum(len(unit.instructions) for unit in units) < sum(map(len, looped)) / 2


@pytest.mark.parametrize(
    ("stride", "tiling"),
    [(1, Tiling(32, 64, 64, 1, 9)), (1, Tiling(48, 64, 48, 2, 3, k_split=2)), (2, Tiling(32, 64, 64, 1, 9))],
)
def test_code_costs_what_it_cost_when_it_was_written_down(stride, tiling, monkeypatch):
    problem, profile = ConvProblem((2, 64, 28, 28), (64, 64, 3, 3), stride, 1), load_profile("910B")
    tilings = {"grad_input": tiling, "grad_weight": Tiling(64, 80, 64, 3, 3)}
    call = call_of(problem, profile=profile, tilings=tilings)
    for program in assert_unrolled_alike(lambda: cube_programs(call), monkeypatch):
        for at, unit in program.placed():
            now = program.instructions[at : at + len(unit)]
            assert [made.cost(profile) for made in now] == [made.cost(profile) for made in unit.instructions]


def test_blocks_of_pixels_that_cost_the_same_share_code():
    problem, profile = ConvProblem((1, 16, 28, 28), (16, 16, 3, 3), 1, 1), load_profile("910B")
    call = call_of(problem, profile=profile, tilings={"grad_input": Tiling(32, 16, 144, 1, 1, used_cores=1)})
    block = next(program for program in cube_programs(call) if "M" in program.used)
    # 24 blocks of 32 pixels and one of 16, in rows of 28, begin at 7 places of a row; the first lies at the
    # upper edge of the image, and the last two at the lower one. So their tiles are read in 10 ways. But they
    # cost what the first block does, or four rows of the image with one fractal over the end of a row or with
    # none, or what the short block does; and the first block alone loads weights: five codes.
    ways = [
        len({made.tile_read for made in instructions if isinstance(made, LoadL0A) and made.buffer == "L0A"})
        for instructions in (block.instructions, [made for unit in block.units for made in unit.instructions])
    ]
    assert ways == [10, 5]
    assert len(block.units) == 5


def test_parts_of_a_block_that_are_alike_are_written_down_once():
    problem = ConvProblem((1, 16, 4, 4), (64, 16, 3, 3), 1, 1)
    tilings = {"grad_input": Tiling(16, 16, 48, 3, 3, k_split=4, used_cores=1)}
    call = call_of(problem, profile=load_profile("910B"), tilings=tilings)
    block = next(program for program in cube_programs(call) if "M" in program.used)
    # One block, of whose four groups of channels each part has one; the rings stand as before behind each.
    assert len(block) == 4 * sum(len(unit.instructions) for unit in block.units)


def test_the_code_of_a_program_does_not_grow_with_the_batch():
    # Shares are whole numbers of periods of images, so that only the number of rounds differs.
    sizes = {}
    for batch in (64, 256):
        problem = ConvProblem((batch, 64, 14, 14), (64, 64, 3, 3), 1, 1)
        # The product's and the search's plan of grad_weight would be another one for each batch.
        tilings = {
            "grad_input": Tiling(64, 64, 64, 9, 9, used_cores=16),
            "grad_weight": Tiling(64, 192, 80, 3, 3, cl0_buffers=2, k_split=8, used_cores=24),
        }
        programs = cube_programs(call_of(problem, profile=load_profile("910B"), tilings=tilings))
        sizes[batch] = sorted(code_of(program) for program in programs), sum(map(len, programs))
    assert sizes[64][0] == sizes[256][0]
    assert sizes[256][1] > 3 * sizes[64][1]


# --- programs


def test_a_straight_program_is_one_unit_that_runs_once():
    made = [Fake("M"), Fake("V")]
    program = Program.straight(made, (), {})
    assert program.instructions == tuple(made)
    assert [tuple(segment) for segment in program.segments] == [(0, 1, 1, 0, 0)]
    assert program.done_back == ((), ())


def test_a_unit_without_aims_moves_its_laps_only():
    b = ProgramBuilder(TOY)
    (slot,) = b.slots("UB", 32, "row")
    made = [CopyGmToUb(slot, Gm(ROWS, (row, 0, slice(0, 8))), 32, (8,)) for row in (Lap(3), 3)]
    unit = Unit((*made, Add(slot, slot, 8)))
    assert unit.pipes == ("MTE2", "V")
    assert unit.at(None, 0) == unit.instructions
    assert [i.src.index[0] for i in unit.at(None, 5) if i.gm] == [8, 3]
    assert [place.index[0] for place in unit.slices(None)] == [3, 3]
    assert OUT.role == "output"


def test_laps_may_rise_by_more_than_one():
    # Two slots: the third round finds what the first one found, and rows 5 and 8 come again 6 further on.
    program, laps = rows_program(range(5, 26, 3))
    assert laps == [5, 8, 11, 14]
    assert [tuple(segment) for segment in program.segments] == [
        (0, 2, 1, 0, 0),
        (2, 4, 2, 0, 6),
        (2, 3, 1, 12, 0),
    ]
    assert [made.src.index[0] for made in program.instructions if made.gm] == [5, 8, 11, 14, 17, 20, 23]


@pytest.mark.parametrize("laps", [range(6, -1, -1), [0, 1], 5])
def test_a_loop_rises(laps):
    with pytest.raises(ProgramError, match="a range that rises"):
        next(ProgramBuilder(TOY).loop(laps))


def sliced_by_laps(builder):
    (slot,) = builder.slots("UB", 32, "tile")
    for lap in builder.loop(range(9)):
        builder.add(CopyGmToUb(slot, Gm(ROWS, (slice(lap, lap + 1), 0)), 32, (1,)))


def test_a_slice_of_laps_is_refused():
    with pytest.raises(ProgramError, match="the slice 0:1 of laps"):
        sliced_by_laps(ProgramBuilder(TOY))


def test_a_loop_that_is_left_early_leaves_the_builder_free_for_the_next():
    builder = ProgramBuilder(TOY)
    rounds = builder.loop(range(5))
    next(rounds)
    rounds.close()
    assert len(list(builder.loop(range(50)))) < 50


def test_an_argument_of_a_slice_names_no_lap():
    # The argument stays with the unit, so for the next task it would name the lap of the first.
    builder = ProgramBuilder(TOY)
    builder.slots("UB", 32, "tile")

    def emit():
        for lap in builder.loop(range(9)):
            for task in builder.once((0, lap), "tile"):
                builder.gm(ROWS, lambda task, lap: (lap, task[0]), task, lap)

    with pytest.raises(ProgramError, match="let the task name the lap"):
        emit()


def test_the_first_lap_of_a_value_is_found_wherever_it_stands():
    assert first_lap((1, ("x", (Lap(3), Lap(4))), Lap(5))) == 3
    assert first_lap((1, ("x", slice(0, 2)))) is None
    assert first_lap(Lap(0)) == 0
    assert first_lap(None) is None
