"""Give kernels a value that is a small panel of accumulators in vector registers.

A panel is ROWS rows of LANES columns of one element type: 16-bit, 32-bit or 64-bit floats or integers, or a
mask. Kernels are written on panels as one would write them on scalars, operators included; every operation
becomes one vector instruction per row, which the compiler cuts to the machine's own vector width. So the same
source is right on every machine; LANES only decides how well a panel fits the registers.

Nothing is ever contracted or reordered: what is written is what is rounded. Comparisons are ordered: they are
false where an operand is NaN.
"""

import operator
from collections.abc import Callable, Iterable
from typing import Any, Final

import llvmlite.binding
import numba.core.cgutils
import numba.core.imputils
import numba.core.typing.templates
import numba.extending
from llvmlite import ir

from ascendsim.native.default_arithmetic import ControlWord, control_word, emit_read, emit_write

Value = Any  # a value or type of the compiler
Emit = Callable[..., Value]  # (builder, vectors...) -> vector

# The compiler's extension interface; some of its versions have types in part and others none.
types: Any = numba.types
config: Any = numba.config
cgutils: Any = numba.core.cgutils
models: Any = numba.extending.models
templates: Any = numba.core.typing.templates
intrinsic: Any = numba.extending.intrinsic
lower_builtin: Any = numba.core.imputils.lower_builtin


def _has(feature: str) -> bool:
    """Return whether the compiler will compile for a processor with this feature."""
    # Numba's own settings may name another processor; then only the features that they list are used.
    if config.CPU_NAME is None and config.CPU_FEATURES is None:
        return bool(llvmlite.binding.get_host_cpu_features().get(feature, False))
    return f"+{feature}" in (config.CPU_FEATURES or "").split(",")


# A row's operand of a is one scalar in all lanes and one of b serves all rows, so four rows read a fourth of
# what four single rows would, and four independent chains hide the latency of an addition.
ROWS: Final = 4
# Fill the registers: 16 vectors of 8 doubles with AVX-512, otherwise 8 of 4 or 16 of 2.
LANES: Final = 32 if _has("avx512f") else 8
# One instruction takes the smaller magnitude of two doubles, of so many lanes.
_RANGES: Final = _has("avx512dq")
_PART: Final = 8
HALF_CONVERSIONS: Final = _has("f16c") or _has("avx512f")

_ELEMENTS: Final[dict[str, Value]] = {
    "f2": ir.HalfType(),
    "f4": ir.FloatType(),
    "f8": ir.DoubleType(),
    "i4": ir.IntType(32),
    "i8": ir.IntType(64),
    "mask": ir.IntType(1),
}
SCALARS: Final = {types.float32: "f4", types.float64: "f8", types.int32: "i4", types.int64: "i8"}


class PanelType(types.Type):  # type: ignore[misc]
    """The compiler's name for a panel of one element type."""

    def __init__(self, element: str) -> None:
        self.element = element
        super().__init__(name=f"Panel({element})")


# An array of vectors as one value, which the compiler takes apart again: every row has a register of its own.
@numba.extending.register_model(PanelType)
class _PanelModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Value, panel: PanelType) -> None:
        super().__init__(manager, panel, ir.ArrayType(vector(panel.element), ROWS))


PANELS: Final = {element: PanelType(element) for element in _ELEMENTS}


def vector(element: str) -> Value:
    """Return the compiler's vector type for one row."""
    return ir.VectorType(_ELEMENTS[element], LANES)


def _element(vector: Value) -> str:
    return next(name for name, value in _ELEMENTS.items() if value == vector.type.element)


def _is_float(vector: Value) -> bool:
    return _element(vector).startswith("f")


def pack(builder: Value, rows: Iterable[Value]) -> Value:
    """Make a panel of row vectors."""
    # Made from the undefined value: every row is set, and zeros would be stored for nothing.
    panel = None
    for index, row in enumerate(rows):
        if panel is None:
            panel = ir.Constant(ir.ArrayType(row.type, ROWS), ir.Undefined)
        panel = builder.insert_value(panel, row, index)
    return panel


