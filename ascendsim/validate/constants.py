"""The constants that were fitted on measurements, and the rows they were fitted on.

Each comes with the value that the model has without it: the one of its mechanism where nothing is known, such
as no latency, no least time, the documented rate. A row whose id begins with one of the prefixes is a
calibration row; all others, and those of the same tables that are not at hand here, judge the model.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Constant(NamedTuple):
    """A fitted figure: its path, the value it takes when it is left out, and the rows it was fitted on."""

    path: str
    without: Any
    rows: tuple[str, ...]


_GM_L1 = ("mskpp-GM_TO_L1-910b", "mskpp-GM_TO_L1_TRANS-910b")
_VECTOR = ("mskpp-vec-",)
_TRAINING = ("hpm-bert", "hpm-vit")
_SAMPLE = ("ad-mm8192-case0-a2", "ad-mm8192-case1-a2", "ad-mm8192-case6-a2")

CONSTANTS: dict[str, tuple[Constant, ...]] = {
    "910B": (
        Constant("cube.mmad_head_cycles", 0, ("mskpp-mmad-910b1",)),
        Constant("cube.mmad_latency_cycles", 0, ("mskpp-mmad-910b3",)),
        Constant("paths.L1_L0A.head_cycles", 0, ("mskpp-L1_TO_L0A-910b1",)),
        Constant("paths.L1_L0B.head_cycles", 0, ("mskpp-L1_TO_L0B-910b1",)),
        Constant("load2d.head_cycles", 0, ("mskpp-rep-L1_TO_L0",)),
        Constant("load2d.least_cycles", 0, ("mskpp-rep-L1_TO_L0",)),
        Constant("paths.GM_L1.bytes_per_cycle", 110, _GM_L1),
        Constant("paths.GM_L1.latency_cycles", 95, _GM_L1),
        Constant("paths.GM_L1.spread_cycles", 1, _GM_L1),
        Constant("paths.GM_L1.row_cycles", 0.01, ("mskpp-GM_TO_L1_TRANS-910b",)),
        Constant("paths.GM_L1.request_bytes", 32, (*_GM_L1, *_SAMPLE)),
        Constant("paths.GM_UB.latency_cycles", 0, ("mskpp-GM_TO_UB-910b3",)),
        Constant("paths.GM_UB.least_cycles", 1, ("ad-dc-ub-a-a2",)),
        Constant("paths.UB_GM.latency_cycles", 0, ("mskpp-UB_TO_GM-910b1",)),
        Constant("paths.UB_GM.drain_bytes_per_cycle", 101, ("mskpp-UB_TO_GM-910b1",)),
        Constant("paths.L0C_GM.bytes_per_cycle", 128, ("mskpp-L0C_TO_GM",)),
        Constant("fixpipe.read_bytes_per_cycle", 256, ("mskpp-L0C_TO_GM",)),
        Constant("paths.L0C_GM.latency_cycles", 0, ("cz-r2", "cz-r4")),
        Constant("paths.L0C_GM.least_cycles", 1, ("mskpp-L0C_TO_GM-910b1",)),
        Constant("fixpipe.matrix_least_cycles", 1, ("mskpp-L0C_TO_GM_TRANS",)),
        Constant("paths.GM_L0A.latency_cycles", 0, ("mskpp-GM_TO_L0A-910b3",)),
        Constant("paths.GM_L0B.latency_cycles", 0, ("mskpp-GM_TO_L0B-910b3",)),
        Constant("vector.least_cycles", 0, _VECTOR),
        Constant("vector.repeat_cycles.binary", 1, _VECTOR),
        Constant("vector.repeat_cycles.reduce_add_16bit", 1, _VECTOR),
        Constant("l1_write_bytes_per_cycle", 10**6, ("cz-r4", "ad-mm8192-case6-a2")),
        Constant("links.l2_read.shared_efficiency", 1.0, ("pto-gemm", "ad-mm8192-case6-a2", "msi-llm")),
    ),
    "910_93": (
        Constant("paths.UB_GM.latency_cycles", 0, ("kir-a3-ubgm",)),
        Constant("paths.GM_UB.latency_cycles", 0, ("kir-a3-gmub",)),
    ),
    "910_95": (
        Constant("links.l2_read.vector_tb_per_s", 4.47, ("kir-950dt-ws-read", "kir-950dt-GM_UB-4")),
        Constant("links.memory.per_vector_core_bytes_per_cycle", 98, ("kir-950dt-GM_UB-1024",)),
        Constant("paths.GM_UB.least_cycles", 1, ("ad-dc-ub-a-950",)),
        Constant("links.memory.latency_cycles", 0, ("ad-mm8192-case0-950", "ad-mm8192-case1-950")),
    ),
    "310P": (),
    "910": (
        Constant("links.memory.per_core_bytes_per_cycle", 110, _TRAINING),
        Constant("links.memory.efficiency", 1.0, ("hpm-bert_512_32-BatchMatMul",)),
        Constant("scalar.start_us", 0.001, _TRAINING),
    ),
}


def role_of(row_id: str) -> str:
    """Return "calibration" for a row that a constant was fitted on, "validation" for every other."""
    prefixes = tuple(
        prefix for constants in CONSTANTS.values() for constant in constants for prefix in constant.rows
    )
    return "calibration" if row_id.startswith(prefixes) else "validation"
