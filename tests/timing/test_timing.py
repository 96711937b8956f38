"""Are cycles right?"""

import gc
from dataclasses import replace
from fractions import Fraction
from math import ceil
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendsim.errors import ProgramError
from ascendsim.program.kernel import Core, CoreWork, Phase
from ascendsim.program.program import ProgramBuilder
from ascendsim.timing.kernel import ENGINES, measure_kernel
from ascendsim.timing.l2.account import account
from ascendsim.timing.times import no_queue
from tests.helpers.both_engines import time_kernel
from tests.helpers.oracles_timing import longest_path, spans_of, ticked_machine, unfolded_spans
from tests.helpers.toy_machines import (
    Fake,
    FakeProfile,
    X,
    Y,
    built,
    circular,
    kernel,
    listed,
    program,
    read,
    toy_split,
    with_instructions,
)

PLAIN = FakeProfile()
NO_MEMORY = {"memory": 0, "memory_read": 0, "memory_write": 0}


def timed(prog, profile=PLAIN, **options):
    """The timeline of one program on one core."""
    return listed(time_kernel(kernel([prog]), profile, **options).phases[0].cores[0])


# --- each gate, tight --------------------------------------------------------------------------------------


def test_the_scalar_unit_takes_its_cycles_for_each_instruction():
    core = timed(program(Fake("M"), Fake("V"), Fake("MTE1")), PLAIN.but(issue_cycles=3))
    assert core.issue == core.start == [3, 6, 9]


@pytest.mark.parametrize(("cycles", "start"), [(4, 10), (5, 10), (6, 11)])
def test_an_instruction_starts_when_issued_and_its_pipe_is_free(cycles, start):
    # Issued at 5 and 10. The first holds the pipe from 5 on: up to 9, 10 or 11.
    assert timed(program(Fake("M", cycles), Fake("M")), PLAIN.but(issue_cycles=5)).start == [5, start]


@pytest.mark.parametrize(("latency", "start"), [(1, 10), (2, 10), (3, 11)])
def test_a_reader_starts_when_the_result_is_visible_and_it_was_woken(latency, start):
    # The writer: issued 5, ends 6, visible 6 + latency; a flag of 2 later it is read; issued at 10.
    prog = program(Fake("M", 1, latency), (Fake("V"), [0]))
    assert timed(prog, PLAIN.but(issue_cycles=5, flag_cycles=2)).start == [5, start]


@pytest.mark.parametrize(("cycles", "start"), [(2, 10), (3, 10), (4, 11)])
def test_an_overwriter_starts_when_the_reader_has_left_its_pipe(cycles, start):
    # The reader: issued 5, ends 5 + cycles; its latency does not matter. Flag 2; the writer is issued at 10.
    prog = program(Fake("M", cycles, 100), (Fake("V"), [], [0]))
    assert timed(prog, PLAIN.but(issue_cycles=5, flag_cycles=2)).start == [5, start]


def test_of_several_waits_the_last_to_be_over_counts():
    # Done at 3 + 4 and 5, ended at 6; the largest is 7, and a flag of 2.
    prog = program(Fake("M", 3, 4), Fake("V", 5), Fake("MTE1", 6), (Fake("MTE2"), [0, 1], [2]))
    assert timed(prog, PLAIN.but(flag_cycles=2)).start[3] == 9


def test_latency_does_not_hold_the_pipe():
    assert timed(program(Fake("M", 3, 50), Fake("M", 3))).start == [0, 3]


@pytest.mark.parametrize(("drains", "start"), [(False, 3), (True, 53)])
def test_a_barrier_waits_until_its_pipe_has_delivered(drains, start):
    assert timed(program(Fake("M", 3, 50), Fake("M", 3, drains=drains))).start == [0, start]


def test_results_of_a_pipe_become_visible_in_order():
    # The second ends at 4 without latency, but the first is visible at 53 only.
    assert timed(program(Fake("M", 3, 50), Fake("M", 1))).done == [53, 53]


@pytest.mark.parametrize(("depth", "issue"), [(1, 11), (2, 3), (3, 3)])
def test_a_full_queue_holds_the_scalar_unit(depth, issue):
    # Three on M of 10 cycles, taken up at 1, 11 and 21. The third is issued at 3, unless the queue holds one
    # only: then there is room for it when the second is taken up.
    core = timed(program(*[Fake("M", 10)] * 3), PLAIN.but(issue_cycles=1, depths={"M": depth}))
    assert core.start == [1, 11, 21]
    assert core.issue == [1, 2, issue]


