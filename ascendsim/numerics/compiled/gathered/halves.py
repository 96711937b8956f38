"""Convert whole arrays between binary16 and binary32, many elements an instruction."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from ascendsim.numerics.compiled.gathered.threads import ALONE, Threads
from ascendsim.numerics.compiled.jit import kernel
from ascendsim.numerics.compiled.panel_rounding import make_array, store, tile
from ascendsim.numerics.compiled.panels import (
    HALF_CONVERSIONS,
    LANES,
    PANELS,
    ROWS,
    Value,
    any_lane,
    as_bits,
    differs,
    half_to_single,
    intrinsic,
    pack,
    to_half,
    types,
    unpack,
    vector,
)

Array = Any
Halves = npt.NDArray[np.float16]
Floats = npt.NDArray[np.float32]

_PANEL = ROWS * LANES


def _rows(context: Value, builder: Value, array_type: Value, array: Value, offset: Value) -> list[Value]:
    """Return where the rows of a panel of binary16 values lie, one after the other."""
    data = make_array(array_type)(context, builder, array).data
    first = builder.bitcast(builder.gep(data, [offset]), vector("f2").as_pointer())
    return [builder.gep(first, [ir.Constant(ir.IntType(64), row)]) for row in range(ROWS)]


def _read(_typing: Value, array: Value, _offset: Value) -> Value:
    def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
        # Codes may begin anywhere: a vector's own alignment, assumed otherwise, would fault.
        places = _rows(context, builder, sig.args[0], *args)
        return pack(builder, [builder.fpext(builder.load(p, align=2), vector("f4")) for p in places])

    return PANELS["f4"](array, types.intp), codegen


def _write(_typing: Value, panel: Value, array: Value, _offset: Value) -> Value:
    def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
        places = _rows(context, builder, sig.args[1], *args[1:])
        for row, place in zip(unpack(builder, args[0]), places, strict=True):
            builder.store(builder.fptrunc(row, vector("f2")), place, align=2)
        return context.get_dummy_value()

    return types.void(panel, array, types.intp), codegen


_read_halves = intrinsic(_read)  # (codes, offset) -> panel of singles
_write_halves = intrinsic(_write)  # (panel of singles, codes, offset)


@kernel
def _widen(codes: Array, singles: Array, count: int) -> None:
    for place in range(0, count, _PANEL):
        store(_read_halves(codes, place), singles, place, LANES)


@kernel
def _narrow(singles: Array, codes: Array, count: int) -> bool:
    exact = True
    for place in range(0, count, _PANEL):
        values = tile(singles, place, LANES)
        _write_halves(values, codes, place)
        exact = exact and not any_lane(differs(as_bits(values), as_bits(half_to_single(to_half(values)))))
    return exact


@kernel
def _round_off(singles: Array, codes: Array, count: int) -> None:
    for place in range(0, count, _PANEL):
        _write_halves(tile(singles, place, LANES), codes, place)


@kernel
def _round(singles: Array, target: Array, count: int) -> None:
    for place in range(0, count, _PANEL):
        store(half_to_single(to_half(tile(singles, place, LANES))), target, place, LANES)


def widened(halves: Halves, threads: Threads = ALONE) -> Floats:
    """Return binary16 values as binary32, exactly: (any shape) -> the same."""
    if not HALF_CONVERSIONS:
        return halves.astype(np.float32)
    # Codes that are read-only or not aligned are another type, for which the kernel would be compiled anew.
    codes = np.require(halves, None, ["C", "A", "W"]).view(np.uint16).reshape(-1)
    singles = np.empty(codes.size, np.float32)
    _in_panels(_widen, codes, singles, threads)
    return singles.reshape(halves.shape)


def narrowed(singles: Floats, threads: Threads = ALONE) -> Halves | None:
    """Return binary32 values as binary16 if all are on its grid, bit for bit: (any shape) -> the same.

    Special  a NaN whose payload would be lost is off the grid
    """
    flat = np.require(singles, None, ["C", "A", "W"]).reshape(-1)
    if HALF_CONVERSIONS:
        codes = np.empty(flat.size, np.uint16)
        exact = all(_in_panels(_narrow, flat, codes, threads))
    else:
        codes = _as_halves(flat).view(np.uint16)
        exact = np.array_equal(codes.view(np.float16).astype(np.float32).view(np.int32), flat.view(np.int32))
    return codes.view(np.float16).reshape(singles.shape) if exact else None


def on_half_grid(singles: Floats, threads: Threads = ALONE) -> Floats:
    """Return binary32 values rounded to binary16, to nearest, ties to even: (any shape) -> the same.

    Special  beyond the largest value Inf; subnormals and the sign of zero are kept, the payload of a NaN not
             always
    """
    if not HALF_CONVERSIONS:
        return widened(_as_halves(singles))
    flat = np.require(singles, None, ["C", "A", "W"]).reshape(-1)
    made = np.empty(flat.size, np.float32)
    _in_panels(_round, flat, made, threads)
    return made.reshape(singles.shape)


def rounded_halves(singles: Floats, threads: Threads = ALONE) -> Halves:
    """Return the same as binary16: what `narrowed` makes of `on_half_grid`, in one pass."""
    if not HALF_CONVERSIONS:
        return _as_halves(singles)
    flat = np.require(singles, None, ["C", "A", "W"]).reshape(-1)
    codes = np.empty(flat.size, np.uint16)
    _in_panels(_round_off, flat, codes, threads)
    return codes.view(np.float16).reshape(singles.shape)


def _as_halves(singles: Floats) -> Halves:
    with np.errstate(over="ignore", under="ignore"):
        return singles.astype(np.float16)


def _in_panels(
    convert: Callable[[Array, Array, int], Any], source: Array, target: Array, threads: Threads
) -> list[Any]:
    """Convert all elements: whole panels as they lie, and what is over in a panel of its own.

    Returns  what `convert` has returned of each part
    """
    whole = source.size // _PANEL * _PANEL

    def convert_part(own: slice) -> Any:
        return convert(source[own], target[own], own.stop - own.start)

    told = threads.for_moving(whole).share(convert_part, whole, _PANEL)
    if whole < source.size:
        last, made = np.zeros(_PANEL, source.dtype), np.empty(_PANEL, target.dtype)
        last[: source.size - whole] = source[whole:]
        told.append(convert(last, made, _PANEL))
        target[whole:] = made[: source.size - whole]
    return told
