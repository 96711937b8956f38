"""Does main memory serve the right bytes?"""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.errors import AscendSimError, ProgramError
from ascendsim.program.places import GmTensor
from ascendsim.timing.kernel import time_kernel
from ascendsim.timing.l2.account import account, left_by
from ascendsim.timing.l2.phase import HIT, L2Outcome
from tests.helpers.toy_machines import Fake, FakeProfile, kernel, program

A = GmTensor("a", (1000,), "float16", 2)  # 2000 bytes
B = GmTensor("b", (500,), "float16", 2)  # 1000 bytes
W = GmTensor("w", (1000,), "float32", 4, role="workspace")  # 4000 bytes
ALL = (A, B, W)


def read(tensor, size, place=None):
    return Fake("MTE2", kind="read", bytes=size, peak=10, tensor=tensor, place=place)


def write(tensor, size, place=None, kind="write"):
    return Fake("MTE3", kind=kind, bytes=size, peak=10, tensor=tensor, place=place)


def reads(tensor, size, places):
    return [read(tensor, size, place) for place in places]


def accounted(*phases, l2_bytes=10**6, l2_start="warm", tensors=ALL):
    """The account of phases of programs, each program a list of instructions."""
    made = kernel(*[[program(*rows) for rows in phase] for phase in phases], tensors=tensors)
    return account(made, FakeProfile(l2_bytes=l2_bytes), l2_start)


def fetched(made, phase=0, core=0, count=None):
    """The part of each transfer's bytes that main memory serves."""
    outcomes = made.outcomes[phase][core]
    return [outcomes.get(index, HIT).fetched for index in range(count or len(outcomes))]


def memory(made):
    return made.bytes["memory_read"], made.bytes["memory_write"]


# --- what is there at the start ----------------------------------------------------------------------------


def test_a_warm_kernel_that_fits_misses_nothing():
    made = accounted([[read(A, 2000), read(B, 300), write(W, 40)]])
    assert made.outcomes == (({},),)
    assert made.bytes == {
        "l2_read": 2300,
        "l2_write": 40,
        "memory": 0,
        "memory_read": 0,
        "memory_write": 0,
    }


def test_a_cold_kernel_misses_what_it_accesses_for_the_first_time():
    made = accounted([[read(A, 500, 0), read(A, 500, 1), read(A, 500, 0), read(B, 9, 0)]], l2_start="cold")
    assert fetched(made, count=4) == [1, 1, 0, 1]
    assert memory(made) == (1009, 0)


def test_what_the_kernel_has_written_is_there():
    made = accounted([[write(W, 4000, 0), read(W, 4000, 0)]], l2_start="cold")
    assert memory(made) == (0, 0)


def test_what_another_phase_has_written_is_there_however_it_is_cut():
    made = accounted([[write(W, 4000, 0)]], [reads(W, 1000, "abcd")], l2_start="cold")
    assert memory(made) == (0, 0)


def test_an_atomic_add_reads_what_it_adds_to():
    made = accounted([[write(W, 400, 0, "atomic"), write(W, 400, 0, "atomic")]], l2_start="cold")
    assert fetched(made, count=2) == [1, 0]
    assert made.bytes["l2_write"] == 800
    assert memory(made) == (400, 0)


def test_an_instruction_that_does_not_say_where_goes_on_through_its_tensor():
    # 300 of 1000 bytes at a time: at 0, 300, 600 and then at 0 again, which is known.
    made = accounted([[read(B, 300)] * 4], l2_start="cold")
    assert fetched(made, count=4) == [1, 1, 1, 0]


def test_a_kernel_that_is_handed_its_first_input_misses_the_others():
    made = accounted([[read(A, 2000), read(B, 1000)]], l2_start="handed")
    assert fetched(made, count=2) == [0, 1]
    assert memory(made) == (1000, 0)


