"""Turn a table of measured cases in the words of its sources into the columns that `validate --data` reads.

    python tools/measured_rows.py IN OUT

IN has the columns of `prose.raw.COLUMNS`; those that end in `_json` hold objects. OUT has those of
`ascendsim.validate.schema`, as far as a row uses them. A line that nothing can be compared with stays, with
the role "skip" and the reason, so that none is lost unseen.
"""

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ascendsim.errors import DataError
from ascendsim.profile import list_products, load_profile
from ascendsim.validate.schema import COLUMNS, NEEDED, read_lines
from prose.chips import variant_of
from prose.copies import Cells, instruction_cells, stream_cells
from prose.forward import TRANSPOSED, forward_cells, is_forward, transposed_cells
from prose.gradients import CALLS, gradient_cells
from prose.products import OPTIMISED, is_product, is_tiles, product_cells, tile_cells, tuned_cells
from prose.raw import COLUMNS as RAW_COLUMNS
from prose.raw import Raw, SkipError, read_line
from prose.vectors import is_layout, is_sum, layout_cells, sum_cells

MEASURED = "real-hardware"
INSTRUCTIONS = {"MMAD": "mmad", "VEC": "vector", "MOV": "move", "LOAD": "load"}
STREAMS = ("ad-dc", "ad-add", "kir-950dt", "kir-a3")
GRADIENTS = ("Conv2DBackprop", "Conv3DBackprop")
# Curves of the tables that are contradicted by their own siblings: 78 GiB/s from GM to UB on 910B1, where the
# 910B3 reaches 187 and the vendor's profiler expects 220.
CONTRADICTED = ("mskpp-GM_TO_UB-910b1",)
# Sources whose licences let their numbers be printed.
QUOTABLE = ("mirror-cann/asc-devkit", "hicann/pto-isa")
# The run of a single slice a tile: how its Fixpipe overlaps is not known, so that no aim counts it.
REPORTED = ("cz-r3-",)


def convert(lines: Iterable[Mapping[str, str | None]]) -> Iterator[Cells]:
    """Yield the rows that come of the lines of a table, as column -> value."""
    seen: set[tuple[object, ...]] = set()
    for number, line in enumerate(lines, start=2):
        name = line.get("id") or f"line {number}"
        common: Cells = {"id": name, "source": line.get("source")}
        try:
            raw = read_line(name, line)
            common["kernel"] = kernel_of(raw)
            rows = list(_rows(raw, common["kernel"], seen))
        except SkipError as reason:
            yield common | {"role": "skip", "reason": str(reason)}
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            yield common | {"role": "skip", "reason": f"cannot be read: {error!r}"}
        else:
            yield from (common | row for row in rows)


def kernel_of(raw: Raw) -> str | None:
    """Return the kernel that a line measured, None if no class compares it."""
    instruction = INSTRUCTIONS.get(raw.op.partition(" ")[0])
    if instruction and raw.id.startswith("mskpp"):
        return instruction
    if raw.id.startswith(STREAMS):
        return "stream"
    if is_forward(raw):
        return "forward"
    if is_product(raw):
        return "matmul"
    if is_sum(raw):
        return "grad_bias"
    if raw.id.startswith(CALLS):
        return "grad_weight_call"
    if raw.op.startswith(TRANSPOSED):
        return "grad_input_call"
    if raw.op.startswith(GRADIENTS):
        return "grad_weight" if "Filter" in raw.op else "grad_input"
    if is_layout(raw):
        return "transdata"
    return None


def _rows(raw: Raw, kernel: str | None, seen: set[tuple[object, ...]]) -> Iterator[Cells]:
    """Yield the rows of a line.

    Raises   SkipError with the reason if nothing can be compared with it
    """
    if kernel is None:
        raise SkipError(f"{raw.op or 'nothing named'}: no class of these")
    if raw.strength != MEASURED:
        raise SkipError(f"not measured on a chip: {raw.strength}")
    if raw.id.startswith(CONTRADICTED):
        raise SkipError("contradicted by other measurements of the same path")
    variant = variant_of(raw.chip)
    if variant is None:
        raise SkipError(f"{raw.chip}: no product of these")
    single = kernel in INSTRUCTIONS.values() or kernel == "stream"
    same = (raw.op, raw.us, raw.cycles, repr(raw.sizes), repr(raw.counters), raw.source)
    # The tables of two chips hold the same numbers in places: one of them was copied.
    if single and same in seen:
        raise SkipError("repeats another row")
    seen.add(same)
    for cells in _cells(raw, kernel, variant):
        row = {"variant": variant, "quote": raw.source.startswith(QUOTABLE)} | cells
        yield row | {"role": role_of(raw.id)}


def _cells(raw: Raw, kernel: str, variant: str) -> Sequence[Cells]:
    if kernel in INSTRUCTIONS.values():
        return [instruction_cells(raw, variant)]
    if kernel == "stream":
        return [stream_cells(raw, variant)]
    if kernel == "matmul":
        if is_tiles(raw):
            return tile_cells(raw, variant)
        return tuned_cells(raw, variant) if OPTIMISED in raw.counters else [product_cells(raw, variant)]
    if kernel == "grad_bias":
        return [sum_cells(raw)]
    if kernel == "forward":
        return [forward_cells(raw)]
    if kernel == "grad_input_call":
        return [transposed_cells(raw)]
    return [layout_cells(raw) if kernel == "transdata" else gradient_cells(raw)]


def role_of(name: str) -> str:
    """Return "fit" for a row that a figure of a product names, else "judge", or "report" for no aim."""
    return "fit" if name.startswith(_fitted()) else "report" if name.startswith(REPORTED) else "judge"


@cache
def _fitted() -> tuple[str, ...]:
    """Return what the ids of rows begin with that figures were fitted on."""
    figures = (f for product in list_products() for f in load_profile(product.name).figures.values())
    return tuple({prefix for figure in figures for prefix in figure.fitted_on})


def cell(value: Any) -> str:
    """Return a value as the schema reads it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def main(words: Sequence[str]) -> int:
    """Convert one table."""
    if len(words) != 2:
        print("usage: python tools/measured_rows.py IN OUT", file=sys.stderr)
        return 2
    try:
        columns, lines = read_lines(Path(words[0]), "expected a table of measured cases")
    except DataError as error:
        print(error, file=sys.stderr)
        return 2
    missing = [column for column in RAW_COLUMNS if column not in columns]
    if missing:
        print(f"{words[0]}: has no column {', '.join(missing)}", file=sys.stderr)
        return 2
    rows = [
        {column: text for column, value in row.items() if (text := cell(value))} for row in convert(lines)
    ]
    used = [column for column in COLUMNS if column in NEEDED or any(column in row for row in rows)]
    try:
        with Path(words[1]).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, used, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        print(f"{words[1]}: cannot be written: {error.strerror}; OUT is the file to write", file=sys.stderr)
        return 2
    print(f"{len(rows)} rows, {sum(row['role'] == 'skip' for row in rows)} of them skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
