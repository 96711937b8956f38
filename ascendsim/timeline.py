"""Spans of a timed kernel, and pure functions on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ascendsim.program import Core, Program


@dataclass(frozen=True, slots=True)
class CoreTimeline:
    """Spans of one core in one phase; `cores` are all cores it stands for (more than one when folded).

    All lists are indexed like `program.instructions`, in absolute cycles of the kernel:
    `issue` when the scalar unit handed it to its pipe, `start` when the pipe took it up, `end` when the pipe
    was free again, `done` when its result was visible.
    """

    cores: tuple[Core, ...]
    program: Program
    issue: list[int]
    start: list[int]
    end: list[int]
    done: list[int]


@dataclass(frozen=True, slots=True)
class PhaseTimeline:
    """One phase: from `begin` (all cores start) to `end` (the last result is visible), in cycles."""

    name: str
    begin: int
    end: int
    cores: tuple[CoreTimeline, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """A timed kernel. `bytes` are the bytes moved by source ("l2_read", "l2_write", "memory")."""

    kernel: str
    cycles: int
    phases: tuple[PhaseTimeline, ...]
    bytes: Mapping[str, int]
