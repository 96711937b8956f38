"""Arguments that nobody should pass."""

from __future__ import annotations

import numpy as np

from ascendsim.aclnn import AclTensor

FORMATS = ("NCL", "NCHW", "NCDHW", "ND", "NHWC", "NDHWC", "NC1HWC0", "", None, 3, b"ND")
KINDS = (
    *("float32", "float16", "bfloat16", "hifloat8", "float8_e4m3fn", "float8_e5m2", "float64", "int8"),
    *("FLOAT", "undefined", "", None, 7),
)
EXTENTS = (0, 1, 2, 3, 4, 7, 255, 256, 65536, 2**31 - 1, 2**31, 2**40, 2**62, 2**63, 2**200, -1, -(2**63))


class Hostile:
    """Raises whatever it is asked."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __index__(self):
        raise RuntimeError("index")

    def __len__(self):
        raise RuntimeError("len")

    def __iter__(self):
        raise RuntimeError("iter")

    def __eq__(self, other):
        raise RuntimeError("eq")

    def __hash__(self):
        raise RuntimeError("hash")

    def __bool__(self):
        raise RuntimeError("bool")

    def __repr__(self):
        raise RuntimeError("repr")


class Unreadable:
    """An array of another library that must be converted."""

    shape, dtype = (1, 2, 3), "float32"

    def __array__(self, *_, **__):
        raise RuntimeError("convert me first")


def endless():
    """Yield ones for ever."""
    while True:
        yield 1


def nested(depth):
    """Return lists within lists."""
    made = []
    for _ in range(depth):
        made = [made]
    return made


def circular():
    """Return a list that holds itself."""
    made = [1]
    made.append(made)
    return made


def _kept(*values):
    """Return makers of values that every call may share."""
    return [lambda value=value: value for value in values]


# What can be used up or changed is made anew for each call.
ODD = (
    *_kept(None, True, False, 0, 1, -1, 3, 2**31, 2**63, 2**500, 0.5, float("nan"), float("inf"), 1 + 2j),
    *_kept("", "abc", "a\0b.toml", "x" * 10**5, "910B", "block:16:RNE", "\uff19", b"x", b"\1\1", Ellipsis),
    *_kept((), [None], [[1]], [1.5], ["a"], [True], [2**70] * 3, int, AclTensor, np.float32, NotImplemented),
    *_kept(np.ones(3), np.ones((2, 2), int), np.int8(3), np.array(5), np.ones(0), np.bool_(True)),
    *_kept(np.zeros((2, 3), "V0"), np.zeros((1, 2, 3), "V8"), np.array(["a"]), np.zeros((1, 2, 3), object)),
    *_kept(np.zeros((1, 2, 3), [("a", "f4"), ("b", "i2")]), np.ma.masked_all((1, 2, 3))),
    *_kept(np.datetime64("2026-01-01"), np.broadcast_to(np.float16(1), (1, 2, 2**40))),
    *_kept(np.lib.stride_tricks.as_strided(np.ones(9, np.float16)[1:], (1, 2, 3), (0, 1, 2))),
    *(list, dict, set, object, Hostile, Unreadable, endless, circular),
    *(lambda: [Hostile()], lambda: {"Hostile": 1}, lambda: nested(3), lambda: nested(2000), lambda: int),
    *(lambda: range(10**12), lambda: iter(range(10**12)), lambda: [range(10**12)]),
    lambda: AclTensor((1, 2, 3), "float32"),
)


def odd(pick):
    """Return something that nobody should pass."""
    return pick.choice(ODD)()


def odd_tensor(pick):
    """Return something that may be a tensor of the two-phase interface."""
    if pick.random() < 0.2:
        return odd(pick)
    rank = pick.choice((0, 1, 2, 3, 3, 4, 4, 5, 5, 6, 70, 1000))
    shape = [pick.choice(EXTENTS[: pick.choice((4, 8, len(EXTENTS)))]) for _ in range(rank)]
    strides = None
    if pick.random() < 0.2:
        strides = [pick.choice(EXTENTS) for _ in range(pick.choice((rank, rank + 1)))]
    if pick.random() < 0.05:
        shape = odd(pick)
    if pick.random() < 0.1:
        shape = np.ones((2, 3, 4), pick.choice(("float32", "float16", "uint8", "int64")))
    return AclTensor(shape, pick.choice(KINDS), pick.choice(FORMATS), strides)


def odd_array(pick):
    """Return something that may be an array of numbers."""
    if pick.random() < 0.3:
        return odd(pick)
    return [pick.choice(EXTENTS[: pick.choice((3, 6, len(EXTENTS)))]) for _ in range(pick.randrange(7))]


def odd_value(pick, name, value):
    """Return another value for an argument: another tensor, one of its fields changed, or anything."""
    if name == "cube_math_type":
        return pick.choice((0, 1, 2, 3, 4, 5, -1, 127, 128, "USE_HF32", odd(pick)))
    if name in ("transposed", "groups", "pad"):
        return odd(pick) if pick.random() < 0.5 else pick.choice(EXTENTS)
    if name == "output_mask":
        if pick.random() < 0.5:
            return odd(pick)
        return [pick.random() < 0.5 for _ in range(pick.choice((3, 3, 3, 0, 2, 4)))]
    if not isinstance(value, AclTensor):
        return odd_array(pick)
    if pick.random() < 0.3:
        return odd_tensor(pick)
    return _spoilt(pick, value)


def _spoilt(pick, tensor):
    """Return a tensor with one of its fields changed, or none at all."""
    about, shape = tensor.description, list(tensor.description.shape)
    kind = pick.randrange(5)
    if kind == 0 and shape:
        shape[pick.randrange(len(shape))] = pick.choice(EXTENTS)
    dtype = pick.choice(KINDS) if kind == 1 else about.dtype
    layout = pick.choice(FORMATS) if kind == 2 else about.format
    strides = [pick.choice(EXTENTS[:8]) for _ in shape] if kind == 3 else None
    return None if kind == 4 and pick.random() < 0.5 else AclTensor(tuple(shape), dtype, layout, strides)
