"""The page of a run: pictures and tables of a call, or of the layers of a network, on each product."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.report.headline import headline
from ascendsim.report.overview import errors_table, layers_table, plans_table, products_table
from ascendsim.report.page import (
    NAMED,
    Page,
    Picture,
    Roof,
    Roofline,
    RooflinePoint,
    Section,
    StackedBar,
    Stacks,
)
from ascendsim.report.tables import (
    Entry,
    busy_table,
    bytes_table,
    critical_path_table,
    layer_table,
    occupation_table,
    time_table,
)
from ascendsim.report.words import (
    closing_lines,
    common_lines,
    left_out_line,
    problem_line,
    product_line,
    standards_line,
    terms_line,
)
from ascendsim.studies.table import Table, form, numbers, percent, us, words
from ascendsim.timing.timeline import stages

if TYPE_CHECKING:
    from ascendsim.ops.results import KernelResult
    from ascendsim.profile import Profile


def notes_of_layers(layers: Sequence[Entry], notes: Callable[[Entry], Iterable[str]]) -> Iterator[str]:
    """Yield the notes of all layers, each once; a note that does not hold for all names its layers."""
    of: dict[str, list[str]] = {}
    for layer in layers:
        for note in dict.fromkeys(notes(layer)):
            of.setdefault(note, []).append(layer["name"])
    for note, names in of.items():
        others = [layer["name"] for layer in layers if layer["name"] not in names]
        if not others:
            yield note
        elif len(others) < len(names):
            yield f"All layers but {', '.join(others)}: {note}"
        else:
            yield f"{', '.join(names)}: {note}"


MEGA = 1e6
# What the cube waits for, in the order of the legend.
_CAUSES = ("MTE1", "MTE2", "FIX", "V", "MTE3", "S", "M")


class Named(NamedTuple):
    """A kernel of a report, and its title there: its own name, or its layer's and its own."""

    name: str
    kernel: Entry


def kernels_of(product: Entry) -> list[Named]:
    """Return the kernels of a call, or of one of each layer of a network."""
    if "layers" not in product:
        return [Named(kernel["name"], kernel) for kernel in product["kernels"]]
    return [
        Named(f"{layer['name']} {kernel['name']}", kernel)
        for layer in product["layers"]
        for kernel in layer["kernels"]
    ]


def products_picture(products: Sequence[Entry]) -> Picture:
    """Draw where the microseconds of each product go: launch, entry, the products of the cube, all else."""
    stacks = tuple(StackedBar(product["variant"], tuple(_parts(product))) for product in products)
    caption = (
        "Microseconds of the call on each product: launches and entries of all its kernels, then the core "
        "time of the kernels that multiply, and of all others."
    )
    return Picture(Stacks(stacks, "us"), caption)


def _parts(product: Entry) -> Iterator[tuple[str, float]]:
    yield "launch", product["launch_us"]
    yield "entry", product["entry_us"]
    found: dict[str, float] = {}
    for layer in product.get("layers") or [{"count": 1, "kernels": product["kernels"]}]:
        for kernel in layer["kernels"]:
            name = kernel["name"] if kernel["macs"] else "other kernels"
            found[name] = found.get(name, 0.0) + layer["count"] * kernel["core_us"]
    # The kernels that multiply first, so that they begin near each other.
    yield from sorted(found.items(), key=lambda part: part[0] == "other kernels")


@default_arithmetic
def roof_of(product: Entry, profile: Profile) -> Roof | None:
    """Return the product's peak rates in the format of the call; None where nothing is multiplied."""
    for _, kernel in kernels_of(product):
        if kernel["macs"] and kernel["cube_utilisation"]:
            full = kernel["macs"] / kernel["cube_utilisation"]
            peak = full / (kernel["cycles"] / product["cube_mhz"]) / MEGA
            read = float(profile.links["l2_read"].total_bytes_per_cycle) * profile.clock.cube_mhz / MEGA
            return Roof(peak, read)
    return None


