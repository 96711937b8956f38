"""The steps and segments of programs as rows for the compiled engine, which knows loops and no nests."""

from __future__ import annotations

from collections.abc import Sequence

from ascendsim.program.loops.turns import Turns, joined
from ascendsim.program.units import Nest, Segment, Step, Unit
from ascendsim.timing.fast.code import CodeBook


class CodeRows:
    """Collects `steps`, two numbers each: the first and the last row of code, as a range.

    Segments are three numbers each: the first and the last step, as a range, and how often they run.
    """

    def __init__(self, book: CodeBook) -> None:
        self._book = book
        self.steps: list[int] = []
        # Of code with turns: the rows of a unit, the segments of a nest.
        self._known: dict[tuple[Unit | Nest, Turns | None], tuple[int, int] | list[int]] = {}

    def laid(
        self, steps: Sequence[Step], segments: Sequence[Segment], turns: Turns | None = None
    ) -> list[int]:
        """Append steps where they have none yet; return the segments in which they follow each other.

        turns   those of the code that the steps belong to
        """
        made: list[int] = []
        # For every step of every program: so what is usual asks for nothing but what is known.
        laid, known = self.steps, self._known
        for part in segments:
            once: list[int] = []
            begin = len(laid)
            for unit, _, _, _, _, own in steps[part.first : part.last]:
                if turns is not None:
                    own = joined(turns, own)
                end = len(laid)
                rows = known.get((unit, own))
                if rows is None:
                    rows = known[unit, own] = self._rows(unit, own)
                if type(rows) is tuple:
                    laid += rows
                    continue
                once += _once(begin, end)
                once += rows
                begin = len(laid)
            if once:
                made += [*once, *_once(begin, len(laid))] * part.times
            elif len(laid) > begin:
                made += begin // 2, len(laid) // 2, part.times
        return made

    def _rows(self, code: Unit | Nest, turns: Turns | None) -> tuple[int, int] | list[int]:
        """Return the rows of a unit, or the segments of a nest, whose steps are entered."""
        if isinstance(code, Unit):
            return self._book.rows(code, turns)
        return self.laid(code.steps, code.segments, turns)


def _once(begin: int, end: int) -> tuple[int, ...]:
    """Return the segment of steps, two numbers each, that run once; the engine knows none without steps."""
    return (begin // 2, end // 2, 1) if end > begin else ()
