"""Does a process that computes gradients keep what it has freed?"""

import platform
import subprocess
import sys

import pytest

# Page faults of the second of two rounds that take and free as much, before and after the call.
ROUNDS = """
from resource import RUSAGE_SELF, getrusage
import numpy as np
from ascendsim.native.freed_memory import keep_freed_memory

def faults():
    found = []
    for _ in range(2):
        before = getrusage(RUSAGE_SELF).ru_minflt
        arrays = [np.ones(1 << 19) for _ in range(4)]
        del arrays
        found.append(getrusage(RUSAGE_SELF).ru_minflt - before)
    return found[-1]

before = faults()
peak = getrusage(RUSAGE_SELF).ru_maxrss
keep_freed_memory()
print(before, faults(), getrusage(RUSAGE_SELF).ru_maxrss - peak)
"""
# What a call takes, in a process that does nothing else.
CALLS = """
from resource import RUSAGE_SELF, getrusage
import numpy as np
from ascendsim import convolution_backward

dy, x, w = (np.ones(shape, np.float16) for shape in [(4, 128, 28, 28), (4, 128, 28, 28), (128, 128, 3, 3)])
rest = [128], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, (True, True, False), 0

def faults():
    before = getrusage(RUSAGE_SELF).ru_minflt
    convolution_backward(dy, x, w, *rest, product="910B2", accumulation="seq:RNE", timing=False)
    return getrusage(RUSAGE_SELF).ru_minflt - before

print(*[faults() for _ in range(4)])
"""

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="another C library has other rules for what it gives back"
)


def printed(code, **options):
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, **options)
    return [int(word) for word in made.stdout.split()]


def test_memory_that_is_freed_is_there_for_the_next_round():
    before, after, more_kib = printed(ROUNDS)
    # 16 MiB are 4,096 pages, or fewer larger ones.
    assert before > 8
    assert after < before / 4
    # The block itself is never touched: all that is kept is what the rounds took.
    assert more_kib < 20 << 10


def test_equal_calls_take_no_memory_anew():
    first, *_, last = printed(CALLS)
    # The gradients and what is made on the way are 2,400 pages.
    assert first > 2400 > 100 > last
