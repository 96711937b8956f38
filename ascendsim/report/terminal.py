"""Print documents on a terminal, or as plain text into a pipe."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from ascendsim.report.headline import headline
from ascendsim.report.overview import (
    errors_table,
    kernels_table,
    layers_table,
    network_table,
    plans_table,
    product_table,
    products_table,
)
from ascendsim.report.tables import Entry, bounds, busy_table, bytes_table, layer_table, time_table, value
from ascendsim.report.words import (
    GRADIENT_LEGEND,
    LEGEND,
    MORE,
    OTHERS,
    TERMS,
    closing_lines,
    closing_of_all,
    common_lines,
    left_out_line,
    own_errors_in_short,
    problem_line,
    product_line,
    terms_line,
)
from ascendsim.studies.identify.records import Agreeing, Identification
from ascendsim.studies.table import Table, text_table

if TYPE_CHECKING:
    from ascendsim.profile import Profile

PLAIN_WIDTH = 100
# Wider than any table: into a pipe a row is one line, so that `grep` and `cut` see whole rows.
UNBOUNDED = 100_000
LEAST_WIDTH = 40


class _Console(Console):
    """A console that leaves it to the command what a reader who has left (as `head` does) means."""

    def on_broken_pipe(self) -> None:
        """Raise the error that rich would turn into exit status 1."""
        raise  # what rich has caught as it calls this


def make_console() -> Console:
    """Return a console on stdout, as wide as the terminal or COLUMNS; else paragraphs have 100 columns."""
    if sys.stdout.isatty():
        return _Console(highlight=False)
    # rich would take the width of a terminal that is not written to, or 80.
    return _Console(highlight=False, width=_asked_width() or PLAIN_WIDTH)


def _asked_width() -> int:
    """Return the width that COLUMNS asks for; 0 without one."""
    asked = os.environ.get("COLUMNS", "")
    return int(asked) if asked.isascii() and asked.isdigit() else 0


def _bounded(out: Console) -> bool:
    """Whether lines must fit a width: on a terminal, or where COLUMNS is set."""
    return out.is_terminal or _asked_width() > 0


def print_document(document: Entry, console: Console | None = None, *, details: bool = False) -> None:
    """Print the calls of a run, or the layers of a network: the answer, the products side by side, the rest.

    details   also how each product's pipes and bytes share in it; of several products also each kernel that
              multiplies nothing, and which figures move each product most
    """
    out = console or make_console()
    products = document["products"]
    out.print(Text(f"Backward of {document['title']}", style="bold"))
    print_text(out, problem_line(document["problem"]))
    out.print()
    print_text(out, headline(products, document.get("ratios", ())))
    if line := left_out_line(document.get("left_out")):
        print_text(out, line)
    if len(products) > 1:
        print_table(out, products_table(products))
        for line in filter(None, (terms_line(products), own_errors_in_short(products))):
            print_text(out, line)
    for table in _tables(products, details=details):
        if table.rows:
            print_table(out, table)
    if details:
        for product in products:
            _print_details(out, product, several=len(products) > 1)
    measured = "measured" if details else "measured_in_short"
    _print_lines(
        out, [*([document[measured]] if measured in document else []), *_closing(products, details=details)]
    )
    for line in common_lines(products, details=details):
        print_text(out, line)
    _print_lines(out, _legends(products, details=details))


def _tables(products: Sequence[Entry], *, details: bool) -> list[Table]:
    """Return the tables that all products share."""
    if any("layers" in product for product in products):
        if len(products) > 1:
            return [layers_table(products)]
        return [layer_table(products[0]) if details else network_table(products[0])]
    # Of one product every kernel and plan fits the screen.
    short = len(products) > 1 and not details
    tables = [kernels_table(products, cube=short), *([] if short else [plans_table(products)])]
    judged = any(product["gradients"] for product in products)
    return [*tables, errors_table(products)] if judged else tables


def _print_details(out: Console, product: Entry, *, several: bool) -> None:
    """Print what one product does with its time; waits and the critical path are in the page."""
    out.print()
    out.print(Text(product_line(product), style="bold"))
    if "layers" in product:
        tables = [*([layer_table(product)] if several else []), plans_table([product])]
    else:
        tables = [*([time_table(product)] if several else []), busy_table(product), bytes_table(product)]
    for table in tables:
        print_table(out, table)


def _closing(products: Sequence[Entry], *, details: bool) -> list[str]:
    """Return the closing lines; with several products, each line names its own."""
    if len(products) == 1:
        return [f"{product_line(products[0])}.", *closing_lines(products[0])]
    return closing_of_all(products, details=details)


def _legends(products: Sequence[Entry], *, details: bool) -> list[str]:
    """Return the meaning of the columns, and where to find more."""
    legends = [LEGEND] if any("kernels" in product for product in products) else []
    if len(products) > 1:
        legends = [TERMS]
    elif not details and _others_in_one(products[0]):
        legends.append(OTHERS)
    if any(product.get("gradients") for product in products):
        legends.append(GRADIENT_LEGEND)
    return legends if details else [*legends, MORE]


def _others_in_one(product: Entry) -> bool:
    """Whether a column of a network's table stands for several kernels that multiply nothing."""
    kernels = [kernel for layer in product.get("layers", ()) for kernel in layer["kernels"]]
    # What stands for one kernel alone has that one's name.
    return len({kernel["name"] for kernel in kernels if not kernel["macs"]}) > 1


