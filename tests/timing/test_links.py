"""Do flows share links as the rule says, and does a faster figure make nothing later?"""

from dataclasses import replace
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simpy import Environment

from ascendsim.program.instruction import Traffic
from ascendsim.timing.l2.phase import HIT, L2Outcome
from ascendsim.timing.links import (
    Flight,
    Flow,
    Link,
    RunningFlow,
    Sharer,
    Spreading,
    Transfers,
    fixed_rate,
    fixed_size,
    water_level,
)
from ascendsim.timing.simpy_engine import appointment
from tests.helpers.both_engines import time_kernel
from tests.helpers.oracles_timing import down, filled, rates_of, spans_of, up
from tests.helpers.toy_machines import Fake, FakeProfile, X, kernel, program, with_instructions
from tests.timing.test_timing import PLAIN, profiles, programs, read, small

# --- Do flows share links as the rule says, in integers and to the cycle? ------------------------------

HUGE = 10**6
UNIT = 2**20  # units in a byte
rates = st.fractions(min_value=Fraction(1, 10), max_value=20, max_denominator=10)
sizes = st.lists(st.integers(1, 200), min_size=1, max_size=6)


def ends_of(total, streams, cap=HUGE, peak=HUGE, begin=0):
    """When each transfer ends, core by core; a stream is (first cycle, sizes[, weight]), back to back."""
    env = Environment(begin)
    profile = FakeProfile(read=(total, cap))
    cores = [Sharer("cube", (*stream, 1)[2]) for stream in streams]
    memory = Transfers(profile, cores, lambda cycle, call: appointment(env, cycle, call))
    ends = [[] for _ in streams]

    def send(core, at):
        size = streams[core][1][len(ends[core])]
        transfer = memory.transfer("cube", Traffic(X, "read", size, peak))
        memory.send(at, cores[core], "MTE2", transfer, lambda: arrived(core))

    def arrived(core):
        ends[core].append(env.now - begin)
        if len(ends[core]) < len(streams[core][1]):
            send(core, env.now)

    for core, stream in enumerate(streams):
        send(core, begin + stream[0])
    env.run()
    return ends


def ticked_ends(total, streams, cap, peak):
    """The same, cycle by cycle."""
    left = [[up(size) for size in stream[1]] for stream in streams]
    ends = [[] for _ in streams]
    now = 0
    while any(left):
        active = [core for core, mine in enumerate(left) if mine and now >= streams[core][0]]
        flows = [(core, (*streams[core], 1)[2], "MTE2", down(cap), down(peak), True) for core in active]
        now += 1
        for core, rate in zip(active, rates_of(flows, down(total)), strict=True):
            left[core][0] -= rate
            if left[core][0] <= 0:
                ends[core].append(now)
                left[core].pop(0)
    return ends


def test_sizes_are_rounded_up_and_rates_down_to_units():
    assert (fixed_size(3), fixed_rate(3)) == (3 * UNIT, 3 * UNIT)
    # A third of 2^20 is 349525.33.
    assert (fixed_size(Fraction(1, 3)), fixed_rate(Fraction(1, 3))) == (349526, 349525)
    assert fixed_rate(Fraction(1, 10**9)) == 1


@pytest.mark.parametrize(
    ("size", "cap", "cycles"),
    [(100, 10, 10), (101, 10, 11), (1, 10, 1), (100, 30, 5), (101, 30, 6), (7, Fraction(7, 2), 2)],
)
def test_a_lone_transfer_takes_its_bytes_over_the_smaller_rate(size, cap, cycles):
    # The link does 20 bytes a cycle: 100 bytes take 10 cycles at a cap of 10, and 5 where the cap is 30.
    assert ends_of(20, [(0, [size])], cap) == ends_of(20, [(0, [size])], peak=cap) == [[cycles]]


