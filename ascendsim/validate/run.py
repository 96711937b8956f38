"""Hold a table of measured cases against the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ascendsim.errors import AscendSimError
from ascendsim.validate.compare import Case
from ascendsim.validate.convolutions import convolution_case, is_convolution
from ascendsim.validate.matmuls import is_matmul, is_tile_run, matmul_case, tile_cases
from ascendsim.validate.primitives import is_primitive, primitive_case
from ascendsim.validate.products import Overrides, variant_of
from ascendsim.validate.rows import Row, Unusable
from ascendsim.validate.streams import is_stream, stream_case

CLASSES = ("primitives", "matmul", "convolution")
MEASURED = "real-hardware"

# Curves of the tables that are contradicted by their own siblings: 78 GiB/s from GM to UB on 910B1, where the
# 910B3 reaches 187 and the vendor's profiler expects 220.
CONTRADICTED = ("mskpp-GM_TO_UB-910b1",)


@dataclass(frozen=True)
class Outcome:
    """Everything that came of a table: comparisons, and what could not be compared with the reason."""

    cases: tuple[Case, ...]
    unusable: tuple[Unusable, ...]


def compare_rows(
    rows: Sequence[Row | Unusable],
    classes: Iterable[str] = CLASSES,
    progress: Callable[[str], None] = lambda _: None,
    overrides: Overrides = (),
) -> Outcome:
    """Run every row of the asked classes; `progress` is told the name of each before it begins.

    `overrides` replace figures of every product, by dotted path.
    """
    wanted = set(classes)
    cases: list[Case] = []
    unusable: list[Unusable] = []
    seen: set[tuple[object, ...]] = set()
    for row in rows:
        progress(row.id)
        for found in _compare(row, wanted, seen, overrides):
            (cases if isinstance(found, Case) else unusable).append(found)  # type: ignore[arg-type]
    return Outcome(tuple(cases), tuple(unusable))


def _compare(
    row: Row | Unusable, wanted: set[str], seen: set[tuple[object, ...]], overrides: Overrides
) -> list[Case | Unusable]:
    """Return what comes of one row; nothing if its class is not asked for."""
    if isinstance(row, Unusable):
        return [row]
    kind = class_of(row)
    if kind is None:
        return [Unusable(row.id, f"{row.op or 'nothing named'}: no class of these")]
    if kind not in wanted:
        return []
    if row.strength != MEASURED:
        return [Unusable(row.id, f"not measured on a chip: {row.strength}")]
    if row.id.startswith(CONTRADICTED):
        return [Unusable(row.id, "contradicted by other measurements of the same path")]
    variant = variant_of(row.chip_variant)
    if variant is None:
        return [Unusable(row.id, f"{row.chip_variant}: no product of these")]
    same = (row.op, row.us, row.cycles, repr(row.sizes), repr(row.window), repr(row.counters), row.source)
    if kind == "primitives" and same in seen:
        return [Unusable(row.id, "repeats another row")]
    seen.add(same)
    return _case(row, variant, overrides)


def class_of(row: Row) -> str | None:
    """Return the class that a row belongs to, None if none."""
    if is_primitive(row) or is_stream(row):
        return "primitives"
    if is_matmul(row) or is_tile_run(row):
        return "matmul"
    return "convolution" if is_convolution(row) else None


def _case(row: Row, variant: str, overrides: Overrides) -> list[Case | Unusable]:
    """Return the comparisons of one row, or what of it cannot be used."""
    try:
        return _comparisons(row, variant, overrides)
    except AscendSimError as error:
        return [Unusable(row.id, str(error))]


def _comparisons(row: Row, variant: str, overrides: Overrides) -> list[Case | Unusable]:
    if is_primitive(row):
        return [primitive_case(row, variant, overrides)]
    if is_stream(row):
        return [stream_case(row, variant, overrides)]
    if is_tile_run(row):
        return tile_cases(row, variant, overrides)
    if is_matmul(row):
        return [matmul_case(row, variant, overrides)]
    return [convolution_case(row, variant, overrides)]
