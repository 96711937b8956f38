"""Define every number of a report: one row per column, printed wherever the column is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ascendsim.numerics.metric_columns import METRIC_COLUMNS, METRIC_SYMBOLS, Column

# One object of result.json: plain values by the names of columns.
Entry = dict[str, Any]
TIME_PARTS = ("launch_us", "entry_us", "core_us")  # they add up to time_us

# By the place in a document. A definition is a formula where there is one, with the names of result.json.
KERNEL = (
    Column("name", "kernel", "", "What the device runs in one launch; the kernels of a call run one by one."),
    Column(
        "cycles",
        "cycles",
        "cycles of the cube clock",
        "From the kernel's entry on the first core to the end of the last, without the launch.",
    ),
    Column(
        "time_us",
        "us",
        "microseconds",
        "launch_us + entry_us + core_us: what msprof calls the task duration.",
    ),
    Column(
        "launch_us",
        "launch",
        "microseconds",
        "What a task takes besides its time on the cores, a base and a share per block (launch.* of the "
        "product file); not in the cycles.",
    ),
    Column(
        "entry_us",
        "entry",
        "microseconds",
        "From the entry of the kernel to its first instruction, on every core alike (scalar.start_us of the "
        "product file); in the cycles, and in no pipe's.",
    ),
    Column("entry_cycles", "entry", "cycles of the cube clock", "The same, as the first of the cycles."),
    Column(
        "core_us",
        "core",
        "microseconds",
        "From the first instruction to the end of the last core: (cycles - entry_cycles) / clock.",
    ),
    Column(
        "blocks",
        "blocks",
        "",
        "Blocks of the launch, msprof's Block Dim: of a plan its cores, with work or without, or the cells "
        "of a grid that is larger than the chip, which take turns; without a plan the cores with work. A "
        "cube core comes with its vector cores; where no cube works, vector cores count.",
    ),
    Column(
        "cores_used",
        "cores",
        "",
        "Cores of the cube and of vectors, together, with work in at least one phase of the kernel. A table "
        "shows both kinds, 32+64, and the blocks where so many were launched for fewer or more cores: 16 of "
        "30.",
    ),
    Column("cubes_used", "cores", "", "Those of the cube; AI cores where cube and vectors are one."),
    Column(
        "cube_utilisation",
        "cube",
        "share of 1",
        "macs / (cycles x cubes of the product x multiply-adds per cycle of one); 0 without macs.",
    ),
    Column(
        "busy",
        "busy",
        "share of cycles, by pipe",
        "Cycles in which the pipe is occupied, averaged over the used cores that have it, / cycles. Of cube "
        "and vector cores that both have it, those count that are busier with it. The entry is no pipe's.",
    ),
    Column(
        "plan",
        "plan",
        "",
        "Of a kernel on the cube: loop nest, tiling by the fields of ascendsim.Tiling, and who chose them. "
        "base is base_m x base_k x base_n, one product on the cube; steps are slices of base_k that L1 holds "
        "of the left and the right operand; copies are tiles at a time in L1, L0A, L0B and L0C; the grid and "
        "other fields follow where they are set.",
    ),
    Column("engine", "engine", "", "Which of the two engines found the cycles; they find the same."),
    Column("bound_by", "busiest", "", "The busiest pipe apart from the scalar unit S."),
    Column(
        "occupation",
        "where the cycles of each pipe went",
        "shares of cycles, by pipe",
        "busy: as above. waiting: an instruction had been issued and waited for a result or a free slot of "
        "the named pipe (its own: until it had drained); S: for room in that pipe's queue. entry: the first "
        "instruction was still to come. idle: nothing was issued to it. The four add up to 1.",
    ),
    Column(
        "critical_path",
        "critical path",
        "cycles, by cause",
        "The chain of causes from the last cycle back to the entry, by what passed: an instruction held a "
        "pipe (S: was being issued); latency: its result became visible; flag: another pipe woke it up; "
        "barrier: between phases; entry: until the scalar units are ready. They add up to cycles.",
    ),
    Column(
        "macs",
        "macs",
        "",
        "Multiply-adds of the dense formula: positions of grad_output (transposed: input) x weight elements; "
        "by Winograd those at 16 points of each tile of 2 x 2 positions.",
    ),
    Column("bytes.l2_read", "from L2", "bytes", "What the cores read through L2, hits and misses together."),
    Column("bytes.l2_write", "to L2", "bytes", "What the cores write through L2, atomic adds included."),
    Column("bytes.memory", "main memory", "bytes", "What crosses the link to main memory, in and out."),
    Column("bytes.memory_read", "memory read", "bytes", "What the cores ask for and L2 does not hold."),
    Column("bytes.memory_write", "memory write", "bytes", "Dirty bytes that leave L2 to make room."),
)

CALL = (
    Column("cycles", "cycles", "cycles of the cube clock", "Sum over the kernels, without launches."),
    Column("time_us", "us", "microseconds", "Sum over the kernels, launches and entries included."),
    Column("launch_us", "launch", "microseconds", "Sum over the kernels."),
    Column("entry_us", "entry", "microseconds", "Sum over the kernels."),
    Column("core_us", "core", "microseconds", "Sum over the kernels."),
    Column(
        "interval",
        "interval",
        "",
        "With --interval: the call with every assumed figure at the end of its range that shortens it, and "
        "at the one that stretches it, plans as they are; effects are those of each figure alone.",
    ),
    Column("compute_dtype", "compute", "", "The format in which the cube multiplies."),
    Column("accumulation", "accumulation", "", "Name of the model by which the cube adds up products."),
    Column("order", "order", "", "Order in which instructions were executed for the results."),
    Column("path", "", "", "The product's own file, where the run was asked for one by its path."),
    Column("figures", "figures", "", "How many figures the product's file holds, by confidence."),
)

LAYER = (
    Column("name", "layer", "", "After the first convolution of the network that has this shape."),
    Column("count", "count", "", "Convolutions of the network that have exactly this shape."),
    Column("cycles", "cycles", "cycles of the cube clock", "Of one such convolution's backward pass."),
    Column("time_us", "us", "microseconds", "Of one, launches and entries of its kernels included."),
    Column("total_us", "x count us", "microseconds", "time_us x count: what the network spends on them."),
    Column("share", "share", "share of 1", "total_us / sum of total_us over all layers."),
    Column(
        "kernels",
        "kernels",
        "",
        "Of one such convolution: the cycles of each kernel and what bounds it.",
    ),
)

GRADIENT = (
    Column("name", "gradient", "", "grad_input, grad_weight or grad_bias."),
    Column("shape", "shape", "", "Sizes of the gradient, in the framework's order of dimensions."),
    Column("stored", "stored as", "", "Format in which the gradient is returned."),
    Column("sha256", "sha256", "", "Digest of the returned bytes: equal digests mean equal bits."),
)
# The symbols of the formulas are no value of an entry, but belong where the formulas are read.
ERRORS = (Column("symbols", "", "", METRIC_SYMBOLS), *METRIC_COLUMNS)
# A table has room for a few: the measures that acceptance rules ask for, and those that tell rounding from
# wrong arithmetic. result.json has all.
_SHOWN = ("mere", "mare", "share_above_1e3", "max_ulp", "equal_bits_share", "verdicts")
SHOWN_ERRORS = tuple(column for column in METRIC_COLUMNS if column.name in _SHOWN)


def definitions(columns: Iterable[Column]) -> dict[str, str]:
    """Return name -> definition with its unit."""
    return {
        column.name: f"{column.definition} [{column.unit}]" if column.unit else column.definition
        for column in columns
    }
