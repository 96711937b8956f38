"""Does anything but an answer come out of the first phase, whatever goes in?"""

import random
import resource
import time
from collections import Counter

import numpy as np
import pytest

from ascendsim.aclnn import (
    AclnnError,
    AclTensor,
    conv_tbc_backward_get_workspace_size,
    convolution_backward_get_workspace_size,
)
from ascendsim.errors import STATUS_NAMES
from tests.aclnn_calls import arguments_of
from tests.rules_calls import conv, tbc

RULES = ("documented", "documented-001", "documented-002", "documented-004", "shipped", "hardware")
PRODUCTS = (
    *("910_95", "910_93", "910B", "310P", "910", "310B", "310", "950PR_9589"),
    *("910B3", "910B", "910B", "910B", "910_93"),  # what most rule sets support comes more often
)
DTYPES = (
    *("float32", "float16", "bfloat16", "hifloat8", "float8_e4m3fn", "float8_e5m2", "float64", "int8"),
    *("FLOAT", "undefined", "", None, 7),
)
FORMATS = ("NCL", "NCHW", "NCDHW", "ND", "NHWC", "NDHWC", "NC1HWC0", "", None, 3, b"ND")
EXTENTS = (0, 1, 2, 3, 4, 7, 255, 256, 65536, 2**31 - 1, 2**31, 2**40, 2**62, 2**63, 2**200, -1, -(2**63))
ODD = (
    *(None, True, False, 0, 1, -1, 3, 2**31, -(2**31), 2**63, 2**500, 0.5, float("nan"), float("inf")),
    *("", "abc", b"x", (), [], {}, set(), object(), [None], [[1]], [1.5], ["a"], [True], range(10**12)),
    *(
        np.ones(3),
        np.ones((2, 2), int),
        np.int8(3),
        np.array(5),
        complex(1, 2),
        AclTensor((1, 2, 3), "float32"),
    ),
)
MEMORY_BYTES = 2**30
CALL_SECONDS = 30


def odd_tensor(pick):
    """Return something that may be a tensor."""
    if pick.random() < 0.2:
        return pick.choice(ODD)
    rank = pick.choice((0, 1, 2, 3, 3, 4, 4, 5, 5, 6, 70, 1000))
    shape = [pick.choice(EXTENTS[: pick.choice((4, 8, len(EXTENTS)))]) for _ in range(rank)]
    strides = (
        None if pick.random() < 0.8 else [pick.choice(EXTENTS) for _ in range(pick.choice((rank, rank + 1)))]
    )
    if pick.random() < 0.05:
        shape = pick.choice(ODD)
    if pick.random() < 0.1:
        shape = np.ones((2, 3, 4), pick.choice(("float32", "float16", "uint8", "int64")))
    return AclTensor(shape, pick.choice(DTYPES), pick.choice(FORMATS), strides)


def odd_array(pick):
    """Return something that may be an array of numbers."""
    if pick.random() < 0.3:
        return pick.choice(ODD)
    return [pick.choice(EXTENTS[: pick.choice((3, 6, len(EXTENTS)))]) for _ in range(pick.randrange(7))]


def odd_value(pick, name, value):
    """Return another value for an argument: another tensor, one of its fields changed, or anything."""
    if name == "cube_math_type":
        return pick.choice((0, 1, 2, 3, 4, 5, -1, 127, 128, *ODD))
    if name in ("transposed", "groups", "pad"):
        return pick.choice((*ODD, *EXTENTS))
    if name == "output_mask":
        return pick.choice(([pick.random() < 0.5 for _ in range(pick.choice((3, 3, 3, 0, 2, 4)))], *ODD))
    if not isinstance(value, AclTensor):
        return odd_array(pick)
    if pick.random() < 0.3:
        return odd_tensor(pick)
    about, shape = value.description, list(value.description.shape)
    kind = pick.randrange(4)
    if kind == 0 and shape:
        shape[pick.randrange(len(shape))] = pick.choice(EXTENTS)
    dtype = pick.choice(DTYPES) if kind == 1 else about.dtype
    layout = pick.choice(FORMATS) if kind == 2 else about.format
    return None if kind == 3 and pick.random() < 0.5 else AclTensor(tuple(shape), dtype, layout)


