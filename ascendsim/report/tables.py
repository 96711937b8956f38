"""Tables of texts, made of a document and read by the terminal and the page alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from ascendsim.numerics.metric_chunks import METRIC_COLUMNS, METRIC_SYMBOLS, Column
from ascendsim.studies.records import Spent, parts_us
from ascendsim.studies.table import Table, microseconds, numbers, percent, text_table, us, words

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
    Column("op_type", "type", "", "What CANN calls the kernel: TransData, Cast, Conv2DBackpropInput, ..."),
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
        "With --interval: the least and the most that figures anywhere in their ranges give, plans as they "
        "are; effects are those of each figure alone.",
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
        "kernels", "kernels", "", "Of one such convolution: the cycles of each kernel and what bounds it."
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
# A table has room for a few: the measures that acceptance rules ask for, and those that separate rounding
# from wrong arithmetic. result.json has all.
_SHOWN = ("mere", "mare", "share_above_1e3", "max_ulp", "equal_bits_share", "verdicts")
SHOWN_ERRORS = tuple(column for column in METRIC_COLUMNS if column.name in _SHOWN)


def definitions(columns: Iterable[Column]) -> dict[str, str]:
    """Return name -> definition with its unit."""
    return {
        column.name: f"{column.definition} [{column.unit}]" if column.unit else column.definition
        for column in columns
    }


def bounds(figure_range: Sequence[Any] | None) -> str:
    """Print the range of a figure: low .. high for numbers, the alternatives for texts."""
    if not figure_range:
        return ""
    # Numbers lie anywhere between the ends, a text is one of those named.
    texts = any(isinstance(bound, str) for bound in figure_range)
    return (" | " if texts else " .. ").join(value(bound) for bound in figure_range)


def value(figure: Any) -> str:
    """Print a figure's value."""
    if isinstance(figure, list | tuple):
        return ", ".join(value(item) for item in figure)
    # Python's True is an int, and years and sizes such as 2048 read better without a comma.
    if isinstance(figure, int) and not isinstance(figure, bool):
        return f"{figure:,}" if abs(figure) >= 100_000 else str(figure)
    if isinstance(figure, Fraction | float):
        return f"{float(figure):.7g}"
    return str(figure)


def size(count: int) -> str:
    """Print a number of bytes with a binary unit."""
    if count < 1024:
        return f"{count} B"
    amount = count / 1024
    for unit in ("KiB", "MiB"):
        if amount < 1024:
            return f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} GiB"


def like_terms(product: Entry) -> dict[str, float]:
    """Return a product's microseconds in terms that all products have (`parts_us`)."""
    layers = product.get("layers") or [{"count": 1, "kernels": product["kernels"]}]
    return parts_us(
        Spent(
            kernel["op_type"], bool(kernel["macs"]), *(layer["count"] * kernel[part] for part in TIME_PARTS)
        )
        for layer in layers
        for kernel in layer["kernels"]
    )


# The cube first: whether it works is the question, and the pipes that feed and empty it are the answer.
_PIPE_ORDER = ("M", "MTE1", "MTE2", "FIX", "V", "MTE3", "S")
_share = partial(numbers, show=percent)
_TIMES = (
    *(words("kernel", "name"), numbers("cycles"), us("launch", "launch_us")),
    *(us("entry", "entry_us"), us("core", "core_us"), us("us", "time_us")),
)
# What stands for all kernels of a layer that multiply nothing.
OTHERS_IN_ONE = "others"
_CAUSE_ORDER = ("entry", *_PIPE_ORDER, "latency", "flag", "barrier")


def time_table(product: Entry, *, share: bool | None = None) -> Table:
    """Show the time of each kernel by what it goes to, its cores, and how far it uses the cubes.

    The kernels stand in the order in which they run; of several, each has its share of the call's time.

    share   whether shares are shown; None: if there are several kernels
    """
    kernels, whole = product["kernels"], product["time_us"]
    # The sum of one kernel would repeat it, and its share is all.
    several = len(kernels) > 1
    shared = several if share is None else share
    rows = [
        kernel
        | {
            "share": kernel["time_us"] / whole if whole else None,
            "cores": _cores(kernel),
            "cube": kernel["cube_utilisation"] if kernel["macs"] else None,
        }
        for kernel in kernels
    ]
    columns = (*_TIMES, *((_share("share"),) * shared), numbers("cores"), _share("cube"))
    table = Table.of("Time of each kernel (us = launch + entry + core; cycles = entry + core)", columns, rows)
    if not several:
        return table
    total = (product[column.name] for column in _TIMES[1:])
    return table.with_total(("all kernels", *total, *([None] * (2 + shared))))


def _cores(kernel: Entry) -> str:
    """Return the numbers of working cube and vector cores, and of launched blocks where it differs."""
    # A row for several kernels has no number of its own.
    if kernel["cores_used"] == "":
        return ""
    cubes, blocks = kernel["cubes_used"], kernel["blocks"]
    beside = kernel["cores_used"] - cubes
    told = f"{cubes}+{beside}" if cubes and beside else str(cubes or beside)
    return told if blocks == (cubes or beside) else f"{told} of {blocks}"


