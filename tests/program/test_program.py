"""Are waits and capacities of a program right, and is what comes too late refused?"""

import random
from itertools import pairwise

import pytest

from ascendsim.errors import CapacityError, ProgramError, UnsupportedError
from ascendsim.program.instruction import Command, SlotOntoSlot, SlotToSlot, ToSlot, Traffic
from ascendsim.program.kernel import Core, CoreWork, Deferred, Kernel, Phase
from ascendsim.program.places import GmTensor, Slot
from ascendsim.program.program import Program, ProgramBuilder
from ascendsim.program.waits import HAZARDS, Waits
from ascendsim.timing import kernel as door
from tests.helpers.both_engines import time_kernel
from tests.helpers.toy_machines import Fake, FakeProfile, kernel, program, toy_split, toy_unified

# --- Are waits and capacities of a program right? ------------------------------------------------------

TOY = toy_split()
PIPES = ("MTE2", "MTE1", "M", "FIX")


def builder(hazards=HAZARDS):
    return ProgramBuilder(TOY, hazards)


def waits(program):
    return list(zip(program.after_done, program.after_end, strict=True))


# --- which waits are derived


def test_a_reader_waits_until_the_writer_on_another_pipe_is_done():
    b = builder()
    (x,) = b.slots("L1", 32, "x")
    b.add(Fake("MTE2", writes=(x,)))
    b.add(Fake("MTE1", reads=(x,)))
    assert waits(b.build()) == [((), ()), ((0,), ())]


def test_a_writer_waits_until_the_reader_on_another_pipe_has_ended():
    b = builder()
    x, y = b.slots("L1", 32, "x", 2)
    b.add(Fake("MTE2", writes=(x,)))
    b.add(Fake("MTE1", reads=(x,), writes=(y,)))
    b.add(Fake("MTE2", writes=(x,)))
    assert waits(b.build())[2] == ((), (1,))


def test_a_writer_waits_until_the_writer_before_it_on_another_pipe_is_done():
    b = builder()
    (x,) = b.slots("UB", 32, "x")
    b.add(Fake("MTE2", writes=(x,)))
    b.add(Fake("V", writes=(x,)))
    assert waits(b.build())[1] == ((0,), ())


def test_a_pipe_never_waits_for_itself():
    b = builder()
    (x,) = b.slots("UB", 32, "x")
    b.add(Fake("V", writes=(x,)))
    b.add(Fake("V", reads=(x,)))
    b.add(Fake("V", writes=(x,)))
    assert waits(b.build()) == [((), ())] * 3


def test_two_readers_do_not_wait_for_each_other():
    b = builder()
    (x,) = b.slots("UB", 32, "x")
    b.add(Fake("MTE2", writes=(x,)))
    b.add(Fake("V", reads=(x,)))
    b.add(Fake("MTE3", reads=(x,)))
    assert waits(b.build())[2] == ((0,), ())


def test_a_writer_waits_for_every_reader_since_the_last_write():
    b = builder()
    (x,) = b.slots("UB", 32, "x")
    b.add(Fake("MTE2", writes=(x,)))
    b.add(Fake("V", reads=(x,)))
    b.add(Fake("MTE3", reads=(x,)))
    b.add(Fake("MTE2", writes=(x,)))
    # Only the readers: each of them is later than the first write, which MTE2 itself made.
    assert waits(b.build())[3] == ((), (1, 2))


def test_reading_and_writing_one_slot_needs_both_kinds_of_wait():
    b = builder()
    (x,) = b.slots("UB", 32, "x")
    b.add(Fake("MTE2", writes=(x,)))
    b.add(Fake("MTE3", reads=(x,)))
    b.add(Fake("V", reads=(x,), writes=(x,)))
    assert waits(b.build())[2] == ((0,), (1,))


# --- pruning


