"""Object code for x86-64 in the ELF format, as the code generator writes it, laid out for a place in memory.

The generator is set to address everything by 64 bits. So linking only writes addresses: each relocation
names a place, and the symbol whose address belongs there.

Source   System V Application Binary Interface, chapter 4; its supplement for AMD64, 4.3 and 4.4
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable, Sequence
from functools import cache
from struct import error, unpack_from
from typing import Any, Final, NamedTuple

from ascendsim.native.object_code import ObjectCode

# 64 bits, least byte first; a relocatable file, for x86-64.
_MAGIC, _KIND = b"\x7fELF\x02\x01", (1, 62)
_BITS, _SYMBOLS, _RELOCATIONS, _ZEROS = 1, 2, 4, 8  # kinds of sections
_WRITTEN, _LOADED = 1, 2  # flags of sections
_OUTSIDE, _COMMON, _LAST = 0, 0xFFF2, 0xFF00  # sections of symbols; numbers from the last on are no sections
_ADDRESS: Final = 1  # the relocation that writes the address of a symbol, and a number added to it
PAGE: Final = 4096
# More than any code that is kept takes; an image of more is a mistake in a size.
_LARGEST: Final = 1 << 26


class Patch(NamedTuple):
    """Eight bytes to write: the address of the function `outside`, else that of the image, and `add`."""

    offset: int
    outside: str
    add: int


class Image(NamedTuple):
    """Code and data from the beginning of a page on.

    content   their bytes, before addresses are written
    fixed     bytes of code and constants, in whole pages; the bytes behind them may be written
    patches   the addresses to write
    symbols   name -> offset
    """

    content: bytes
    fixed: int
    patches: tuple[Patch, ...]
    symbols: dict[str, int]


class _ElfSection(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class _Symbol(NamedTuple):
    """A symbol and its offset in the image; None: it is in no section that is loaded."""

    name: str
    section: int
    offset: int | None


def image_of(code: bytes) -> Image | None:
    """Lay out object code.

    None if it is of another kind, takes more than writing addresses of 64 bits, or names a place outside it.
    """
    try:
        if code[: len(_MAGIC)] != _MAGIC or unpack_from("<HH", code, 16) != _KIND:
            return None
        layout = _Layout(code)
        patches = layout.patches()
        if patches is None or not layout.is_plain:
            return None
        symbols = {symbol.name: symbol.offset for symbol in layout.symbols if symbol.offset is not None}
        return Image(layout.content(), layout.fixed, patches, symbols)
    except (error, IndexError, OverflowError, ValueError):
        return None


class _Layout:
    """Places of the sections of some object code in memory, read-only sections first."""

    def __init__(self, code: bytes) -> None:
        self._code = code
        (first,), (count,) = unpack_from("<Q", code, 40), unpack_from("<H", code, 60)
        self._sections = [
            _ElfSection(*unpack_from("<IIQQQQIIQQ", code, first + 64 * n)) for n in range(count)
        ]
        self._loaded = {n: section for n, section in enumerate(self._sections) if section.flags & _LOADED}
        self._places: dict[int, int] = {}
        self._end = 0
        for written in (False, True):
            self.fixed = self._end = -(-self._end // PAGE) * PAGE
            for number, section in self._loaded.items():
                if bool(section.flags & _WRITTEN) == written:
                    self._places[number] = self._take(section.size, section.align)
        # All symbols, in the order of the file.
        self.symbols = self._placed_symbols()

    @property
    def is_plain(self) -> bool:
        """Return whether all that is loaded is bytes of the file, or zeros, and can lie in pages."""
        return all(
            section.align <= PAGE
            and (section.kind == _ZEROS or (section.kind == _BITS and self._holds(section)))
            for section in self._loaded.values()
        )

    def content(self) -> bytes:
        """Return the bytes of the image."""
        content = bytearray(self._end)
        for number, place in self._places.items():
            _, kind, _, _, offset, size, *_ = self._loaded[number]
            if kind == _BITS:
                content[place : place + size] = self._code[offset : offset + size]
        return bytes(content)

    def _placed_symbols(self) -> Sequence[_Symbol]:
        """Return all symbols, and place those that have no place yet."""
        found = []
        for table in self._of_kind(_SYMBOLS):
            names = self._sections[table.link].offset
            for entry in range(table.offset, table.offset + table.size, 24):
                name, _, _, section, value, size = unpack_from("<IBBHQQ", self._code, entry)
                begin = names + name
                text = self._code[begin : self._code.index(b"\0", begin)].decode()
                place = self._places.get(section)
                if section == _COMMON:
                    offset: int | None = self._take(size, value)
                elif place is None:
                    offset = None
                else:
                    offset = place + _within(value, self._loaded[section].size)
                found.append(_Symbol(text, section, offset))
        return found

    def patches(self) -> tuple[Patch, ...] | None:
        """Return the addresses to write; None if any relocation asks for anything else."""
        found = []
        for table in self._of_kind(_RELOCATIONS):
            place = self._places.get(table.info)
            if place is None:
                continue  # of what is not loaded, such as notes for debuggers
            last = self._loaded[table.info].size - 8
            for entry in range(table.offset, table.offset + table.size, 24):
                offset, kind, number, add = unpack_from("<QIIq", self._code, entry)
                where = place + _within(offset, last)
                symbol = self.symbols[number]
                # Without a name it is the symbol that stands for none, and the number added is the address.
                is_outside = symbol.section == _OUTSIDE and symbol.name
                if kind != _ADDRESS or (symbol.offset is None and not is_outside):
                    return None
                if symbol.offset is None:
                    found.append(Patch(where, symbol.name, add))
                else:
                    found.append(Patch(where, "", symbol.offset + add))
        return tuple(found)

    def _take(self, size: int, align: int) -> int:
        """Return a place for `size` bytes behind all others."""
        begin = -(-self._end // max(1, align)) * max(1, align)
        self._end = _within(begin + size, _LARGEST)
        return begin

    def _holds(self, section: _ElfSection) -> bool:
        return section.offset + section.size <= len(self._code)

    def _of_kind(self, kind: int) -> list[_ElfSection]:
        return [section for section in self._sections if section.kind == kind]


def _within(place: int, last: int) -> int:
    if place > last:
        raise ValueError(f"{place} lies behind {last}")
    return place


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
        # Imported here: it would be most of the code that a process loads.
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
