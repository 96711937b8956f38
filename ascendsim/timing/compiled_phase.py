"""Run one phase on the compiled engine: its tables (`compiled_flows.py`), and what they hold then."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ascendsim.errors import ProgramError, StoppedError
from ascendsim.program.instruction import PIPES
from ascendsim.program.kernel import Kernel, Phase, Team, teams_of
from ascendsim.program.places import VECTOR_CORES, pipe_on, seen_from
from ascendsim.program.program import Program
from ascendsim.timing import compiled_flows as f
from ascendsim.timing.compiled_engine import ENGINE
from ascendsim.timing.compiled_flows import NEVER
from ascendsim.timing.compiled_forms import (
    KINDS,
    ROOM_OF_A_FLIGHT,
    FormBook,
    PhaseRows,
    ProgramRun,
    ProgramTransfers,
    transfer_tables,
)
from ascendsim.timing.compiled_held import BACK
from ascendsim.timing.l2.account import Start, account_of_lanes, asks_for_slices, met_by, only_hits
from ascendsim.timing.l2.held import L2State
from ascendsim.timing.l2.phase import L2Outcome, Lane, PhaseLanes
from ascendsim.timing.links import fixed_rate
from ascendsim.timing.times import CoreTimes, KernelTimes, PhaseAlone, PhaseTimes, TimedPhase, stopped_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile
    from ascendsim.timing.timeline import Timeline

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
    runs: Sequence[ProgramRun],
    own: PhaseRows,
    outcomes: Sequence[L2Outcome],
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


def _cores(runs: Sequence[ProgramRun], own: PhaseRows, counts: Sequence[int], *, hits: bool) -> Table:
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


def _depths(profile: Profile, runs: Sequence[ProgramRun], units: int) -> tuple[int, Table]:
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
    profile: Profile, runs: Sequence[ProgramRun], book: FormBook, outcomes: int, queue: int, units: int
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


def _state(runs: Sequence[ProgramRun], begin: int, queue: int, units: int, recorded: int) -> dict[str, Any]:
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


class ProgramTimes(NamedTuple):
    """Results of the engine, in cycles, for each program of the phase.

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
    runs: Sequence[ProgramRun],
    own: PhaseRows,
    outcomes: Sequence[L2Outcome],
    begin: int,
    book: FormBook,
    profile: Profile,
    *,
    recorded: bool = False,
    stop_above: int = f.NEVER,
) -> ProgramTimes | None:
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
    memory: Table, places: Mapping[str, slice], figures: Table, runs: Sequence[ProgramRun], *, recorded: bool
) -> ProgramTimes:
    """Return the results that the tables of a run hold."""
    teams, units = len(runs), int(figures[f.PIPES]) // f.UNIT
    edges = accumulate([len(run.program) for run in runs] if recorded else [], initial=0)
    spans = memory[places["spans"]].reshape(-1, 4)
    pipes = memory[places["pipes"]].reshape(teams, units, f.UNIT, f.PIPE_COLUMNS)
    return ProgramTimes(
        pipes[..., f.VISIBLE].max(axis=2),
        memory[places["busy"]].reshape(teams, units * f.UNIT),
        memory[places["waits"]].reshape(teams, units * f.UNIT, units * f.UNIT),
        pipes[..., f.ISSUED].reshape(teams, units * f.UNIT),
        [spans[first:last] for first, last in pairwise(edges)],
    )


EMPTY: Mapping[int, PhaseAlone] = {}
# Of all pipes of a program, those of its first core first.
_NAMES = tuple([pipe_on(core, pipe) for core in range(1 + VECTOR_CORES) for pipe in PIPES])


class _Timed(NamedTuple):
    """A phase after its run."""

    name: str
    begin: int
    end: int
    runs: Sequence[ProgramRun]
    answer: ProgramTimes


def times(
    kernel: Kernel,
    profile: Profile,
    *,
    folded: bool = True,
    l2_start: Start = "warm",
    stop_above: int | None = None,
    alone: Mapping[int, PhaseAlone] = EMPTY,
) -> KernelTimes:
    """Return where the cycles of a kernel went; as `measure_kernel`."""
    stop = NEVER if stop_above is None else stop_above
    phases, moved, left = _run(
        kernel, profile, folded, l2_start, recorded=False, stop_above=stop, alone=alone
    )
    each = profile.scalar.issue_cycles
    made = [
        phase
        if isinstance(phase, TimedPhase)
        else PhaseTimes(phase.name, phase.begin, phase.end, _core_times(phase.runs, phase.answer, each))
        for phase in phases
    ]
    return KernelTimes(kernel.name, _end(phases, profile), tuple(made), moved, left)


