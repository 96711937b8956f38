"""Draw results with matplotlib, without its global state; the only importer of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ascendsim.report.files import replacing
from ascendsim.report.pictures.occupancy import CoreSpans, core_spans, coverage, middle_window

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ascendsim.ops.results import KernelResult
    from ascendsim.profile import Profile

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = {
    "M": "#D55E00",
    "MTE1": "#0072B2",
    "MTE2": "#009E73",
    "FIX": "#CC79A7",
    "V": "#E69F00",
    "MTE3": "#56B4E9",
    "S": "#555555",
}
# More rows would be too thin to read; grouped calls and networks have dozens of kernels.
MOST_KERNELS = 8
_BINS = 1_500  # about two a pixel of the left plot
_WINDOW_SPANS = 60  # as many as can be told apart in the right one
_STRIP = 0.04  # of the width of the rest: room for a line of text that stands upright


def plot_timeline(path: Path, kernels: Sequence[KernelResult], profile: Profile, title: str) -> None:
    """Draw when each pipe of one core of each kind is busy, per kernel: all of it, and a close look.

    On the left the depth of colour is the share of time in which the pipe is busy; on the right each span is
    one instruction, of the window that is framed on the left. Of more than eight kernels the longest eight
    are drawn. The entry of a kernel, in which no pipe works, is a grey strip that is not to scale: it would
    be most of a short kernel.
    """
    quiet()
    # The longest of them, but drawn in the order in which they run.
    longest = sorted(kernels, key=lambda kernel: -kernel.cycles)[:MOST_KERNELS]
    kept = [kernel for kernel in kernels if kernel in longest]
    drawn = [
        (kernel, core) for kernel in kept for core in core_spans(kernel.timeline, profile.core_structure)
    ]
    # A core of one pipe still needs room for its title and axis.
    heights = [max(len(core.pipes), 2) for _, core in drawn]
    figure = Figure(figsize=(12, 1.0 + sum(0.34 * height + 0.75 for height in heights)), layout="constrained")
    figure.suptitle(title, fontsize=11)
    axes = figure.subplots(len(drawn), 2, squeeze=False, height_ratios=heights, width_ratios=(3, 2))
    for row, (kernel, core) in zip(axes, drawn, strict=True):
        window = middle_window(kernel.timeline, core, _WINDOW_SPANS)
        _draw_whole(row[0], kernel, core, profile.clock.cube_mhz, window)
        _draw_window(row[1], core, profile.clock.cube_mhz, window)
    if len(longest) < len(kernels):
        figure.supxlabel(f"the longest {len(longest)} of {len(kernels)} kernels", fontsize=8)
    save(figure, path)


def _draw_whole(
    axes: Axes, kernel: KernelResult, core: CoreSpans, mhz: float, window: tuple[int, int]
) -> None:
    begin = kernel.timeline.entry_cycles
    end = max(kernel.cycles, begin + 1)
    for row, pipe in enumerate(core.pipes):
        shares = coverage(*core.spans[pipe], begin, end, _BINS)
        # An image and not bars: a hundred thousand bars take minutes to draw and run into each other.
        shades = LinearSegmentedColormap.from_list(pipe, ["#FFFFFF", COLOURS[pipe]])
        extent = (begin / mhz, end / mhz, row + 0.42, row - 0.42)
        axes.imshow(shares[None, :], extent=extent, aspect="auto", cmap=shades, vmin=0, vmax=1)
    _label(axes, core)
    axes.set_xlim(strip_begin(begin, end) / mhz, end / mhz)
    _mark_entry(axes, strip_begin(begin, end) / mhz, begin / mhz, core)
    # The first phase begins where the entry ends, which is marked already.
    for phase in kernel.timeline.phases[1:]:
        axes.axvline(phase.begin / mhz, color="black", linewidth=0.8, linestyle=":")
    # A frame about all of it would say nothing.
    if window != (begin, end):
        axes.axvspan(window[0] / mhz, window[1] / mhz, fill=False, edgecolor="black", linewidth=1.2)
    axes.set_title(f"{kernel.name}, {core.label}: {kernel.cycles:,} cycles", fontsize=9, loc="left")


def strip_begin(entry: int, end: int) -> float:
    """Return the cycle at the left end of a plot: there is room for the strip of the entry, if it has one."""
    return entry - _STRIP * (end - entry) if entry else 0.0


def _draw_window(axes: Axes, core: CoreSpans, mhz: float, window: tuple[int, int]) -> None:
    begin, end = window
    for row, pipe in enumerate(core.pipes):
        starts, ends = core.spans[pipe]
        inside = (ends > begin) & (starts < end)
        bars = [
            (start / mhz, (stop - start) / mhz)
            for start, stop in zip(starts[inside], ends[inside], strict=True)
        ]
        axes.broken_barh(bars, (row - 0.4, 0.8), facecolor=COLOURS[pipe], edgecolor="white", linewidth=0.5)
    _label(axes, core)
    axes.set_xlim(begin / mhz, end / mhz)
    title = f"cycles {begin:,} to {end:,}, instruction by instruction"
    axes.set_title(title, fontsize=9, loc="left")


def _mark_entry(axes: Axes, begin_us: float, entry_us: float, core: CoreSpans) -> None:
    """Draw the entry of a kernel as a grey strip, with its length."""
    if entry_us:
        axes.axvspan(begin_us, entry_us, facecolor="#DDDDDD", zorder=0.5)
        axes.axvline(entry_us, color="#888888", linewidth=0.8)
        axes.text(
            (begin_us + entry_us) / 2,
            (len(core.pipes) - 1) / 2,
            f"entry {entry_us:.2f} us",
            ha="center",
            va="center",
            rotation=90,
            fontsize=7,
        )
        # Times before the entry's end would be those of the strip, which has no scale.
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8))
        most = axes.get_xlim()[1]
        axes.set_xticks([tick for tick in axes.get_xticks() if entry_us <= tick <= most])


def _label(axes: Axes, core: CoreSpans) -> None:
    axes.set_yticks(range(len(core.pipes)), core.pipes, fontsize=8)
    axes.set_ylim(len(core.pipes) - 0.5, -0.5)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("microseconds from the start of the kernel", fontsize=8)


def quiet() -> None:
    """Keep matplotlib's remarks on its own caches from users who asked for a report."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)


def save(figure: Any, path: Path) -> None:
    """Write a figure as PNG, whole or not at all."""
    # The format by name: the temporary file's own ending does not count.
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)
