"""Two objects are alike if nobody could tell them apart but by their addresses.

Many of ours are compared by identity (kernels, tensors in GM, slots, profiles), so that `==` says little of
what comes out of a pickle. Here both are walked side by side: types, values, and for slots and tensors that
one object on the left is always the same one on the right.
"""

import array
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType

import numpy as np

from ascendsim.ops.lowering.known import KeptProgram
from ascendsim.ops.results import Retimed
from ascendsim.program.kernel import Deferred
from ascendsim.program.places import GmTensor, Slot
from ascendsim.program.program import Program

PLAIN = (int, float, str, bytes, Fraction, Path, type(None), range, slice, np.dtype)
CODE = (type, FunctionType, BuiltinFunctionType)


def assert_alike(one, other):
    """Fail with the place of the first difference."""
    partner, seen = {}, {}
    queue = [("it", one, other)]
    while queue:
        where, a, b = queue.pop()
        # A nest is made of functions, so that what comes back is its instructions.
        assert type(a) is type(b) or (isinstance(a, Program) and isinstance(b, Program)), where
        if isinstance(a, PLAIN):
            assert a == b, (where, a, b)
            continue
        if isinstance(a, CODE):
            assert a is b, where
            continue
        if isinstance(a, Slot | GmTensor):
            assert partner.setdefault(id(a), id(b)) == id(b), f"{where}: {a} has become two"
            assert partner.setdefault(("back", id(b)), id(a)) == id(a), f"{where}: two have become {b}"
        if (id(a), id(b)) in seen:
            continue
        seen[id(a), id(b)] = a, b  # kept, so that no address is used again
        parts, others = dict(parts_of(a)), dict(parts_of(b))
        assert list(parts) == list(others), where
        queue += [(f"{where}.{name}", part, others[name]) for name, part in parts.items()]


def parts_of(value):
    """Yield (name, part) of all that makes a value what it is; what it works out when asked, too."""
    if isinstance(value, Retimed):
        yield "timeline", value.timeline
    elif isinstance(value, KeptProgram):
        # Whether the program has been written by now is no part of it.
        yield "build", value._build
    elif isinstance(value, np.ndarray):
        yield from (("dtype", value.dtype), ("shape", value.shape), ("bytes", value.tobytes()))
    elif isinstance(value, bytearray):
        yield "bytes", bytes(value)
    elif isinstance(value, frozenset | set):
        yield "items", tuple(sorted(value))
    elif isinstance(value, list | tuple | array.array | Deferred):
        yield from ((str(index), part) for index, part in enumerate(value))
    elif isinstance(value, dict):
        # By number: a key may be compared by identity. Their order counts, since reports follow it.
        yield from ((f"key {index}", key) for index, key in enumerate(value))
        yield from ((f"value {index}", part) for index, part in enumerate(value.values()))
    elif isinstance(value, partial):
        yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, MethodType):
        yield from (("of", value.__self__), ("function", value.__func__))
    elif isinstance(value, Program):
        # Without what it has worked out already because somebody asked.
        names = ("slots", "buffer_bytes", "hazards", "instructions", "posts")
        waits = ("done_back", "end_back", "trail_back")
        yield from ((name, getattr(value, name)) for name in (*names, *waits))
    elif is_dataclass(value):
        names = [field.name for field in fields(value)]
        yield from ((name, getattr(value, name)) for name in names)
    else:
        names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        names += list(getattr(value, "__dict__", ()))
        assert names, f"how is a {type(value).__name__} taken apart?"
        yield from ((name, getattr(value, name)) for name in names)
