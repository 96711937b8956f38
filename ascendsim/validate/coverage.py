"""What was measured of convolutions at all: kernels by product, gradient, rank and format.

`coverage.json` holds the counts for the table that the model was made with, so that comparisons of products
can say what stands behind them where the table is not at hand; tools/measured_coverage.py writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from statistics import median
from typing import NamedTuple

from ascendsim.profile import list_products
from ascendsim.validate.compare import Kernel, kernel_key
from ascendsim.validate.schema import Row, Unusable

GRADIENTS = ("grad_input", "grad_weight")
# What a row of a whole call is called, and the gradient that the call makes.
CALLS = {"grad_input_call": "grad_input", "grad_weight_call": "grad_weight"}
RANKS = (2, 3)
DTYPES = ("float16", "bfloat16", "float32", "hf32")

Rows = Iterable[Row | Unusable]


class Cell(NamedTuple):
    """How many distinct kernels of a kind were measured.

    product   of the variant that was measured: "910B"
    kernels   measured by themselves
    calls     known only as the sum of all kernels of a call
    """

    product: str
    gradient: str
    rank: int
    dtype: str
    kernels: int
    calls: int


class Pair(NamedTuple):
    """Two variants, how many problems were measured on both, and of how many the first took less time."""

    first: str
    second: str
    problems: int
    first_faster: int


class Coverage(NamedTuple):
    """All kinds of kernels, measured or not, and the pairs of variants that share a problem."""

    cells: tuple[Cell, ...]
    pairs: tuple[Pair, ...]


NOTHING = Coverage((), ())


def coverage(rows: Rows) -> Coverage:
    """Count the gradients of a table; every product, gradient, rank and format has a cell, most of them 0."""
    measured: dict[Kernel, list[Row]] = {}
    for row in rows:
        gradient = CALLS.get(row.kernel, row.kernel) if isinstance(row, Row) else ""
        if isinstance(row, Row) and gradient in GRADIENTS:
            measured.setdefault(kernel_key(row)._replace(gradient=gradient), []).append(row)
    product_of = _products()
    counts: dict[tuple[str, str, int, str], list[int]] = {
        (product, gradient, rank, dtype): [0, 0]
        for product in dict.fromkeys(product_of.values())
        for gradient in GRADIENTS
        for rank in RANKS
        for dtype in DTYPES
    }
    for kernel, own in measured.items():
        product, rank = product_of.get(kernel.variant, kernel.variant), len(kernel.weight_shape) - 2
        count = counts.setdefault((product, kernel.gradient, rank, kernel.compute_dtype), [0, 0])
        count[all(row.kernel in CALLS for row in own)] += 1
    cells = tuple(Cell(*key, kernels, calls) for key, (kernels, calls) in counts.items())
    return Coverage(cells, tuple(_pairs(measured)))


def _pairs(measured: Mapping[Kernel, Sequence[Row]]) -> Iterable[Pair]:
    """Yield the pairs of variants of different products on which the same problem was measured."""
    times: dict[str, dict[Kernel, float]] = {}
    for kernel, rows in measured.items():
        problem = kernel._replace(variant="")
        times.setdefault(kernel.variant, {})[problem] = median(row.measured for row in rows)
    product_of, names = _products(), sorted(times)
    for at, first in enumerate(names):
        for second in names[at + 1 :]:
            both = times[first].keys() & times[second].keys()
            if both and product_of.get(first) != product_of.get(second):
                faster = sum(times[first][problem] < times[second][problem] for problem in both)
                yield Pair(first, second, len(both), faster)


def _products() -> dict[str, str]:
    """Return the product of each variant."""
    return {variant: product.name for product in list_products() for variant in product.variants}


@lru_cache(maxsize=1)
def known_coverage() -> Coverage:
    """Return the counts of the table that the model was made with."""
    text = (files("ascendsim.validate") / "coverage.json").read_text(encoding="utf-8")
    told = json.loads(text)
    return Coverage(
        tuple(Cell(**cell) for cell in told["cells"]),
        tuple(Pair(**pair) for pair in told["pairs"]),
    )


def coverage_text(found: Coverage) -> str:
    """Return the file that `known_coverage` reads; kinds of which nothing was measured are left out."""
    cells = [cell._asdict() for cell in found.cells if cell.kernels or cell.calls]
    return json.dumps({"cells": cells, "pairs": [pair._asdict() for pair in found.pairs]}, indent=1) + "\n"


def comparison_line(products: Sequence[str]) -> str:
    """Say what was measured of convolutions on some products, by name, and what judges their order."""
    known = known_coverage()
    parts = [f"{product}: {_measured_of(product, known)}" for product in dict.fromkeys(products)]
    product_of = _products()
    pairs = [p for p in known.pairs if {product_of[p.first], product_of[p.second]} <= set(products)]
    order = "no problem was measured on two of them, so that nothing measured judges their order"
    if pairs:
        told = [
            f"{p.problems} problems on both {p.first} and {p.second} ({p.first_faster} of them faster on "
            f"{p.first})"
            for p in pairs
        ]
        order = "measured twice are " + ", ".join(told) + ", which is all that judges their order"
    return f"Convolution backward measured in public: {'; '.join(parts)}; {order}."


def _measured_of(product: str, known: Coverage) -> str:
    own = [cell for cell in known.cells if cell.product == product]
    kernels = [(cell, cell.kernels) for cell in own if cell.kernels]
    calls = [(cell, cell.calls) for cell in own if cell.calls]
    told = [
        _counted(counts, what) for counts, what in ((kernels, "kernels"), (calls, "whole calls")) if counts
    ]
    return " and ".join(told) or "none"


def _counted(counts: Sequence[tuple[Cell, int]], what: str) -> str:
    """Say how many of something there are, of which ranks, gradients and formats."""
    cells = [cell for cell, _ in counts]
    ranks = " and ".join(sorted({f"{cell.rank}-D" for cell in cells}))
    gradients = " and ".join(sorted({cell.gradient for cell in cells}))
    dtypes = ", ".join(sorted({cell.dtype for cell in cells}))
    return f"{sum(count for _, count in counts)} {what} ({ranks} {gradients}, {dtypes})"
