"""Laps: the numbers of a loop's rounds, by which slices of GM are told apart from round to round."""

from __future__ import annotations

from typing import Any

from ascendsim.errors import ProgramError


class Lap(int):
    """The number of a round of a loop; a slice that names it moves on with every round, by the loop's step.

    A body is emitted for a few rounds only. In what it names for the others this number alone is another one,
    so it may be moved by a constant, and nothing else: what would not move on with the rounds, and what asks
    which round it is, is refused.
    """

    __slots__ = ()

    def __add__(self, other: int) -> Lap:
        if type(other) is Lap:
            _refuse(self, other)
        return Lap(int(self) + int(other))

    def __sub__(self, other: int) -> Lap:
        if type(other) is Lap:
            _refuse(self, other)
        return Lap(int(self) - int(other))

    __radd__ = __add__


def _refuse(self: Lap, *_others: object) -> Any:
    raise ProgramError(
        f"lap {int(self)} of a loop is used in a way that does not move on with the rounds, or that asks "
        "which round it is; add or subtract a constant only, or go through a plain range instead of "
        "ProgramBuilder.loop"
    )


# Equality and hash stay: keys of tiles name laps.
for _name in (
    *("mul", "rmul", "floordiv", "rfloordiv", "truediv", "rtruediv", "mod", "rmod", "divmod", "rdivmod"),
    *("pow", "rpow", "rsub", "neg", "pos", "abs", "invert", "lshift", "rlshift", "rshift", "rrshift"),
    *("and", "rand", "or", "ror", "xor", "rxor", "lt", "le", "gt", "ge"),
):
    setattr(Lap, f"__{_name}__", _refuse)


def moved(value: Any, by: int) -> Any:
    """Return a value with every lap in it moved: a lap, or a tuple of anything, records included."""
    if type(value) is Lap:
        return Lap(int(value) + by)
    if not isinstance(value, tuple):
        return value
    parts: list[Any] | None = None
    for at, part in enumerate(value):
        # Most parts are plain numbers, and a call for each would be what is slow.
        if type(part) is int or not (type(part) is Lap or isinstance(part, tuple)):
            continue
        new = moved(part, by)
        if new is not part:
            if parts is None:
                parts = list(value)
            parts[at] = new
    # Most tuples name no lap, and to make them anew takes longer than to look.
    if parts is None:
        return value
    return tuple(parts) if type(value) is tuple else type(value)(*parts)


def first_lap(value: Any) -> Lap | None:
    """Return the first lap in a value, or None."""
    if type(value) is Lap:
        return value
    if isinstance(value, tuple):
        for part in value:
            if (type(part) is Lap or isinstance(part, tuple)) and (lap := first_lap(part)) is not None:
                return lap
    return None


def told_apart(value: Any) -> tuple[Any, int]:
    """Return a key of a value, which equals that of the value in another round of a loop, and its first lap.

    Laps count from the first one; and the number 3 is no lap 3, although they are equal.
    """
    first = None
    if isinstance(value, tuple):
        # Most are laps among plain numbers: one pass over those, where all others take several.
        parts: list[Any] = []
        for part in value:
            if type(part) is Lap:
                first = int(part) if first is None else first
                parts.append((Lap, int(part) - first))
            elif type(part) is int:
                parts.append(part)
            else:
                break
        else:
            return (value, 0) if first is None else (tuple(parts), first)
    first = first_lap(value)
    return (value, 0) if first is None else (_key(value, int(first)), int(first))


def _key(value: Any, first: int) -> Any:
    if type(value) is Lap:
        return Lap, int(value) - first
    if isinstance(value, tuple):
        # Most parts are plain numbers, as in `moved`.
        return tuple(
            [_key(part, first) if type(part) is Lap or isinstance(part, tuple) else part for part in value]
        )
    return value


def named(index: tuple[Any, ...]) -> int:
    """Return the axis of an index that a lap names, or -1."""
    for axis, part in enumerate(index):
        if type(part) is Lap:
            return axis
    return -1


def require_whole(index: tuple[Any, ...]) -> None:
    """Refuse an index with a slice of laps, which would not move on.

    Raises   ProgramError
    """
    for part in index:
        if isinstance(part, slice) and (type(part.start) is Lap or type(part.stop) is Lap):
            raise ProgramError(
                f"an index of global memory has the slice {part.start}:{part.stop} of laps, which does not "
                "move on with the loop; give the tensor an axis that the lap names alone"
            )