def print_products(rows: Sequence[Entry], console: Console | None = None) -> None:
    """Print the list of products and variants, and what the figures of each rest on."""
    out = console or make_console()
    print_table(out, product_table(rows))
    out.print()
    for product, evidence in {row["product"]: row["evidence"] for row in rows}.items():
        print_text(out, f"{product}: {evidence}")
    print_text(out, "* is what the plain product name means; `ascendsim profiles NAME` lists every figure.")


def print_profile(profile: Profile, console: Console | None = None) -> None:
    """Print every figure of a product: value, confidence and range, and below it its source."""
    out = console or make_console()
    out.print(Text(f"{profile.product} (variant {profile.variant})", style="bold"))
    print_text(out, f"Evidence: {profile.evidence}")
    # In a pipe each figure is one line, for `grep`; on a terminal the source below it is dimmed and indented.
    width = max(len(path) for path in profile.figures)
    for path, figure in sorted(profile.figures.items()):
        shown = f"{figure.confidence}, {bounds(figure.range)}" if figure.range else figure.confidence
        out.print(Text(f"{path:<{width}}  {value(figure.value):>14}  ({shown})"), soft_wrap=not _bounded(out))
        _print_indented(out, f"{figure.source}; {figure.note}" if figure.note else figure.source, "dim")
    if profile.sources:
        out.print(Text("\nSources", style="bold"))
        for key, source in profile.sources.items():
            _print_indented(out, f"{key}: {source}")


def _print_indented(out: Console, text: str, style: str = "") -> None:
    """Print a paragraph four columns in; in a pipe it is one line."""
    if _bounded(out):
        out.print(Padding(Text(text, style=style), (0, 0, 0, 4), expand=False))
    else:
        out.print(Text(f"    {text}"), soft_wrap=True)


def print_table(out: Console, table: Table) -> None:
    """Print one table; numbers to the right, texts to the left.

    A line is no wider than the terminal: cells wrap, then columns stand in blocks below each other, each with
    the columns that name its rows. In a pipe a row is one line.
    """
    width = max(out.width, LEAST_WIDTH) if _bounded(out) else UNBOUNDED
    columns = list(zip(table.headings, *table.rows, strict=True))
    least = [_least_width(column, left=index in table.left) for index, column in enumerate(columns)]
    out.print()
    if table.title:
        out.print(Text(f"{table.title}:"))
    for at, block in enumerate(_blocks(table, least, width)):
        if at:
            out.print()
        widths = _widths([columns[index] for index in block], [least[index] for index in block], width)
        _print_block(out, table, dict(zip(block, widths, strict=True)), width)


def _print_block(out: Console, table: Table, widths: Mapping[int, int], width: int) -> None:
    """Print some columns of a table, by their numbers, with these widths."""
    # escape(): a cell such as "[ulp]" is text, not a style of rich.
    shown = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="", show_edge=False)
    for index, own in widths.items():
        justify: Literal["left", "right"] = "left" if index in table.left else "right"
        shown.add_column(escape(table.headings[index]), justify=justify, width=own, overflow="fold")
    for number, row in enumerate(table.rows):
        if table.total and number == len(table.rows) - 1:
            shown.add_section()
        shown.add_row(*(escape(row[index]) for index in widths))
    # rich fills every line with blanks to the full width, which would wrap in a narrower window.
    lines = out.render_lines(shown, out.options.update(width=width))
    out.out("\n".join("".join(part.text for part in line).rstrip() for line in lines), highlight=False)


def _blocks(table: Table, least: list[int], width: int) -> list[list[int]]:
    """Return the columns of blocks that fit: all in one, else each with those that name a row.

    What is too wide for any block becomes narrower in `least`: its words are folded.
    """
    everything = list(range(len(least)))
    if sum(least) + 2 * len(least) <= width:
        return [everything]
    names = [index for index in everything[:2] if set(range(index + 1)) <= table.left]
    while names and sum(least[index] + 2 for index in names) > width // 2:
        names.pop()
    room = width - sum(least[index] + 2 for index in names)
    blocks: list[list[int]] = []
    left = 0
    for index in everything[len(names) :]:
        least[index] = min(least[index], room - 2)
        if not blocks or least[index] + 2 > left:
            blocks.append(list(names))
            left = room
        blocks[-1].append(index)
        left -= least[index] + 2
    return blocks