def test_two_cores_share_while_both_move():
    # The first has 20 a cycle up to 3: 60 bytes. Then 10 each: it has its other 40 at 7, when the second has
    # 40; its other 60 take 3 at 20.
    assert ends_of(20, [(0, [100]), (3, [100])]) == [[7], [10]]


def test_a_transfer_of_a_later_cycle_takes_nothing_before():
    assert ends_of(20, [(0, [100]), (5, [100])]) == [[5], [10]]
    assert ends_of(20, [(0, [100]), (4, [100])]) == [[6], [10]]


def test_who_has_moved_everything_leaves_its_part():
    # 10 a cycle each until 5, when the first has its 50 bytes; the second then has 50 left at 20 a cycle.
    assert ends_of(20, [(0, [50]), (0, [100])]) == [[5], [8]]


def test_a_part_that_lasts_one_cycle_counts():
    # 12 for three: 4 each. The first is through at 10; the second has 4 left and 6 a cycle, so it is at 11;
    # the third then has 64 - 40 - 6 = 18 left, which takes 2 more at 12.
    assert ends_of(12, [(0, [40]), (0, [44]), (0, [64])]) == [[10], [11], [13]]


def test_what_a_peak_leaves_is_given_to_others():
    # 20 a cycle. A peak of 4 takes less than half of it; the other core has 16 and its 80 bytes at 5.
    env, profile = Environment(), FakeProfile(read=(20, 20))
    cores = [Sharer("cube", 1) for _ in range(2)]
    memory = Transfers(profile, cores, lambda cycle, call: appointment(env, cycle, call))
    ends = []
    for core, peak in zip(cores, (4, 20), strict=True):
        transfer = memory.transfer("cube", Traffic(X, "read", 80, peak))
        memory.send(0, core, "MTE2", transfer, lambda: ends.append(env.now))
    env.run()
    assert ends == [5, 20]


def test_a_transfer_leaves_on_a_whole_cycle():
    # Three share 12 a cycle, so 4 each: 12 bytes take 3 cycles, 13 take 3.25, so 4.
    assert ends_of(12, [(0, [12])] * 3) == [[3]] * 3
    assert ends_of(12, [(0, [13])] * 3) == [[4]] * 3
    # 10/3 a cycle is rounded down, so 10 bytes are not quite there after 3.
    assert ends_of(10, [(0, [10])] * 3) == [[4]] * 3


@settings(max_examples=100, deadline=None)
@given(rates, st.lists(st.tuples(st.integers(0, 30), sizes), min_size=1, max_size=5), rates, rates)
def test_shares_are_those_of_a_link_served_cycle_by_cycle(total, streams, cap, peak):
    assert ends_of(total, streams, cap, peak) == ticked_ends(total, streams, cap, peak)


@settings(max_examples=100, deadline=None)
@given(
    rates, st.lists(st.tuples(st.integers(0, 30), sizes, st.integers(1, 5)), min_size=1, max_size=4), rates
)
def test_a_weight_is_that_many_equal_cores(total, streams, cap):
    copies = [number for number, (_, _, weight) in enumerate(streams) for _ in range(weight)]
    single = ends_of(total, [streams[number][:2] for number in copies], cap)
    folded = ends_of(total, streams, cap)
    assert single == [folded[number] for number in copies]


@settings(max_examples=50, deadline=None)
@given(rates, st.lists(st.tuples(st.integers(0, 30), sizes), min_size=2, max_size=5), st.randoms())
def test_the_order_of_cores_does_not_matter(total, streams, random):
    order = random.sample(range(len(streams)), len(streams))
    shuffled = ends_of(total, [streams[core] for core in order])
    assert shuffled == [ends_of(total, streams)[core] for core in order]


@settings(max_examples=50, deadline=None)
@given(rates, st.lists(st.tuples(st.integers(0, 30), sizes), min_size=1, max_size=4), st.integers(1, 10**9))
def test_the_time_of_day_does_not_matter(total, streams, begin):
    assert ends_of(total, streams, begin=begin) == ends_of(total, streams)


