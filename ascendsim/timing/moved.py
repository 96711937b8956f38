"""The bytes that each pipe of a kernel moves, read off its programs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ascendsim.profile import Profile
from ascendsim.program.instruction import PIPES
from ascendsim.program.kernel import Kernel
from ascendsim.program.program import Program


def bytes_by_pipe(kernel: Kernel, profile: Profile) -> dict[str, int]:
    """Return the bytes that each pipe moves in all cores of a kernel.

    Of MTE2, MTE3 and FIX what they move from and to L2; of MTE1 the tiles of L0 that it fills, each as large
    as its slot.
    """
    found: Counter[str] = Counter()
    for phase in kernel.phases:
        # Cores of equal signatures do what costs the same, and so move the same.
        for work, cores in phase.folded():
            for pipe, size in _of_program(work.build(), profile).items():
                found[pipe] += len(cores) * size
    return {pipe: found[pipe] for pipe in PIPES if found[pipe]}


def _of_program(program: Program, profile: Profile) -> Counter[str]:
    found: Counter[str] = Counter()
    known: dict[Any, int] = {}
    for pipe, step in zip(program.pipes, program.instructions, strict=True):
        if pipe == "MTE1":
            found[pipe] += sum(slot.size_bytes for slot in step.writes)
            continue
        shape = type(step), pipe, step.shape
        if shape not in known:
            traffic = step.cost(profile).traffic
            known[shape] = traffic.bytes if traffic else 0
        found[pipe] += known[shape]
    return found
