"""Run functions under the processor's default arithmetic, whatever the calling thread has set.

Flush to zero, denormals are zero and rounding modes other than to nearest change the results of numpy, of
Python and of compiled code without a word. They belong to a thread: so a function that promises bits takes
the default for the time of its call, in the thread that calls it, and gives back what was set. Threads that
it starts begin with what it has.
"""

import ctypes
import inspect
import platform
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import NamedTuple, ParamSpec, TypeVar

from ascendsim.errors import UnsupportedError
from ascendsim.native.control_word import ControlWord, accessors, control_word
from ascendsim.native.object_code import ObjectCode

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

ONE, HALF, SMALLEST = 1.0, 2.0**-53, 5e-324  # of float64, as `is_default` takes them
YIELDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def default_arithmetic(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Make a function run under the default arithmetic: nearest, ties to even, subnormals kept.

    The control word of the calling thread is as before when the function returns or raises. On a processor
    whose control word is not known the call raises UnsupportedError if the arithmetic is not the default.

    Raises   TypeError for a generator, whose body would run after the call has returned
    """
    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & YIELDS:
        raise TypeError(
            f"default_arithmetic: {function.__qualname__} is a generator, whose body would run under what "
            "its reader has set; return a list, or guard what it calls"
        )

    @wraps(function)
    def under_default(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        access = _access()
        found = access.read()
        if found & access.mask == access.default:
            return function(*args, **kwargs)
        access.write(access.default)
        try:
            return function(*args, **kwargs)
        finally:
            access.write(found)

    return under_default


def default_floats(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Do the same for a function of Python's floats alone, such as one that reads them from a text.

    It loads machine code only where the floats show that another mode is set: so what needs no numpy, as to
    load a product, does not load it for this.
    """
    guarded = default_arithmetic(function)

    @wraps(function)
    def on_floats(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return (function if is_default(ONE, HALF, SMALLEST) else guarded)(*args, **kwargs)

    return on_floats


class _Access(NamedTuple):
    """How to read and write the control word of the calling thread; the default under the mask."""

    read: Callable[[], int]
    write: Callable[[int], None]
    default: int
    mask: int
    engine: object  # keeps the machine code


@cache
def _access() -> _Access:
    word = control_word()
    return _Access(_checked_default, _refuse_write, 0, 0, None) if word is None else _compiled(word)


def _compiled(word: ControlWord) -> _Access:
    # Imported here: code that promises no bits need not load any.
    from ascendsim.native.cache import file_of, kept
    from ascendsim.native.loading import load

    loaded = load(kept(file_of("control_word", [repr(word).encode()]), partial(_emitted, word)))
    read = ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.address("read"))
    write = ctypes.CFUNCTYPE(None, ctypes.c_int64)(loaded.address("write"))
    return _Access(read, write, word.default & word.mask, word.mask, loaded)


def _emitted(word: ControlWord) -> ObjectCode:
    from ascendsim.native.processor import emit

    return emit("read", accessors(word))


def _checked_default() -> int:
    """Return 0 if the arithmetic of Python's floats is the default one, for want of a word to read."""
    if not is_default(ONE, HALF, SMALLEST):
        raise UnsupportedError(
            "arithmetic: this thread rounds in another way than to nearest, or takes subnormal numbers for "
            f"zero, and ascendsim cannot change that on this processor ({platform.machine()}): set the "
            "default (in C: fesetenv(FE_DFL_ENV)) before calling"
        )
    return 0


def _refuse_write(_word: int) -> None:
    raise AssertionError("nothing to write: what was read is the default")


def is_default(one: float, half: float, smallest: float) -> bool:
    """Tell whether arithmetic on floats rounds to nearest, ties to even, and keeps subnormals.

    one, half, smallest   1, half its distance to its upper neighbour, and the smallest positive float
    """
    # Parameters, so that no compiler works it out beforehand. 1 + h and 1 + 3 h are ties, to the even 1 and
    # 1 + 4 h; each other mode gets one of the three sums wrong. Flushed, the last sum is zero.
    nearest = one + half == one and one + 3 * half == one + 4 * half and -one - 3 * half == -one - 4 * half
    return nearest and smallest + smallest > smallest