@pytest.mark.parametrize(
    ("cost", "told"),
    [
        ({"cycles": -1}, "cycles and bytes cannot be negative"),
        ({"latency": -1}, "cycles and bytes cannot be negative"),
        ({"least": -1}, "cycles and bytes cannot be negative"),
        ({"piece": -1}, "cycles and bytes cannot be negative"),
        ({"kind": "read", "bytes": -1}, "cycles and bytes cannot be negative"),
        ({"kind": "read", "bytes": 1, "peak": 0}, "moves bytes at 0 per cycle"),
    ],
    ids=str,
)
def test_a_cost_that_no_pipe_can_have_is_refused(cost, told):
    # Time that runs backwards would end in fewer cycles, not in an error.
    with pytest.raises(ProgramError, match=told):
        timed(program(Fake("MTE2", **cost)))


def test_a_full_queue_holds_back_what_comes_after_on_other_pipes():
    # Depth 1: the third M instruction waits for the second to be taken up at 101, and V comes after it.
    prog = program(Fake("M", 100), Fake("M", 100), Fake("M", 100), Fake("V"))
    core = timed(prog, PLAIN.but(issue_cycles=1, depths={"M": 1}))
    assert core.issue == [1, 2, 101, 102]
    assert core.start[3] == 102


def test_a_vector_core_has_its_own_queues_and_cap():
    class Small(FakeProfile):
        @property
        def vector_queues(self):
            return {"MTE2": 1, "V": 1}

    profile = Small(issue_cycles=1, vector_cap=5)
    prog = program(*[read(100)] * 3)
    work = CoreWork(Core("vector", 0), 0, lambda: prog)
    base = kernel([prog])
    core = listed(time_kernel(replace(base, phases=(Phase("v", (work,)),)), profile).phases[0].cores[0])
    # 100 bytes at 5 a cycle; the third is issued when the second is taken up.
    assert core.start == [1, 21, 41]
    assert core.issue == [1, 2, 21]


# --- trailing ----------------------------------------------------------------------------------------------


def trailing(cycles, **more):
    """M is busy from 10 to 30 (after another of 10) and visible at 34; FIX trails the second."""
    return program(*trailing_rows(cycles, **more))


def trailing_rows(cycles, lead=0, **more):
    return Fake("M", 10), Fake("M", 20, 4, lead=lead), (Fake("FIX", cycles, trails=True, **more), (), (), [1])


@pytest.mark.parametrize(("cycles", "end"), [(0, 37), (26, 37), (27, 37), (28, 38), (50, 60)])
def test_who_trails_begins_with_the_other_and_ends_a_piece_after_its_result(cycles, end):
    # It takes up its pipe at 0, its work begins at 10; the last piece of 3 cycles comes at 34.
    core = timed(trailing(cycles, piece=3))
    assert (core.start, core.end) == ([0, 10, 0], [10, 30, end])


@pytest.mark.parametrize(("lead", "end"), [(0, 40), (6, 46), (20, 60)])
def test_work_begins_with_the_first_piece_of_what_is_trailed(lead, end):
    # The other starts at 10; 30 cycles of work from its first piece on.
    assert timed(program(*trailing_rows(30, lead=lead))).end[2] == end


def test_who_trails_needs_no_flag():
    core = timed(trailing(50, piece=3), PLAIN.but(flag_cycles=9))
    assert (core.start[2], core.end[2]) == (0, 60)


def test_who_trails_holds_its_pipe_from_its_own_start():
    prog = program(*trailing_rows(5, piece=3), Fake("FIX", 1))
    assert (timed(prog).start[2], timed(prog).start[3]) == (0, 37)


@pytest.mark.parametrize(("size", "end"), [(100, 37), (260, 37), (280, 39)])
def test_bytes_of_who_trails_flow_from_its_begin(size, end):
    # One cycle of its own from 10 on, then 10 bytes a cycle.
    assert timed(trailing(1, piece=3, kind="write", bytes=size, peak=10, tensor=Y)).end[2] == end


def test_latency_comes_after_the_last_piece():
    assert timed(trailing(1, piece=3, latency=8)).done[2] == 34 + 3 + 8


def test_least_cycles_of_who_trails_count_from_its_begin():
    assert timed(trailing(1, piece=3, least=40)).end[2] == 10 + 40


