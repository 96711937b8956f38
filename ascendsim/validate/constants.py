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
_TRANSPOSED = ("mskpp-GM_TO_L1_TRANS-910b",)
_TRAINING = ("hpm-bert", "hpm-vit")
_SAMPLE = ("ad-mm8192-case0-a2", "ad-mm8192-case1-a2", "ad-mm8192-case6-a2")
_STREAMS_A2 = ("ad-dc-l1-64x256-a2", "ad-dc-l2x4-l1-a2", "ad-dc-ub-b-a2", "ad-dc-l2x4-ub-a2")
_FITS_L2 = ("kir-950dt-ws-read-8", "kir-950dt-ws-read-64", "kir-950dt-ws-read-96", "kir-950dt-GM_UB-4")


def _vector(kind: str, *names: str, table: str = "repeat_cycles", without: int = 1) -> Constant:
    """Return a figure of a kind of vector instruction, read from the rows of its instructions."""
    return Constant(f"vector.{table}.{kind}", without, tuple(f"mskpp-vec-{name}" for name in names))


_VECTOR = (
    Constant("vector.least_cycles", 0, ("mskpp-vec-",)),
    _vector("binary", "VADD_", "VSUB_", "VMUL_", "VMAX_", "VMIN_"),
    _vector("multiply_add", "VMLA_FP16_FP16_FP16", "VMLA_FP32", "VMADD"),
    _vector("multiply_add_widening", "VMLA_FP16_FP16_FP32"),
    _vector("divide", "VDIV_FP32"),
    _vector("divide_16bit", "VDIV_FP16"),
    _vector("exp", "VEXP_FP16", "VLN_FP16", "VSQRT_FP16"),
    _vector("exp_32bit", "VEXP_FP32", "VLN_FP32", "VSQRT_FP32"),
    _vector("reduce_add_16bit", "VCADD_FP16"),
    _vector("reduce_add_32bit", "VCADD_FP32"),
    _vector("reduce_extreme", "VCMAX", "VCMIN"),
    _vector("reduce_group_16bit", "VCGADD_FP16", "VCGMAX_FP16", "VCGMIN_FP16"),
    _vector("compare_to_mask", "VCMPV_"),
    _vector("sort", "VMRGSORT"),
    _vector("gather_16bit", "VGATHER_UINT16"),
    _vector("gather_32bit", "VGATHER_UINT32"),
    _vector("gather_block", "VGATHERB"),
    _vector("filter", "VREDUCEV2"),
    _vector("dequantise", "VCONVVDEQ"),
    _vector("divide_16bit", "VDIV_FP16", table="kind_head_cycles"),
    _vector("sort", "VMRGSORT", table="kind_head_cycles"),
    _vector("gather_16bit", "VGATHER_UINT16", table="kind_head_cycles"),
    _vector("gather_32bit", "VGATHER_UINT32", table="kind_head_cycles"),
    _vector("gather_block", "VGATHERB", table="kind_head_cycles"),
    _vector("shift", "VSHL", "VSHR", table="kind_least_cycles"),
    _vector("scalar_integer", "VADDS_INT", "VMAXS_INT", "VMINS_INT", table="kind_least_cycles"),
    _vector("compare_to_mask", "VCMPV_", table="kind_least_cycles"),
    _vector("compare_scalar_to_mask", "VCMPVS_", table="kind_least_cycles"),
    _vector("gather_block", "VGATHERB", table="kind_least_cycles"),
    _vector("compare_to_mask", "VCMPV_", table="group_repeats"),
    _vector("compare_scalar_to_mask", "VCMPVS_", table="group_repeats"),
    _vector("gather_block", "VGATHERB", table="group_repeats"),
)

