"""Parts of the schema of a product file: rules for values, alike entries, and entries that may be absent."""

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """Rule for the value of a figure: in words for the user, and as a test.

    fits     whether a value is right, or an item of it if it is a list
    listed   whether the value is a list
    """

    expected: str
    fits: Callable[[Any], bool]
    listed: bool = False


class Each(NamedTuple):
    """A table with the same entry under each of some keys; keys that are not required may be absent."""

    keys: tuple[str, ...]
    required: tuple[str, ...]
    entry: Any


class Maybe(NamedTuple):
    """An entry that may be absent."""

    entry: Any


# Strict everywhere: "20" for 20 or 1 for true would hide a slip of the pen.
def integer(least: int, most: float = inf) -> Kind:
    """Return the rule of a whole number from a least value on, up to a largest one if there is one."""
    words = f"an integer of at least {least}" if most == inf else f"an integer from {least} to {most}"
    return Kind(words, lambda value: _is_number(value, int) and least <= value <= most)


def number(least: float, most: float = inf) -> Kind:
    """Return the rule of a finite number from a least value on, up to a largest one if there is one."""
    words = f"a number of at least {least}" if most == inf else f"a number from {least} to {most}"
    return Kind(
        words, lambda value: _is_number(value, int | float) and least <= value <= most and value < inf
    )


def word(*choices: str) -> Kind:
    """Return the rule of a text: one of some choices, or any if there are none."""
    if not choices:
        return Kind("a text", lambda value: isinstance(value, str) and value != "")
    return Kind("one of " + ", ".join(choices), lambda value: isinstance(value, str) and value in choices)


def truth() -> Kind:
    """Return the rule of a yes or no."""
    return Kind("true or false", lambda value: isinstance(value, bool))


def listed(items: str, kind: Kind) -> Kind:
    """Return the rule of a list, maybe empty, of values of a kind; `items` names them."""
    return Kind(f"a list of {items}", kind.fits, listed=True)


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