@pytest.mark.parametrize("cores", [1, 2, 3, 6, 24, 48])
def test_streaming_cores_reach_the_peak_of_the_link(cores):
    # Each sends 10 x 1200 bytes with a cap that alone would do: 12,000 x cores bytes at 24 a cycle.
    ends = ends_of(24, [(0, [1200] * 10)] * cores, cap=100)
    assert {stream[-1] for stream in ends} == {500 * cores}


# --- the rates of one link ---------------------------------------------------------------------------------


def shared(total, *flows):
    """Rates of flows (core, pipe, cap, peak, crosses) on one link, all in units a cycle."""
    link, cores = Link(total), {}
    streams = []
    for name, pipe, cap, peak, crosses in flows:
        core = cores.setdefault(name, Sharer("cube", 1))
        flight = Flight(core, pipe, 1, lambda: None)
        streams.append(RunningFlow(Flow("x", 10**9, cap, peak, crosses), flight))
        link.join(streams[-1])
    assert len(link.share(0)) == len(streams)
    return [stream.rate for stream in streams]


def test_pipes_of_a_core_share_its_port_while_both_move():
    # A cap of 30 is 15 for each of two pipes, and a peak of 8 leaves 7 of its half unused.
    assert shared(1000, ("a", "FIX", 30, None, True), ("a", "MTE3", 30, 8, True)) == [15, 8]
    # Two flows of one pipe count once; those that do not cross count like those that do.
    assert shared(1000, ("a", "MTE2", 30, None, True), ("a", "MTE2", 30, None, False)) == [30, 30]
    assert shared(1000, ("a", "FIX", 31, None, True), ("a", "MTE2", 31, None, False)) == [15, 15]


def test_the_level_is_what_is_left_for_each_that_wants_more():
    # 100 for demands of 10, 30, 60 and 60: 25 each, so the first leaves; 90 // 3 = 30, so the second leaves;
    # 60 // 2 = 30 for the others.
    flows = [("abcd"[core], "MTE2", cap, None, True) for core, cap in enumerate((10, 30, 60, 60))]
    assert shared(100, *flows) == [10, 30, 30, 30]
    assert water_level(100, [(1, 10), (1, 30), (2, 60)]) == 30
    # 101: 91 // 3 = 30, 61 // 2 = 30. One unit is lost.
    assert water_level(101, [(1, 10), (1, 30), (1, 60), (1, 60)]) == 30


def test_a_core_shares_its_part_among_its_own_flows():
    # Three pipes of core a with caps of 40, 90 and 90: limits of 13, 30 and 30. Of 100 each core has 50.
    made = shared(
        100,
        ("a", "FIX", 40, None, True),
        ("a", "MTE3", 90, None, True),
        ("a", "MTE2", 90, None, True),
        ("b", "MTE2", 90, None, True),
    )
    # 50 for 13, 30, 30: 16 each, so the first leaves; 37 // 2 = 18 for the other two.
    assert made == [13, 18, 18, 50]


def test_a_flow_that_does_not_cross_takes_nothing_of_the_link():
    # Its 90 do not count: 40 and 40 fit into 100.
    flows = [("a", "MTE2", 90, None, False), ("a", "MTE2", 40, None, True), ("b", "MTE2", 40, None, True)]
    assert shared(100, *flows) == [90, 40, 40]
    # Where the link is short it goes on at its limit.
    assert shared(60, *flows) == [90, 30, 30]


def test_no_rate_is_zero():
    assert shared(1, *[(name, "MTE2", 5, None, True) for name in "abc"]) == [1, 1, 1]


crossing = st.tuples(
    st.integers(0, 4),
    st.sampled_from(["MTE2", "FIX", "MTE3"]),
    st.integers(1, 60),
    st.sampled_from([None, 1, 7, 40]),
    st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 200), st.lists(crossing, min_size=1, max_size=12))
