"""Let the processor itself round toward zero while a kernel runs.

One instruction sets the mode for all arithmetic of the thread: sums, products and conversions then are cut at
no cost. Two facts make that enough for every model that only cuts. A sum in double, cut, and cut again into
binary32 is the exact sum cut once. And whatever double holds exactly is exact in this mode, too.

A kernel begins under the default arithmetic (`jit.kernel` sees to that) and must end under it. What relies on
rounding to nearest, such as `two_sum`, must not run in between. The compiler takes arithmetic for independent
of the mode: so what is to be cut belongs in a function out of line, called between the two instructions.
"""

from collections.abc import Callable
from typing import Any, Final

import llvmlite.binding
from llvmlite import ir

from ascendsim.native.control_word import ControlWord, control_word, emit_write
from ascendsim.numerics.compiled.panels import Value, intrinsic, types

_WORD: Final = control_word()
# Whether this processor's mode can be set.
CAN_CUT: Final = _WORD is not None


def _setter(choose: Callable[[ControlWord], int]) -> Callable[..., Any]:
    def operation(_typing: Value) -> Value:
        def codegen(context: Value, builder: Value, _signature: Value, _args: Value) -> Value:
            # Where the mode cannot be set, no kernel asks for it; it is compiled all the same, to nothing.
            if _WORD is not None:
                llvmlite.binding.initialize_native_asmparser()
                emit_write(builder, _WORD, ir.Constant(ir.IntType(64), choose(_WORD)))
            return context.get_dummy_value()

        return types.void(), codegen

    return intrinsic(operation)  # type: ignore[no-any-return]


round_toward_zero = _setter(lambda word: word.toward_zero)
round_to_nearest = _setter(lambda word: word.default)