def test_a_wait_that_an_earlier_one_of_the_pipe_implies_is_dropped():
    b = builder()
    x, y = b.slots("L1", 32, "x", 2)
    b.add(Fake("MTE2", writes=(x,)))
    b.add(Fake("MTE2", writes=(y,)))
    b.add(Fake("MTE1", reads=(y,)))  # waits for 1, and so for 0
    b.add(Fake("MTE1", reads=(x,)))
    assert waits(b.build())[3] == ((), ())


def test_of_several_results_of_one_pipe_only_the_newest_is_waited_for():
    b = builder()
    x, y = b.slots("L1", 32, "x", 2)
    b.add(Fake("MTE2", writes=(x,)))
    b.add(Fake("MTE2", writes=(y,)))
    b.add(Fake("MTE1", reads=(x, y)))
    assert waits(b.build())[2] == ((1,), ())


def test_having_waited_for_the_end_does_not_spare_waiting_for_the_result():
    b = builder()
    x, y = b.slots("UB", 32, "x", 2)
    b.add(Fake("MTE2", writes=(x,)))
    b.add(Fake("V", reads=(x,), writes=(y,)))
    b.add(Fake("MTE2", writes=(x,)))  # waits for the end of 1
    b.add(Fake("MTE2", reads=(y,)))  # needs its result
    assert waits(b.build())[2:] == [((), (1,)), ((1,), ())]


def test_having_waited_for_the_result_spares_waiting_for_the_end():
    b = builder()
    x, y = b.slots("UB", 32, "x", 2)
    b.add(Fake("MTE2", writes=(x,)))
    b.add(Fake("V", reads=(x,), writes=(y,)))
    b.add(Fake("MTE2", reads=(y,)))
    b.add(Fake("MTE2", writes=(x,)))
    assert waits(b.build())[3] == ((), ())


def test_a_class_of_waits_can_be_left_out():
    for missing, expected in (("RAW", ((), ())), ("WAR", ((0,), ())), ("WAW", ((0,), ()))):
        b = builder(HAZARDS - {missing})
        (x,) = b.slots("UB", 32, "x")
        b.add(Fake("MTE2", writes=(x,)))
        b.add(Fake("V", reads=(x,)))
        assert waits(b.build())[1] == expected


def test_who_trails_takes_results_without_waiting_for_them():
    b = builder()
    (x,) = b.slots("L1", 32, "x")
    b.add(Fake("M", writes=(x,)))
    b.add(Fake("M", reads=(x,), writes=(x,)))
    b.add(Fake("FIX", reads=(x,), trails=True))
    program = b.build()
    assert waits(program)[2] == ((), ())
    assert [program.trailed(i) for i in range(3)] == [(), (), (1,)]


def test_what_comes_after_who_trails_need_not_wait_again():
    # It starts when the one before has left FIX, which is after the result that this one trailed.
    b = builder()
    (x,) = b.slots("L1", 32, "x")
    b.add(Fake("M", writes=(x,)))
    b.add(Fake("FIX", reads=(x,), trails=True))
    b.add(Fake("FIX", reads=(x,)))
    program = b.build()
    assert (waits(program)[2], program.trailed(2)) == (((), ()), ())


def test_an_overwriter_waits_for_who_trails():
    b = builder()
    (x,) = b.slots("L1", 32, "x")
    b.add(Fake("M", writes=(x,)))
    b.add(Fake("FIX", reads=(x,), trails=True))
    b.add(Fake("M", writes=(x,)))
    assert waits(b.build())[2] == ((), (1,))


def test_who_trails_still_waits_for_what_it_overwrites():
    b = builder()
    x, y = b.slots("L1", 32, "x", 2)
    b.add(Fake("M", writes=(x,)))
    b.add(Fake("V", writes=(y,)))
    b.add(Fake("FIX", reads=(x,), writes=(y,), trails=True))
    program = b.build()
    assert (waits(program)[2], program.trailed(2)) == (((1,), ()), (0,))


# --- all hazards of random programs, against the definition


