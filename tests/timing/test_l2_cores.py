"""Do the stack of L2, its slices, and cores that share tensors fetch and push out what they should?"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendsim.program.places import GmTensor
from ascendsim.timing.l2 import lru
from ascendsim.timing.l2 import slices as c
from ascendsim.timing.l2.account import account
from ascendsim.timing.l2.held import L2Stack
from ascendsim.timing.l2.phase import L2Outcome, lanes_of, prepared
from ascendsim.timing.times import CostBook
from tests.helpers.toy_machines import Fake, FakeProfile, kernel, program
from tests.timing.test_l2 import ALL, A, B, W, accounted, fetched, memory, orders, read, reads, write

# -------------------------------------------------------------------------------------------------------
# Do the parts of L2 do what the account relies on: the stack, and the cutting of tensors into slices?
# -------------------------------------------------------------------------------------------------------

TENSOR = GmTensor("a", (1000,), "float16", 2)  # 2000 bytes


class L2:
    """A phase that has residencies of these sizes, all of tensor a, in the plain functions' own arrays."""

    def __init__(self, capacity, *sizes, rest=None, phase_bytes=0):
        self.stack = L2Stack(capacity, ("a", "b"))
        self.stack.take(rest or {})
        self.rows = np.zeros((len(sizes) + 1, c.ROW), np.int64)
        self.rows[:-1, c.SIZE] = sizes
        self.tensors = np.zeros((2, c.TENSOR_ROW), np.int64)
        self.tensors[0, c.ALL] = phase_bytes or sum(sizes)
        self.ends = len(sizes)
        lru.begin(self.rows.reshape(-1), self.tensors.reshape(-1), len(self.tensors), self.ends)

    def access(self, number, kind, cached=True):
        """The bytes that are fetched."""
        arrays = self.rows.reshape(-1), self.tensors.reshape(-1), *self.stack.arrays
        return lru.access(*arrays, number, kind, cached, self.ends)

    def find(self, number):
        before, _, _ = self.stack.arrays
        lru.find(self.rows.reshape(-1), self.tensors.reshape(-1), before, number, self.ends)

    def end(self):
        lru.end(self.rows.reshape(-1), *self.stack.arrays, self.ends)

    @property
    def resident(self):
        return self.rows[: self.ends, c.RESIDENT].tolist()

    @property
    def dirty(self):
        return self.rows[: self.ends, c.DIRTY].tolist()


# --- the stack ---------------------------------------------------------------------------------------------


def test_a_read_fetches_what_is_missing_and_leaves_it_clean():
    l2 = L2(1000, 500)
    assert [l2.access(0, c.READ), l2.access(0, c.READ)] == [500, 0]
    assert (l2.resident, l2.dirty, l2.stack.read_bytes) == ([500], [0], 500)


def test_a_write_fetches_nothing_and_an_atomic_add_does():
    l2 = L2(1000, 500, 500)
    assert [l2.access(0, c.WRITE), l2.access(1, c.ATOMIC)] == [0, 500]
    assert l2.dirty == [500, 500]


def test_what_l2_does_not_keep_is_written_past_it():
    l2 = L2(1000, 500)
    assert l2.access(0, c.ATOMIC, cached=False) == 500
    assert (l2.resident, l2.stack.written_bytes) == ([0], 500)


def test_the_deepest_bytes_leave_first_and_only_as_many_as_must():
    l2 = L2(1000, 600, 600)
    for number in (0, 1):
        l2.access(number, c.READ)
    # 1200 bytes in 1000: 200 of the older ones go, all of them clean.
    assert (l2.resident, l2.stack.written_bytes) == ([400, 600], 0)


def test_dirty_bytes_that_leave_are_counted():
    l2 = L2(1000, 600, 600)
    l2.access(0, c.WRITE)
    l2.access(1, c.READ)
    assert (l2.dirty, l2.stack.written_bytes) == ([400, 0], 200)


