"""Tell through logging what is compiled: whoever runs something for the first time waits for it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from types import FunctionType
from typing import Any, Final

from numba.core import event

# numba has no types for type checkers.
_Listener: Any = event.Listener
_event: Any = event

LOGGER: Final = "ascendsim.native.telling"
# What is said, in this order: of the whole, of each function, of the whole again.
STARTED: Final = "compiling %s, which is in no cache yet"
AT: Final = "compiling %s: %d of %d functions, %s"
DONE: Final = "compiled %s in %.1f s"
_log = logging.getLogger(LOGGER)


@contextmanager
def compilation(name: str, functions: Sequence[FunctionType]) -> Iterator[None]:
    """Tell that functions are compiled under one name, and each of them as its turn comes."""
    _log.info(STARTED, name)
    began = monotonic()
    with _event.install_listener("numba:compile", _Turns(name, functions)):
        try:
            yield
        finally:
            _log.info(DONE, name, monotonic() - began)


class _Turns(_Listener):  # type: ignore[misc]
    """Tells whose turn it is; the compiler goes from a function to those that it calls."""

    def __init__(self, name: str, functions: Sequence[FunctionType]) -> None:
        self._name = name
        self._left = {function.__code__ for function in functions}
        self._all = len(functions)

    def on_start(self, told: Any) -> None:
        function = told.data["dispatcher"].py_func
        if function.__code__ in self._left:
            self._left.remove(function.__code__)
            _log.debug(AT, self._name, self._all - len(self._left), self._all, function.__qualname__)

    def on_end(self, told: Any) -> None:
        """Tell nothing: the next one tells that this one is over."""


class Asked(_Listener):  # type: ignore[misc]
    """Tells of functions that the compiler was asked for, and not of those that they call.

    modules   what the names of their modules begin with: the compiler is not for these alone
    """

    def __init__(self, modules: str) -> None:
        self._modules = modules
        self._began: list[float] = []

    def on_start(self, told: Any) -> None:
        """Take in that the compiler begins with a function."""
        function = told.data["dispatcher"].py_func
        if self._is_ours(function):
            if not self._began:
                _log.info(STARTED, function.__qualname__)
            self._began.append(monotonic())

    def on_end(self, told: Any) -> None:
        """Take in that the compiler is through with a function."""
        function = told.data["dispatcher"].py_func
        if self._is_ours(function):
            began = self._began.pop()
            if not self._began:
                _log.info(DONE, function.__qualname__, monotonic() - began)

    def _is_ours(self, function: FunctionType) -> bool:
        # Functions of others may be in no module; an error here would be one of their compilation.
        module: str | None = function.__module__
        return module is not None and module.startswith(self._modules)


def tell_of(modules: str) -> None:
    """Tell of all functions of some modules that are compiled from now on; see `Asked`."""
    _event.register("numba:compile", Asked(modules))
