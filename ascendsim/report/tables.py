"""Tables of texts, made of a document and read by the terminal and the page alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from ascendsim.numerics.metric_chunks import METRIC_COLUMNS, METRIC_SYMBOLS, Column

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


def percent(share: float) -> str:
    """Print a share as a percentage without decimals; what is not zero is not printed as 0%."""
    # "0%" of a pipe that works a little would read as if it did not work at all.
    if 0 < share < 0.005:
        return "<1%"
    return f"{100 * share:.0f}%"


def known(figure: float, form: str) -> str:
    """Print a number in a form; an empty cell where it is not known (NaN)."""
    return "" if figure != figure else format(figure, form)


def microseconds(time_us: float) -> str:
    """Print a time with two decimals, a long one without."""
    return f"{time_us:,.2f}" if time_us < 1000 else f"{time_us:,.0f}"


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


# The cube first: whether it works is the question, and the pipes that feed and empty it are the answer.
_PIPE_ORDER = ("M", "MTE1", "MTE2", "FIX", "V", "MTE3", "S")
_TIME_HEADINGS = ("launch us", "entry us", "core us")
# What stands for all kernels of a layer that multiply nothing.
OTHERS_IN_ONE = "others"
_CAUSE_ORDER = ("entry", *_PIPE_ORDER, "latency", "flag", "barrier")


class TextTable(NamedTuple):
    """A title, headings, which columns are aligned left, and rows; `total` sets off the last row."""

    title: str
    headings: tuple[str, ...]
    left: frozenset[int]
    rows: tuple[tuple[str, ...], ...]
    total: bool = False


def without_empty(table: TextTable, names: Sequence[str]) -> TextTable:
    """Leave out those of these columns that have nothing in any row."""
    kept = [
        at
        for at, heading in enumerate(table.headings)
        if heading not in names or any(row[at] for row in table.rows)
    ]
    return table._replace(
        headings=tuple(table.headings[at] for at in kept),
        left=frozenset(new for new, at in enumerate(kept) if at in table.left),
        rows=tuple(tuple(row[at] for at in kept) for row in table.rows),
    )


def time_table(product: Entry, *, share: bool | None = None) -> TextTable:
    """Show the time of each kernel by what it goes to, its cores, and how far it uses the cubes.

    The kernels stand in the order in which they run; of several, each has its share of the call's time.

    share   whether shares are shown; None: if there are several kernels
    """
    kernels, whole = product["kernels"], product["time_us"]
    # The sum of one kernel would repeat it, and its share is all.
    several = len(kernels) > 1
    shared = several if share is None else share
    rows = [
        (
            kernel["name"],
            f"{kernel['cycles']:,}",
            *(microseconds(kernel[part]) for part in (*TIME_PARTS, "time_us")),
            *([percent(kernel["time_us"] / whole) if whole else ""] * shared),
            _cores(kernel),
            percent(kernel["cube_utilisation"]) if kernel["macs"] else "",
        )
        for kernel in kernels
    ]
    if several:
        total = (microseconds(product[part]) for part in (*TIME_PARTS, "time_us"))
        rows.append(("all kernels", f"{product['cycles']:,}", *total, *([""] * (2 + shared))))
    headings = ("kernel", "cycles", *_TIME_HEADINGS, "us", *(("share",) * shared), "cores", "cube")
    title = "Time of each kernel (us = launch + entry + core; cycles = entry + core)"
    return TextTable(title, headings, frozenset({0}), tuple(rows), total=several)


def _cores(kernel: Entry) -> str:
    """Return how many cores work, cubes and vectors, and how many blocks were launched if others."""
    # What stands for several kernels has no number of its own.
    if kernel["cores_used"] == "":
        return ""
    cubes, blocks = kernel["cubes_used"], kernel["blocks"]
    beside = kernel["cores_used"] - cubes
    told = f"{cubes}+{beside}" if cubes and beside else str(cubes or beside)
    return told if blocks == (cubes or beside) else f"{told} of {blocks}"


def busy_table(product: Entry) -> TextTable:
    """Show which share of the cycles each pipe of each kernel is busy, after the entry, and the busiest."""
    kernels = product["kernels"]
    pipes = [pipe for pipe in _PIPE_ORDER if any(pipe in kernel["busy"] for kernel in kernels)]
    rows = tuple(
        (
            kernel["name"],
            percent(kernel["entry_cycles"] / max(kernel["cycles"], 1)),
            *(percent(kernel["busy"][pipe]) if pipe in kernel["busy"] else "" for pipe in pipes),
            kernel["bound_by"],
        )
        for kernel in kernels
    )
    headings = ("kernel", "entry", *pipes, "busiest")
    left = frozenset({0, len(headings) - 1})
    return TextTable("Share of the cycles in the entry, and with each pipe busy", headings, left, rows)


def occupation_table(kernel: Entry) -> TextTable:
    """Show what each pipe of a kernel did with the cycles: entry, busy, waiting for which pipe, idle."""
    pipes = {pipe: kernel["occupation"][pipe] for pipe in _PIPE_ORDER if pipe in kernel["occupation"]}
    # Only pipes that some pipe waits for get a column; a table of all would be mostly empty.
    causes = [cause for cause in _PIPE_ORDER if any(cause in spent["waiting"] for spent in pipes.values())]
    rows = tuple(
        (
            pipe,
            percent(spent["entry"]),
            percent(spent["busy"]),
            *(percent(spent["waiting"][cause]) if cause in spent["waiting"] else "" for cause in causes),
            percent(spent["idle"]),
        )
        for pipe, spent in pipes.items()
    )
    headings = ("pipe", "entry", "busy", *(f"waits for {cause}" for cause in causes), "idle")
    return TextTable(f"{kernel['name']}: where the cycles of each pipe went", headings, frozenset({0}), rows)


def critical_path_table(product: Entry) -> TextTable:
    """Show what the critical path of each kernel spends its cycles on."""
    kernels = product["kernels"]
    causes = [cause for cause in _CAUSE_ORDER if any(cause in kernel["critical_path"] for kernel in kernels)]
    rows = tuple(
        (
            kernel["name"],
            *(
                percent(spent / max(kernel["cycles"], 1)) if spent else ""
                for spent in (kernel["critical_path"].get(cause, 0) for cause in causes)
            ),
        )
        for kernel in kernels
    )
    return TextTable("What the critical path spends its cycles on", ("kernel", *causes), frozenset({0}), rows)


def bytes_table(product: Entry) -> TextTable:
    """Show work and bytes by source of each kernel."""
    rows = [
        (
            kernel["name"],
            f"{kernel['macs']:,}" if kernel["macs"] else "",
            *(size(kernel["bytes"].get(source, 0)) for source in ("l2_read", "l2_write", "memory")),
        )
        for kernel in product["kernels"]
    ]
    headings = ("kernel", "multiply-adds", "from L2", "to L2", "main memory")
    return TextTable("Work, and bytes by source", headings, frozenset({0}), tuple(rows))


def gradient_table(product: Entry) -> TextTable:
    """Show how far each gradient is from float64, and the first digits of a digest of its bits."""
    rows = [
        (
            gradient["name"],
            gradient["stored"],
            *(_error(column, gradient[column.name]) for column in SHOWN_ERRORS),
            gradient["sha256"][:8],
        )
        for gradient in product["gradients"]
    ]
    headings = ("gradient", "stored as", *(column.heading for column in SHOWN_ERRORS), "sha256")
    left = frozenset({0, 1, len(headings) - 1})
    return TextTable("Error of the gradients against float64", headings, left, tuple(rows))


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


def layer_table(product: Entry) -> TextTable:
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
    return TextTable(
        "Cycles of each kernel of one convolution and what bounds it; us with launches",
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
