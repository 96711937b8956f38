"""Write the folder of a report: page, result.json, plots and traces, each whole or not at all."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.files import make_folder, replacing_report, write_text
from ascendsim.ops.plan import Tables, plans_text
from ascendsim.report.calls import run_page
from ascendsim.report.document import CallReport
from ascendsim.report.markdown import page, table_text
from ascendsim.report.op_summary import Listed, op_summary, summary_text
from ascendsim.report.page.html import write_page
from ascendsim.report.tables import Entry
from ascendsim.report.trace import write_trace
from ascendsim.report.validation import DEFINITIONS, outside_part, quoted_part, unmeasured
from ascendsim.studies.table import text_table

if TYPE_CHECKING:
    from ascendsim.profile import Profile, ShippedProduct
    from ascendsim.report.page.records import Page
    from ascendsim.studies.records import FigureEffect
    from ascendsim.validate.ablation import Ablation
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


# The best measured product first.
PRODUCTS = ("910B", "910_93", "910_95", "310P", "910")
# Tests without the outside table compare what comes before this mark.
OUTSIDE = "<!-- what follows needs the outside table -->"
# A change below this is no effect: the page prints tenths of a percent.
SMALL = 0.0005


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


def constants_part(ablations: Mapping[str, Sequence[Ablation]]) -> list[str]:
    """Return the calibrated constants by product, with the errors of their rows with and without them."""
    parts = [
        "## Calibrated constants",
        "Median and mean of the errors of the rows named, with and without.",
    ]
    for product, found in ablations.items():
        table = [
            (
                f"`{item.path}`",
                f"{item.value}",
                f"{item.without}",
                ", ".join(item.rows),
                str(item.count),
                f"{item.kept[0]:.1%}, {item.kept[1]:.1%}",
                f"{item.dropped[0]:.1%}, {item.dropped[1]:.1%}",
            )
            for item in found
        ]
        if not table:
            parts.append(f"**{product}**: none; there is nothing to fit them on.")
            continue
        headings = ("constant", "value", "without", "fitted on rows", "rows", "errors", "errors without")
        parts.append(table_text(text_table(product, headings, frozenset({0, 3}), tuple(table))))
    return parts


def profiles_page(profiles: Sequence[Profile], products: Sequence[ShippedProduct]) -> str:
    """Return the page with all figures of all products side by side, and the variants of each."""
    # Products have figures of their own, such as links between cube and vector cores; all get a row.
    paths = list(dict.fromkeys(path for profile in profiles for path in profile.figures))
    rows = [(f"`{path}`", *(_cell(profile, path) for profile in profiles)) for path in sorted(paths)]
    headings = ("figure", *(f"{profile.product} ({profile.variant})" for profile in profiles))
    variants = tuple((item.name, item.default_variant, ", ".join(item.variants)) for item in products)
    evidence = tuple((profile.product, profile.evidence) for profile in profiles)
    named = ("product", "plain name means", "variants")
    parts = (
        "# Products side by side",
        "Every figure of the five products; `ascendsim profiles NAME` adds its source, "
        "`docs/profiles.md` explains the names. An asterisk marks what nobody published or measured; "
        "its range follows.",
        table_text(text_table("What was measured", ("product", "in public"), frozenset({0, 1}), evidence)),
        unmeasured(),
        table_text(text_table("Variants", named, frozenset({0, 1, 2}), variants)),
        table_text(text_table("Figures", headings, frozenset({0}), tuple(rows))),
    )
    return "\n\n".join(parts) + "\n"


def _cell(profile: Profile, path: str) -> str:
    """Return a figure as a cell; a product that lacks it has none."""
    figure = profile.figures.get(path)
    if figure is None:
        return ""
    text = _text(figure.value)
    if figure.confidence != "assumed" or figure.range is None:
        return text
    # A number may lie anywhere from end to end, a text is one of the alternatives.
    ends = [_text(end) for end in figure.range]
    return f"{text}* ({' or '.join(ends) if isinstance(figure.value, str) else ' to '.join(ends)})"


def _text(value: Any) -> str:
    """Print a figure in full: these pages are compared, where a terminal is read."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return " ".join(str(part) for part in value) or "none"
    return f"{float(value):g}" if not isinstance(value, str) else value


def sensitivity_page(call: str, effects: Mapping[str, Sequence[FigureEffect]]) -> str:
    """Return the page on the effects of each product's figures with a range; `call` names the timed call."""
    parts = [
        "# What the ranges of figures move",
        "Each figure with a range at both ends of it, with those of the same source, all others and the "
        f"plans as they are: the change of the time of both gradients of {call}. Figures that move it by "
        f"less than {SMALL:.2%} at both ends are named below each table; accumulation models move bits, not "
        "cycles.",
        unmeasured(),
    ]
    headings = ("figure", "value", "low", "high", "time at low", "time at high")
    for product, found in effects.items():
        # The path decides between equal changes, so that the page is the same whatever order they come in.
        ordered = sorted(found, key=lambda effect: (-effect.largest_change, effect.figure))
        rows = tuple(_effect_row(effect) for effect in ordered if effect.largest_change >= SMALL)
        parts.append(table_text(text_table(product, headings, frozenset({0}), rows)))
        still = ", ".join(f"`{effect.figure}`" for effect in ordered if effect.largest_change < SMALL)
        parts.append(f"No effect here: {still}." if still else "Every figure with a range moves it.")
    return "\n\n".join(parts) + "\n"


def _effect_row(effect: FigureEffect) -> tuple[str, ...]:
    """Return the cells of one figure; an end that others contradict has no time."""
    figures = (_text(figure) for figure in (effect.value, effect.low, effect.high))
    times = ("not possible" if change is None else f"{change:+.1%}" for change in effect.changes)
    return (f"`{effect.figure}`", *figures, *times)
