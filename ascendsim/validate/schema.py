"""The table of measured cases: its columns, and what each may hold.

A table is a CSV file with a line for each measurement; reports/columns.md lists the columns. Nothing here
reads prose: what a source says in words is made into columns by `tools/measured_rows.py`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from ascendsim.errors import DataError
from ascendsim.files import printable, read_text
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.problems.convolution import CHANGES
from ascendsim.profile.check import hint

# Nothing that a source could have measured is larger; floats hold all whole numbers up to here.
MOST = 1 << 40


class CellForm(NamedTuple):
    """The values that a cell may hold: in words, and the reader, which raises ValueError for all else."""

    rule: str
    read: Callable[[str], Any]


class KernelWord(NamedTuple):
    """A word of the column `kernel`: its class, unit of the measurement, columns it needs."""

    kind: str
    unit: str
    needs: tuple[str, ...]


_GRADIENT = KernelWord("convolution", "us", ("compute_dtype", "input_shape", "weight_shape"))
KERNELS = {
    "mmad": KernelWord("primitives", "cycles", ("compute_dtype", "m", "k", "n")),
    "vector": KernelWord("primitives", "cycles", ("vector_kind", "repeats")),
    "move": KernelWord("primitives", "cycles", ("path", "bytes")),
    "load": KernelWord("primitives", "cycles", ("path", "repeats")),
    "copy_and_wait": KernelWord("primitives", "us", ("path", "bytes")),
    "stream": KernelWord("primitives", "us", ("path", "cores", "bytes", "moved_bytes")),
    "matmul": KernelWord("matmul", "us", ("compute_dtype", "m", "k", "n")),
    "grad_input": _GRADIENT,
    "grad_weight": _GRADIENT,
    "forward": _GRADIENT,
    "transdata": KernelWord("layouts", "us", ("compute_dtype", "input_shape", "change")),
    "grad_bias": KernelWord("calls", "us", ("compute_dtype", "input_shape")),
    **dict.fromkeys(("grad_input_call", "grad_weight_call"), KernelWord("calls", "us", _GRADIENT.needs)),
}
CLASSES = tuple(dict.fromkeys(kernel.kind for kernel in KERNELS.values()))


def _whole(text: str) -> int:
    # The pattern first: int() also takes "1_000", and needs seconds for a million digits.
    if not re.fullmatch("[0-9]{1,13}", text) or not 1 <= int(text) <= MOST:
        raise ValueError(text)
    return int(text)


def _busy(text: str) -> float:
    value = float(text)
    if not isfinite(value) or not 0 <= value <= MOST:
        raise ValueError(text)
    return value


def _time(text: str) -> float:
    value = _busy(text)
    if not value:
        raise ValueError(text)
    return value


def _sizes(text: str) -> tuple[int, ...]:
    if not re.fullmatch("[0-9]{1,9}(x[0-9]{1,9}){0,5}", text):
        raise ValueError(text)
    return tuple(int(part) for part in text.split("x"))


def _one_of(*words: str) -> CellForm:
    return CellForm("one of " + ", ".join(words), lambda text: words[words.index(text)])


TEXT = CellForm("a text", str)
WHOLE = CellForm("a whole number from 1 to 2^40", _whole)
BUSY = CellForm("a number from 0 to 2^40", _busy)
TIME = CellForm("a positive number up to 2^40", _time)
SIZES = CellForm("whole numbers with an x between them", _sizes)
FLAG = CellForm("yes or no", lambda text: ("no", "yes").index(text) == 1)
ROLE = _one_of("fit", "judge", "report", "skip")
CHANGE = _one_of(*CHANGES)
PIPE = _one_of("M", "MTE1", "MTE2", "FIX")
PLANNED = "of the plan that ran, where the source gives it"


def _column(form: CellForm, meaning: str, empty: Any = 0) -> Any:
    """Return a field of `MeasuredRow`: its column's values and meaning, and the value of an empty cell."""
    return field(default=empty, metadata={"form": form, "meaning": meaning})


