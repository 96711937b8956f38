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
import numba.np.arrayobj
from llvmlite import ir

Value = Any  # a value or type of the compiler
Emit = Callable[..., Value]  # (builder, vectors...) -> vector

# The compiler's extension interface, of which some versions have types in part and others none.
types: Any = numba.types
config: Any = numba.config
cgutils: Any = numba.core.cgutils
models: Any = numba.extending.models
templates: Any = numba.core.typing.templates
intrinsic: Any = numba.extending.intrinsic
lower_builtin: Any = numba.core.imputils.lower_builtin
make_array: Any = numba.np.arrayobj.make_array


def _has(feature: str) -> bool:
    """Tell whether the compiler will compile for a processor with this feature."""
    if config.CPU_NAME is None and config.CPU_FEATURES is None:
        return bool(llvmlite.binding.get_host_cpu_features().get(feature, False))
    return f"+{feature}" in (config.CPU_FEATURES or "").split(",")


ROWS: Final = 4
# Fill the registers: 16 vectors of 8 doubles with AVX-512, otherwise 8 of 4 or 16 of 2.
LANES: Final = 32 if _has("avx512f") else 8
HALF_CONVERSIONS: Final = _has("f16c") or _has("avx512f")

_ELEMENTS: Final[dict[str, Value]] = {
    "f2": ir.HalfType(),
    "f4": ir.FloatType(),
    "f8": ir.DoubleType(),
    "i4": ir.IntType(32),
    "i8": ir.IntType(64),
    "mask": ir.IntType(1),
}
_SCALARS: Final = {types.float32: "f4", types.float64: "f8", types.int32: "i4", types.int64: "i8"}


class PanelType(types.Type):  # type: ignore[misc]
    """The compiler's name for a panel of one element type."""

    def __init__(self, element: str) -> None:
        self.element = element
        super().__init__(name=f"Panel({element})")


@numba.extending.register_model(PanelType)
class _PanelModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Value, panel: PanelType) -> None:
        super().__init__(manager, panel, ir.ArrayType(_vector(panel.element), ROWS))


_PANELS: Final = {element: PanelType(element) for element in _ELEMENTS}


def _vector(element: str) -> Value:
    return ir.VectorType(_ELEMENTS[element], LANES)


def _element(vector: Value) -> str:
    return next(name for name, value in _ELEMENTS.items() if value == vector.type.element)


def _is_float(vector: Value) -> bool:
    return _element(vector).startswith("f")


def _pack(builder: Value, rows: Iterable[Value]) -> Value:
    panel = None
    for index, row in enumerate(rows):
        if panel is None:
            panel = ir.Constant(ir.ArrayType(row.type, ROWS), ir.Undefined)
        panel = builder.insert_value(panel, row, index)
    return panel


def _unpack(builder: Value, panel: Value) -> list[Value]:
    return [builder.extract_value(panel, row) for row in range(ROWS)]


# --- operations on every element --------------------------------------------------------------------------


def _row_by_row(emit: Emit) -> Callable[..., Value]:
    def codegen(_context: Value, builder: Value, _signature: Value, panels: Value) -> Value:
        rows = zip(*(_unpack(builder, panel) for panel in panels), strict=True)
        return _pack(builder, (emit(builder, *vectors) for vectors in rows))

    return codegen


def _unary(emit: Emit, result: Callable[[str], str] = lambda x: x) -> Callable[..., Any]:
    """Make an operation on one panel; `result` maps the element type of the operand to that of the result."""

    def operation(_typing: Value, x: Value) -> Value:
        return _PANELS[result(x.element)](x), _row_by_row(emit)

    return intrinsic(operation)  # type: ignore[no-any-return]


def _ternary(emit: Emit) -> Callable[..., Any]:
    def operation(_typing: Value, x: Value, y: Value, z: Value) -> Value:
        return z(x, y, z), _row_by_row(emit)

    return intrinsic(operation)  # type: ignore[no-any-return]


