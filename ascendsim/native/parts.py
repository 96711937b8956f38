"""Compile functions that only compiled code calls: as parts of their callers, not as functions of their own.

The compiler takes each function for one that Python may call as well: it optimises it together with all that
it calls, makes machine code of that, and wraps it for the interpreter. So a function far down is optimised
once for each level above it. A part is optimised by itself alone and has no machine code: what calls it takes
it as it is, and the function on top is optimised whole, once.

This reaches behind numba's public interface, so `pyproject.toml` names the releases that it was tested with.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numba
from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock

# numba has no types for type checkers.
_njit: Any = numba.njit
_unliteral: Any = numba.types.unliteral
_global_compiler_lock: Any = global_compiler_lock
_Library: Any = JITCodeLibrary
_Compiler: Any = Compiler


def part(function: Any, **options: Any) -> Any:
    """Return a function for compiled code to call, with options of the compiler.

    A call from Python is possible; for that it is compiled on its own.
    """
    made = _njit(function, pipeline_class=_Part, **options)
    template = made.get_call_template

    def of_values(args: Any, kws: Any) -> Any:
        # A constant has a type of its own, for which the function would be compiled anew.
        return template(
            [_unliteral(one) for one in args], {name: _unliteral(one) for name, one in kws.items()}
        )

    made.get_call_template = of_values
    # Python, which can call no part, gets a function of its own.
    whole = _njit(function, **options)
    made._insert = lambda *_: None
    made._compile_for_args = lambda *_args, **_kws: whole
    return made


@_global_compiler_lock  # type: ignore[untyped-decorator]
def optimised(library: Any) -> str:
    """Return the code of a part, and of all that it calls, as optimised code in LLVM's language."""
    library._ensure_finalized()
    # Of code that others may replace, the compiler proves nothing: not even that it does not unwind.
    for function in library.get_defined_functions():
        if function.linkage == Linkage.linkonce_odr:
            function.linkage = Linkage.internal
    _Library._optimize_final_module(library)
    return str(library.get_llvm_str())


class _Linked(_Library):  # type: ignore[misc]
    """Code of a part and of all that it calls: functions singly optimised, none inlined."""

    def _optimize_final_module(self) -> None:
        """Leave it to the function on top."""

    def _finalize_final_module(self) -> None:
        """Make no machine code."""
        self._verify_declare_only_symbols()
        self._finalized = True


class _Part(_Compiler):  # type: ignore[misc]
    def __init__(
        self, typing: Any, target: Any, _library: Any, args: Any, result: Any, flags: Any, *rest: Any
    ) -> None:
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        library = _Linked(target.codegen(), "part")
        super().__init__(typing, target, library, args, result, flags, *rest)

    def compile_extra(self, function: FunctionType) -> Any:
        made = super().compile_extra(function)
        # Callers find the code by what would be the function that Python calls.
        made = made._replace(entry_point=made.fndesc)
        self.state.targetctx.insert_user_function(made.entry_point, made.fndesc, [made.library])
        return made
