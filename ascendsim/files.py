"""Read and write files: no reader takes more than its limits, no writer leaves half a file."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ascendsim.errors import DataError

MIB = 1 << 20
# Texts are written by people and by profilers; a table of a whole network's kernels has a few MiB.
MOST_TEXT = 64 * MIB
# Parsing a MiB of TOML takes two seconds.
MOST_TOML = 4 * MIB
# What protobuf itself takes.
MOST_MODEL = (1 << 31) - 1
# Of an archive's arrays, unpacked, unless the file itself is a sixteenth as large at least. Compression hides
# their size: 3 MB can stand for 3 GB.
MOST_ARRAYS, MOST_UNPACKED = 1 << 31, 16
# Tables and lists inside each other, parts of a dotted key, digits of a number. The parsers of the standard
# library recurse by the first, and take the square of the others in time.
DEEPEST, MOST_PARTS, MOST_DIGITS = 64, 32, 512
# Characters of a key, which is said whole where it is wrong.
LONGEST_KEY = 256
# Files that name each other as a base.
LONGEST_CHAIN = 8

# No group is possessive: before 3.11.5 Python takes one that could go back for one that may not match. What
# has no end goes on to the end of the text, or looking for that would begin anew at each quote; the parser
# refuses it.
_TOML_TEXT = re.compile(
    r'"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*(?:""")?'
    r"|'''[^']*(?:'(?!'')[^']*)*(?:''')?"
    r'|"[^"\\\n]*(?:\\.[^"\\\n]*)*"?'
    r"|'[^'\n]*'?|#[^\n]*",
    re.DOTALL,
)
_JSON_TEXT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKETS = re.compile(r"[\[{]|[\]}]")
_DOTTED = re.compile(rf"(?<![\w.-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}")
_DIGITS = re.compile(rf"(?<![0-9A-Fa-f_])[0-9A-Fa-f_]{{{MOST_DIGITS}}}")
# Control characters but for tab and newline, and halves of a surrogate pair: a terminal obeys the first ones,
# and no encoding has the others.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# A spreadsheet takes what begins so for a formula.
_FORMULA = re.compile(r"\s*[=+@-]|[\t\r]")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a plain file to read.

    Raises   as `read_bytes`
    """
    # A pipe without a writer would let its opener wait for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = os.fstat(handle).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "a pipe or device, not a plain file; copy it into one", str(path))
        with os.fdopen(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


def read_bytes(path: Path, most: int = MOST_TEXT) -> bytes:
    """Return the bytes of a plain file that has no more than `most`.

    Raises   OSError for what cannot be opened, is a pipe or a device, or is larger; its `strerror` says why.
             ValueError for a name with a NUL
    """
    with _opened(path) as file:
        # Not the size that the file system tells: files under /proc have none.
        read = file.read(most + 1)
    if len(read) > most:
        raise OSError(errno.EINVAL, f"larger than {most:,} bytes, the most that is read", str(path))
    return read


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """Return the text of a file; lines that end as on Windows end in newlines alone.

    Raises   as `read_bytes`; UnicodeDecodeError for other encodings
    """
    return read_bytes(path).decode(encoding).replace("\r\n", "\n")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text, control characters as their escapes.

    Raises   ValueError in one line
    """
    if len(text) > MOST_TOML:
        raise ValueError(f"larger than {MOST_TOML:,} characters, the most that is read of TOML")
    _require_simple(_TOML_TEXT.sub('""', text))
    made = tomllib.loads(text)
    _require_short_keys(made)
    return dict(_plain_values(made, text))


def parse_json(text: str) -> Any:
    """Return the value of a JSON text, control characters as their escapes.

    Raises   ValueError in one line
    """
    _require_simple(_JSON_TEXT.sub('""', text))
    made = json.loads(text)
    _require_short_keys(made)
    return _plain_values(made, text)


def _require_short_keys(value: Any) -> None:
    """Refuse parsed values with a key that would fill a page of a message.

    Raises   ValueError
    """
    if isinstance(value, dict):
        if long := next((key for key in value if len(key) > LONGEST_KEY), None):
            raise ValueError(f"the key {printable(long[:40])}... is longer than {LONGEST_KEY} characters")
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            if isinstance(item, dict | list):
                _require_short_keys(item)


def _require_simple(text: str) -> None:
    """Refuse a text, its strings and comments taken out, that a parser would take too long or too deep for.

    Raises   ValueError
    """
    depth = 0
    for bracket in _BRACKETS.findall(text):
        depth += 1 if bracket in "[{" else -1
        if depth > DEEPEST:
            raise ValueError(f"nested too deep: at most {DEEPEST} levels are read")
    if _DOTTED.search(text):
        raise ValueError(f"a key of more than {MOST_PARTS} dotted parts is nested too deep")
    if _DIGITS.search(text):
        raise ValueError(f"a number or key of {MOST_DIGITS} digits or more is too long")


def _plain_values(value: Any, text: str) -> Any:
    """Return parsed values with their texts made printable."""
    return _made_plain(value) if "\\" in text or _UNPRINTABLE.search(text) else value


def _made_plain(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_made_plain(item) for item in value]
    if isinstance(value, dict):
        return {printable(key): _made_plain(item) for key, item in value.items()}
    return value


