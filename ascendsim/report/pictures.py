"""Pictures of a run, of its layers and of a study, as matplotlib draws them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.files import replacing
from ascendsim.program.places import bare, core_of
from ascendsim.report.page import StackedBar
from ascendsim.report.page.charts import stacked_figure, styled, whatever_backend
from ascendsim.report.words import core_name
from ascendsim.timing.timeline import work_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from ascendsim.ops.results import KernelResult
    from ascendsim.profile import Profile
    from ascendsim.program.kernel import Core
    from ascendsim.report.tables import Entry
    from ascendsim.timing.timeline import Timeline
    from ascendsim.validate.compare import MeasuredCase

    Cycles = NDArray[np.int64]

with whatever_backend():
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator


# From memory to the cube and back, as data flow; S holds no data and would be a line of one colour.
PIPE_ORDER = ("MTE2", "MTE1", "M", "FIX", "V", "MTE3")


@dataclass(frozen=True, slots=True)
class CoreSpans:
    """Spans (starts, ends) of one core over all phases of a kernel, by pipe, in order."""

    label: str
    pipes: tuple[str, ...]
    spans: dict[str, tuple[Cycles, Cycles]]


def core_spans(timeline: Timeline, core_structure: str) -> list[CoreSpans]:
    """Return one core of each kind: of the kind's longest work in a phase, the first that does it."""
    # One core is enough: a plot of all would be a plot of none, and the longest decides when a phase ends.
    made = []
    for kind in ("cube", "vector"):
        works = [
            (core, number)
            for phase in timeline.phases
            for core in phase.cores
            for number in range(len(core.program.sizes))
            if core.cores[0].beside(number).kind == kind
        ]
        if works:
            longest, number = max(
                works, key=lambda work: work[0].done[-1] - work[0].issue[0] if work[0].done else 0
            )
            core = longest.cores[0].beside(number)
            made.append(_spans_of(timeline, core, core_name(core_structure, kind)))
    return [core for core in made if core.pipes]


def _spans_of(timeline: Timeline, core: Core, name: str) -> CoreSpans:
    starts: dict[str, list[int]] = {}
    ends: dict[str, list[int]] = {}
    # A core may stand for other ones in each phase; the label gives the largest number.
    alike = 0
    for phase in timeline.phases:
        work, number = work_of(phase, core)
        if work is None:
            continue
        alike = max(alike, len(work.cores))
        for pipe, start, end in zip(work.program.pipes, work.start, work.end, strict=True):
            if core_of(pipe) == number:
                starts.setdefault(bare(pipe), []).append(start)
                ends.setdefault(bare(pipe), []).append(end)
    pipes = tuple(pipe for pipe in PIPE_ORDER if pipe in starts)
    label = f"{name} {core.index}" + (f" (and {alike - 1} alike)" if alike > 1 else "")
    return CoreSpans(label, pipes, {pipe: (np.array(starts[pipe]), np.array(ends[pipe])) for pipe in pipes})


def coverage(starts: Cycles, ends: Cycles, begin: int, end: int, bins: int) -> NDArray[np.float64]:
    """Return the share of each of `bins` equal parts of [begin, end) that the spans cover.

    Spans are of one pipe: in order, not overlapping.
    """
    # Busy cycles so far are a line that rises by 1 in spans and is level between them: known at the spans'
    # ends, interpolated at the edges of the bins. A kernel has up to a million spans, so no loop over them.
    times = np.stack([starts, ends], axis=1).ravel()
    busy = np.concatenate([[0], np.cumsum(ends - starts)])
    level = np.stack([busy[:-1], busy[1:]], axis=1).ravel()
    edges = np.linspace(begin, end, bins + 1)
    shares = np.diff(np.interp(edges, times, level)) * bins / (end - begin)
    return np.asarray(np.clip(shares, 0.0, 1.0))  # interpolation is inexact in the last place


def middle_window(timeline: Timeline, core: CoreSpans, spans: int) -> tuple[int, int]:
    """Return a window about the middle of the core's work that holds about as many spans as asked for.

    All that follows the entry of the kernel, if there are no more.
    """
    # The middle, where pipes are filled and take turns; the beginning and the end of a kernel look different.
    starts = np.sort(np.concatenate([core.spans[pipe][0] for pipe in core.pipes]))
    if len(starts) <= spans:
        return timeline.entry_cycles, max(timeline.cycles, timeline.entry_cycles + 1)
    first = (len(starts) - spans) // 2
    begin, end = int(starts[first]), int(starts[first + spans])
    return begin, max(end, begin + 1)


# Okabe and Ito's colours, which colour-blind readers can tell apart.
PIPE_COLOURS = {
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
_WINDOW_SPANS = 60  # more would be too narrow to see in the right picture
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
        shades = LinearSegmentedColormap.from_list(pipe, ["#FFFFFF", PIPE_COLOURS[pipe]])
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
        axes.broken_barh(
            bars, (row - 0.4, 0.8), facecolor=PIPE_COLOURS[pipe], edgecolor="white", linewidth=0.5
        )
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


def plot_layers(path: Path, product: Entry, title: str) -> None:
    """Draw what a network spends on each layer, by kernel; the legend stands below."""
    quiet()
    save(layers_figure(product, title), path)


def layers_figure(product: Entry, title: str) -> Figure:
    """Return a figure of a bar for each layer, cut by kernel; each kernel has a colour of its own."""
    stacks = [
        StackedBar(
            f"{layer['name']} x{layer['count']}",
            tuple((k["name"], float(k["time_us"]) * layer["count"]) for k in layer["kernels"]),
        )
        for layer in product["layers"]
    ]
    with styled():
        unit = "microseconds per backward pass of the network, launches included"
        return stacked_figure(stacks, unit, title)


_SHOWN = {
    "primitives": ("MTE2", "o"),
    "matmul": ("M", "s"),
    "convolution": ("MTE1", "^"),
    "layouts": ("MTE3", "v"),
    "calls": ("FIX", "D"),
}
_LABELS = {"cycles": "cycles of one instruction", "us": "microseconds of one kernel"}


def plot_scatter(path: Path, cases: Sequence[MeasuredCase]) -> None:
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
                    color=PIPE_COLOURS[pipe],
                    label=f"{kind} ({len(points)})",
                    linewidths=0,
                )
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        axes.set_xlabel(f"measured {_LABELS[unit]}")
        axes.set_ylabel(f"estimated {_LABELS[unit]}")
        axes.legend(loc="upper left", frameon=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120, metadata={"Software": None})
