"""Integers and truth values as users write them: Python's and numpy's mean the same."""

from __future__ import annotations

from operator import index
from typing import Any


def whole(value: Any) -> int | None:
    """Return an integer of any kind as int; None for anything else, truth values among it."""
    if is_bool(value):
        return None
    try:
        return index(value)
    except TypeError:
        return None


def truth(value: Any) -> bool | None:
    """Return a truth value, or 0 or 1 in its place, as bool; None for anything else."""
    if is_bool(value):
        return bool(value)
    number = whole(value)
    return bool(number) if number in (0, 1) else None


def is_bool(value: Any) -> bool:
    """Tell truth values, also numpy's, without importing numpy."""
    return type(value).__name__ in ("bool", "bool_")
