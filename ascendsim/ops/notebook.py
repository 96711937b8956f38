"""How a result shows itself in a notebook: a table of its kernels, as HTML that needs no style of its own."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

_HEADINGS = ("kernel", "cycles", "us", "cores", "busiest pipe", "cube", "plan")


def result_html(
    title: str, lines: Sequence[str], records: Sequence[dict[str, Any]], notes: Sequence[str]
) -> str:
    """Return a title, lines below it, a row for each record of a kernel, and the notes to unfold."""
    parts = [f"<p><b>{escape(title)}</b></p>", *(f"<p>{escape(line)}</p>" for line in lines)]
    if records:
        rows = [_row(_HEADINGS, "th"), *(_row(_cells(record), "td") for record in records)]
        parts.append(f"<table>{''.join(rows)}</table>")
    if notes:
        listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
        parts.append(f"<details><summary>Notes</summary><ul>{listed}</ul></details>")
    return f"<div>{''.join(parts)}</div>"


def _cells(record: dict[str, Any]) -> tuple[str, ...]:
    """Return what is shown of a record of `KernelResult.to_record`."""
    cycles = max(record["cycles"], 1)
    busy = record[f"busy_{record['bound_by']}"] / cycles if record["bound_by"] else 0.0
    plan = f"{record['schedule']} ({record['chosen_by']})" if record["schedule"] else ""
    return (
        record["kernel"],
        f"{record['cycles']:,}",
        f"{record['time_us']:,.2f}",
        str(record["cores_used"]),
        f"{record['bound_by']} {busy:.0%}",
        f"{record['cube_utilisation']:.0%}" if record["macs"] else "",
        plan,
    )


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