@default_arithmetic
def points_of(product: Entry, profile: Profile) -> list[RooflinePoint]:
    """Return the kernels that multiply and read bytes, by their core time: without launch and entry."""
    return [
        RooflinePoint(
            name,
            kernel["macs"] / moved,
            kernel["macs"] / kernel["core_us"] / MEGA,
            _mte1(kernel, product),
            _memory(kernel, profile),
        )
        for name, kernel in kernels_of(product)
        if kernel["macs"] and kernel["core_us"] and (moved := kernel["bytes"].get("l2_read", 0))
    ]


def _mte1(kernel: Entry, product: Entry) -> float | None:
    """Return the rate of a kernel whose MTE1 is always busy with the copies that it makes."""
    busy_us = kernel["busy"].get("MTE1", 0.0) * kernel["cycles"] / product["cube_mhz"]
    return kernel["macs"] / busy_us / MEGA if busy_us else None


def _memory(kernel: Entry, profile: Profile) -> float | None:
    """Return the rate of a kernel whose link to main memory is always full."""
    moved = kernel["bytes"].get("memory", 0)
    full = float(profile.links["memory"].total_bytes_per_cycle) * profile.clock.cube_mhz / MEGA
    return kernel["macs"] / moved * full if moved else None


def roofline_picture(points: Sequence[RooflinePoint], roof: Roof) -> Picture:
    """Draw the kernels below the roof."""
    caption = (
        "Each dot is a kernel on the cube: multiply-adds in its core time, over multiply-adds for each byte "
        "that its cores read through L2. No kernel can be above the line: on its slope the link from L2 to "
        "all cores is full, on its level all cubes work. "
        f"They meet at {roof.ridge:,.3g} multiply-adds for each byte. Marks above a dot are roofs of its "
        "own: what its copies from L1 to L0 (MTE1) and its bytes over main memory allow if they never wait."
        + (" Numbers are those of the table." if len(points) > NAMED else "")
    )
    return Picture(Roofline(tuple(points), roof), caption)


ROOFLINE = (
    *(numbers("no."), words("kernel")),
    *(
        numbers(heading, show=form(",.3g"))
        for heading in ("multiply-adds / byte", "10^12 / s", "L2 and cube", "MTE1", "memory")
    ),
    *(words("of"), numbers("reached", show=percent)),
)


def roofline_table(points: Sequence[RooflinePoint], roof: Roof) -> Table:
    """Show how far each kernel is below its roofs, and which of them is the lowest."""
    rows = tuple(
        (
            # A few have their names in the picture.
            number if len(points) > NAMED else None,
            *point[:3],
            roof.at(point.intensity),
            point.mte1,
            point.memory,
            *_lowest(point, roof),
        )
        for number, point in enumerate(points, start=1)
    )
    return Table("Kernels below the roof", ROOFLINE, rows).without_empty({"no."})


def _lowest(point: RooflinePoint, roof: Roof) -> tuple[str, float]:
    """Return which roof is the lowest above a kernel, and how much of it the kernel reaches."""
    shared = "cube" if point.intensity >= roof.ridge else "L2"
    roofs = {shared: roof.at(point.intensity), "MTE1": point.mte1, "memory": point.memory}
    least, name = min((height, name) for name, height in roofs.items() if height is not None)
    return name, point.rate / least


def waits_picture(product: Entry) -> Picture | None:
    """Draw where the cube's cycles go in each kernel that has it: busy, waits by cause, entry, idle."""
    stacks = []
    for name, kernel in kernels_of(product):
        spent = kernel["occupation"].get("M")
        if spent and kernel["macs"]:
            time_us = kernel["cycles"] / product["cube_mhz"]
            causes = sorted(spent["waiting"], key=_rank)
            waits = [(f"waits for {cause.removeprefix('AIC.')}", spent["waiting"][cause]) for cause in causes]
            shares = [("entry", spent["entry"]), ("busy", spent["busy"]), *waits, ("idle", spent["idle"])]
            stacks.append(StackedBar(name, tuple((what, share * time_us) for what, share in shares)))
    if not stacks:
        return None
    caption = (
        "Where the microseconds of the cube go, mean of the cores: it multiplies, waits for a result or a "
        "free slot of the named pipe, or has nothing to do (idle): its work has not come, or is through."
    )
    return Picture(Stacks(tuple(stacks), "us"), caption)


def _rank(cause: str) -> tuple[int, str]:
    return (_CAUSES.index(cause) if cause in _CAUSES else len(_CAUSES)), cause


