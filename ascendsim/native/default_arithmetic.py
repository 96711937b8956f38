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
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from ascendsim.errors import UnsupportedError
from ascendsim.native.object_code import ObjectCode

Value = Any  # a value or a builder of llvmlite, which has no types here and is imported late


class ControlWord(NamedTuple):
    """The control word of one kind of processor.

    default        what a thread starts with
    toward_zero    the default with rounding toward zero
    mask           the bits that change results or stop a program
    rounded        the bit that an operation sets whose result is rounded; 0: it is in another word
    read, write    x86-64: instructions, $0 being the address of 32 bits; aarch64: functions of the compiler
    """

    default: int
    toward_zero: int
    mask: int
    rounded: int
    read: str
    write: str


# The compiler has functions for MXCSR as well, but does not say of them that they touch more than an address.
_X86: Final = ControlWord(0x1F80, 0x7F80, 0xFFC0, 0x20, "stmxcsr ($0)", "ldmxcsr ($0)")
_ARM: Final = ControlWord(0, 3 << 22, 0xFFFFFFFF, 0, "llvm.aarch64.get.fpcr", "llvm.aarch64.set.fpcr")
CONTROL_WORDS: Final = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM, "arm64": _ARM}


def control_word() -> ControlWord | None:
    """Return the control word of this processor; None if this project does not know it."""
    return CONTROL_WORDS.get(platform.machine())


def emit_read(builder: Value, word: ControlWord) -> Value:
    """Emit code that reads the control word of the thread that runs it, as 64 bits.

    builder   of llvmlite, inside a function
    """
    from llvmlite import ir

    long = ir.IntType(64)
    if word is _ARM:
        return builder.call(_declared(builder, ir.FunctionType(long, []), word.read), [])
    place = _place(builder)
    _run_on(builder, word.read, place)
    return builder.zext(builder.load(place), long)


def emit_write(builder: Value, word: ControlWord, value: Value) -> None:
    """Emit code that sets the control word of the thread that runs it to a value of 64 bits.

    The compiler takes arithmetic for independent of the control word and may move it across; it does not move
    calls of functions that write memory. So arithmetic under another word belongs in a function of its own,
    which is kept out of line.
    """
    from llvmlite import ir

    if word is _ARM:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
        builder.call(_declared(builder, kind, word.write), [value])
        return
    place = _place(builder)
    builder.store(builder.trunc(value, ir.IntType(32)), place)
    _run_on(builder, word.write, place)


def _declared(builder: Value, kind: Value, name: str) -> Value:
    from llvmlite import ir

    found = builder.module.globals.get(name)
    return ir.Function(builder.module, kind, name) if found is None else found


def _place(builder: Value) -> Value:
    from llvmlite import ir

    # At the entry of the function: in a loop the stack would grow with every turn.
    with builder.goto_entry_block():
        return builder.alloca(ir.IntType(32))


def _run_on(builder: Value, instruction: str, place: Value) -> None:
    from llvmlite import ir

    long = ir.IntType(64)
    kind, address = ir.FunctionType(ir.VoidType(), [long]), builder.ptrtoint(place, long)
    builder.asm(kind, instruction, "r,~{memory}", [address], side_effect=True)


def accessors(word: ControlWord) -> str:
    """Return functions `read` (-> int64) and `write` (int64 ->) of the control word in LLVM's language."""
    from llvmlite import ir

    long, module = ir.IntType(64), ir.Module("control_word")
    read = ir.Function(module, ir.FunctionType(long, []), "read")
    builder = ir.IRBuilder(read.append_basic_block())
    builder.ret(emit_read(builder, word))
    write = ir.Function(module, ir.FunctionType(ir.VoidType(), [long]), "write")
    builder = ir.IRBuilder(write.append_basic_block())
    emit_write(builder, word, write.args[0])
    builder.ret_void()
    for function in (read, write):
        # No tables for unwinding the stack, which take relocations of other kinds.
        function.attributes.add("nounwind")
    return str(module)


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
    """Wrap a function of Python's floats alone likewise, such as one that reads floats from a text.

    It loads machine code only where the floats show that another mode is set: so what needs no numpy, as to
    load a product, does not load it for this.
    """
    guarded = default_arithmetic(function)

    @wraps(function)
    def on_floats(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return (function if is_default(ONE, HALF, SMALLEST) else guarded)(*args, **kwargs)

    return on_floats


class _Access(NamedTuple):
    """Reader and writer of the calling thread's control word, and the default under the mask."""

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
    from ascendsim.native.elf import load

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
    """Return whether arithmetic on floats rounds to nearest, ties to even, and keeps subnormals.

    one, half, smallest   1, half its distance to its upper neighbour, and the smallest positive float
    """
    # Parameters, so that no compiler works it out beforehand. 1 + h and 1 + 3 h are ties, to the even 1 and
    # 1 + 4 h; each other mode gets one of the three sums wrong. Flushed, the last sum is zero.
    nearest = one + half == one and one + 3 * half == one + 4 * half and -one - 3 * half == -one - 4 * half
    return nearest and smallest + smallest > smallest