def unpack(builder: Value, panel: Value) -> list[Value]:
    """Return the row vectors of a panel."""
    return [builder.extract_value(panel, row) for row in range(ROWS)]


# --- operations on every element --------------------------------------------------------------------------


def _row_by_row(emit: Emit) -> Callable[..., Value]:
    def codegen(_context: Value, builder: Value, _signature: Value, panels: Value) -> Value:
        rows = zip(*(unpack(builder, panel) for panel in panels), strict=True)
        return pack(builder, (emit(builder, *vectors) for vectors in rows))

    return codegen


def _unary(emit: Emit, result: Callable[[str], str] = lambda x: x) -> Callable[..., Any]:
    """Make an operation on one panel; `result` maps the element type of the operand to that of the result."""

    def operation(_typing: Value, x: Value) -> Value:
        return PANELS[result(x.element)](x), _row_by_row(emit)

    return intrinsic(operation)  # type: ignore[no-any-return]


def _ternary(emit: Emit) -> Callable[..., Any]:
    def operation(_typing: Value, x: Value, y: Value, z: Value) -> Value:
        return z(x, y, z), _row_by_row(emit)

    return intrinsic(operation)  # type: ignore[no-any-return]


def _binary(emit: Emit, result: str = "") -> Callable[..., Any]:
    """Make an operation on two panels; its result is like the second unless it is named."""

    def operation(_typing: Value, x: Value, y: Value) -> Value:
        return (PANELS[result] if result else y)(x, y), _row_by_row(emit)

    return intrinsic(operation)  # type: ignore[no-any-return]


def _operator(symbol: Callable[..., Any], emit: Emit, result: str = "") -> None:
    """Teach the compiler an infix operator between two panels of the same element type.

    Panels of two types do not mix: a single would be widened somewhere without a word.
    """

    @templates.infer_global(symbol)
    class _Template(templates.AbstractTemplate):  # type: ignore[misc]
        def generic(self, args: Value, _kws: Value) -> Value:
            if len(args) == 2 and isinstance(args[0], PanelType) and args[0] == args[1]:
                return templates.signature(PANELS[result] if result else args[0], *args)
            return None

    lower_builtin(symbol, PanelType, PanelType)(_row_by_row(emit))


def _call(name: str) -> Emit:
    def emit(builder: Value, *vectors: Value) -> Value:
        kind = vectors[0].type
        # The name says the type, 32 lanes of doubles for one, and a module has one function of a name.
        full_name = f"llvm.{name}.v{LANES}f{8 * int(_element(vectors[0])[1])}"
        function_type = ir.FunctionType(kind, [kind] * len(vectors))
        return builder.call(cgutils.get_or_insert_function(builder.module, function_type, full_name), vectors)

    return emit


_operator(operator.add, lambda b, x, y: b.fadd(x, y) if _is_float(x) else b.add(x, y))
_operator(operator.sub, lambda b, x, y: b.fsub(x, y) if _is_float(x) else b.sub(x, y))
_operator(operator.mul, lambda b, x, y: b.fmul(x, y))
_operator(operator.and_, lambda b, x, y: b.and_(x, y))
_operator(operator.or_, lambda b, x, y: b.or_(x, y))
_operator(operator.xor, lambda b, x, y: b.xor(x, y))
_operator(operator.lt, lambda b, x, y: (b.fcmp_ordered if _is_float(x) else b.icmp_signed)("<", x, y), "mask")

fma = _ternary(_call("fma"))
absolute = _unary(_call("fabs"))
truncated = _unary(_call("trunc"))
select = _ternary(lambda b, mask, x, y: b.select(mask, x, y))
differs = _binary(
    lambda b, x, y: b.fcmp_ordered("!=", x, y) if _is_float(x) else b.icmp_signed("!=", x, y), "mask"
)
equal = _binary(
    lambda b, x, y: b.fcmp_ordered("==", x, y) if _is_float(x) else b.icmp_signed("==", x, y), "mask"
)
# Ordered, as every comparison here: a NaN is not "nonzero", so an infinite sum has no error to correct.
nonzero = _unary(lambda b, x: b.fcmp_ordered("!=", x, ir.Constant(x.type, None)), lambda _: "mask")
negative = _unary(lambda b, x: b.icmp_signed("<", x, ir.Constant(x.type, None)), lambda _: "mask")


