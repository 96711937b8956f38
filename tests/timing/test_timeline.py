"""Do the spans say where the cycles went, and what the buffers of a core hold?"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.ops.graph_times import summarise
from ascendsim.ops.results import Retimed
from ascendsim.program.kernel import Core, CoreWork, Phase
from ascendsim.program.places import Slot
from ascendsim.program.program import Program
from ascendsim.report.document import occupation_entry
from ascendsim.timing.critical_path import PathStep, critical_path, cycles_by_cause, cycles_by_pipe
from ascendsim.timing.timeline import (
    CoreTimeline,
    PhaseTimeline,
    SlotGroup,
    Timeline,
    levels,
    occupied,
    times_of,
)
from ascendsim.timing.times import Occupation, average_busy, bound_by, occupation
from tests.helpers.both_engines import time_kernel
from tests.helpers.toy_machines import CUBE0, CUBE1, VECTOR0, Fake, FakeProfile, kernel, program
from tests.timing.test_timing import PLAIN, profiles, programs, read

# --- Do the spans say where the cycles went? -----------------------------------------------------------

CORE = Core("cube", 0)

# Issue 1, flag 2. MTE2 loads from 1 to 11, visible at 14. M reads it from 16 to 20, visible at 25. V is
# issued at 3, waits for M until 27. The second load is issued at 4 and follows the first.
CHAIN = program(Fake("MTE2", 10, 3), (Fake("M", 4, 5), [0]), (Fake("V", 6), [1]), Fake("MTE2", 10, 3))
CHAIN_PROFILE = FakeProfile(issue_cycles=1, flag_cycles=2)


def chain():
    return time_kernel(kernel([CHAIN]), CHAIN_PROFILE)


def measured(*phases_and_profile, **options):
    """Where the cycles of a kernel went; phases as of `kernel`, then the profile."""
    *phases, profile = phases_and_profile
    return times_of(time_kernel(kernel(*phases), profile, **options))


# --- occupation --------------------------------------------------------------------------------------------


def test_every_pipe_knows_what_it_waited_for():
    # 33 cycles: V ends at 27 + 6.
    assert occupation(times_of(chain()), CORE) == {
        "S": Occupation(4, {}, 29),
        "M": Occupation(4, {"MTE2": 16 - 2}, 33 - 4 - 14),
        "MTE2": Occupation(20, {}, 13),
        "V": Occupation(6, {"M": 27 - 3}, 3),
    }


def test_a_wait_is_charged_to_what_was_over_last():
    # M is done at 9, MTE1 has ended at 12: V waits from 0 on, for MTE1.
    prog = program(Fake("M", 9), Fake("MTE1", 12), (Fake("V", 1), [0], [1]))
    assert occupation(measured([prog], PLAIN), CORE)["V"].waiting == {"MTE1": 12}


def test_a_wait_of_one_cycle_counts():
    # Issued at 1 and 2; M ends at 3.
    prog = program(Fake("M", 2), (Fake("V", 1), [0]))
    assert occupation(measured([prog], PLAIN.but(issue_cycles=1)), CORE)["V"].waiting == {"M": 1}


def test_draining_is_waiting_for_oneself():
    prog = program(Fake("M", 3, 50), Fake("M", 1, drains=True))
    assert occupation(measured([prog], PLAIN), CORE)["M"] == Occupation(4, {"M": 50}, 0)


def test_the_scalar_unit_waits_for_room_in_a_queue():
    # Queue of one: the third is issued when M takes up the second at 11, eight cycles later than without.
    prog = program(*[Fake("M", 10)] * 3)
    profile = PLAIN.but(issue_cycles=1, depths={"M": 1})
    assert occupation(measured([prog], profile), CORE)["S"] == Occupation(3, {"M": 8}, 20)


def test_barriers_and_phases_of_others_are_idle():
    made = kernel([program(Fake("M", 5))], [program(Fake("M", 5)), program(Fake("M", 9))])
    timeline = times_of(time_kernel(made, PLAIN.but(barrier_cycles=3)))
    # Phases end at 5 and 8 + 9 = 17.
    assert occupation(timeline, CORE)["M"] == Occupation(10, {}, 7)
    assert occupation(timeline, Core("cube", 1))["M"] == Occupation(9, {}, 8)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(programs(most=12), min_size=1, max_size=3), min_size=1, max_size=2), profiles)
def test_busy_waiting_and_idle_add_up(phases, profile):
    timeline = measured(*phases, profile.but(barrier_cycles=3, start_cycles=2))
    for core in {core for phase in timeline.phases for work in phase.cores for core in work.cores}:
        for pipe in occupation(timeline, core).values():
            assert pipe.busy + sum(pipe.waiting.values()) + pipe.idle == timeline.cycles
            assert min(pipe.busy, pipe.idle, *pipe.waiting.values()) >= 0


def test_contention_is_busy_time():
    # Two cores share 10 bytes a cycle: the pipe is held for 20 cycles.
    made = kernel([(0, program(read(100)))] * 2)
    assert (
        occupation(times_of(time_kernel(made, PLAIN.but(read=(10, 10)))), Core("cube", 1))["MTE2"].busy == 20
    )


def test_the_entry_of_a_kernel_is_work_of_the_scalar_unit():
    # Seven cycles of entry, one to issue, then ten of M; of 18 cycles S is busy in eight.
    timeline = measured([program(Fake("M", 10))], PLAIN.but(start_cycles=7, issue_cycles=1))
    assert occupation(timeline, CORE) == {"S": Occupation(8, {}, 10), "M": Occupation(10, {}, 8)}
    assert average_busy(timeline) == {"S": 8, "M": 10}


def test_a_kernel_is_entered_once():
    made = kernel([program(Fake("M", 5))], [program(Fake("M", 5))])
    timeline = times_of(time_kernel(made, PLAIN.but(start_cycles=7, barrier_cycles=3)))
    assert [(phase.begin, phase.end) for phase in timeline.phases] == [(7, 12), (15, 20)]
    assert occupation(timeline, CORE)["S"].busy == 7


# --- averages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folded", [True, False])
def test_busy_is_averaged_over_the_used_cores(folded):
    # Three cores of 10 cycles (one when folded) and one of 50: 80 / 4.
    made = kernel([*[(0, program(Fake("M", 10)))] * 3, (1, program(Fake("M", 50)))])
    assert average_busy(times_of(time_kernel(made, PLAIN, folded=folded)))["M"] == 20


def both_kinds(mte2_of_vectors):
    """Two cube cores, of which one uses M and ten cycles of MTE2, and three vector cores."""
    cube = program(Fake("M", 10), Fake("MTE2", 10))
    vector = program(Fake("V", 4), Fake("MTE2", mte2_of_vectors))
    work = (
        CoreWork(Core("cube", 0), 0, lambda: cube),
        CoreWork(Core("cube", 1), 1, lambda: program(Fake("FIX", 8))),
        *(CoreWork(Core("vector", i), 0, lambda: vector) for i in range(3)),
    )
    made = replace(kernel([cube]), phases=(Phase("both", work),))
    return times_of(time_kernel(made, PLAIN))


def test_only_cores_of_a_kind_that_has_the_pipe_count():
    # M 10 / 2, V 12 / 3.
    assert average_busy(both_kinds(5)) == {"S": 0, "M": 5, "V": 4, "MTE2": 5, "FIX": 4}


@pytest.mark.parametrize(("of_vectors", "mean"), [(1, 5), (4, 5), (6, 6), (9, 9)])
def test_of_two_kinds_with_a_pipe_the_busier_one_counts(of_vectors, mean):
    # Cubes 10 / 2; all five cores together would be 2.6 of MTE2 with vector cores of one cycle, below M.
    times = both_kinds(of_vectors)
    assert average_busy(times)["MTE2"] == mean
    spent = occupation_entry(times)["MTE2"]
    assert spent["busy"] == mean / times.cycles
    assert spent["entry"] + spent["busy"] + sum(spent["waiting"].values()) + spent["idle"] == pytest.approx(1)


def test_the_scalar_unit_never_bounds():
    assert bound_by({"S": 100.0, "M": 3.0, "MTE2": 5.0}) == "MTE2"
    assert bound_by({"S": 1.0}) == "S"


# --- the critical path -------------------------------------------------------------------------------------


def test_the_critical_path_names_every_cause():
    steps = [(step.cause, step.begin, step.end, step.instruction) for step in critical_path(chain())]
    assert steps == [
        ("S", 0, 1, 0),
        ("MTE2", 1, 11, 0),
        ("latency", 11, 14, 0),
        ("flag", 14, 16, 1),
        ("M", 16, 20, 1),
        ("latency", 20, 25, 1),
        ("flag", 25, 27, 2),
        ("V", 27, 33, 2),
    ]
    assert cycles_by_cause(critical_path(chain())) == {
        "MTE2": 10,
        "latency": 8,
        "V": 6,
        "M": 4,
        "flag": 4,
        "S": 1,
    }


def test_the_critical_path_is_told_by_pipe_and_cause():
    # The steps above: each latency is that of the pipe whose result it is, each flag goes to a pipe.
    assert cycles_by_pipe(critical_path(chain())) == {
        "issue by S": 1,
        "MTE2 busy": 10,
        "latency of MTE2": 3,
        "flag to M": 2,
        "M busy": 4,
        "latency of M": 5,
        "flag to V": 2,
        "V busy": 6,
    }


def test_entry_and_barriers_are_no_pipes():
    made = kernel([program(Fake("M", 5))], [program(Fake("V", 4))])
    path = critical_path(time_kernel(made, PLAIN.but(start_cycles=7, barrier_cycles=3)))
    assert cycles_by_pipe(path) == {"entry": 7, "M busy": 5, "barrier": 3, "V busy": 4}


@pytest.mark.parametrize(
    ("issue", "steps"),
    [
        (0, [("M", 0, 10), ("latency", 10, 14), ("FIX", 14, 30)]),  # both begin at 0
        (20, [("S", 0, 20), ("S", 20, 40), ("FIX", 40, 70)]),  # issued when M had long been over
    ],
)
def test_the_critical_path_goes_through_what_is_trailed_as_long_as_that_lasts(issue, steps):
    prog = program(Fake("M", 10, 4), (Fake("FIX", 30, trails=True, piece=2), (), (), [0]))
    path = critical_path(time_kernel(kernel([prog]), PLAIN.but(issue_cycles=issue)))
    assert [(step.cause, step.begin, step.end) for step in path] == steps


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_critical_path_goes_through_a_full_queue(depth):
    # V is issued only when the last M was, which had to wait until M took up the second at 11.
    prog = program(*[Fake("M", 10)] * (depth + 2), Fake("V", 99))
    path = critical_path(time_kernel(kernel([prog]), PLAIN.but(issue_cycles=1, depths={"M": depth})))
    assert [(step.cause, step.begin, step.end) for step in path] == [
        ("S", 0, 1),
        ("M", 1, 11),
        ("S", 11, 12),
        ("V", 12, 111),
    ]


def test_the_critical_path_crosses_barriers_to_the_core_that_was_last():
    made = kernel([program(Fake("M", 5)), program(Fake("M", 8))], [program(Fake("V", 4))])
    assert critical_path(time_kernel(made, PLAIN.but(barrier_cycles=3))) == [
        PathStep("M", 0, 8, "phase 0", Core("cube", 1), 0, "M"),
        PathStep("barrier", 8, 11, "phase 0"),
        PathStep("V", 11, 15, "phase 1", CORE, 0, "V"),
    ]


def test_the_critical_path_begins_with_the_entry():
    made = kernel([program(Fake("M", 5))], [program(Fake("V", 4))])
    assert critical_path(time_kernel(made, PLAIN.but(start_cycles=7))) == [
        PathStep("entry", 0, 7, "phase 0"),
        PathStep("M", 7, 12, "phase 0", CORE, 0, "M"),
        PathStep("V", 12, 16, "phase 1", CORE, 0, "V"),
    ]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.lists(programs(most=12), min_size=1, max_size=3), min_size=1, max_size=2),
    profiles,
    st.sampled_from([0, 5]),
)
def test_the_critical_path_has_no_gap(phases, profile, entry):
    timeline = time_kernel(kernel(*phases), profile.but(barrier_cycles=3, start_cycles=entry))
    path = critical_path(timeline)
    assert [step.begin for step in path] == [0, *(step.end for step in path)][: len(path)]
    assert (path[-1].end if path else 0) == timeline.cycles
    assert sum(cycles_by_pipe(path).values()) == timeline.cycles
    assert all(step.end - step.begin == profile.flag_cycles for step in path if step.cause == "flag")
    assert all((step.end - step.begin) == profile.issue_cycles for step in path if step.cause == "S")


# --- the numbers of a report -------------------------------------------------------------------------------


def test_a_summary_has_launch_and_utilisation():
    profile = SimpleNamespace(
        clock=SimpleNamespace(cube_mhz=50),
        launch_us=lambda cores: 2.0 + cores,
        cores=SimpleNamespace(cube=4),
        cube=SimpleNamespace(rates={"float16": SimpleNamespace(macs_per_cycle=10)}),
    )
    made = replace(kernel([(0, program(Fake("M", 100)))] * 2), macs=1000, compute_dtype="float16")
    timeline = time_kernel(made, PLAIN)
    result = summarise(made, profile, times_of(timeline), Retimed(None, timeline), "simpy")
    assert result.cycles == 100
    # 100 cycles at 50 a microsecond, and 2 + 2 to launch.
    assert result.time_us == 2 + 4
    # 1000 multiply-adds in 100 cycles on a chip that could do 4 x 10 a cycle.
    assert result.cube_utilisation == 1000 / 4000
    assert (result.cores_used, result.bound_by, result.busy["M"]) == (2, "M", 100)
    vector = replace(made, macs=0, compute_dtype="")
    assert summarise(vector, profile, result.times, result.timed, "simpy").cube_utilisation == 0
    assert (result.times, result.engine) == (times_of(timeline), "simpy")


# --- Is what the buffers of a core hold told as it is, over time and by purpose? -----------------------
# Of kernels whose every cycle is written by hand, and of real ones.

A, B = (Slot("L1", 96, f"A1[{copy}]", copy) for copy in range(2))
LEFT = Slot("L0A", 64, "A0", 2)
BYTES = {"L1": 192, "L0A": 64}


def work(core, *rows, slots=(A, B, LEFT), buffer_bytes=BYTES):
    """A core's work of rows (instruction, start, end); everything is issued at once."""
    made, starts, ends = zip(*rows, strict=True)
    program = Program(made, slots, buffer_bytes)
    return CoreTimeline((core,), program, [0] * len(made), list(starts), list(ends), list(ends))


