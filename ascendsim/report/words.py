"""The sentences that every report prints: which product, which arithmetic, how sure we are."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ascendsim.report.tables import Entry, like_terms
from ascendsim.studies.table import share


def problem_line(problem: Mapping[str, Any]) -> str:
    """Name what was asked for, as it was asked."""
    return ", ".join(f"{name} {_text(value)}" for name, value in problem.items())


def left_out_line(left_out: Mapping[str, Any] | None) -> str:
    """Say what of a network is not in the times, and how much of its work that is; "" where nothing is."""
    if not left_out or not left_out["layers"]:
        return ""
    layers, unknown = left_out["layers"], left_out["unknown"]
    names = ", ".join(
        f"{one['name']} ({one['kind']}{f', {n} of them' if (n := one['count']) > 1 else ''})"
        for one in layers
    )
    count = sum(one["count"] for one in layers)
    part = f"{'at least ' if unknown else ''}{share(left_out['share'])} % of the multiply-adds"
    more = f"; how many {unknown} of them make is not known" if unknown else ""
    return f"Not in these times: {count} of {left_out['of']} layers, {part}{more}: {names}."


def core_name(core_structure: str, kind: str) -> str:
    """Name a kind of core as its product does: a core that has both cube and vector unit is an AI core."""
    return "AI core" if core_structure == "unified" and kind == "cube" else f"{kind} core"


def product_line(product: Entry) -> str:
    """Name the product with its variant, cores and clock."""
    cores = product["cores"]
    # "AI core" is the vendor's word for a cube and a vector unit in one core.
    if product["core_structure"] == "split":
        shown = f"{cores['cube']} cube and {cores['vector']} vector cores"
    else:
        extra = f" and {cores['vector']} vector cores" if cores["vector"] else ""
        shown = f"{cores['cube']} AI cores{extra}"

    name = f"{product['product']} (variant {product['variant']})"
    return f"{name}: {shown}, cube clock {product['cube_mhz']} MHz"


def arithmetic_line(product: Entry) -> str:
    """Say in which format and under which model the results were computed."""
    line = f"Arithmetic: {product['compute_dtype']} in the cube, accumulation model {product['accumulation']}"
    # An estimate executes no instruction.
    if product["order"] is None:
        return f"{line}; no gradients computed."
    return f"{line}; executed in {order_words(product['order'])}."


def order_words(order: str) -> str:
    """Say an order of execution in words."""
    return f"{order} order" if order in ("program", "arrival") else f"a random legal order ({order})"


def figures_line(product: Entry) -> str:
    """Say how many of the product's figures are assumed, or a design."""
    total, designed = sum(product["figures"].values()), product["figures"].get("design", 0)
    assumed = len(product["assumed_figures"])
    design = f"{designed} of them a design, which nobody has measured, and {assumed} assumed"
    line = f"Figures: {total} of the product, {design if designed else f'{assumed} of them assumed'}"
    # A file of one's own goes by its path: no other name leads to it.
    name = shlex.quote(product.get("path") or product["variant"])
    return f"{line} (`ascendsim profiles {name}`)."


LEGEND = (
    "launch: what a task takes besides its time on the cores; entry: there, up to the first instruction; "
    "core: from then on. Launch and entry come from the product file. cube: multiply-adds asked for / what "
    "all cubes could do in these cycles. The report folder (--out) defines every column."
)
OTHERS = (
    "others: kernels of the call that multiply nothing: they change layouts, cast, clear or add. --details "
    "shows each."
)
TERMS = (
    "launch, entry, core: of a task before its cores run, up to their first instruction, from then on. "
    "layout: kernels that change layouts; others: that cast, clear or sum. cube: share of its peak."
)
MORE = "More with --details: every kernel, pipes, bytes, plans, notes, what each product's figures rest on."

GRADIENT_LEGEND = (
    "Errors: against float64; equal bits: of it, rounded once; standards: docs/precision.md on sums."
)


# How the note on products that change no layouts begins, and what the line below says of several instead.
ROWS = "The cube's kernels read and write tensors row after row"
READS_ROWS = "assumed to read and write rows for nothing"


def terms_line(products: Sequence[Entry]) -> str:
    """Say which of several products change no layouts, and how to compare them with those that do."""
    layout = {product["variant"]: like_terms(product)["layout"] for product in products}
    without = [name for name, time_us in layout.items() if not time_us]
    if not any(layout.values()) or not without:
        return ""
    whole = [layer for product in products for layer in product.get("layers") or [product]]
    names, several = " and ".join(without), len(without) > 1
    # A Transpose changes a layout too, and packed tensors do not spare it.
    if any(kernel["op_type"] == "TransData" for layer in whole for kernel in layer["kernels"]):
        asked = "Compare core, or ask for --layout NC1HWC0"
        return f"{asked}: {names} {'are' if several else 'is'} {READS_ROWS}."
    return f"Compare core: {names} {'run' if several else 'runs'} no kernel that changes layouts."


def special_lines(product: Entry) -> list[str]:
    """Say of each gradient with NaN or Inf how many were due, how many came, and how many differ."""
    return [
        f"NaN or Inf in {gradient['name']}: due in {gradient['special_expected']:,} of {gradient['count']:,} "
        f"elements, got in {gradient['special_got']:,}, different in {gradient['special_mismatches']:,}; no "
        "error is taken of them."
        for gradient in product.get("gradients", ())
        if gradient.get("special_expected") or gradient.get("special_got")
    ]


def standards_line(product: Entry) -> str:
    """Explain each standard that the gradients were held against."""
    # Gradients of one dtype are held against the same rules, which are printed once.
    verdicts = [verdict for gradient in product["gradients"] for verdict in gradient.get("verdicts", ())]
    rules = dict.fromkeys(f"{verdict['standard']}: {verdict['rule']}" for verdict in verdicts)
    return f"Standards, and NaN and Inf where R(g) has them: {'; '.join(rules)}." if rules else ""