def _all_clear(_typing: Value, x: Value, _bits: Value, _least: Value) -> Value:
    def codegen(_context: Value, builder: Value, _signature: Value, args: Value) -> Value:
        panel, near, size = args
        masks, sizes = [], []
        for row in unpack(builder, panel):
            mask = None
            for lane in range(0, LANES, _PART):
                part = lanes_of(builder, row, range(lane, lane + _PART))
                zero, wanted = ir.Constant(part.type, None), splat(builder, near, _PART)
                some = builder.icmp_unsigned("!=", builder.and_(part, wanted), zero)
                # Masks one after the other, as the processor tests under a mask without another operation.
                mask = some if mask is None else builder.and_(mask, some)
                sizes.append(builder.bitcast(part, ir.VectorType(ir.DoubleType(), _PART)))
            masks.append(mask)
        while len(sizes) > 1:
            sizes = [_smaller(builder, *pair) for pair in zip(sizes[::2], sizes[1::2], strict=True)]
        large = builder.fcmp_ordered(">=", sizes[0], splat(builder, size, _PART))
        for mask in masks:
            large = builder.and_(large, mask)
        whole = ir.IntType(_PART)
        return builder.icmp_unsigned("==", builder.bitcast(large, whole), ir.Constant(whole, -1))

    return types.boolean(x, types.int64, types.float64), codegen


def _smaller(builder: Value, x: Value, y: Value) -> Value:
    """Return the smaller magnitudes of two vectors of doubles; of a NaN and a number, either."""
    if not _RANGES:
        absolute = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(x.type, [x.type]), f"llvm.fabs.v{_PART}f64"
        )
        x, y = (builder.call(absolute, [one]) for one in (x, y))
        return builder.select(builder.fcmp_ordered("<", x, y), x, y)
    kind, number, mask = x.type, ir.IntType(32), ir.IntType(_PART)
    called = ir.FunctionType(kind, [kind, kind, number, kind, mask, number])
    smaller = cgutils.get_or_insert_function(builder.module, called, "llvm.x86.avx512.mask.range.pd.512")
    # Of both magnitudes the smaller, with sign +0; all lanes; rounding as it is.
    how, every, rounding = ir.Constant(number, 0b1010), ir.Constant(mask, -1), ir.Constant(number, 4)
    return builder.call(smaller, [x, y, how, x, every, rounding])


def lanes_of(builder: Value, vector: Value, lanes: range) -> Value:
    """Return some lanes of a vector."""
    chosen = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), chosen)


# (x, bits, least): whether each integer has some of the bits, and as a double a magnitude of `least` or more.
all_clear = intrinsic(_all_clear)


# --- conversions ------------------------------------------------------------------------------------------


def _to(element: str, how: str) -> Callable[..., Any]:
    return _unary(lambda b, x: getattr(b, how)(x, vector(element)), lambda _: element)


# Exact, so that code for singles and doubles can be written once.
def _widen(builder: Value, x: Value) -> Value:
    return x if _element(x) == "f8" else builder.fpext(x, vector("f8"))


def _cast_bits(builder: Value, x: Value) -> Value:
    return builder.bitcast(x, vector(_other(_element(x))))


def _other(element: str) -> str:
    return ("i" if element[0] == "f" else "f") + element[1]


to_half = _to("f2", "fptrunc")
to_single = _to("f4", "fptrunc")
half_to_single = _to("f4", "fpext")
widen = _unary(_widen, lambda _: "f8")
to_integer = _to("i4", "fptosi")
integer_to_double = _to("f8", "sitofp")
as_bits = _unary(_cast_bits, _other)  # floats as integers of the same bits
as_float = _unary(_cast_bits, _other)  # and back


