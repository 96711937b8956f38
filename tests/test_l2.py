"""Are the right reads served by main memory?"""

from dataclasses import replace
from fractions import Fraction

import pytest
from fake_machine import Fake, FakeProfile, kernel, program

from ascendsim.errors import AscendSimError, ProgramError
from ascendsim.l2 import account
from ascendsim.program import GmTensor
from ascendsim.timing import time_kernel

A = GmTensor("a", (1000,), "float16", 2)  # 2000 bytes
B = GmTensor("b", (500,), "float16", 2)  # 1000 bytes
W = GmTensor("w", (1000,), "float32", 4, role="workspace")  # 4000 bytes


def read(tensor, size):
    return Fake("MTE2", kind="read", bytes=size, peak=10, tensor=tensor)


def write(tensor, size, kind="write"):
    return Fake("MTE3", kind=kind, bytes=size, peak=10, tensor=tensor)


def accounted(*programs, l2_bytes=10**6, l2_start="warm", tensors=(A, B, W)):
    made = kernel(list(programs), tensors=tensors)
    return account(made, FakeProfile(l2_bytes=l2_bytes), l2_start)


def test_a_warm_kernel_that_fits_misses_nothing():
    made = accounted(program(read(A, 2000), read(B, 300)))
    assert made.misses == {"a": 0, "b": 0}
    assert made.bytes == {"l2_read": 2300, "l2_write": 0, "memory": 0}


def test_the_first_touch_of_every_byte_misses_when_cold():
    # Four cores read all of a, 2000 bytes, twice: 16,000 bytes read, 2000 of them for the first time.
    made = accounted(*[program(read(A, 2000), read(A, 2000))] * 4, l2_start="cold")
    assert made.misses == {"a": Fraction(1, 8)}
    assert made.bytes == {"l2_read": 16_000, "l2_write": 0, "memory": 2000}


def test_what_is_read_in_part_misses_in_full_when_cold():
    made = accounted(program(read(A, 700)), l2_start="cold")
    assert made.misses == {"a": 1}
    assert made.bytes["memory"] == 700


@pytest.mark.parametrize("l2_start", ["warm", "cold"])
def test_a_workspace_written_by_the_kernel_is_in_l2(l2_start):
    made = accounted(program(write(W, 4000), read(W, 4000)), l2_start=l2_start)
    assert made.misses == {"w": 0}
    assert made.bytes == {"l2_read": 4000, "l2_write": 4000, "memory": 0}


def test_atomics_count_as_writes():
    assert accounted(program(write(W, 400, "atomic"), write(W, 4))).bytes["l2_write"] == 404


def test_of_what_does_not_fit_the_part_that_cannot_stay_misses():
    # The tensors take 7000 bytes, L2 holds 5250: a quarter cannot stay, on first touch or later.
    made = accounted(program(read(A, 2000), read(A, 2000), read(W, 400)), l2_bytes=5250)
    assert made.misses == {"a": Fraction(1, 4), "w": Fraction(1, 4)}
    assert made.bytes["memory"] == 1000 + 100


def test_cold_and_too_large_adds_first_touches_and_lost_ones():
    # Half of the 4000 bytes read are first touches and miss; of the other half a quarter does.
    made = accounted(program(read(A, 2000), read(A, 2000)), l2_bytes=5250, l2_start="cold")
    assert made.misses == {"a": Fraction(5, 8)}
    assert made.bytes["memory"] == 2500


def test_bytes_are_those_of_all_cores_and_phases():
    made = kernel([(0, program(read(A, 100)))] * 3, [program(write(W, 7), read(B, 5))], tensors=(A, B, W))
    assert account(made, FakeProfile()).bytes == {"l2_read": 305, "l2_write": 7, "memory": 0}


def test_timing_uses_the_same_account():
    made = kernel([program(read(A, 2000), read(A, 2000))], tensors=(A, B, W))
    profile = FakeProfile(l2_bytes=5250, memory=(1, 1))
    timeline = time_kernel(made, profile, l2_start="cold")
    assert timeline.bytes == account(made, profile, "cold").bytes
    # Main memory does one byte a cycle, and 5/8 of 2000 bytes of each transfer come from there.
    assert timeline.cycles == 2500


def test_a_partly_missed_byte_is_a_missed_byte():
    # 7000 bytes of tensors in 6000: 1/7 misses. Of 10 bytes that is 1.43, so two, one a cycle.
    made = kernel([program(read(A, 10))], tensors=(A, B, W))
    assert time_kernel(made, FakeProfile(l2_bytes=6000, memory=(1, 1))).cycles == 2


def test_an_unknown_start_is_refused():
    with pytest.raises(AscendSimError, match="l2_start is 'hot'; it must be one of warm, cold"):
        accounted(program(read(A, 10)), l2_start="hot")


def test_traffic_of_an_unlisted_tensor_is_refused():
    with pytest.raises(
        ProgramError, match="kernel fake moves bytes of other, which is not among its tensors a"
    ):
        accounted(program(read(replace(A, name="other"), 10)))
