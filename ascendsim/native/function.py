"""Machine code of plain functions, callable with numpy arrays, without the compiler at run time."""

import os
from array import array
from ctypes import addressof, c_char
from dataclasses import dataclass
from functools import partial
from operator import index
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ascendsim.errors import AscendSimError, ProgramError
from ascendsim.frozen import cached_property
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.native.process import COMPILING

if TYPE_CHECKING:
    from ascendsim.native.elf import Loaded
    from ascendsim.native.object_code import ObjectCode

# Type checkers do not know that an array is a buffer.
_byte: Any = c_char

INTEGER: Final = "int64"
ARRAYS: Final = {f"{name}[]": np.dtype(name) for name in ("int64", "int32", "uint8", "float64")}


@dataclass(frozen=True)
class Native:
    """Plain Python functions as one compiled function.

    functions   helpers first, each before the functions that call it; the entry last. Module-level functions
                without decorators, in the part of Python that numba compiles, that make and slice no arrays,
                and ask none for its length: that is an argument. They find each other, and constants, by
                global names.
    arguments   types of the entry's arguments, in order: "int64" for an integer; "int64[]", "int32[]",
                "uint8[]", "float64[]" for a 1-D array
    inline      functions that become part of those that call them: for the few that run all the time

    The first call loads the code from the user's cache, or compiles and keeps it. With NUMBA_BOUNDSCHECK=1 in
    the environment it is other code, which checks every index. AscendSimError if the arguments' types are not
    known, or are not as many as the entry takes.
    """

    functions: tuple[FunctionType, ...]
    arguments: tuple[str, ...]
    inline: tuple[FunctionType, ...] = ()

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.arguments if kind != INTEGER and kind not in ARRAYS]
        if unknown:
            raise AscendSimError(
                f"{self._name}: got the types {unknown}; use {INTEGER} or one of {list(ARRAYS)}"
            )
        self._check_count(self.functions[-1].__code__.co_argcount, "the entry takes")

    @default_arithmetic
    def __call__(self, *arguments: Any) -> int:
        """Run the compiled code, without the interpreter lock; return what the entry returns, an int64.

        Under the default arithmetic, whatever the calling thread has set.
        Arrays: 1-D, C-contiguous, of exactly the type declared, else AscendSimError. An array that the entry
        writes is changed in place, even if numpy has it as read-only. ProgramError if the code stops: at an
        index out of bounds, where that is checked, or at a `raise`.
        """
        # Its first two cells are for what comes back: the result, and a pointer that numba sets.
        table = array("q", [0, 0, *self._cells(arguments)])
        address = table.buffer_info()[0]
        if self._loaded.call(address, address + 8, address + 16):
            raise ProgramError(
                f"{self._name}: compiled code stopped at an index out of bounds or at a raise; "
                "call .python with the same arguments to see the line"
            )
        return table[0]

    def __reduce__(self) -> tuple[Any, ...]:
        # Where the code lies means nothing to another process.
        return Native, (self.functions, self.arguments, self.inline)

    @default_arithmetic
    def load(self) -> None:
        """Get the code ready before the first call: load it from the cache, or compile and keep it."""
        _ = self._loaded

    def python(self, *arguments: Any) -> int:
        """Run the plain functions instead: slow, the same numbers."""
        return int(self.functions[-1](*arguments))

    def _cells(self, arguments: tuple[Any, ...]) -> list[int]:
        """Return the table of arguments: an integer as it is, an array as its address and length."""
        if len(arguments) != len(self.arguments):
            self._check_count(len(arguments), "the call has")
        cells: list[int] = []
        for position, (given, dtype) in enumerate(zip(arguments, self._dtypes, strict=True)):
            if dtype is None:
                cells.append(self._integer(position, given))
            else:
                cells += (self._address(position, given, dtype), len(given))
        return cells

    def _integer(self, position: int, given: Any) -> int:
        try:
            value = index(given)
        except TypeError:
            raise self._refusal(position, given) from None
        if not -(2**63) <= value < 2**63:
            raise self._refusal(position, given)
        return value

    def _address(self, position: int, given: Any, dtype: np.dtype[Any]) -> int:
        if not isinstance(given, np.ndarray) or given.dtype != dtype or given.ndim != 1:
            raise self._refusal(position, given)
        try:
            # A fifth of the time of `given.ctypes.data`. It takes nothing scattered, empty or read-only.
            address = addressof(_byte.from_buffer(given))
        except (TypeError, ValueError):
            if not given.flags.c_contiguous:
                raise self._refusal(position, given) from None
            address = given.ctypes.data
        if address % dtype.alignment:
            raise self._refusal(position, given)
        return address

    @cached_property
    def _dtypes(self) -> tuple[np.dtype[Any] | None, ...]:
        return tuple(ARRAYS.get(kind) for kind in self.arguments)

    @cached_property
    def _loaded(self) -> "Loaded":
        # Imported here, so that a module may hold compiled functions and pay for those that are called.
        from ascendsim.native.cache import cache_file, kept
        from ascendsim.native.elf import load

        bounds = os.environ.get("NUMBA_BOUNDSCHECK", "0") not in ("", "0")
        path = cache_file(self.functions, (*self.arguments, *_names(self.inline)), bounds)
        # Threads that call it for the first time at once would each compile it.
        with COMPILING:
            return load(kept(path, partial(self._build, bounds)))

    def _build(self, bounds: bool) -> "ObjectCode":
        from ascendsim.native.build import build

        return build(self.functions, self.arguments, bounds, self.inline)

    @property
    def _name(self) -> str:
        return self.functions[-1].__qualname__

    def _check_count(self, count: int, words: str) -> None:
        if count != len(self.arguments):
            raise AscendSimError(
                f"{self._name}: {words} {count} arguments, its declaration names {len(self.arguments)}"
            )

    def _refusal(self, position: int, given: Any) -> AscendSimError:
        """Return the error for an argument of another kind than declared."""
        name = self.functions[-1].__code__.co_varnames[position]
        got = repr(given)
        if isinstance(given, np.ndarray):
            got = f"{given.ndim}-D {given.dtype}, strides {given.strides}, at address {given.ctypes.data}"
        kind = self.arguments[position]
        rule = "an integer of 64 bits" if kind == INTEGER else "1-D, contiguous, aligned"
        return AscendSimError(f"{self._name}, argument {name}: got {got}; declared {kind}: {rule}")


def _names(functions: tuple[FunctionType, ...]) -> list[str]:
    return [function.__qualname__ for function in functions]
