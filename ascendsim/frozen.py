"""A mapping that nobody can change, and that pickles and copies, which `types.MappingProxyType` does not."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


# A dict inside, so that reading costs what reading a dict costs: pricing an instruction does it often.
class FrozenMap(dict[Key, Value]):
    """A read-only copy of a mapping, equal to any dict of the same items.

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
