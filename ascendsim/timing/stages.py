"""Parts of a kernel's cycles by what the cube does: before its first product, between, after its last."""

from __future__ import annotations

from typing import NamedTuple

from ascendsim.timing.timeline import Timeline


class Stages(NamedTuple):
    """Cycles of a kernel on the cube; they add up to the cycles of the kernel.

    entry    up to the first instruction
    fill     from then until a cube takes up its first product
    steady   until the last product of a cube has left it
    drain    until the last result is visible: sums go out, and parts of cores are added
    """

    entry: int
    fill: int
    steady: int
    drain: int


def stages(timeline: Timeline) -> Stages | None:
    """Return the stages of the core whose cube ends last; None for a kernel without products."""
    found = []
    for phase in timeline.phases:
        for work in phase.cores:
            # A pipe keeps the order of its program: its first product begins first, its last one ends last.
            products = [at for at, pipe in enumerate(work.program.pipes) if pipe == "M"]
            if products:
                found.append((work.end[products[-1]], work.start[products[0]]))
    if not found:
        return None
    # Ends may be equal: then of the core that begins last, whose fill is the longest.
    end, start = max(found)
    entry = timeline.entry_cycles
    return Stages(entry, start - entry, end - start, timeline.cycles - end)
