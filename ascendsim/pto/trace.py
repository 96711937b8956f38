"""What a PTO function does on one block: arithmetic is worked out, loops are run, operations are listed.

Sizes, offsets and bounds of loops must follow from constants, from the number of the block and from what the
caller gives for arguments; so what is left is a list of operations on tiles and on parts of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from operator import add, eq, ge, gt, le, lt, mul, ne, sub
from typing import Any, Final, NamedTuple

from ascendsim.errors import ProgramError
from ascendsim.pto.text import MAKERS, Function, Place, Statement

# Who unrolls more has written a loop that does not end.
MOST_STEPS: Final = 1_000_000
FORMATS: Final = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
# Buffers by what the text calls them.
LOCATIONS: Final = {"vec": "UB", "ub": "UB", "mat": "L1", "left": "L0A", "right": "L0B", "acc": "L0C"} | {
    "bias": "BT"
}


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_INTEGERS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "addi": add,
    "subi": sub,
    "muli": mul,
    "divsi": _quotient,
    "divui": _quotient,
    "remsi": lambda a, b: a - b * _quotient(a, b),
    "remui": lambda a, b: a - b * _quotient(a, b),
}
_COMPARED: Final = {"eq": eq, "ne": ne, "slt": lt, "sle": le, "sgt": gt, "sge": ge, "ult": lt, "ule": le} | {
    "ugt": gt,
    "uge": ge,
}


class Pointer(NamedTuple):
    """An argument in global memory, and how many elements behind its begin."""

    name: str
    dtype: str
    offset: int = 0


class GmView(NamedTuple):
    """A pointer with extents and strides, in elements."""

    pointer: Pointer
    extents: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def end(self) -> int:
        """The element behind its last one."""
        last = sum((count - 1) * stride for count, stride in zip(self.extents, self.strides, strict=True))
        return self.pointer.offset + last + 1


class GmPart(NamedTuple):
    """Rows and columns of a tensor from element `offset` on, which lies in rows of `pitch` elements.

    turned   the tensor lies column by column: what lies end to end there is a column here
    """

    pointer: Pointer
    offset: int
    rows: int
    columns: int
    pitch: int
    turned: bool


class PtoTile(NamedTuple):
    """A tile: its buffer, where it stands there (a number, or the name of its value), rows and columns."""

    buffer: str
    where: int | str
    dtype: str
    rows: int
    columns: int
    size_bytes: int
    boxed: bool
    place: Place


class Performed(NamedTuple):
    """An operation with its operands."""

    statement: Statement
    reads: tuple[Any, ...]
    writes: tuple[Any, ...]
    section: str

    def refuse(self, what: str, do: str) -> Any:
        """Refuse it."""
        self.statement.place.refuse(f"{self.statement.word} {what}", do)


class Trace:
    """The operations of one block, in order, and the views of tensors that they use."""

    def __init__(self, function: Function, given: Mapping[str, float], block: int, blocks: int) -> None:
        self.done: list[Performed] = []
        self.views: list[tuple[GmView, Place]] = []
        self._block, self._blocks, self._section, self._steps = block, blocks, "", 0
        self._known: dict[str, Any] = {}
        for name, kind in function.arguments:
            if kind.name == "pto.ptr":
                self._known[name] = Pointer(name[1:], FORMATS.get(kind.element, kind.element))
            elif name[1:] in given:
                self._known[name] = given[name[1:]]
            else:
                raise ProgramError(
                    f"argument {name} of {function.name} is of {kind.name}, and nothing says its value; give "
                    f"arguments={{{name[1:]!r}: ...}}"
                )
        self._run(function.body)

    def _run(self, statements: tuple[Statement, ...]) -> None:
        for own in statements:
            self._step(own)
            word = own.word
            if word.startswith("arith."):
                self._known[own.result] = self._integer(own)
            elif word == "scf.for":
                first, last, step = (self._number(own, name) for name in own.args)
                if step < 1:
                    own.place.refuse(f"a loop has step {step}", "a step is 1 or more")
                for at in range(first, last, step):
                    self._step(own)
                    self._known[own.result] = at
                    self._run(own.body)
            elif word == "scf.if":
                self._run(own.body if self._number(own, own.args[0]) else own.orelse)
            elif own.body or word.startswith("pto.section"):
                outer, self._section = self._section, word.rpartition(".")[2]
                self._run(own.body)
                self._section = outer
            elif word.startswith("pto."):
                self._operation(own)

    def _step(self, own: Statement) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            own.place.refuse(f"step {MOST_STEPS + 1:,} is taken", "loops are unrolled: let them be shorter")

    def _value(self, own: Statement, name: str) -> Any:
        if name not in self._known:
            own.place.refuse(f"{own.word} uses {name}, which nothing makes", "define it before")
        return self._known[name]

    def _number(self, own: Statement, name: str) -> int:
        number = int(name) if name.isdecimal() else None
        value = self._value(own, name) if name.startswith("%") else number
        if not isinstance(value, int):
            own.place.refuse(f"{own.word} takes {name}, which is no whole number", "take an index")
        return value

    def _integer(self, own: Statement) -> Any:
        word = own.word.removeprefix("arith.")
        if word == "constant":
            text = own.args[0]
            if text in ("true", "false"):
                return int(text == "true")
            try:
                return float(text) if own.type.name in FORMATS else int(text, 0)
            except ValueError:
                kind = own.type.name or "no type"
                own.place.refuse(
                    f"a constant {text} of {kind} is not in the subset", "write 1 : index, or 1.0 : f32"
                )
        if word == "index_cast":
            return self._number(own, own.args[0])
        if len(own.args) != 2:
            own.place.refuse(f"{own.word} has {len(own.args)} operands", "it has two")
        a, b = (self._number(own, name) for name in own.args)
        if word == "cmpi":
            [of] = own.key("of")
            if of not in _COMPARED:
                own.place.refuse(
                    f"arith.cmpi {of} is not in the subset", f"it compares {', '.join(_COMPARED)}"
                )
            return int(_COMPARED[of](a, b))
        if b == 0 and word[:3] in ("div", "rem"):
            own.place.refuse(f"{own.word} divides by 0", "divide by another number")
        return _INTEGERS[word](a, b)

    def _operation(self, own: Statement) -> None:
        makers: tuple[Callable[[Statement], Any], ...] = self._view, self._part, self._moved, self._tile
        makers += (lambda _: self._block, lambda _: self._blocks)
        make = dict(zip(MAKERS, makers, strict=True)).get(own.word)
        if make is not None:
            for key, words in own.keys:
                if key not in MAKERS[own.word] or (key == "layout" and words[-1].lower() not in ("nd", "dn")):
                    own.place.refuse(f"{own.word} has {key}", "it is not in the subset")
            self._known[own.result] = make(own)
            return
        reads, writes = (tuple([self._value(own, name) for name in of]) for of in (own.args, own.outs))
        self.done.append(Performed(own, reads, writes, self._section))

    # ---- what makes values

    def _of(self, own: Statement, kind: type, count: int) -> list[Any]:
        """Return the operands of a statement, the first of a kind."""
        found = [self._value(own, name) for name in own.args]
        if len(found) != count or not isinstance(found[0], kind):
            names = {Pointer: "a pointer", GmView: "a tensor view"}
            own.place.refuse(
                f"{own.word} has operands {', '.join(own.args)}", f"it takes {names[kind]} first"
            )
        return found

    def _moved(self, own: Statement) -> Pointer:
        pointer = self._of(own, Pointer, 2)[0]
        moved: Pointer = pointer._replace(offset=pointer.offset + self._number(own, own.args[1]))
        return moved

    def _view(self, own: Statement) -> GmView:
        [pointer] = self._of(own, Pointer, 1)
        extents, strides = (
            tuple([self._number(own, name) for name in own.key(key)]) for key in ("shape", "strides")
        )
        if not extents or len(extents) != len(strides) or min(extents) < 1 or min(strides) < 1:
            own.place.refuse(
                f"a view has shape {extents} and strides {strides}", "say as many of both, from 1 on"
            )
        if pointer.dtype not in FORMATS.values():
            own.place.refuse(f"a view of {pointer.dtype} is made", f"formats are {', '.join(FORMATS)}")
        view = GmView(pointer, extents, strides)
        self.views.append((view, own.place))
        return view

    def _part(self, own: Statement) -> GmPart:
        [view] = self._of(own, GmView, 1)
        offsets, sizes = (
            tuple([self._number(own, name) for name in own.key(key)]) for key in ("offsets", "sizes")
        )
        inside = len(offsets) == len(sizes) == len(view.extents) and all(
            at >= 0 and size > 0 and at + size <= extent
            for at, size, extent in zip(offsets, sizes, view.extents, strict=True)
        )
        if not inside:
            own.place.refuse(
                f"a part begins at {offsets} with sizes {sizes}, of a view of {view.extents}",
                "let it lie inside",
            )
        if prod(sizes[:-2]) != 1:
            own.place.refuse(f"a part has sizes {sizes}", "all but the last two are 1 in the subset")
        begin = view.pointer.offset + sum(at * step for at, step in zip(offsets, view.strides, strict=True))
        rows, columns = (1, *sizes)[-2:]
        down, right = (view.extents[-1] * view.strides[-1], *view.strides)[-2:]
        turned = right != 1 and down == 1
        pitch = right if turned else down
        length = rows if turned else columns
        if 1 not in (down, right) or begin % pitch + length > pitch:
            own.place.refuse(
                f"a part of {rows} x {columns} has strides {down} and {right}",
                "in the subset rows, or columns, lie end to end and none goes on in the next",
            )
        return GmPart(view.pointer, begin, rows, columns, pitch, turned)

    def _tile(self, own: Statement) -> PtoTile:
        kind, place = own.type, own.place
        keys = dict(kind.keys)
        missing = [key for key in ("loc", "dtype") if key not in keys]
        missing += [key for key in ("rows", "cols") if not keys.get(key, "").isdecimal()]
        if kind.name != "pto.tile_buf" or missing:
            place.refuse(
                f"a tile of type {kind.name} says no {', '.join(missing)}", "write loc=, dtype=, rows=, cols="
            )
        if keys["loc"] not in LOCATIONS or keys["dtype"] not in FORMATS:
            place.refuse(
                f"a tile has loc={keys['loc']}, dtype={keys['dtype']}",
                f"loc is one of {', '.join(LOCATIONS)}, dtype of {', '.join(FORMATS)}",
            )
        rows, columns = int(keys["rows"]), int(keys["cols"])
        valid = []
        for key, behind, whole in (("v_row", "valid_row", rows), ("v_col", "valid_col", columns)):
            said = keys.get(key, str(whole))
            given = own.key(behind)
            if said == "?" and not given:
                place.refuse(f"a tile has {key}=?", f"say {behind} = ... behind alloc_tile")
            valid.append(self._number(own, given[0] if said == "?" else said))
        width = 4 if keys["dtype"] == "f32" else 2
        buffer = LOCATIONS[keys["loc"]]
        # What fills only a part of its rows has gaps between them, which no instruction here knows.
        whole_rows = valid[1] == columns and 0 < valid[0] <= rows
        # A column, as a row of numbers for rows, lies end to end.
        line = rows if columns == 1 and keys.get("blayout") == "col_major" else columns
        if not whole_rows or (buffer == "UB" and line * width % 32):
            place.refuse(
                f"a tile of {rows} x {columns} holds {valid[0]} x {valid[1]}",
                "in the subset rows are filled, in UB with whole blocks of 32 bytes",
            )
        address = own.key("addr")
        return PtoTile(
            buffer,
            self._number(own, address[0]) if address else own.result[1:],
            FORMATS[keys["dtype"]],
            valid[0],
            columns,
            rows * columns * width,
            keys.get("slayout", "none_box") != "none_box",
            place,
        )
