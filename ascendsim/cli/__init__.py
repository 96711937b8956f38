"""The `ascendsim` command."""

# Nothing else is imported here: whoever interrupts a command while it loads is answered by `main` too.
from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from types import FrameType

from ascendsim.errors import AscendSimError

__all__ = ["main"]

USER_ERROR = 2
INTERRUPTED = 130
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
READER_LEFT = 141  # as a shell reports a process that was ended by a closed pipe: 128 + 13
CLOSED = "standard output is closed; send it to a file, or to /dev/null"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    0; 2 for a mistake of the user; 130 when interrupted; 141 when the reader of a pipe has left
    """
    words = list(sys.argv[1:] if argv is None else argv)
    asked: dict[str, bool] = {}
    try:
        _open_closed_streams()
        if argv is None:
            _note_interrupts(asked)
        if sys.stdout is None:
            return _refuse(CLOSED)
        if argv is not None:
            return _answer(words, asked)
        # As a command, whose process is ours to end.
        from ascendsim.cli.shell import ending_soon

        with ending_soon(partial(_interrupted, asked)):
            return _answer(words, asked)
    except AscendSimError as error:
        return _refuse("\n".join([str(error), *getattr(error, "__notes__", ())]))
    except MemoryError as error:
        from ascendsim.cli.tensors import memory_advice

        detail = f" ({error})" if str(error) else ""
        return _refuse(f"not enough memory{detail}; {memory_advice(npz=asked.get('npz', False))}")
    except KeyboardInterrupt:
        return _interrupted(asked)
    except BrokenPipeError:
        # The reader of our output has left (as `head` does).
        _discard_output()
        return READER_LEFT
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            # Whoever asks whether such a path is there gets this in place of an answer.
            return _refuse(f"{str(error.filename)[:40]}... is too long for the name of a file; give another")
        if error.errno in NO_ROOM:
            _discard_output()
            return _refuse(f"output cannot be written ({error.strerror}); make room, or write elsewhere")
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{where}{error.strerror or error}; look whether it can be read and written")
    except Exception:
        # A library that is interrupted while it loads may say that it cannot be imported.
        if not asked.get("interrupted"):
            raise
        return _interrupted(asked)


def _note_interrupts(asked: dict[str, bool]) -> None:
    """Note that an interrupt came, whatever becomes of it where it arrives."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler:
        return

    def note(number: int, frame: FrameType | None) -> None:
        asked["interrupted"] = True
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, note)


def _answer(words: list[str], asked: dict[str, bool]) -> int:
    """Do what the words say; `asked` takes what the messages above need to know of them."""
    from ascendsim.cli.parser import parse
    from ascendsim.cli.shell import told
    from ascendsim.native.default_arithmetic import default_floats

    @default_floats
    def run() -> int:
        arguments = parse(words)
        arguments.words = words
        asked["npz"] = getattr(arguments, "npz", None) is not None
        asked["store"] = hasattr(arguments, "store")
        with told(wanted=arguments.verbose):
            return int(arguments.command(arguments))

    try:
        return run()
    finally:
        # Here and not when Python ends, which would say in its own words what does not fit.
        sys.stdout.flush()


def _open_closed_streams() -> None:
    """Let no file that is opened take the number of a closed stream: it would get what is printed."""
    number = os.open(os.devnull, os.O_RDWR)
    while number < 3:
        number = os.open(os.devnull, os.O_RDWR)
    os.close(number)
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    # Names of files may be no text: they are printed all the same.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")


def _interrupted(asked: dict[str, bool]) -> int:
    # Commands with a store keep each point in it as soon as it is computed.
    kept = "; what is computed is kept, the same command goes on from there"
    # As a shell reports a process that was ended by Ctrl-C: 128 + 2.
    return _refuse(f"interrupted{kept if asked.get('store') else ''}", INTERRUPTED)


def _refuse(said: str, status: int = USER_ERROR) -> int:
    """Print a message, and return the status to end with."""
    from ascendsim.files import printable

    print(f"ascendsim: {printable(said)}", file=sys.stderr)
    return status


def _discard_output() -> None:
    """Keep Python from writing again, when it ends, what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