def interval_line(product: Entry) -> str:
    """Say between which times the call lies, and which figures move it most."""
    interval, usual = product["interval"], product["time_us"]
    # Three show where to measure next; result.json has all.
    largest = ", ".join(
        f"{effect['figure']} ({effect['shortest_us'] - usual:+.2f} to {effect['longest_us'] - usual:+.2f})"
        for effect in interval["effects"][:3]
    )
    line = (
        f"Interval: {interval['shortest_us']:,.2f} to {interval['longest_us']:,.2f} us "
        f"({interval['least_cycles']:,} to {interval['most_cycles']:,} cycles) if the {interval['figures']} "
        "numbers with a range lie anywhere in it, all at once"
    )
    moved = f"most is moved by {largest}" if largest else "none moves this call"
    # Such as a buffer in which the plan has no room: nobody knows what another plan would take.
    if left := interval.get("left_out"):
        moved += f"; left out, as this plan cannot be timed there: {', '.join(left)}"
    whole = f"{interval['low_us']:,.2f} to {interval['high_us']:,.2f} us"
    stands = f" {unknown}" if (unknown := own_errors_line(product)) else ""
    return f"{line}; {moved}. With the plan and the model's own error {whole}, in four cases of five.{stands}"


ANY = "any kernel"


def own_errors_line(product: Entry) -> str:
    """Say of which kernels no own error of the model is known on a product; "" where all are."""
    unknown, kinds = _unknown_errors(product)
    others = sorted({f"the {share['of']}'s" for share in unknown})
    stand = f"{' and '.join(others)} {'stands' if len(others) == 1 else 'stand'} in"
    tried, inside = (sum(share[name] for share in unknown) for name in ("tried", "inside"))
    held = f", and holds {inside} of {tried} measured there" if tried else ""
    said = f"No own error of the model is known of {kinds} on {product['variant']} ({stand}{held})."
    return said if unknown else ""


def own_errors_in_short(products: Sequence[Entry]) -> str:
    """Name the products of which no own error of the model is known, or not of all kernels."""
    unknown = {product["variant"]: _unknown_errors(product) for product in products}
    none = [name for name, (found, kinds) in unknown.items() if found and kinds == ANY]
    some = [name for name, (found, kinds) in unknown.items() if found and kinds != ANY]
    parts = [f"on {', '.join(none)}"] * bool(none) + [f"of all kernels on {', '.join(some)}"] * bool(some)
    said = (
        f"No own error of the model is known {', nor '.join(parts)}: errors of others stand in (--details)."
    )
    return said if parts else ""


def _unknown_errors(product: Entry) -> tuple[list[Entry], str]:
    """Return the shares of a product's time whose own error is not known, and the kinds of their kernels."""
    shares = ((product.get("interval") or {}).get("model") or {}).get("shares", ())
    unknown = [share for share in shares if not share["own"]]
    return unknown, ANY if len(unknown) == len(shares) else ", ".join(share["kind"] for share in unknown)


def closing_lines(product: Entry) -> list[str]:
    """Return the closing lines of one of several products: its NaN and Inf, the grounds of its figures."""
    lines = [*special_lines(product), figures_line(product)]
    if product.get("interval"):
        lines.append(interval_line(product))
    return [*lines, f"Evidence: {product['evidence']}."] if product["evidence"] else lines


def closing_of_all(products: Sequence[Entry], *, details: bool = False) -> list[str]:
    """Return the closing lines of several products: their NaN and Inf.

    details   also what each of them rests on, which figures move it most, and how many are assumed
    """
    own = [
        f"{product['variant']}: {line}"
        for product in products
        for line in (closing_lines(product) if details else special_lines(product))
        if line != figures_line(product)
    ]
    if not details:
        return own
    assumed = ", ".join(
        f"{product['variant']} {len(product['assumed_figures'])} of {sum(product['figures'].values())}"
        for product in products
    )
    return [*own, f"Figures that are assumed: {assumed} (`ascendsim profiles NAME`)."]


ALL_WARM = "; all warm: "  # before the time of each product, at the end of a note on L2


def common_lines(products: Sequence[Entry], *, details: bool = True) -> list[str]:
    """Return the arithmetic and the notes, each once; what is not of all products names those it is of.

    details   also the notes that hold of all of several products
    """
    # By the line itself: equal words of several products are one line.
    of: dict[str, list[str]] = {}
    warm: dict[str, list[str]] = {}
    for product in products:
        notes = [f"Note: {note}" for note in product["notes"]]
        for line in dict.fromkeys([arithmetic_line(product), *notes]):
            same, own, time = line.partition(ALL_WARM)
            of.setdefault(same, []).append(product["variant"])
            if own:
                warm.setdefault(same, []).append(time.rstrip("."))
    lines = []
    for line, variants in of.items():
        said = len(variants) == len(products) or (ROWS in line and READS_ROWS in terms_line(products))
        if not details and len(products) > 1 and line.startswith("Note") and said and line not in warm:
            continue
        if times := warm.get(line):
            named = [f"{time} on {name}" for time, name in zip(times, variants, strict=True)]
            line += f"{ALL_WARM}{', '.join(named if len(products) > 1 else times)}."
        head, _, rest = line.partition(": ")
        lines.append(line if len(variants) == len(products) else f"{head} on {', '.join(variants)}: {rest}")
    # sorted() keeps the order of equals: arithmetic first, then the notes as they came.
    return sorted(lines, key=lambda line: line.startswith("Note"))


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "x".join(_text(item) for item in value)
    return str(value)
