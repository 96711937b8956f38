"""The cores of a phase in teams; cores with equal signatures promise equal costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from ascendsim.errors import ProgramError
from ascendsim.program.kernel import Core, CoreWork, Phase
from ascendsim.program.program import Program

Taken = TypeVar("Taken")


class Team(NamedTuple, Generic[Taken]):
    """Cores of one phase that promise equal costs, with one program for all or one for each."""

    cores: tuple[Core, ...]
    programs: tuple[Taken, ...]

    def each(self) -> list[tuple[tuple[Core, ...], Taken]]:
        """Return the cores that run as one, with their program."""
        if len(self.programs) == 1:
            return [(self.cores, self.programs[0])]
        return [((core,), program) for core, program in zip(self.cores, self.programs, strict=True)]


def teams_of(phase: Phase, folded: bool, take: Callable[[Program, str], Taken]) -> list[Team[Taken]]:
    """Build the programs of a phase, each as `take(program, kind of core)` makes it for an engine.

    folded   one program for each team: equal cores have equal rates on every link and equal outcomes in L2,
             so one of them run with the weight of all takes exactly their cycles

    Raises   ProgramError for a phase that breaks the rules below
    """
    require_apart(phase)
    teams = []
    for works in phase.teams():
        programs = [work.build() for work in (works[:1] if folded else works)]
        cores = tuple([work.core for work in works])
        if len(programs) > 1:
            require_alike(phase.name, cores, [len(program) for program in programs])
        for program in programs:
            require_covered(phase.name, works[0], program)
        teams.append(Team(cores, tuple([take(program, works[0].core.kind) for program in programs])))
    return teams


def require_alike(phase: str, cores: Sequence[Core], lengths: Sequence[int]) -> None:
    """Refuse cores with equal signatures and programs of different lengths.

    Folded there is one program and nothing to compare.

    Raises   ProgramError
    """
    for core, length in zip(cores, lengths, strict=False):
        if length != lengths[0]:
            raise ProgramError(
                f"phase {phase}: cores {cores[0]} and {core} have equal signatures, but "
                f"{lengths[0]} and {length} instructions; a signature must "
                "tell all that the cost of a program depends on"
            )


def require_apart(phase: Phase) -> None:
    """Refuse two programs on one core; the vector cores that a program covers count.

    Raises   ProgramError
    """
    taken: set[Core] = set()
    for work in phase.work:
        for core in work.cores:
            if core in taken:
                raise ProgramError(
                    f"two programs of phase {phase.name} run on {core}; one of them may cover it beside its "
                    "cube core (CoreWork.beside)"
                )
            taken.add(core)


def require_covered(phase: str, work: CoreWork, program: Program) -> None:
    """Refuse a program on more vector cores than its work says.

    Raises   ProgramError
    """
    beside = program.cores - 1
    if work.core.kind == "cube" and beside > work.beside:
        raise ProgramError(
            f"phase {phase}: the program of {work.core} covers {beside} vector cores beside it, but its work "
            f"says {work.beside}; set CoreWork.beside"
        )