def test_rates_are_those_of_filling_the_smallest_demand_first(total, flows):
    slow = rates_of([(core, 1, pipe, cap, peak, crosses) for core, pipe, cap, peak, crosses in flows], total)
    assert shared(total, *flows) == slow


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 5)), min_size=1, max_size=6), st.integers(1, 400)
)
def test_a_link_that_is_short_is_used_up_but_for_floors(demands, total):
    parts = filled([(demand, weight, name) for name, (demand, weight) in enumerate(demands)], total)
    if sum(demand * weight for demand, weight in demands) > total:
        level = water_level(total, [(weight, demand) for demand, weight in demands])
        assert {name: min(demand, level) for name, (demand, _) in enumerate(demands)} == parts
        used = sum(min(demand, level) * weight for demand, weight in demands)
        assert total - sum(weight for _, weight in demands) < used <= total


# --- what a transfer takes of which link -------------------------------------------------------------------


def flows(kind, size, peak, outcome, **figures):
    profile = FakeProfile(read=(100, 50), write=(100, 40), memory=(90, 8), latency=(7, 9, 100), **figures)
    transfer = Spreading(profile, False).transfer("cube", Traffic(X, kind, size, peak), outcome)
    return [in_bytes(flow) for flow in transfer.flows], transfer.latency_cycles


def in_bytes(flow):
    peak = None if flow.peak is None else Fraction(flow.peak, UNIT)
    return flow.link, Fraction(flow.size, UNIT), peak, Fraction(flow.cap, UNIT), flow.crosses


def test_a_hit_stays_between_core_and_l2():
    assert flows("read", 64, 20, HIT) == ([("l2_read", 64, 20, 50, True)], 7)
    assert flows("write", 64, 20, HIT) == ([("l2_write", 64, 20, 40, True)], 9)
    assert flows("atomic", 64, 20, HIT) == ([("l2_write", 64, 20, 40, True)], 9)


def test_missing_bytes_also_cross_the_link_to_memory():
    made, latency = flows("read", 64, 20, L2Outcome(Fraction(1, 4), 0, 1))
    assert made == [
        ("l2_read", 64, 20, 50, True),
        ("memory", 16, None, 8, False),
        ("memory", 16, None, 8, True),
    ]
    assert latency == 7 + 100


def test_cores_that_wait_for_the_same_bytes_fetch_them_once_each_at_its_own_rate():
    # 4 cores wait for all 64 bytes, each at its own 8 a cycle; a quarter of them is each core's on the link.
    made, _ = flows("read", 64, 20, L2Outcome(Fraction(1, 4), 0, 4))
    assert made[1] == ("memory", 64, None, 8, False)
    assert made[2] == ("memory", 16, None, 8, True)


def test_requests_that_take_up_more_than_their_bytes_do_so_at_the_core():
    # 64 bytes in requests that take up 100 bytes of L2's rate, half missing: 50 at the core, 32 on the link.
    # The core's 32 a cycle are of bytes, so 50 as L2 is occupied.
    profile = FakeProfile(read=(100, 32), memory=(90, 8))
    traffic = Traffic(X, "read", 64, 20, 100)
    made = Spreading(profile, False).transfer("cube", traffic, L2Outcome(Fraction(1, 2)))
    assert [in_bytes(flow)[1] for flow in made.flows] == [100, 50, 32]
    assert in_bytes(made.flows[0])[2:4] == (20, 50)


def test_dirty_bytes_go_out_over_the_same_link():
    made, latency = flows("write", 64, 20, L2Outcome(0, Fraction(1, 2), 1))
    assert made == [
        ("l2_write", 64, 20, 40, True),
        ("memory", 32, None, 8, False),
        ("memory", 32, None, 8, True),
    ]
    assert latency == 9
    made, _ = flows("read", 64, 20, L2Outcome(1, Fraction(1, 2), 1))
    assert made[1:] == [
        ("memory", 64, None, 8, False),
        ("memory", 32, None, 8, False),
        ("memory", 96, None, 8, True),
    ]


