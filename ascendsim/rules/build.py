"""Turn tables as read into the records of `model`, telling every mistake with its place."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from ascendsim.errors import ConfigError, did_you_mean
from ascendsim.frozen import FrozenMap
from ascendsim.rules.model import OneOf

Record = TypeVar("Record", bound=tuple[Any, ...])


def build(kind: type[Record], table: Any, where: str, products: tuple[str, ...] = ()) -> Record:
    """Make a record of a table whose keys are the record's fields; `products` are those that it may name.

    Raises   ConfigError naming the place, what was got and what is expected
    """
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: got {table!r}, expected a table")
    # The annotations are the schema: a key that is added to a record is read and checked at once.
    # Type checkers do not know of any tuple that it is a named one.
    record: Any = kind
    hints = _hints(kind)
    for key in table:
        if key not in hints:
            # A misspelt key would otherwise leave the rule of the base in force without a word.
            raise ConfigError(f"{where}: unknown key {key!r}; {did_you_mean(key, hints)}")
    values = {}
    for name, hint in hints.items():
        if name in table:
            values[name] = _value(hint, table[name], f"{where}.{name}", products)
        # Few rules have a default: one that is left out must come from a base.
        elif name not in record._field_defaults:
            raise ConfigError(f"{where}: {name} is missing")
    made: Record = record(**values)
    return made


# The same few kinds of record come again and again in a file.
@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _value(hint: Any, value: Any, where: str, products: tuple[str, ...]) -> Any:
    """Return a value of the hinted type."""
    origin = get_origin(hint)
    if hasattr(hint, "_fields"):
        return build(hint, value, where, products)
    if origin is Annotated:
        kind, one_of = get_args(hint)
        return _known(_value(kind, value, where, products), one_of, where, products)
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{where}: got {value!r}, expected a list")
        # Tuples, because rule sets are cached and shared: nobody may change one.
        item = get_args(hint)[0]
        return tuple(_value(item, one, f"{where}[{i}]", products) for i, one in enumerate(value))
    if origin is Mapping:
        key_hint, value_hint = get_args(hint)
        return _mapping(key_hint, value_hint, value, where, products)
    if origin is Literal:
        if value not in get_args(hint):
            raise ConfigError(
                f"{where}: got {value!r}, expected one of {', '.join(map(repr, get_args(hint)))}"
            )
        return value
    # TOML has no null: what may be None is left out, and never written.
    kinds = tuple(kind for kind in get_args(hint) if kind is not NoneType) if origin is UnionType else (hint,)
    # bool is an int for Python, not for a reader of rules.
    if not isinstance(value, kinds) or isinstance(value, bool) != (bool in kinds):
        raise ConfigError(f"{where}: got {value!r}, expected {' or '.join(kind.__name__ for kind in kinds)}")
    return value


def _known(value: Any, one_of: OneOf, where: str, products: tuple[str, ...]) -> Any:
    """Return a name or number that is one of those that are known."""
    known = one_of.known or products
    if value in known:
        return value
    hint = did_you_mean(str(value), [*map(str, known)])
    raise ConfigError(f"{where}: unknown {one_of.what} {value!r}; {hint}")


def _mapping(
    key_hint: Any, value_hint: Any, table: Any, where: str, products: tuple[str, ...]
) -> FrozenMap[Any, Any]:
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: got {table!r}, expected a table")
    kind, one_of = get_args(key_hint)
    made = {}
    for key, value in table.items():
        # TOML has no keys but texts; formats are listed by rank.
        if kind is int and not key.isdecimal():
            raise ConfigError(f"{where}: got the key {key!r}, expected a number")
        name = _known(int(key) if kind is int else key, one_of, where, products)
        made[name] = _value(value_hint, value, f"{where}.{key}", products)
    return FrozenMap(made)
