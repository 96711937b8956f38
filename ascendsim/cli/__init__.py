"""The `ascendsim` command."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from ascendsim.cli.parser import parse
from ascendsim.cli.shell import told
from ascendsim.errors import AscendSimError
from ascendsim.native.default_arithmetic import default_floats

__all__ = ["main"]

USER_ERROR = 2
INTERRUPTED = 130
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
READER_LEFT = 141  # as a shell reports a process that was ended by a closed pipe: 128 + 13


@default_floats
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    0; 2 for a mistake of the user; 130 when interrupted; 141 when the reader of a pipe has left
    """
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = None  # parsing may fail before there are any
    try:
        arguments = parse(words)
        arguments.words = words
        with told(wanted=arguments.verbose):
            return int(arguments.command(arguments))
    except AscendSimError as error:
        print("\n".join([f"ascendsim: {error}", *getattr(error, "__notes__", ())]), file=sys.stderr)
    except MemoryError as error:
        detail = f" ({error})" if str(error) else ""
        from ascendsim.cli.tensors import memory_advice

        advice = memory_advice(npz=getattr(arguments, "npz", None) is not None)
        print(f"ascendsim: not enough memory{detail}; {advice}", file=sys.stderr)
    except KeyboardInterrupt:
        # As a shell reports a process that was ended by Ctrl-C: 128 + 2.
        # Commands with a store keep each point in it as soon as it is computed.
        kept = "; what is computed is kept, the same command goes on from there"
        print(f"ascendsim: interrupted{kept if hasattr(arguments, 'store') else ''}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has left (as `head` does); keep Python from complaining when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_LEFT
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            # Whoever asks whether such a path is there gets this in place of an answer.
            name = str(error.filename)
            print(
                f"ascendsim: {name[:40]}... is too long for the name of a file; give another", file=sys.stderr
            )
            return USER_ERROR
        if error.errno not in NO_ROOM:
            raise
        # As above: what did not fit is tried again when Python flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(
            f"ascendsim: output cannot be written ({error.strerror}); make room, or write elsewhere",
            file=sys.stderr,
        )
    return USER_ERROR
