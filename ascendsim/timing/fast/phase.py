"""Run one phase on the compiled engine: its tables (`state.py`), and what they hold after the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ascendsim.errors import ProgramError
from ascendsim.program.instruction import PIPES
from ascendsim.timing.fast.compiled import state as f
from ascendsim.timing.fast.compiled.machine_code import ENGINE
from ascendsim.timing.fast.compiled.needs import BACK
from ascendsim.timing.fast.forms import FormBook
from ascendsim.timing.fast.moving import KINDS, ROOM_OF_A_FLIGHT, Run, transfer_tables
from ascendsim.timing.fast.programs import PhaseRows
from ascendsim.timing.l2.accesses import Outcome
from ascendsim.timing.links import fixed_rate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile

    Table = NDArray[np.int64]


CORE_COLUMNS = (
    *(f.AT, f.LAST_AT, f.WALK_AT, f.BUFFER, f.FIRST_OUTCOME, f.SLOT, f.RECORD),
    *(f.KIND, f.WEIGHT, f.OF_CORES),
)
# Words of the rows of a nest that are walked at once.
CHUNK: Final = 4096
# Of deeper queues it is asked how many instructions there are.
DEEP: Final = 1024


def phase_tables(
    runs: Sequence[Run],
    own: PhaseRows,
    outcomes: Sequence[Outcome],
    begin: int,
    book: FormBook,
    profile: Profile,
    *,
    recorded: bool,
) -> tuple[Table, dict[str, Any], Table]:
    """Return the figures of the header, all tables by name, or their sizes where they are zeros, and rows.

    own   the rows of the programs of the runs
    """
    units = max([run.program.cores for run in runs], default=1)
    made = np.concatenate([run.outcomes for run in runs]) if runs else np.empty(0, np.int32)
    counts = [len(run.program) for run in runs] if recorded else []
    forms, prices, most_uses = book.tables()
    queue, depths = _depths(profile, runs, units)
    classes, transfers = transfer_tables(runs, outcomes, book, profile)
    tables: dict[str, Any] = {
        "forms": forms,
        "prices": prices,
        "walks": own.memory,
        "outcomes": made,
        "classes": classes,
        "transfers": transfers,
        "depths": depths,
        "cores": _cores(runs, own, counts, hits=not made.any()),
        **_state(runs, begin, queue, units, sum(counts)),
        "wanted": (1 + BACK) * most_uses,
    }
    figures = _figures(profile, runs, book, len(outcomes), queue, units)
    figures[f.FORM], figures[f.CHUNK] = forms.shape[1], CHUNK
    figures[f.ENTRY] = f.TICKETS + 2 * most_uses
    figures[f.TRAILED] = forms[:, f.TRAILS].any()
    tables["entries"] = room_for_held(figures)
    walked = sum([walk >= 0 for walk in own.walks])
    return figures, tables, np.concatenate([own.rows, np.empty(walked * CHUNK, np.int64)])


def room_for_held(figures: Table) -> int:
    """Return the size of the table of the instructions that pipes hold, as the figures say."""
    return int(figures[[f.TEAMS, f.PIPES, f.HELD, f.ENTRY]].prod())


def laid_out(figures: Table, tables: Mapping[str, Any]) -> tuple[Table, dict[str, slice]]:
    """Put all tables into one piece of memory, and their places into its header.

    A number instead of a table stands for so many zeros.
    """
    sizes = [table if isinstance(table := tables[name], int) else table.size for name in f.TABLES]
    ends = list(accumulate(sizes, initial=f.HEADER))
    # Zeros as the system hands them out, which takes no time for what is never touched.
    memory = np.zeros(ends[-1], np.int64)
    memory[: f.MACHINE] = figures
    memory[f.MACHINE : f.HEADER] = ends[:-1]
    places = {name: slice(first, last) for name, (first, last) in zip(f.TABLES, pairwise(ends), strict=True)}
    for name, place in places.items():
        if not isinstance(tables[name], int):
            memory[place] = tables[name].reshape(-1)
    return memory, places


def _cores(runs: Sequence[Run], own: PhaseRows, counts: Sequence[int], *, hits: bool) -> Table:
    """Return the table of cores; `hits`: all outcomes are the first one."""
    cores: list[tuple[int, ...]] = []
    slots = moved = recorded = 0
    room = len(own.rows)
    for number, run in enumerate(runs):
        where = (own.ends[number], own.ends[number + 1], own.walks[number], room)
        if own.walks[number] >= 0:
            room += CHUNK
        begins = -1 if hits or not run.outcomes.any() else moved, slots, recorded if counts else -1
        of = KINDS.index(run.cores[0].kind), len(run.cores), run.program.cores
        cores.append((*where, *begins, *of))
        slots += len(run.program.slots)
        moved += len(run.outcomes)
        recorded += counts[number] if counts else 0
    # Written all at once: to put single numbers into an array is slow.
    table = np.zeros((len(runs), f.CORES), np.int64)
    table[:, CORE_COLUMNS] = np.array(cores, np.int64).reshape(-1, len(CORE_COLUMNS))
    return table


def _depths(profile: Profile, runs: Sequence[Run], units: int) -> tuple[int, Table]:
    """Return the size of the queues' tables, a power of two, and the depth of each queue by kind and pipe."""
    # Beside a core of either kind there are vector cores.
    depths = [
        queues.get(pipe, 1)
        for own in (profile.queues, profile.vector_queues)
        for queues in (own, *[profile.vector_queues] * (units - 1))
        for pipe in PIPES
    ]
    if max(depths) > DEEP:
        # No queue holds more than the whole program.
        longest = max([DEEP, *[len(run.program) for run in runs]])
        depths = [min(longest, depth) for depth in depths]
    return 1 << (max(depths) + 1).bit_length(), np.array(depths, np.int64)


