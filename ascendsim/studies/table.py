"""One table of answers: columns with a name, a unit and a meaning, and rows of plain values.

Every writer reads it: a terminal (report/terminal.py) and a page (report/page) print its rows as texts, as
Markdown does, JSON takes its records, and CSV and Parquet are files of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ascendsim.errors import ConfigError, UnsupportedError, install_hint
from ascendsim.files import csv_text, replacing, write_text
from ascendsim.numerics.metric_chunks import Column

FORMATS = (".csv", ".parquet")
Show = Callable[[Any], str]


def whole(count: float) -> str:
    """Print a whole number, its thousands apart."""
    return f"{count:,}"


def microseconds(time_us: float) -> str:
    """Print a time with two decimals, a long one without."""
    return f"{time_us:,.2f}" if time_us < 1000 else f"{time_us:,.0f}"


def percent(share: float) -> str:
    """Print a share as a percentage without decimals; what is not zero is not printed as 0%."""
    # "0%" of a pipe that works a little would read as if it did not work at all.
    if 0 < share < 0.005:
        return "<1%"
    return f"{100 * share:.0f}%"


def share(part: float) -> str:
    """Print a part of 1 as a percentage of one decimal, a small one of two digits: only 0 is 0."""
    percents = 100 * part
    return f"{percents:.1f}" if not part or abs(percents) >= 0.1 else f"{percents:.2g}"


def three_digits(number: float) -> str:
    """Print a number to three significant digits, a large one with zeros and without an exponent."""
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:.3g}"


def saving(part: float) -> str:
    """Print what is saved under a heading that says so; a loss as what it is."""
    return f"costs {share(-part)} %" if part < 0 else f"{share(part)} %"


def form(spec: str) -> Show:
    """Return a way to print numbers, as `format` has it."""
    return lambda number: format(number, spec)


def words(heading: str, name: str = "", meaning: str = "", show: Show = str) -> Column:
    """Return a column of texts, which stand on the left; without a name it has that of its heading."""
    return Column(name or heading, heading, "", meaning, show, left=True)


def numbers(heading: str, name: str = "", show: Show = whole, meaning: str = "", absent: str = "") -> Column:
    """Return a column of numbers, which stand on the right; `absent` stands where there is none."""
    return Column(name or heading, heading, "", meaning, show, absent=absent)


def us(heading: str, name: str = "", meaning: str = "") -> Column:
    """Return a column of microseconds."""
    return Column(name or heading, heading, "microseconds", meaning, microseconds, absent="-")


@dataclass(frozen=True, slots=True)
class Table:
    """A title, columns, and a row of plain values for each answer; `total` sets off the last row.

    A text among numbers stands in its cell as it is: there is no number for it.
    """

    title: str
    columns: tuple[Column, ...]
    values: tuple[tuple[Any, ...], ...]
    total: bool = False

    @classmethod
    def of(cls, title: str, columns: Sequence[Column], items: Iterable[Any]) -> Table:
        """Return a table of items, mappings or records; the name of a column is a path in each, with dots."""
        values = (tuple(_at(item, column.name) for column in columns) for item in items)
        return cls(title, tuple(columns), tuple(values))

    @classmethod
    def of_records(cls, title: str, records: Sequence[Mapping[str, Any]]) -> Table:
        """Return a table of all that records say, in columns by their names."""
        names = dict.fromkeys(name for record in records for name in record)
        return cls.of(title, [words(name) for name in names], records)

    @property
    def headings(self) -> tuple[str, ...]:
        """The headings of the columns."""
        return tuple(column.heading for column in self.columns)

    @property
    def left(self) -> frozenset[int]:
        """Which columns stand on the left."""
        return frozenset(at for at, column in enumerate(self.columns) if column.left)

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The rows as texts."""
        return tuple(tuple(map(_text, self.columns, row)) for row in self.values)

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as plain values by the names of the columns."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.values]

    def write(self, path: Path) -> None:
        """Write the records as CSV or, with pyarrow (an extra), as Parquet, as the ending of the path says.

        Raises   ConfigError for another ending, UnsupportedError without pyarrow
        """
        require_table_name(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            _write_parquet(self.records(), path)
            return
        write_text(path, csv_text([column.name for column in self.columns], self.records()))

    def with_total(self, row: tuple[Any, ...]) -> Table:
        """Return the table with a last row of sums."""
        return replace(self, values=(*self.values, row), total=True)

    def without(self, headings: Collection[str]) -> Table:
        """Return the table without the columns of these headings."""
        kept = [at for at, heading in enumerate(self.headings) if heading not in headings]
        values = tuple(tuple(row[at] for at in kept) for row in self.values)
        return replace(self, columns=tuple(self.columns[at] for at in kept), values=values)

    def without_empty(self, headings: Collection[str]) -> Table:
        """Return the table without those of these columns that have nothing in any row."""
        rows = self.rows
        filled = (h for at, h in enumerate(self.headings) if any(row[at] for row in rows))
        return self.without(set(headings) - set(filled))


def text_table(
    title: str,
    headings: Sequence[str],
    left: Collection[int],
    rows: Sequence[tuple[str, ...]],
    total: bool = False,
) -> Table:
    """Return a table of texts; the columns of `left` stand on the left."""
    columns = (Column(name, name, "", "", left=at in left) for at, name in enumerate(headings))
    return Table(title, tuple(columns), tuple(rows), total)


def _at(item: Any, path: str) -> Any:
    """Return the value at a path of an item; None where a mapping has none."""
    if isinstance(item, Mapping) and path in item:
        return item[path]
    for name in path.split("."):
        item = item.get(name) if isinstance(item, Mapping) else getattr(item, name)
    return item


def _text(column: Column, value: Any) -> str:
    if isinstance(value, str) and not column.left:
        return value
    # NaN is no number either.
    return column.absent if value is None or value != value else column.show(value)


def require_table_name(path: Path) -> None:
    """Refuse the name of a table that says no format.

    Raises   ConfigError
    """
    if path.suffix not in FORMATS:
        raise ConfigError(f"{path}: a table ends in {' or '.join(FORMATS)}; give it one of these names")


def _write_parquet(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    try:
        from pyarrow import Table as ArrowTable
        from pyarrow.parquet import write_table
    except ImportError:
        raise UnsupportedError(
            f"{path}: Parquet is written by pyarrow, which is not installed; "
            f"{install_hint('parquet')}, or end the name in .csv"
        ) from None
    with replacing(path) as temporary:
        write_table(ArrowTable.from_pylist(list(records)), temporary)
