"""Do links share exactly?"""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles_timing import fair_rates, ticked_transfers
from simpy import Environment

from ascendsim.links import Link

rates = st.fractions(min_value=Fraction(1, 10), max_value=20, max_denominator=10)
transfer = st.tuples(st.integers(0, 30), st.integers(1, 200), rates)


def ends_of(total, transfers, begin=0, order=None):
    """End cycles of transfers (arrival, bytes, cap[, weight]) on one link."""
    env = Environment(begin)
    link, ends = Link(env, total), {}

    def send(number, size, cap, weight=1):
        link.send(size, cap, weight, lambda: ends.setdefault(number, env.now - begin))

    for number in order or range(len(transfers)):
        arrival, *rest = transfers[number]
        env.timeout(arrival).callbacks.append(lambda _, number=number, rest=rest: send(number, *rest))
    env.run()
    return [ends[number] for number in range(len(transfers))]


@pytest.mark.parametrize(
    ("size", "cap", "cycles"),
    [(100, 10, 10), (101, 10, 11), (1, 10, 1), (100, 30, 5), (101, 30, 6), (7, Fraction(7, 3), 3)],
)
def test_a_lone_transfer_takes_its_bytes_over_the_smaller_rate(size, cap, cycles):
    # The link does 20 bytes a cycle: 100 bytes take 10 cycles at a cap of 10, and 5 where the cap is 30.
    assert ends_of(20, [(0, size, cap)]) == [cycles]


def test_two_equal_transfers_share_equally():
    # 20 a cycle for two: 10 each.
    assert ends_of(20, [(0, 100, 20), (0, 100, 20)]) == [10, 10]


def test_the_one_who_stays_gets_what_the_other_leaves():
    # Both get 10 a cycle until the first has its 50 bytes at 5; the second then has 50 left at 20 a cycle.
    assert ends_of(20, [(0, 50, 20), (0, 100, 20)]) == [5, 8]


def test_what_a_cap_leaves_goes_to_the_others():
    # 20 a cycle; one takes 4 only, the other two get 8 each.
    assert ends_of(20, [(0, 40, 4), (0, 80, 20), (0, 80, 20)]) == [10, 10, 10]


def test_a_late_arrival_changes_the_share_from_its_cycle_on():
    # Alone for 3 cycles at 20: 60 gone. Then 10 each: its last 40 until cycle 7, when the other has 40 of its
    # 60. From there 20 a cycle for the last 20 bytes.
    assert ends_of(20, [(0, 100, 20), (3, 60, 20)]) == [7, 8]


def test_a_transfer_leaves_on_a_whole_cycle():
    # Three share 10 a cycle: 10/3 each. 10 bytes take exactly 3 cycles, 11 take 3.3, so 4.
    assert ends_of(10, [(0, 10, 10)] * 3) == [3] * 3
    assert ends_of(10, [(0, 11, 10)] * 3) == [4] * 3


def test_no_rounding_builds_up():
    # 1000 transfers of 10 bytes, one after another, beside two that stay: 10/3 a cycle each, so exactly 3
    # cycles each. Any loss would push one of them over the edge of a cycle.
    transfers = [(3 * i, 10, 10) for i in range(1000)] + [(0, 10_000, 10), (0, 10_000, 10)]
    assert ends_of(10, transfers) == [3 * i + 3 for i in range(1000)] + [3000, 3000]


@settings(max_examples=200, deadline=None)
@given(rates, st.lists(transfer, min_size=1, max_size=8))
def test_shares_are_those_of_a_link_served_cycle_by_cycle(total, transfers):
    assert ends_of(total, transfers) == ticked_transfers(total, transfers)


@settings(max_examples=100, deadline=None)
@given(rates, st.lists(st.tuples(transfer, st.integers(1, 5)), min_size=1, max_size=5))
def test_a_weight_is_that_many_equal_transfers(total, weighted):
    copies = [number for number, (_, weight) in enumerate(weighted) for _ in range(weight)]
    single = ends_of(total, [weighted[number][0] for number in copies])
    folded = ends_of(total, [(*flow, weight) for flow, weight in weighted])
    assert single == [folded[number] for number in copies]


@settings(max_examples=50, deadline=None)
@given(rates, st.lists(transfer, min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_the_order_within_a_cycle_does_not_matter(total, transfers, random):
    order = random.sample(range(len(transfers)), len(transfers))
    assert ends_of(total, transfers, order=order) == ends_of(total, transfers)


@settings(max_examples=50, deadline=None)
@given(rates, st.lists(transfer, min_size=1, max_size=6), st.integers(1, 10**9))
def test_the_time_of_day_does_not_matter(total, transfers, begin):
    assert ends_of(total, transfers, begin=begin) == ends_of(total, transfers)


@given(rates, st.lists(rates, min_size=1, max_size=6))
def test_fair_rates_use_the_link_up_or_every_cap(total, caps):
    # This judges the oracle: max-min means that a flow below its cap has the largest rate of all.
    shares = fair_rates(total, dict(enumerate(caps)))
    assert sum(shares.values()) == min(total, sum(caps))
    assert all(shares[flow] in (cap, max(shares.values())) for flow, cap in enumerate(caps))


@pytest.mark.parametrize("cores", [1, 2, 3, 7, 24, 48])
def test_enough_cores_reach_the_peak_of_the_link(cores):
    # Each sends 1200 bytes with a cap that alone would do: 1200 x cores bytes at 24 a cycle.
    assert ends_of(24, [(0, 1200, 100)] * cores) == [50 * cores] * cores