@dataclass(frozen=True)
class MeasuredRow:
    """One measurement; each field is a column of the table, under the same name."""

    id: str = _column(TEXT, "name of the measurement, once in a table", "")
    variant: str = _column(TEXT, "what was measured, such as 910B2", "")
    kernel: str = _column(_one_of(*KERNELS), "what ran", "")
    role: str = _column(
        ROLE, "whether it fits a figure, judges the model and its aims, only reports", "judge"
    )
    reason: str = _column(TEXT, "why a row is skipped", "")
    group: str = _column(TEXT, "what it is reported among", "secondary")
    quote: bool = _column(FLAG, "whether its licence lets the number be printed in the project", False)
    source: str = _column(TEXT, "document or profile that the number is from", "")
    inferred: str = _column(TEXT, "what of it the source does not say", "")
    measured_us: float = _column(TIME, "microseconds of the kernel, or busy ones of one pipe", 0.0)
    measured_cycles: float = _column(TIME, "cycles of the chip's clock for one instruction", 0.0)
    m_us: float | None = _column(BUSY, "microseconds in which M was busy, mean of the cores", None)
    mte1_us: float | None = _column(BUSY, "the same of MTE1", None)
    mte2_us: float | None = _column(BUSY, "the same of MTE2", None)
    fix_us: float | None = _column(BUSY, "the same of FIX", None)
    v_us: float | None = _column(BUSY, "the same of V", None)
    mte3_us: float | None = _column(BUSY, "the same of MTE3", None)
    pipe: str = _column(PIPE, "measured_us is what this pipe of one core was busy", "")
    tiles_on_core: int = _column(WHOLE, "tiles that this core took")
    compute_dtype: str = _column(TEXT, "what the cube multiplied; hf32: float32 as HF32", "")
    change: str = _column(CHANGE, "layouts before and after", "")
    c0: int = _column(WHOLE, "channels of a group; empty: those of 32 bytes")
    l2_start: str = _column(_one_of("warm", "cold", "handed", "chained"), "what L2 held as it began", "warm")
    path: str = _column(TEXT, "path of a copy, such as GM_L1", "")
    vector_kind: str = _column(TEXT, "kind of a vector instruction, a key of vector.repeat_cycles", "")
    repeats: int = _column(WHOLE, "repeats of a vector instruction, fractals of a load")
    in_a_row: bool = _column(FLAG, "timed in a row of equal ones, not alone with its wait", False)
    relayout: bool = _column(FLAG, "a copy that turns rows into fractals or back", False)
    bytes: int = _column(WHOLE, "bytes of a copy, or working set of a stream")
    moved_bytes: int = _column(WHOLE, "bytes that a stream copies in all, pass after pass")
    cores: int = _column(WHOLE, "cores that copy")
    tile_bytes: int = _column(WHOLE, "bytes of each copy of a stream", 32 * 1024)
    tile_rows: int = _column(WHOLE, "runs of consecutive bytes in it", 1)
    aligned: bool = _column(FLAG, "whether they begin at lines of L2", True)
    shared: bool = _column(FLAG, "whether all cores copy the same addresses", False)
    m: int = _column(WHOLE, "rows of a and c")
    k: int = _column(WHOLE, "length of the sums")
    n: int = _column(WHOLE, "columns of b and c")
    batch: int = _column(WHOLE, "products at once", 1)
    transpose_a: bool = _column(FLAG, "a lies as (k, m)", False)
    transpose_b: bool = _column(FLAG, "b lies as (n, k)", False)
    layout: str = _column(_one_of("ND", "NZ"), "rows, or columns of fractals", "ND")
    out_dtype: str = _column(TEXT, "format of c, if it is not that of a", "")
    input_shape: tuple[int, ...] = _column(SIZES, "of a convolution, or row after row; batch first", ())
    weight_shape: tuple[int, ...] = _column(SIZES, "channels out first", ())
    stride: tuple[int, ...] = _column(SIZES, "one for each axis; empty: 1", ())
    padding: tuple[int, ...] = _column(SIZES, "one for each axis, in 2-D also for each side; empty: 0", ())
    dilation: tuple[int, ...] = _column(SIZES, "one for each axis; empty: 1", ())
    groups: int = _column(WHOLE, "groups of channels", 1)
    blocks: int = _column(
        WHOLE, "blocks that ran: a matrix product without a plan gets one for them, a gradient if asked"
    )
    strategy: str = _column(
        _one_of("operator", "search"),
        "how that is chosen: by the rules of the product's operator where they are known, or not",
        "operator",
    )
    base_m: int = _column(WHOLE, PLANNED)
    base_n: int = _column(WHOLE, PLANNED)
    base_k: int = _column(WHOLE, PLANNED)
    step_ka: int = _column(WHOLE, PLANNED)
    step_kb: int = _column(WHOLE, PLANNED)
    single_core_m: int = _column(WHOLE, PLANNED)
    single_core_n: int = _column(WHOLE, PLANNED)
    al1_buffers: int = _column(WHOLE, PLANNED)
    bl1_buffers: int = _column(WHOLE, PLANNED)
    bl0_buffers: int = _column(WHOLE, PLANNED)
    swizzle: int = _column(WHOLE, PLANNED)
    used_cores: int = _column(WHOLE, PLANNED)
    batch_dim: int = _column(WHOLE, PLANNED)
    m_dim: int = _column(WHOLE, PLANNED)
    n_dim: int = _column(WHOLE, PLANNED)

    @property
    def kind(self) -> str:
        """The class of the kernel."""
        return KERNELS[self.kernel].kind

    @property
    def unit(self) -> str:
        """The unit of the measurement, "us" or "cycles"."""
        return KERNELS[self.kernel].unit

    @property
    def measured(self) -> float:
        """The measurement."""
        return self.measured_us if self.unit == "us" else self.measured_cycles

    @property
    def counters(self) -> dict[str, float]:
        """Busy microseconds of the pipes that were counted."""
        told = {"M": self.m_us, "MTE1": self.mte1_us, "MTE2": self.mte2_us, "FIX": self.fix_us}
        told |= {"V": self.v_us, "MTE3": self.mte3_us}
        return {pipe: us for pipe, us in told.items() if us is not None}


