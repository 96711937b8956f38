"""Completion of words in a shell, and messages about work in progress."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from ascendsim.errors import ConfigError, install_hint

SHELLS = ("bash", "zsh", "tcsh")


Parsers = tuple[argparse.ArgumentParser, Mapping[str, Any]]


def add_completion(choices: Any, make: Callable[[], Parsers]) -> dict[str, Any]:
    """Add the command, and return its parser by name; `make` makes all parsers anew."""
    command = choices.add_parser(
        "completion",
        help="print what a shell needs to complete this command",
        description="Print a script that completes commands, options, products and files: `eval "
        '"$(ascendsim completion bash)"` for the shell at hand.',
        allow_abbrev=False,
    )
    command.add_argument("shell", choices=SHELLS, help="whose script")
    command.set_defaults(command=partial(_completion, make))
    return {"completion": command}


def _completion(make: Callable[[], Parsers], arguments: Any) -> int:
    print(script(arguments.shell, *make()))
    return 0


def script(shell: str, parser: argparse.ArgumentParser, commands: Mapping[str, Any]) -> str:
    """Return the script of a shell for these parsers, which are changed by this.

    Raises   ConfigError where shtab is not installed
    """
    try:
        import shtab
    except ImportError:
        raise ConfigError(
            f"`ascendsim completion` needs shtab, which is not installed; {install_hint('completion')}"
        ) from None
    from ascendsim.profile import list_products
    from ascendsim.workloads import workload_names

    products = [name for product in list_products() for name in (product.name, *product.variants)]
    for command in commands.values():
        for action in command._actions:
            if action.type is Path:
                action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE
            # Lists that the parser does not check, since a path may stand in place of a name.
            elif "--product" in action.option_strings:
                action.choices = tuple(dict.fromkeys(products))
            elif "--network" in action.option_strings:
                action.choices = tuple(workload_names())
    return str(shtab.complete(parser, shell=shell))


HELP = "say on standard error what is compiled, timed and computed"


# Printed once, where a person looks on: a pipe stays as quiet as it is.
COMPILING = "ascendsim: compiling for this machine; it takes up to a minute and is kept for the next time"
# Returns to the start of the line, and erases its text.
CLEAR = "\r\x1b[K"


@contextmanager
def told(*, wanted: bool) -> Iterator[None]:
    """Write the messages of the package to standard error as long as this lasts, if that is wanted.

    If not, standard error has the warnings about a cache that others may write, or that is broken. A terminal
    also shows that code is compiled, since this makes a first run long. One line names the function that is
    being compiled and is erased afterwards.
    """
    # Made here and not at the top: standard error may be another one for each command, as in tests.
    handler: logging.Handler = logging.StreamHandler()
    with ExitStack() as heard:
        if wanted:
            handler.setFormatter(logging.Formatter("%(relativeCreated)8.0f ms  %(name)s: %(message)s"))
            heard.enter_context(_heard("ascendsim", handler, logging.DEBUG))
        else:
            handler.setFormatter(logging.Formatter("ascendsim: %(message)s"))
            heard.enter_context(_heard("ascendsim.native.cache", handler, logging.WARNING))
            if sys.stderr.isatty():
                heard.enter_context(_heard("ascendsim.native.build", _Compiling(), logging.DEBUG))
        yield


class _Compiling(logging.Handler):
    """Says once that code is compiled, and in one line, anew for each function, which."""

    def __init__(self) -> None:
        super().__init__()
        self._said = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._said:
            self._said = True
            print(COMPILING, file=sys.stderr, flush=True)
        message = record.getMessage()
        # "compiled ..." is the last thing that is said of a function: then nobody waits for it any more.
        line = "" if message.startswith("compiled ") else message[: get_terminal_size().columns - 1]
        print(CLEAR + line, end="", file=sys.stderr, flush=True)


# Python itself ends within it, unless compiled code is under way.
PATIENCE = 0.7


@contextmanager
def ending_soon(end: Callable[[], int]) -> Iterator[None]:
    """End the process soon after an interrupt, also while compiled code keeps Python from seeing it.

    Such code may run for seconds, without the interpreter's lock: another thread hears of the signal, and
    waits for a moment. What a study has computed is in its store by then.

    end   says what there is to say, and returns the status
    """
    heard, signals = os.pipe()
    os.set_blocking(signals, False)
    before = signal.set_wakeup_fd(signals, warn_on_full_buffer=False)
    ended = threading.Event()
    threading.Thread(target=_wait_for_interrupt, args=(heard, ended, end), daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        # The thread finds its pipe at an end.
        os.close(signals)


def _wait_for_interrupt(heard: int, ended: threading.Event, end: Callable[[], int]) -> None:
    with os.fdopen(heard, "rb", buffering=0) as numbers:
        while (number := numbers.read(1)) != bytes([signal.SIGINT]):
            if not number:
                return
    if not ended.wait(PATIENCE):
        status = end()
        for worker in multiprocessing.active_children():
            worker.kill()
        os._exit(status)


@contextmanager
def _heard(name: str, handler: logging.Handler, level: int) -> Iterator[None]:
    """Give a logger a handler and a level as long as this lasts."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
