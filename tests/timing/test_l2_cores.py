"""Do cores that share tensors fetch, find and push out of L2 what they should?"""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from ascendsim.program.places import GmTensor
from ascendsim.timing.l2.account import account
from ascendsim.timing.l2.phase import Outcome
from tests.helpers.fake_machine import FakeProfile, kernel, program
from tests.timing.test_l2 import ALL, A, B, W, accounted, fetched, memory, orders, read, reads, write


def folded(count, rows, **options):
    """Equal cores that the kernel folds into one."""
    made = kernel([(0, program(*rows))] * count, tensors=options.pop("tensors", ALL))
    options = {"l2_bytes": 10**6, "l2_start": "cold"} | options
    return account(made, FakeProfile(l2_bytes=options["l2_bytes"]), options["l2_start"])


def test_cores_that_read_more_than_there_is_read_the_same():
    # Four cores read all 2000 bytes: every byte is read by four, misses once, and all four wait for it.
    made = folded(4, reads(A, 500, range(4)))
    assert made.outcomes[0][0][0] == Outcome(Fraction(1, 4), 0, 4, together=1)
    assert made.bytes["l2_read"] == 8000
    assert memory(made) == (2000, 0)


def test_cores_that_read_no_more_than_there_is_read_their_own():
    made = folded(4, [read(A, 500, 0)])
    assert made.outcomes[0][0][0] == Outcome(1, 0, 1)
    assert memory(made) == (2000, 0)


def test_slices_that_overlap_a_little_miss_a_little_less_each():
    # Five slices of 500 of 2000 bytes: each byte is in 5/4 slices on average; one core waits for 400 of 500.
    made = folded(1, reads(A, 500, range(5)))
    assert made.outcomes[0][0][0] == Outcome(Fraction(4, 5), 0, 1)
    assert memory(made) == (2000, 0)


def test_who_finds_fetched_bytes_has_a_part_in_fetching_them():
    # Slice 0 is read by both cores in the first round: each fetches half and waits for both. Slice 1 is
    # read by one and a round later by the other: each fetches half, and waits for that. Nobody shares in b.
    phase = [[read(A, 500, 0), read(A, 500, 1)], [read(A, 500, 0), read(B, 100, 0), read(A, 500, 1)]]
    made = accounted(phase, l2_start="cold")
    together, apart = Outcome(Fraction(1, 2), 0, 2, 1), Outcome(Fraction(1, 2), 0, 1)
    assert made.outcomes == (({0: together, 1: apart}, {0: together, 1: Outcome(1, 0, 1), 2: apart}),)
    assert memory(made) == (1100, 0)


def test_who_comes_again_has_no_further_part():
    phase = [
        [read(A, 500, 0), read(A, 500, 0), read(A, 500, 0)],
        [read(B, 9, 0), read(B, 9, 0), read(A, 500, 0)],
    ]
    made = accounted(phase, l2_start="cold")
    assert [fetched(made, core=core, count=3) for core in (0, 1)] == [
        [Fraction(1, 2), 0, 0],
        [1, 0, Fraction(1, 2)],
    ]


def test_who_comes_after_bytes_have_gone_fetches_them_alone():
    # In 600 bytes slice 0 goes when b is read, so the second core has no part in the first one's fetching.
    phase = [[read(A, 500, 0)], [read(B, 500, 0), read(A, 500, 0)]]
    made = accounted(phase, l2_bytes=600, l2_start="cold")
    # By then 400 bytes of it have gone: these are fetched again.
    assert [fetched(made, core=core) for core in (0, 1)] == [[1], [1, Fraction(4, 5)]]


def test_who_overwrites_fetched_bytes_has_no_part_in_fetching_them():
    phase = [[read(A, 500, 0)], [read(B, 9, 0), write(A, 500, 0)]]
    made = accounted(phase, l2_start="cold")
    assert made.outcomes == (({0: Outcome(1)}, {0: Outcome(1)}),)


def test_who_writes_first_leaves_nothing_to_fetch():
    phase = [[write(A, 500, 0)], [read(B, 9, 0), read(A, 500, 0)]]
    assert fetched(accounted(phase, l2_start="cold"), core=1, count=2) == [1, 0]