def plausible(pick):
    """Return the arguments of a call that is all right, but perhaps for product and rules."""
    dtype = pick.choice(("float32", "float16", "float16", "bfloat16", *DTYPES[:6]))
    if pick.random() < 0.2:
        sizes = {"time": pick.randrange(3, 9), "batch": pick.randrange(3), "taps": pick.randrange(4)}
        return tbc(**sizes, dtype=dtype, layout=pick.choice(("ND", "NCL")), cube_math_type=pick.randrange(4))
    axes, groups, transposed = pick.randrange(1, 4), pick.choice((1, 1, 2, 3)), pick.random() < 0.4
    sizes = [pick.randrange(3, 7) for _ in range(axes)]
    taps = [pick.randrange(1, 4) for _ in range(axes)]
    big, small = groups * pick.randrange(1, 4), groups * pick.randrange(1, 4)
    batch = pick.choice((1, 2, 2, 0))
    return conv(
        (batch, small if transposed else big, *sizes),
        (small, big // groups, *taps),
        stride=pick.choice((1, 2)),
        padding=0 if transposed else pick.choice((0, 1)),
        dilation=1,
        transposed=transposed,
        groups=groups,
        dtype=dtype,
        mask=tuple(pick.random() < 0.7 for _ in range(3)),
        cube_math_type=pick.choice((0, 1, pick.randrange(4))),
    )


def random_arguments(pick):
    """Return the arguments of one random call: all right, a little wrong, or nonsense throughout."""
    given = arguments_of(plausible(pick), arrays=False)
    names = list(given)
    wrong = names if pick.random() < 0.1 else pick.sample(names, pick.choice((0, 0, 1, 1, 2, 3)))
    for name in wrong:
        given[name] = odd_value(pick, name, given[name])
    return given


def first_phase(given, pick):
    """Ask the interface that the arguments are for, on some product, by some rules."""
    function = (
        conv_tbc_backward_get_workspace_size if "pad" in given else convolution_backward_get_workspace_size
    )
    return function(**given, product=pick.choice(PRODUCTS), rules=pick.choice(RULES))


def answered(given, pick):
    """Return the status of a call: 0, or that of an AclnnError; both must be complete."""
    try:
        size, executor = first_phase(given, pick)
    except AclnnError as error:
        refused = error
    else:
        assert size >= 16 * 2**20
        assert executor.decision.compute_dtype
        return 0
    assert refused.status in STATUS_NAMES
    assert refused.check
    assert len(str(refused)) < 2000
    return refused.status


def fuzz(count, seed):
    """Try random calls; return how often each status was answered."""
    pick, statuses = random.Random(seed), Counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for number in range(count):
        started = time.monotonic()
        given = random_arguments(pick)
        try:
            statuses[answered(given, pick)] += 1
        except Exception as error:
            raise AssertionError(f"call {number} of seed {seed}: {given}") from error
        assert time.monotonic() - started < CALL_SECONDS, given
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - peak
    assert grown < MEMORY_BYTES
    return statuses


def test_random_arguments_are_answered(capsys):
    statuses = fuzz(3000, seed=0)
    with capsys.disabled():
        print(f"\n3000 random calls answered: {dict(statuses)}")
    # The mixture is worth its name: many pass, and every status of the first phase occurs.
    assert statuses[0] > 250
    assert set(statuses) == {0, 161001, 161002, 561103}


@pytest.mark.slow
def test_a_hundred_thousand_random_calls_are_answered(capsys):
    statuses = fuzz(100_000, seed=1)
    with capsys.disabled():
        print(f"\n100000 random calls answered: {dict(statuses)}")
    assert sum(statuses.values()) == 100_000


def test_what_passes_also_runs(capsys):
    pick, statuses = random.Random(2), Counter()
    for _ in range(150):
        given = arguments_of(plausible(pick))
        try:
            size, executor = first_phase(given, pick)
        except AclnnError as error:
            statuses[error.status] += 1
        else:
            executor.run(size)  # nothing may fail here
            statuses[0] += 1
    with capsys.disabled():
        print(f"\n150 random calls with values: {statuses[0]} ran, {dict(statuses)}")
    assert statuses[0] > 25