def busy_table(product: Entry) -> Table:
    """Show which share of the cycles each pipe of each kernel is busy, after the entry, and the busiest."""
    kernels = product["kernels"]
    pipes = [pipe for pipe in _PIPE_ORDER if any(pipe in kernel["busy"] for kernel in kernels)]
    rows = (kernel | {"entry": kernel["entry_cycles"] / max(kernel["cycles"], 1)} for kernel in kernels)
    shares = (_share(pipe, f"busy.{pipe}") for pipe in pipes)
    columns = (words("kernel", "name"), _share("entry"), *shares, words("busiest", "bound_by"))
    return Table.of("Share of the cycles in the entry, and with each pipe busy", columns, rows)


def occupation_table(kernel: Entry) -> Table:
    """Show what each pipe of a kernel did with the cycles: entry, busy, waiting for which pipe, idle."""
    pipes = {pipe: kernel["occupation"][pipe] for pipe in _PIPE_ORDER if pipe in kernel["occupation"]}
    # Only pipes that some pipe waits for get a column; a table of all would be mostly empty.
    causes = [cause for cause in _PIPE_ORDER if any(cause in spent["waiting"] for spent in pipes.values())]
    rows = ({"pipe": pipe, **spent} for pipe, spent in pipes.items())
    waits = (_share(f"waits for {cause}", f"waiting.{cause}") for cause in causes)
    columns = (words("pipe"), _share("entry"), _share("busy"), *waits, _share("idle"))
    return Table.of(f"{kernel['name']}: where the cycles of each pipe went", columns, rows)


def critical_path_table(product: Entry) -> Table:
    """Show what the critical path of each kernel spends its cycles on."""
    kernels = product["kernels"]
    causes = [cause for cause in _CAUSE_ORDER if any(cause in kernel["critical_path"] for kernel in kernels)]
    rows = (
        {cause: spent / max(kernel["cycles"], 1) for cause, spent in kernel["critical_path"].items() if spent}
        | {"kernel": kernel["name"]}
        for kernel in kernels
    )
    columns = (words("kernel"), *map(_share, causes))
    return Table.of("What the critical path spends its cycles on", columns, rows)


_BYTES = (
    *(words("kernel", "name"), numbers("multiply-adds", "macs", lambda macs: f"{macs:,}" if macs else "")),
    *(
        numbers(heading, f"bytes.{source}", size, absent=size(0))
        for heading, source in (("from L2", "l2_read"), ("to L2", "l2_write"), ("main memory", "memory"))
    ),
)


def bytes_table(product: Entry) -> Table:
    """Show work and bytes by source of each kernel."""
    return Table.of("Work, and bytes by source", _BYTES, product["kernels"])


def gradient_table(product: Entry) -> Table:
    """Show how far each gradient is from float64, and the first digits of a digest of its bits."""
    errors = (words(column.heading, column.name, show=partial(_error, column)) for column in SHOWN_ERRORS)
    columns = (
        *(words("gradient", "name"), words("stored as", "stored")),
        *(column._replace(left=False) for column in errors),
        words("sha256", show=lambda digest: str(digest)[:8]),
    )
    return Table.of("Error of the gradients against float64", columns, product["gradients"])


def _error(column: Column, measured: Any) -> str:
    """Print one measure of an error, by its unit."""
    if measured is None:
        return ""
    if isinstance(measured, list):
        # The standards of the field: a gradient can pass one and fail another, so that they are named.
        if not measured:
            return "nothing to compare"
        failed = [verdict["standard"] for verdict in measured if not verdict["passed"]]
        if len(failed) == len(measured):
            return "none passed"
        return f"fails {' '.join(failed)}" if failed else "all passed"
    if column.unit == "share of 1":
        return f"{100 * measured:.2f}%"
    if column.unit:
        return f"{measured:.2f}" if isinstance(measured, float) else str(measured)
    return f"{measured:.2e}" if isinstance(measured, float) else str(measured)


def layer_table(product: Entry) -> Table:
    """Show what the kernels of each layer cost and what the network spends on it."""
    layers = product["layers"]
    # A layer may lack a kernel that others have, such as the cast of a grad_weight that no core shares.
    names = list(dict.fromkeys(kernel["name"] for layer in layers for kernel in layer["kernels"]))
    # A first layer without grad_input would put it before a later one's.
    names.sort(key=OTHERS_IN_ONE.__eq__)
    rows = []
    for layer in layers:
        by_name = {kernel["name"]: kernel for kernel in layer["kernels"]}
        cells = [_kernel_cell(by_name.get(name)) for name in names]
        rows.append(
            (
                layer["name"],
                str(layer["count"]),
                *cells,
                microseconds(layer["time_us"]),
                microseconds(layer["total_us"]),
                percent(layer["share"]),
            )
        )
    count = str(sum(layer["count"] for layer in layers))
    rows.append(("network", count, *[""] * (len(names) + 1), microseconds(product["time_us"]), percent(1.0)))
    headings = ("layer", "count", *names, "us", "x count us", "share")
    return text_table(
        "Cycles of each kernel of one layer and what bounds it; us with launches",
        headings,
        frozenset({0}),
        tuple(rows),
        total=True,
    )


def _kernel_cell(kernel: Entry | None) -> str:
    if kernel is None:
        return "-"
    # Padded to the longest name of a pipe, so that the numbers of a column end below each other.
    return f"{kernel['cycles']:,} {kernel['bound_by']:<4}"