def test_equal_cores_share_as_far_as_the_tensor_takes_it():
    # Three cores of a kind read 500 bytes each of b, which has 1000: one slice is known, 500 bytes are left
    # for the slices of the other two. So on average each of these has half a slice of its own and half of the
    # known one. The known 500 bytes are met by 1 + 1 cores; 500 others by one each.
    made = folded(3, [read(B, 500, 0)])
    assert memory(made) == (1000, 0)
    outcome = made.outcomes[0][0][0]
    assert outcome.fetched == Fraction(1000, 1500)
    # In bytes, the cores wait for 2 x 500 + 500, and 500 + 500 are fetched.
    assert outcome.readers == Fraction(1500, 1000)


def test_shared_slices_count_once_for_the_capacity():
    # Four cores read the same 2000 bytes twice. They fit in 2000.
    again = reads(A, 500, range(4)) * 2
    assert memory(folded(4, again, l2_bytes=2000)) == (2000, 0)
    # In 1500 every slice has gone when it is met again.
    assert memory(folded(4, again, l2_bytes=1500)) == (4000, 0)


def test_private_slices_count_for_every_core():
    # Four cores read 500 bytes each, twice with 250 others of their own in between: 3000 bytes.
    rows = [read(A, 500, 0), read(B, 250, 0), read(A, 500, 0)]
    assert memory(folded(4, rows, l2_bytes=3000)) == (3000, 0)
    assert memory(folded(4, rows, l2_bytes=2999))[0] > 3000


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), orders), min_size=1, max_size=3),
    st.integers(1, 3000),
    st.sampled_from(["cold", "warm"]),
)
def test_memory_serves_no_byte_less_than_once_nor_more_than_is_read(groups, capacity, l2_start):
    made = kernel(
        [
            (number, program(*reads(A, 100, accesses)))
            for number, (count, accesses) in enumerate(groups)
            for _ in range(count)
        ],
        tensors=ALL,
    )
    bytes_ = account(made, FakeProfile(l2_bytes=capacity), l2_start).bytes
    known = 100 * len(set().union(*(accesses for _, accesses in groups)))
    others = sum((count - 1) * 100 * len(set(accesses)) for count, accesses in groups)
    assert bytes_["memory_read"] <= bytes_["l2_read"]
    if l2_start == "cold":
        # A slice's bytes are rounded down, so that all slices are never more than the tensor.
        rounded = 8 * (1 + len(groups))
        assert min(known + others, A.size_bytes) - rounded <= bytes_["memory_read"]


def test_cores_go_round_by_round():
    # One core reads 0 1, the other 2 3, in 1000 bytes: 0 2 1 3, and 0 and 2 are gone when 1 and 3 are read.
    phase = [reads(A, 500, [0, 1, 0]), reads(W, 500, [2, 3, 2])]
    made = accounted(phase, l2_bytes=1000, l2_start="cold")
    assert [fetched(made, core=core, count=3) for core in (0, 1)] == [[1, 1, 1]] * 2
    # With room for four slices the third round finds both.
    made = accounted(phase, l2_bytes=2000, l2_start="cold")
    assert [fetched(made, core=core, count=3) for core in (0, 1)] == [[1, 1, 0]] * 2


def test_what_is_left_of_several_tensors_goes_from_all_alike():
    # 1000 bytes each of a, b and w are there; 600 new ones push out 200 of each. Then each is read again.
    first = [read(A, 1000, 0), read(B, 1000, 0), read(W, 1000, 0)]
    other = GmTensor("other", (300,), "float16", 2)
    second = [read(other, 600, 0), read(A, 1000, 0), read(B, 1000, 0), read(W, 1000, 0)]
    made = accounted([first], [second], l2_bytes=3000, l2_start="cold", tensors=(*ALL, other))
    # a misses 200, which push out 100 each of b and w; b misses 300, which push out 300 of w.
    assert fetched(made, phase=1, count=4) == [1, Fraction(2, 10), Fraction(3, 10), Fraction(6, 10)]


def test_reads_of_the_same_bytes_in_one_step_are_told():
    # Of three equal cores that read 500 bytes of b each, two thirds read the known slice: 2 of 3.
    rows = [read(B, 500, 0)]
    made = kernel([(0, program(*rows))] * 3, tensors=ALL)
    contended = FakeProfile(shared_efficiency=0.5)
    assert account(made, contended).outcomes[0][0] == {0: Outcome(together=Fraction(2, 3))}
    assert account(made, FakeProfile()).outcomes[0][0] == {}
    # Writes of the same bytes, and reads of one core, are not.
    alone = kernel([program(*rows, write(W, 9, 0)), program(write(B, 9, 1), write(W, 9, 0))], tensors=ALL)
    assert account(alone, contended).outcomes[0] == ({}, {})
