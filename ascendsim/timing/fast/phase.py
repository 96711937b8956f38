"""Run one phase on the compiled engine, and tell its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.errors import ProgramError
from ascendsim.timing.fast.code import CodeBook
from ascendsim.timing.fast.compiled import state as f
from ascendsim.timing.fast.compiled.machine_code import ENGINE
from ascendsim.timing.fast.moving import Run
from ascendsim.timing.fast.tables import laid_out, phase_tables, room_for_held
from ascendsim.timing.l2.accesses import Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile

    Table = NDArray[np.int64]


class Answer(NamedTuple):
    """What the engine found out, in cycles, for each program of the phase.

    `done[program, core]`; `busy[program, pipe]` and `waits[program, pipe, cause]`, where the pipes of its
    cores follow each other; `spans[program]` has a row (issue, start, end, done) for every instruction.
    """

    done: Table
    busy: Table
    waits: Table
    spans: list[Table]


def run_phase(
    name: str,
    runs: Sequence[Run],
    outcomes: Sequence[Outcome],
    begin: int,
    book: CodeBook,
    profile: Profile,
    *,
    recorded: bool = False,
    stop_above: int = f.NEVER,
) -> Answer | None:
    """Run all cores of one phase from cycle `begin` on.

    Returns  None if the phase ends after the cycle `stop_above`
    Raises   ProgramError if the waits of a program go in a circle
    """
    counts = [len(run.program) for run in runs]
    figures, tables = phase_tables(runs, counts, outcomes, begin, book, profile, recorded=recorded)
    figures[f.STOP] = stop_above
    memory, places = laid_out(figures, tables)
    status = ENGINE(memory)
    while status == f.FULL:
        # Cores of one program may be far apart in it, and all between is held. How far shows only on the way.
        figures[f.HELD] *= 4
        tables["entries"] = room_for_held(figures)
        memory, places = laid_out(figures, tables)
        status = ENGINE(memory)
    if status == f.STOPPED:
        return None
    if status != f.FINISHED:
        raise ProgramError(
            f"phase {name}: an instruction never starts: its waits go in a circle; waits must point "
            "backwards, as ProgramBuilder.build() makes them"
        )
    answer = _answer(memory, places, figures, counts, recorded=recorded)
    return answer if answer.done.max(initial=begin) <= stop_above else None


def _answer(
    memory: Table, places: Mapping[str, slice], figures: Table, counts: Sequence[int], *, recorded: bool
) -> Answer:
    """Return what the tables of a run hold."""
    teams, edges = len(counts), accumulate(counts, initial=0)
    units = int(figures[f.PIPES]) // f.UNIT
    spans = memory[places["spans"]].reshape(-1, 4)
    return Answer(
        memory[places["pipes"]].reshape(teams, units, f.UNIT, f.PIPE_COLUMNS)[..., f.VISIBLE].max(axis=2),
        memory[places["busy"]].reshape(teams, units * f.UNIT),
        memory[places["waits"]].reshape(teams, units * f.UNIT, units * f.UNIT),
        [spans[first:last] for first, last in pairwise(edges)] if recorded else [],
    )