def test_who_is_issued_late_trails_from_then_on():
    # Issued at 12, 24 and 36: M ends at 22 and 44, and is visible at 48; FIX takes 30 cycles from 36 on.
    core = timed(trailing(30, piece=3), PLAIN.but(issue_cycles=12))
    assert (core.start, core.end) == ([12, 24, 36], [22, 44, 66])


# --- transfers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "peak", "cycles"),
    [
        (PLAIN, 10, 10),  # the core's own port
        (PLAIN.but(read=(100, 5)), 10, 20),  # what one core can take of the link
        (PLAIN.but(read=(4, 50)), 10, 25),  # the link itself
        # 100 bytes at 100/7 would take 7 cycles; a rate is rounded down to units of 2^-20 byte.
        (PLAIN, Fraction(100, 7), 8),
        (PLAIN, Fraction(100, 7) + Fraction(1, 2**20), 7),
    ],
)
def test_an_unloaded_transfer_takes_head_bytes_and_latency(profile, peak, cycles):
    core = timed(program(read(100, peak, cycles=6, latency=40)), profile)
    assert core.end == [6 + cycles]
    assert core.done == [6 + cycles + 40]


@pytest.mark.parametrize(("kind", "link"), [("read", "read"), ("write", "write"), ("atomic", "write")])
def test_each_kind_of_traffic_has_its_link(kind, link):
    profile = PLAIN.but(read=(50, 50), write=(50, 50)).but(**{link: (2, 2)})
    assert timed(program(Fake("FIX", kind=kind, bytes=100, peak=10, tensor=Y)), profile).end == [50]


def test_a_transfer_without_bytes_takes_no_time_on_the_link():
    assert timed(program(read(0, cycles=3))).end == [3]


def test_links_add_their_latency():
    core = timed(
        program(read(100, latency=3), Fake("FIX", kind="write", bytes=10, peak=1)),
        PLAIN.but(latency=(7, 9, 0)),
    )
    assert core.done == [10 + 3 + 7, 10 + 9]


def test_a_miss_also_takes_main_memory_and_its_latency():
    # Cold, x of 2 MiB is larger than what is read, so all 100 bytes miss: 25 cycles at 4 a cycle.
    profile = PLAIN.but(memory=(4, 4), latency=(7, 0, 100))
    cold = timed(program(read(100)), profile, l2_start="cold")
    assert (cold.end, cold.done) == ([25], [25 + 7 + 100])
    assert timed(program(read(100)), profile).end == [10]


def test_reads_and_writes_do_not_slow_each_other():
    prog = program(read(100), Fake("FIX", kind="write", bytes=100, peak=10, tensor=Y))
    assert timed(prog, PLAIN.but(read=(10, 10), write=(10, 10))).end == [10, 10]


@pytest.mark.parametrize("cores", [1, 2, 3, 24])
@pytest.mark.parametrize("kind", ["read", "write"])
def test_streaming_cores_reach_the_peak_of_the_link(cores, kind):
    # Ten transfers of 600 bytes a core; the link does 12 a cycle, one core alone could take all of it.
    profile = PLAIN.but(read=(12, 12), write=(12, 12))
    prog = program(*[Fake("MTE2", kind=kind, bytes=600, peak=12)] * 10)
    assert time_kernel(kernel([prog] * cores), profile).cycles == cores * 10 * 600 // 12


def test_streaming_misses_reach_the_peak_of_main_memory():
    profile = PLAIN.but(read=(100, 100), memory=(12, 12))
    progs = [program(*[read(600, 100, place=(core, i)) for i in range(10)]) for core in range(24)]
    assert time_kernel(kernel(progs), profile, l2_start="cold").cycles == 24 * 10 * 600 // 12
    folded = kernel([(0, progs[0])] * 24)
    assert time_kernel(folded, profile, l2_start="cold").cycles == 24 * 10 * 600 // 12


# --- rings -------------------------------------------------------------------------------------------------


def ring(copies, tiles, load, compute):
    """Load a tile, compute on it, in a ring of slots."""
    builder = ProgramBuilder(PLAIN)
    slots = builder.slots("L1", 32, "tile", copies)
    for tile in range(tiles):
        slot = slots[tile % copies]
        builder.add(Fake("MTE2", load, writes=(slot,)))
        builder.add(Fake("M", compute, reads=(slot,)))
    return kernel([builder.build()])