def random_program(rng, hazards=HAZARDS):
    b = builder(hazards)
    slots = b.slots("L1", 32, "x", 5)
    written = []
    for _ in range(40):
        pipe = rng.choice(PIPES)
        reads = tuple(rng.sample(written, min(len(written), rng.randrange(3))))
        writes = tuple(rng.sample(slots, rng.randrange(2)))
        b.add(Fake(pipe, reads=reads, writes=writes, trails=rng.random() < 0.2))
        written = list(dict.fromkeys([*written, *writes]))
    return b.build()


def before(program):
    """Return the moments that come before the start of each instruction, and before its end.

    A moment is ("end" or "done", index); who trails ends after what it trails is done.
    A moment implies those that come before it: start < end < done; each pipe ends and delivers in order.
    """
    last, starts, ends, dones = {}, [], [], []
    for i, instruction in enumerate(program.instructions):
        previous = last.get(instruction.pipe)
        start = set()
        if previous is not None:
            start |= ends[previous]
        for j in program.after_done[i]:
            start |= dones[j]
        for j in program.after_end[i]:
            start |= ends[j]
        starts.append(start)
        trailed = [dones[j] for j in program.trailed(i)]
        ends.append(start.union({("end", i)}, *trailed))
        dones.append(ends[i] | {("done", i)} | (dones[previous] if previous is not None else set()))
        last[instruction.pipe] = i
    return starts, ends


def hazards_of(program):
    """Yield (earlier, later, moment of the earlier one that must come before the later one, whether its end).

    Else before its start: only what it reads need not be there yet when it trails.
    """
    for j, later in enumerate(program.instructions):
        for i, earlier in enumerate(program.instructions[:j]):
            if earlier.pipe == later.pipe:
                continue
            if set(earlier.writes) & set(later.reads):
                yield i, j, ("done", i), later.trails
            if set(earlier.writes) & set(later.writes):
                yield i, j, ("done", i), False
            if set(earlier.reads) & set(later.writes):
                yield i, j, ("end", i), False


def uncovered(program):
    starts, ends = before(program)
    return [
        (i, j, moment)
        for i, j, moment, at_end in hazards_of(program)
        if moment not in (ends if at_end else starts)[j]
    ]


@pytest.mark.parametrize("seed", range(30))
def test_every_hazard_between_pipes_is_covered(seed):
    assert uncovered(random_program(random.Random(seed))) == []


@pytest.mark.parametrize("missing", sorted(HAZARDS))
def test_some_hazard_is_uncovered_without_one_class(missing):
    for seed in range(30):
        if uncovered(random_program(random.Random(seed), HAZARDS - {missing})):
            return
    pytest.fail("thirty random programs need no such wait")


@pytest.mark.parametrize("seed", range(30))
def test_no_pipe_waits_twice_for_the_same_or_less(seed):
    program = random_program(random.Random(seed))
    for pipe in PIPES:
        mine = [i for i, instruction in enumerate(program.instructions) if instruction.pipe == pipe]
        for other in PIPES:
            trailed = [program.trailed(i) for i in range(len(program))]
            for kind in (program.after_done, program.after_end, trailed):
                on = [j for i in mine for j in kind[i] if program.instructions[j].pipe == other]
                assert all(a < b for a, b in pairwise(on))


# --- capacities


def test_slots_are_reserved_in_steps_of_the_alignment():
    b = builder()
    x, y = b.slots("L1", 33, "x", 2)
    assert (x.size_bytes, y.size_bytes) == (64, 64)  # the toy's L1 is aligned to 32 bytes
    assert b.build().buffer_bytes == {"L1": 128}
    assert (x.index, y.index) == (0, 1)


def test_a_full_buffer_is_no_error_and_one_unit_more_is():
    b = builder()
    b.slots("L0A", 1024, "A0", 2)  # 2 KiB: all of the toy's L0A
    with pytest.raises(CapacityError, match=r"L0A of toy_split holds 2048 bytes, but more \(1 x 512\)"):
        b.slots("L0A", 1, "more")


