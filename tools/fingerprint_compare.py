"""Compare two fingerprints: what is equal, what moved, by how much and where."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from statistics import median
from typing import Any, NamedTuple

Record = Mapping[str, Any]
Key = tuple[str, str]
WORST = 5
MOST = 20  # names in a list
WIDTH = 160
# What follows from other fields, and is named behind them.
FOLLOWS = ("cube_utilisation", "time_us", "every_core", "phase_0", "phase_1", "phase_2")


class Moved(NamedTuple):
    """A kernel whose fields are not equal: each of them as it was and as it is."""

    key: Key
    fields: Mapping[str, tuple[Any, Any]]

    @property
    def change(self) -> float:
        """The change of its cycles, as a part of what they were."""
        before, after = self.fields.get("cycles", (0, 0))
        return after / before - 1 if before else 0.0

    def __str__(self) -> str:
        first = sorted(self.fields, key=lambda name: (name != "cycles", name in FOLLOWS, name))[:6]
        parts = [
            f"{name} {_short(before)} -> {_short(after)}"
            for name in first
            for before, after in [self.fields[name]]
        ]
        more = len(self.fields) - len(first)
        return f"{' '.join(self.key)}: {', '.join(parts)}" + (f", and {more} more fields" if more else "")


def compare(before: Sequence[Record], after: Sequence[Record], named: str) -> tuple[list[str], bool]:
    """Return what there is to say, and whether anything moved."""
    old, new = ({(r["case"], r["kernel"]): r for r in records} for records in (before, after))
    both = [key for key in new if key in old]
    moved = [Moved(key, fields) for key in both if (fields := _different(old[key], new[key]))]
    kinds: dict[str, list[Moved]] = defaultdict(list)
    for each in moved:
        kinds[_sort(new[each.key])].append(each)
    lines = [f"against {named}: {len(both) - len(moved)} of {len(set(old) | set(new))} records are equal"]
    lines += _alone(old, new, f"only in {named}") + _alone(new, old, "only here")
    lines += _listed("cases that ask for something else", [str(each) for each in kinds["asked"]])
    lines += _figures(kinds["figures"], new)
    lines += _listed("bits that moved", [" ".join(each.key) for each in kinds["bits"]])
    lines += _listed("errors that differ", [str(each) for each in kinds["error"]])
    lines += _listed("calls of which something else is said", [str(each) for each in kinds["call"]])
    lines += _texts(kinds["text"])
    return lines, bool(moved) or set(old) != set(new)


def _different(old: Record, new: Record) -> dict[str, tuple[Any, Any]]:
    """Return the fields that are not equal; one that is missing is 0."""
    names = [*old, *(name for name in new if name not in old)]
    pairs = {name: (old.get(name, 0), new.get(name, 0)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _sort(record: Record) -> str:
    """Return the sort of a record."""
    if record["kernel"] in ("asked", "error", "call"):
        return str(record["kernel"])
    return next(
        (sort for sort, field in (("text", "text"), ("bits", "sha256")) if field in record), "figures"
    )


def _short(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int | float) else str(value)
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def _around(line: str, other: str) -> str:
    """Return a line; of a long one what stands where it begins to differ from another."""
    same = next((at for at, (a, b) in enumerate(zip(line, other, strict=False)) if a != b), 0)
    begin = max(0, same - WIDTH // 2) if len(line) > WIDTH else 0
    return ("..." if begin else "") + _short(line[begin:])


def _listed(title: str, names: Sequence[str]) -> list[str]:
    """Return a list with its title; nothing for an empty one."""
    if not names:
        return []
    more = [f"  ... and {len(names) - MOST} more"] if len(names) > MOST else []
    return ["", f"{title}: {len(names)}", *(f"  {name}" for name in names[:MOST]), *more]


def _alone(one: Mapping[Key, Record], other: Mapping[Key, Record], title: str) -> list[str]:
    """List what one side has alone: whole cases by their names, and errors with what they say."""
    cases = {case for case, _ in other}
    names = {
        " ".join(key) + (f": {one[key]['error']}" if key[1] == "error" else "") if key[0] in cases else key[0]
        for key in one
        if key not in other
    }
    return _listed(title, sorted(names))


def _figures(moved: Sequence[Moved], new: Mapping[Key, Record]) -> list[str]:
    """Return a table of the kernels that moved, by kind of case and product, and the worst of them."""
    if not moved:
        return []
    groups: dict[tuple[str, str], list[Moved]] = defaultdict(list)
    for each in moved:
        kind, product, _ = each.key[0].split("/", 2)
        groups[kind, product].append(each)
    all_of = Counter(tuple(case.split("/", 2)[:2]) for (case, _), r in new.items() if _sort(r) == "figures")
    rows = [("kind", "product", "moved", "of", "median", "worst", "fields that moved")]
    for group, own in sorted(groups.items()):
        changes = [each.change for each in own]
        fields = Counter(name for each in own for name in each.fields)
        first = sorted(fields, key=lambda name: (name in FOLLOWS, -fields[name], name))[:6]
        names = ", ".join(f"{name} {fields[name]}" for name in first)
        names += f", and {len(fields) - 6} more" if len(fields) > 6 else ""
        worst = max(changes, key=abs)
        rows.append(
            (*group, str(len(own)), str(all_of[group]), f"{median(changes):+.2%}", f"{worst:+.2%}", names)
        )
    # By cycles, and where these are equal by how much else moved.
    worst_of = sorted(moved, key=lambda each: (abs(each.change), len(each.fields)), reverse=True)[:WORST]
    table = _table(rows)
    return [
        "",
        f"kernels that moved: {len(moved)}; cycles relative to before",
        *table,
        "the worst:",
        *(f"  {each}" for each in worst_of),
    ]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows with their columns below each other; the last one is not filled up."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]) - 1)]
    return [
        "  " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]


def _texts(moved: Sequence[Moved]) -> list[str]:
    """Show of every text that differs its first lines that do."""
    lines = ["", f"outputs that differ: {len(moved)}"] if moved else []
    for each in moved[:MOST]:
        before, after = each.fields["text"]
        pairs = enumerate(zip_longest(before, after, fillvalue="(no line)"), 1)
        differing = [(at, *pair) for at, pair in pairs if pair[0] != pair[1]]
        lines.append(f"  {' '.join(each.key)}: {len(differing)} of {max(len(before), len(after))} lines")
        for at, old, new in differing[:3]:
            lines += [f"    line {at}: - {_around(old, new)}", f"    line {at}: + {_around(new, old)}"]
    return lines