def _widths(columns: Sequence[Sequence[str]], least: Sequence[int], width: int) -> list[int]:
    """Return the widths of columns: each as its longest cell, or wider than its least by what is to spare.

    rich would take from the widest texts first, below their least width too, and cut off what is behind.
    """
    most = [max(map(len, column)) for column in columns]
    widths = list(least)
    # Behind each column are two blanks.
    spare = width - sum(least) - 2 * len(least)
    while spare > 0 and (narrow := [index for index, own in enumerate(widths) if own < most[index]]):
        for index in narrow[:spare]:
            widths[index] += 1
        spare -= len(narrow)
    return widths


def _least_width(cells: Sequence[str], *, left: bool) -> int:
    """Return how wide a column has to be: as its longest number, or as the longest word of its texts."""
    heading, *values = cells
    parts = chain(heading.split(), *(cell.split() for cell in values) if left else (values,))
    return max(map(len, parts), default=0)


def print_line(text: str, out: Console | None = None) -> None:
    """Print a line; on a terminal it wraps at blanks below its first word, a path stays whole."""
    out = out or make_console()
    if _bounded(out):
        indent = " " * (len(text) - len(text.lstrip()))
        text = textwrap.fill(
            text, out.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    out.out(text, highlight=False)


def print_text(out: Console, text: str) -> None:
    """Print a paragraph without blanks at the ends of its lines."""
    # Not rich's own wrapping, which fills lines with blanks; a hyphen within a name is no place to break.
    out.out(textwrap.fill(text, out.width, break_on_hyphens=False), highlight=False)


def _print_lines(out: Console, lines: Sequence[str]) -> None:
    out.print()
    for line in lines:
        print_text(out, line)


def print_answers(
    answers: Sequence[Sequence[Entry]],
    titles: Mapping[str, str],
    left_out: str,
    console: Console | None = None,
) -> None:
    """Print a table for each call, then what the rule sets are.

    answers   by call: one entry for each product and rule set that was asked
    titles    of the rule sets, by name
    left_out  the products that were not asked; "" if there are none, or the user chose
    """
    out = console or make_console()
    headings = ("product", "rules", "status", "answer")
    for own in answers:
        expected = "" if own[0]["expected"] is None else f", expected {own[0]['expected']}"
        print_line(f"{own[0]['call']}{expected}", out)
        cells = tuple((row["product"], row["rules"], _status(row), _detail(row)) for row in own)
        print_table(out, text_table("", headings, frozenset({0, 1, 3}), cells))
        out.print()
    for name, title in titles.items():
        print_text(out, f"Rules {name}: {title}.")
    if {"documented", "shipped"} <= set(titles):
        print_text(out, "Where they differ, documented is what is promised and shipped what happens.")
    if left_out:
        print_text(out, f"Left out, without the operator: {left_out} (--product asks them).")


def _status(row: Entry) -> str:
    # The mark is for those who wrote down what they expect; to all others a refusal is an answer like others.
    mark = "" if row["expected"] is None or row["as_expected"] else " (!)"
    return f"{row['status']}{mark}"


def _detail(row: Entry) -> str:
    """Say in words what an answer means."""
    if row["status"]:
        return f"{row['name']}, check {row['check']}: {row['reason']}"
    how = "empty, writes zeros" if row["empty"] else f"computes in {row['compute_dtype']}"
    notes = "".join(f"; warning: {warning}" for warning in row["warnings"])
    return f"accepted, {how}, workspace {row['workspace_bytes']:,} bytes{notes}"


def identification_lines(found: Identification, depth: int) -> Iterator[str]:
    """Yield the findings of the answers in one format, a line each.

    depth   products of one sum: what a kernel takes in one Mmad if it takes all
    """
    yield f"{found.format} ({', '.join(found.routes)}): {len(found.left)} of {found.candidates} models left"
    for route, reading in found.readings.items():
        yield f"  {route} reads float32 {reading}"
    for agreeing in found.left:
        yield f"  {agreeing.model}{_assumption(agreeing, depth)}"
    if not found.left:
        yield "  none of our models; the nearest, by the share of sums:"
        yield from (f"    {near.model}  {near.share:.1%}" for near in found.nearest)
    yield "  what each question alone leaves:"
    for question in dict.fromkeys(one.question for one in found.evidence):
        of_it = [one for one in found.evidence if one.question == question]
        each = ", ".join(f"{one.route} {one.left}" for one in of_it)
        yield f"    {question} ({of_it[0].sums} sums): {each}"
    if len(found.classes) > 1:
        yield "  accumulators in float32 would tell these apart, in a kernel whose Mmads are known:"
        yield from (f"    {' = '.join(members)}" for members in found.classes)
    elif len(found.left) > 1:
        yield f"  no sums of {found.format} operands that were tried tell these apart, even in float32"


def _assumption(agreeing: Agreeing, depth: int) -> str:
    """Name the assumptions about kernels under which a model agrees."""
    assumed = [
        f"{route}: {f'{parts} parts added in float32, ' if parts > 1 else ''}Mmads of {mmad}"
        for (route, mmad), parts in zip(agreeing.mmad.items(), agreeing.parts.values(), strict=True)
        if (mmad, parts) != (depth, 1)
    ]
    return f"  (only with {'; '.join(assumed)})" if assumed else ""