def test_what_is_handed_over_is_clean_and_spread_evenly_as_much_as_l2_holds():
    # 1500 of A's 2000 bytes are there, so of the first 500 bytes 375. The 125 that come push as many of the
    # others out: 1000 are left for 1500, so 333 of the next 500; 167 come, 500 are left for 1000, so 250;
    # those 250 push out all that is left. Nothing was dirty, so nothing is written back.
    made = accounted([reads(A, 500, range(4))], l2_bytes=1500, l2_start="handed")
    assert fetched(made, count=4) == [Fraction(125, 500), Fraction(167, 500), Fraction(250, 500), 1]
    assert memory(made) == (125 + 167 + 250 + 500, 0)


def test_a_warm_start_is_what_a_run_from_cold_leaves():
    # Tiles 0 to 3 of 500 bytes go through 1000 bytes: 2 and 3 stay. The next run comes in the same order and
    # pushes them out before it meets them, as every stack does.
    made = accounted([reads(A, 500, range(4))], l2_bytes=1000)
    assert fetched(made, count=4) == [1, 1, 1, 1]
    # The other half is met again in time if it is all that the next phase reads.
    made = accounted([reads(A, 500, range(4))], [reads(A, 500, "ab")], l2_bytes=1000, l2_start="cold")
    assert fetched(made, phase=1, count=2) == [0, 0]


# --- from kernel to kernel ---------------------------------------------------------------------------------


def chain(first, second, l2_bytes, l2_start="cold"):
    """The account of a second kernel that begins with what the first has left, and that rest."""
    profile = FakeProfile(l2_bytes=l2_bytes)
    before, after = (kernel([program(*rows)], tensors=ALL) for rows in (first, second))
    rest = left_by(before, profile, l2_start)
    return account(after, profile, rest), rest


def test_a_kernel_leaves_what_it_accessed_last_and_says_how_much_of_it_is_dirty():
    made, rest = chain([read(A, 2000), write(W, 400)], [read(A, 2000)], l2_bytes=10**6)
    assert rest == {"a": (2000, 0), "w": (400, 400)}
    assert memory(made) == (0, 0)


def test_what_the_first_kernel_wrote_the_second_finds_and_the_rest_it_fetches():
    # 1000 bytes of L2: W's 600 push 600 of A out. The second reads W, which is there, then A, of which 400
    # are there; the other 600 push W out, which is dirty.
    made, rest = chain([read(A, 1000, 0), write(W, 600)], [read(W, 600), read(A, 1000, 0)], l2_bytes=1000)
    assert rest == {"a": (400, 0), "w": (600, 600)}
    assert fetched(made, count=2)[0] == 0
    assert memory(made) == (600, 600)


def test_a_kernel_that_begins_with_nothing_left_is_cold():
    rows = [read(A, 2000), read(B, 300), write(W, 40)]
    cold = accounted([rows], l2_start="cold")
    found = accounted([rows], l2_start={})
    assert found[:2] == cold[:2]
    assert found.left == {"a": (2000, 0), "b": (300, 0), "w": (40, 40)}
    assert cold.left is None  # it holds of each kernel: nobody goes on from there


def test_a_smaller_l2_takes_as_much_as_it_holds():
    made = accounted([[read(A, 2000)]], l2_bytes=1500, l2_start={"a": (2000, 2000)})
    assert made.bytes["memory_read"] > 0


def test_the_kernels_of_a_call_know_each_others_tensors():
    # grad_weight finds in L2 the grad_output that grad_input has read, under the same name, and no input.
    # What several cores miss at one time is to come once, so that bytes can be counted.
    profile = load_profile("910B", {"l2.most_fetches": 1})
    problem = ConvProblem((2, 32, 16, 16), (32, 32, 1, 1))
    made = estimate(problem, output_mask=(True, True, False)).kernels
    kernels = {result.name: result.kernel for result in made}
    first, second = kernels["grad_input"], kernels["grad_weight"]
    rest = left_by(first, profile, "cold")
    assert set(rest) & set(second.tensors) == {"grad_output NDC1HWC0"}
    cold, chained = (account(second, profile, start).bytes["memory_read"] for start in ("cold", rest))
    # grad_output once, but for bytes lost in rounding the parts of equal cores down
    assert 2 * 32 * 16 * 16 * 2 - 64 <= cold - chained <= 2 * 32 * 16 * 16 * 2
    timed = time_kernel(second, profile, l2_start=rest)
    assert (
        time_kernel(second, profile).cycles
        <= timed.cycles
        <= time_kernel(second, profile, l2_start="cold").cycles
    )