def test_what_has_left_the_stack_may_come_back():
    # 0 goes when 1 and 2 come, and comes back above them: then 1 is the deepest.
    l2 = L2(1000, 500, 500, 500)
    assert [l2.access(number, c.READ) for number in (0, 1, 2, 0)] == [500] * 4
    assert l2.resident == [500, 0, 500]


def test_a_phase_leaves_its_tensors_in_the_order_in_which_their_bytes_were_accessed():
    l2 = L2(1000, 100, 200)
    l2.rows[0, c.TENSOR] = 1
    l2.tensors[:, c.ALL] = 200, 100
    l2.access(0, c.WRITE)
    l2.access(1, c.READ)
    l2.end()
    assert list(l2.stack.left().items()) == [("b", (100, 100)), ("a", (200, 0))]
    # Another phase adds to what is there, and changes no order.
    lru.begin(l2.rows.reshape(-1), l2.tensors.reshape(-1), len(l2.tensors), l2.ends)
    l2.access(1, c.WRITE)
    l2.end()
    assert list(l2.stack.left().items()) == [("b", (100, 100)), ("a", (200, 200))]


def test_a_tensor_that_another_kernel_has_written_is_there_clean_as_far_as_it_fits():
    stack = L2Stack(1500, ["a"])
    stack.hold("a", 2000)
    assert stack.left() == {"a": (1500, 0, 1)}  # spread evenly


def test_a_smaller_l2_takes_of_all_tensors_alike_and_moves_nothing_for_it():
    # 1200 bytes in 1000: each tensor gives up half of the 200.
    stack = L2Stack(1000, ["a", "b"])
    stack.take({"a": (600, 0), "b": (600, 600)})
    assert stack.left() == {"a": (500, 0), "b": (500, 500)}
    assert (stack.read_bytes, stack.written_bytes) == (0, 0)


def test_the_end_of_a_tensor_is_found():
    # 300 of 1000 bytes are here, all of them at the end: the quarter at 500 finds 50, the last one 250.
    l2 = L2(1000, 250, 250, 250, 250, rest={"a": (300, 0)})
    for number in range(4):
        l2.find(number)
    assert l2.resident == [0, 0, 50, 250]


def test_dirty_bytes_are_found_in_proportion():
    l2 = L2(1000, 200, rest={"a": (400, 100)}, phase_bytes=400)
    l2.find(0)
    # The other 200 of the 400 bytes that are here lie behind it.
    assert (l2.resident, l2.dirty) == ([200], [50])


# --- slices ------------------------------------------------------------------------------------------------


def prepared_of(*groups):
    """The arrays of groups of (cores, instructions), and the rows of their residencies."""
    book = CostBook(FakeProfile())
    lanes = lanes_of([(cores, book.price(program(*rows), "cube")) for cores, rows in groups])
    made = prepared(lanes, {"a": 0, "b": 1})
    known, residencies, _ = made.sizes.tolist()
    rows = made.rows.reshape(-1, c.ROW)[:residencies, c.SIZE].tolist()
    return made, rows[:known], rows[known:]


def apart_of(made):
    """The part of the slices of tensor a that are not known and are no known ones."""
    return Fraction(int(made.tensors[c.APART]), int(made.tensors[c.PARTS]))


def read_of(size, place=None, tensor=TENSOR):
    return Fake("MTE2", kind="read", bytes=size, tensor=tensor, place=place)


@pytest.mark.parametrize(
    ("elements", "apart", "own"),
    [
        (2000, 1, 3000),  # 4000 bytes: each of four cores has 1000 of its own
        (1000, Fraction(1, 3), 1000),  # 2000 bytes: 1000 for the other three, which name 3000
        (500, 0, 0),  # all four share the one
    ],
)
def test_equal_cores_have_slices_of_their_own_as_far_as_the_tensor_goes(elements, apart, own):
    tensor = replace(TENSOR, shape=(elements,))
    made, known, others = prepared_of((4, [read_of(1000, 0, tensor)]))
    assert apart_of(made) == apart
    assert (known, others) == ([1000], [own])


