"""Is code that is placed without the code generator the same code?  When is the generator asked after all?"""

import ctypes
import platform
import random
import re
import sys
from math import floor
from pathlib import Path
from struct import unpack_from

import numpy as np
import pytest

from ascendsim.errors import ProgramError
from ascendsim.native import Native, elf, processor
from ascendsim.native import cache as identity
from ascendsim.native import elf as loading
from ascendsim.native.cache import cache_file, read
from ascendsim.native.elf import PAGE, image_of
from ascendsim.native.object_code import ObjectCode
from ascendsim.native.processor import emit, name_and_features
from tests.helpers import native_functions as plain

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="only code of x86-64 on Linux is placed"
)
KINDS = ("int64[]", "int32[]", "uint8[]", "float64[]", "int64")
# A counter that begins with 5, one that begins with 0, one that is common, a constant, and functions outside.
MODULE = """
@five = global i64 5
@none = global i64 0
@shared = common global i64 0
@places = constant [2 x ptr] [ptr @five, ptr @none]
declare double @floor(double)
declare ptr @memcpy(ptr, ptr, i64)
define i64 @counted(i64 %which) nounwind {
  %cell = getelementptr [2 x ptr], ptr @places, i64 0, i64 %which
  %counter = load ptr, ptr %cell
  %old = load i64, ptr %counter
  %new = add i64 %old, 1
  store i64 %new, ptr %counter
  ret i64 %new
}
define i64 @added(i64 %more) nounwind {
  %old = load i64, ptr @shared
  %new = add i64 %old, %more
  store i64 %new, ptr @shared
  ret i64 %new
}
define i64 @down(double %x) nounwind {
  %whole = call double @floor(double %x)
  %number = fptosi double %whole to i64
  ret i64 %number
}
define i64 @again(i64 %x) nounwind {
  %down = call i64 @added(i64 %x)
  %up = call i64 @added(i64 %down)
  ret i64 %up
}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    for name in ("NUMBA_CACHE_DIR", "NUMBA_BOUNDSCHECK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def code() -> ObjectCode:
    return emit("counted", MODULE)


def function(loaded, name, argument=ctypes.c_int64):
    return ctypes.CFUNCTYPE(ctypes.c_int64, argument)(loaded.address(name))


def has_engine(loaded) -> bool:
    """Tell whether the code generator has placed the code."""
    return not isinstance(loaded.memory, ctypes.Array)


# --- is it the same code


def test_variables_constants_and_functions_outside_are_found():
    loaded = loading.load(code())
    assert not has_engine(loaded)
    counted, added, again = (function(loaded, name) for name in ("counted", "added", "again"))
    assert [counted(0), counted(1), counted(0)] == [6, 1, 7]
    # 3, then 3 + 4, then (7 + 1) and 8 + 8.
    assert [added(3), added(4), again(1)] == [3, 7, 16]
    down = function(loaded, "down", ctypes.c_double)
    assert [down(x) for x in (-1.5, 2.0, 2.9)] == [floor(x) for x in (-1.5, 2.0, 2.9)]


def test_code_that_is_loaded_twice_has_variables_of_its_own():
    loaded = loading.load(code()), loading.load(code())
    first, second = (function(one, "counted") for one in loaded)
    assert [first(0), first(0), second(0)] == [6, 7, 6]


@pytest.mark.parametrize("bounds", ["0", "1"])
def test_it_computes_what_the_generators_own_loader_makes_of_it(bounds, monkeypatch):
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", bounds)
    functions = (plain.scaled, plain.chained, plain.fill)
    results = []
    for _ in range(2):
        native = Native(functions, KINDS)
        given = (np.arange(5) * 10 - 3, np.zeros(4, np.int32), np.arange(4, dtype=np.uint8))
        rates = np.linspace(1, 9, 4)
        results.append((native(*given, rates, 4), *(array.tobytes() for array in (*given, rates))))
        results.append(has_engine(native._loaded))
        monkeypatch.setattr(loading, "image_of", lambda _: None)
    ours, placed, theirs, by_llvm = results
    assert (placed, by_llvm) == (False, True)
    assert ours == theirs


def test_a_raise_in_placed_code_stops_it():
    native = Native((plain.refuse,), ("int64",))
    assert native(3) == 3
    assert not has_engine(native._loaded)
    with pytest.raises(ProgramError, match="refuse: compiled code stopped"):
        native(-1)


def test_code_cannot_be_written_and_variables_cannot_be_run():
    loaded = loading.load(code())
    base, image = ctypes.addressof(loaded.memory), image_of(code().code)
    rights = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end, allowed = re.match(r"(\w+)-(\w+) (\S+)", line).groups()
        for what, address in (("code", base), ("variables", base + image.fixed)):
            if int(begin, 16) <= address < int(end, 16):
                rights[what] = allowed
    assert rights == {"code": "r-xp", "variables": "rw-p"}


# --- how it is laid out


def test_each_symbol_and_each_patch_lies_where_it_belongs():
    image = image_of(code().code)
    assert image.fixed % PAGE == 0
    functions, variables = ("counted", "added", "down", "again"), ("five", "none", "shared")
    assert all(image.symbols[name] < image.fixed for name in functions)
    assert all(image.fixed <= image.symbols[name] < len(image.content) for name in variables)
    places = {image.symbols[name] for name in variables}
    assert len(places) == 3
    assert all(place % 8 == 0 for place in places)
    five = image.symbols["five"]
    assert image.content[five : five + 8] == (5).to_bytes(8, "little")
    assert {patch.outside for patch in image.patches} == {"", "floor"}
    assert all(0 <= patch.offset <= len(image.content) - 8 for patch in image.patches)


def changed(place: int, value: bytes) -> bytes:
    made = bytearray(code().code)
    made[place : place + len(value)] = value
    return bytes(made)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, b"\xcf\xfa\xed\xfe"),  # not ELF
        (4, b"\x01"),  # of 32 bits
        (5, b"\x02"),  # largest byte first
        (16, b"\x02\x00"),  # linked already
        (18, b"\xb7\x00"),  # for aarch64
    ],
)
def test_code_of_another_kind_is_left_to_the_generator(place, value):
    assert image_of(changed(place, value)) is None


def test_a_relocation_of_another_kind_is_left_to_the_generator(monkeypatch):
    # What writes addresses in 64 bits has the number 1; as if it were another.
    monkeypatch.setattr(elf, "_ADDRESS", 2)
    assert image_of(code().code) is None
    assert has_engine(loading.load(code()))


def test_an_address_of_no_symbol_is_left_to_the_generator():
    # The first table of relocations of what is loaded: bytes 12 to 15 of an entry are the symbol's number.
    layout = elf._Layout(code().code)
    tables = [table for table in layout._of_kind(elf._RELOCATIONS) if table.info in layout._loaded]
    assert image_of(changed(tables[0].offset + 12, bytes(4))) is None


def test_whatever_bits_have_changed_no_place_lies_outside_of_the_image():
    whole, drawn = code().code, random.Random(3)
    taken = refused = 0
    for _ in range(3000):
        made = bytearray(whole)
        # Half of the changes meet the tables of sections at the end, where places and sizes are.
        begin = drawn.choice((0, len(whole) - 64 * unpack_from("<H", whole, 60)[0]))
        place = drawn.randrange(begin, len(whole))
        made[place] = drawn.choice((0, 1, 0x7F, 0x80, 0xFF, made[place] ^ 1 << drawn.randrange(8)))
        image = image_of(bytes(made))
        if image is None:
            refused += 1
            continue
        taken += 1
        end = len(image.content)
        assert end <= 1 << 26
        assert 0 <= image.fixed <= -(-end // PAGE) * PAGE
        assert all(0 <= patch.offset <= end - 8 for patch in image.patches)
        assert all(0 <= place <= end for place in image.symbols.values())
    assert min(taken, refused) > 100
    assert [image_of(whole[:length]) for length in range(0, len(whole), 7)].count(None) == -(-len(whole) // 7)


def test_tables_for_unwinding_the_stack_are_left_to_the_generator():
    # A function that may be unwound has such tables, whose relocations are relative.
    made = emit("one", "define i64 @one() uwtable {\n  ret i64 1\n}\n")
    assert image_of(made.code) is None
    loaded = loading.load(made)
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.address("one"))() == 1


def test_what_pages_do_not_align_is_left_to_the_generator():
    made = emit("one", "@wide = global i64 1, align 8192\ndefine ptr @one() nounwind {\n  ret ptr @wide\n}\n")
    assert image_of(made.code) is None
    assert has_engine(loading.load(made))


# --- when the system refuses


def test_where_memory_cannot_be_made_code_the_generator_is_asked(monkeypatch):
    monkeypatch.setattr(loading, "_protect", lambda: lambda *_: -1)
    loaded = loading.load(code())
    assert has_engine(loaded)
    assert function(loaded, "counted")(0) == 6


def test_a_c_library_without_a_function_leaves_the_code_to_the_generator(monkeypatch):
    def lacking(_name: str) -> int:
        raise AttributeError("floor")

    monkeypatch.setattr(loading, "_of_process", lacking)
    assert has_engine(loading.load(code()))


# --- what it is kept under

TWO_CORES = """processor\t: 0
vendor_id\t: Maker
model name\t: One
cpu MHz\t\t: {mhz}
flags\t\t: {flags}
bugs\t\t: none

