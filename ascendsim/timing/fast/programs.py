"""The programs of a phase as rows for the compiled engine, and their transfers for the account of L2."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.errors import ProgramError
from ascendsim.frozen import cached_property
from ascendsim.program import walk as w
from ascendsim.program.places import HOME
from ascendsim.program.program import NestProgram, Program, walk_memory
from ascendsim.timing.fast.forms import FormBook, uses_of
from ascendsim.timing.l2.phase import comparable, next_place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.int64]

# Rows of transfers that are walked at once.
CHUNK = 1 << 15


class ProgramTransfers(NamedTuple):
    """Transfers of a program, in program order: traffics and cores by number, slices by any numbers."""

    traffics: NDArray[np.int32]
    cores: NDArray[np.int32]
    slices: Words


class PhaseRows:
    """The rows of some programs: those of instructions are here, those of nests are walked by the engine.

    `memory` is what the walks need, `walks` where that of each program stands (-1: it is no nest). `rows` are
    those of the others, `ends` where they begin and end.
    """

    def __init__(self, book: FormBook, programs: Sequence[Program]) -> None:
        self.book, self.programs = book, programs
        nests = [program for program in programs if isinstance(program, NestProgram)]
        self.memory, walks = walk_memory(nests, [book.of_nest(program.nest).first for program in nests])
        found = iter(walks)
        self.walks = [next(found) if isinstance(program, NestProgram) else -1 for program in programs]
        self._forms = [
            [] if at >= 0 else self._straight(own) for at, own in zip(self.walks, programs, strict=True)
        ]
        self.ends = [2 * end for end in accumulate(map(len, self._forms), initial=0)]
        self.rows = np.zeros(self.ends[-1], np.int64)
        for forms, (first, last) in zip(self._forms, pairwise(self.ends), strict=True):
            self.rows[first:last:2] = forms

    def _straight(self, program: Program) -> list[int]:
        """Return the forms of instructions that name their slots themselves."""
        book, posts = self.book, program.posts
        forms = []
        for at, made in enumerate(program.instructions):
            core, reads, writes = posts.get(at, HOME)
            uses = uses_of(made, [slot.index for slot in reads], [slot.index for slot in writes])
            forms.append(book.of(made, core, uses))
        return forms

    def met(self) -> set[int]:
        """Return the numbers of the traffics that the programs move."""
        met: set[int] = set()
        for traffics, _, _ in self._moved:
            met.update(np.flatnonzero(np.bincount(traffics)).tolist())
        return met

    @cached_property
    def _moved(self) -> list[ProgramTransfers]:
        """Transfers of each program; slices have the numbers of their nests, and none without a nest."""
        found = []
        for number, program in enumerate(self.programs):
            if not isinstance(program, NestProgram):
                found.append(self._of_straight(self._forms[number]))
                continue
            require_slices(program, self.book)
            forms, (own, places) = self.book.of_nest(program.nest), self._walked[number]
            traffics, cores = forms.traffics[own], forms.cores[own]
            moving = traffics >= 0
            if not moving.all():
                traffics, cores, places = traffics[moving], cores[moving], places[moving]
            found.append(ProgramTransfers(traffics, cores, places))
        return found

    def transfers(self, asked: frozenset[str] | None, *, apart: bool) -> list[ProgramTransfers]:
        """Return the transfers of each program.

        asked   the tensors whose slices get distinct numbers; None: all
        apart   whether each transfer has a slice of its own, so that none has to be found
        """
        tensors = [each.tensor.name for each in self.book.traffics]
        told = np.array([asked is None or name in asked for name in tensors], np.bool_)
        # A tensor as a whole stands for each of its slices.
        names = {name: number for number, name in enumerate(dict.fromkeys(tensors))}
        wholes = np.array([names[name] for name in tensors], np.int64)
        slices = _Slices(self.programs, len(names))
        found = []
        for number, (program, own) in enumerate(zip(self.programs, self._moved, strict=True)):
            traffics, cores, places = own
            if apart:
                first = slices.taken(len(traffics))
                named = np.arange(first, first + len(traffics))
            elif not told[traffics].any():
                named = wholes[traffics]
            else:
                if isinstance(program, NestProgram):
                    named = slices.of_nest(program, places)
                else:
                    named = slices.of_straight(program, self._forms[number], self.book)
                if not told.all():
                    named = np.where(told[traffics], named, wholes[traffics])
            found.append(ProgramTransfers(traffics, cores, named))
        return found

    def _of_straight(self, forms: Sequence[int]) -> ProgramTransfers:
        moving = [form for form in forms if self.book.traffic(form) >= 0]
        traffics = np.array([self.book.traffic(form) for form in moving], np.int32)
        cores = np.array([self.book.core(form) for form in moving], np.int32)
        return ProgramTransfers(traffics, cores, np.zeros(len(moving), np.int64))

    @cached_property
    def _walked(self) -> dict[int, tuple[Words, Words]]:
        """Return forms and slices of what nests may move, program by program."""
        memory, found = self.memory.copy(), {}
        rows = np.empty(2 * CHUNK, np.int64)
        for number, walk in enumerate(self.walks):
            if walk < 0:
                continue
            parts = [np.empty((0, 2), np.int64)]
            while end := w.WALKER(memory, 0, walk, rows, 0, len(rows), w.TRANSFERS):
                parts.append(rows[:end].reshape(-1, 2).copy())
            whole = np.concatenate(parts)
            found[number] = whole[:, 0], whole[:, 1]
        return found


class _Slices:
    """Numbers for the slices of all programs of a phase, from `first` on."""

    def __init__(self, programs: Sequence[Program], first: int) -> None:
        # Each nest numbers the slices of a tensor by itself; equal extents mean equal slices.
        self._spaces: dict[tuple[str, tuple[int, ...]], int] = {}
        self._next = first
        for program in programs:
            if isinstance(program, NestProgram):
                for key in program.nest.spaces:
                    if key not in self._spaces:
                        self._spaces[key] = self.taken(prod(key[1]))
        self._known: dict[Hashable, int] = {}

    def taken(self, count: int) -> int:
        """Take so many numbers; return the first one."""
        self._next += count
        return self._next - count

    def of_nest(self, program: NestProgram, places: Words) -> Words:
        """Return the numbers of slices that a nest numbers for itself."""
        spaces = program.nest.spaces
        begins = np.array(list(spaces.values()), np.int64)
        moves = np.array([self._spaces[key] for key in spaces], np.int64) - begins
        return (
            places if not moves.any() else places + moves[np.searchsorted(begins, places, side="right") - 1]
        )

    def of_straight(self, program: Program, forms: Sequence[int], book: FormBook) -> Words:
        """Return the numbers of the slices that instructions name; one without goes on from others."""
        newest: dict[str, int] = {}
        numbers = []
        for made, form in zip(program.instructions, forms, strict=True):
            number = book.traffic(form)
            if number < 0:
                continue
            traffic, gm = book.traffics[number], made.gm
            place: Hashable
            if gm is None:
                place = "from", *next_place(traffic, newest)
            else:
                place = tuple([comparable(part) for part in gm.index])
            key = traffic.tensor.name, place
            if key not in self._known:
                self._known[key] = self.taken(1)
            numbers.append(self._known[key])
        return np.array(numbers, np.int64)


def require_slices(program: NestProgram, book: FormBook) -> None:
    """Refuse a nest that moves bytes without a known place.

    Raises   ProgramError
    """
    for form, traffic in zip(program.nest.forms, book.of_nest(program.nest).traffics, strict=True):
        if traffic >= 0 and form.instruction.gm is None:
            raise ProgramError(
                f"nest {program.nest.name}: {type(form.instruction).__name__} moves bytes and names no slice "
                "of global memory (`gm`); name one, or append these instructions to a ProgramBuilder"
            )