def test_known_slices_that_overlap_count_for_their_part_of_the_tensor():
    made, known, others = prepared_of((1, [read_of(1500, 0), read_of(1500, 1)]))
    assert apart_of(made) == 0
    assert (known, others) == ([1000, 1000], [])


def test_slices_are_told_apart_by_tensor_and_place():
    other = replace(TENSOR, name="b")
    rows = [read_of(500, 0), read_of(500, 1), read_of(500, 0), read_of(500, 0, other)]
    assert prepared_of((1, rows))[0].slices.tolist() == [0, 1, 0, 2]


def test_groups_that_name_one_slice_share_it():
    made, known, others = prepared_of(
        (4, [read_of(100, 7)]), (2, [read_of(100, 7)] * 2), (1, [read_of(100, 7)])
    )
    # One known slice; three other cores of the first group, and one of the second, each with its own.
    assert (known, others) == ([100], [300, 100])
    assert made.own.tolist() == [1, 2, 2, -1]
    # In the first round all that name it access it together, in the second the second group alone.
    assert made.begins[: made.sizes[2] + 1].tolist() == [0, 3, 4]
    assert made.sequence.tolist() == [0, 1, 3, 2]
    assert made.owners.tolist() == [0, 1, 2, 1]
    assert made.readers.tolist() == [3, 3, 1, 3]


# --- Do cores that share tensors fetch, find and push out of L2 what they should? ----------------------


def folded(count, rows, **options):
    """Equal cores that the kernel folds into one."""
    made = kernel([(0, program(*rows))] * count, tensors=options.pop("tensors", ALL))
    options = {"l2_bytes": 10**6, "l2_start": "cold"} | options
    return account(made, FakeProfile(l2_bytes=options["l2_bytes"]), options["l2_start"])


def test_cores_that_read_more_than_there_is_read_the_same():
    # Four cores read all 2000 bytes: every byte is read by four, misses once, and all four wait for it.
    made = folded(4, reads(A, 500, range(4)))
    assert made.outcomes[0][0][0] == L2Outcome(Fraction(1, 4), 0, 4, together=1)
    assert made.bytes["l2_read"] == 8000
    assert memory(made) == (2000, 0)


def test_cores_that_read_no_more_than_there_is_read_their_own():
    made = folded(4, [read(A, 500, 0)])
    assert made.outcomes[0][0][0] == L2Outcome(1, 0, 1)
    assert memory(made) == (2000, 0)


def test_slices_that_overlap_a_little_miss_a_little_less_each():
    # Five slices of 500 of 2000 bytes: each byte is in 5/4 slices on average; one core waits for 400 of 500.
    made = folded(1, reads(A, 500, range(5)))
    assert made.outcomes[0][0][0] == L2Outcome(Fraction(4, 5), 0, 1)
    assert memory(made) == (2000, 0)


def test_who_finds_fetched_bytes_has_a_part_in_fetching_them():
    # Slice 0 is read by both cores in the first round: each fetches half and waits for both. Slice 1 is
    # read by one and a round later by the other: each fetches half, and waits for that. Nobody shares in b.
    phase = [[read(A, 500, 0), read(A, 500, 1)], [read(A, 500, 0), read(B, 100, 0), read(A, 500, 1)]]
    made = accounted(phase, l2_start="cold")
    together, apart = L2Outcome(Fraction(1, 2), 0, 2, 1), L2Outcome(Fraction(1, 2), 0, 1)
    assert made.outcomes == (({0: together, 1: apart}, {0: together, 1: L2Outcome(1, 0, 1), 2: apart}),)
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
    assert made.outcomes == (({0: L2Outcome(1)}, {0: L2Outcome(1)}),)


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
    assert account(made, contended).outcomes[0][0] == {0: L2Outcome(together=Fraction(2, 3))}
    assert account(made, FakeProfile()).outcomes[0][0] == {}
    # Writes of the same bytes, and reads of one core, are not.
    alone = kernel([program(*rows, write(W, 9, 0)), program(write(B, 9, 1), write(W, 9, 0))], tensors=ALL)
    assert account(alone, contended).outcomes[0] == ({}, {})