def cycles_of(kind, peak, together, cores=1, **figures):
    """How long 1200 bytes of each of so many cores take."""
    env, ends = Environment(), []
    sharers = [Sharer("cube", 1) for _ in range(cores)]
    memory = Transfers(FakeProfile(**figures), sharers, lambda cycle, call: appointment(env, cycle, call))
    for core in sharers:
        transfer = memory.transfer("cube", Traffic(X, kind, 1200, peak), L2Outcome(together=together))
        memory.send(0, core, "MTE2", transfer, lambda: ends.append(env.now))
    env.run()
    (end,) = set(ends)
    return end


def test_cores_that_read_the_same_lines_reach_less_of_the_link_and_of_their_own_rate():
    # Half of the bytes at full rate and half at a quarter: 0.4 of the rates. Of the core's 50 bytes a cycle
    # that is 20, of the link's 100 for four cores 10 each. A path of 15 bytes a cycle is not slower for it.
    figures = {"read": (100, 50), "write": (100, 50), "shared_efficiency": 0.25}
    assert cycles_of("read", 99, 0, **figures) == 1200 // 50
    assert cycles_of("read", 99, Fraction(1, 2), **figures) == 1200 // 20
    assert cycles_of("read", 15, Fraction(1, 2), **figures) == 1200 // 15
    assert cycles_of("read", 99, Fraction(1, 2), 4, **figures) == 1200 // 10
    # All of them together, at a quarter: 12.5.
    assert cycles_of("read", 99, 1, **figures) == 1200 * 2 // 25


def test_one_total_serves_both_kinds_of_cores():
    # Cube cores reach 40 bytes a cycle together and vector cores 60: a vector core's bytes count two thirds.
    profile = FakeProfile(read=(40, 30), vector_total=60, vector_cap=45)
    spreading = Spreading(profile, False)
    (cube,), (vector,) = (
        spreading.transfer(kind, Traffic(X, "read", 90, 33)).flows for kind in ("cube", "vector")
    )
    assert in_bytes(cube) == ("l2_read", 90, 33, 30, True)
    assert in_bytes(vector) == ("l2_read", 60, 22, 30, True)


@pytest.mark.parametrize(("cores", "rate"), [(1, 20), (2, 20), (3, 15), (4, 15)])
def test_vector_cores_share_the_port_of_their_pair(cores, rate):
    # One alone can read 20 bytes a cycle, a pair 30; more than two are taken to work in pairs.
    env, ends = Environment(), []
    sharers = [Sharer("vector", 1) for _ in range(cores)]
    profile = FakeProfile(vector_cap=20, vector_pair=30)
    memory = Transfers(profile, sharers, lambda cycle, call: appointment(env, cycle, call))
    transfer = memory.transfer("vector", Traffic(X, "read", 300, 99))
    for core in sharers:
        memory.send(0, core, "MTE2", transfer, lambda: ends.append(env.now))
    env.run()
    assert ends == [ceil(300 / rate)] * cores


def test_a_flow_that_is_through_makes_room_before_its_transfer_has_ended():
    # Main memory does 20 a cycle, one core 10. The first core waits for 100 bytes at its 10, of which 40
    # cross for it: at 10 a cycle beside the second core's 10, so they are through at 4. The second's 100
    # bytes cross at 10 all along: 10 cycles. A third begins at 4 with a cap of 10 and needs nobody to yield.
    env, ends = Environment(), {}
    cores = {name: Sharer("cube", 1) for name in "abc"}
    profile = FakeProfile(memory=(20, 10))
    memory = Transfers(profile, list(cores.values()), lambda cycle, call: appointment(env, cycle, call))
    shared_read = memory.transfer(
        "cube", Traffic(X, "read", 100, HUGE), L2Outcome(Fraction(2, 5), 0, Fraction(5, 2))
    )
    own = memory.transfer("cube", Traffic(X, "read", 100, HUGE), L2Outcome(1))
    for name, at, transfer in (("a", 0, shared_read), ("b", 0, own), ("c", 4, own)):
        memory.send(at, cores[name], "MTE2", transfer, lambda name=name: ends.update({name: env.now}))
    env.run()
    assert ends == {"a": 10, "b": 10, "c": 14}


