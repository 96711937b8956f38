"""The first sentences of a run: each product's time, which of them are apart, and what takes most of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ascendsim.report.tables import Entry
from ascendsim.studies.records import MODEL, PLAN
from ascendsim.studies.table import microseconds, percent

# More names would bury the answer; the table below has all.
MOST_NAMED = 6
UNITS = ("_us", "_cycles", "_bytes_per_cycle", "_bytes", "_mhz", "_tb_per_s")


class Span(NamedTuple):
    """Where a product's time lies: microseconds as they are, and the ends of its 80 % interval.

    dominant   what makes it wide: figures by their paths, `PLAN` or `MODEL`; the first is what to measure
    """

    variant: str
    time_us: float
    low_us: float
    high_us: float
    dominant: tuple[str, ...]


def headline(products: Sequence[Entry]) -> str:
    """Say what a call takes and what dominates that; of several products which of them are apart."""
    if len(products) == 1:
        [product] = products
        span = f" {_span(span_of(product))}" if product.get("interval") else ""
        line = f"{product['variant']} takes {microseconds(product['time_us'])} us{span}: {_parts(product)}."
        return f"{line} {_largest(product)}"
    ranked = sorted(products, key=lambda product: float(product["time_us"]))
    least = ranked[0]
    if not all(product.get("interval") for product in products):
        told = ", ".join(
            f"{product['variant']} {short(product['time_us'])} us" for product in ranked[:MOST_NAMED]
        )
        more = f" and {len(ranked) - MOST_NAMED} more" if len(ranked) > MOST_NAMED else ""
        which = "of a single layer " if "layers" in least else ""
        answer = (
            f"By point estimates alone, the fastest first: {told}{more}; --interval {which}says how far off "
            "each may be, and which of them are apart."
        )
    else:
        answer = " ".join(_told(groups_apart(list(map(span_of, ranked)))))
    return f"{answer} {_largest(least, least['variant'])}"


def span_of(product: Entry) -> Span:
    """Return where a product's time lies by its interval, and what makes that wide."""
    interval = product["interval"]
    ends = interval["low_us"], interval["high_us"]
    return Span(product["variant"], product["time_us"], *ends, tuple(interval["dominant"]))


def groups_apart(spans: Sequence[Span]) -> list[list[Span]]:
    """Return the spans in groups, the fastest first: those of a group overlap, directly or by others of it.

    Within a group they stand by their time, which orders nothing.
    """
    groups: list[list[Span]] = []
    reached = 0.0
    for span in sorted(spans, key=lambda span: span.low_us):
        if groups and span.low_us <= reached:
            groups[-1].append(span)
        else:
            groups.append([span])
        reached = max(reached, span.high_us)
    return [sorted(group, key=lambda span: span.time_us) for group in groups]


def _told(groups: Sequence[Sequence[Span]]) -> list[str]:
    """Return a sentence for each group of products that are apart from all others."""
    told = []
    for at, group in enumerate(groups):
        names = [f"{span.variant} {short(span.time_us)} us {_span(span)}" for span in group[:MOST_NAMED]]
        if len(group) > MOST_NAMED:
            names.append(f"{len(group) - MOST_NAMED} more")
        place = "" if len(groups) == 1 else "Fastest: " if not at else "Then: "
        if len(group) == 1:
            told.append(f"{place}{names[0]}.")
            continue
        first = group[0]
        rivals = [span for span in group if span.low_us <= first.high_us]
        widest = max(rivals, key=lambda span: span.high_us / span.low_us if span.low_us else 0.0)
        settle = f": {_settling(widest)} would settle most" if widest.dominant else ""
        pairs = [f"{one.variant} before {', '.join(after)}" for one in group if (after := _apart(one, group))]
        but = f", but {'; '.join(pairs)}" if pairs else ""
        told.append(
            f"{place}{', '.join(names[:-1])} and {names[-1]} overlap and cannot be ordered{but}{settle}."
        )
    return told


def _apart(span: Span, group: Sequence[Span]) -> list[str]:
    """Return which of a group, that hangs together by others, are slower than one of it in any case."""
    return [other.variant for other in group if other.low_us > span.high_us]


def _settling(span: Span) -> str:
    """Name the one measurement that would narrow an interval most."""
    first = span.dominant[0]
    if first == MODEL:
        return f"a measured call on {span.variant}"
    return f"knowing {span.variant}'s own plan" if first == PLAN else f"measuring `{first}` of {span.variant}"


def _span(span: Span) -> str:
    """Print between which times a product lies, and what makes that wide."""
    why = ", ".join(map(figure_words, span.dominant))
    return f"({short(span.low_us)} .. {short(span.high_us)}{f'; {why}' if why else ''})"


def short(time_us: float) -> str:
    """Print a time with no more digits than an estimate deserves: whole from 10 us on."""
    return f"{time_us:,.1f}" if time_us < 10 else f"{time_us:,.0f}"


def figure_words(figure: str) -> str:
    """Return a figure's path in words, without its unit: launch.per_core_us is "launch per core"."""
    *heads, last = figure.split(".")[-2:]
    for unit in UNITS:
        heads, last = [head.removesuffix(unit) for head in heads], last.removesuffix(unit)
    return " ".join([*heads, last.replace("_", " ")])


def _parts(product: Entry) -> str:
    names = (("launch", "launch_us"), ("entry", "entry_us"), ("cores", "core_us"))
    return ", ".join(f"{name} {microseconds(product[part])}" for name, part in names)


def _largest(product: Entry, where: str = "") -> str:
    """Say which kernel takes most of the time, which of its pipes is busy longest, and which is next."""
    layers = product.get("layers")
    if not layers and not product["kernels"]:
        return "No kernel runs."
    if layers:
        layer = max(layers, key=lambda layer: float(layer["total_us"]))
        kernel = _longest(layer["kernels"])
        what = f"layer {layer['name']} ({layer['count']} of them) takes {percent(layer['share'])} of it, "
        what += f"{kernel['name']} the longest of its kernels"
    else:
        kernel = _longest(product["kernels"])
        share = percent(kernel["time_us"] / product["time_us"]) if product["time_us"] else percent(1.0)
        what = f"{kernel['name']} takes {share if len(product['kernels']) > 1 else 'all'} of it"
    busy = percent(kernel["busy"].get(kernel["bound_by"], 0.0))
    there = f"On {where} {what}" if where else what[0].upper() + what[1:] if layers else what
    line = f"{there}; the busiest of its pipes is {kernel['bound_by']}, {busy} of its cycles"
    pipe = next_bound(kernel)
    return f"{line}, the next {pipe}, {percent(kernel['busy'][pipe])}." if pipe else f"{line}."


def _longest(kernels: Sequence[Entry]) -> Entry:
    return max(kernels, key=lambda kernel: float(kernel["time_us"]))


def next_bound(kernel: Entry) -> str:
    """Return the pipe that bounds a kernel once its busiest one is lifted; no name where one pipe works."""
    others = {pipe: busy for pipe, busy in kernel["busy"].items() if pipe not in ("S", kernel["bound_by"])}
    return max(others, key=lambda pipe: float(others[pipe])) if others else ""