def timeline(kernel: Kernel, profile: Profile, *, folded: bool = True, l2_start: Start = "warm") -> Timeline:
    """Return the spans of all instructions of a kernel; as `time_kernel`."""
    # Imported here: who only estimates looks at no timeline.
    from ascendsim.timing.timeline import CoreTimeline, PhaseTimeline, Timeline

    phases, moved, left = _run(kernel, profile, folded, l2_start, recorded=True)
    made = []
    for phase in phases:
        assert isinstance(phase, _Timed)
        cores = [
            CoreTimeline(run.cores, run.program, *spans.T.tolist())
            for run, spans in zip(phase.runs, phase.answer.spans, strict=True)
        ]
        made.append(PhaseTimeline(phase.name, phase.begin, phase.end, tuple(cores)))
    return Timeline(kernel.name, _end(phases, profile), tuple(made), moved, left)


def _run(
    kernel: Kernel,
    profile: Profile,
    folded: bool,
    l2_start: Start,
    *,
    recorded: bool,
    stop_above: int = NEVER,
    alone: Mapping[int, PhaseAlone] = EMPTY,
) -> tuple[list[_Timed | PhaseTimes], dict[str, int], L2State | None]:
    """Run the phases of a kernel but for those that are known `alone`, by their numbers.

    Returns  them, the bytes by source, what is left in L2 as `KernelTimes` has it
    """
    book = FormBook(profile)

    def checked(program: Program, kind: str) -> Program:
        book.check(program, kind)
        return program

    others = [phase for number, phase in enumerate(kernel.phases) if number not in alone]
    phases = [teams_of(phase, folded, checked) for phase in others]
    own = [PhaseRows(book, [team.programs[0] for team in teams]) for teams in phases]
    moving = _moving(others, own, profile, hits=only_hits(kernel, profile, l2_start))
    lanes = [_lanes(teams, each, book) for teams, each in zip(phases, moving, strict=True)]
    account = account_of_lanes(lanes, kernel, profile, l2_start)
    now = profile.scalar.start_cycles
    timed: list[_Timed | PhaseTimes] = []
    found = zip(phases, own, moving, account.phases, strict=True)
    for number, phase in enumerate(kernel.phases):
        # Between phases all cores wait for each other; before the first there is nobody to wait for.
        if timed:
            now += profile.sync.barrier_cycles
        if number in alone:
            timed.append(alone[number].begun(now))
            now = timed[-1].end
            if now > stop_above:
                raise StoppedError(stopped_words(kernel.name, stop_above))
            continue
        teams, rows, each, (numbers, outcomes) = next(found)
        runs = _runs(teams, each, numbers)
        if not folded:
            rows = PhaseRows(book, [run.program for run in runs])
        answer = run_phase(
            phase.name, runs, rows, outcomes, now, book, profile, recorded=recorded, stop_above=stop_above
        )
        if answer is None:
            raise StoppedError(stopped_words(kernel.name, stop_above))
        end = int(answer.done.max(initial=now))
        timed.append(_Timed(phase.name, now, end, runs, answer))
        now = end
    moved = Counter(account.bytes)
    for known in alone.values():
        moved.update(known.bytes)
    return timed, dict(moved), account.left


def memory_reads(kernel: Kernel, profile: Profile, l2_start: Start) -> dict[str, int]:
    """Return the bytes that come from main memory by tensor: parts of the `memory_read` of the kernel."""
    if only_hits(kernel, profile, l2_start):
        return {}
    book = FormBook(profile)
    phases = [teams_of(phase, True, lambda program, _: program) for phase in kernel.phases]
    own = [PhaseRows(book, [team.programs[0] for team in teams]) for teams in phases]
    moving = _moving(kernel.phases, own, profile, hits=False)
    lanes = [_lanes(teams, each, book) for teams, each in zip(phases, moving, strict=True)]
    made = account_of_lanes(lanes, kernel, profile, l2_start).phases
    read: dict[str, Fraction] = defaultdict(Fraction)
    for phase, found in zip(lanes, made, strict=True):
        for traffic, times, outcome in met_by(phase, found):
            parts = min(outcome.readers, max(1, profile.l2.most_fetches))
            read[traffic.tensor.name] += times * traffic.bytes * outcome.fetched * parts
    # Parts of a byte: rounded so that they add up.
    ends = [0, *map(round, accumulate(read.values()))]
    return {name: end - begin for name, (begin, end) in zip(read, pairwise(ends), strict=True) if end > begin}


