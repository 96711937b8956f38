"""Single instructions: what a micro-benchmark measured against the same instruction in the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendsim.cube.fixpipe import Fixpipe
from ascendsim.cube.mmad import Mmad
from ascendsim.cube.movers import CopyGmToL1, LoadL0A, LoadL0B
from ascendsim.cube.tile_reads import Submatrix, TapRows
from ascendsim.errors import UnsupportedError
from ascendsim.program.instruction import Instruction
from ascendsim.program.places import Gm
from ascendsim.validate.compare import Estimate
from ascendsim.validate.kinds.tight_loop import (
    PROBED,
    PathMove,
    VectorRepeats,
    alone_cycles,
    slot,
    stream_cycles,
)
from ascendsim.vector.instructions import CopyGmToUb, CopyUbToGm

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.validate.schema import Row

FRACTAL_BYTES = 512
VECTOR_BYTES = 256  # that one repeat takes
# Rows of the copies that turn rows into fractals: told by their steps, which repeat every 128 x 32 bytes.
RELAYOUT_ROWS = 128
# A micro-benchmark's operands are constants: its scalar unit has nothing to reckon.
ISSUE = ("scalar.issue_cycles", 1)


def instruction_cycles(row: Row, profile: Profile) -> Estimate:
    """Return the cycles of the instruction of a row: in a row of equal ones, or alone until it is over.

    Raises   UnsupportedError for an instruction that the product has not
    """
    instruction, core = _instruction(row, profile)
    run = stream_cycles if row.in_a_row else alone_cycles
    return Estimate(float(run(instruction, profile, core)))


def _instruction(row: Row, profile: Profile) -> tuple[Instruction, str]:
    """Return the instruction that a row measured, and the kind of core that runs it."""
    if row.kernel == "mmad":
        if row.compute_dtype not in profile.cube.rates:
            raise UnsupportedError(f"operands of {row.compute_dtype} are not multiplied on {profile.variant}")
        slots = slot("L0C"), slot("L0A"), slot("L0B")
        return Mmad(*slots, row.m, row.k, row.n, row.compute_dtype, True), "cube"
    if row.kernel == "vector":
        if row.vector_kind not in profile.vector.repeat_cycles:
            raise UnsupportedError(
                f"no figure for vector instructions of the kind {row.vector_kind} on {profile.variant}"
            )
        return VectorRepeats(row.vector_kind, row.repeats), "vector"
    if row.path not in (*profile.paths, "UB_UB"):
        raise UnsupportedError(f"{profile.variant} has no path {row.path.replace('_', '->')} here")
    if row.kernel == "load":
        rows = TapRows(1, False, 0, 1, 16, 16 * row.repeats, 2)
        loads = {
            "L1_L0A": LoadL0A(slot("L0A"), slot("L1"), rows),
            "L1_L0B": LoadL0B(slot("L0B"), slot("L1"), rows),
        }
        return loads.get(row.path) or _path_move(row.path, row.repeats * FRACTAL_BYTES, profile), "cube"
    split = profile.core_structure == "split"
    own = row.path in ("GM_UB", "UB_GM", "UB_UB") or (row.path.startswith("UB") and split)
    return _copies(row).get(row.path) or _path_move(row.path, row.bytes, profile), "vector" if own else "cube"


def _copies(row: Row) -> dict[str, Instruction]:
    """Return the copies of so many bytes that schedules issue, by path."""
    gm, size, relays = Gm(PROBED, ()), row.bytes, row.relayout
    l1, ub = slot("L1"), slot("UB")
    square = Submatrix(0, size // 32, 0, 16, False, 2)
    turned = Submatrix(0, 16, 0, size // 32, True, 2)
    rows = RELAYOUT_ROWS if relays else 1
    return {
        "GM_L1": CopyGmToL1(l1, gm, size, rows=rows, relays=relays),
        "GM_UB": CopyGmToUb(ub, gm, size, ()),
        "UB_GM": CopyUbToGm(gm, ub, size),
        # Half the bytes leave as 16-bit results; the table counts what is read of L0C. Without a relayout
        # they leave as fractals of 16 columns.
        "L0C_GM": Fixpipe(gm, slot("L0C"), size // 2, 0 if relays else 16),
        "L1_L0A": LoadL0A(slot("L0A"), l1, square),
        "L1_L0B": LoadL0B(slot("L0B"), l1, turned),
        "UB_UB": VectorRepeats("unary", -(-size // VECTOR_BYTES)),
    }


def _path_move(path: str, size: int, profile: Profile) -> PathMove:
    return PathMove(path, profile.paths[path].pipe, size)
