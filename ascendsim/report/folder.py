"""Write the folder of a report: page, result.json, plots and traces, each whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ascendsim.report.columns import AnyColumn
from ascendsim.report.files import make_folder, write_text
from ascendsim.report.markdown import network_page, run_page
from ascendsim.report.record import Record, Run
from ascendsim.report.trace import write_trace

DEFAULT_TRACE_SPANS = 50_000


def write_run_folder(
    folder: Path, document: Record, runs: Sequence[Run], metrics: Sequence[AnyColumn], trace_spans: int
) -> list[Path]:
    """Write the report of a run and return its files; `trace_spans` 0 means no traces.

    Raises   DataError if the folder cannot be made or written to
    """
    from ascendsim.report.plots import plot_timeline

    make_folder(folder)
    files: list[dict[str, str]] = []
    for run, ending in zip(runs, _endings([run.profile.variant for run in runs]), strict=True):
        mhz, kernels = run.profile.clock.cube_mhz, run.result.kernels
        shown = {"plot": f"timeline{ending}.png"}
        title = f"Backward of {document['title']} on {run.profile.variant}"
        plot_timeline(folder / shown["plot"], kernels, mhz, title)
        if trace_spans:
            shown["trace"] = f"trace{ending}.json"
            omitted = write_trace(folder / shown["trace"], kernels, mhz, trace_spans)
            shown["note"] = f"It leaves out {omitted:,} spans for size (--trace-spans)." if omitted else ""
        files.append(shown)
    page = run_page(document, metrics, files)
    return _finish(folder, document, page, files)


def write_network_folder(folder: Path, document: Record) -> list[Path]:
    """Write the report of a network and return its files.

    Raises   DataError if the folder cannot be made or written to
    """
    from ascendsim.report.plots import plot_layers

    make_folder(folder)
    files: list[dict[str, str]] = []
    products = document["products"]
    for product, ending in zip(products, _endings([p["variant"] for p in products]), strict=True):
        title = f"Backward of {document['title']} on {product['variant']}"
        plot_layers(folder / f"layers{ending}.png", product, title)
        files.append({"plot": f"layers{ending}.png"})
    return _finish(folder, document, network_page(document, files), files)


def json_text(document: Record) -> str:
    """Return a record as JSON."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _endings(variants: Sequence[str]) -> list[str]:
    """Return how the files of each product end: nothing for one, else its variant, numbered if repeated."""
    if len(variants) == 1:
        return [""]
    return [
        f"-{variant}" + (f"-{at + 1}" if variants.count(variant) > 1 else "")
        for at, variant in enumerate(variants)
    ]


def _finish(folder: Path, document: Record, page: str, files: Sequence[Mapping[str, str]]) -> list[Path]:
    write_text(folder / "report.md", page)
    write_text(folder / "result.json", json_text(document))
    names = ["report.md", "result.json"]
    names += [shown[kind] for shown in files for kind in ("plot", "trace") if kind in shown]
    return [folder / name for name in names]
