"""PTO programs as kernels: what each operation becomes, and `read_pto`, the door.

A program without flags (level 2) waits as its tiles ask for; one with flags (level 3) as these say, and no
more. A tile without an address gets a slot of its own; tiles of one address are one slot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import lcm
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ascendsim.errors import CapacityError, ProgramError, did_you_mean, shown, whole
from ascendsim.instructions.cube import Mmad, Submatrix
from ascendsim.instructions.elementwise import Binary, Cast, MulAdd, Unary
from ascendsim.instructions.fixpipe import CopyL0cToL1, CopyL1ToBt, Fixpipe
from ascendsim.instructions.flags import BarrierAll, PipeBarrier, SetFlag, WaitFlag
from ascendsim.instructions.movers import CopyGmToL1, LoadL0A, LoadL0B
from ascendsim.instructions.rowwise import ReduceRows, in_repeat
from ascendsim.instructions.vector import CopyGmToUb, CopyUbToGm
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.ops.lowering.formats import cube_overflow, vector_overflow
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase, require_cores, unknown_costs
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.program import Program, ProgramBuilder
from ascendsim.pto.text import SIGNALS, parse
from ascendsim.pto.trace import GmPart, Performed, PtoTile, Trace

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.instruction import Instruction

# Pipes of the classes of operations that events name.
_CLASSES: Final = {"TLOAD": "MTE2", "TMOV_M2L": "MTE1", "TMATMUL": "M", "TVEC": "V"} | {
    "TSTORE_VEC": "MTE3",
    "TSTORE_ACC": "FIX",
}
_PIPES: Final = ("MTE1", "MTE2", "MTE3", "M", "V", "FIX")
NOTE: Final = (
    "left at nothing, as nobody has published what they cost: waits of MTE2, MTE3 and V for one bank of UB; "
    "conflicts of banks inside V but of TADD, TSUB, TMUL, TMAX, TMIN on tiles with addresses on a 910B; "
    "requests of several cores for the same 512 bytes; a flag or a barrier takes one cycle"
)


def read_pto(
    text: str, profile: Profile, *, blocks: int = 1, arguments: Mapping[str, float] | None = None
) -> Kernel:
    """Return the kernel of a PTO program, which `run_kernel` runs and `measure_kernel` times.

    text       a `.pto` file: MLIR text with one function, of the subset in docs/from_ascendc.md
    blocks     cores that run it; each finds its number by `pto.get_block_idx`
    arguments  values of the function's arguments that are no pointers, by name
    Tensors    by the names of its pointers, (rows, columns) as their first view lies in memory, however large
               the views of all blocks are
    Raises     ProgramError with line and column for what is not in the subset, and for a program that cannot
               be; CapacityError for tiles that a buffer does not hold
    """
    most = max(profile.cores.cube, profile.cores.vector)
    if not isinstance(text, str) or (count := whole(blocks)) is None or not 1 <= count <= most:
        raise ProgramError(
            f"read_pto: text is a str and blocks a number from 1 to {most}, got {shown(blocks)}"
        )
    function = parse(text)
    numbers = [name[1:] for name, kind in function.arguments if kind.name != "pto.ptr"]
    named = isinstance(arguments or {}, Mapping) and all(isinstance(name, str) for name in arguments or ())
    if not named:
        raise ProgramError(f"arguments gives numbers by name, such as {{'n': 32}}, got {shown(arguments)}")
    for name in (arguments or {}).keys() - {*numbers}:
        function.place.refuse(
            f"arguments gives {name}, no number that {function.name} takes",
            did_you_mean(name, numbers) if numbers else "it takes none",
        )
    traces = [Trace(function, arguments or {}, block, count) for block in range(count)]
    everything = [done for trace in traces for done in trace.done]
    kind = _kind(everything)
    require_cores(function.name, [Core(kind, block) for block in range(count)], profile)
    tensors = _SeenTensors(traces)
    products = [made for made in everything if made.statement.word.lower().startswith("pto.tmatmul")]
    math, dtype = MathSettings(AccumulationModel("exact"), overflow=vector_overflow(profile, "float16")), ""
    builders = [_Block(profile, tensors, trace) for trace in traces]
    if not any(_stores(done) for done in everything):
        function.place.refuse(f"{function.name} has no result: nothing goes to GM", "add a pto.tstore")
    if products:
        dtype = _only([(made, made.reads[-1 - _biased(made)].dtype) for made in products], "multiplies")
        model = AccumulationModel.parse(profile.accumulation[dtype])
        # Sums are float32: to let them out so converts nothing, and takes any rule.
        formats = [(done, _format_out(done)) for done in everything]
        narrowed = [(done, dtype) for done, dtype in formats if dtype not in ("", "float32")]
        rules = [(done, cube_overflow(profile, dtype)) for done, dtype in narrowed]
        rule = _only(rules, "stores what overflows")
        math = MathSettings(model, overflow=rule or cube_overflow(profile, "float32"))
    works = [
        CoreWork(Core(kind, block), block, partial(_same, built.program))
        for block, built in enumerate(builders)
    ]
    macs = sum(
        made.m * made.k * made.n for built in builders for made in built.made if isinstance(made, Mmad)
    )
    shown_as = dict(tensors.shown)
    kernel = Kernel(function.name, (Phase("all", works),), shown_as, math, macs, dtype, NOTE)
    return replace(kernel, note="; ".join(filter(None, (NOTE, unknown_costs(kernel, profile)))))


def _same(program: Program) -> Program:
    return program


def _biased(done: Performed) -> bool:
    return done.statement.word.lower().endswith("bias")


def _only(found: Sequence[tuple[Performed, str]], does: str) -> str:
    """Return the format of all operations, and refuse the first of another; "" without operations."""
    [known, *_] = [own for _, own in found] or [""]
    for done, own in found:
        if own != known:
            done.refuse(f"{does} as {own}, one before it as {known}", "take one of them a file")
    return known


def _stores(done: Performed) -> bool:
    return bool(done.writes) and isinstance(done.writes[0], GmPart)


def _format_out(done: Performed) -> str:
    """Return the format in which an operation stores, or takes sums from L0C to L1; "" for another."""
    if _stores(done):
        return str(done.writes[0].pointer.dtype)
    ways = [_place_of(own) for own in (*done.reads[:1], *done.writes[:1])]
    return str(done.writes[0].dtype) if ways == ["L0C", "L1"] else ""


def _kind(done: Sequence[Performed]) -> str:
    """Return the kind of core: that of the sections, or of the tiles where there are none."""
    kinds: dict[str, Performed] = {}
    for own in done:
        buffers = {tile.buffer for tile in (*own.reads, *own.writes) if isinstance(tile, PtoTile)}
        found = own.section or ("vector" if "UB" in buffers else "cube" if buffers else "")
        kinds.setdefault(found, own)
    kinds.pop("", None)
    if len(kinds) > 1:
        [*kinds.values()][1].refuse(
            "runs on another kind of core than what stands before", "take one kind a file"
        )
    return next(iter(kinds), "vector")


class _SeenTensors:
    """The tensors of all blocks, by the names of pointers."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        views = [own for trace in traces for own in trace.views]
        moved = [done for trace in traces for done in trace.done]
        ends: dict[str, int] = {}
        for view, _ in views:
            ends[view.pointer.name] = max(view.end, ends.get(view.pointer.name, 0))
        parts = [(part, _stores(done)) for done in moved for part in _parts(done)]
        self.shown: dict[str, GmTensor] = {}
        self._seen: dict[tuple[str, int], GmTensor] = {}
        for name, end in ends.items():
            own = [(part, stored) for part, stored in parts if part.pointer.name == name]
            pitches = dict.fromkeys(part.pitch for part, _ in own)
            # Whole rows of each pitch, so that all views see one tensor.
            step = lcm(*pitches)
            size, role = -(-end // step) * step, "output" if any(stored for _, stored in own) else "input"
            for pitch in pitches:
                tensor = GmTensor.of(name, (size // pitch, pitch), own[0][0].pointer.dtype, role)
                self._seen[name, pitch] = tensor
                self.shown.setdefault(name, tensor)

    def gm(self, part: GmPart) -> Gm:
        """Return the slice of a part, as it lies."""
        first, begin = divmod(part.offset, part.pitch)
        rows, columns = (part.columns, part.rows) if part.turned else (part.rows, part.columns)
        index = slice(first, first + rows), slice(begin, begin + columns)
        return Gm(self._seen[part.pointer.name, part.pitch], index)


def _parts(done: Performed) -> list[GmPart]:
    return [part for part in (*done.reads, *done.writes) if isinstance(part, GmPart)]


class _Block:
    """The program of one block, made operation by operation."""

    def __init__(self, profile: Profile, tensors: _SeenTensors, trace: Trace) -> None:
        self._builder, self._tensors, self._profile = ProgramBuilder(profile), tensors, profile
        self._slots = self._reserved(trace)
        self._turned: dict[Slot, bool] = {}
        self.made: list[Instruction] = []
        lines: list[int] = []
        for done in trace.done:
            made = self._made(done)
            try:
                self._builder.add(made)
            except ProgramError as error:
                what, _, do = re.sub(r"^instruction \d+ \(\w+\) ", "", str(error)).partition("; ")
                done.refuse(what, do or "load it, or compute it, before")
            self.made.append(made)
            lines.append(done.statement.place.line)
        try:
            self.program = self._builder.build()
        except ProgramError as error:
            said = re.sub(r"instruction (\d+)", lambda at: f"{at[0]} (line {lines[int(at[1])]})", str(error))
            raise ProgramError(said) from error

    def _reserved(self, trace: Trace) -> dict[tuple[str, int | str], Slot]:
        """Reserve a slot for each tile, as large as the largest tile of its address."""
        tiles: dict[tuple[str, int | str], PtoTile] = {}
        for done in trace.done:
            for tile in (*done.reads, *done.writes):
                if isinstance(tile, PtoTile):
                    key = tile.buffer, tile.where
                    if key not in tiles or tile.size_bytes > tiles[key].size_bytes:
                        tiles[key] = tile
        slots = {}
        for key, tile in tiles.items():
            try:
                if isinstance(tile.where, int):
                    name = f"{tile.where:#x}"
                    slots[key] = self._builder.slot_at(tile.buffer, tile.where, tile.size_bytes, name)
                else:
                    [slots[key]] = self._builder.slots(tile.buffer, tile.size_bytes, tile.where)
            except CapacityError as error:
                raise CapacityError(f"line {tile.place.line}: {error}", error.buffer) from error
            except ProgramError as error:
                tile.place.refuse(str(error), "give tiles that live at one time bytes of their own")
        return slots

    def slot(self, tile: PtoTile) -> Slot:
        """Return the slot of a tile."""
        return self._slots[tile.buffer, tile.where]

    def _made(self, done: Performed) -> Instruction:
        word = done.statement.word.lower().removeprefix("pto.").replace(".", "_")
        if word in _SIGNALS:
            return _signal(word, done)
        if word not in OPERATIONS:
            done.refuse("is not in the subset", f"it has {', '.join(OPERATIONS)}, {', '.join(_SIGNALS)}")
        known = OPERATIONS[word]
        if done.statement.keys and word != "tcvt":
            names = ", ".join(key for key, _ in done.statement.keys)
            done.refuse(f"has {names}", "no attribute of it is in the subset")
        for operands, due, which in (
            (done.reads, known.reads, "reads"),
            (done.writes, known.writes, "writes"),
        ):
            got = [_place_of(own) for own in operands]
            if not any(got == case.split() for case in due.split(" or ")):
                done.refuse(f"{which} {' '.join(got) or 'nothing'}", f"in the subset it {which} {due}")
        made: Instruction = known.make(self, done)
        return made

    # ---- moves

    def load(self, done: Performed) -> Instruction:
        """GM to UB, or to L1, where rows, or columns, become fractals."""
        [part], [tile] = done.reads, done.writes
        _require_same(done, (part.rows, part.columns, part.pointer.dtype), tile)
        gm, slot = self._tensors.gm(part), self.slot(tile)
        if tile.buffer == "UB":
            if part.turned:
                done.refuse("brings columns into UB", "in the subset rows go to UB")
            return CopyGmToUb.of(slot, gm)
        if tile.buffer != "L1" or not (tile.boxed or tile.rows == 1):
            done.refuse(
                f"brings a part to {_place_of(tile)}",
                "a tile with loc=mat has slayout=row_major or col_major, or one row",
            )
        self._turned[slot] = part.turned
        line, size = self._profile.l2.line_bytes, gm.tensor.itemsize
        aligned = part.pitch * size % line == 0 and part.offset % part.pitch * size % line == 0
        return CopyGmToL1(slot, gm, gm.size_bytes, gm.shape, rows=gm.shape[0], aligned=aligned, relays=True)

    def store(self, done: Performed) -> Instruction:
        """UB or L0C to GM."""
        [tile], [part] = done.reads, done.writes
        dtype = tile.dtype if tile.buffer == "UB" else part.pointer.dtype
        _require_same(done, (part.rows, part.columns, part.pointer.dtype), tile._replace(dtype=dtype))
        if part.turned:
            done.refuse("writes columns", "in the subset rows are written")
        gm = self._tensors.gm(part)
        if tile.buffer == "UB":
            return CopyUbToGm.of(gm, self.slot(tile))
        return Fixpipe(gm, self.slot(tile), gm.size_bytes)

    def move(self, done: Performed) -> Instruction:
        """Move a whole tile: L1 to L0A, L0B or the bias table, or L0C to L1 for another product."""
        tile, target = done.reads[0], done.writes[0]
        if (tile.buffer == "L0C") != (target.buffer == "L1"):
            done.refuse(f"moves {tile.buffer} to {target.buffer}", "L0C goes to L1, and L1 to the others")
        if tile.buffer != "L0C" and target.buffer != "BT":
            return self.feed(done)
        dtype = "float32" if target.buffer == "BT" else target.dtype
        _require_same(done, (tile.rows, tile.columns, dtype), target)
        source, slot, count = self.slot(tile), self.slot(target), tile.rows * tile.columns
        if target.buffer == "BT":
            return CopyL1ToBt(slot, source, count)
        self._turned[slot] = False
        return CopyL0cToL1(slot, source, count, dtype)

    def feed(self, done: Performed) -> Instruction:
        """L1 to L0A or L0B: a whole tile, or a window of it."""
        tile, *begin = done.reads
        [target] = done.writes
        first, left = begin or (0, 0)
        if (
            first + target.rows > tile.rows
            or left + target.columns > tile.columns
            or target.dtype != tile.dtype
        ):
            done.refuse(
                f"takes {target.rows} x {target.columns} of {target.dtype} from {first}, {left} of a tile of "
                f"{tile.rows} x {tile.columns} of {tile.dtype}",
                "let the window lie inside, in one format",
            )
        if not begin and (tile.rows, tile.columns) != (target.rows, target.columns):
            done.refuse("moves a tile into one of another shape", "take pto.textract for a window")
        source = self.slot(tile)
        part = Submatrix(
            first,
            target.rows,
            left,
            target.columns,
            self._turned.get(source, False),
            4 if tile.dtype == "float32" else 2,
        )
        return (LoadL0A if target.buffer == "L0A" else LoadL0B)(self.slot(target), source, part)

    # ---- products and elements

    def product(self, done: Performed) -> Instruction:
        """Add a product to an accumulator, or begin it, with a bias or none."""
        biased = _biased(done)
        *before, left, right = done.reads[:-1] if biased else done.reads
        [target] = done.writes
        if before and self.slot(before[0]) is not self.slot(target):
            done.refuse("adds to one tile and writes another", "let both be one tile")
        shape = left.rows, left.columns, right.columns
        if (right.rows, target.rows, target.columns) != (left.columns, left.rows, right.columns):
            done.refuse(
                f"multiplies {shape[:2]} by {(right.rows, right.columns)}", "let shapes fit each other"
            )
        if (
            left.dtype != right.dtype
            or target.dtype != "float32"
            or left.dtype not in self._profile.cube.rates
        ):
            done.refuse(f"multiplies {left.dtype} by {right.dtype} into {target.dtype}", "sums are f32")
        made = Mmad(self.slot(target), self.slot(left), self.slot(right), *shape, left.dtype, not before)
        return made._replace(bias=self.slot(done.reads[-1])) if biased else made

    def combine(self, done: Performed, does: str) -> Instruction:
        """Two tiles of UB, element by element."""
        [target] = done.writes
        for tile in done.reads:
            _require_same(done, (tile.rows, tile.columns, tile.dtype), target)
        a, b = (self.slot(tile) for tile in done.reads)
        return Binary(self.slot(target), a, b, does, target.rows * target.columns, target.dtype)

    def change(self, done: Performed, does: str) -> Instruction:
        """Change a tile of UB, with a number beside it or none."""
        tile, *number = done.reads
        [target] = done.writes
        _require_same(done, (tile.rows, tile.columns, tile.dtype), target)
        count = target.rows * target.columns
        return Unary(self.slot(target), self.slot(tile), does, count, target.dtype, *map(float, number))

    def add_product(self, done: Performed) -> Instruction:
        """Add a tile of UB times a number to another."""
        (tile, number), [target] = done.reads, done.writes
        _require_same(done, (tile.rows, tile.columns, tile.dtype), target)
        count = target.rows * target.columns
        return MulAdd(self.slot(target), self.slot(tile), None, count, target.dtype, float(number))

    def reduce(self, done: Performed, does: str) -> Instruction:
        """Reduce each row of a tile of UB to a number, in a scratch tile where a row is wide."""
        (tile, scratch), [target] = done.reads, done.writes
        _require_same(done, (tile.rows, 1, tile.dtype), target)
        wide = self.slot(scratch) if tile.columns > in_repeat(tile.dtype) else None
        shape = tile.rows, tile.columns
        return ReduceRows(self.slot(target), self.slot(tile), wide, does, *shape, tile.dtype)

    def convert(self, done: Performed) -> Instruction:
        """Convert a tile of UB to another format."""
        [tile], [target] = done.reads, done.writes
        if any(not words[-1].endswith("RINT") for _, words in done.statement.keys):
            done.refuse(f"rounds by {done.statement.keys[0][1]}", "in the subset it rounds by CAST_RINT")
        _require_same(done, (tile.rows, tile.columns, target.dtype), target)
        of_each = 4 if tile.dtype == "float32" else 2
        return Cast(self.slot(target), self.slot(tile), target.dtype, target.rows * target.columns, of_each)


def _place_of(own: Any) -> str:
    """Return the kind of an operand: "GM", the buffer of a tile, or "number"."""
    if isinstance(own, PtoTile):
        return own.buffer
    return (
        "GM" if isinstance(own, GmPart) else "number" if isinstance(own, int | float) else type(own).__name__
    )


def _require_same(done: Performed, have: tuple[int, int, str], tile: PtoTile) -> None:
    due = tile.rows, tile.columns, tile.dtype
    if have != due:
        done.refuse(
            f"has {have[0]} x {have[1]} of {have[2]} on one side, {due[0]} x {due[1]} of {due[2]} on the "
            "other",
            "let both be alike",
        )


class Operation(NamedTuple):
    """A row of the subset: what an operation reads and writes, and what it becomes here."""

    reads: str
    writes: str
    ours: str
    make: Callable[[_Block, Performed], Instruction]


def _elements(names: str, reads: str, ours: str, make: Callable[..., Instruction]) -> dict[str, Operation]:
    return {
        f"t{name.lower()}": Operation(reads, "UB", ours, partial(make, does=name)) for name in names.split()
    }


_WINDOW = "L1 number number"
OPERATIONS: Final[Mapping[str, Operation]] = {
    "tload": Operation("GM", "UB or L1", "CopyGmToUb, CopyGmToL1", _Block.load),
    "tstore": Operation("UB or L0C", "GM", "CopyUbToGm, Fixpipe", _Block.store),
    "tmov": Operation(
        "L1 or L0C", "L0A or L0B or BT or L1", "LoadL0A, LoadL0B, CopyL1ToBt, CopyL0cToL1", _Block.move
    ),
    "textract": Operation(_WINDOW, "L0A or L0B", "LoadL0A, LoadL0B", _Block.feed),
    "tmatmul": Operation("L0A L0B", "L0C", "Mmad", _Block.product),
    "tmatmul_acc": Operation("L0C L0A L0B", "L0C", "Mmad", _Block.product),
    "tmatmul_bias": Operation("L0A L0B BT", "L0C", "Mmad", _Block.product),
    **_elements("Add Sub Mul Div Max Min", "UB UB", "Binary", _Block.combine),
    **_elements("Adds Muls Maxs Mins", "UB number", "Unary", _Block.change),
    **_elements("Exp Sqrt Rsqrt Abs Relu", "UB", "Unary", _Block.change),
    "tlog": Operation("UB", "UB", "Unary", partial(_Block.change, does="Ln")),
    "taxpy": Operation("UB number", "UB", "MulAdd", _Block.add_product),
    **{
        f"trow{name.lower()}": Operation("UB UB", "UB", "ReduceRows", partial(_Block.reduce, does=name))
        for name in ("Sum", "Max", "Min")
    },
    "tcvt": Operation("UB", "UB", "Cast", _Block.convert),
}
_SIGNALS: Final = (*[word.removeprefix("pto.") for word in SIGNALS], "barrier")


def _signal(word: str, done: Performed) -> Instruction:
    """Return a flag or a barrier."""
    named = done.statement.key("of")
    of = [name.rpartition("PIPE_")[2] for name in named]
    if word.endswith("event"):
        of = [_CLASSES.get(name, name) for name in of]
    if word == "barrier" and of == ["ALL"]:
        return BarrierAll("V" if done.section == "vector" else "MTE2")
    events = [re.sub(r"^EVENT_ID(\d+)$", r"\1", name) for name in of if name not in _PIPES]
    events += [str(number) for number in done.reads if isinstance(number, int)]
    pipes = [name for name in of if name in _PIPES]
    due = (1, 0) if word == "barrier" else (2, 1)
    if (len(pipes), len(events)) != due or not all(map(str.isdecimal, events)):
        done.refuse(
            f"names {', '.join((*named, *map(str, done.reads)))}",
            f"pipes are PIPE_ and {', '.join(_PIPES)}, events EVENT_ID and a number, or with _dyn a value",
        )
    if word == "barrier":
        return PipeBarrier(pipes[0])
    return (WaitFlag if word.startswith("wait") else SetFlag)(pipes[0], pipes[1], int(events[0]))


def subset() -> list[tuple[str, str, str]]:
    """Return the table of the subset: operations, what they read and write, what they become."""
    rows: dict[tuple[str, str], list[str]] = {}
    for word, known in OPERATIONS.items():
        rows.setdefault((f"{known.reads} -> {known.writes}", known.ours), []).append(word.upper())
    return [(", ".join(words), moved, ours) for (moved, ours), words in rows.items()]
