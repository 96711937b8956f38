"""Is machine code of others refused, and a broken file made anew, without a crash and with one line said?"""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ascendsim.cli.shell import told
from ascendsim.native import Native
from ascendsim.native import cache as sealed
from ascendsim.native.cache import (
    cache_file,
    digest_of,
    folder_of,
    read,
    read_sealed,
    say,
    usable_folder,
    write,
    write_sealed,
)
from tests.helpers import native_functions as plain

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")
root_only = pytest.mark.skipif(
    hasattr(os, "geteuid") and os.geteuid() != 0, reason="only root can give a file to another user"
)
ROOT = Path(__file__).parents[2]
STRANGER = 54321
CONTENT = b"\n\0code\n"


@pytest.fixture(autouse=True)
def own_place(monkeypatch):
    for name in ("NUMBA_CACHE_DIR", "NUMBA_BOUNDSCHECK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def place():
    """A folder that every user can reach, and that belongs to this one; pytest closes its own to others."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def path(place):
    """A file that is as it should be."""
    path = place / "ascendsim" / "native" / "name-1"
    assert write_sealed(path, CONTENT)
    assert read_sealed(path) == CONTENT
    return path


@contextmanager
def as_user(user):
    """Be another user for a while; nothing may be imported meanwhile."""
    own = os.geteuid()
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(own)


# ------------------------------------------------------------------------------------------ who wrote it
@pytest.mark.parametrize("mask", [0, 0o002, 0o077])
def test_what_is_made_is_for_this_user_alone(place, mask):
    before = os.umask(mask)
    try:
        path = place / "ascendsim" / "native" / "name-1"
        assert write_sealed(path, CONTENT)
    finally:
        os.umask(before)
    assert read_sealed(path) == CONTENT
    modes = [stat.S_IMODE(made.stat().st_mode) for made in (path, *path.parents[:2])]
    assert modes == [0o600, 0o700, 0o700]


@pytest.mark.parametrize("levels", [0, 1])
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_may_write_is_not_used_and_named_once(path, caplog, levels, mode):
    folder = path.parents[levels]
    folder.chmod(mode)
    other = path.with_name("other-1")
    for _ in range(2):
        assert read_sealed(path) is None
        assert read_sealed(other) is None
        assert not write_sealed(other, CONTENT)
    assert sorted(path.parent.iterdir()) == [path]
    (line,) = caplog.messages
    assert line.startswith(f"{folder} may be written by others than you (mode {mode:04o}): nothing is read")
    assert "chmod go-w" in line
    folder.chmod(0o755)
    assert read_sealed(path) == CONTENT


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_replaced(path, caplog, mode):
    path.chmod(mode)
    assert read_sealed(path) is None
    assert caplog.messages == [
        f"{path} may be written by others than you (mode {mode:04o}): it is compiled anew"
    ]
    assert write_sealed(path, CONTENT)
    assert read_sealed(path) == CONTENT
    assert len(caplog.messages) == 1


@root_only
@pytest.mark.parametrize("levels", [0, 1, 2])
def test_a_file_or_folder_of_another_user_is_not_read(path, caplog, levels):
    theirs = (path, *path.parents)[levels]
    os.chown(theirs, STRANGER, -1)
    assert read_sealed(path) is None
    # A file of another user is replaced; a folder of another user gets none.
    assert write_sealed(path, CONTENT) == (levels == 0)
    (line,) = caplog.messages
    assert line.startswith(f"{theirs} belongs to user {STRANGER}, not to you (user 0): ")


@root_only
def test_what_this_user_may_not_even_open_is_named_too(path, caplog):
    os.chown(path.parents[2], STRANGER, -1)
    path.parents[1].chmod(0o700)
    with as_user(STRANGER):
        assert read_sealed(path) is None
        assert not write_sealed(path, CONTENT)
    (line,) = caplog.messages
    assert line.startswith(f"{path.parents[1]} belongs to user 0, not to you (user {STRANGER}): ")


def test_a_link_is_followed_where_only_this_user_can_have_put_it(path, caplog):
    elsewhere = path.parents[2] / "elsewhere"
    path.parents[1].rename(elsewhere)
    path.parents[1].symlink_to(elsewhere)
    assert read_sealed(path) == CONTENT
    path.parents[2].chmod(0o1777)
    assert read_sealed(path) is None
    (line,) = caplog.messages
    assert line.startswith(f"{path.parents[1]} is a link: ")
    # Also one of a file, which would be another file of the user's own.
    path.parents[2].chmod(0o755)
    path.rename(path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))
    assert read_sealed(path) is None
    assert write_sealed(path, CONTENT)
    assert not path.is_symlink()
    assert read_sealed(path) == CONTENT


@root_only
def test_a_link_into_the_folder_of_another_user_is_not_followed(path, caplog):
    theirs = path.parents[2] / "theirs"
    path.parents[1].rename(theirs)
    path.parents[1].symlink_to(theirs)
    os.chown(theirs, STRANGER, -1)
    assert read_sealed(path) is None
    assert not write_sealed(path, CONTENT)
    (line,) = caplog.messages
    assert f"belongs to user {STRANGER}" in line


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_or_folder_in_the_place_of_a_file_is_none(path, make):
    path.unlink()
    make(path)
    assert read_sealed(path) is None


# ------------------------------------------------------------------------------------------ several users
@root_only
def test_users_who_share_a_place_have_a_folder_each(place, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    place.chmod(0o1777)
    paths = {}
    for user in (0, STRANGER, STRANGER + 1):
        with as_user(user):
            paths[user] = folder_of("native", "") / "name-1"
            assert write_sealed(paths[user], CONTENT + bytes(user % 7))
    assert sorted(path.name for path in place.iterdir()) == [
        "ascendsim",
        f"ascendsim-{STRANGER}",
        f"ascendsim-{STRANGER + 1}",
    ]
    for user, path in paths.items():
        with as_user(user):
            assert [read_sealed(one) for one in paths.values()].count(None) == 2
            assert read_sealed(path) == CONTENT + bytes(user % 7)


@root_only
def test_a_folder_that_somebody_has_made_for_another_user_is_not_used(place, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    place.chmod(0o1777)
    os.chown(place, STRANGER, -1)
    with as_user(STRANGER):
        assert write_sealed(place / "ascendsim-0" / "native" / "name-1", CONTENT)
    assert folder_of("native", "") == place / "ascendsim-0" / "native"
    assert read_sealed(folder_of("native", "") / "name-1") is None
    assert usable_folder("native", "") is None
    (line,) = caplog.messages
    assert line.startswith(f"{place / 'ascendsim-0'} belongs to user {STRANGER}")


def test_a_folder_that_others_may_write_is_no_place_for_answers_either(place, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    assert usable_folder("studies", "") == place / "ascendsim" / "studies"
    (place / "ascendsim").chmod(0o777)
    assert usable_folder("studies", "") == place / f"ascendsim-{os.geteuid()}" / "studies"
    (line,) = caplog.messages
    assert line.startswith(f"{place / 'ascendsim'} may be written by others than you (mode 0777): nothing is")


# ------------------------------------------------------------------------------------------ what was written
def test_a_digest_tells_parts_apart():
    assert (
        len({digest_of(b"ab", b"c"), digest_of(b"a", b"bc"), digest_of(b"abc"), digest_of(b"abc", b"")}) == 4
    )


def test_no_part_no_changed_bit_and_no_other_name_is_taken(path, caplog):
    whole = path.read_bytes()
    broken = [whole[:length] for length in range(len(whole))] + [whole + b"\0"]
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        broken.append(bytes(changed))
    for content in broken:
        path.write_bytes(content)
        assert read_sealed(path) is None
    path.write_bytes(whole)
    assert read_sealed(path) == CONTENT
    other = path.rename(path.with_name("other-1"))
    assert read_sealed(other) is None
    assert caplog.messages == [
        f"{name} is not what was written under this name: it is compiled anew" for name in (path, other)
    ]


def test_what_cannot_be_written_leaves_nothing_behind(path, monkeypatch):
    def refuse(*_arguments):
        raise OSError("no room")

    monkeypatch.setattr(Path, "replace", refuse)
    assert not write_sealed(path, b"other")
    assert list(path.parent.iterdir()) == [path]
    assert read_sealed(path) == CONTENT


def test_where_files_have_no_owners_the_checksum_is_all(path, monkeypatch):
    path.chmod(0o666)
    monkeypatch.setattr(sealed, "_HAS_OWNERS", False)
    assert read_sealed(path) == CONTENT
    path.write_bytes(path.read_bytes()[:-1])
    assert read_sealed(path) is None
    assert write_sealed(path, CONTENT)
    assert read_sealed(path) == CONTENT


def test_the_command_says_it_on_standard_error(capsys):
    with told(wanted=False):
        say("a folder of others, in a test")
        say("a folder of others, in a test")
    say("after the command, in a test")
    assert capsys.readouterr() == ("", "ascendsim: a folder of others, in a test\n")


# ------------------------------------------------------------------------------------------ what is executed
KINDS = ("int64[]", "int64")


@pytest.fixture
def code_path(place, monkeypatch):
    """The file of the machine code of `read_at`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    assert read_sixth() == 6
    return cache_file((plain.read_at,), KINDS, False)


def read_sixth(function=plain.read_at):
    """Load the code anew and run it."""
    return Native((function,), KINDS)(np.array([5, 6, 7]), 1)


def open_to_others(path):
    path.chmod(0o646)


def in_an_open_folder(path):
    path.parent.chmod(0o757)


def of_a_stranger(path):
    os.chown(path, STRANGER, -1)


@pytest.mark.parametrize(
    "refused", [open_to_others, in_an_open_folder, pytest.param(of_a_stranger, marks=root_only)]
)
def test_planted_code_does_not_run(code_path, caplog, refused):
    assert read_sixth(plain.scaled) == 6 * 3 + 7
    write(code_path, read(cache_file((plain.scaled,), KINDS, False)))
    # It is code that runs: this user has written it.
    assert read_sixth() == 6 * 3 + 7
    refused(code_path)
    assert read_sixth() == 6
    assert len(caplog.messages) == 1
    code_path.parent.chmod(0o755)
    # Replaced where only this user writes; nothing was put into the other folder.
    assert read_sixth() == (6 * 3 + 7 if refused is in_an_open_folder else 6)


# What both kinds of code do with files that are broken, each in a process of its own: it might not survive.
BROKEN = """
import logging, random, sys
import numpy as np
from tests.helpers.native_functions import read_at, scaled

logging.basicConfig(stream=sys.stdout, format="%(message)s")
logging.getLogger("ascendsim.native.build").setLevel(logging.ERROR)
numbers = np.array([5, 6, 7])

def all_are_made_anew(path, theirs, run):
    whole, drawn = path.read_bytes(), random.Random(7)
    cut = [whole[: drawn.randrange(len(whole))] for _ in range(6)]
    flipped = []
    for _ in range(12):
        changed = bytearray(whole)
        bit = drawn.randrange(8 * len(whole))
        changed[bit // 8] ^= 1 << bit % 8
        flipped.append(bytes(changed))
    for content in (b"", theirs.read_bytes(), *cut, *flipped):
        path.write_bytes(content)
        assert run() == 6
        assert path.read_bytes() != content
        assert run() == 6
"""
OF_NATIVE = """
from ascendsim.native import Native
from ascendsim.native.cache import cache_file

def run(function=read_at):
    return Native((function,), ("int64[]", "int64"))(numbers, 1)

run(), run(scaled)
paths = [cache_file((function,), ("int64[]", "int64"), False) for function in (read_at, scaled)]
all_are_made_anew(*paths, run)
"""
OF_KERNELS = """
import os
from ascendsim.native.cache import read_sealed, write_sealed
from ascendsim.numerics.compiled.jit import cache_folder, kernel

def run(function=read_at):
    return kernel(function)(numbers, 1)

def found(function=read_at):
    made = kernel(function)
    return int(made(numbers, 1)), sum(made.__wrapped__.stats.cache_hits.values())

assert found() == (6, 0)
assert found() == (6, 1)
(path,) = cache_folder().iterdir()
run(scaled)
(theirs,) = {*cache_folder().iterdir()} - {path}
all_are_made_anew(path, theirs, run)
assert found() == (6, 1)
# Code of others would run: this user may plant it.
write_sealed(path, read_sealed(theirs))
assert found() == (25, 1)
path.chmod(0o646)
assert found() == (6, 0)
assert found() == (6, 1)
"""


def lines_of(code, place):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path)), "XDG_CACHE_HOME": str(place)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_broken_code_is_made_anew_and_said_once(place):
    (line,) = lines_of(BROKEN + OF_NATIVE, place)
    assert line.endswith(" is not what was written under this name: it is compiled anew")