processor\t: 1
vendor_id\t: Maker
flags\t\t: other
"""


def said(flags="fma avx2", mhz="2400.1"):
    return identity.said_of_processor(TWO_CORES.format(flags=flags, mhz=mhz))


def test_a_processor_is_what_it_can_do_and_not_how_fast_it_runs_now():
    assert said() == "vendor_id: Maker\nmodel name: One\nflags: fma avx2"
    assert said(mhz="800.0") == said() != said(flags="fma")


def test_an_arm_processor_has_features():
    text = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n"
    assert identity.said_of_processor(text) == "Features: fp asimd\nCPU part: 0xd0c"


@pytest.mark.parametrize("text", ["", "processor\t: 0\nmodel name\t: One\n"])
def test_where_the_system_does_not_say_what_it_can_do_the_generator_does(text, tmp_path, monkeypatch):
    (tmp_path / "list").write_text(text)
    monkeypatch.setattr(identity, "_PROCESSORS", str(tmp_path / "list"))
    identity._processor.cache_clear()
    try:
        assert name_and_features() in identity.identity()
    finally:
        identity._processor.cache_clear()


def test_an_emulated_processor_is_another_one(monkeypatch):
    # Valgrind has no AVX-512, whatever the processor beneath it has.
    functions, kinds = (plain.read_at,), ("int64[]", "int64")
    assert identity._commands()
    before = cache_file(functions, kinds, False)
    monkeypatch.setattr(identity, "_commands", lambda: "SSE SSE2")
    assert cache_file(functions, kinds, False) != before


def test_no_features_are_not_the_features_of_the_processor(monkeypatch):
    # The generator takes an empty variable for a processor without any: other code than without the variable.
    monkeypatch.delenv("NUMBA_CPU_FEATURES", raising=False)
    every = identity.identity(), processor._features()
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "")
    none = identity.identity(), processor._features()
    assert every[1] != none[1] == ""
    assert every[0] != none[0]


def test_a_package_is_told_by_its_version_without_importing_it(tmp_path, monkeypatch):
    (tmp_path / "told").mkdir()
    (tmp_path / "told" / "__init__.py").write_text("raise AssertionError('imported')\n")
    (tmp_path / "told" / "_version.py").write_text("version = '1.2'\n")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "__init__.py").write_text("__version__ = '3.4'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert identity._version("told") == "version = '1.2'\n"
    assert identity._version("plain") == "3.4"
    assert identity._version("no_such_package") == ""


def test_the_words_of_another_version_are_another_file(monkeypatch):
    functions, kinds = (plain.read_at,), ("int64[]", "int64")
    before = cache_file(functions, kinds, False)
    monkeypatch.setattr(identity, "_version", lambda package: f"{package} of tomorrow")
    assert before != cache_file(functions, kinds, False)
    assert read(before) is None  # nothing was made to find a name
