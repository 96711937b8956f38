"""The notes of a network's layers: each once, with the layers that it is true of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ascendsim.report.columns import Entry


def notes_of_layers(layers: Sequence[Entry], notes: Callable[[Entry], Iterable[str]]) -> Iterator[str]:
    """Yield the notes of all layers, each once; one that is not true of all says of which."""
    of: dict[str, list[str]] = {}
    for layer in layers:
        for note in dict.fromkeys(notes(layer)):
            of.setdefault(note, []).append(layer["name"])
    for note, names in of.items():
        others = [layer["name"] for layer in layers if layer["name"] not in names]
        if not others:
            yield note
        elif len(others) < len(names):
            yield f"All layers but {', '.join(others)}: {note}"
        else:
            yield f"{', '.join(names)}: {note}"