@pytest.mark.parametrize(
    ("copies", "load", "compute", "cycles"),
    [
        # One slot: load, flag, compute, flag, again; no flag after the last.
        (1, 30, 50, 10 * (30 + 50 + 2 * 5) - 5),
        # Two slots, compute hides the load and both flags: the first load, a flag, compute without a gap.
        (2, 30, 50, 30 + 5 + 10 * 50),
        (2, 40, 50, 40 + 5 + 10 * 50),
        # Two slots, the load hides everything else.
        (2, 50, 30, 10 * 50 + 5 + 30),
        # Neither hides the other's flags: tile 0 ends at 50 + 5 + 48 = 103, tile 1 at 100 + 5 + 48 = 153,
        # and tile i + 2 load + compute + two flags = 108 after tile i.
        (2, 50, 48, 153 + 4 * 108),
        # A third slot hides them again.
        (3, 50, 48, 10 * 50 + 5 + 48),
    ],
)
def test_a_ring_has_its_closed_form(copies, load, compute, cycles):
    assert time_kernel(ring(copies, 10, load, compute), PLAIN.but(flag_cycles=5)).cycles == cycles


# --- against slow definitions ------------------------------------------------------------------------------

PIPES = ["M", "MTE1", "MTE2", "MTE3", "FIX"]
small = st.integers(0, 12)


@st.composite
def instructions(draw, writers=("FIX", "MTE3")):
    pipe = draw(st.sampled_from(PIPES))
    kinds = {"MTE2": ["read", ""], "FIX": ["write", "atomic", ""], "MTE3": ["write", ""]}.get(pipe, [""])
    if pipe not in ("MTE2", *writers):
        kinds = [""]
    return Fake(
        pipe,
        draw(small),
        draw(small),
        draw(st.sampled_from(kinds)),
        draw(st.integers(0, 90)),
        draw(st.sampled_from([3, 10, Fraction(7, 2), 20])),
        drains=draw(st.sampled_from([False, False, False, True])),
        least=draw(st.sampled_from([0, 0, 0, 1, 7, 30])),
        piece=draw(st.sampled_from([0, 1, 5])),
        lead=draw(st.sampled_from([0, 2, 9])),
    )


@st.composite
def programs(draw, most=25, writers=("FIX", "MTE3")):
    """Any instructions with any waits on earlier ones of other pipes, some of which they trail.

    Nothing trails what moves bytes: the compiled engine knows when that began once it has landed, too late.
    Nor does what moves bytes trail what itself trails others, for the same reason. No kernel has either: of
    all instructions Fixpipe alone trails others, and these are products.
    """
    rows = []
    for made in draw(st.lists(instructions(writers), min_size=1, max_size=most)):
        others = [i for i, row in enumerate(rows) if row[0].pipe != made.pipe]
        waits = st.lists(st.sampled_from(others), max_size=2, unique=True) if others else st.just([])
        still = [i for i in others if not rows[i][0].kind and not (made.kind and rows[i][3])]
        trailed = st.lists(st.sampled_from(still), max_size=2, unique=True) if still else st.just([])
        rows.append((made, draw(waits), draw(waits), draw(trailed) if draw(st.booleans()) else []))
    return program(*rows)


profiles = st.builds(
    FakeProfile,
    issue_cycles=st.integers(0, 3),
    flag_cycles=st.integers(0, 4),
    depth=st.integers(1, 5),
    read=st.sampled_from([(12, 9), (Fraction(25, 2), 40), (100, 6)]),
    write=st.sampled_from([(8, 8), (Fraction(31, 3), 40), (100, 6)]),
    latency=st.tuples(small, small, small),
)


@settings(max_examples=150, deadline=None)
@given(programs(writers=["FIX"]), profiles)
def test_a_core_alone_takes_the_longest_path(prog, profile):
    assert spans_of(timed(prog, profile)) == longest_path(prog, profile)


@settings(max_examples=60, deadline=None)
@given(programs(writers=["FIX"]), profiles, st.integers(1, 30))
def test_equal_cores_take_the_longest_path_at_their_share_of_the_links(prog, profile, cores):
    timeline = time_kernel(kernel([(0, prog)] * cores), profile)
    assert spans_of(timeline.phases[0].cores[0]) == longest_path(prog, profile, cores)


