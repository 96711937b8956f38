"""Arguments as users write them: integers and truth values of Python or of numpy."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Set
from itertools import islice
from operator import index
from typing import Any

from ascendsim.errors import ConfigError

# Longer lists of numbers are nothing that an operator takes; reading them could take for ever.
LONGEST = 64
SHOWN = 60
# Texts and numbers as far as a message takes them; of long lists the beginning.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = SHOWN


def whole(value: Any) -> int | None:
    """Return an integer of any kind as int; None for anything else, truth values among it."""
    if is_bool(value):
        return None
    try:
        return index(value)
    except Exception:  # whatever a foreign object does when it is asked
        return None


def items(value: Any) -> tuple[Any, ...] | None:
    """Return the items of a list of any kind; None for other values, unordered ones and far too long ones.

    No more is read of it than a list may hold, so that an endless one costs nothing.
    """
    # They have items, but "12" is not (1, 2), and a set has no order.
    if isinstance(value, (str, bytes, bytearray, Mapping, Set)):
        return None
    try:
        found = tuple(islice(value, LONGEST + 1))
    except Exception:  # likewise
        return None
    return None if len(found) > LONGEST else found


def shown(value: Any) -> str:
    """Return a text for any value at all, never long."""
    try:
        text = _SHORT.repr(value)
    except Exception:  # likewise
        text = f"a {type(value).__name__}"
    # An array is written in lines, a message in one.
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def refusal(name: str, given: object, rule: str) -> ConfigError:
    """Return the error for a meaningless value: its name, the value, and the allowed values."""
    return ConfigError(f"{name} is {shown(given)}; it must be {rule}")


def truth(value: Any) -> bool | None:
    """Return a truth value, or 0 or 1 in its place, as bool; None for anything else."""
    if is_bool(value):
        return bool(value)
    number = whole(value)
    return bool(number) if number in (0, 1) else None


def is_bool(value: Any) -> bool:
    """Return whether a value is a truth value, of Python or numpy, without importing numpy."""
    return type(value).__name__ in ("bool", "bool_")
