"""The sums of some blocks of a matrix that cube cores have made in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ascendsim.ops.schedules.vector.elementwise import piece_elements, shared, sums_program, tree_rounds
from ascendsim.profile import Profile
from ascendsim.program.kernel import CoreWork, Phase
from ascendsim.program.places import GmTensor


class Piece(NamedTuple):
    """Some rows and columns of a matrix of a group at a kernel depth."""

    group: int
    depth: int
    first_row: int
    rows: int
    first_column: int
    columns: int

    @property
    def place(self) -> tuple[int | slice, ...]:
        """Where it lies in (groups, kernel depths, rows, columns)."""
        rows = slice(self.first_row, self.first_row + self.rows)
        return self.group, self.depth, rows, slice(self.first_column, self.first_column + self.columns)


def block_sums(
    profile: Profile, parts: GmTensor, target: GmTensor, blocks: Sequence[Piece], *, tree: bool
) -> list[Phase]:
    """Return the phases that add the parts of some blocks in float32, into the same blocks of a tensor.

    Shapes   parts (count, groups, kernel depths, rows, columns), target without the first
    Order    0, 1, 2, ...; or as a binary tree in rounds of stride 1, 2, 4, ...: part i takes part i + stride
             where i is a multiple of twice the stride; all cores meet between rounds
    """
    pieces = [piece for block in blocks for piece in _cut(profile, block)]
    if not tree:
        rows = range(parts.shape[0])
        return [_phase("ordered sum", profile, parts, target, [(rows, piece) for piece in pieces])]
    phases, rounds = [], tree_rounds(parts.shape[0])
    for pairs in rounds:
        goal = target if pairs is rounds[-1] else None
        sums = [(pair, piece) for pair in pairs for piece in pieces]
        phases.append(_phase(f"tree sum, stride {pairs[0].step}", profile, parts, goal, sums))
    return phases


def _cut(profile: Profile, block: Piece) -> Iterator[Piece]:
    """Cut a block into pieces of whole rows that fit in UB."""
    each = max(1, piece_elements(profile, 4) // block.columns)
    for first in range(0, block.rows, each):
        rows = min(each, block.rows - first)
        yield block._replace(first_row=block.first_row + first, rows=rows)


def _phase(
    name: str,
    profile: Profile,
    parts: GmTensor,
    target: GmTensor | None,
    sums: Sequence[tuple[range, Piece]],
) -> Phase:
    """Return the phase in which all vector cores share some sums; without a target as `sums_program`."""
    work = []
    for core, share in shared(profile, len(sums)):
        own = [
            (rows, piece.place, (piece.rows, piece.columns)) for rows, piece in sums[share.start : share.stop]
        ]
        signature = tuple([(len(rows), *shape) for rows, _, shape in own])
        work.append(CoreWork(core, signature, partial(sums_program, profile, parts, target, own)))
    return Phase(name, tuple(work))
