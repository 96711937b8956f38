"""What a simulation has run so far: entries that count, and the records made of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ascendsim.ops.results import Estimate
from ascendsim.studies.records import JudgedGradient
from ascendsim.torch.layers import Layer
from ascendsim.torch.passes import costs, parts_of
from ascendsim.torch.records import Record
from ascendsim.torch.setting import Setting


@dataclass
class Entry:
    """The calls of one pass of one layer so far."""

    layer: Layer
    setting: Setting
    calls: int = 0
    judged: list[tuple[JudgedGradient, ...]] = field(default_factory=list)
    refused: str | None = None


class Ledger:
    """Entries in the order in which their layers first ran."""

    def __init__(self) -> None:
        self._entries: dict[tuple[Layer, Setting], Entry] = {}
        self._estimates: dict[object, Estimate] = {}

    def entry(self, layer: Layer, setting: Setting) -> Entry:
        """Return the entry of a layer, a new one for a layer that has not run."""
        return self._entries.setdefault((layer, setting), Entry(layer, setting))

    def records(self) -> tuple[Record, ...]:
        """Return what has run; layers that are alike share one estimate."""
        return tuple(self._record(entry) for entry in self._entries.values())

    def _record(self, entry: Entry) -> Record:
        estimate = None if entry.refused else self._estimate(entry)
        return Record(entry.layer, entry.setting, entry.calls, estimate, tuple(entry.judged), entry.refused)

    def _estimate(self, entry: Entry) -> Estimate:
        parts = parts_of(entry.layer, entry.setting)
        # Settings compare as the objects they are: those of one simulation are made once.
        key = parts, entry.setting
        if key not in self._estimates:
            self._estimates[key] = costs(parts, entry.setting).without_timelines()
        return self._estimates[key]