def test_broken_and_planted_code_of_kernels_is_made_anew_and_said_once(place):
    first, second = lines_of(BROKEN + OF_KERNELS, place)
    assert first.endswith(" is not what was written under this name: it is compiled anew")
    assert second.endswith(" may be written by others than you (mode 0646): it is compiled anew")


def test_kernels_of_a_folder_that_others_may_write_are_kept_in_another(place):
    code = """
import logging, sys
import numpy as np
from ascendsim.numerics.compiled.jit import cache_folder, kernel
from tests.helpers.native_functions import read_at

logging.basicConfig(stream=sys.stdout, format="%(message)s")
logging.getLogger("ascendsim.native.build").setLevel(logging.ERROR)
made = [kernel(read_at) for _ in range(2)]
print(cache_folder(), *(one(np.array([5, 6, 7]), 1) for one in made))
"""
    (place / "ascendsim").mkdir()
    (place / "ascendsim").chmod(0o777)
    line, printed = lines_of(code, place)
    assert line.startswith(f"{place / 'ascendsim'} may be written by others than you (mode 0777): nothing is")
    own = place / f"ascendsim-{os.geteuid()}"
    assert printed.startswith(f"{own}/")
    assert printed.endswith(" 6 6")
    assert list((place / "ascendsim").iterdir()) == []
