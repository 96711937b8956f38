"""The tables of a run that have all products in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ascendsim.report.headline import next_bound, short, span_of
from ascendsim.report.tables import (
    OTHERS_IN_ONE,
    TIME_PARTS,
    Entry,
    gradient_table,
    layer_table,
    like_terms,
    time_table,
)
from ascendsim.studies.table import Table, microseconds, percent, text_table, words

# Fields that the columns of a plan show; every other field that is set appears with its name.
_SHOWN = (
    *("schedule", "chosen_by", "base_m", "base_n", "base_k", "step_ka", "step_kb", "used_cores"),
    *("al1_buffers", "bl1_buffers", "al0_buffers", "bl0_buffers", "cl0_buffers"),
)
_GRID = ("batch_dim", "m_dim", "n_dim", "k_dim")
# What a task covers of rows, reduction and columns.
_SINGLE = ("single_core_m", "single_core_k", "single_core_n")


def kernels_table(products: Sequence[Entry], *, cube: bool = False) -> Table:
    """Show the time of each kernel by what it goes to, its cores, and the pipe that is busy longest.

    cube    those of the cube alone, where there are such: the products side by side have the sums of others
    """
    # Tables that are set below each other have the same columns.
    share = any(len(product["kernels"]) > 1 for product in products)
    shown = [_of_the_cube(product) for product in products] if cube else products
    table = _joined(shown, partial(_bound_table, share=share))
    # Cycles of different clocks say nothing below each other.
    if len({product["cube_mhz"] for product in products}) == 1:
        return table
    return replace(table.without({"cycles"}), title="Time of each kernel (us = launch + entry + core)")


def errors_table(products: Sequence[Entry]) -> Table:
    """Show how far each gradient is from float64; products of equal bits share their rows."""
    alike: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    judged = [product for product in products if product["gradients"]]
    for product in judged:
        alike.setdefault(gradient_table(product).rows, []).append(product["variant"])
    first = gradient_table(judged[0])
    stored = {gradient["stored"] for product in judged for gradient in product["gradients"]}
    if len(judged) > 1 and len(stored) == 1:
        first = replace(first, title=f"{first.title} (stored as {stored.pop()})")
    if len(judged) == 1:
        return first
    names = [f"all {len(of)}" if len(of) == len(judged) else ", ".join(of) for of in alike.values()]
    made = _stacked(first, names, list(alike))
    return made.without({"stored as"}) if "stored as" in first.title else made


def plans_table(products: Sequence[Entry]) -> Table:
    """Show the plan of each kernel on the cube: a line for each."""
    return _joined(products, _plans_of)


def layers_table(products: Sequence[Entry]) -> Table:
    """Show the layers of a network on several products: microseconds of one of each."""
    first = products[0]
    rows = [
        (layer["name"], str(layer["count"]), *(microseconds(p["layers"][at]["time_us"]) for p in products))
        for at, layer in enumerate(first["layers"])
    ]
    count = str(sum(layer["count"] for layer in first["layers"]))
    rows.append(("network", count, *(microseconds(product["time_us"]) for product in products)))
    headings = ("layer", "count", *(product["variant"] for product in products))
    title = "Layers side by side (us of one layer; the network: times count)"
    return text_table(title, headings, frozenset({0}), tuple(rows), total=True)


def network_table(product: Entry) -> Table:
    """Show what the kernels of each layer cost; if several multiply nothing, these are one column.

    A call of a split core has up to a dozen kernels: with a column for each, no terminal is wide enough.
    """
    kernels = [kernel for layer in product["layers"] for kernel in layer["kernels"]]
    if len({kernel["name"] for kernel in kernels if not kernel["macs"]}) < 2:
        return layer_table(product)
    layers = [
        layer | {"kernels": _others_in_one(layer["kernels"], OTHERS_IN_ONE)} for layer in product["layers"]
    ]
    return layer_table(product | {"layers": layers})


def _of_the_cube(product: Entry) -> Entry:
    """Return a product with the kernels that multiply; where none does, with all."""
    kernels = [kernel for kernel in product["kernels"] if kernel["macs"]]
    return product | {"kernels": kernels} if kernels else product


def _others_in_one(kernels: Sequence[Entry], name: str) -> list[Entry]:
    """Return the kernels that multiply, then all others as one of this name with their sums."""
    multiply = [kernel for kernel in kernels if kernel["macs"]]
    others = [kernel for kernel in kernels if not kernel["macs"]]
    if not others:
        return multiply
    sums = {key: sum(kernel[key] for kernel in others) for key in ("cycles", "time_us", *TIME_PARTS)}
    # They run on different cores and wait for different pipes, so that one entry can name neither.
    return [*multiply, others[0] | sums | {"name": name, "cores_used": "", "bound_by": ""}]


def _bound_table(product: Entry, *, share: bool) -> Table:
    """Return the times of the kernels, with the pipe that is busy longest and the one that is next."""
    table = time_table(product, share=share)
    bound = [
        tuple(f"{pipe} {percent(kernel['busy'].get(pipe, 0.0))}" if pipe else "" for pipe in pipes)
        for kernel in product["kernels"]
        for pipes in [(kernel["bound_by"], next_bound(kernel))]
    ]
    bound += [("", "")] * (len(table.values) - len(bound))
    values = tuple((*row, *cells) for row, cells in zip(table.values, bound, strict=True))
    return replace(table, columns=(*table.columns, words("busiest"), words("next")), values=values)


def _plans_of(product: Entry) -> Table:
    """Return the plans of one product's kernels, of all layers of a network."""
    layers = product.get("layers") or [{"name": "", "kernels": product["kernels"]}]
    rows = tuple(
        (*((layer["name"],) if layer["name"] else ()), *_plan_cells(kernel["name"], kernel["plan"]))
        for layer in layers
        for kernel in layer["kernels"]
        if kernel["plan"]
    )
    headings = ("kernel", "nest", "m x k x n", "steps", "L1", "L0", "L0C", "cores", "chosen by", "besides")
    first: tuple[str, ...] = ("layer",) if "layers" in product else ()
    at = len(first)
    title = "Plans (base block; slices and copies of both operands in L1, copies in L0; docs/plans.md)"
    return text_table(title, (*first, *headings), frozenset({*range(at + 2), at + 8, at + 9}), rows)


