"""Take elements from their places: a panel's rows one by one, a panel's columns copied to lie together."""

from typing import Any

from ascendsim.numerics.compiled.gathered.factor import Factor
from ascendsim.numerics.compiled.jit import called
from ascendsim.numerics.compiled.panel_memory import at, make_array, put
from ascendsim.numerics.compiled.panels import (
    LANES,
    PANELS,
    ROWS,
    SCALARS,
    Value,
    intrinsic,
    out_of_line,
    pack,
    splat,
    types,
)

Array = Any


def _rows_from(_typing: Value, array: Value, _step: Value, *lines: Value) -> Value:
    def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
        # The line first, which stays the same along a reduction, so that its address stays in a register.
        data = make_array(sig.args[0])(context, builder, args[0]).data
        places = [builder.gep(builder.gep(data, [line]), [args[1]]) for line in args[2:]]
        return pack(builder, [splat(builder, builder.load(place)) for place in places])

    return PANELS[SCALARS[array.dtype]](array, *[types.intp] * (1 + len(lines))), codegen


def _four(typing: Value, array: Value, step: Value, w: Value, x: Value, y: Value, z: Value) -> Value:
    return _rows_from(typing, array, step, w, x, y, z)


# (array, step, line, line, line, line): the element of each line at a step, in all lanes of its row
rows_from = intrinsic(_four)
assert ROWS == 4, "rows_from takes four lines"


@called
def copy_columns(b: Factor, line: int, first: int, last: int, target: Array, place: int) -> None:
    """Copy LANES lines along some steps to `target`: LANES elements side by side for each step."""
    out_of_line()
    start, together = at(b.lines, line), True
    for lane in range(LANES):
        together = together and at(b.lines, line + lane) == start + lane
    for step in range(first, last):
        goal, source = place + (step - first) * LANES, at(b.steps, step)
        # Two loops without a branch: elements that lie side by side already are copied as vectors.
        if together:
            for lane in range(LANES):
                put(target, goal + lane, at(b.values, start + source + lane))
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
