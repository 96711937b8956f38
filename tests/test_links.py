"""Do links share exactly, among those who still have bytes to move?"""

from fractions import Fraction

import pytest
from fake_machine import FakeProfile, X
from hypothesis import given, settings
from hypothesis import strategies as st
from simpy import Environment

from ascendsim.program.instruction import Traffic
from ascendsim.timing.l2.accesses import HIT, Outcome
from ascendsim.timing.links import Flow, Link, Port
from ascendsim.timing.simpy_engine import appointment
from ascendsim.timing.transfers import Transfers

HUGE = 10**6
rates = st.fractions(min_value=Fraction(1, 10), max_value=20, max_denominator=10)
sizes = st.lists(st.integers(1, 200), min_size=1, max_size=6)


def ends_of(total, streams, cap=HUGE, peak=HUGE, begin=0):
    """When each transfer ends, core by core; a stream is (first cycle, sizes[, weight]), back to back."""
    env = Environment(begin)
    profile = FakeProfile(read=(total, cap))
    ports = [Port("cube", (*stream, 1)[2], {("MTE2", "l2_read"): len(stream[1])}) for stream in streams]
    memory = Transfers(profile, ports, lambda cycle, call: appointment(env, cycle, call))
    ends = [[] for _ in streams]

    def send(core, at):
        size = streams[core][1][len(ends[core])]
        transfer = memory.transfer("cube", Traffic(X, "read", size, peak))
        memory.send(at, ports[core], "MTE2", transfer, lambda: arrived(core))

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
    left = [[Fraction(size) for size in stream[1]] for stream in streams]
    ends = [[] for _ in streams]
    now = 0
    while any(left):
        rate = min(Fraction(cap), Fraction(peak), Fraction(total) / sum(map(bool, left)))
        now += 1
        for core, mine in enumerate(left):
            if mine and now > streams[core][0]:
                mine[0] -= rate
                if mine[0] <= 0:
                    ends[core].append(now)
                    mine.pop(0)
    return ends


@pytest.mark.parametrize(
    ("size", "cap", "cycles"),
    [(100, 10, 10), (101, 10, 11), (1, 10, 1), (100, 30, 5), (101, 30, 6), (7, Fraction(7, 3), 3)],
)
def test_a_lone_transfer_takes_its_bytes_over_the_smaller_rate(size, cap, cycles):
    # The link does 20 bytes a cycle: 100 bytes take 10 cycles at a cap of 10, and 5 where the cap is 30.
    assert ends_of(20, [(0, [size])], cap) == ends_of(20, [(0, [size])], peak=cap) == [[cycles]]


def test_two_cores_have_equal_parts():
    # 20 a cycle for two: 10 each. The second begins at 7, but its part was never the first's.
    assert ends_of(20, [(0, [100]), (7, [100])]) == [[10], [7 + 7]]


def test_who_has_moved_everything_leaves_its_part():
    # 10 a cycle each until 5, when the first has its 50 bytes; the second then has 50 left at 20 a cycle.
    assert ends_of(20, [(0, [50]), (0, [100])]) == [[5], [8]]


def test_a_part_that_lasts_one_cycle_counts():
    # 12 for three: 4 each. The first is through at 10; the second has 4 left and 6 a cycle, so it is at 11;
    # the third then has 64 - 40 - 6 = 18 left, which takes 2 more at 12.
    assert ends_of(12, [(0, [40]), (0, [44]), (0, [64])]) == [[10], [11], [13]]


def test_who_has_more_to_move_keeps_its_part_between_transfers():
    # The first has two transfers, so the second has 10 a cycle until 10: 100 bytes; then 20 for the last 40.
    assert ends_of(20, [(0, [50, 50]), (0, [140])]) == [[5, 10], [12]]


