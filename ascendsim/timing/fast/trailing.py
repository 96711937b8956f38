"""Which programs the compiled engine cannot time, for what trails others in them.

It learns when an instruction that trails has begun from the end of what that trails. Whether bytes move, and
so share a link, has to be known earlier.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ascendsim.errors import ProgramError


class Row(NamedTuple):
    """An instruction: its slots as `Uses` has them, whether it trails others, whether it moves bytes."""

    slots: Iterable[int]
    trails: bool
    moves: bool


def require_known_begins(rows: Iterable[Row]) -> None:
    """Refuse code in which something trails what moves bytes, or moves bytes and trails what trails others.

    rows   the code as it is written, in order; of loops each round once, so that what is trailed across the
           turn of a loop, or by a tile in another place of its ring, is not seen

    Raises   ProgramError
    """
    writers: dict[int, Row] = {}
    for at, row in enumerate(rows):
        uses = list(row.slots)
        read = [use >> 1 for use in uses if row.trails and not use & 1]
        for trailed in [writers[slot] for slot in read if slot in writers]:
            if trailed.moves or (row.moves and trailed.trails):
                what = "one that moves bytes"
                if not trailed.moves:
                    what = "one that itself trails another, and moves bytes"
                raise ProgramError(
                    f"instruction {at} of the code trails {what}; only the engine simpy obeys this: the "
                    "compiled one would learn too late when the bytes began to move"
                )
        writers |= {use >> 1: row for use in uses if use & 1}