def test_a_capacity_error_names_buffer_need_capacity_and_what_to_do():
    b = builder()
    b.slots("L1", 4096, "A1")
    with pytest.raises(CapacityError) as raised:
        b.slots("L1", 3000, "B1", 2)
    # 3000 bytes round up to 3008; 4096 + 2 * 3008 = 10112
    assert str(raised.value) == (
        "L1 of toy_split holds 8192 bytes, but B1 (2 x 3008) brings the need to 10112; "
        "take a smaller tile or fewer copies"
    )


def test_an_absent_buffer_is_named_with_those_that_exist():
    with pytest.raises(CapacityError, match="toy_unified has no buffer BT; it has L1, L0A, L0B, L0C, UB"):
        ProgramBuilder(toy_unified()).slots("BT", 32, "bias")


def test_a_refused_reservation_takes_nothing():
    b = builder()
    with pytest.raises(CapacityError):
        b.slots("L0A", 4096, "A0")
    b.slots("L0A", 2048, "A0")
    assert b.build().buffer_bytes == {"L0A": 2048}


def test_reading_a_slot_that_nothing_has_written_is_refused():
    b = builder()
    (x,) = b.slots("L0A", 512, "A0")
    with pytest.raises(ProgramError, match=r"instruction 0 \(Fake\) reads L0A:A0\(512 B\), which nothing"):
        b.add(Fake("M", reads=(x,)))


# --- records


def test_a_slot_is_compared_by_identity():
    b = builder()
    x, y = b.slots("L1", 32, "x", 2)
    assert x != y
    assert repr(y) == "L1:x[1](32 B)"


def test_a_tensor_knows_its_bytes():
    assert GmTensor("x", (3, 5, 7), "float16", 2).size_bytes == 210  # 105 elements of 2 bytes


def test_a_tensor_of_a_named_format_knows_its_itemsize():
    made = GmTensor.of("x", (2, 3), "bfloat16", "output", "NCHW")
    assert made.size_bytes == 6 * 2
    assert (made.itemsize, made.role, made.layout, made.cached) == (2, "output", "NCHW", True)


def test_a_tensor_of_an_unknown_format_is_refused():
    with pytest.raises(UnsupportedError, match="float12"):
        GmTensor.of("x", (2, 3), "float12")


@pytest.mark.parametrize(("kind", "direction"), [("read", "read"), ("write", "write"), ("atomic", "write")])
def test_an_atomic_add_goes_out_like_a_write(kind, direction):
    assert Traffic(GmTensor("x", (1,), "float32", 4), kind, 4, 1).direction == direction


@pytest.mark.parametrize(
    ("base", "reads", "writes"),
    [(ToSlot, "", "d"), (SlotToSlot, "s", "d"), (SlotOntoSlot, "ds", "d")],
)
def test_what_moves_between_slots_says_which(base, reads, writes):
    class Mover(base):
        src, dst = "s", "d"

    assert (Mover().reads, Mover().writes, Mover().gm) == (tuple(reads), tuple(writes), None)


def test_a_command_touches_no_slot_and_drains_nothing_unless_it_says_so():
    command = Command()
    assert (command.reads, command.writes, command.drains, command.trails) == ((), (), False, False)


def test_waits_are_told_by_distance_and_read_as_indices():
    waits = Waits(((), (1,), (2, 1)))
    assert list(waits) == [(), (0,), (0, 1)]
    assert waits[2] == (0, 1)
    assert len(waits) == 3
    assert waits == Waits(((), (1,), (2, 1)))
    assert waits != Waits(((), (1,), (2,)))


def test_deferred_work_is_made_once_and_only_when_somebody_looks():
    looks = []

    def make():
        looks.append(1)
        return [CoreWork(Core("cube", 0), "a", builder().build)]

    phase = Phase("compute", Deferred(make))
    assert looks == []
    assert [work.core for work in phase.work] == [Core("cube", 0)]
    assert phase.work[0].signature == "a"
    assert len(phase.work) == len(list(phase.folded())) == 1
    assert looks == [1]


# --- phases and kernels


def work(kind, index, signature="a"):
    return CoreWork(Core(kind, index), signature, builder().build)


