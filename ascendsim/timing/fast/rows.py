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
        self._nests: dict[tuple[Nest, Turns | None], list[int]] = {}

    def laid(
        self, steps: Sequence[Step], segments: Sequence[Segment], turns: Turns | None = None
    ) -> list[int]:
        """Append steps where they have none yet; return the segments in which they follow each other.

        turns   those of the code that the steps belong to
        """
        made: list[int] = []
        for part in segments:
            once: list[int] = []
            begin = self._count
            for step in steps[part.first : part.last]:
                own = joined(turns, step.turns)
                if isinstance(step.unit, Unit):
                    self.steps += self._book.rows(step.unit, own)
                    continue
                end = self._count
                inner = self._nest(step.unit, own)
                once += self._once(begin, end)
                once += inner
                begin = self._count
            if once:
                made += [*once, *self._once(begin, self._count)] * part.times
            elif self._count > begin:
                made += begin, self._count, part.times
        return made

    @property
    def _count(self) -> int:
        return len(self.steps) // 2

    def _once(self, begin: int, end: int) -> tuple[int, ...]:
        """Return the segment of steps that run once; the engine knows none without steps."""
        return (begin, end, 1) if end > begin else ()

    def _nest(self, nest: Nest, turns: Turns | None) -> list[int]:
        """Return the segments of a nest; its steps are entered when it is met first with these turns."""
        known = self._nests.get((nest, turns))
        if known is None:
            known = self._nests[nest, turns] = self.laid(nest.steps, nest.segments, turns)
        return known