def _nearest(builder: Value, x: Value) -> Value:
    bits = builder.bitcast(x, vector("i8"))
    last, half, below, kept = (
        splat(builder, ir.Constant(ir.IntType(64), number))
        for number in (1 << 29, 1 << 28, (1 << 28) - 1, -(1 << 29))
    )
    even = builder.icmp_unsigned("==", builder.and_(bits, last), ir.Constant(bits.type, None))
    return builder.bitcast(builder.and_(builder.add(bits, builder.select(even, below, half)), kept), x.type)


# Doubles to the nearest singles, ties to even, as doubles: of those in the range of normal singles.
nearest_single = _unary(_nearest)
as_ones = _binary(lambda b, mask, x: b.zext(mask, x.type))  # a mask as 0 and 1, integers like the second


# --- panels from and to scalars ---------------------------------------------------------------------------


def splat(builder: Value, scalar: Value, lanes: int = LANES) -> Value:
    """Return a vector with a scalar in every lane: a row, or a part of one."""
    undefined = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    return builder.shuffle_vector(first, undefined, zeros)


def _spread(_typing: Value, scalar: Value) -> Value:
    def codegen(_context: Value, builder: Value, _signature: Value, args: Value) -> Value:
        return pack(builder, [splat(builder, args[0])] * ROWS)

    return PANELS[SCALARS[scalar]](scalar), codegen


spread = intrinsic(_spread)  # a scalar in every place


def _any_lane(_typing: Value, mask: Value) -> Value:
    def codegen(_context: Value, builder: Value, _signature: Value, args: Value) -> Value:
        # A row's mask read as one integer: a single comparison at the end, not one for each lane.
        whole = ir.IntType(LANES)
        found = ir.Constant(whole, 0)
        for row in unpack(builder, args[0]):
            found = builder.or_(found, builder.bitcast(row, whole))
        return builder.icmp_unsigned("!=", found, ir.Constant(whole, 0))

    return types.boolean(mask), codegen


any_lane = intrinsic(_any_lane)  # mask -> bool


# --- the shape of the machine code --------------------------------------------------------------------------


def _out_of_line(_typing: Value) -> Value:
    def codegen(context: Value, builder: Value, _signature: Value, _args: Value) -> Value:
        # The function that is being built is the one that calls this.
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), codegen


# Called at the top of a rarely taken path, keeps its code and its registers out of the callers' loops.
out_of_line = intrinsic(_out_of_line)


_WORD: Final = control_word()
# Whether this processor's mode can be set.
CAN_CUT: Final = _WORD is not None


def _setter(choose: Callable[[ControlWord], int]) -> Callable[..., Any]:
    def operation(_typing: Value) -> Value:
        def codegen(context: Value, builder: Value, _signature: Value, _args: Value) -> Value:
            # Where the mode cannot be set, no kernel asks for it; then this compiles to nothing.
            if _WORD is not None:
                llvmlite.binding.initialize_native_asmparser()
                emit_write(builder, _WORD, ir.Constant(ir.IntType(64), choose(_WORD)))
            return context.get_dummy_value()

        return types.void(), codegen

    return intrinsic(operation)  # type: ignore[no-any-return]


def _has_rounded(_typing: Value) -> Value:
    def codegen(_context: Value, builder: Value, _signature: Value, _args: Value) -> Value:
        if _WORD is None or not _WORD.rounded:
            return ir.Constant(ir.IntType(1), 1)
        llvmlite.binding.initialize_native_asmparser()
        noted = builder.and_(emit_read(builder, _WORD), ir.Constant(ir.IntType(64), _WORD.rounded))
        return builder.icmp_unsigned("!=", noted, ir.Constant(noted.type, 0))

    return types.boolean(), codegen


round_toward_zero = _setter(lambda word: word.toward_zero)
round_to_nearest = _setter(lambda word: word.default)
# Whether any operation may have rounded since one of these two; True where the processor does not note it.
has_rounded = intrinsic(_has_rounded)