def test_a_team_has_one_kind_and_one_signature():
    made = [work("cube", 0), work("vector", 0), work("cube", 1, "b"), work("cube", 2), work("vector", 1)]
    phase = Phase("compute", made)
    assert [[(w.core.kind, w.core.index) for w in team] for team in phase.teams()] == [
        [("cube", 0), ("cube", 2)],
        [("vector", 0), ("vector", 1)],
        [("cube", 1)],
    ]
    # One work stands for each team.
    assert [(first, len(cores)) for first, cores in phase.folded()] == [
        (made[0], 2),
        (made[1], 2),
        (made[2], 1),
    ]


@pytest.mark.parametrize(
    ("phases", "blocks", "used"),
    [
        ([[("cube", 0), ("cube", 1)]], 2, 2),
        ([[("cube", 0), ("vector", 0), ("vector", 1)]], 1, 3),  # vector cores come with their cube core
        ([[("vector", 0), ("vector", 1), ("vector", 2)]], 3, 3),
        ([[("cube", 0)], [("cube", 0), ("cube", 1)]], 2, 2),  # a core counts once
        ([], 0, 0),
    ],
)
def test_blocks_are_cube_cores_or_vector_cores_where_no_cube_works(phases, blocks, used):
    made = tuple(Phase("p", tuple(work(*core) for core in phase)) for phase in phases)
    kernel = Kernel("k", made, {}, math=None)
    assert (kernel.blocks, kernel.cores_used) == (blocks, used)


@pytest.mark.parametrize(("launched", "blocks"), [(0, 2), (1, 2), (2, 2), (5, 5)])
def test_blocks_are_those_of_the_plan_but_never_fewer_than_the_cubes_that_work(launched, blocks):
    made = (Phase("p", tuple(work("cube", index) for index in range(2))),)
    kernel = Kernel("k", made, {}, math=None, launched=launched)
    assert (kernel.blocks, kernel.cores_used) == (blocks, 2)


# --- Is what the compiled engine would know too late refused there, and nothing else? ------------------

PROFILE = FakeProfile(read=(12, 9), write=(8, 8), depth=1)
WRITE = Fake("FIX", kind="write", bytes=40, peak=3)
LOAD = Fake("MTE2", kind="read", bytes=58, peak=3)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        # MTE1 waits for a long read; M trails MTE1, and Fixpipe, which writes, trails M.
        (
            (LOAD, (Fake("MTE1"), (0,)), (Fake("M"), (), (), (1,)), (WRITE, (), (), (2,))),
            "itself trails another",
        ),
        ((WRITE, (Fake("M", 5), (), (), (0,))), "trails one that moves bytes"),
    ],
)
def test_what_would_be_known_too_late_is_refused_and_not_timed_wrong(rows, says):
    # A second core writes as well: which share of the link it has hangs on when the first one began.
    made = kernel([program(*rows), program(WRITE, WRITE)])
    assert door.time_kernel(made, PROFILE, engine="simpy").cycles > 0
    for asked in (door.time_kernel, door.measure_kernel):
        with pytest.raises(ProgramError, match=f"{says}.*only the engine simpy obeys this"):
            asked(made, PROFILE, engine="compiled")


def test_fixpipe_trails_a_product_that_trails_nothing():
    made = kernel([program(LOAD, (Fake("M", 5), (0,)), (WRITE, (), (), (1,))), program(WRITE, WRITE)])
    assert time_kernel(made, PROFILE).cycles > 0


def test_only_the_newest_result_in_a_slot_counts():
    # The first product trails a load. The second is put over it and trails nothing; Fixpipe trails that one.
    loaded, tile = Slot("L1", 32, "loaded", 0), Slot("L1", 32, "tile", 1)
    made = [
        Fake("MTE1", 3, writes=(loaded,)),
        Fake("M", 5, reads=(loaded,), writes=(tile,), trails=True),
        Fake("M", 5, writes=(tile,)),
        Fake("FIX", kind="write", bytes=40, peak=3, reads=(tile,), trails=True),
    ]
    assert time_kernel(kernel([Program(made, (loaded, tile), {})]), PROFILE).cycles > 0
