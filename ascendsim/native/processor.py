"""The processor that machine code is for: emit code for it, load code into this process. llvmlite alone."""

import ctypes
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import llvmlite
import llvmlite.binding as llvm

from ascendsim.errors import AscendSimError

# Status, 0 if all went well, of (address of the result, address of a pointer for the error, address of the
# arguments). This is how numba's functions are called, for one int64 argument and an int64 result.
_SIGNATURE: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_llvm: Any = llvm
# What code may call: these are in the C library of every process, or in its mathematical part.
_LIBRARY: Final = {"memcpy", "memset", "memmove", "fma", "floor", "ceil", "trunc", "rint", "fmod"}


@dataclass(frozen=True)
class ObjectCode:
    """Machine code as a linker takes it, and the name of the function in it that is called from outside."""

    symbol: str
    code: bytes


@dataclass(frozen=True)
class Loaded:
    """Functions in memory, one of them ready to call. They live as long as the engine."""

    call: Callable[[int, int, int], int]
    engine: Any

    def address(self, symbol: str) -> int:
        """Return where a function of the code begins."""
        return int(self.engine.get_function_address(symbol))


def identity() -> str:
    """Name everything about this processor and its code generator that machine code depends on."""
    return f"{platform.machine()} {_name()} {_features()} llvmlite {llvmlite.__version__}"


def emit(symbol: str, text: str) -> ObjectCode:
    """Make machine code of optimised code in LLVM's language.

    AscendSimError if the code needs anything that is not in every process, such as the interpreter.
    """
    module = _llvm.parse_assembly(text)
    outside = {f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")}
    if outside - _LIBRARY:
        raise AscendSimError(
            f"{symbol}: compiled code calls {', '.join(sorted(outside - _LIBRARY))}; it may call nothing of "
            "Python or numba at run time: leave out what makes objects or arrays"
        )
    return ObjectCode(symbol, _machine().emit_object(module))


def load(object_code: ObjectCode) -> Loaded:
    """Put machine code where it can be called. The code must be whole: LLVM ends the process otherwise."""
    engine = _llvm.create_mcjit_compiler(_llvm.parse_assembly(""), _machine())
    engine.add_object_file(_llvm.ObjectFileRef.from_data(object_code.code))
    engine.finalize_object()
    return Loaded(_SIGNATURE(engine.get_function_address(object_code.symbol)), engine)


def _machine() -> Any:
    """Return a generator of code for this processor, set up as numba sets up its own."""
    _initialize()
    x86 = platform.machine() in ("x86_64", "AMD64", "i386", "i686")
    return _llvm.Target.from_default_triple().create_target_machine(
        cpu=_name(),
        features=_features(),
        opt=3,
        reloc="static" if x86 else "default",
        codemodel="jitdefault",
        jit=True,
    )


@cache
def _initialize() -> None:
    _llvm.initialize_native_target()
    _llvm.initialize_native_asmprinter()
    _llvm.initialize_native_asmparser()  # the control word is read and written by instructions in text


# numba's own variables: who narrows the processor for numba's code means this code too.
def _name() -> str:
    return os.environ.get("NUMBA_CPU_NAME") or str(_llvm.get_host_cpu_name())


def _features() -> str:
    return os.environ.get("NUMBA_CPU_FEATURES", str(_llvm.get_host_cpu_features().flatten()))
