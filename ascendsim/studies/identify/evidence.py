"""What is public about float32 sums of A2 and A3 devices, and how near to it each model comes.

The figures are effective bits: minus log2 of the median relative error against float64, of operands with a
normal distribution. That reading of the published metric is ours; with `seq:RNE`, which is how CPUs add, it
gives the figures published for a CPU (23.0 and 23.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ascendsim.arguments import items, refusal
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.compiled.accumulate import accumulate
from ascendsim.numerics.formats.casts import hf32

SOURCE = "Jittor pull request 18025 (2026-08), effective bits against float64"


@dataclass(frozen=True, slots=True)
class PublicFigure:
    """One published figure.

    work      products of one sum, rows and columns of a matrix
    reading   how the cube reads operands: "float32", or width and ties of HF32
    bits      effective bits of the device, to one decimal
    """

    work: tuple[int, int, int]
    reading: str
    bits: float


FLOAT32 = (PublicFigure((64, 64, 64), "float32", 23.9), PublicFigure((32, 64, 64), "float32", 24.4))
HF32 = PublicFigure((64, 64, 64), "hf32", 12.7)
# The figures have one decimal; a median of some thousand errors wanders by as much as half of that.
TOLERANCE = 0.1
MODELS = (
    "block:4:RNE",
    "align:4:F26:RNE",
    "block:8:RNE",
    "block:2:RNE",
    "seq:RNE",
    "tree:4:adjacent:RNE",
    "block:4:RNE+split3",
    "block:4:RZ",
    "align:4:F26:RZ",
    "align:4:F24:RZ:acc",
    "seq:RZ",
)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A model beside the figures.

    bits   its own effective bits, in the order of the figures
    off    the largest distance from a published figure, in bits
    fits   whether that is no more than the figures' precision
    """

    model: str
    bits: tuple[float, ...]
    off: float
    fits: bool


@default_arithmetic
def rank_by_public_figures(models: Sequence[str] = MODELS) -> tuple[Ranked, ...]:
    """Return models by their distance from the published figures of float32, the nearest first.

    Order   distances are taken to the precision of the figures; models that these cannot tell apart stay in
            the order given, of which the usual one begins with the fewest assumptions
    Raises  ConfigError for what is no list of models
    """
    named = items(models)
    if named is None or not all(isinstance(name, str) for name in named):
        raise refusal("models", models, "a list of texts of models, such as block:16:RNE")
    ranked = []
    for name in named:
        bits = tuple(effective_bits(name, figure.work) for figure in FLOAT32)
        off = max(abs(own - figure.bits) for own, figure in zip(bits, FLOAT32, strict=True))
        ranked.append(Ranked(name, bits, off, off <= TOLERANCE))
    return tuple(sorted(ranked, key=lambda one: round(one.off / TOLERANCE)))


@lru_cache
def effective_bits(
    model: str, work: tuple[int, int, int], width: int | None = None, ties: str = "RNE"
) -> float:
    """Return the effective bits of sums under a model.

    work    products of one sum, rows and columns of a matrix; eight pairs of matrices are drawn
    width   bits that HF32 keeps; None: float32 as it is
    """
    rng, (k, m, n) = np.random.default_rng(0), work
    errors = []
    for _ in range(8):
        a = rng.standard_normal((m, k)).astype(np.float32)
        b = rng.standard_normal((k, n)).astype(np.float32)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        c = np.zeros((m, n), np.float32)
        if width is not None:
            a, b = hf32(a, width, ties), hf32(b, width, ties)
        accumulate(AccumulationModel.parse(model), a, b, c)
        errors.append(np.abs(c - exact) / np.abs(exact))
    return float(-np.log2(np.median(np.concatenate(errors))))
