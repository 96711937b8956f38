"""Take elements from their places: a panel's rows one by one, a panel's columns copied to lie together."""

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir

from ascendsim.numerics.compiled.gathered.factor import Elements
from ascendsim.numerics.compiled.jit import called, kernel
from ascendsim.numerics.compiled.panel_rounding import at, make_array, put
from ascendsim.numerics.compiled.panels import (
    LANES,
    ROWS,
    SCALARS,
    Value,
    intrinsic,
    out_of_line,
    types,
    vector,
)

Array = Any

# Elements that are copied at once where steps follow each other: a group of float32 channels, or of float16.
RUN: Final = 8
LONG_RUN: Final = 16


def _copier(count: int) -> Callable[..., Any]:
    """Make an operation that copies so many elements which lie together, singles perhaps to doubles."""

    def copy(_typing: Value, values: Value, _source: Value, target: Value, _goal: Value) -> Value:
        def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
            kinds = [ir.VectorType(vector(SCALARS[one.dtype]).element, count) for one in (values, target)]
            arrays = zip(sig.args[::2], args[::2], args[1::2], kinds, strict=True)
            places = [
                builder.bitcast(
                    builder.gep(make_array(t)(context, builder, x).data, [place]), kind.as_pointer()
                )
                for t, x, place, kind in arrays
            ]
            # Singles may begin anywhere: a vector's own alignment, assumed otherwise, would fault.
            lanes = builder.load(places[0], align=4)
            wide = lanes if kinds[0] == kinds[1] else builder.fpext(lanes, kinds[1])
            builder.store(wide, places[1], align=4)
            return context.get_dummy_value()

        return types.void(values, types.intp, target, types.intp), codegen

    return intrinsic(copy)  # type: ignore[no-any-return]


# (values, source, target, goal)
copy_lanes, copy_four, copy_run, copy_long_run = (_copier(count) for count in (LANES, ROWS, RUN, LONG_RUN))


@called
def copy_columns(b: Any, line: int, first: int, last: int, target: Array, place: int) -> None:
    """Copy LANES lines of a factor along some steps to `target`: LANES elements together for each step."""
    out_of_line()
    start, together = at(b.lines, line), True
    for lane in range(LANES):
        together = together and at(b.lines, line + lane) == start + lane
    for step in range(first, last):
        goal, source = place + (step - first) * LANES, at(b.steps, step)
        if together:
            copy_lanes(b.values, start + source, target, goal)
        else:
            for lane in range(LANES):
                put(target, goal + lane, at(b.values, at(b.lines, line + lane) + source))


@called
def copy_rows(a: Any, line: int, first: int, last: int, target: Array, place: int) -> None:
    """Copy ROWS lines of a factor along some steps to `target`: ROWS elements side by side for each step."""
    out_of_line()
    for step in range(first, last):
        for row in range(ROWS):
            value = at(a.values, at(a.lines, line + row) + at(a.steps, step))
            put(target, place + (step - first) * ROWS + row, value)


@kernel
def write_rows(a: Elements, first: int, last: int, out: Array) -> None:
    """Write some steps of a factor out, line by line: (lines, last - first)."""
    width = last - first
    for line in range(a.lines.size):
        start = at(a.lines, line)
        for step in range(first, last):
            put(out, line * width + step - first, at(a.values, start + at(a.steps, step)))


@kernel
def write_columns(b: Elements, first: int, last: int, out: Array) -> None:
    """Write some steps of a factor out, step by step: (last - first, lines)."""
    width = b.lines.size
    for step in range(first, last):
        start = at(b.steps, step)
        for line in range(width):
            put(out, (step - first) * width + line, at(b.values, at(b.lines, line) + start))
