"""Parts of the schema of a product file: rules for values, alike entries, and entries that may be absent."""

from dataclasses import dataclass
from typing import Any

from pydantic_core import core_schema as cs


@dataclass(frozen=True)
class Kind:
    """Rule for the value of a figure: in words for the user, and as a schema."""

    expected: str
    schema: cs.CoreSchema


@dataclass(frozen=True)
class Each:
    """A table with the same entry under each of some keys; keys that are not required may be absent."""

    keys: tuple[str, ...]
    required: tuple[str, ...]
    entry: Any


@dataclass(frozen=True)
class Maybe:
    """An entry that may be absent."""

    entry: Any


def integer(least: int, most: int | None = None) -> Kind:
    """Return the rule of a whole number from a least value on, up to a largest one if there is one."""
    words = f"an integer of at least {least}" if most is None else f"an integer from {least} to {most}"
    return Kind(words, cs.int_schema(strict=True, ge=least, le=most))


def number(words: str, schema: cs.FloatSchema) -> Kind:
    """Return the rule of a number whose bounds the words name."""
    return Kind(f"a number {words}", schema)


def word(*choices: str) -> Kind:
    """Return the rule of a text: one of some choices, or any if there are none."""
    if not choices:
        return Kind("a text", cs.str_schema(strict=True, min_length=1))
    return Kind("one of " + ", ".join(choices), cs.literal_schema(list(choices)))