def _moving(
    phases: Sequence[Phase], own: Sequence[PhaseRows], profile: Profile, *, hits: bool
) -> list[list[ProgramTransfers]]:
    """Return the transfers of the programs of each phase."""
    return [
        rows.transfers(_asked(rows, profile) if hits else None, apart=phase.apart)
        for phase, rows in zip(phases, own, strict=True)
    ]


def _asked(rows: PhaseRows, profile: Profile) -> frozenset[str]:
    """Return the tensors whose slices get distinct numbers in a phase that only hits."""
    # This phase may write a tensor that another one reads.
    return asks_for_slices([rows.book.traffics[number] for number in rows.met()], profile)


def _lanes(teams: Sequence[Team[Program]], moving: Sequence[ProgramTransfers], book: FormBook) -> PhaseLanes:
    """Return the transfers of a phase as the account of L2 takes them."""
    lanes = [Lane(len(team.cores), own.traffics, own.slices) for team, own in zip(teams, moving, strict=True)]
    return PhaseLanes(tuple(book.traffics), tuple(lanes))


def _runs(
    teams: Sequence[Team[Program]], moving: Sequence[ProgramTransfers], outcomes: Sequence[NDArray[np.int32]]
) -> list[ProgramRun]:
    """Return the programs of a phase with their transfers, which are alike for all of a team."""
    return [
        ProgramRun(cores, program, own.traffics, own.cores, made)
        for team, own, made in zip(teams, moving, outcomes, strict=True)
        for cores, program in team.each()
    ]


def _core_times(runs: Sequence[ProgramRun], answer: ProgramTimes, issue_cycles: int) -> tuple[CoreTimes, ...]:
    """Return the times of every core of every program."""
    # Plain numbers of all cores at once: an array takes its time for each one that it is asked for.
    all_busy, ends, issued = answer.busy.tolist(), answer.done.tolist(), answer.issued.tolist()
    waits: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    found = np.argwhere(answer.waits)
    for (at, pipe, cause), cycles in zip(found.tolist(), answer.waits[tuple(found.T)].tolist(), strict=True):
        waits.setdefault((at, pipe // len(PIPES)), []).append((pipe, cause, cycles))
    made = []
    for at, run in enumerate(runs):
        for core in range(run.program.cores):
            own = range(core * len(PIPES), (core + 1) * len(PIPES))
            busy = {"S": sum([issued[at][pipe] for pipe in own]) * issue_cycles}
            busy |= {PIPES[pipe % len(PIPES)]: all_busy[at][pipe] for pipe in own if issued[at][pipe]}
            waiting: dict[str, dict[str, int]] = {}
            for pipe, cause, cycles in waits.get((at, core), ()):
                causes = waiting.setdefault(PIPES[pipe % len(PIPES)], {})
                causes[seen_from(core, _NAMES[cause])] = cycles
            cores = tuple([one.beside(core) for one in run.cores]) if core else run.cores
            made.append(CoreTimes(cores, busy, waiting, ends[at][core]))
    return tuple(made)


def _end(phases: Sequence[_Timed | PhaseTimes], profile: Profile) -> int:
    return phases[-1].end if phases else profile.scalar.start_cycles


def get_ready() -> None:
    """Load the machine code of the engine and of the account of L2; compile and keep it if it is in no cache.

    Whoever starts several processes calls it first: they then find the code, where each would compile it for
    itself, and messages about compiling reach the caller.
    """
    # Imported here: who asks one process for nothing needs none of it.
    from ascendsim.timing.compiled_engine import ENGINE
    from ascendsim.timing.l2.lru import WALK
    from ascendsim.timing.l2.phase import PREPARE
    from ascendsim.timing.l2.slices import CLASSIFY

    for code in (ENGINE, WALK, PREPARE, CLASSIFY):
        code.load()
