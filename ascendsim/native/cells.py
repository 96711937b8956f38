"""What compiled code sees of an array: its numbers, one after the other, and how many there are.

A numba array takes -1 for its last place, so that each access begins with a look at the sign of its index. An
engine makes an access every nanosecond, and none with such an index: without the look it takes two thirds of
the time. Where indices are checked, arrays are those of numba (`build.py`).
"""

import operator
from typing import Any, Final

from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

_types: Any = types
_cgutils: Any = cgutils
_models: Any = models
_intrinsic: Any = intrinsic
_register_model: Any = register_model
_lower: Any = lower_builtin
_signature: Any = signature
_infer: Any = infer_global
_Type: Any = types.Type
_Template: Any = AbstractTemplate
_StructModel: Any = models.StructModel


class Cells(_Type):  # type: ignore[misc]  # numba has no types for type checkers
    """The type of cells that hold numbers of one type."""

    def __init__(self, element: Any) -> None:
        self.element = element
        super().__init__(name=f"Cells({element})")


@_register_model(Cells)
class _Model(_StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, cells: Cells) -> None:
        members = [("first", _types.CPointer(cells.element)), ("count", _types.int64)]
        super().__init__(manager, cells, members)


@_infer(operator.getitem)
class _GetItem(_Template):  # type: ignore[misc]
    def generic(self, given: Any, _names: Any) -> Any:
        cells, index = given
        if isinstance(cells, Cells) and isinstance(index, _types.Integer):
            return _signature(cells.element, cells, index)
        return None


@_infer(operator.setitem)
class _SetItem(_Template):  # type: ignore[misc]
    def generic(self, given: Any, _names: Any) -> Any:
        cells, index, _ = given
        if isinstance(cells, Cells) and isinstance(index, _types.Integer):
            # Whatever is put there becomes a number of the cells, as in an array.
            return _signature(_types.none, cells, index, cells.element)
        return None


@_infer(len)
class _Length(_Template):  # type: ignore[misc]
    def generic(self, given: Any, _names: Any) -> Any:
        return _signature(_types.intp, *given) if isinstance(given[0], Cells) else None


def _get(context: Any, builder: Any, signed: Any, values: Any) -> Any:
    place = _place(context, builder, signed, values)
    return context.unpack_value(builder, signed.return_type, place)


def _set(context: Any, builder: Any, signed: Any, values: Any) -> None:
    place = _place(context, builder, signed, values)
    context.pack_value(builder, signed.args[2], values[2], place)


def _len(context: Any, builder: Any, signed: Any, values: Any) -> Any:
    return _members(context, builder, signed.args[0], values[0]).count


_lower(operator.getitem, Cells, _types.Integer)(_get)
_lower(operator.setitem, Cells, _types.Integer, _types.Any)(_set)
_lower(len, Cells)(_len)


def _members(context: Any, builder: Any, cells: Cells, value: Any = None) -> Any:
    return _cgutils.create_struct_proxy(cells)(context, builder, value=value)


def _place(context: Any, builder: Any, signed: Any, values: Any) -> Any:
    """Return where the number at an index lies."""
    index = context.cast(builder, values[1], signed.args[1], _types.intp)
    return builder.gep(_members(context, builder, signed.args[0], values[0]).first, [index])


def view_of(element: Any) -> Any:
    """Return a function for compiled code that makes cells of an address and a count."""
    made: Final = Cells(element)

    def view(typing: Any, address: Any, count: Any) -> Any:  # noqa: ARG001 - the compiler asks for all three
        def generate(context: Any, builder: Any, signed: Any, values: Any) -> Any:  # noqa: ARG001
            members = _members(context, builder, made)
            members.first = builder.inttoptr(values[0], members.first.type)
            members.count = values[1]
            return members._getvalue()

        return made(_types.int64, _types.int64), generate

    return _intrinsic(view)
