"""Write a document as a Markdown page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from ascendsim.report.headline import headline
from ascendsim.report.overview import plans_table, products_table
from ascendsim.report.tables import (
    CALL,
    GRADIENT,
    KERNEL,
    LAYER,
    SHOWN_ERRORS,
    Entry,
    bounds,
    busy_table,
    bytes_table,
    critical_path_table,
    gradient_table,
    layer_table,
    occupation_table,
    time_table,
    value,
)
from ascendsim.report.words import (
    closing_lines,
    common_lines,
    left_out_line,
    problem_line,
    product_line,
    standards_line,
    terms_line,
)
from ascendsim.studies.table import Table, text_table

# The columns that tables show of each place in a document; a definition of any other has no heading.
_COLUMNS = {
    "products": CALL,
    "products.kernels": KERNEL,
    "products.layers": LAYER,
    "products.layers.kernels": KERNEL,
    "products.gradients": (*GRADIENT, *SHOWN_ERRORS),
}
# By whether a network is plotted, for readers who cannot see the picture.
_PLOTTED = {
    False: "Which pipe is busy when, of one core of each kind",
    True: "Time of each layer by kernel",
}


def page(document: Entry, files: Sequence[Mapping[str, str]]) -> str:
    """Return the page of a run or of a network; `files` names the plot and the trace of each product."""
    products = document["products"]
    parts = _head(document)
    for product, shown in zip(products, files, strict=True):
        parts += [f"## {product_line(product)}", *(table_text(table) for table in _tables(product))]
        if product.get("gradients"):
            parts.append(standards_line(product))
        parts.append(_bullets(closing_lines(product)))
        if "plot" in shown:
            parts.append(f"![{_PLOTTED['layers' in product]}]({shown['plot']})")
        if "trace" in shown:
            trace = f"[{shown['trace']}]({shown['trace']})"
            parts.append(f"{trace} opens in <https://ui.perfetto.dev>. {shown['note']}".rstrip())
        if "summary" in shown:
            summary = f"[{shown['summary']}]({shown['summary']})"
            parts.append(f"{summary} lists the kernels in msprof's columns.")
        if "plans" in shown:
            parts.append(f"[{shown['plans']}]({shown['plans']}) has the plans, as `--tiling` takes them.")
    parts.append("## What holds of all products" if len(products) > 1 else "")
    measured = [document["measured"]] if "measured" in document else []
    parts.append(_bullets([*common_lines(products), *measured]))
    return "\n\n".join(part for part in (*parts, *_definitions(document)) if part) + "\n"


def _tables(product: Entry) -> list[Table]:
    """Return the tables of one product: those of the terminal, and where its cycles went."""
    plans = plans_table([product])
    planned = [plans] if plans.rows else []
    if "layers" in product:
        return [layer_table(product), *planned]
    tables = [time_table(product), *planned, busy_table(product), bytes_table(product)]
    tables.append(critical_path_table(product))
    tables += [occupation_table(kernel) for kernel in product["kernels"]]
    return [*tables, gradient_table(product)] if product["gradients"] else tables


def markdown_table(table: Table) -> str:
    """Return a table in Markdown."""
    # In Markdown the colon is on the side to which a column is aligned.
    rule = [":--" if column.left else "--:" for column in table.columns]
    lines = [_row(table.headings), _row(rule), *(_row(row) for row in table.rows)]
    return "\n".join(lines)


def table_text(table: Table) -> str:
    """Return a table in Markdown under its title."""
    return f"**{table.title}**\n\n{markdown_table(table)}"


def _row(cells: Sequence[str]) -> str:
    # A bar would end the cell, as in the alternatives of a range.
    return "| " + " | ".join(cell.strip().replace("|", "\\|") for cell in cells) + " |"


def _head(document: Entry) -> list[str]:
    # Quoted, so that it can be pasted into a shell as it stands.
    command = shlex.join(["ascendsim", *document["command"]])
    parts = [
        f"# Backward of {document['title']}",
        problem_line(document["problem"]),
        headline(document["products"], document.get("ratios", ())),
        left_out_line(document.get("left_out")),
        f"Made by ascendsim {document['ascendsim']} with `{command}`. All values are in result.json.",
    ]
    if len(document["products"]) > 1:
        parts += [table_text(products_table(document["products"])), terms_line(document["products"])]
    return parts


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _definitions(document: Entry) -> list[str]:
    """Return the meaning of the numbers, and the grounds of the assumed figures."""
    parts = ["## What the columns mean"]
    for place, columns in document["definitions"].items():
        headings = {column.name: column.heading for column in _COLUMNS[place]}
        rows = tuple((headings.get(name, ""), f"`{name}`", text) for name, text in columns.items())
        titles = ("in the tables", "in result.json", "meaning")
        parts += [f"**{place}**", markdown_table(text_table("", titles, frozenset({0, 1, 2}), rows))]
    for product in document["products"]:
        if product["assumed_figures"]:
            parts += [f"## Figures assumed for {product['variant']}", _assumed(product)]
    return parts


def _assumed(product: Entry) -> str:
    rows = tuple(
        (f"`{path}`", value(figure["value"]), bounds(figure["range"]), figure["source"])
        for path, figure in product["assumed_figures"].items()
    )
    return markdown_table(text_table("", ("figure", "value", "range", "why"), frozenset({0, 3}), rows))
