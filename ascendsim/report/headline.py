"""The first sentences of a run: each product's time, which of them are apart, and what takes most of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
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


def headline(products: Sequence[Entry], ratios: Sequence[Entry] = ()) -> str:
    """Give a call's time and what dominates it; of several products, which are surely apart.

    ratios   of each two products, in the order of `itertools.combinations`; of those with intervals
    """
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
        answer = " ".join(_Order.of(list(map(span_of, products)), ratios).told())
    return f"{answer} {_largest(least, least['variant'])}"


def span_of(product: Entry) -> Span:
    """Return where a product's time lies by its interval, and what makes that wide."""
    interval = product["interval"]
    ends = interval["low_us"], interval["high_us"]
    return Span(product["variant"], product["time_us"], *ends, tuple(interval["dominant"]))


def groups_apart(ranked: Sequence[int], surely: Callable[[int, int], bool]) -> list[list[int]]:
    """Return things in groups, in order: each of a group is surely before each of all groups after it.

    ranked   numbers of the things; where one is surely before another, it stands before it
    """
    groups: list[list[int]] = []
    for at, one in enumerate(ranked):
        if all(surely(before, after) for before in ranked[:at] for after in ranked[at:]):
            groups.append([])
        groups[-1].append(one)
    return groups


class _Order(NamedTuple):
    """Products in the order in which they were asked for, and the ratio of each two of their times.

    ratios   by the places of both products: the time of the second over that of the first
    """

    spans: Sequence[Span]
    ratios: Mapping[tuple[int, int], Entry]

    @classmethod
    def of(cls, spans: Sequence[Span], ratios: Sequence[Entry]) -> _Order:
        """Return the order of products by the ratios of `headline`."""
        return cls(spans, dict(zip(combinations(range(len(spans)), 2), ratios, strict=True)))

    def told(self) -> list[str]:
        """Return a sentence for each group of products that are surely apart from all others."""
        ranked = sorted(range(len(self.spans)), key=lambda at: self.spans[at].time_us)
        groups = groups_apart(ranked, self.surely)
        told, before = [], list[int]()
        for group in groups:
            names = [
                f"{self.spans[at].variant} {short(self.spans[at].time_us)} us {_span(self.spans[at])}"
                for at in group[:MOST_NAMED]
            ]
            if len(group) > MOST_NAMED:
                names.append(f"{len(group) - MOST_NAMED} more")
            place = "" if len(groups) == 1 else "Then: " if before else "Fastest: "
            rest = self._unsure(group) if len(group) > 1 else ""
            joined = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
            told.append(f"{place}{joined}{rest}{self._however(before, group)}.")
            before += group
        return told

    def surely(self, one: int, other: int) -> bool:
        """Whether a product is faster than another wherever their ratio lies."""
        return self._between(one, other)[0] > 1

    def _between(self, one: int, other: int) -> tuple[float, float]:
        """Return the ends of the ratio of the second time over the first."""
        if one < other:
            return self.ratios[one, other]["low"], self.ratios[one, other]["high"]
        return 1 / self.ratios[other, one]["high"], 1 / self.ratios[other, one]["low"]

    def _however(self, before: Sequence[int], group: Sequence[int]) -> str:
        """Say by what a group is slower than the one before where intervals alone would not tell."""
        if not before or max(self.spans[at].high_us for at in before) < min(
            self.spans[at].low_us for at in group
        ):
            return ""
        low, high = self._between(before[-1], group[0])
        which = f"{self.spans[group[0]].variant} takes " if len(group) > 1 else ""
        return f"; {which}{low:.3g} to {high:.3g} times as long as {self.spans[before[-1]].variant}"

    def _unsure(self, group: Sequence[int]) -> str:
        """Say of products that cannot be ordered what is sure of them, and what would settle most."""
        pairs = []
        for one in group:
            after = [self.spans[other].variant for other in group if other != one and self.surely(one, other)]
            pairs += [f"{self.spans[one].variant} before {', '.join(after)}"] if after else []
        rivals = [other for other in group[1:] if not self.surely(group[0], other)]
        low_high = {other: self._between(group[0], other) for other in rivals}
        rival = max(rivals, key=lambda other: low_high[other][1] / low_high[other][0])
        ratio = self.ratios[min(group[0], rival), max(group[0], rival)]
        settle = f": {_settling(ratio)} would settle most" if ratio["dominant"] else ""
        but = f", but {'; '.join(pairs)}" if pairs else ""
        return f" cannot be ordered{but}{settle}"


def _settling(ratio: Entry) -> str:
    """Name the one measurement that would narrow a ratio most."""
    what = ratio["dominant"]
    names = [ratio[("first", "second")[at]] for at in ratio["of"]]
    if what == MODEL:
        return (
            f"measured calls on {' and '.join(names)}" if len(names) > 1 else f"a measured call on {names[0]}"
        )
    return (
        f"knowing {names[0]}'s own plan" if what == PLAN else f"measuring `{what}` of {' and '.join(names)}"
    )


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
