"""What every candidate answers to the sums of one format, under every cut of the reduction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.numerics.formats.casts import hf32, round_to
from ascendsim.numerics.formats.dtypes import dtype
from ascendsim.studies.identify.candidates import Cut, answers, candidate_names, model_named, telling_cuts
from ascendsim.studies.identify.vectors import DEPTH, vectors_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Mask = NDArray[np.bool_]

# How the cube reads float32: width and ties of HF32, or as it is.
Reading = tuple[int, str] | None
READINGS: tuple[Reading, ...] = (None, *((bits, ties) for bits in (11, 10) for ties in ("RNE", "RNA", "RZ")))


@dataclass(frozen=True)
class Predictions:
    """The different answers of all candidates, one after the other.

    models, cuts   whose each is, and the first cut that gives it; those of a model stand together, the widest
                   cut first
    answers        (count, m, n), in the format of the results
    beyond         sums that the format cannot hold: products differ in how they convert them
    """

    models: tuple[str, ...]
    cuts: tuple[Cut, ...]
    answers: Floats
    beyond: Mask

    def agree_with(self, got: Floats) -> Mask:
        """Tell where an answer is the predicted one: (count, m, n).

        Zeros agree whatever their signs, NaNs whatever their payloads; what is beyond is not compared
        """
        same: Mask = (self.answers == got) | self.beyond
        if np.isnan(got).any():
            same |= np.isnan(self.answers) & np.isnan(got)
        return same


def read(values: Floats, reading: Reading) -> Floats:
    """Return float32 operands as the cube reads them."""
    return values if reading is None else hf32(values, *reading)


# Some megabytes each: a format, and the readings of float32 that somebody's device has.
@lru_cache(maxsize=8)
def predictions(stored: str, reading: Reading) -> Predictions:
    """Return what all candidates answer in a format."""
    fmt = dtype(stored)
    vectors = vectors_of(fmt)
    a, b = read(vectors.a, reading), read(vectors.b, reading)
    unit = 8 if fmt.bits == 32 else 16  # of C0, in which every kernel cuts
    models, cuts, made = [], [], []
    for name in candidate_names(stored):
        model, seen = model_named(name, fmt.min_exponent), set()
        for cut in telling_cuts(model, DEPTH, unit):
            with np.errstate(all="ignore"):
                sums = answers(model, a, b, cut)
            if sums.tobytes() not in seen:
                seen.add(sums.tobytes())
                models.append(name)
                cuts.append(cut)
                made.append(sums)
    sums = np.stack(made)
    # Float32 is what accumulators are: nothing is converted.
    beyond = (
        (np.abs(sums) > fmt.max_finite) | ~np.isfinite(sums) if fmt.bits < 32 else np.zeros(sums.shape, bool)
    )
    return Predictions(tuple(models), tuple(cuts), round_to(sums, fmt), beyond)
