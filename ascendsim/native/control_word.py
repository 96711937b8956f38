"""The control word of the processor's floating-point arithmetic, which every thread has for itself.

It says how results are rounded and whether subnormal numbers count as zero. The processor of a thread starts
with the default: nearest, ties to even, subnormals kept. A library or a caller may set it otherwise, for one
thread and all threads that this one starts.

    x86-64    MXCSR: rounding in bits 13 and 14, flush to zero in 15, denormals are zero in 6, exceptions that
              do not trap in 7 to 12; bits 0 to 5 are what happened so far
    aarch64   FPCR: rounding in bits 22 and 23, flush to zero in 24 (binary16: 19), traps in 8 to 15; what
              happened so far is in another register

Source  Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, 10.2.3; Arm Architecture
        Reference Manual, FPCR
"""

import platform
from typing import Any, Final, NamedTuple

Value = Any  # a value or a builder of llvmlite, which has no types here and is imported late


class ControlWord(NamedTuple):
    """The control word of one kind of processor.

    default        what a thread starts with
    toward_zero    the same with rounding toward zero
    mask           the bits that change results or stop a program
    read, write    x86-64: instructions, $0 being the address of 32 bits; aarch64: functions of the compiler
    """

    default: int
    toward_zero: int
    mask: int
    read: str
    write: str


# The compiler has functions for MXCSR as well, but does not say of them that they touch more than an address.
_X86: Final = ControlWord(0x1F80, 0x7F80, 0xFFC0, "stmxcsr ($0)", "ldmxcsr ($0)")
_ARM: Final = ControlWord(0, 3 << 22, 0xFFFFFFFF, "llvm.aarch64.get.fpcr", "llvm.aarch64.set.fpcr")
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