CONSTANTS: dict[str, tuple[Constant, ...]] = {
    "910B": (
        Constant("cube.mmad_head_cycles", 0, ("mskpp-mmad-910b1",)),
        Constant("cube.mmad_latency_cycles", 0, ("mskpp-mmad-910b3",)),
        Constant("paths.L1_L0A.head_cycles", 0, ("mskpp-L1_TO_L0A-910b1",)),
        Constant("paths.L1_L0B.head_cycles", 0, ("mskpp-L1_TO_L0B-910b1",)),
        Constant("paths.L1_BT.least_cycles", 1, ("mskpp-L1_TO_BT",)),
        Constant("paths.L1_FB.head_cycles", 0, ("mskpp-L1_TO_FB",)),
        Constant("load2d.head_cycles", 0, ("mskpp-rep-L1_TO_L0",)),
        Constant("load2d.least_cycles", 0, ("mskpp-rep-L1_TO_L0",)),
        Constant("paths.GM_L1.bytes_per_cycle", 110, _GM_L1),
        Constant("paths.GM_L1.latency_cycles", 95, _GM_L1),
        Constant("paths.GM_L1.spread_cycles", 1, _GM_L1),
        Constant("paths.GM_L1.row_cycles", 0.01, _TRANSPOSED),
        Constant("paths.GM_L1.request_bytes", 32, (*_GM_L1, *_SAMPLE)),
        Constant("paths.GM_L1.request_fixed_share", 1.0, (*_SAMPLE, "ad-mm8192-case2-a2")),
        Constant("paths.GM_UB.bytes_per_cycle", 110, ("mskpp-GM_TO_UB-910b3",)),
        Constant("paths.GM_UB.latency_cycles", 0, ("mskpp-GM_TO_UB-910b3",)),
        Constant("paths.GM_UB.least_cycles", 1, ("ad-dc-ub-a-a2",)),
        Constant("paths.UB_GM.latency_cycles", 0, ("mskpp-UB_TO_GM-910b1",)),
        Constant("paths.UB_GM.drain_bytes_per_cycle", 101, ("mskpp-UB_TO_GM-910b1",)),
        Constant("paths.UB_GM.buffer_bytes", 1, ("mskpp-UB_TO_GM-910b1",)),
        Constant("paths.L0C_GM.bytes_per_cycle", 128, ("mskpp-L0C_TO_GM",)),
        Constant("fixpipe.read_bytes_per_cycle", 256, ("mskpp-L0C_TO_GM",)),
        Constant("fixpipe.channel_split_bytes_per_cycle", 128, ("msi-alex-conv2-dX", "msi-alex-conv4-dX")),
        Constant("paths.L0C_GM.latency_cycles", 0, ("cz-r2", "cz-r4")),
        Constant("paths.L0C_GM.least_cycles", 1, ("mskpp-L0C_TO_GM-910b1",)),
        Constant("fixpipe.matrix_least_cycles", 1, ("mskpp-L0C_TO_GM_TRANS",)),
        Constant("paths.GM_L0A.latency_cycles", 0, ("mskpp-GM_TO_L0A-910b3",)),
        Constant("paths.GM_L0A.bytes_per_cycle", 174, ("mskpp-GM_TO_L0A-910b3", "mskpp-rep-GM_TO_L0A")),
        Constant("paths.GM_L0A.least_cycles", 1, ("mskpp-rep-GM_TO_L0A",)),
        Constant("paths.GM_L0B.latency_cycles", 0, ("mskpp-GM_TO_L0B-910b3",)),
        Constant("paths.GM_L0B.bytes_per_cycle", 174, ("mskpp-GM_TO_L0B-910b3", "mskpp-rep-GM_TO_L0B")),
        Constant("paths.GM_L0B.least_cycles", 1, ("mskpp-rep-GM_TO_L0B",)),
        Constant("l1_write_bytes_per_cycle", 10**6, ("cz-r4", "ad-mm8192-case6-a2")),
        Constant("links.l2_read.shared_efficiency", 1.0, ("pto-gemm", "ad-mm8192-case6-a2", "msi-llm")),
        Constant("links.memory.efficiency", 1.0, _STREAMS_A2),
        Constant("launch.base_us", 0.01, ("msi-alex-conv",)),
        Constant("launch.per_core_us", 0, ("msi-alex-conv",)),
        *_VECTOR,
    ),
    "910_93": (
        Constant("paths.UB_GM.latency_cycles", 0, ("kir-a3-ubgm",)),
        Constant("paths.UB_GM.bytes_per_cycle", 101, ("kir-a3-ubgm",)),
        Constant("paths.GM_UB.latency_cycles", 0, ("kir-a3-gmub",)),
    ),
    "910_95": (
        Constant("paths.GM_UB.least_cycles", 1, ("ad-dc-ub-a-950",)),
        Constant("paths.UB_GM.bytes_per_cycle", 101, ("kir-950dt-UB_GM-4",)),
        Constant("links.l2_read.vector_tb_per_s", 4.47, _FITS_L2),
        Constant("links.l2_read.per_vector_pair_bytes_per_cycle", 196, ("kir-950dt-GM_UB-4",)),
        Constant("links.l2_write.nominal_tb_per_s", 4.5, ("kir-950dt-UB_GM-4",)),
        Constant("links.l2_write.efficiency", 1.0, ("kir-950dt-UB_GM-4",)),
        Constant("links.l2_write.per_vector_pair_bytes_per_cycle", 248, ("kir-950dt-UB_GM-4",)),
        Constant("links.memory.per_vector_core_bytes_per_cycle", 98, ("kir-950dt-GM_UB-1024",)),
        Constant("launch.base_us", 0.01, ("cs-mm",)),
        Constant("launch.per_core_us", 0, ("cs-mm",)),
    ),
    "310P": (),
    "910": (
        Constant("links.memory.per_core_bytes_per_cycle", 110, _TRAINING),
        Constant("links.memory.efficiency", 1.0, ("hpm-bert_512_32-BatchMatMul",)),
        Constant("links.l2_read.shared_efficiency", 1.0, _TRAINING),
        Constant("scalar.start_us", 0.001, _TRAINING),
        Constant("launch.base_us", 0.01, ("mi-run",)),
        Constant("launch.per_core_us", 0, ("mi-run",)),
    ),
}

# Measured figures that were fitted on no row of the table, by path, and why.
NOT_FITTED = {
    "paths.L1_GM.bytes_per_cycle": "a published peak; no row goes that way",
    "paths.UB_GM.bytes_per_cycle": "a published peak of the 910B; the other products have an entry",
    "paths.GM_UB.bytes_per_cycle": "of the 950DT, as what a core can take of the link, which binds it",
    "links.l2_read.efficiency": "a published rate of all cores; the rows at hand read memory, too",
    "links.l2_read.vector_tb_per_s": "the same; the 950DT has rows, and an entry",
    "links.l2_read.per_core_bytes_per_cycle": "the rate of paths.GM_L1",
    "links.l2_read.per_vector_core_bytes_per_cycle": "the rate of paths.GM_UB",
    "links.l2_write.per_vector_core_bytes_per_cycle": "the rate of paths.UB_GM",
    "links.memory.per_vector_core_bytes_per_cycle": "a published plateau of one core of the 910_93",
    "scalar.start_us": "read from a document about the 910B; the 910 has rows, and an entry",
}


def role_of(row_id: str) -> str:
    """Return "calibration" for a row that a constant was fitted on, "validation" for every other."""
    prefixes = tuple(
        prefix for constants in CONSTANTS.values() for constant in constants for prefix in constant.rows
    )
    return "calibration" if row_id.startswith(prefixes) else "validation"
