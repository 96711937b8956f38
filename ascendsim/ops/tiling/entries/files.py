"""Files of entries: one JSON object a line, or a list of them.

What the vendor calls the two objects of an entry is not known here: "info_dict" for the layer and "knowledge"
for the tiling are assumed. Any names are read, as the fields tell which of the two an object is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ascendsim.errors import ConfigError, DataError
from ascendsim.ops.tiling.entries.entry import Entry, LayerEntries
from ascendsim.ops.tiling.entries.layers import gradient_of, layer_of
from ascendsim.ops.tiling.vendor.names import MEANS, says_vendor_names


def entries_in(content: Any, path: Path) -> dict[str, LayerEntries] | None:
    """Return the entries by gradient; None for what is no file of entries.

    content   what the JSON of a file says: one entry, or a list of them

    Raises    ConfigError naming the entry and the field
    """
    listed = content if isinstance(content, list) else [content]
    parts = [_parts(one) for one in listed if isinstance(one, Mapping)]
    if not parts or len(parts) < len(listed) or None in parts:
        return None
    found: dict[str, list[Entry]] = {made: [] for made in MEANS}
    for at, (layer, values) in enumerate(filter(None, parts), start=1):
        where = f"{path}: entry {at}"
        gradient = gradient_of(layer)
        found[gradient].append(Entry(where, gradient, layer_of(gradient, layer, where), values))
    return {made: LayerEntries(tuple(entries)) for made, entries in found.items() if entries}


def lines_of(text: str) -> list[Any] | None:
    """Return the objects of a text that has one a line; None where a line is none."""
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        found = [json.loads(line) for line in lines]
    except ValueError:
        return None
    return found if len(found) > 1 and all(isinstance(one, Mapping) for one in found) else None


def write_entries(path: Path | str, entries: Iterable[Mapping[str, Any]]) -> None:
    """Write entries, as `entry_values` makes them, one a line.

    Raises   ConfigError for a name that does not end in .json, DataError if it cannot be written
    """
    path = Path(path)
    if path.suffix != ".json":
        raise ConfigError(f"{path}: a file of entries ends in .json, not in {path.suffix or 'nothing'}")
    try:
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}); name another file") from None


def _parts(one: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Return the layer and the tiling of an entry; None where it has not just one of each."""
    objects = list(_objects(one))
    layers = [each for each in objects if gradient_of(each)]
    tilings = [each for each in objects if says_vendor_names(each) and not gradient_of(each)]
    return (layers[0], tilings[0]) if len(layers) == len(tilings) == 1 else None


def _objects(one: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield an object and all that lie in it."""
    yield one
    for value in one.values():
        if isinstance(value, Mapping):
            yield from _objects(value)
