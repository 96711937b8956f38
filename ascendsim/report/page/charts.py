"""The charts of a page as SVG: matplotlib draws them, and their texts stay texts."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from html import escape
from io import StringIO
from itertools import product
from typing import Any, Literal

import numpy as np

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.report.page import (
    REST_COLOUR,
    Chart,
    Exponents,
    Held,
    Roofline,
    Scatter,
    StackedBar,
    Stacks,
    Tornado,
    colours_of,
)


@contextmanager
def whatever_backend() -> Iterator[None]:
    """Let matplotlib be imported where MPLBACKEND names none: pictures are drawn into files, without one."""
    named = None if "matplotlib" in sys.modules else os.environ.pop("MPLBACKEND", None)
    try:
        yield
    finally:
        if named is not None:
            os.environ["MPLBACKEND"] = named
    if named is not None:
        from matplotlib import rcParams

        with suppress(ValueError):
            rcParams["backend"] = named


with whatever_backend():
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

# In inches: a page is 7.2 of them wide, which it scales to its own width.
WIDTH, LABELS, MARGIN, ROW = 7.2, 2.5, 0.3, 0.26
INK, SOFT, LINE, GOOD, BAD, MARK = "#1b1f24", "#5b6470", "#d9dee4", "#2f7d4f", "#b3412e", "#1f5fa8"
CHARACTER = 0.072  # the width of a letter, a digit among them
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    # A name with two dollars is a name and no formula.
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
}
# Ids of matplotlib's groups, to which nothing refers and which several charts of a page would share.
_GROUP_ID = re.compile(r' id="([a-z0-9.]+|[A-Za-z]+Collection)_\d+"')
_METADATA = re.compile(r"<metadata>.*?</metadata>\s*", re.DOTALL)


def styled(number: int = 0) -> AbstractContextManager[None]:
    """Return a context in which charts are drawn, each of a page with a number of its own."""
    return mpl.rc_context({**_STYLE, "svg.hashsalt": f"chart {number}"})


@default_arithmetic
def svg(chart: Chart, caption: str = "", number: int = 0) -> str:
    """Draw a chart: equal charts give equal texts.

    caption   is read out in place of the picture
    number    of the chart on its page: what one chart defines no other may refer to
    """
    with styled(number):
        written = StringIO()
        figure_of(chart).savefig(written, format="svg", metadata={"Date": None})
    text = _GROUP_ID.sub("", _METADATA.sub("", written.getvalue()))
    return text[text.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{escape(caption)}" ', 1)


def figure_of(chart: Chart) -> Figure:
    """Return a chart as matplotlib draws it."""
    with styled():
        return _DRAWN[type(chart)](chart)


def stacked_figure(stacks: Sequence[StackedBar], unit: str, title: str = "") -> Figure:
    """Return bars of parts on one scale, with a legend of the parts above them, and a title between."""
    colours = colours_of(stacks)
    axes = _rows(
        [stack.label for stack in stacks], unit, top=0.1 + ROW * (-(-len(colours) // 4) + bool(title))
    )
    axes.set_title(title, fontsize=9, loc="left")
    for at, stack in enumerate(stacks):
        begin = 0.0
        for name, amount in stack.parts:
            axes.barh(at, amount, left=begin, height=0.7, color=colours.get(name, REST_COLOUR))
            begin += amount
    _legend(axes, colours.values(), colours)
    axes.set_xlim(left=0)
    return _figure(axes)


def _legend(axes: Axes, colours: Iterable[str], names: Iterable[str]) -> None:
    """Say above a chart what its colours mean, four to a row."""
    handles = [Patch(color=colour) for colour in colours]
    words = [cut(name, WIDTH / 4 - 0.4) for name in names]
    _figure(axes).legend(handles, words, loc="upper left", ncols=4, frameon=False, handlelength=1.2)


def cut(words: str, room: float) -> str:
    """Shorten a text to the inches that it has; the table beside a chart has the whole of it."""
    most = int(room / CHARACTER)
    return words if len(words) <= most else words[: most - 3] + "..."


def _rows(labels: Sequence[str], unit: str, top: float = MARGIN) -> Axes:
    """Return axes with a row for each label, the first one above."""
    axes = _axes(top + ROW * max(len(labels), 1) + 0.45, top=top, left=LABELS)
    axes.set_yticks(range(len(labels)), [cut(label, LABELS) for label in labels])
    axes.set_ylim(max(len(labels), 1) - 0.5, -0.5)
    axes.grid(axis="x")
    axes.set_xlabel(unit, loc="right")
    return axes


def _axes(height: float, top: float = MARGIN, left: float = 0.7, bottom: float = 0.45) -> Axes:
    """Return the axes of a figure that is so many inches high."""
    place = (left / WIDTH, bottom / height, 1 - (left + MARGIN) / WIDTH, 1 - (top + bottom) / height)
    axes = Figure(figsize=(WIDTH, height)).add_axes(place)
    axes.tick_params(left=False, bottom=False, which="both")
    axes.xaxis.set_major_formatter(_number)
    axes.yaxis.set_major_formatter(_number)
    return axes


def _number(value: float, _place: float) -> str:
    return f"{value:,.6g}"


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    return figure


def _tornado(chart: Tornado) -> Figure:
    bars = sorted(chart.bars, key=lambda bar: -abs(bar.value))
    axes, places = _rows([bar.label for bar in bars], chart.unit), range(len(bars))
    colours = [GOOD if bar.value >= 0 else BAD for bar in bars]
    axes.barh(places, [bar.value for bar in bars], height=0.6, color=colours)
    axes.hlines(places, [bar.low for bar in bars], [bar.high for bar in bars], color=INK, linewidth=1.5)
    axes.axvline(0, color=INK, linewidth=0.6)
    return _figure(axes)


def _scatter(chart: Scatter) -> Figure:
    groups: dict[str, list[str]] = {}
    for dot in chart.dots:
        if dot.group:
            groups.setdefault(dot.group, []).append(dot.mark)
    colours = colours_of([StackedBar("", tuple((name, 1.0) for name in groups))])
    above = ROW * -(-len(colours) // 4)
    axes = _axes(3.4 + above, top=MARGIN + above)
    axes.grid()
    axes.set_xlabel(chart.x_title, loc="right")
    axes.set_title(chart.y_title, fontsize=8, loc="left")
    front = sorted((dot.x, dot.y) for dot in chart.dots if dot.marked)
    # Of no class's colour where there are classes.
    line = SOFT if groups else MARK
    axes.plot([x for x, _ in front], [y for _, y in front], color=line, linewidth=0.8)
    # Marked dots last, so that no other in their place hides them.
    dots = sorted(chart.dots, key=lambda dot: dot.marked)
    places = [(dot.x, dot.y) for dot in dots]
    own = [colours.get(dot.group, REST_COLOUR) if dot.group else MARK if dot.marked else SOFT for dot in dots]
    for dot, colour in zip(dots, own, strict=True):
        if dot.bar:
            axes.vlines(dot.x, *dot.bar, color=colour, linewidth=1.2, alpha=0.7)
    _dots(axes, places, own)
    if groups:
        said = {name: f"{name}: {', '.join(marks)}" for name, marks in groups.items()}
        _legend(axes, colours.values(), [said.get(name, name) for name in colours])
    named = dots if len(dots) <= LABELLED else [dot for dot in dots if dot.marked][:LABELLED]
    _labels(axes, places, [((dot.x, dot.y), dot.mark) for dot in named])
    return _figure(axes)


def _roofline(chart: Roofline) -> Figure:
    axes, roof = _axes(3.4), chart.roof
    axes.set(xscale="log", yscale="log")
    axes.grid()
    axes.set_xlabel("multiply-adds for each byte read through L2", loc="right")
    axes.set_title("10^12 multiply-adds a second", fontsize=8, loc="left")
    places = [(point.intensity, point.rate) for point in chart.points]
    _dots(axes, places, [MARK] * len(places))
    own = [_own_roof(axes, chart, name, shape) for name, shape in (("mte1", "v"), ("memory", "s"))]
    across = _decades([roof.ridge, *(x for x, _ in places)])
    up = _decades([roof.peak, *(y for _, y in places), *(height for heights in own for height in heights)])
    if any(own):
        axes.legend(loc="lower right", frameon=False)
    axes.set(xlim=across, ylim=up)
    axes.xaxis.set_major_formatter(_number)
    axes.yaxis.set_major_formatter(_number)
    axes.plot([across[0], roof.ridge, across[1]], [roof.at(across[0]), roof.peak, roof.peak], color=INK)
    axes.text(across[1], roof.peak, f"cubes: {roof.peak:,.4g}", ha="right", va="bottom")
    _labels(axes, places, list(zip(places, chart.marks, strict=True)))
    return _figure(axes)


def _own_roof(axes: Axes, chart: Roofline, name: str, shape: str) -> list[float]:
    """Mark one roof of each kernel above its dot; return how high they are."""
    found = [(point.intensity, high) for point in chart.points if (high := getattr(point, name)) is not None]
    if found:
        across, up = zip(*found, strict=True)
        said = {"mte1": "roof of MTE1", "memory": "roof of main memory"}[name]
        axes.scatter(across, up, s=24, marker=shape, c=SOFT, label=said, zorder=2)
    return [height for _, height in found]


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """Return the powers of ten about some values."""
    low, high = np.floor(np.log10(min(values))), np.ceil(np.log10(max(values)))
    return 10.0**low, 10.0 ** max(high, low + 1)


def _dots(axes: Axes, places: Sequence[tuple[float, float]], colours: Sequence[str]) -> None:
    across, up = zip(*places, strict=True)
    axes.scatter(across, up, s=40, c=list(colours), zorder=3, clip_on=False)


# So many dots can have a word beside each; of more only those that are marked have one.
LABELLED = 60
# Points from a dot to its word, the most legible first.
_BESIDE = [
    (right * far, up * far)
    for far in (5, 12, 22)
    for right, up in product((1, -1, 0), repeat=2)
    if right or up
]
Place = tuple[float, float]


def _labels(axes: Axes, dots: Sequence[Place], words: Sequence[tuple[Place, str]]) -> None:
    """Write a word beside its dot, where it covers no other word and no dot if there is such a place."""
    axes.autoscale_view()
    figure, places = _figure(axes), axes.transData.transform(np.array(dots))
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in places]
    for at, said in words:
        x, y = axes.transData.transform(at)
        size = np.array([len(said) * CHARACTER, 0.13]) * figure.dpi
        boxes = {}
        for side in _BESIDE:
            # The near corner of the word stands at the side of the dot, or its middle on a level with it.
            shift = np.array([0 if step > 0 else 1 if step < 0 else 0.5 for step in side])
            low = np.array([x, y]) + np.array(side) * figure.dpi / 72 - shift * size
            boxes[side] = (*low, *(low + size))
        free = (
            side
            for side, box in boxes.items()
            if box[0] >= 0 and box[2] <= figure.bbox.width and not any(_meet(box, other) for other in taken)
        )
        side = next(free, _BESIDE[0])
        taken.append(boxes[side])
        across, up = (int(np.sign(step)) for step in side)
        axes.annotate(
            said, at, side, textcoords="offset points", ha=_ACROSS[across], va=_UP[up], annotation_clip=False
        )


_ACROSS: dict[int, Literal["left", "center", "right"]] = {1: "left", 0: "center", -1: "right"}
_UP: dict[int, Literal["bottom", "center", "top"]] = {1: "bottom", 0: "center", -1: "top"}


def _meet(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _stacked(chart: Stacks) -> Figure:
    return stacked_figure(chart.stacks, chart.unit)


def _held(chart: Held) -> Figure:
    rows = list(dict.fromkeys(curve.row for curve in chart.curves))
    columns = list(dict.fromkeys(curve.column for curve in chart.curves))
    figure = Figure(figsize=(WIDTH, 0.3 + 0.76 * len(rows)))
    panels = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True)
    figure.subplots_adjust(
        left=0.09, right=0.99, top=1 - 0.25 / figure.get_figheight(), bottom=0.07, wspace=0.05
    )
    for axes, column in zip(panels[0], columns, strict=True):
        axes.set_title(column, fontsize=8, loc="left")
    for axes, row in zip(panels[:, 0], rows, strict=True):
        axes.set_ylabel(row, rotation=0, ha="right", va="center")
    for axes in panels.flat:
        axes.tick_params(left=False, labelleft=False, bottom=False, labelbottom=False)
        axes.set_xlim(0, chart.cycles)
    for axes in panels[-1]:
        for at, said, side in ((0, "0", "left"), (1, f"{chart.cycles:,} cycles", "right")):
            axes.text(at, -0.05, said, transform=axes.transAxes, ha=side, va="top")
    for curve in chart.curves:
        axes = panels[rows.index(curve.row), columns.index(curve.column)]
        axes.stairs(
            curve.held, np.linspace(0, chart.cycles, len(curve.held) + 1), fill=True, color=MARK, alpha=0.6
        )
        axes.axhline(curve.reserved, color=BAD, linewidth=1, linestyle="--")
        axes.set(ylim=(0, curve.capacity))
    return figure


def _exponents(chart: Exponents) -> Figure:
    shown = chart.shown()
    last, total = shown.first + len(shown.counts), sum(shown.counts) or 1
    foot = 0.2 + ROW * len(shown.ranges)
    axes = _axes(2.0 + foot, left=1.3, bottom=foot)
    axes.set_title("share of the non-zero values, by exponent of 2", fontsize=8, loc="right")
    axes.bar(range(shown.first, last), shown.counts, width=0.9, align="edge", color=MARK)
    axes.set_xlim(shown.first, max(last, shown.first + 1))
    axes.yaxis.set_major_formatter(lambda count, _: f"{count / total:.0%}")
    # Below the axes, a row for each format; its place across is an exponent, as of the bars.
    below = axes.get_xaxis_transform()
    height = 2.0 - MARGIN
    for at, one in enumerate(shown.ranges):
        ends = np.clip(np.array(one[1:4]) - one.shift, *axes.get_xlim())
        spans = [(ends[0], ends[1] - ends[0]), (ends[1], ends[2] - ends[1])]
        middle = -(0.3 + ROW * at) / height
        axes.text(-0.01, middle, one.label, transform=axes.transAxes, ha="right", va="center")
        for (begin, length), alpha in zip(spans, (0.35, 1.0), strict=True):
            axes.barh(
                middle, length, 0.12 / height, begin, color=GOOD, alpha=alpha, transform=below, clip_on=False
            )
    return _figure(axes)


_DRAWN: dict[type, Callable[[Any], Figure]] = {
    Tornado: _tornado,
    Scatter: _scatter,
    Stacks: _stacked,
    Roofline: _roofline,
    Held: _held,
    Exponents: _exponents,
}