def test_the_example_of_an_outcome():
    # As the docstring of `L2Outcome` tells it: four equal cores; 2000 dirty bytes and 4000 + 4000 in 8000.
    one, four = (GmTensor(name, (2000,), "float16", 2) for name in "pq")
    rows = program(read(one, 4000, 0), read(one, 4000, 0), read(four, 1000, 0))
    made = account(
        kernel([(0, rows)] * 4, tensors=(one, four, W)), FakeProfile(l2_bytes=8000), {"w": (2000, 2000)}
    )
    # The dirty bytes that leave, over the 4 * (4000 + 4000 + 1000) bytes that are read.
    pushed = Fraction(2000, 36_000)
    assert pushed == Fraction(1, 18)
    ((outcomes,),) = made.outcomes
    # Where nobody loses by reading together it is left out only of kernels that fit.
    assert outcomes == {
        0: L2Outcome(Fraction(1, 4), pushed, readers=4, together=1),
        1: L2Outcome(0, pushed, together=1),
        2: L2Outcome(1, pushed),
    }
    assert memory(made) == (8000, 2000)


@pytest.mark.parametrize(("most", "times"), [(1, 1), (2, 2), (8, 3)])
def test_what_several_cores_miss_at_one_time_crosses_the_link_for_each_of_them(most, times):
    # Three cores read 4000 bytes of one slice in one round over a link of 10 bytes a cycle, then each of them
    # again, which hits.
    one = GmTensor("p", (2000,), "float16", 2)
    rows = program(read(one, 4000, 0), read(one, 4000, 0))
    made = kernel([(0, rows)] * 3, tensors=(one, W))
    profile = FakeProfile(memory=(10, 10**6), most_fetches=most)
    found = account(made, profile, "cold")
    assert memory(found) == (4000 * times, 0)
    # Each core waits for all of it whatever crosses.
    assert found.outcomes[0][0][0] == L2Outcome(Fraction(1, 3), readers=3, together=1)
    timed = time_kernel(made, profile, l2_start="cold")
    # The link has 10 bytes a cycle, a core's own path too, by which the second read takes 400 cycles.
    assert 400 * times + 400 <= timed.cycles <= 400 * times + 402
    assert timed.bytes["memory_read"] == 4000 * times


# --- the stack ---------------------------------------------------------------------------------------------


def test_a_slice_stays_as_long_as_no_more_than_the_capacity_is_accessed_after_it():
    # Slice 0, then 500 or 501 further bytes, then slice 0 again, in 1000 bytes.
    for other, part in ((500, 0), (501, Fraction(1, 500)), (750, Fraction(1, 2)), (1000, 1)):
        made = accounted(
            [[read(A, 500, 0), read(W, other, 0), read(A, 500, 0)]], l2_bytes=1000, l2_start="cold"
        )
        assert fetched(made, count=3)[2] == part


def test_accessing_a_slice_again_keeps_it():
    # 0 1 0 2 0 with room for two slices: 0 is accessed often enough, 1 goes.
    made = accounted([reads(A, 500, [0, 1, 0, 2, 0, 1])], l2_bytes=1000, l2_start="cold")
    assert fetched(made, count=6) == [1, 1, 0, 1, 0, 1]


def test_a_slice_larger_than_l2_stays_in_part():
    made = accounted([[read(A, 2000, 0), read(A, 2000, 0)]], l2_bytes=500, l2_start="cold")
    assert fetched(made) == [1, Fraction(3, 4)]
    assert memory(made) == (3500, 0)


def stack_misses(sizes, accesses, capacity):
    """Missing bytes by definition: a slice's bytes lie below all that was accessed since it was."""
    missed, order = [], []
    for number in accesses:
        depth = (
            sum(sizes[other] for other in order[order.index(number) + 1 :]) if number in order else capacity
        )
        missed.append(sizes[number] - min(sizes[number], max(0, capacity - depth)))
        if number in order:
            order.remove(number)
        order.append(number)
    return missed


slices = st.lists(st.integers(1, 60), min_size=1, max_size=8)
orders = st.lists(st.integers(0, 7), min_size=1, max_size=25)


