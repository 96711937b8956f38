"""Views: how instructions of recurring code lay out or read a tile, found anew for each task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.program.instruction import Instruction


class View(NamedTuple):
    """How an instruction lays out or reads a tile: find(task, *args), `written` for the first task."""

    find: Callable[..., Any]
    args: tuple[Any, ...]
    written: Any


def has(instruction: Any, view: View) -> bool:
    """Tell whether an instruction has a view."""
    # By hand: a generator for each instruction would be what is slow.
    for field in instruction:  # noqa: SIM110
        if field is view.written:
            return True
    return False


def wrong_views(views: Collection[View], instructions: Sequence[Instruction]) -> ProgramError:
    """Return the error of views of which not each is had by one instruction."""
    count = sum([has(made, view) for made in instructions for view in views])
    names = ", ".join(sorted({view.find.__name__ for view in views}))
    return ProgramError(
        f"a unit of code finds {len(views)} views by {names}, and {count} of its "
        "instructions have one; hand each view as it is to one instruction, the next one"
    )


def require_once(views: Collection[View], instructions: Sequence[Instruction]) -> None:
    """Refuse a view that two instructions have: only one of them would be found anew.

    Raises   ProgramError
    """
    wanted = {id(view.written) for view in views}
    if sum(map(wanted.__contains__, map(id, chain.from_iterable(instructions)))) != len(views):  # type: ignore[arg-type]
        raise wrong_views(views, instructions)