def test_what_a_cap_leaves_is_not_given_away():
    # A peak of 4 takes less than the core's part; the other core's part stays 10.
    env, profile = Environment(), FakeProfile(read=(20, 20))
    ports = [Port("cube", 1, {("MTE2", "l2_read"): 1}) for _ in range(2)]
    memory = Transfers(profile, ports, lambda cycle, call: appointment(env, cycle, call))
    ends = []
    for port, peak in zip(ports, (4, 20), strict=True):
        transfer = memory.transfer("cube", Traffic(X, "read", 80, peak))
        memory.send(0, port, "MTE2", transfer, lambda: ends.append(env.now))
    env.run()
    assert ends == [8, 20]


def test_a_transfer_leaves_on_a_whole_cycle():
    # Three share 10 a cycle: 10/3 each. 10 bytes take exactly 3 cycles, 11 take 3.3, so 4.
    assert ends_of(10, [(0, [10])] * 3) == [[3]] * 3
    assert ends_of(10, [(0, [11])] * 3) == [[4]] * 3


def test_no_rounding_builds_up():
    # Two cores have 10/3 a cycle each beside a third, until that is through at 3000; then 5. 10,001 bytes:
    # 10,000 of them by 3000 exactly, so one more cycle.
    assert ends_of(10, [(0, [10_000]), (0, [10_001]), (0, [10] * 1000)])[1] == [3001]


@settings(max_examples=200, deadline=None)
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


@pytest.mark.parametrize("cores", [1, 2, 3, 7, 24, 48])
def test_streaming_cores_reach_the_peak_of_the_link(cores):
    # Each sends 10 x 1200 bytes with a cap that alone would do: 12,000 x cores bytes at 24 a cycle.
    ends = ends_of(24, [(0, [1200] * 10)] * cores, cap=100)
    assert {stream[-1] for stream in ends} == {500 * cores}


# --- what a core has of a link -----------------------------------------------------------------------------


def test_cube_and_vector_cores_may_reach_different_totals():
    link = Link({"cube": 40, "vector": 60}, cores=4)
    rates = {k: link.rate(Port(k, 1, {("MTE2", "x"): 1}), Flow("x", 1)) for k in ("cube", "vector")}
    assert rates == {"cube": 10, "vector": 15}


def test_pipes_of_a_core_share_what_the_core_has_until_one_is_through():
    port = Port("cube", 1, {("FIX", "x"): 2, ("MTE3", "x"): 1, ("MTE2", "y"): 1})
    link = Link({"cube": 100}, cores=2)
    # Half the link is 50, the core's cap 30: 15 for each of two pipes.
    flow = Flow("x", 1, cap=30)
    assert link.rate(port, flow) == 15
    assert [port.arrived("FIX", "x"), port.arrived("MTE3", "x")] == [False, True]
    assert link.rate(port, flow) == 30
    assert port.arrived("FIX", "x")
    assert port.crowd == {"y": 1}


# --- what a transfer takes of which link -------------------------------------------------------------------


def flows(kind, size, peak, outcome, **figures):
    profile = FakeProfile(read=(100, 50), write=(100, 40), memory=(90, 8), latency=(7, 9, 100), **figures)
    transfer = Transfers(profile, [], lambda *_: None).transfer("cube", Traffic(X, kind, size, peak), outcome)
    return [(f.link, f.bytes, f.peak, f.cap, f.crosses) for f in transfer.flows], transfer.latency_cycles


def test_a_hit_stays_between_core_and_l2():
    assert flows("read", 64, 20, HIT) == ([("l2_read", 64, 20, 50, True)], 7)
    assert flows("write", 64, 20, HIT) == ([("l2_write", 64, 20, 40, True)], 9)
    assert flows("atomic", 64, 20, HIT) == ([("l2_write", 64, 20, 40, True)], 9)


def test_a_flow_that_does_not_cross_the_link_has_the_core_to_itself():
    port = Port("cube", 1, {("MTE2", "x"): 1})
    link = Link({"cube": 100}, cores=50)
    assert link.rate(port, Flow("x", 1, cap=30)) == 2
    assert link.rate(port, Flow("x", 1, cap=30, crosses=False)) == 30
    assert link.rate(port, Flow("x", 1, peak=20, cap=30, crosses=False)) == 20