@settings(max_examples=300, deadline=None)
@given(slices, orders, st.integers(1, 300))
def test_misses_are_those_of_a_stack_of_bytes(sizes, accesses, capacity):
    accesses = [number % len(sizes) for number in accesses]
    made = accounted(
        [[read(A, sizes[number], number) for number in accesses]], l2_bytes=capacity, l2_start="cold"
    )
    missed = stack_misses(sizes, accesses, capacity)
    assert fetched(made, count=len(accesses)) == [
        Fraction(part, sizes[number]) for part, number in zip(missed, accesses, strict=True)
    ]
    assert memory(made) == (sum(missed), 0)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("rwa"), st.integers(0, 5)), max_size=12), min_size=1, max_size=3
    ),
    st.integers(1, 300),
    st.integers(1, 100),
)
def test_a_larger_l2_never_moves_more_over_memory(cores, capacity, more):
    make = {"r": read, "w": write, "a": lambda *at: write(*at, kind="atomic")}
    phase = [[make[what](A, 10 * (at + 1), at) for what, at in rows] for rows in cores]
    small, large = (accounted(phase, l2_bytes=c, l2_start="cold") for c in (capacity, capacity + more))
    assert large.bytes["memory_read"] <= small.bytes["memory_read"]
    # Of a slice that is dirty in part, the dirty bytes leave in proportion, rounded down each time.
    rounded = sum(map(len, cores))
    assert large.bytes["memory_write"] <= small.bytes["memory_write"] + rounded


# --- dirty bytes -------------------------------------------------------------------------------------------


def pushed(made, index, phase=0, core=0):
    return made.outcomes[phase][core].get(index, HIT).pushed_out


def test_writes_that_fit_are_absorbed():
    made = accounted([[write(W, 1000, place) for place in range(4)]], l2_bytes=4000)
    assert memory(made) == (0, 0)


def test_writes_that_do_not_fit_push_each_other_out():
    # Four writes of 1000 bytes in 2500: 1500 dirty bytes leave. Every byte written carries 3/8 of one.
    made = accounted([[write(W, 1000, place) for place in range(4)]], l2_bytes=2500, l2_start="cold")
    assert memory(made) == (0, 1500)
    assert [pushed(made, index) for index in range(4)] == [Fraction(3, 8)] * 4


def test_reads_push_out_dirty_bytes_and_carry_them():
    # 1000 dirty bytes, then 1500 read in 2000: 500 dirty ones leave. More is read than written, so every byte
    # read carries a third of one, also those that hit.
    rows = [write(W, 1000, 0), read(A, 1500, 0), read(A, 1500, 0)]
    made = accounted([rows], l2_bytes=2000, l2_start="cold")
    assert memory(made) == (1500, 500)
    assert made.outcomes == (({1: L2Outcome(1, Fraction(1, 6), 1), 2: L2Outcome(0, Fraction(1, 6))},),)


def test_writes_carry_what_they_push_out_where_more_is_written_than_read():
    rows = [write(W, 1000, 0), write(W, 1000, 1), read(A, 1000, 0)]
    made = accounted([rows], l2_bytes=2000, l2_start="cold")
    assert memory(made) == (1000, 1000)
    assert [pushed(made, index) for index in range(3)] == [Fraction(1, 2), Fraction(1, 2), 0]


def test_reads_carry_what_leaves_where_as_much_is_read_as_written():
    made = accounted([[write(W, 1000, 0), read(A, 1000, 0)]], l2_bytes=1500, l2_start="cold")
    assert [pushed(made, index) for index in range(2)] == [0, Fraction(1, 2)]


def test_each_phase_carries_what_it_pushes_out():
    made = accounted([[write(W, 1000, 0)]], [[read(A, 2000, 0)]], l2_bytes=2500, l2_start="cold")
    assert pushed(made, 0) == 0
    assert pushed(made, 0, phase=1) == Fraction(500, 2000)


def test_clean_bytes_leave_for_nothing():
    made = accounted([reads(A, 500, range(4))], l2_bytes=700, l2_start="cold")
    assert memory(made) == (2000, 0)