# -------------------------------------------------------------------------------------------------------
# Does a faster figure, or a faster instruction, make anything later? Where nothing is shared, never.
# -------------------------------------------------------------------------------------------------------

FASTER = [
    {"issue_cycles": 0},
    {"flag_cycles": 0},
    {"start_cycles": 0},
    {"barrier_cycles": 0},
    {"depth": 8},
    {"read": (200, 40)},
    {"write": (200, 40)},
    {"memory": (9, 7)},
    {"latency": (0, 0, 0)},
]


def all_times(timeline):
    """Every time of every instruction, in one list."""
    return [t for phase in timeline.phases for core in phase.cores for times in spans_of(core) for t in times]


# With them nothing is shared: no link is asked for more than its total by four cores, and everything is warm.
UNCONTENDED = {"read": (200, 9), "write": (200, 9)}
# Of a core one pipe reads and one writes.
apart = st.lists(programs(most=12, writers=["FIX"]), min_size=1, max_size=4)


def assert_nothing_later(made, profile, figures):
    slow, fast = (time_kernel(made, p) for p in (profile, profile.but(**figures)))
    assert all(early <= late for early, late in zip(all_times(fast), all_times(slow), strict=True))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(apart, profiles, st.sampled_from(FASTER))
def test_a_faster_figure_never_makes_anything_later_where_nothing_is_shared(progs, profile, figures):
    profile = profile.but(start_cycles=5, barrier_cycles=3, **UNCONTENDED)
    made = kernel(progs, progs[::-1])
    assert_nothing_later(made, profile, figures)


@settings(max_examples=200, deadline=None)
@given(programs(writers=["FIX"]), profiles, st.sampled_from(FASTER), st.integers(1, 30))
def test_a_faster_figure_never_makes_anything_later_on_equal_cores(prog, profile, figures, cores):
    made = kernel([(0, prog)] * cores)
    assert_nothing_later(made, profile, figures)


def test_a_faster_core_can_come_in_the_way_of_another():
    # Core 0 reads 100 bytes from cycle 5 on and then computes for 50; alone on 10 bytes a cycle it is done at
    # 65. Core 1 computes, then reads 100 bytes. If it comes at 20 core 0 does not notice; if it comes at 5
    # both have 5 a cycle, and core 0 has its bytes at 25.
    long = program(Fake("V", 5), (read(100), [0]), (Fake("M", 50), [1]))
    cycles = {
        compute: time_kernel(
            kernel([long, program(Fake("V", compute), (read(100), [0]))]), PLAIN.but(read=(10, 10))
        ).cycles
        for compute in (30, 20, 5)
    }
    assert cycles == {30: 65, 20: 65, 5: 75}


@st.composite
def slowed(draw, prog):
    """The same program, some of whose instructions cost more."""
    rows = [
        replace(
            made,
            cycles=made.cycles + draw(small),
            latency=made.latency + draw(small),
            least=made.least + draw(small),
            piece=made.piece + draw(small),
            lead=made.lead + draw(small),
            peak=min(made.peak, draw(st.sampled_from([3, 20]))),
        )
        for made in prog.instructions
    ]
    return with_instructions(prog, rows)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(apart, profiles, st.data())
def test_a_faster_instruction_never_makes_anything_later_where_nothing_is_shared(progs, profile, data):
    profile = profile.but(**UNCONTENDED)
    slow, fast = (
        time_kernel(kernel(kinds), profile) for kinds in ([data.draw(slowed(prog)) for prog in progs], progs)
    )
    assert all(early <= late for early, late in zip(all_times(fast), all_times(slow), strict=True))