@settings(max_examples=150, deadline=None)
@given(st.lists(programs(most=12), min_size=1, max_size=4), profiles)
def test_cores_that_share_links_behave_like_a_machine_that_is_ticked(progs, profile):
    timeline = time_kernel(kernel(progs), profile, folded=False)
    assert [spans_of(core) for core in timeline.phases[0].cores] == ticked_machine(progs, profile)


@st.composite
def placed(draw, prog):
    """The same program, its transfers in one of a few places."""
    places = st.sampled_from([0, 1, 2, None])
    made = tuple(replace(i, place=draw(places) if i.kind else None) for i in prog.instructions)
    return with_instructions(prog, made)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(programs(most=12).flatmap(placed), min_size=1, max_size=3),
    profiles,
    st.sampled_from([(5, 4), (Fraction(31, 3), 2)]),
    st.integers(1, 300),
    st.sampled_from(["warm", "cold", "handed"]),
)
def test_misses_and_write_back_behave_like_a_machine_that_is_ticked(progs, profile, memory, l2_bytes, start):
    profile = profile.but(memory=memory, l2_bytes=l2_bytes)
    made = kernel(progs)
    outcomes = account(made, profile, start).outcomes[0]
    timeline = time_kernel(made, profile, folded=False, l2_start=start)
    assert [spans_of(core) for core in timeline.phases[0].cores] == ticked_machine(progs, profile, outcomes)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(programs(most=12), min_size=1, max_size=3),
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7), min_size=1, max_size=2),
    profiles,
    st.sampled_from(["warm", "cold", "handed"]),
)
def test_folded_equals_unfolded(progs, phases, profile, l2_start):
    # Each phase deals copies of up to three programs to its cores; the signature is the program's number.
    profile = profile.but(barrier_cycles=3, memory=(5, 4), l2_bytes=1 << 20)
    made = kernel(*[[(pick % len(progs), progs[pick % len(progs)]) for pick in phase] for phase in phases])
    folded = time_kernel(made, profile, l2_start=l2_start)
    unfolded = time_kernel(made, profile, folded=False, l2_start=l2_start)
    assert unfolded_spans(folded) == unfolded_spans(unfolded)
    assert (folded.cycles, folded.bytes) == (unfolded.cycles, unfolded.bytes)
    assert all(len(core.cores) == 1 for phase in unfolded.phases for core in phase.cores)


@settings(max_examples=50, deadline=None)
@given(st.lists(programs(most=10), min_size=1, max_size=4), profiles)
def test_the_same_kernel_takes_the_same_cycles_again_in_any_order_of_cores(progs, profile):
    first, again = (time_kernel(kernel(progs), profile, folded=False) for _ in range(2))
    assert first == again
    turned = time_kernel(kernel(progs[::-1]), profile, folded=False)
    assert [spans_of(c) for c in turned.phases[0].cores][::-1] == [spans_of(c) for c in first.phases[0].cores]


@settings(max_examples=50, deadline=None)
@given(st.lists(programs(most=12), min_size=1, max_size=4), profiles)
def test_a_kernel_takes_at_least_its_work_and_its_bytes(progs, profile):
    timeline = time_kernel(kernel(progs), profile)
    for prog in progs:
        work = {pipe: sum(i.cycles for i in prog.instructions if i.pipe == pipe) for pipe in PIPES}
        assert timeline.cycles >= max(work.values())
    for link in ("l2_read", "l2_write"):
        assert timeline.cycles >= ceil(
            timeline.bytes[link] / Fraction(profile.links[link].total_bytes_per_cycle)
        )


# --- links that are shared ---------------------------------------------------------------------------------


def test_who_has_nothing_left_to_move_leaves_its_part():
    # 10 bytes a cycle for two: core 0 is through at 10, when core 1 has 100 of its 150 bytes left: 10 more.
    made = kernel([program(read(50)), program(read(150))])
    timeline = time_kernel(made, PLAIN.but(read=(10, 10)))
    assert [list(core.end) for core in timeline.phases[0].cores] == [[10], [20]]


def test_who_computes_leaves_the_link_to_others():
    # Both have 5 a cycle until core 0 has its 50 bytes at 10 and computes until 60. Core 1 has 10 a cycle for
    # the 350 bytes it has left, until 45; so core 0 reads its next 50 alone, until 65.
    made = kernel([program(read(50), (Fake("M", 50), [0]), (read(50), [1])), program(read(400))])
    timeline = time_kernel(made, PLAIN.but(read=(10, 10)))
    assert [core.end[-1] for core in timeline.phases[0].cores] == [65, 45]