def test_bytes_written_twice_leave_once():
    made = accounted([[write(W, 900, 0), write(W, 900, 0), read(A, 1000, 0)]], l2_bytes=1000, l2_start="cold")
    assert memory(made) == (1000, 900)


def test_what_was_pushed_out_is_clean_when_it_comes_back():
    # Written, pushed out, read again, pushed out again: one write-back.
    rows = [write(W, 1000, 0), read(A, 1000, 0), read(W, 1000, 0), read(A, 1000, 0)]
    assert memory(accounted([rows], l2_bytes=1000, l2_start="cold")) == (3000, 1000)


def test_a_warm_kernel_finds_its_own_output_dirty():
    # Run again and again, each run pushes out all 4000 bytes that the one before has written, or its own.
    made = accounted([[write(W, 1000, place) for place in range(4)]], l2_bytes=2500)
    assert memory(made) == (0, 4000)


def test_what_is_dirty_at_the_end_stays():
    assert memory(accounted([[write(W, 1000, 0)]], l2_bytes=1000, l2_start="cold")) == (0, 0)


# --- tensors that L2 does not keep -------------------------------------------------------------------------


def test_a_tensor_that_is_not_cached_is_read_from_memory_and_pushes_nothing_out():
    stream = replace(A, cached=False)
    made = accounted(
        [[write(W, 900, 0), read(stream, 1000, 0), read(stream, 1000, 0), read(W, 900, 0)]],
        l2_bytes=1000,
        tensors=(stream, W),
    )
    assert fetched(made, count=4) == [0, 1, 1, 0]
    assert memory(made) == (2000, 0)


def test_a_tensor_that_is_not_cached_is_written_to_memory():
    through = replace(W, cached=False)
    made = accounted([[write(through, 900, 0)]], tensors=(through,))
    assert pushed(made, 0) == 1
    assert memory(made) == (0, 900)


# --- what timing makes of it -------------------------------------------------------------------------------


def test_timing_uses_the_same_account():
    made = kernel([program(read(A, 2000, 0), read(A, 2000, 0))], tensors=ALL)
    profile = FakeProfile(l2_bytes=500, memory=(1, 1))
    timeline = time_kernel(made, profile, l2_start="cold")
    assert timeline.bytes == account(made, profile, "cold").bytes
    # Main memory does one byte a cycle: 2000 bytes, then three quarters of them.
    assert list(timeline.phases[0].cores[0].end) == [2000, 3500]


def test_a_write_carries_the_dirty_bytes_that_make_room():
    # 1000 bytes in 500 push out 500, half a byte each: 250 for either write, two a cycle.
    made = kernel([program(write(W, 500, 0), write(W, 500, 1))], tensors=ALL)
    timeline = time_kernel(made, FakeProfile(l2_bytes=500, memory=(2, 2)), l2_start="cold")
    assert list(timeline.phases[0].cores[0].end) == [125, 250]


def test_cores_with_equal_signatures_share_their_outcomes_unfolded():
    made = kernel([(0, program(*reads(A, 500, range(4))))] * 4, tensors=ALL)
    profile = FakeProfile(memory=(10, 5), l2_bytes=900)
    folded, unfolded = (time_kernel(made, profile, folded=f, l2_start="cold") for f in (True, False))
    (one,) = folded.phases[0].cores
    assert all(core.end == one.end for core in unfolded.phases[0].cores)
    assert folded.bytes == unfolded.bytes


def test_a_signature_that_lies_is_refused():
    made = kernel([(0, program(read(A, 10))), (0, program(read(A, 10), read(A, 10)))], tensors=ALL)
    with pytest.raises(ProgramError, match="equal signatures, but 1 and 2 instructions"):
        time_kernel(made, FakeProfile(), folded=False)


def test_an_unknown_start_is_refused():
    with pytest.raises(AscendSimError, match="l2_start is 'hot'; it must be one of warm, cold, handed"):
        accounted([[read(A, 10)]], l2_start="hot")


def test_traffic_of_an_unlisted_tensor_is_refused():
    with pytest.raises(
        ProgramError, match="kernel fake moves bytes of other, which is not among its tensors a"
    ):
        accounted([[read(replace(A, name="other"), 10)]])