def _figures(
    profile: Profile, runs: Sequence[Run], book: FormBook, outcomes: int, queue: int, units: int
) -> Table:
    machine = np.zeros(f.MACHINE, np.int64)
    machine[f.ISSUE_CYCLES], machine[f.FLAG_CYCLES] = profile.scalar.issue_cycles, profile.sync.flag_cycles
    machine[f.TRAFFICS], machine[f.OUTCOMES] = len(book.traffics), outcomes
    machine[f.TEAMS], machine[f.PIPES], machine[f.QUEUE] = len(runs), units * f.UNIT, queue
    # A pipe holds at most what its queue does, and one more. Of several cores some may be far ahead.
    machine[f.HELD] = queue
    machine[f.MOVERS] = book.movers
    machine[f.PORTS], machine[f.ROOM] = len(runs) * units, ROOM_OF_A_FLIGHT * len(runs) * machine[f.PIPES]
    for number, link in enumerate(f.LINK_NAMES):
        machine[f.TOTALS + number] = fixed_rate(profile.links[link].total_bytes_per_cycle)
    return machine


def _state(runs: Sequence[Run], begin: int, queue: int, units: int, recorded: int) -> dict[str, Any]:
    """Return the tables that the engine changes, as they are at the begin."""
    teams, pipes = len(runs), units * f.UNIT
    slots = sum(len(run.program.slots) for run in runs)
    table = np.zeros((teams * pipes, f.PIPE_COLUMNS), np.int64)
    table[:, f.FREE] = table[:, f.VISIBLE] = begin
    table[:, f.LANDED] = -1
    holders = np.zeros((slots, f.SLOTS), np.int64)
    holders[:, f.W_INDEX] = -1
    ports = np.zeros((f.LINKS, teams * units, f.PORT), np.int64)
    ports[:, :, f.P_WEIGHT] = np.repeat([len(run.cores) for run in runs], units)
    sizes = {
        "starts": teams * pipes * queue,
        "flights": teams * pipes * f.FLIGHT,
        "flows": f.LINKS * ROOM_OF_A_FLIGHT * teams * pipes * f.FLOWING,
        "waiting": 1 + teams * pipes,
        "landed": 1 + teams * pipes,
        "busy": teams * pipes,
        "needed": pipes,
        "waits": teams * pipes * pipes,
        "spans": 4 * recorded,
    }
    return {
        "pipes": table,
        "known": np.full(teams * pipes * pipes, -1, np.int64),
        "slots": holders,
        "readers": np.full(slots * pipes * f.READER, -1, np.int64),
        "ports": ports,
        **sizes,
    }


class Answer(NamedTuple):
    """What the engine found out, in cycles, for each program of the phase.

    `done[program, core]`; `busy[program, pipe]` and `waits[program, pipe, cause]`, where the pipes of its
    cores follow each other, as in `issued[program, pipe]`, how many instructions it has run; `spans[program]`
    has a row (issue, start, end, done) for every instruction.
    """

    done: Table
    busy: Table
    waits: Table
    issued: Table
    spans: list[Table]


def run_phase(
    name: str,
    runs: Sequence[Run],
    own: PhaseRows,
    outcomes: Sequence[Outcome],
    begin: int,
    book: FormBook,
    profile: Profile,
    *,
    recorded: bool = False,
    stop_above: int = f.NEVER,
) -> Answer | None:
    """Run all cores of one phase from cycle `begin` on.

    Returns  None if the phase ends after the cycle `stop_above`
    Raises   ProgramError if the waits of a program go in a circle
    """
    figures, tables, rows = phase_tables(runs, own, outcomes, begin, book, profile, recorded=recorded)
    figures[f.STOP] = stop_above
    memory, places = laid_out(figures, tables)
    status = ENGINE(memory, rows)
    while status == f.FULL:
        # Cores of one program may be far apart in it, and all between is held. How far shows only on the way.
        figures[f.HELD] *= 4
        tables["entries"] = room_for_held(figures)
        memory, places = laid_out(figures, tables)
        status = ENGINE(memory, rows)
    if status == f.STOPPED:
        return None
    if status != f.FINISHED:
        raise ProgramError(
            f"phase {name}: an instruction never starts: its waits go in a circle; waits must point "
            "backwards, as ProgramBuilder.build() makes them"
        )
    answer = _answer(memory, places, figures, runs, recorded=recorded)
    return answer if answer.done.max(initial=begin) <= stop_above else None


def _answer(
    memory: Table, places: Mapping[str, slice], figures: Table, runs: Sequence[Run], *, recorded: bool
) -> Answer:
    """Return what the tables of a run hold."""
    teams, units = len(runs), int(figures[f.PIPES]) // f.UNIT
    edges = accumulate([len(run.program) for run in runs] if recorded else [], initial=0)
    spans = memory[places["spans"]].reshape(-1, 4)
    pipes = memory[places["pipes"]].reshape(teams, units, f.UNIT, f.PIPE_COLUMNS)
    return Answer(
        pipes[..., f.VISIBLE].max(axis=2),
        memory[places["busy"]].reshape(teams, units * f.UNIT),
        memory[places["waits"]].reshape(teams, units * f.UNIT, units * f.UNIT),
        pipes[..., f.ISSUED].reshape(teams, units * f.UNIT),
        [spans[first:last] for first, last in pairwise(edges)],
    )
