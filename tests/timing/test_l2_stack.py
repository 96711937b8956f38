"""Do the parts of L2 do what the account relies on: the stack, and the cutting of tensors into slices?"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ascendsim.program.places import GmTensor
from ascendsim.timing.l2 import lru
from ascendsim.timing.l2 import slices as c
from ascendsim.timing.l2.phase import Stack, lanes_of, prepared
from ascendsim.timing.times import CostBook
from tests.helpers.fake_machine import Fake, FakeProfile, program

A = GmTensor("a", (1000,), "float16", 2)  # 2000 bytes


class L2:
    """A phase that has residencies of these sizes, all of tensor a, in the plain functions' own arrays."""

    def __init__(self, capacity, *sizes, rest=None, phase_bytes=0):
        self.stack = Stack(capacity, ("a", "b"))
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
    stack = Stack(1500, ["a"])
    stack.hold("a", 2000)
    assert stack.left() == {"a": (1500, 0)}


def test_a_smaller_l2_takes_of_all_tensors_alike_and_moves_nothing_for_it():
    # 1200 bytes in 1000: each tensor gives up half of the 200.
    stack = Stack(1000, ["a", "b"])
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


def read(size, place=None, tensor=A):
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
    tensor = replace(A, shape=(elements,))
    made, known, others = prepared_of((4, [read(1000, 0, tensor)]))
    assert apart_of(made) == apart
    assert (known, others) == ([1000], [own])


def test_known_slices_that_overlap_count_for_their_part_of_the_tensor():
    made, known, others = prepared_of((1, [read(1500, 0), read(1500, 1)]))
    assert apart_of(made) == 0
    assert (known, others) == ([1000, 1000], [])


def test_slices_are_told_apart_by_tensor_and_place():
    other = replace(A, name="b")
    rows = [read(500, 0), read(500, 1), read(500, 0), read(500, 0, other)]
    assert prepared_of((1, rows))[0].slices.tolist() == [0, 1, 0, 2]


def test_groups_that_name_one_slice_share_it():
    made, known, others = prepared_of((4, [read(100, 7)]), (2, [read(100, 7)] * 2), (1, [read(100, 7)]))
    # One known slice; three other cores of the first group, and one of the second, each with its own.
    assert (known, others) == ([100], [300, 100])
    assert made.own.tolist() == [1, 2, 2, -1]
    # In the first round all that name it access it together, in the second the second group alone.
    assert made.begins[: made.sizes[2] + 1].tolist() == [0, 3, 4]
    assert made.sequence.tolist() == [0, 1, 3, 2]
    assert made.owners.tolist() == [0, 1, 2, 1]
    assert made.readers.tolist() == [3, 3, 1, 3]