def stages_picture(kernels: Sequence[KernelResult], profile: Profile) -> tuple[Picture, Table] | None:
    """Draw how long each kernel fills, multiplies and drains, with the numbers; None: nothing multiplies."""
    found = [(kernel.name, kernel.cycles, made) for kernel in kernels if (made := stages(kernel.timeline))]
    if not found:
        return None
    mhz = profile.clock.cube_mhz
    stacks = [
        StackedBar(name, tuple((what, cycles / mhz) for what, cycles in made._asdict().items()))
        for name, _, made in found
    ]
    caption = (
        "The core whose cube ends last: entry of the kernel, fill until its first product, steady until its "
        "last one, drain until all results are visible."
    )
    rows = tuple((name, *(part / mhz for part in made), cycles / mhz) for name, cycles, made in found)
    columns = (
        words("kernel"),
        *map(us, ("entry us", "fill us", "steady us", "drain us", "us without launch")),
    )
    table = Table("Fill, steady and drain of the kernels on the cube", columns, rows)
    return Picture(Stacks(tuple(stacks), "us"), caption), table


def run_page(
    document: Entry, profiles: Sequence[Profile], kernels: Sequence[Sequence[KernelResult]] = ()
) -> Page:
    """Return the page of a document; with the kernels of each product also how they fill and drain."""
    products = document["products"]
    sections = [_overview(products)]
    for at, (product, profile) in enumerate(zip(products, profiles, strict=True)):
        sections += _of_product(product, profile, kernels[at] if kernels else ())
    if any(product.get("gradients") for product in products):
        judged = [product for product in products if product["gradients"]]
        rules = tuple(dict.fromkeys(standards_line(product) for product in judged))
        sections.append(Section("How far the gradients are from float64", rules, (), (errors_table(judged),)))
    sections.append(Section("What holds of all products", tuple(common_lines(products))))
    definitions = {
        f"{place}: {name}": text
        for place, columns in document["definitions"].items()
        for name, text in columns.items()
    }
    facts = {
        "what was asked": problem_line(document["problem"]),
        "command": shlex.join(["ascendsim", *document["command"]]),
        "version": f"ascendsim {document['ascendsim']}",
    }
    return Page(
        f"Backward of {document['title']}",
        f"{headline(products, document.get('ratios', ()))} {left_out_line(document.get('left_out'))}".strip(),
        tuple(sections),
        definitions,
        facts,
    )


def _overview(products: Sequence[Entry]) -> Section:
    """Return the products side by side; of a single one where its time goes."""
    title = "Products side by side" if len(products) > 1 else "Where the time goes"
    tables: list[Table] = []
    text = ""
    if len(products) > 1:
        text, tables = terms_line(products), [products_table(products)]
        if "layers" in products[0]:
            tables.append(layers_table(products))
    return Section(title, (text,) if text else (), (products_picture(products),), tuple(tables))


def _of_product(product: Entry, profile: Profile, kernels: Sequence[KernelResult]) -> list[Section]:
    """Return the sections of one product: the pictures with their numbers, and details to unfold."""
    network = "layers" in product
    times = layer_table(product) if network else time_table(product)
    pictures: list[Picture] = []
    tables = [times, plans_table([product])]
    waits = waits_picture(product)
    if waits:
        pictures.append(waits)
    filled = stages_picture(kernels, profile)
    if filled:
        pictures.append(filled[0])
        tables.append(filled[1])
    points, roof = points_of(product, profile), roof_of(product, profile)
    if points and roof:
        pictures.append(roofline_picture(points, roof))
        tables.append(roofline_table(points, roof))
    head = Section(
        product_line(product),
        tuple(closing_lines(product)),
        tuple(pictures),
        tuple(table for table in tables if table.rows),
    )
    return [head] if network else [head, _details(product)]


def _details(product: Entry) -> Section:
    tables = [busy_table(product), bytes_table(product), critical_path_table(product)]
    tables += [occupation_table(kernel) for kernel in product["kernels"]]
    title = f"{product['variant']}: pipes, bytes, critical path"
    return Section(title, (), (), tuple(table for table in tables if table.rows), collapsed=True)
