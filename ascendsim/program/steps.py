"""The steps of a loop nest as they are written down, and as the flat program of integers that is walked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.program import walk as w

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Words = NDArray[np.int64]


class Step:
    """A step as it is written down: its words, the words that name other steps by their places, its text.

    live   whether anybody needs it: a look-up that nobody asks for is left out
    goes   the step that word `goes_at` names
    reads  the registers that it reads to find out what moves, and whether it moves bytes itself
    """

    __slots__ = ("depth", "goes", "goes_at", "live", "moves", "op", "reads", "text", "words")

    def __init__(self, op: int, depth: int, text: str, words: Sequence[int], live: bool) -> None:
        self.op, self.depth, self.text, self.words, self.live = op, depth, text, list(words), live
        self.goes: Step | None = None
        self.goes_at = 0
        self.reads: set[int] = set()
        self.moves = False


# A place to go on from, which is no step of the walk.
HERE = -1
# The steps whose second word says where the next one is.
_WITH_NEXT = frozenset([w.EMIT, w.FOR, w.LET, w.GET, w.TURN, w.HOLD])


class NestCode(NamedTuple):
    """A nest as the walk reads it: `registers` and `held` are how many it needs, `rings` how these begin.

    `moves` says of each form whether it may move bytes.
    """

    columns: int
    code: Words
    data: Words
    moves: Words
    registers: int
    held: int
    rings: Words


def flat(steps: Sequence[Step]) -> list[int]:
    """Return steps end to end as the walk reads them (`walk.py`)."""
    code: list[int] = []
    where: dict[int, int] = {}
    named: list[tuple[int, Step]] = []
    still = _still_loops(steps)
    for step in steps:
        where[id(step)] = at = len(code)
        if step.op == HERE:
            continue
        code.append(step.op)
        if step.op in _WITH_NEXT:
            code.append(0)
        code += step.words
        if step.op in _WITH_NEXT:
            code[at + 1] = len(code)
        if step.op == w.EMIT:
            code[at + 7] += at
            code[at + 8] += at
        elif step.goes is not None:
            named.append((at + step.goes_at, step.goes))
        if id(step) in still:
            code[at + 5] = 1
    code.append(w.STOP)
    for place, step in named:
        code[place] = where[id(step)]
    return code


def _still_loops(steps: Sequence[Step]) -> set[int]:
    """Return the loops that nobody needs who only wants to know what moves: nothing moves in them.

    Nor do they find tiles, or set a register that a needed step reads, or take tiles of a ring in which
    others are found.
    """
    place = {id(step): at for at, step in enumerate(steps)}
    reads = [step.reads if step.op != w.EMIT or step.moves else set() for step in steps]
    asked = set().union(*reads)
    # Rings in which tiles are found, and those whose turn decides something.
    held = {
        step.words[1] for step in steps if step.op == w.HOLD or (step.op == w.NEXT and step.words[0] in asked)
    }
    found = set()
    for first, step in enumerate(steps):
        if step.op != w.FOR:
            continue
        assert step.goes is not None
        last = place[id(step.goes)]
        body = steps[first + 1 : last]
        made = {each.words[0] for each in (step, *body) if each.op in (w.LET, w.GET, w.FOR, w.NEXT)}
        if not (
            any(each.op in (w.HOLD, w.FORGET) or each.moves for each in body)
            or any(each.op == w.NEXT and each.words[1] in held for each in body)
            or any(made & own for own in (*reads[: first + 1], *reads[last:]))
        ):
            found.add(id(step))
    return found