def test_two_pipes_of_a_core_have_equal_parts_of_what_the_core_has():
    # The core can write 10 a cycle; while both pipes move, each has 5.
    prog = program(Fake("FIX", kind="write", bytes=50, peak=9), Fake("MTE3", kind="write", bytes=80, peak=9))
    # At 10 FIX is through; MTE3 has 30 left, at its own peak of 9 now.
    assert timed(prog, PLAIN.but(write=(100, 10))).end == [10, 14]


# --- phases and housekeeping -------------------------------------------------------------------------------


def test_a_phase_begins_when_all_cores_have_delivered_and_met():
    made = kernel([program(Fake("M", 5, 30)), program(Fake("M", 20))], [program(Fake("V", 7))])
    timeline = time_kernel(made, PLAIN.but(barrier_cycles=11))
    # The first core's result is visible at 35, after the second's at 20. No barrier after the last phase.
    assert [(phase.begin, phase.end) for phase in timeline.phases] == [(0, 35), (46, 53)]
    assert timeline.cycles == 53


@settings(max_examples=30, deadline=None)
@given(st.lists(programs(most=8), min_size=1, max_size=3), profiles)
def test_a_phase_takes_the_same_cycles_whenever_it_begins(progs, profile):
    first, second = time_kernel(kernel(progs, progs), profile.but(barrier_cycles=7)).phases
    for early, late in zip(first.cores, second.cores, strict=True):
        assert [[time + second.begin for time in times] for times in spans_of(early)] == list(spans_of(late))


def test_an_empty_program_takes_no_time():
    timeline = time_kernel(kernel([program()], [program(Fake("M", 3))]), PLAIN)
    assert timeline.cycles == 3


def test_waits_in_a_circle_are_refused():
    with pytest.raises(
        ProgramError, match=r"instruction 0 of core .* never starts: its waits go in a circle"
    ):
        timed(circular((Fake("M"), [1]), (Fake("V"), [0])))


def test_an_unknown_pipe_is_named():
    with pytest.raises(ProgramError, match="runs on pipe X, but a cube core of fake has queues for M, MTE1"):
        timed(program(Fake("X")))


@pytest.mark.parametrize("wrong", [Fake("M", -1), Fake("M", 1, -1), read(-1), read(10, 0)])
def test_an_impossible_cost_is_named(wrong):
    with pytest.raises(ProgramError, match="Fake"):
        timed(program(wrong))


def test_equal_instructions_are_asked_once_for_their_cost():
    asked = []

    class Counted(Fake):
        def cost(self, profile):
            asked.append(self.shape)
            return super().cost(profile)

    made = kernel([program(Counted("M", 3), Counted("M", 3), Counted("M", 4))] * 2)
    for engine in ENGINES:
        asked.clear()
        measure_kernel(made, PLAIN, engine=engine)
        assert len(asked) == 2


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(enabled):
    before = gc.isenabled()
    try:
        gc.enable() if enabled else gc.disable()
        timed(built([Fake("M", 3)]))
        assert gc.isenabled() is enabled
        with pytest.raises(ProgramError):
            timed(program(Fake("X")))
        assert gc.isenabled() is enabled
    finally:
        gc.enable() if before else gc.disable()


def test_every_byte_is_counted_for_all_cores():
    prog = program(read(100, tensor=X), Fake("FIX", kind="write", bytes=30, peak=10, tensor=Y))
    assert time_kernel(kernel([(0, prog)] * 5), PLAIN).bytes == {"l2_read": 500, "l2_write": 150, **NO_MEMORY}


@pytest.mark.parametrize(
    ("kind", "pipe", "says"),
    [
        ("vector", "M", "a vector core of toy_split has queues for V, MTE2, MTE3"),
        ("cube", "V", "a cube core of toy_split has queues for "),
        # A pipe of a vector core beside the cube core.
        ("cube", "AIV0.M", "a vector core of toy_split has queues for V, MTE2, MTE3"),
        ("vector", "AIV0.V", "its program is that of a vector core"),
    ],
)
def test_a_pipe_that_a_core_lacks_is_told_with_those_that_it_has(kind, pipe, says):
    program = SimpleNamespace(pipes=[pipe], instructions=[None])
    assert says in str(no_queue(program, 0, kind, toy_split()))
