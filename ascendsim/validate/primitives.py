"""Single instructions: what a micro-benchmark measured against the same instruction in the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendsim.cube.fixpipe import Fixpipe
from ascendsim.cube.mmad import Mmad
from ascendsim.cube.movers import CopyGmToL1, LoadL0A, LoadL0B
from ascendsim.cube.views import Submatrix, TapRows
from ascendsim.errors import DataError
from ascendsim.program.instruction import Instruction
from ascendsim.program.places import Gm, GmTensor
from ascendsim.validate.cells import number_of, whole_of
from ascendsim.validate.compare import Case
from ascendsim.validate.probe import PROBED, Move, Repeat, alone_cycles, slot, stream_cycles
from ascendsim.validate.products import Overrides, profile_of
from ascendsim.validate.rows import Row, Unusable
from ascendsim.validate.vector_kinds import vector_kind
from ascendsim.vector.instructions import CopyGmToUb, CopyUbToGm

if TYPE_CHECKING:
    from ascendsim.profile import Profile

GIB = 1 << 30
FRACTAL_BYTES = 512
HALF = GmTensor("x", (1 << 20,), "float16", 2)
# Rows of the copies that turn rows into fractals: told by their steps, which repeat every 128 x 32 bytes.
RELAYOUT_ROWS = 128


@dataclass(frozen=True)
class Bench:
    """An instruction under test; `stream` if the source measured a row of them, not one and its wait."""

    instruction: Instruction
    stream: bool
    core: str = "cube"
    group: str = ""


def measured_cycles(row: Row, mhz: int) -> float | None:
    """Return what the row measured for one instruction, in cycles of the chip's clock.

    Cycles per transfer if the source derived them, else bytes over the rate at the clock, else its cycles.

    Raises   DataError if what it tells is no positive number
    """
    if row.counters.get("cycles_per_transfer_derived") is not None:
        return number_of(row.counters, "cycles_per_transfer_derived")
    if row.counters.get("GiB_per_s"):
        return _bytes(row) / (number_of(row.counters, "GiB_per_s") * GIB) * mhz * 1e6
    return row.cycles


def _bytes(row: Row) -> int:
    if "bytes" in row.sizes:
        return whole_of(row.sizes, "bytes")
    if "repeat" not in row.sizes:
        raise DataError(f"its sizes are {dict(row.sizes)}; they must tell bytes or repeat")
    return whole_of(row.sizes, "repeat") * FRACTAL_BYTES


# A micro-benchmark's operands are constants: its scalar unit has nothing to reckon.
ISSUE = ("scalar.issue_cycles", 1)


def primitive_case(row: Row, variant: str, overrides: Overrides = ()) -> Case | Unusable:
    """Run the instruction of a micro-benchmark row and compare.

    Raises   DataError if a number that it needs is none
    """
    profile = profile_of(variant, (ISSUE, *overrides))
    measured = measured_cycles(row, profile.clock.cube_mhz)
    if measured is None:
        return Unusable(row.id, "gives neither cycles nor a rate")
    bench = _bench(row, variant, profile)
    if isinstance(bench, str):
        return Unusable(row.id, bench)
    run = stream_cycles if bench.stream else alone_cycles
    estimated = float(run(bench.instruction, profile, bench.core))
    return Case(row.id, "primitives", bench.group, variant, "cycles", measured, estimated, row.source)


def _bench(row: Row, variant: str, profile: Profile) -> Bench | str:
    """Return the instruction that a row measured, or why there is none."""
    kind, _, name = row.op.partition(" ")
    if kind == "MMAD":
        return _mmad(row, variant, profile)
    if kind == "VEC":
        instruction = Repeat(vector_kind(name), whole_of(row.sizes, "repeat"))
        if instruction.kind not in profile.vector.repeat_cycles:
            return f"no figure for vector instructions of the kind {instruction.kind} on {variant}"
        return Bench(instruction, True, "vector", "vector repeats")
    if kind == "MOV":
        return _move(name, _bytes(row), profile)
    if kind == "LOAD":
        return _load(name.removeprefix("repeat "), whole_of(row.sizes, "repeat"), profile)
    return f"no instruction here is a {row.op}"


def _mmad(row: Row, variant: str, profile: Profile) -> Bench | str:
    """Return the product; the table of the 910B3 times each alone, the others time them in a row."""
    if row.dtype not in profile.cube.rates:
        return f"operands of {row.dtype or 'no format'} are not multiplied on {variant}"
    m, k, n = (whole_of(row.sizes, size) for size in "MKN")
    a, b, c = slot("L0A"), slot("L0B"), slot("L0C")
    alone = variant == "910B3"
    group = "Mmad alone" if alone else "Mmad in a row"
    return Bench(Mmad(c, a, b, m, k, n, row.dtype, True), not alone, group=group)


def _move(name: str, size: int, profile: Profile) -> Bench | str:
    gm = Gm(PROBED, ())
    l1, ub, l0c = slot("L1"), slot("UB"), slot("L0C")
    square = Submatrix(0, size // 32, 0, 16, False, 2)
    relaid = Submatrix(0, 16, 0, size // 32, False, 2)
    # Half the bytes leave as 16-bit results; the table counts what is read of L0C.
    half = size // 2
    benches = {
        "GM_TO_L1": Bench(CopyGmToL1(l1, gm, size), False),
        "GM_TO_L1_TRANS": Bench(CopyGmToL1(l1, gm, size, rows=RELAYOUT_ROWS, relays=True), False),
        "GM_TO_UB": Bench(CopyGmToUb(ub, gm, size, ()), False, "vector"),
        "UB_TO_GM": Bench(CopyUbToGm(gm, ub, size), False, "vector"),
        "L0C_TO_GM": Bench(Fixpipe(gm, l0c, half, 16), True),
        "L0C_TO_GM_TRANS": Bench(Fixpipe(gm, l0c, half), True),
        "L1_TO_L0A": Bench(LoadL0A(slot("L0A"), l1, square), True),
        "L1_TO_L0B": Bench(LoadL0B(slot("L0B"), l1, relaid._replace(transposed=True)), True),
        "UB_TO_UB": Bench(Repeat("unary", -(-size // 256)), True, "vector"),
    }
    if name in benches and name.replace("_TO_", "_").removesuffix("_TRANS") in (*profile.paths, "UB_UB"):
        found = benches[name]
        return Bench(found.instruction, found.stream, found.core, name.replace("_TO_", "->"))
    path = name.replace("_TO_", "_")
    if path not in profile.paths:
        return f"{profile.variant} has no path {name.replace('_TO_', '->')} here"
    pipe = profile.paths[path].pipe
    core = "vector" if path.startswith("UB") and profile.core_structure == "split" else "cube"
    return Bench(Move(path, pipe, size), not path.startswith("GM"), core, name.replace("_TO_", "->"))


def _load(name: str, repeats: int, profile: Profile) -> Bench | str:
    """Return one plain load of so many fractals."""
    rows = TapRows(1, False, 0, 1, 16, 16 * repeats, 2)
    if name == "L1_TO_L0A":
        return Bench(LoadL0A(slot("L0A"), slot("L1"), rows), True, group="load repeats L1->L0A")
    if name == "L1_TO_L0B":
        return Bench(LoadL0B(slot("L0B"), slot("L1"), rows), True, group="load repeats L1->L0B")
    path = name.replace("_TO_", "_")
    if path not in profile.paths:
        return f"{profile.variant} has no path {name.replace('_TO_', '->')} here"
    move = Move(path, profile.paths[path].pipe, repeats * FRACTAL_BYTES)
    return Bench(move, True, group=f"load repeats {name.replace('_TO_', '->')}")


def is_primitive(row: Row) -> bool:
    """Tell whether a row is a micro-benchmark of one instruction."""
    return row.op.partition(" ")[0] in ("MMAD", "VEC", "MOV", "LOAD") and row.id.startswith("mskpp")
