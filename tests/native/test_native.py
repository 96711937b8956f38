"""Is compiled code equal to its plain functions, kept, never stale, and strict about what it gets?"""

import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import util
from pathlib import Path

import numpy as np
import pytest

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.errors import AscendSimError, ProgramError
from ascendsim.native import Native
from ascendsim.native.cache import cache_file, read, remove_unused, write
from ascendsim.native.object_code import ObjectCode
from ascendsim.ops import graph_times as known_times
from ascendsim.timing import compiled_phase as engine
from ascendsim.timing.l2 import phase as l2
from tests.helpers import native_functions as plain

# -------------------------------------------------------------------------------------------------------
# Is compiled code equal to its plain functions, kept on disk, never stale, and strict about what it gets?
# -------------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
FILL = (plain.scaled, plain.chained, plain.fill)
KINDS = ("int64[]", "int32[]", "uint8[]", "float64[]", "int64")
READ = Native((plain.read_at,), ("int64[]", "int64"))


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    # As they are for a user who has set nothing, also in a run of all tests with checked indices.
    for name in ("NUMBA_CACHE_DIR", "NUMBA_BOUNDSCHECK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def kept(tmp_path, folder="cache"):
    """List what is kept of functions; every process keeps how it reads its control word, too."""
    files = (tmp_path / folder / "ascendsim" / "native").glob("*")
    return sorted(path for path in files if not path.name.startswith("control_word-"))


def arguments(count=4):
    return (
        np.arange(count + 1) * 10 - 3,
        np.zeros(count, np.int32),
        np.arange(count, dtype=np.uint8),
        np.linspace(1, 9, count),
        count,
    )


def in_process(code, **variables):
    """Run code in a fresh process; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))} | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


CALL = """
import sys
import numpy as np
from tests.helpers import native_functions as plain
from ascendsim.native import Native
native = Native((plain.read_at,), ("int64[]", "int64"))
print(native(np.array([5, 6, 7]), 1), "numba" in sys.modules)
"""


# ------------------------------------------------------------------------------------------ what it computes
@pytest.mark.usefixtures("own_cache")
def test_compiled_code_does_what_the_plain_functions_do():
    # By hand, for one element: small = -3 - 1; codes = 0 + 250; rates = 1 / 4; the helpers give
    # (-3 * 3 + 7) + (7 * 3 + 7) = 26; the sum is 26 - 4 * 250 + 2.
    compiled, interpreted = arguments(1), arguments(1)
    native = Native(FILL, KINDS)
    assert native(*compiled) == native.python(*interpreted) == 26 - 1000 + 2
    for ours, theirs in zip(compiled[:4], interpreted[:4], strict=True):
        assert np.array_equal(ours, theirs)
    assert [int(array[0]) for array in compiled[:3]] == [-3, -4, 250]
    assert compiled[3][0] == 0.25


@pytest.mark.usefixtures("own_cache")
def test_the_order_of_arguments_is_kept():
    # a + b c - d + e f + g h + i - j with c and h read at index 1.
    array = lambda *values: np.array(values)  # noqa: E731
    native = Native(
        (plain.many,),
        ("int64[]", "int64", "int64[]", "int64[]", "int64", "int64", "int64[]", "int64[]", "int64", "int64"),
    )
    given = (array(1), 2, array(0, 3), array(4), 5, 6, array(7), array(0, 8), 9, 10)
    assert native(*given) == native.python(*given) == 1 + 2 * 3 - 4 + 5 * 6 + 7 * 8 + 9 - 10


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("number", [0, -1, 2**63 - 1, -(2**63)])
def test_all_64_bits_go_in_and_come_back(number):
    assert Native((plain.refuse,), ("int64",))(abs(number) % 2**63) == abs(number) % 2**63
    assert READ(np.array([number]), 0) == number


@pytest.mark.usefixtures("own_cache")
def test_an_integer_may_be_one_of_numpy():
    assert READ(np.array([4, 5]), np.int32(1)) == 5


@pytest.mark.usefixtures("own_cache")
def test_a_division_by_zero_gives_an_infinity():
    rates = np.array([1.0, 0.0])
    assert Native((plain.quotient,), ("float64[]",))(rates) == 0
    assert rates[0] == np.inf


@pytest.mark.usefixtures("own_cache")
def test_an_empty_and_a_read_only_array_are_arrays():
    fixed = np.array([1, 2, 3])
    fixed.flags.writeable = False
    assert READ(fixed, 2) == 3
    native = Native(FILL, KINDS)
    empty = [np.array([], kind.removesuffix("[]")) for kind in KINDS[:4]]
    assert native(*empty, 0) == 0


@pytest.mark.usefixtures("own_cache")
def test_a_raise_stops_with_an_error():
    native = Native((plain.refuse,), ("int64",))
    assert native(3) == 3
    with pytest.raises(ProgramError, match=r"refuse: compiled code stopped .* call \.python"):
        native(-1)


@pytest.mark.usefixtures("own_cache")
def test_a_compiled_function_can_be_sent_to_another_process():
    READ(np.array([1]), 0)
    assert pickle.loads(pickle.dumps(READ))(np.array([3, 4]), 1) == 4


# ------------------------------------------------------------------------------------------ what it refuses
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((np.array([1], np.int32), 0), r"read_at, argument numbers: got 1-D int32.* declared int64\[\]: 1-D"),
        ((np.array([[1]]), 0), "got 2-D int64"),
        ((np.arange(6)[::2], 0), r"strides \(16,\)"),
        ((np.frombuffer(bytes(17), np.uint8)[1:].view(np.int64), 0), "at address"),
        (([1], 0), r"got \[1\]"),
        ((np.array([1]), 0.0), r"argument index: got 0\.0; declared int64: an integer"),
        ((np.array([1]), 2**63), "got 9223372036854775808"),
        ((np.array([1]), -(2**63) - 1), "got -9223372036854775809"),
        ((np.array([1]),), "read_at: the call has 1 arguments, its declaration names 2"),
    ],
)
def test_other_arguments_than_declared_are_refused(given, words):
    with pytest.raises(AscendSimError, match=words):
        READ(*given)


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(
    ("functions", "kinds", "words"),
    [
        ((plain.read_at,), ("int64[]", "float32"), r"got the types \['float32'\]; use int64 or one of"),
        ((plain.read_at,), ("int64[]",), "the entry takes 2 arguments, its declaration names 1"),
    ],
)
def test_a_wrong_declaration_is_refused(functions, kinds, words):
    with pytest.raises(AscendSimError, match=words):
        Native(functions, kinds)


@pytest.mark.usefixtures("own_cache")
def test_code_that_asks_an_array_for_its_length_is_refused():
    # A pointer knows none; where indices are checked, arrays are numba's.
    with pytest.raises(AscendSimError, match="the compiler does not take it"):
        Native((plain.length,), ("int64[]",))(np.arange(3))


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(
    ("entry", "kinds"),
    [
        (plain.unnamed_helper, ("int64[]", "int64")),
        (plain.make_array, ("int64",)),
        (plain.import_one, ("int64",)),
    ],
)
def test_what_cannot_be_compiled_alone_is_refused(entry, kinds):
    native = Native((entry,), kinds)
    given = [np.arange(3) if kind == "int64[]" else 2 for kind in kinds]
    assert native.python(*given) == 2
    with pytest.raises(AscendSimError, match=entry.__name__):
        native(*given)


# ------------------------------------------------------------------------------------------ checked indices
OUTSIDE = """
import numpy as np
from tests.helpers import native_functions as plain
from ascendsim.errors import ProgramError
from ascendsim.native import Native
native = Native((plain.read_at, plain.unnamed_helper), ("int64[]", "int64"))
numbers = np.arange(8)[:4]
print(native(numbers, 3))
try:
    print(native(numbers, 6))
except ProgramError:
    print("out of bounds")
"""


@pytest.mark.usefixtures("own_cache")
def test_an_index_out_of_bounds_is_found_on_request(tmp_path):
    # The helper reads beyond its array, but inside the memory that the array is a part of.
    assert in_process(OUTSIDE).split("\n") == ["3", "6"]
    assert in_process(OUTSIDE, NUMBA_BOUNDSCHECK="1").split("\n") == ["3", "out of bounds"]
    assert in_process(OUTSIDE, NUMBA_BOUNDSCHECK="0").split("\n") == ["3", "6"]
    assert len(kept(tmp_path)) == 2


# ------------------------------------------------------------------------------------------ what is kept
@pytest.mark.usefixtures("own_cache")
def test_a_second_process_needs_no_compiler(tmp_path):
    assert in_process(CALL) == "6 True"
    assert [path.name.split("-")[0] for path in kept(tmp_path)] == ["read_at"]
    assert in_process(CALL) == "6 False"


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("damage", [lambda code: code[:-1], lambda _: b"", lambda code: code[:-1] + b"?"])
def test_a_damaged_file_is_made_again(damage, tmp_path):
    in_process(CALL)
    (path,) = kept(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert in_process(CALL) == "6 True"
    assert in_process(CALL) == "6 False"
    assert kept(tmp_path) == [path]


@pytest.mark.usefixtures("own_cache")
def test_without_a_folder_it_is_compiled_in_memory(tmp_path):
    (tmp_path / "file").write_text("")
    for _ in range(2):
        assert in_process(CALL, XDG_CACHE_HOME=str(tmp_path / "file")) == "6 True"


@pytest.mark.usefixtures("own_cache")
def test_the_folder_of_the_compiler_comes_first(tmp_path):
    in_process(CALL, NUMBA_CACHE_DIR=str(tmp_path / "theirs"))
    assert len(kept(tmp_path, "theirs")) == 1
    assert not (tmp_path / "cache").exists()


@pytest.mark.usefixtures("own_cache")
def test_a_file_that_cannot_be_written_is_left_out(tmp_path):
    (tmp_path / "file").write_text("")
    write(tmp_path / "file" / "inside", ObjectCode("symbol", b"code"))
    (tmp_path / "folder").mkdir()
    write(tmp_path / "folder", ObjectCode("symbol", b"code"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.usefixtures("own_cache")
def test_what_is_written_is_read(tmp_path):
    code = ObjectCode("symbol", b"\n\0code\n")
    write(tmp_path / "file", code)
    assert read(tmp_path / "file") == code
    assert read(tmp_path / "none") is None


def module_of(path, text):
    """Return a module of this source, in this file."""
    path.write_text(text)
    spec = util.spec_from_file_location("made", path)
    made = util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


SOURCE = "def helper(x):\n    return x + SHIFT\ndef entry(x):\n    return helper(x)\n"


def age(path, hours):
    """Make a file or folder look as if it was used so many hours ago."""
    used = time.time() - 3600 * hours
    os.utime(path, (used, used))


@pytest.mark.usefixtures("own_cache")
def test_code_that_nobody_has_used_for_a_day_is_removed_when_its_sources_have_changed(tmp_path):
    made = ObjectCode("name", b"code")
    old, recent, other, new = (tmp_path / name for name in ("f-1", "f-2", "g-1", "f-3"))
    for path, hours in ((old, 25), (recent, 23), (other, 25)):
        write(path, made)
        age(path, hours)
    write(new, made)
    # Another function's code is not older code of this one.
    assert sorted(tmp_path.iterdir()) == [recent, new, other]


@pytest.mark.usefixtures("own_cache")
def test_reading_is_using(tmp_path):
    old, new = tmp_path / "f-1", tmp_path / "f-2"
    write(old, ObjectCode("name", b"code"))
    age(old, 25)
    assert read(old) == ObjectCode("name", b"code")
    write(new, ObjectCode("name", b"code"))
    assert old.exists()


@pytest.mark.usefixtures("own_cache")
def test_folders_are_removed_as_a_whole_and_what_is_gone_is_no_error(tmp_path):
    old, recent, missing = (tmp_path / name for name in ("old", "recent", "missing"))
    for folder, hours in ((old, 25), (recent, 23)):
        (folder / "inner").mkdir(parents=True)
        (folder / "inner" / "file").write_text("code")
        age(folder, hours)
    remove_unused([missing, old, recent])
    assert list(tmp_path.iterdir()) == [recent]
    assert (recent / "inner" / "file").read_text() == "code"


@pytest.mark.usefixtures("own_cache")
def test_a_folder_that_may_not_be_removed_stays(tmp_path, monkeypatch):
    old = tmp_path / "old"
    old.mkdir()
    age(old, 25)

    def refuse(*_arguments):
        raise PermissionError("not yours")

    monkeypatch.setattr(Path, "rename", refuse)
    remove_unused([old])
    assert list(tmp_path.iterdir()) == [old]


@pytest.mark.usefixtures("own_cache")
def test_code_of_a_changed_source_is_other_code(tmp_path):
    path = tmp_path / "made.py"
    for shift in (1, 2):
        made = module_of(path, f"SHIFT = {shift}\n{SOURCE}")
        assert Native((made.helper, made.entry), ("int64",))(10) == 10 + shift


@pytest.mark.usefixtures("own_cache")
def test_a_constant_from_another_file_is_part_of_the_key(tmp_path):
    made = module_of(tmp_path / "made.py", SOURCE)
    for shift in (1, 2):
        made.SHIFT = shift
        assert Native((made.helper, made.entry), ("int64",))(10) == 10 + shift


@pytest.mark.usefixtures("own_cache")
def test_a_constant_that_is_read_through_its_module_is_part_of_the_key(tmp_path):
    made = module_of(tmp_path / "made.py", SOURCE.replace("SHIFT", "table.SHIFT"))
    for shift in (1, 2):
        made.table = module_of(tmp_path / "table.py", f"SHIFT = {shift}\n")
        assert Native((made.helper, made.entry), ("int64",))(10) == 10 + shift


@pytest.mark.usefixtures("own_cache")
def test_processor_types_and_checks_are_part_of_the_key(monkeypatch):
    functions, kinds = (plain.read_at,), ("int64[]", "int64")
    files = {
        cache_file(functions, kinds, False),
        cache_file(functions, kinds, True),
        cache_file(functions, ("int32[]", "int64"), False),
        cache_file((plain.scaled, plain.read_at), kinds, False),
    }
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "+sse2")
    files.add(cache_file(functions, kinds, False))
    monkeypatch.setenv("NUMBA_CPU_NAME", "x86-64")
    files.add(cache_file(functions, kinds, False))
    assert len(files) == 6


@pytest.mark.usefixtures("own_cache")
def test_functions_without_a_file_are_compiled_in_memory(tmp_path):
    names = {}
    exec(SOURCE, names)
    names["SHIFT"] = 4
    functions = (names["helper"], names["entry"])
    assert cache_file(functions, ("int64",), False) is None
    assert Native(functions, ("int64",))(10) == 14
    assert kept(tmp_path) == []


@pytest.mark.usefixtures("own_cache")
def test_processes_that_start_together_agree(tmp_path):
    with ThreadPoolExecutor(3) as pool:
        assert {answer.split()[0] for answer in pool.map(in_process, [CALL] * 3)} == {"6"}
    assert len(kept(tmp_path)) == 1


# --- Do compiled functions see arrays as they are, and never ask for a place that there is not? --------

ROOMS = [(engine, "ENGINE"), (l2, "PREPARE"), (l2, "WALK"), (l2, "CLASSIFY")]
# A network's first layer in small: strides, padding, groups of channels that are not full.
PROBLEM = ConvProblem((3, 5, 9, 9), (20, 5, 3, 3), stride=2, padding=1)


class Checked:
    """An array that has its places from 0 on, and no others."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def _place(self, index):
        assert 0 <= index < len(self.values), f"{index} of {len(self.values)}"
        return index

    def __getitem__(self, index):
        return int(self.values[self._place(index)])

    def __setitem__(self, index, value):
        self.values[self._place(index)] = value


class Plain:
    """The plain functions of compiled ones, over checked arrays; counts its calls."""

    def __init__(self, native):
        self.native, self.calls = native, 0

    def __call__(self, *arguments):
        self.calls += 1
        checked = [Checked(one) if isinstance(one, np.ndarray) else one for one in arguments]
        return self.native.python(*checked)


@pytest.mark.parametrize("start", ["warm", "cold", "handed"])
def test_no_index_lies_outside_of_its_array(start, monkeypatch):
    # Compiled code does not look: from -1 it would read what lies before the array.
    profile = load_profile("910B2", {"l2.capacity_bytes": 4096})
    kept = estimate(PROBLEM, product=profile, l2_start=start)
    # Else kernels of vector cores would not run again.
    known_times._remembered.cache_clear()
    watched = {name: Plain(getattr(room, name)) for room, name in ROOMS}
    for room, name in ROOMS:
        monkeypatch.setattr(room, name, watched[name])
    found = estimate(PROBLEM, product=profile, l2_start=start)
    assert [one.times for one in found.kernels] == [one.times for one in kept.kernels]
    assert all(one.calls for one in watched.values())


@pytest.mark.parametrize("checks", ["0", "1"])
def test_numbers_go_in_and_out_as_the_type_of_the_array_has_them(checks, monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", checks)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    kinds = "int64[]", "int32[]", "uint8[]", "float64[]"
    native = Native((plain.put,), kinds)
    given = np.zeros(3, np.int64), np.zeros(3, np.int32), np.zeros(3, np.uint8), np.zeros(3)
    # 300 in eight bits is 44, and 2**32 + 5 in 32 is 5; a half stays one only as a float.
    assert native(*given) == 0
    made = [array.tolist() for array in given]
    assert made == [[0, 2**40, 2], [0, 5, 2], [0, 44, 2], [0, 0.5, 2.5]]
