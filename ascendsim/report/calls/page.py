"""Make the page of a run of its document: the answer, the products side by side, each product's pictures."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ascendsim.report.calls.pictures import (
    points_of,
    products_picture,
    roof_of,
    roofline_picture,
    roofline_table,
    stages_picture,
    waits_picture,
)
from ascendsim.report.columns import Entry
from ascendsim.report.overview import errors_table, headline, layers_table, plans_table
from ascendsim.report.page.records import Page, Picture, Section
from ascendsim.report.products import products_table
from ascendsim.report.tables import (
    TextTable,
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
    overhead_line,
    problem_line,
    product_line,
    standards_line,
)

if TYPE_CHECKING:
    from ascendsim.ops.results import KernelResult
    from ascendsim.profile import Profile


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
    return Page(f"Backward of {document['title']}", headline(products), tuple(sections), definitions, facts)


def _overview(products: Sequence[Entry]) -> Section:
    """Return the products side by side; of a single one where its time goes."""
    title = "Products side by side" if len(products) > 1 else "Where the time goes"
    tables: list[TextTable] = []
    text = ""
    if len(products) > 1:
        text, tables = overhead_line(products), [products_table(products)]
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
        tables.append(filled[1]._replace(title="Fill, steady and drain of the kernels on the cube"))
    points, roof = points_of(product), roof_of(product, profile)
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
