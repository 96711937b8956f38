"""Cores with equal signatures promise to cost the same; where all of them run, that shows."""

from __future__ import annotations

from collections.abc import Sequence

from ascendsim.errors import ProgramError
from ascendsim.program.kernel import Core, CoreWork, Phase
from ascendsim.program.program import Program


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
    beside = len(program.sizes) - 1
    if work.core.kind == "cube" and beside > work.beside:
        raise ProgramError(
            f"phase {phase}: the program of {work.core} covers {beside} vector cores beside it, but its work "
            f"says {work.beside}; set CoreWork.beside"
        )
