"""Parts of frozen objects: mappings that nobody can change, attributes that are computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NoReturn, Self, TypeVar, overload

Key = TypeVar("Key")
Value = TypeVar("Value")
Found = TypeVar("Found")


class cached_property(Generic[Found]):  # noqa: N801 - named as the one of functools, for which it stands
    """A method as an attribute, worked out when it is first read and then kept in the object.

    It has no lock. That of functools has one for all objects until Python 3.12: a process that is forked
    while another thread works any of them out would wait for it for ever. Two threads that read one for the
    first time at once may both work it out: all that read it get what was kept first.
    """

    def __init__(self, function: Callable[[Any], Found]) -> None:
        self.function, self._name = function, function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, made: None, kind: type) -> Self: ...
    @overload
    def __get__(self, made: object, kind: type) -> Found: ...
    def __get__(self, made: object, kind: type) -> Self | Found:
        """Work the attribute out and keep it, so that Python finds it in the object from then on."""
        if made is None:
            return self
        found = self.function(made)
        # Asked for by `super()`, it is not what the object has under this name.
        if getattr(kind, self._name) is not self:
            return found
        kept: Found = made.__dict__.setdefault(self._name, found)
        return kept


# A dict inside, so that reading costs what reading a dict costs: pricing an instruction does it often.
class FrozenMap(dict[Key, Value]):
    """A read-only copy of a mapping, equal to any dict of the same items.

    It pickles and copies, which `types.MappingProxyType` does not.

    Raises   TypeError whoever tries to change it
    """

    __slots__ = ()

    def __init__(self, *items: Any, **named: Any) -> None:
        # Called a second time, as `made.__init__({...})`, a dict would take the items up.
        if self:
            _refuse(self)
        super().__init__(*items, **named)

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        # As a dict it would be made empty and then filled item by item, which it refuses.
        return type(self), (dict(self),)

    # By its items, as it never changes; a dict itself has no hash.
    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"

    def __copy__(self) -> FrozenMap[Key, Value]:
        return self


def _refuse(self: Any, *_args: Any, **_named: Any) -> NoReturn:
    raise TypeError(f"{type(self).__name__} cannot be changed; make a dict of it and change that")


for _name in ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(FrozenMap, _name, _refuse)
