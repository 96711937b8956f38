"""Compile plain functions into object code. Imports numba: only for functions that no cache holds."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from types import FunctionType
from typing import Any, Final

import numba
from numba.core import event
from numba.core.errors import NumbaError, UnsupportedBytecodeError
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from ascendsim.errors import AscendSimError
from ascendsim.native.object_code import ObjectCode
from ascendsim.native.parts import optimised, part
from ascendsim.native.processor import emit

# numba has no types for type checkers.
_Listener: Any = event.Listener
_event: Any = event

LOGGER: Final = "ascendsim.native.build"
# What is said, in this order: of the whole, of each function, of the whole again.
STARTED: Final = "compiling %s, which is in no cache yet"
AT: Final = "compiling %s: %d of %d functions, %s"
DONE: Final = "compiled %s in %.1f s"
_log = logging.getLogger(LOGGER)


@contextmanager
def compilation(name: str, functions: Sequence[FunctionType]) -> Iterator[None]:
    """Log that functions are compiled under one name, and each function as its turn comes."""
    _log.info(STARTED, name)
    began = monotonic()
    with _event.install_listener("numba:compile", _Turns(name, functions)):
        try:
            yield
        finally:
            _log.info(DONE, name, monotonic() - began)


class _Turns(_Listener):  # type: ignore[misc]
    """Logs the function that is being compiled; the compiler goes on to the functions that it calls."""

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
        """Log nothing: the next function's message shows that this one is over."""


class Asked(_Listener):  # type: ignore[misc]
    """Logs functions that were passed to the compiler, without the functions that they call.

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
    """From now on log each function that is compiled of modules whose names begin so; see `Asked`."""
    _event.register("numba:compile", Asked(modules))


# numba has no types for type checkers.
_types: Any = numba.types
_intrinsic: Any = intrinsic
_make_array: Any = make_array
_populate_array: Any = populate_array

# Nothing counts references or goes through the interpreter, so that the code stands alone. numpy's error
# model: a division by zero is not looked for.
_OPTIONS: Final = {"error_model": "numpy", "_nrt": False}


def build(
    functions: tuple[FunctionType, ...],
    arguments: tuple[str, ...],
    bounds: bool,
    inline: tuple[FunctionType, ...] = (),
) -> ObjectCode:
    """Compile functions, the entry last, behind a function that takes the address of a table of arguments.

    arguments   types of the entry's arguments, such as "int64[]"
    bounds      whether every index is checked
    inline      functions that become part of those that call them

    The table has an int64 for each integer; an address and a length for each array. AscendSimError says what
    the compiler does not take.
    """
    name = functions[-1].__qualname__
    with compilation(name, functions):
        try:
            entry = _compiled_entry(functions, bounds, inline)
            wrapper = _wrapper(entry, arguments, _view if bounds else _pointer)
            made = part(wrapper, boundscheck=bounds, **_OPTIONS)
            made.compile((_types.int64,))
        except (NumbaError, UnsupportedBytecodeError) as mistake:
            raise AscendSimError(
                f"{name}: the compiler does not take it, or a helper of it; name every function that it "
                f"calls, helpers first: {mistake}"
            ) from mistake
        (result,) = made.overloads.values()
        return emit(result.fndesc.llvm_func_name, optimised(result.library))


def _compiled_entry(
    functions: tuple[FunctionType, ...], bounds: bool, inline: tuple[FunctionType, ...]
) -> Any:
    """Return the last function for the compiler; it finds compiled ones in place of plain ones."""
    made: dict[FunctionType, Any] = {}
    for function in functions:
        # A function finds its helpers in its globals by whatever name they have there.
        names = {
            name: made.get(value, value) if isinstance(value, FunctionType) else value
            for name, value in function.__globals__.items()
        }
        copy = FunctionType(
            function.__code__, names, function.__name__, function.__defaults__, function.__closure__
        )
        made[function] = part(copy, boundscheck=bounds, forceinline=function in inline, **_OPTIONS)
    return made[functions[-1]]


def _wrapper(entry: Any, arguments: tuple[str, ...], view: Any) -> FunctionType:
    """Return a function of one address that calls the entry with what the table there holds.

    view   makes of the type of an element what makes of an address and a length what stands for an array
    """
    words: list[str] = []
    cells = 0
    names: dict[str, Any] = {"entry": entry, "view_int64": view(_types.int64)}
    for kind in arguments:
        element = kind.removesuffix("[]")
        if element == kind:
            words.append(f"cells[{cells}]")
            cells += 1
        else:
            names.setdefault(f"view_{element}", view(getattr(_types, element)))
            words.append(f"view_{element}(cells[{cells}], cells[{cells + 1}])")
            cells += 2
    # One argument of each call more: only source text can say that.
    source = f"def wrapper(address):\n    cells = view_int64(address, {cells})\n"
    exec(f"{source}    return entry({', '.join(words)})\n", names)
    wrapper: FunctionType = names["wrapper"]
    return wrapper


def _view(element: Any) -> Any:
    """Return a function for compiled code that makes a 1-D array of an address and a length."""
    array = _types.Array(element, 1, "C")

    def view(typing: Any, address: Any, length: Any) -> Any:  # noqa: ARG001 - the compiler asks for all three
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
            made = _make_array(array)(context, builder)
            size = context.get_constant(_types.intp, element.bitwidth // 8)
            _populate_array(
                made,
                data=builder.inttoptr(values[0], made.data.type),
                shape=[values[1]],
                strides=[size],
                itemsize=size,
                meminfo=None,  # nobody counts references to the caller's memory
            )
            return made._getvalue()

        return array(_types.int64, _types.int64), generate

    return _intrinsic(view)


def _pointer(element: Any) -> Any:
    """Return a function for compiled code that makes a pointer of an address; it knows no length."""
    # An array takes -1 for its last place, so that each access begins with a look at the sign of its index.
    # An engine makes an access every nanosecond, and none with index -1: without the look it takes half
    # of the time, and with one word in place of an array's seven it takes a fifth less again.
    pointer = _types.CPointer(element)

    def view(typing: Any, address: Any, length: Any) -> Any:  # noqa: ARG001 - the compiler asks for all three
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
            return builder.inttoptr(values[0], context.get_value_type(pointer))

        return pointer(_types.int64, _types.int64), generate

    return _intrinsic(view)