def _binary(emit: Emit, result: str = "") -> Callable[..., Any]:
    """Make an operation on two panels; its result is like the second unless it is named."""

    def operation(_typing: Value, x: Value, y: Value) -> Value:
        return (_PANELS[result] if result else y)(x, y), _row_by_row(emit)

    return intrinsic(operation)  # type: ignore[no-any-return]


def _operator(symbol: Callable[..., Any], emit: Emit, result: str = "") -> None:
    """Teach the compiler an infix operator between two panels of the same element type."""

    @templates.infer_global(symbol)
    class _Template(templates.AbstractTemplate):  # type: ignore[misc]
        def generic(self, args: Value, _kws: Value) -> Value:
            if len(args) == 2 and isinstance(args[0], PanelType) and args[0] == args[1]:
                return templates.signature(_PANELS[result] if result else args[0], *args)
            return None

    lower_builtin(symbol, PanelType, PanelType)(_row_by_row(emit))


def _call(name: str) -> Emit:
    def emit(builder: Value, *vectors: Value) -> Value:
        kind = vectors[0].type
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
_operator(operator.lt, lambda b, x, y: b.fcmp_ordered("<", x, y), "mask")

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
nonzero = _unary(lambda b, x: b.fcmp_ordered("!=", x, ir.Constant(x.type, None)), lambda _: "mask")
negative = _unary(lambda b, x: b.icmp_signed("<", x, ir.Constant(x.type, None)), lambda _: "mask")


# --- conversions ------------------------------------------------------------------------------------------


def _to(element: str, how: str) -> Callable[..., Any]:
    return _unary(lambda b, x: getattr(b, how)(x, _vector(element)), lambda _: element)


def _widen(builder: Value, x: Value) -> Value:
    return x if _element(x) == "f8" else builder.fpext(x, _vector("f8"))


def _cast_bits(builder: Value, x: Value) -> Value:
    element = _element(x)
    return builder.bitcast(x, _vector(("i" if element[0] == "f" else "f") + element[1]))


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
as_ones = _binary(lambda b, mask, x: b.zext(mask, x.type))  # a mask as 0 and 1, integers like the second


# --- panels and scalars in memory ---------------------------------------------------------------------------
#
# Arrays are C-contiguous memory of one element type; a place in them is an offset in elements from the first,
# whatever their shape.


def _index(value: int) -> Value:
    return ir.Constant(ir.IntType(64), value)


def _pointer(context: Value, builder: Value, array_type: Value, array: Value, offset: Value) -> Value:
    return builder.gep(make_array(array_type)(context, builder, array).data, [offset])


def _vector_at(builder: Value, pointer: Value, vector: Value) -> Value:
    return builder.bitcast(pointer, vector.as_pointer())


def _load(builder: Value, pointer: Value, vector: Value) -> Value:
    return builder.load(_vector_at(builder, pointer, vector), align=4)


def _down(builder: Value, pointer: Value, stride: Value) -> list[Value]:
    pointers = [pointer]
    for _ in range(ROWS - 1):
        pointers.append(builder.gep(pointers[-1], [stride]))
    return pointers


def _splat(builder: Value, scalar: Value) -> Value:
    undefined = ir.Constant(ir.VectorType(scalar.type, LANES), ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, undefined, zeros)


def _reader(read: Callable[..., list[Value]], strided: bool) -> Callable[..., Any]:
    """Make an operation (array, offset) or (array, offset, stride) -> panel."""

    def describe(array: Value) -> Value:
        element = _SCALARS[array.dtype]

        def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
            pointer = _pointer(context, builder, sig.args[0], args[0], args[1])
            return _pack(builder, read(builder, pointer, _vector(element), *args[2:]))

        return _PANELS[element](array, *[types.intp] * (2 if strided else 1)), codegen

    if strided:
        return intrinsic(lambda _typing, array, _offset, _stride: describe(array))  # type: ignore[no-any-return]
    return intrinsic(lambda _typing, array, _offset: describe(array))  # type: ignore[no-any-return]


