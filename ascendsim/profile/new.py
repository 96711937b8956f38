"""The file of a chip that does not exist yet: every figure with its unit and meaning, to be filled in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from ascendsim.files import parse_toml
from ascendsim.profile.files import load_tree
from ascendsim.profile.schema import TREE, Kind, Maybe, children, leaves, node_at

FILL_IN, DECIDE, CHECK = "FILL IN", "DECIDE", "CHECK"
HEAD = f"""\
# A chip of your own. Each figure stands below its unit and meaning; docs/profiles.md says more.
# {FILL_IN} marks what has no value yet: the file loads once each of these has one.
# {DECIDE} marks what a designer decides, such as a size or a rate: confidence "design", without a range.
# What stands behind a # may be absent: to state it, uncomment it and its [table], and give it a value.
# {CHECK} marks what another chip showed, and this one may not: "derived", or "assumed" in a range.
"""
# Rules are the product's, and only the npu_arch of a shipped one names it.
FAMILY = '# With a new npu_arch also the product whose rules for calls it follows:\n# product = "910B"'
EVIDENCE = "a design: nobody has measured it"
# What no single figure of the schema says: results leave the cube, and each pipe has a queue.
ALSO_NEEDED = (
    *(f"paths.L0C_GM.{name}" for name in ("pipe", "bytes_per_cycle", "head_cycles", "latency_cycles")),
    *(f"queues.cube.{pipe}" for pipe in ("M", "V", "MTE1", "MTE2", "MTE3", "FIX")),
    *(f"queues.vector.{pipe}" for pipe in ("V", "MTE2", "MTE3")),
)
# What the maker of a chip says of it; whoever designs one decides as much.
SAID = ("vendor file", "vendor doc")
UNITS = {
    "tb_per_s": "TB/s",
    "gb_per_s": "GB/s",
    "mac_pj": "pJ a multiply-add",
    "pj_per_cycle": "pJ a cycle",
    "pj_per_byte": "pJ a byte",
    "bytes_per_cycle": "bytes a cycle",
    "bytes": "bytes",
    "cycles": "cycles",
    "mhz": "MHz",
    "us": "microseconds",
    "v": "V",
    "efficiency": "share",
    "share": "share",
}


def new_product(like: str | None = None) -> str:
    """Return the text of a product file that builds on no other.

    like   product whose figures it begins with: loaded, it then has the cycles of this one. Without it no
           figure has a value

    Raises ConfigError for an unknown product
    """
    if like is None:
        named = {path: None for path, needed in _paths(TREE) if needed or path in ALSO_NEEDED}
        more = [path for path, _ in _paths(TREE) if path not in named]
        variant, sources, lines = "", dict[str, str](), list(_lines(named, "", more))
    else:
        variant, tree, sources = load_tree(like)
        named = dict(leaves(tree))
        # No figure of a device has a say in what energy takes, so these stand there to be stated.
        more = [path for path, _ in _paths(TREE) if path.startswith("energy.") and path not in named]
        lines = list(_lines(named, variant, more))
    told = [f"{key} = {json.dumps(text, ensure_ascii=False)}" for key, text in sources.items()]
    tail = ["", f"# Sources of {variant}.", "[sources]", *told] if told else []
    return "\n".join([HEAD, f'evidence = "{EVIDENCE}"', FAMILY, *lines, *tail, ""])


def unit_of(path: str) -> str:
    """Return the unit of a figure, which its name or its table says; "" where it has none."""
    names = path.split(".")[:-3:-1]
    for end, unit in UNITS.items():
        if any(name == end or name.endswith(f"_{end}") for name in names):
            return unit
    return "cycles" if "cycles_per" in names[0] else ""


def meaning_of(path: str) -> str:
    """Return the meaning of a figure, in a phrase."""
    return next(text for pattern, text in meanings().items() if fnmatchcase(path, pattern))


@cache
def meanings() -> Mapping[str, str]:
    """Return the meaning of each figure by its path; a star stands for any name."""

    def told(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
        for key, entry in table.items():
            if isinstance(entry, str):
                yield prefix + key, entry
            else:
                yield from told(entry, f"{prefix}{key}.")

    return dict(told(parse_toml((files("ascendsim.profile") / "meanings.toml").read_text("utf-8")), ""))


def _paths(node: Any, prefix: str = "", needed: bool = True) -> Iterator[tuple[str, bool]]:
    """Yield the path of each figure, and whether every product has it."""
    for key, (below, required) in children(node).items():
        entry, own = below.entry if isinstance(below, Maybe) else below, needed and required
        if isinstance(entry, Kind):
            # A generation of the core has its choices from a file of its own, an unknown one too.
            yield prefix + key, own and not prefix.startswith("generation.")
        else:
            yield from _paths(entry, f"{prefix}{key}.", own)


def _lines(figures: Mapping[str, Any], like: str, more: Any) -> Iterator[str]:
    """Yield the lines of figures, table after table: those given, and the rest of each as comments."""
    tables: dict[str, list[str]] = {}
    for path in (*figures, *more):
        tables.setdefault(path.rpartition(".")[0], []).append(path)
    # What stands in no table comes before the first one.
    for table in sorted(tables, key=lambda name: (name != "", list(tables).index(name))):
        given = [path for path in tables[table] if path in figures]
        yield ""
        if table:
            yield f"[{table}]" if given else f"# [{table}]"
        for path in tables[table]:
            yield from _figure(path, figures.get(path), like, given=path in figures)


def _figure(path: str, figure: Mapping[str, Any] | None, like: str, *, given: bool) -> Iterator[str]:
    kind, name, unit = node_at(tuple(path.split("."))), path.rpartition(".")[2], unit_of(path)
    yield f"# {name}{f' [{unit}]' if unit else ''}: {meaning_of(path)}"
    if figure is None:
        mark = f"{FILL_IN} value = {kind.expected}" if given else f"may be absent; {kind.expected}"
        yield f'{"" if given else "# "}{name} = {{ source = "our design", confidence = "design" }}  # {mark}'
        return
    said = figure["confidence"] in SAID
    fields: dict[str, Any] = {"value": figure["value"], "source": figure["source"]}
    fields["confidence"] = "design" if said else "assumed" if figure["confidence"] == "assumed" else "derived"
    if not said and "range" in figure:
        fields["range"] = figure["range"]
    # In the note, since figures of one source move together.
    fields["note"] = "; ".join(filter(None, (f"{like}'s, there {figure['confidence']}", figure.get("note"))))
    # JSON writes these values as TOML has them.
    told = ", ".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items())
    yield f"{name} = {{ {told} }}  # {DECIDE if said else CHECK}"
