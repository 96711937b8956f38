"""Tables of several products: what a run takes on each, and which there are."""

from __future__ import annotations

from collections.abc import Sequence

from ascendsim.report.tables import TIME_PARTS, Entry, TextTable, microseconds

# So many names of variants keep a row within 160 columns.
NAMES = 7


def products_table(products: Sequence[Entry]) -> TextTable:
    """Show the products side by side: the whole time, and that on the cores once the kernels have begun.

    Arithmetic only where it differs.
    """
    first = products[0]
    # What is equal on all products is told in words below the tables.
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
            *(microseconds(product[part]) for part in (*TIME_PARTS, "time_us")),
            *([_interval(product["interval"])] if with_interval else []),
            *(_speed(first[part], product[part]) for part in ("time_us", "core_us")),
        )
        for product in products
    )
    times = (*(["cycles"] if one_clock else []), "launch", "entry", "core", "us")
    times += ("interval",) if with_interval else ()
    headings = ("product", *(heading for _, heading in differing), *times, "speed", "core speed")
    title = "Products side by side (microseconds; speed: us of the first / us, core speed: the same of core)"
    return TextTable(title, headings, frozenset(range(1 + len(differing))), rows)


def _interval(interval: Entry) -> str:
    return f"{microseconds(interval['shortest_us'])} .. {microseconds(interval['longest_us'])}"


def _speed(first_us: float, time_us: float) -> str:
    # A call of no kernels, such as one of an empty tensor, is neither faster nor slower.
    return f"{first_us / time_us:.2f}" if time_us else ""


def product_table(rows: Sequence[Entry]) -> TextTable:
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
    return TextTable("Products", headings, frozenset({0, 1, 6}), cells)