def _read_rows(builder: Value, pointer: Value, _vector: Value) -> list[Value]:
    return [_splat(builder, builder.load(builder.gep(pointer, [_index(row)]))) for row in range(ROWS)]


def _read_columns(builder: Value, pointer: Value, vector: Value) -> list[Value]:
    return [_load(builder, pointer, vector)] * ROWS


def _read_tile(builder: Value, pointer: Value, vector: Value, stride: Value) -> list[Value]:
    return [_load(builder, place, vector) for place in _down(builder, pointer, stride)]


rows = _reader(_read_rows, strided=False)  # ROWS consecutive elements, each in all lanes of its row
columns = _reader(_read_columns, strided=False)  # LANES consecutive elements, in every row
tile = _reader(_read_tile, strided=True)  # LANES consecutive elements per row, rows `stride` apart


def _store(_typing: Value, panel: Value, array: Value, _offset: Value, _stride: Value) -> Value:
    def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
        pointer = _pointer(context, builder, sig.args[1], args[1], args[2])
        for row, place in zip(_unpack(builder, args[0]), _down(builder, pointer, args[3]), strict=True):
            builder.store(row, _vector_at(builder, place, row.type), align=4)
        return context.get_dummy_value()

    return types.void(panel, array, types.intp, types.intp), codegen


def _at(_typing: Value, array: Value, _offset: Value) -> Value:
    def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
        return builder.load(_pointer(context, builder, sig.args[0], args[0], args[1]))

    return array.dtype(array, types.intp), codegen


def _put(_typing: Value, array: Value, _offset: Value, _value: Value) -> Value:
    def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
        builder.store(args[2], _pointer(context, builder, sig.args[0], args[0], args[1]))
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), codegen


store = intrinsic(_store)  # (panel, array, offset, stride)
at = intrinsic(_at)  # (array, offset) -> scalar
put = intrinsic(_put)  # (array, offset, scalar), converting to the array's element type


def _spread(_typing: Value, scalar: Value) -> Value:
    def codegen(_context: Value, builder: Value, _signature: Value, args: Value) -> Value:
        return _pack(builder, [_splat(builder, args[0])] * ROWS)

    return _PANELS[_SCALARS[scalar]](scalar), codegen


spread = intrinsic(_spread)  # a scalar in every place


def _any_lane(_typing: Value, mask: Value) -> Value:
    def codegen(_context: Value, builder: Value, _signature: Value, args: Value) -> Value:
        whole = ir.IntType(LANES)
        found = ir.Constant(whole, 0)
        for row in _unpack(builder, args[0]):
            found = builder.or_(found, builder.bitcast(row, whole))
        return builder.icmp_unsigned("!=", found, ir.Constant(whole, 0))

    return types.boolean(mask), codegen


any_lane = intrinsic(_any_lane)  # mask -> bool


# --- bits of scalars ----------------------------------------------------------------------------------------


def _scalar_cast(results: dict[Value, Value]) -> Callable[..., Any]:
    """Make an operation that reads the bits of one scalar type as another."""

    def operation(_typing: Value, scalar: Value) -> Value:
        def codegen(context: Value, builder: Value, sig: Value, args: Value) -> Value:
            return builder.bitcast(args[0], context.get_value_type(sig.return_type))

        return results[scalar](scalar), codegen

    return intrinsic(operation)  # type: ignore[no-any-return]


scalar_bits = _scalar_cast({types.float32: types.int32, types.float64: types.int64})
scalar_float = _scalar_cast({types.int32: types.float32, types.int64: types.float64})


# --- the shape of the machine code --------------------------------------------------------------------------


def _out_of_line(_typing: Value) -> Value:
    def codegen(context: Value, builder: Value, _signature: Value, _args: Value) -> Value:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), codegen


# Called at the top of a rarely taken path, keeps its code and its registers out of the callers' loops.
out_of_line = intrinsic(_out_of_line)
