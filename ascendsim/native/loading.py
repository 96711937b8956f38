"""Put object code where it can be called.

The usual code, of x86-64 on Linux, is placed here with a few lines of ctypes. Any other goes through the
code generator, which takes 0.05 s and 60 MiB to import: as long as all else that a small estimate imports.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from ascendsim.native.elf import PAGE, Image, image_of
from ascendsim.native.object_code import ObjectCode

# Status, 0 if all went well, of (address of the result, address of a pointer for the error, address of the
# arguments). This is how numba's functions are called, for one int64 argument and an int64 result.
_SIGNATURE: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class Loaded(NamedTuple):
    """Functions in memory; they live as long as `memory` does.

    address   of a function, by its name
    call      the function that is called from outside
    """

    address: Callable[[str], int]
    call: Callable[[int, int, int], int]
    memory: object


def load(object_code: ObjectCode) -> Loaded:
    """Put machine code where it can be called. The code must be whole: a part of it may end the process."""
    image = image_of(object_code.code) if sys.platform == "linux" else None
    made = _placed(image) if image else None
    if made is None:
        # Imported here: where it is not needed it is most of what a process loads.
        from ascendsim.native.processor import engine_of

        engine = engine_of(object_code.code)
        made = engine.get_function_address, engine
    address, memory = made
    return Loaded(address, _SIGNATURE(address(object_code.symbol)), memory)


def _placed(image: Image) -> tuple[Callable[[str], int], object] | None:
    """Return the addresses of an image in memory, and the memory; None where the system refuses."""
    length = -(-len(image.content) // PAGE) * PAGE
    memory = mmap.mmap(-1, max(PAGE, length), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # Exported for good, so that nobody unmaps it.
    held = (ctypes.c_char * len(memory)).from_buffer(memory)
    base = ctypes.addressof(held)
    memory[: len(image.content)] = image.content
    try:
        for patch in image.patches:
            target = _of_process(patch.outside) if patch.outside else base
            memory[patch.offset : patch.offset + 8] = ((target + patch.add) % 2**64).to_bytes(8, "little")
        # Never both to be written and to be run.
        if _protect()(base, image.fixed, mmap.PROT_READ | mmap.PROT_EXEC):
            return None
    except AttributeError:  # a C library that has no function of this name
        return None
    return (lambda symbol: base + image.symbols[symbol]), held


@cache
def _protect() -> Any:
    function = ctypes.CDLL(None).mprotect
    function.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return function


@cache
def _of_process(name: str) -> int:
    """Return the address of a function of the C library, which every process has."""
    return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0
