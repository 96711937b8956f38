"""Lay the rows of a piece of the reduction out for panels, close together: as doubles, or as they are.

Where they come from, the rows of one panel may be so far apart that they drive each other out of the nearest
cache.
"""

from typing import Any

from ascendsim.numerics.compiled.block_sums import Packed
from ascendsim.numerics.compiled.gathered.places import (
    LONG_RUN,
    RUN,
    copy_four,
    copy_long_run,
    copy_rows,
    copy_run,
)
from ascendsim.numerics.compiled.jit import called, inlined
from ascendsim.numerics.compiled.panel_rounding import at, put
from ascendsim.numerics.compiled.panels import ROWS, out_of_line

Array = Any


@called
def pack_rows(a: Any, run: int, lines: Any, steps: Any, target: Array, place: int) -> None:
    """Lay some lines of a factor out along some steps, ROWS lines after the other.

    run      steps that follow each other, from the first one on: a multiple of ROWS. The lines of a panel are
             then one after the other; with 0 they are side by side, step after step
    lines    (first, last), whole panels; steps: (first, last)
    """
    out_of_line()
    first, last = steps
    for line in range(lines[0], lines[1], ROWS):
        goal = place + (line - lines[0]) * (last - first)
        if run > 0:
            for row in range(ROWS):
                _copy_runs(a, run, line + row, first, last, target, goal + row * (last - first))
        elif _are_neighbours(a, line):
            start = at(a.lines, line)
            for step in range(first, last):
                copy_four(a.values, start + at(a.steps, step), target, goal + (step - first) * ROWS)
        else:
            copy_rows(a, line, first, last, target, goal)


@inlined
def _copy_runs(a: Any, run: int, line: int, first: int, last: int, target: Array, goal: int) -> None:
    start = at(a.lines, line)
    long = LONG_RUN if run % LONG_RUN == 0 else RUN if run % RUN == 0 else ROWS
    whole = first + (last - first) // long * long
    if long == LONG_RUN:
        for step in range(first, whole, LONG_RUN):
            copy_long_run(a.values, start + at(a.steps, step), target, goal + step - first)
    elif long == RUN:
        for step in range(first, whole, RUN):
            copy_run(a.values, start + at(a.steps, step), target, goal + step - first)
    else:
        for step in range(first, whole, ROWS):
            copy_four(a.values, start + at(a.steps, step), target, goal + step - first)
    # The last run may be short, and what lies behind it is not ours.
    for step in range(whole, last):
        put(target, goal + step - first, at(a.values, start + at(a.steps, step)))


@inlined
def _are_neighbours(a: Any, line: int) -> bool:
    """Tell whether the elements of a panel's lines lie one after the other."""
    together = True
    for row in range(1, ROWS):
        together = together and at(a.lines, line + row) == at(a.lines, line) + row
    return together


@inlined
def panel_of(values: Array, place: int, run: int, line: int, length: int) -> Packed:
    """Return the panel that begins so many lines behind the first one that `pack_rows` has laid out."""
    first = place + line * length
    return Packed(values, first, length, 1) if run > 0 else Packed(values, first, 1, ROWS)
