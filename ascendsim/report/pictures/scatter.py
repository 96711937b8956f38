"""Draw measured against estimated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from ascendsim.report.files import replacing
from ascendsim.report.pictures.plots import COLOURS

if TYPE_CHECKING:
    from ascendsim.validate.compare import Case

_SHOWN = {
    "primitives": ("MTE2", "o"),
    "matmul": ("M", "s"),
    "convolution": ("MTE1", "^"),
    "layouts": ("MTE3", "v"),
    "calls": ("FIX", "D"),
}
_LABELS = {"cycles": "cycles of one instruction", "us": "microseconds of one kernel"}


def plot_scatter(path: Path, cases: Sequence[Case]) -> None:
    """Draw every case as a point, measured to the right and estimated upwards, one panel for each unit.

    The line is where both agree; the band is 15 % to either side.
    """
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    units = [unit for unit in _LABELS if any(case.unit == unit for case in cases)]
    for place, unit in enumerate(units, start=1):
        axes = figure.add_subplot(1, len(units), place)
        own = [case for case in cases if case.unit == unit]
        ends = min(case.measured for case in own) * 0.7, max(case.measured for case in own) * 1.4
        axes.fill_between(ends, [0.85 * end for end in ends], [1.15 * end for end in ends], color="#dddddd")
        axes.plot(ends, ends, color="#555555", linewidth=0.8)
        for kind, (pipe, marker) in _SHOWN.items():
            points = [(case.measured, case.estimated) for case in own if case.kind == kind]
            if points:
                measured, estimated = zip(*points, strict=True)
                axes.scatter(
                    measured,
                    estimated,
                    s=10,
                    alpha=0.6,
                    marker=marker,
                    color=COLOURS[pipe],
                    label=f"{kind} ({len(points)})",
                    linewidths=0,
                )
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        axes.set_xlabel(f"measured {_LABELS[unit]}")
        axes.set_ylabel(f"estimated {_LABELS[unit]}")
        axes.legend(loc="upper left", frameon=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120, metadata={"Software": None})