COLUMNS: Mapping[str, CellForm] = {column.name: column.metadata["form"] for column in fields(MeasuredRow)}
PLAN = tuple(column.name for column in fields(MeasuredRow) if column.metadata["meaning"] == PLANNED)


# 128 GiB of half precision; the largest memory of a product is 144 GB.
MOST_ELEMENTS = 1 << 36
# Columns that only tables in the words of their sources have.
PROSE = ("chip_variant", "shapes_json", "other_counters_json")
NEEDED = ("id", "variant", "kernel")
SHOWN = 40  # characters of a wrong value that a reason repeats


@dataclass(frozen=True)
class Unusable:
    """A case that nothing can be compared with, and why; `kind` is its class where that is known."""

    id: str
    reason: str
    kind: str = ""


@default_arithmetic
def read_rows(path: Path) -> list[MeasuredRow | Unusable]:
    """Read a table of measured cases; a row with a wrong value costs that row alone.

    Raises   DataError if the file cannot be read, lacks a column or has one that is not known
    """
    columns, lines = read_lines(path, "--data takes a table of cases")
    _check_columns(columns, path)
    return [read_row(cells, f"line {number}") for number, cells in enumerate(lines, start=2)]


def read_lines(path: Path, takes: str) -> tuple[Sequence[str], list[dict[str, str]]]:
    """Return the names of the columns of a CSV file, and its lines by them.

    Raises   DataError if it cannot be read; `takes` says what file is wanted
    """
    try:
        # Windows' tools begin a file in UTF-8 with a mark; it is no part of the first name.
        table = csv.DictReader(io.StringIO(printable(read_text(path, "utf-8-sig")), newline=""))
        return table.fieldnames or (), list(table)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; {takes}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: is not a table in UTF-8 with commas: {error}") from None


def _check_columns(names: Sequence[str], path: Path) -> None:
    if set(PROSE) & set(names):
        raise DataError(
            f"{path}: {', '.join(name for name in PROSE if name in names)} hold the words of its sources, "
            f"not columns; run python tools/measured_rows.py {path} OUT in a checkout, then --data OUT, or "
            "let ASCENDSIM_DATA name OUT"
        )
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise DataError(f"{path}: has no column {', '.join(missing)}; reports/columns.md lists the columns")
    # A misspelt column that is passed over would leave its default in place, unseen.
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise DataError(f"{path}: unknown column {unknown[0]!r}{hint(unknown[0], tuple(COLUMNS))}")


def read_row(cells: Mapping[str, str | None], place: str = "") -> MeasuredRow | Unusable:
    """Read one line by its columns; `place` names it where it has no name."""
    # A short line has None for what is missing, a spreadsheet blanks.
    told = {name: text for name in COLUMNS if (text := (cells.get(name) or "").strip())}
    name, kernel = told.get("id", place), KERNELS.get(told.get("kernel", ""))
    kind = kernel.kind if kernel else ""
    # Before its cells are read: what is skipped need not be whole.
    if told.get("role") == "skip":
        return Unusable(name, told.get("reason", "its table says to skip it"), kind)
    values: dict[str, Any] = {}
    for column, text in told.items():
        try:
            values[column] = COLUMNS[column].read(text)
        except ValueError:
            return Unusable(name, wrong(column, text, COLUMNS[column].rule), kind)
    needs = (*kernel.needs, f"measured_{kernel.unit}", "variant") if kernel else ("kernel",)
    missing = next((column for column in needs if column not in values), None)
    if missing:
        return Unusable(name, wrong(missing, "", COLUMNS[missing].rule), kind)
    return MeasuredRow(**values | {"id": name})


def wrong(column: str, text: str, rule: str) -> str:
    """Say which value stands in a column, and which values may."""
    # A cell may hold thousands of digits.
    shown = text if len(text) <= SHOWN else text[:SHOWN] + "..."
    return f"{column} is {shown!r}; it must be {rule}" if text else f"{column} is empty; it must be {rule}"


def refuse_beyond_memory(elements: int) -> None:
    """Check that a tensor could have been on a chip: the model would take as long as its tiles are many.

    Raises   DataError if not
    """
    if elements > MOST_ELEMENTS:
        raise DataError(f"its sizes make a tensor of {elements:,} elements; no chip's memory holds that")
