"""The sums of some blocks of a matrix that cube cores have made in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ascendsim.cube.mmad import PipeBarrier
from ascendsim.ops.plan import shares
from ascendsim.ops.schedules.vector.elementwise import load, piece_elements, store, tree_rounds, vector_cores
from ascendsim.profile import Profile
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.kernel import CoreWork, Phase
from ascendsim.program.places import GmTensor
from ascendsim.program.program import Program
from ascendsim.vector.instructions import Add


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


# Rows of the workspace that are added one after the other, and what of them.
Sum = tuple[range, Piece]


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
    name: str, profile: Profile, parts: GmTensor, target: GmTensor | None, sums: Sequence[Sum]
) -> Phase:
    """Return the phase in which all vector cores share some sums."""
    cores = vector_cores(profile)
    work = []
    for core, share in zip(cores, shares(len(sums), len(cores)), strict=False):
        own = tuple(sums[share.start : share.stop])
        signature = tuple((len(rows), piece.rows, piece.columns) for rows, piece in own)
        work.append(CoreWork(core, signature, partial(_program, profile, parts, target, own)))
    return Phase(name, tuple(work))


def _program(profile: Profile, parts: GmTensor, target: GmTensor | None, sums: Sequence[Sum]) -> Program:
    """Add the rows of each sum; they go to the target or, where there is none, in place of the first row."""
    b = ProgramBuilder(profile)
    most = max(piece.rows * piece.columns for _, piece in sums)
    loads = b.ring("UB", most * 4, "in", 2)
    totals = b.ring("UB", most * 4, "total", 2)
    for rows, piece in sums:
        shape, size = (piece.rows, piece.columns), piece.rows * piece.columns
        total = load(b, totals, parts, (rows[0], *piece.place), *shape)
        for number, row in enumerate(rows[1:]):
            other = load(b, loads, parts, (row, *piece.place), *shape)
            if number:
                b.add(PipeBarrier("V"))  # each sum needs the one before
            b.add(Add(total, other, size))
        store(b, target or parts, piece.place if target else (rows[0], *piece.place), total, size)
    return b.build()
