"""Draw what a network spends on each layer, by kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from ascendsim.report.page.palette import COLOURS, REST, REST_COLOUR, told_apart
from ascendsim.report.pictures.plots import quiet, save

if TYPE_CHECKING:
    from ascendsim.report.columns import Entry


def plot_layers(path: Path, product: Entry, title: str) -> None:
    """Draw what a network spends on each layer, by kernel; the legend stands below."""
    quiet()
    save(layers_figure(product, title), path)


def layers_figure(product: Entry, title: str) -> Figure:
    """Return a figure of a bar for each layer, cut by kernel; each kernel has a colour of its own."""
    layers = product["layers"]
    each = [(k["name"], float(k["time_us"]) * row["count"]) for row in layers for k in row["kernels"]]
    names = told_apart(each)
    colours = dict(zip(names, COLOURS, strict=False))
    if any(name not in colours for name, _ in each):
        colours[REST] = REST_COLOUR
    figure = Figure(figsize=(10, 1.6 + 0.28 * len(layers)), layout="constrained")
    axes = figure.subplots()
    places = range(len(layers))
    left = [0.0] * len(layers)
    for name, colour in colours.items():
        widths = [_time_us(layer, name, names) * layer["count"] for layer in layers]
        axes.barh(places, widths, left=left, label=name, color=colour)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_yticks(places, [f"{layer['name']} x{layer['count']}" for layer in layers], fontsize=8)
    axes.invert_yaxis()
    # Bars end where they end, not at the frame.
    axes.set_xlim(0, 1.03 * max(left) or 1.0)
    axes.set_xlabel("microseconds per backward pass of the network, launches included")
    # Below and not upon the axes, where it would cover bars.
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    axes.set_title(title, fontsize=11)
    return figure


def _time_us(layer: Entry, name: str, names: tuple[str, ...]) -> float:
    kernels = (k for k in layer["kernels"] if k["name"] == name or (name == REST and k["name"] not in names))
    return sum(float(kernel["time_us"]) for kernel in kernels)
