"""Set the floating-point modes of the calling thread, as a library or a caller may have done."""

import ctypes
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from ascendsim.native.default_arithmetic import accessors, control_word
from ascendsim.native.elf import load
from ascendsim.native.processor import emit

# The bits to change in the default word.
_X86 = {
    "ftz": 0x8000,
    "daz": 0x40,
    "ftz and daz": 0x8040,
    "down": 0x2000,
    "up": 0x4000,
    "toward zero": 0x6000,
}
_ARM = {"ftz and daz": 1 << 24, "up": 1 << 22, "down": 2 << 22, "toward zero": 3 << 22}
MODES = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM, "arm64": _ARM}.get(platform.machine(), {})


@cache
def _loaded() -> tuple[Callable[[], int], Callable[[int], None], object]:
    word = control_word()
    assert word is not None
    code = load(emit("read", accessors(word)))
    read = ctypes.CFUNCTYPE(ctypes.c_int64)(code.address("read"))
    return read, ctypes.CFUNCTYPE(None, ctypes.c_int64)(code.address("write")), code


def modes_set() -> int:
    """Return the bits of this thread's control word that are modes, not what has happened so far."""
    word = control_word()
    assert word is not None
    return _loaded()[0]() & word.mask


@contextmanager
def mode(name: str) -> Iterator[None]:
    """Set a mode of `MODES` in this thread for a while."""
    word = control_word()
    assert word is not None
    write = _loaded()[1]
    write(word.default | MODES[name])
    try:
        yield
    finally:
        write(word.default)
