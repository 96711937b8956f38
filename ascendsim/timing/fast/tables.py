"""One phase as tables for the compiled loops: programs, transfers, the state at the begin (`state.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.program.instruction import PIPES
from ascendsim.timing.fast.code import CodeBook
from ascendsim.timing.fast.compiled import state as f
from ascendsim.timing.fast.compiled.needs import BACK
from ascendsim.timing.fast.moving import KINDS, ROOM_OF_A_FLIGHT, Run, transfer_tables
from ascendsim.timing.fast.rows import CodeRows
from ascendsim.timing.l2.accesses import Outcome
from ascendsim.timing.links import fixed_rate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile

    Table = NDArray[np.int64]

CORE_COLUMNS = (
    *(f.SEGMENT, f.LAST_SEGMENT, f.FIRST_OUTCOME, f.SLOT, f.RECORD),
    *(f.KIND, f.WEIGHT, f.OF_CORES),
)


def phase_tables(
    runs: Sequence[Run],
    counts: Sequence[int],
    outcomes: Sequence[Outcome],
    begin: int,
    book: CodeBook,
    profile: Profile,
    *,
    recorded: bool,
) -> tuple[Table, dict[str, Any]]:
    """Return the figures of the header, and all tables by name, or their sizes where they begin with zeros.

    counts   the instructions of each program
    """
    units = max([len(run.program.sizes) for run in runs], default=1)
    made = np.concatenate([run.outcomes for run in runs]) if runs else np.empty(0, np.int32)
    cores, steps, segments = _programs(runs, counts, book, recorded, hits=not made.any())
    queue, depths = _depths(profile, max(counts, default=0), units)
    classes, transfers = transfer_tables(runs, outcomes, book, profile)
    code = book.tables()
    tables: dict[str, Any] = {
        **code,
        "steps": steps,
        "segments": segments,
        "outcomes": made,
        "classes": classes,
        "transfers": transfers,
        "depths": depths,
        "cores": cores,
        **_state(runs, begin, queue, units, sum(counts) if recorded else 0),
    }
    most_uses = int((code["code"][:, f.LAST_USE] - code["code"][:, f.FIRST_USE]).max(initial=0))
    tables["wanted"] = (1 + BACK) * most_uses
    figures = _figures(profile, runs, book, len(outcomes), queue, units)
    figures[f.UNITS], figures[f.ENTRY] = len(code["units"]), f.TICKETS + 2 * most_uses
    figures[f.TRAILED] = code["code"][:, f.TRAILS].any()
    tables["entries"] = room_for_held(figures)
    return figures, tables


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


def _programs(
    runs: Sequence[Run], counts: Sequence[int], book: CodeBook, recorded: bool, *, hits: bool
) -> tuple[Table, Table, Table]:
    """Return the tables of cores, steps and segments; `hits`: all outcomes are the first one."""
    rows = CodeRows(book)
    cores: list[tuple[int, ...]] = []
    segments: list[int] = []
    slots = moved = recorded_so_far = 0
    for run, count in zip(runs, counts, strict=True):
        first = len(segments) // 3
        segments += rows.laid(run.program.steps, run.program.segments)
        begins = -1 if hits or not run.outcomes.any() else moved, slots, recorded_so_far if recorded else -1
        of = KINDS.index(run.cores[0].kind), len(run.cores), len(run.program.sizes)
        # The position before the first segment: as if one had just ended.
        cores.append((first - 1, len(segments) // 3, *begins, *of))
        slots += len(run.program.slots)
        moved += len(run.outcomes)
        recorded_so_far += count
    # Written all at once: to put single numbers into an array is slow.
    table = np.zeros((len(runs), f.CORES), np.int64)
    table[:, CORE_COLUMNS] = np.array(cores, np.int64).reshape(-1, len(CORE_COLUMNS))
    return table, _table(rows.steps), _table(segments)


def _table(rows: list[int]) -> Table:
    return np.array(rows, np.int64)


def _depths(profile: Profile, longest: int, units: int) -> tuple[int, Table]:
    """Return the size of the queues' tables, a power of two, and the depth of each queue by kind and pipe."""
    # Beside a core of either kind there are vector cores. No queue holds more than the whole program.
    depths = [
        min(max(1, longest), queues.get(pipe, 1))
        for own in (profile.queues, profile.vector_queues)
        for queues in (own, *[profile.vector_queues] * (units - 1))
        for pipe in PIPES
    ]
    return 1 << (max(depths) + 1).bit_length(), np.array(depths, np.int64)


def _figures(
    profile: Profile, runs: Sequence[Run], book: CodeBook, outcomes: int, queue: int, units: int
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
