"""Tables of texts, made of a document and read by the terminal and the page alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ascendsim.numerics.metric_columns import Column
from ascendsim.report.columns import SHOWN_ERRORS, TIME_PARTS, Entry
from ascendsim.report.numbers import microseconds, percent, size

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