def test_missing_bytes_also_cross_the_link_to_memory():
    made, latency = flows("read", 64, 20, Outcome(Fraction(1, 4), 0, 1))
    assert made == [
        ("l2_read", 64, 20, 50, True),
        ("memory", 16, None, 8, False),
        ("memory", 16, None, None, True),
    ]
    assert latency == 7 + 100


def test_cores_that_wait_for_the_same_bytes_fetch_them_once_each_at_its_own_rate():
    # 4 cores wait for all 64 bytes, each at its own 8 a cycle; a quarter of them is each core's on the link.
    made, _ = flows("read", 64, 20, Outcome(Fraction(1, 4), 0, 4))
    assert made[1] == ("memory", 64, None, 8, False)
    assert made[2] == ("memory", 16, None, None, True)


def test_requests_that_take_up_more_than_their_bytes_do_so_at_the_core():
    # 64 bytes in requests that take up 100 bytes of L2's rate, half missing: 50 at the core, 32 on the link.
    profile = FakeProfile(read=(100, 50), memory=(90, 8))
    transfer = Transfers(profile, [], lambda *_: None).transfer(
        "cube", Traffic(X, "read", 64, 20, 100), Outcome(Fraction(1, 2))
    )
    assert [flow.bytes for flow in transfer.flows] == [100, 50, 32]


def test_dirty_bytes_go_out_over_the_same_link():
    made, latency = flows("write", 64, 20, Outcome(0, Fraction(1, 2), 1))
    assert made == [
        ("l2_write", 64, 20, 40, True),
        ("memory", 32, None, 8, False),
        ("memory", 32, None, None, True),
    ]
    assert latency == 9
    made, _ = flows("read", 64, 20, Outcome(1, Fraction(1, 2), 1))
    assert made[1:] == [
        ("memory", 64, None, 8, False),
        ("memory", 32, None, 8, False),
        ("memory", 96, None, None, True),
    ]


def cycles_of(kind, peak, together, **figures):
    """How long 1200 bytes of one core take."""
    pipe, link = ("MTE2", "l2_read") if kind == "read" else ("FIX", "l2_write")
    port, ends = Port("cube", 1, {(pipe, link): 1}), []
    memory = Transfers(FakeProfile(**figures), [port], lambda cycle, _: ends.append(cycle))
    transfer = memory.transfer("cube", Traffic(X, kind, 1200, peak), Outcome(together=together))
    memory.send(0, port, pipe, transfer, None)
    return ends[0]


def test_cores_that_read_the_same_lines_reach_less_of_the_link():
    # Of the link's 100 bytes a cycle a quarter where reads are together: half of them at 100 and half at 25
    # make 40. Neither the core's cap of 50 nor a peak of 30 is touched.
    figures = {"read": (100, 50), "write": (100, 50), "shared_efficiency": 0.25}
    assert cycles_of("read", 99, Fraction(1, 2), **figures) == 1200 // 40
    assert cycles_of("read", 99, 0, **figures) == 1200 // 50
    assert cycles_of("read", 30, Fraction(1, 2), **figures) == 1200 // 30
    assert cycles_of("read", 99, 1, **figures) == 1200 // 25


@pytest.mark.parametrize(("cores", "rate"), [(1, 20), (2, 20), (3, 15), (4, 15)])
def test_vector_cores_share_the_port_of_their_pair(cores, rate):
    # One alone can read 20 bytes a cycle, a pair 30; more than two are taken to work in pairs.
    ports = [Port("vector", 1, {("MTE2", "l2_read"): 1}) for _ in range(cores)]
    ends = []
    profile = FakeProfile(vector_cap=20, vector_pair=30)
    memory = Transfers(profile, ports, lambda cycle, _: ends.append(cycle))
    for port in ports:
        memory.send(0, port, "MTE2", memory.transfer("vector", Traffic(X, "read", 300, 99)), None)
    assert ends == [300 // rate] * cores
