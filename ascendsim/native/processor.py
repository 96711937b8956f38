"""The generator of code for this processor, and its loader, for code that nothing smaller loads."""

import os
import platform
from functools import cache
from typing import Any, Final

import llvmlite.binding as llvm

from ascendsim.errors import AscendSimError
from ascendsim.native.object_code import ObjectCode

_llvm: Any = llvm
# What code may call: these are in the C library of every process, or in its mathematical part.
_LIBRARY: Final = {"memcpy", "memset", "memmove", "fma", "floor", "ceil", "trunc", "rint", "fmod"}


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


def engine_of(code: bytes) -> Any:
    """Put object code where it can be called, and return what knows the addresses of its functions.

    The code must be whole: LLVM ends the process otherwise.
    """
    engine = _llvm.create_mcjit_compiler(_llvm.parse_assembly(""), _machine())
    engine.add_object_file(_llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def name_and_features() -> str:
    """Name this processor, and its features, as the code generator sees them."""
    return f"{_name()} {_features()}"


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