def _plan_cells(kernel: str, plan: Entry) -> tuple[str, ...]:
    return (
        kernel,
        plan["schedule"],
        f"{plan['base_m']}x{plan['base_k']}x{plan['base_n']}",
        f"{plan['step_ka']}+{plan['step_kb']}",
        f"{plan['al1_buffers']}+{plan['bl1_buffers']}",
        f"{plan['al0_buffers']}+{plan['bl0_buffers']}",
        str(plan["cl0_buffers"]),
        str(plan["used_cores"]),
        plan["chosen_by"],
        ", ".join(_besides(plan)),
    )


def _besides(plan: Entry) -> list[str]:
    """Return the other fields of a plan, with the longest names shortened."""
    said = {name: value for name, value in plan.items() if name not in (*_SHOWN, *_GRID, *_SINGLE)}
    besides = []
    if any(plan.get(name) for name in _GRID):
        # Of grad_input there are no parts of the rows.
        parts = [str(plan.get(name) or 1) for name in _GRID if name != "k_dim" or plan.get(name)]
        besides.append(f"grid {'x'.join(parts)}")
    if any(plan.get(name) for name in _SINGLE):
        # What a task does not cut is whole.
        besides.append(f"single_core {'x'.join(str(plan.get(name) or 'all') for name in _SINGLE)}")
    return [*besides, *(f"{name} {value}" for name, value in said.items())]


def _joined(products: Sequence[Entry], make: Callable[[Any], Table]) -> Table:
    """Return the tables of several products as one, without sums, which the products side by side have."""
    tables = [make(product) for product in products]
    if len(tables) == 1:
        return tables[0]
    names = [product["variant"] for product in products]
    return _stacked(tables[0], names, [t.values[:-1] if t.total else t.values for t in tables])


def _stacked(first: Table, names: Sequence[str], parts: Sequence[Sequence[tuple[Any, ...]]]) -> Table:
    """Return parts of a table as one, each under its name in a column before."""
    rows = tuple(
        ("" if at else name, *row)
        for name, part in zip(names, parts, strict=True)
        for at, row in enumerate(part)
    )
    return Table(first.title, (words("product"), *first.columns), rows)


# So many names of variants keep a row within 160 columns.
NAMES = 7


def products_table(products: Sequence[Entry]) -> Table:
    """Show the products side by side in like terms; their arithmetic only where it differs."""
    first = products[0]
    # Values that are equal on all products stand in words below the tables.
    differing = [
        (name, heading)
        for name, heading in (("compute_dtype", "compute"), ("accumulation", "accumulation"))
        if len({product[name] for product in products}) > 1
    ]
    # Cycles of different clocks say nothing side by side.
    one_clock = len({product["cube_mhz"] for product in products}) == 1
    # A column only if somebody asked for it; all products of a run have an interval or none.
    with_interval = bool(first.get("interval"))
    rows = tuple(
        (
            f"{product['product']} ({product['variant']})",
            *(product[name] for name, _ in differing),
            *([f"{product['cycles']:,}"] if one_clock else []),
            *map(microseconds, (*like_terms(product).values(), product["time_us"])),
            *([_interval(product)] if with_interval else []),
        )
        for product in products
    )
    times = (*(["cycles"] if one_clock else []), *like_terms(first), "us")
    times += ("80 % interval",) if with_interval else ()
    headings = ("product", *(heading for _, heading in differing), *times)
    title = "Products side by side (us; launch, entry and core of the kernels that multiply)"
    return text_table(title, headings, frozenset(range(1 + len(differing))), rows)


def _interval(product: Entry) -> str:
    span = span_of(product)
    return f"{short(span.low_us)} .. {short(span.high_us)}"


def product_table(rows: Sequence[Entry]) -> Table:
    """List products; variants that differ in nothing shown share a row, so many as fit.

    A star marks the variant that the plain name means.
    """
    # The 910_95 has 35 variants, of which most differ in nothing that a column shows.
    alike: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        cores = f"{row['cube_cores']} + {row['vector_cores']}"
        numbers = (str(row["cube_mhz"]), str(row["figures"]), str(row["assumed"]))
        name = row["variant"] + ("*" if row["default"] else "")
        alike.setdefault((row["product"], row["core_structure"], cores, *numbers), []).append(name)
    cells = tuple(
        (*key, ", ".join(names[first : first + NAMES]))
        for key, names in alike.items()
        for first in range(0, len(names), NAMES)
    )
    headings = ("product", "cores", "cube or AI + vector", "MHz", "figures", "assumed", "variants")
    return text_table("Products", headings, frozenset({0, 1, 6}), cells)