def copy(slot):
    return Fake("MTE2", writes=(slot,))


def load(slot):
    return Fake("MTE1", reads=(slot,), writes=(LEFT,))


PRODUCT = Fake("M", reads=(LEFT,))
# Two tiles are copied in turn; each is loaded to L0A and multiplied.
ROWS = [
    (copy(A), 10, 20),
    (load(A), 20, 25),
    (PRODUCT, 25, 30),
    (copy(B), 20, 40),
    (load(B), 40, 45),
    (PRODUCT, 45, 50),
]


def test_a_slot_holds_a_tile_from_its_making_to_its_last_reading():
    found = {(level.buffer, level.cycle): level.bytes for level in levels(work(CUBE0, *ROWS), len(ROWS))}
    # A1[0] from 10 to 25, A1[1] from 20 to 45; A0 from 20 to 30 and from 40 to 50.
    assert found == {
        ("L1", 10): 96,
        ("L1", 20): 192,
        ("L1", 25): 96,
        ("L1", 45): 0,
        ("L0A", 20): 64,
        ("L0A", 30): 0,
        ("L0A", 40): 64,
        ("L0A", 50): 0,
    }


def of(*phases):
    return occupied(Timeline("k", 200, phases, {}))


def test_buffers_are_told_with_their_tiles_and_what_they_hold_most():
    one, two = of(PhaseTimeline("compute", 0, 60, (work(CUBE0, *ROWS),)))
    assert (one.buffer, one.core, one.reserved_bytes, one.most_bytes) == ("L1", CUBE0, 192, 192)
    # Two copies of 96 bytes take turns.
    assert one.tiles == (SlotGroup("A1", 2, 96),)
    assert one.levels == ((10, 96), (20, 192), (25, 96), (45, 0))
    assert (two.buffer, two.tiles, two.most_bytes) == ("L0A", (SlotGroup("A0", 1, 64),), 64)


