"""The models that a device may have, the ways in which its kernel may cut a reduction, and their answers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.accumulation.reduction import products_of
from ascendsim.numerics.compiled.accumulate import accumulate
from ascendsim.ops.reference.sums import add_in_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

# Kernels deal whole fractals, as many to each part but the last; other counts make one of these parts.
FRACTAL = 16
PARTS = (2, 3, 4, 8)
BLOCKS = (2, 4, 8, 16, 32, 64)
OPTIONS = ("+split3", "+ftz-in", "+ftz-acc", "+saturate")


class Cut(NamedTuple):
    """How a kernel cuts a reduction: into parts, added in float32 in their order, each in Mmads of `base_k`.

    Parts are whole fractals, of equal length but for the last
    """

    base_k: int
    parts: int


@lru_cache
def candidate_names(fmt: str) -> tuple[str, ...]:
    """Return the models that are asked about for operands of a format, the plain ones first."""
    plain = [
        *(
            f"{kind}:{r}"
            for kind in ("exact", "exact-mmad", "seq", "seq-muladd")
            for r in ("RNE", "RNA", "RZ")
        ),
        *(f"block:{k}:{r}" for k in BLOCKS for r in ("RNE", "RNA", "RZ")),
        *(f"block-add:{k}:{r}" for k in BLOCKS for r in ("RNE:RNE", "RZ:RZ", "RZ:RNE", "RNE:RZ")),
        *(f"tree:{k}:{p}:{r}" for k in BLOCKS for p in ("adjacent", "halves") for r in ("RNE", "RZ")),
        *(
            f"align:{k}:F{f}:{r}{acc}"
            for k in (4, 8, 16, 32)
            for f in (23, 24, 25, 26)
            for r in ("RNE", "RZ")
            for acc in ("", ":acc")
        ),
    ]
    if fmt == "float16":
        plain += [f"fp16-acc({kind}:RNE)" for kind in ("seq", "seq-muladd", *(f"block:{k}" for k in BLOCKS))]
    # An option at a time, on the models that the products' files name and their nearest relatives.
    usual = [f"block:{k}:RNE" for k in (4, 8, 16, 32)] + ["seq:RNE", "seq-muladd:RNE"]
    return tuple(plain + [model + option for model in usual for option in OPTIONS])


def cuts(depth: int, unit: int) -> tuple[Cut, ...]:
    """Return the ways in which a kernel may cut a reduction in units of so many products."""
    # The largest first: what fits in one Mmad is usually one.
    lengths = [(depth, 1), *((_length(depth, parts), parts) for parts in PARTS)]
    return tuple(Cut(base, parts) for length, parts in lengths for base in range(length, 0, -unit))


def _length(depth: int, parts: int) -> int:
    """Return the products of a part but the last."""
    return -(-depth // (parts * FRACTAL)) * FRACTAL


def telling_cuts(model: AccumulationModel, depth: int, unit: int) -> tuple[Cut, ...]:
    """Return the cuts under which a model may answer differently: one for each set of places to round at."""
    different: dict[object, Cut] = {}
    for cut in cuts(depth, unit):
        different.setdefault(_places(model, cut, depth), cut)
    return tuple(different.values())


def _places(model: AccumulationModel, cut: Cut, depth: int) -> object:
    """Return what of a cut shows in the bits: its parts, and where blocks begin or Mmads end."""
    if model.overflow == "saturate":
        # An accumulator beyond the largest value is brought back whenever an Mmad ends.
        return tuple(tuple(mmad.start for mmad in part) for part in slices(cut, depth))
    # Chains round at every product, and `exact` at the end of a part, wherever Mmads begin.
    if model.kind in ("seq", "seq-muladd", "exact"):
        return cut.parts
    size = depth if model.kind == "exact-mmad" else int(model.block)
    parts = slices(cut, depth)
    return tuple(tuple(at for mmad in part for at in range(mmad.start, mmad.stop, size)) for part in parts)


def slices(cut: Cut, depth: int) -> Iterator[list[slice]]:
    """Yield the Mmads of each part."""
    length = depth if cut.parts == 1 else _length(depth, cut.parts)
    for first in range(0, depth, length):
        last = min(first + length, depth)
        yield [slice(at, min(at + cut.base_k, last)) for at in range(first, last, cut.base_k)]


def answers(model: AccumulationModel, a: Floats, b: Floats, cut: Cut) -> Floats:
    """Return what a model makes of a (m, k) times b (k, n) under a cut: float32 accumulators (m, n)."""
    parts = []
    for part in slices(cut, a.shape[1]):
        c = np.zeros((a.shape[0], b.shape[1]), np.float32)
        for left, right in products_of(model, [(a[:, mmad], b[mmad]) for mmad in part]):
            accumulate(model, left, right, c)
        parts.append(c)
    return add_in_order(np.stack(parts))


def model_named(name: str, min_exponent: int) -> AccumulationModel:
    """Return a candidate for operands whose smallest normal is two to this power."""
    return AccumulationModel.parse(name).resolve(1, min_exponent)
