"""Write the folder of a report: page, result.json, plots and traces, each whole or not at all."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ascendsim.files import make_folder, replacing_report, write_text
from ascendsim.ops.plan import Tables, plans_text
from ascendsim.report.calls import run_page
from ascendsim.report.document import CallReport
from ascendsim.report.markdown import page
from ascendsim.report.op_summary import Listed, op_summary, summary_text
from ascendsim.report.page.html import write_page
from ascendsim.report.tables import Entry
from ascendsim.report.trace import write_trace
from ascendsim.report.validation import DEFINITIONS, outside_part, quoted_part, unmeasured

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.report.page import Page
    from ascendsim.validate.run import Validation


def write_run_folder(
    folder: Path,
    document: Entry,
    runs: Sequence[CallReport],
    trace_spans: int,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> list[Path]:
    """Write the report of a run and return its files; `trace_spans` 0 means no traces.

    A report that was there before is replaced as a whole. With the shapes of grad_output, input and weight
    the kernels are listed as a device's profiler would (`op_summary.csv`).
    Raises   DataError if the folder cannot be made or written to
    """
    # Here and not above: matplotlib takes a second to load, which a run without a report need not pay.
    from ascendsim.report.pictures import plot_timeline

    files: list[dict[str, str]] = []
    with replacing_report(folder) as stage:
        endings = _endings([run.profile.variant for run in runs])
        for run, product, ending in zip(runs, document["products"], endings, strict=True):
            kernels = run.result.kernels
            shown = {"plot": f"timeline{ending}.png", **_write_plans(stage, document, product, ending)}
            title = f"Backward of {document['title']} on {run.profile.variant}"
            plot_timeline(stage / shown["plot"], kernels, run.profile, title)
            if trace_spans:
                shown["trace"] = f"trace{ending}.json"
                omitted = write_trace(stage / shown["trace"], kernels, run.profile, trace_spans)
                shown["note"] = (
                    f"It leaves out {omitted:,} spans for size (--trace-spans)." if omitted else ""
                )
            if shapes is not None:
                shown["summary"] = f"op_summary{ending}.csv"
                write_text(stage / shown["summary"], op_summary(kernels, run.profile, shapes))
            files.append(shown)
        profiles = [run.profile for run in runs]
        made = run_page(document, profiles, [run.result.kernels for run in runs])
        names = _write_texts(stage, document, files, made)
    return [folder / name for name in names]


def write_network_folder(
    folder: Path, document: Entry, profiles: Sequence[Profile], lines: Sequence[Sequence[Listed]] = ()
) -> list[Path]:
    """Write the report of a network and return its files; one that was there before is replaced as a whole.

    lines   of op_summary.csv of each product; none without the file

    Raises   DataError if the folder cannot be made or written to
    """
    from ascendsim.report.pictures import plot_layers

    files: list[dict[str, str]] = []
    products = document["products"]
    with replacing_report(folder) as stage:
        endings = _endings([product["variant"] for product in products])
        for at, (product, ending) in enumerate(zip(products, endings, strict=True)):
            title = f"Backward of {document['title']} on {product['variant']}"
            plot_layers(stage / f"layers{ending}.png", product, title)
            plans = _write_plans(stage, document, product, ending)
            shown = {"plot": f"layers{ending}.png", **plans}
            if lines:
                shown["summary"] = f"op_summary{ending}.csv"
                write_text(stage / shown["summary"], summary_text(lines[at]))
            files.append(shown)
        names = _write_texts(stage, document, files, run_page(document, profiles))
    return [folder / name for name in names]


def json_text(document: Entry) -> str:
    """Return a document as JSON."""
    # Without `allow_nan=False` a NaN would be written as the word NaN, which is no JSON.
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def plan_tables(product: Entry) -> Tables:
    """Return the plans of a product's kernels by layer and gradient, as files of plans have them."""
    layers = {"": product} if "kernels" in product else {layer["name"]: layer for layer in product["layers"]}
    found = {
        name: {kernel["name"]: kernel["plan"] for kernel in layer["kernels"] if kernel["plan"]}
        for name, layer in layers.items()
    }
    return {name: plans for name, plans in found.items() if plans}


def plan_comment(document: Entry, product: Entry) -> str:
    """Return the line at the top of a file of plans: their layers, and how they were made."""
    command = shlex.join(["ascendsim", *document["command"]])
    return f"Plans of {document['title']} on {product['variant']}, by `{command}`."


def _write_plans(stage: Path, document: Entry, product: Entry, ending: str) -> dict[str, str]:
    """Write the plans of a product, if it has any, and return the name of the file."""
    tables = plan_tables(product)
    if not tables:
        return {}
    name = f"plans{ending}.toml"
    write_text(stage / name, plans_text(tables, "toml", plan_comment(document, product)))
    return {"plans": name}


def _endings(variants: Sequence[str]) -> list[str]:
    """Return the ending of each product's files: "" for one, else its variant, numbered if repeated."""
    if len(variants) == 1:
        return [""]
    return [
        f"-{variant}" + (f"-{at + 1}" if variants.count(variant) > 1 else "")
        for at, variant in enumerate(variants)
    ]


def _write_texts(stage: Path, document: Entry, files: Sequence[Mapping[str, str]], shown: Page) -> list[str]:
    """Write the pages and the document, which lists all files of the report; return their names."""
    names = ["report.md", "report.html", "result.json"]
    # The list is what a later report in the same folder takes away.
    kinds = ("plot", "trace", "plans", "summary")
    names += [of[kind] for of in files for kind in kinds if kind in of]
    write_text(stage / "report.md", page(document, files))
    write_page(stage / "report.html", shown)
    write_text(stage / "result.json", json_text(document | {"files": names}))
    return names


# Tests without the outside table compare what comes before this mark.
OUTSIDE = "<!-- what follows needs the outside table -->"


def write_validation(folder: Path, quoted: Validation, outcome: Validation) -> None:
    """Write the page of a validation and its scatter plot into a folder."""
    from ascendsim.report.pictures import plot_scatter

    make_folder(folder)
    write_text(folder / "validation.md", validation_page(quoted, outcome, []))
    if outcome.cases:
        plot_scatter(folder / "validation.png", outcome.cases)


def validation_page(quoted: Validation, outcome: Validation, constants: Sequence[str]) -> str:
    """Return the page: the quoted part, then, after a mark, the part on the table at hand."""
    parts = ["# Measured and estimated", DEFINITIONS, unmeasured(), *quoted_part(quoted)]
    parts += [OUTSIDE, *outside_part(outcome), *constants]
    return "\n\n".join(parts) + "\n"