def test_a_copy_that_is_never_used_is_reserved_all_the_same():
    one, _ = of(PhaseTimeline("compute", 0, 60, (work(CUBE0, *ROWS[:3]),)))
    assert (one.tiles, one.most_bytes, one.reserved_bytes) == ((SlotGroup("A1", 2, 96),), 96, 192)


def test_the_core_that_ends_last_is_told_over_all_phases():
    short, long = work(CUBE0, *ROWS[:3]), work(CUBE1, *ROWS)
    later = work(CUBE1, (copy(A), 70, 80), (load(A), 80, 90))
    first = PhaseTimeline("compute", 0, 60, (short, long))
    found = of(first, PhaseTimeline("again", 70, 90, (later,)))
    assert {one.core for one in found} == {CUBE1}
    assert found[0].levels[-2:] == ((70, 96), (90, 0))


def test_the_vector_core_that_ends_last_has_its_own_buffer():
    tile = Slot("UB", 32, "in", 0)
    adding = work(
        VECTOR0,
        (Fake("MTE2", writes=(tile,)), 70, 75),
        (Fake("V", reads=(tile,)), 75, 80),
        slots=(tile,),
        buffer_bytes={"UB": 32},
    )
    phases = PhaseTimeline("compute", 0, 60, (work(CUBE0, *ROWS),)), PhaseTimeline("add", 70, 80, (adding,))
    assert [(one.buffer, one.core) for one in of(*phases)] == [("L1", CUBE0), ("L0A", CUBE0), ("UB", VECTOR0)]


def test_a_kernel_without_work_has_no_buffers():
    assert of() == []


@pytest.mark.parametrize("product", ["910B2", "950PR_9589", "310P"])
@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_real_kernels_hold_no_more_than_they_reserve_and_reserve_no_more_than_there_is(product, gradient):
    profile = load_profile(product)
    layer = ConvProblem((2, 64, 14, 14), (64, 64, 3, 3), padding=1)
    mask = (gradient == "grad_input", gradient == "grad_weight", False)
    kernel = next(k for k in estimate(layer, product=product, output_mask=mask).kernels if k.macs)
    found = occupied(kernel.timeline)
    assert {"L1", "L0A", "L0B", "L0C"} <= {one.buffer for one in found}
    for one in found:
        assert 0 < one.most_bytes <= one.reserved_bytes <= profile.buffers[one.buffer].capacity_bytes
        assert sum(tile.copies * tile.size_bytes for tile in one.tiles) == one.reserved_bytes
        assert one.levels[-1][1] == 0
        assert one.levels[-1][0] <= kernel.cycles
