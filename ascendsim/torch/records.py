"""What was simulated, layer by layer: frozen records, and a table of them in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ascendsim.ops.results import Estimate
    from ascendsim.studies.records import JudgedGradient
    from ascendsim.torch.layers import Layer
    from ascendsim.torch.setting import Setting


@dataclass(frozen=True)
class Record:
    """One pass of one layer: how often it ran, what it costs each time, how exact it was.

    layer     its name, direction, convolution and formats
    setting   what it was simulated with
    calls     times that it ran
    estimate  cycles and times of its kernels, on contiguous tensors; None where it was refused. Casts into
              the `operands` of a setting and the addition of a forward's bias are not among them
    errors    for each call that was judged, its results ("output", or the gradients) against float64 ones
              of the tensors as torch had them
    refused   why the interface refuses it, where torch has computed it instead; None: it was simulated
    """

    layer: Layer
    setting: Setting
    calls: int
    estimate: Estimate | None
    errors: tuple[tuple[JudgedGradient, ...], ...]
    refused: str | None

    @property
    def cycles(self) -> int:
        """Cube-clock cycles of one call; 0 where it was refused."""
        return self.estimate.cycles if self.estimate else 0

    @property
    def time_us(self) -> float:
        """Microseconds of one call, launches included; 0 where it was refused."""
        return self.estimate.time_us if self.estimate else 0.0


HEADS = ("layer", "pass", "calls", "in the cube", "cycles", "us", "mean relative error")


def table(records: Sequence[Record]) -> str:
    """Return the records as lines of text: costs of one call, errors of the last that was judged; the sum."""
    rows = [HEADS, *(_row(record) for record in records)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADS))]
    lines = [
        "  ".join(
            cell.rjust(width) if head in ("calls", "cycles", "us") else cell.ljust(width)
            for head, cell, width in zip(HEADS, row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    passes = {
        direction: sum(record.time_us for record in records if record.layer.direction == direction)
        for direction in ("forward", "backward")
    }
    times = ", ".join(f"{direction} {time:.2f} us" for direction, time in passes.items())
    return "\n".join([*lines, f"one call of each: {times}, launches included"])


def _row(record: Record) -> tuple[str, ...]:
    first = (record.layer.name, record.layer.direction, str(record.calls))
    if record.estimate is None:
        return (*first, "(torch)", "", "", f"refused: {record.refused}")
    judged = record.errors[-1] if record.errors else ()
    errors = ", ".join(f"{one.name} {one.errors.mere:.1e}" for one in judged)
    return (*first, record.estimate.compute_dtype, f"{record.cycles:,}", f"{record.time_us:.2f}", errors)
