"""Run a whole kernel on the compiled engine: its programs as tables, what L2 holds, phase after phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.errors import StoppedError
from ascendsim.program.instruction import PIPES
from ascendsim.program.kernel import Kernel
from ascendsim.program.posts import VECTOR_CORES, pipe_on, seen_from
from ascendsim.program.program import Program
from ascendsim.timing.fast.compiled.state import NEVER
from ascendsim.timing.fast.forms import FormBook
from ascendsim.timing.fast.moving import Run
from ascendsim.timing.fast.phase import Answer, run_phase
from ascendsim.timing.fast.programs import PhaseRows, Transfers
from ascendsim.timing.l2.account import Start, account_of_lanes, asks_for_slices, only_hits
from ascendsim.timing.l2.lanes import Lane, PhaseLanes
from ascendsim.timing.teams import Team, teams_of
from ascendsim.timing.times import CoreTimes, KernelTimes, PhaseAlone, PhaseTimes, stopped_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.profile import Profile
    from ascendsim.timing.timeline import Timeline


EMPTY: Mapping[int, PhaseAlone] = {}
# Of all pipes of a program, those of its first core first.
_NAMES = tuple([pipe_on(core, pipe) for core in range(1 + VECTOR_CORES) for pipe in PIPES])


class _Timed(NamedTuple):
    """A phase after its run."""

    name: str
    begin: int
    end: int
    runs: Sequence[Run]
    answer: Answer


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
    phases, moved = _run(kernel, profile, folded, l2_start, recorded=False, stop_above=stop, alone=alone)
    each = profile.scalar.issue_cycles
    made = [
        phase
        if isinstance(phase, PhaseTimes)
        else PhaseTimes(phase.name, phase.begin, phase.end, _core_times(phase.runs, phase.answer, each))
        for phase in phases
    ]
    return KernelTimes(kernel.name, _end(phases, profile), tuple(made), moved)


def timeline(kernel: Kernel, profile: Profile, *, folded: bool = True, l2_start: Start = "warm") -> Timeline:
    """Return the spans of all instructions of a kernel; as `time_kernel`."""
    # Imported here: who only estimates looks at no timeline.
    from ascendsim.timing.timeline import CoreTimeline, PhaseTimeline, Timeline

    phases, moved = _run(kernel, profile, folded, l2_start, recorded=True)
    made = []
    for phase in phases:
        assert isinstance(phase, _Timed)
        cores = [
            CoreTimeline(run.cores, run.program, *spans.T.tolist())
            for run, spans in zip(phase.runs, phase.answer.spans, strict=True)
        ]
        made.append(PhaseTimeline(phase.name, phase.begin, phase.end, tuple(cores)))
    return Timeline(kernel.name, _end(phases, profile), tuple(made), moved)


def _run(
    kernel: Kernel,
    profile: Profile,
    folded: bool,
    l2_start: Start,
    *,
    recorded: bool,
    stop_above: int = NEVER,
    alone: Mapping[int, PhaseAlone] = EMPTY,
) -> tuple[list[_Timed | PhaseTimes], dict[str, int]]:
    """Run the phases of a kernel but for those that are known `alone`, by their numbers."""
    book = FormBook(profile)

    def checked(program: Program, kind: str) -> Program:
        book.check(program, kind)
        return program

    others = [phase for number, phase in enumerate(kernel.phases) if number not in alone]
    phases = [teams_of(phase, folded, checked) for phase in others]
    hits = only_hits(kernel, profile, l2_start)
    own = [PhaseRows(book, [team.programs[0] for team in teams]) for teams in phases]
    moving = [
        rows.transfers(_asked(rows, profile) if hits else None, apart=phase.apart)
        for phase, rows in zip(others, own, strict=True)
    ]
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
    return timed, dict(moved)


def _asked(rows: PhaseRows, profile: Profile) -> frozenset[str]:
    """Return the tensors of which slices are told apart in a phase that only hits."""
    # What another phase reads may be written here.
    return asks_for_slices([rows.book.traffics[number] for number in rows.met()], profile)


def _lanes(teams: Sequence[Team[Program]], moving: Sequence[Transfers], book: FormBook) -> PhaseLanes:
    """Return the transfers of a phase as the account of L2 takes them."""
    lanes = [Lane(len(team.cores), own.traffics, own.slices) for team, own in zip(teams, moving, strict=True)]
    return PhaseLanes(tuple(book.traffics), tuple(lanes))


def _runs(
    teams: Sequence[Team[Program]], moving: Sequence[Transfers], outcomes: Sequence[NDArray[np.int32]]
) -> list[Run]:
    """Return the programs of a phase with their transfers, which are alike for all of a team."""
    return [
        Run(cores, program, own.traffics, own.cores, made)
        for team, own, made in zip(teams, moving, outcomes, strict=True)
        for cores, program in team.each()
    ]


def _core_times(runs: Sequence[Run], answer: Answer, issue_cycles: int) -> tuple[CoreTimes, ...]:
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