def printable(text: str) -> str:
    """Return a text with control characters and lone surrogates as their escapes; tabs and newlines stay."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def read_npz(path: Path) -> dict[str, Any]:
    """Return the arrays of an archive that `numpy.savez` has written, by name; nothing is unpickled.

    What numpy cannot tell to be an array comes as bytes.

    Raises   OSError as `read_bytes`, MemoryError, ValueError for all else
    """
    import numpy as np

    with _opened(path) as file:
        try:
            loaded = np.load(file, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise ValueError("it holds one array, not an archive of them")
            assert loaded.zip is not None
            size = sum(int(member.file_size) for member in loaded.zip.infolist())
            most = max(MOST_ARRAYS, MOST_UNPACKED * os.fstat(file.fileno()).st_size)
            if size > most:
                raise ValueError(f"its arrays take {size:,} bytes unpacked; at most {most:,} are read")
            return {printable(name): loaded[name] for name in loaded.files}
        except (OSError, MemoryError, ValueError):
            raise
        # What numpy, zipfile and its decompressors raise for damaged or foreign files is documented nowhere.
        except Exception as error:
            raise ValueError((str(error) or type(error).__name__).splitlines()[0]) from error


def make_folder(folder: Path) -> None:
    """Make the folder of a report, with its parents.

    Raises   DataError if it cannot be made or written to
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"{folder}: this folder cannot be made ({reason}); name another one") from error
    # An existing folder is made without a word, whoever owns it; better told now than after the run.
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DataError(f"{folder}: this folder cannot be written to; name another one")


def require_folder(folder: Path) -> None:
    """Refuse a folder that could not be made or written to, before the work for it; nothing is made.

    Raises   DataError
    """
    nearest = folder
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise DataError(f"{folder}: {nearest} is a file, no folder can be in it; name another one")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise DataError(f"{folder}: nothing can be written to {nearest}; name another one")


def require_file(path: Path) -> None:
    """Refuse a file that could not be written, before the work for it; nothing is made.

    Raises   DataError
    """
    if path.is_dir():
        raise DataError(f"{path}: this is a folder; name a file")
    if not path.parent.is_dir():
        raise DataError(f"{path}: there is no folder {path.parent}; make it, or name another file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise DataError(f"{path}: this file cannot be written; name another one")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, which takes its name only if the caller ends without an error.

    A link stays a link: what it leads to is replaced. A pipe or a device is written to as it is.

    Raises   DataError where it cannot be written, as on a full disk; what was there before stays as it was
    """
    try:
        # A name without end, a loop of links.
        target = path.resolve()
        special = target.exists() and not (target.is_file() or target.is_dir())
        if special:
            yield path
            return
        # Beside it, since only a rename within one file system is whole or not at all; the random part keeps
        # two runs, or two threads, that write one file apart.
        temporary = target.with_name(f".{target.stem[:40]}-{os.urandom(6).hex()}{target.suffix}")
        try:
            yield temporary
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"{path}: cannot be written ({reason}); make room, or name another file") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all; what no encoding has is written as its escape.

    Raises   DataError
    """
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file, whole or not at all.

    Raises   DataError
    """
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays as an archive that `numpy.load` reads, whole or not at all.

    Raises   DataError
    """
    import numpy as np

    # Made in memory: zipfile complains again about a full disk when it is thrown away, and nobody hears it.
    made = io.BytesIO()
    np.savez(made, **arrays)
    write_bytes(path, made.getbuffer())


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], missing: str = "") -> str:
    """Return a table as CSV: no text in it is a formula to a spreadsheet, nor a command to a terminal.

    A text that a spreadsheet would take for a formula begins with an apostrophe, which it does not show.
    """
    made = io.StringIO()
    table = csv.writer(made, lineterminator="\n")
    table.writerow([_cell(name) for name in columns])
    table.writerows([_cell(row.get(name, missing)) for name in columns] for row in rows)
    return made.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if _FORMULA.match(text) else text


@contextmanager
def replacing_report(folder: Path) -> Iterator[Path]:
    """Give a temporary folder, whose files become the report in `folder` if the caller ends without an error.

    The files of the report that was there before, as its result.json lists them, leave with it: a folder
    holds one report. Other files stay.
    Raises   DataError if the folder cannot be made or written to
    """
    # Imported here: it takes a while to load, and product files are read here too.
    from tempfile import TemporaryDirectory

    make_folder(folder)
    with TemporaryDirectory(prefix=".report-", dir=folder, ignore_cleanup_errors=True) as made:
        stage = Path(made)
        yield stage
        # Old files go before new ones come: a file of both reports keeps its name and must not go after.
        for old in _listed(folder):
            old.unlink(missing_ok=True)
        for new in sorted(stage.iterdir()):
            new.replace(folder / new.name)


def _listed(folder: Path) -> list[Path]:
    """Return the files in a folder that its result.json lists; none if there is no such list."""
    try:
        names = list(parse_json(read_text(folder / "result.json"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    # The list is a file that anybody may have edited: a name with a path in it could delete what is not ours.
    paths = [folder / name for name in names if isinstance(name, str) and Path(name).name == name]
    return [path for path in paths if path.is_file()]
