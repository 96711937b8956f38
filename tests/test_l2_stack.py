"""Do the parts of L2 do what the account relies on: the stack, and the cutting of tensors into slices?"""

from dataclasses import replace
from fractions import Fraction

import pytest
from fake_machine import Fake, FakeProfile, program

from ascendsim.program.instruction import Traffic
from ascendsim.program.places import GmTensor
from ascendsim.timing.costing import CostBook
from ascendsim.timing.l2.lru import Residency, Stack
from ascendsim.timing.l2.slices import cut, transfers_of

A = GmTensor("a", (1000,), "float16", 2)  # 2000 bytes
READ, WRITE, ADD = (Traffic(A, kind, 500, 10) for kind in ("read", "write", "atomic"))


def residencies(*sizes):
    return [Residency("a", size) for size in sizes]


# --- the stack ---------------------------------------------------------------------------------------------


def test_a_read_fetches_what_is_missing_and_leaves_it_clean():
    (part,) = residencies(500)
    stack = Stack(1000)
    assert stack.access(part, READ) == (500, 0)
    assert stack.access(part, READ) == (0, 0)
    assert (part.resident, part.dirty, stack.read_bytes) == (500, 0, 500)


def test_a_write_fetches_nothing_and_an_atomic_add_does():
    written, added = residencies(500, 500)
    stack = Stack(1000)
    assert [stack.access(written, WRITE), stack.access(added, ADD)] == [(0, 0), (500, 0)]
    assert (written.dirty, added.dirty) == (500, 500)


def test_what_l2_does_not_keep_is_written_past_it():
    (part,) = residencies(500)
    stack = Stack(1000)
    past = Traffic(replace(A, cached=False), "atomic", 500, 10)
    assert stack.access(part, past) == (500, 500)
    assert (part.resident, stack.written_bytes) == (0, 500)


def test_the_deepest_bytes_leave_first_and_only_as_many_as_must():
    old, new = residencies(600, 600)
    stack = Stack(1000)
    for part in (old, new):
        stack.access(part, READ)
        stack.make_room()
    # 1200 bytes in 1000: 200 of the older ones go, all of them clean.
    assert (old.resident, new.resident, stack.written_bytes) == (400, 600, 0)


def test_dirty_bytes_that_leave_are_told_and_counted():
    old, new = residencies(600, 600)
    stack = Stack(1000)
    stack.access(old, WRITE)
    stack.access(new, READ)
    assert stack.make_room() == 200
    assert (old.dirty, stack.written_bytes) == (400, 200)


def test_a_tensor_that_was_just_written_is_there_as_far_as_it_fits():
    stack = Stack(1500)
    stack.hold("a", 2000)
    assert stack.left() == {"a": (1500, 1500)}


def test_a_smaller_l2_takes_of_all_tensors_alike_and_moves_nothing_for_it():
    # 1200 bytes in 1000: each tensor gives up half of the 200.
    stack = Stack(1000)
    stack.take({"a": (600, 0), "b": (600, 600)})
    assert stack.left() == {"a": (500, 0), "b": (500, 500)}
    assert (stack.read_bytes, stack.written_bytes) == (0, 0)


def test_the_end_of_a_tensor_is_found():
    # 300 of 1000 bytes are here, all of them at the end: the quarter at 500 finds 50, the last one 250.
    stack = Stack(1000)
    stack.take({"a": (300, 0)})
    quarters = residencies(250, 250, 250, 250)
    for number, part in enumerate(quarters):
        stack.find(part, 1000, 250 * number)
    assert [part.resident for part in quarters] == [0, 0, 50, 250]


def test_dirty_bytes_are_found_in_proportion():
    stack = Stack(1000)
    stack.take({"a": (400, 100)})
    (part,) = residencies(200)
    stack.find(part, 400, 0)
    assert (part.resident, part.dirty) == (200, 50)


# --- slices ------------------------------------------------------------------------------------------------


def slices_of(*groups):
    """The slices that groups of (cores, instructions) name."""
    slices = {}
    book = CostBook(FakeProfile())
    for number, (cores, instructions) in enumerate(groups):
        list(transfers_of(number, cores, book.price(program(*instructions), "cube"), slices))
    return list(slices.values())


def read(size, place=None, tensor=A):
    return Fake("MTE2", kind="read", bytes=size, tensor=tensor, place=place)


@pytest.mark.parametrize(
    ("elements", "apart", "own"),
    [
        (2000, 1, 3000),  # 4000 bytes: each of four cores has 1000 of its own
        (1000, Fraction(1, 3), 1000),  # 2000 bytes: 1000 for the other three, which name 3000
        (500, 0, None),  # all four share the one
    ],
)
def test_equal_cores_have_slices_of_their_own_as_far_as_the_tensor_goes(elements, apart, own):
    tensor = replace(A, shape=(elements,))
    (part,) = slices = slices_of((4, [read(1000, 0, tensor)]))
    assert cut(slices) == {"a": apart}
    assert part.known.size == 1000
    assert (part.own[0].size if part.own else None) == own


def test_known_slices_that_overlap_count_for_their_part_of_the_tensor():
    slices = slices_of((1, [read(1500, 0), read(1500, 1)]))
    assert cut(slices) == {"a": 0}
    assert [part.known.size for part in slices] == [1000, 1000]


def test_slices_are_told_apart_by_tensor_and_place():
    other = replace(A, name="b")
    assert len(slices_of((1, [read(500, 0), read(500, 1), read(500, 0), read(500, 0, other)]))) == 3


def test_groups_that_name_one_slice_share_it():
    (part,) = slices_of((4, [read(500, 7)]), (2, [read(500, 7)]))
    assert part.cores == {0: 4, 1: 2}
