"""The models that agree with every answer of a device, and what would split those that are left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.accumulation import AccumulationModel, products_of
from ascendsim.numerics.casts import hf32, round_to
from ascendsim.numerics.compiled.accumulate import accumulate
from ascendsim.numerics.dtypes import DType, dtype
from ascendsim.ops.reference.ordered import add_in_order
from ascendsim.studies.identify.records import Agreeing, Evidence, Identification, Near
from ascendsim.studies.identify.vectors import DEPTH, ProbeCase, Vectors, vectors_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Mask = NDArray[np.bool_]


# Kernels deal whole fractals, as many to each part but the last; other counts make one of these parts.
FRACTAL = 16
PARTS = (2, 3, 4, 8)
BLOCKS = (2, 4, 8, 16, 32, 64)
OPTIONS = ("+split3", "+ftz-in", "+ftz-acc", "+saturate")


class ReductionCut(NamedTuple):
    """The cut of a reduction: parts, added in float32 in their order, each in Mmads of `base_k`.

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


def cuts(depth: int, unit: int) -> tuple[ReductionCut, ...]:
    """Return the ways in which a kernel may cut a reduction in units of `unit` products."""
    # The largest first: what fits in one Mmad is usually one.
    lengths = [(depth, 1), *((_length(depth, parts), parts) for parts in PARTS)]
    return tuple(ReductionCut(base, parts) for length, parts in lengths for base in range(length, 0, -unit))


def _length(depth: int, parts: int) -> int:
    """Return the products of a part but the last."""
    return -(-depth // (parts * FRACTAL)) * FRACTAL


def telling_cuts(model: AccumulationModel, depth: int, unit: int) -> tuple[ReductionCut, ...]:
    """Return the cuts under which a model may answer differently: one for each set of places to round at."""
    different: dict[object, ReductionCut] = {}
    for cut in cuts(depth, unit):
        different.setdefault(_places(model, cut, depth), cut)
    return tuple(different.values())


def _places(model: AccumulationModel, cut: ReductionCut, depth: int) -> object:
    """Return the properties of a cut that show in the bits: parts, starts of blocks, ends of Mmads."""
    if model.overflow == "saturate":
        # An accumulator beyond the largest value is brought back whenever an Mmad ends.
        return tuple(tuple(mmad.start for mmad in part) for part in slices(cut, depth))
    # Chains round at every product, and `exact` at the end of a part, wherever Mmads begin.
    if model.kind in ("seq", "seq-muladd", "exact"):
        return cut.parts
    size = depth if model.kind == "exact-mmad" else int(model.block)
    parts = slices(cut, depth)
    return tuple(tuple(at for mmad in part for at in range(mmad.start, mmad.stop, size)) for part in parts)


def slices(cut: ReductionCut, depth: int) -> Iterator[list[slice]]:
    """Yield the Mmads of each part."""
    length = depth if cut.parts == 1 else _length(depth, cut.parts)
    for first in range(0, depth, length):
        last = min(first + length, depth)
        yield [slice(at, min(at + cut.base_k, last)) for at in range(first, last, cut.base_k)]


def answers(model: AccumulationModel, a: Floats, b: Floats, cut: ReductionCut) -> Floats:
    """Return a (m, k) times b (k, n) by a model under a cut: float32 accumulators (m, n)."""
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
    cuts: tuple[ReductionCut, ...]
    answers: Floats
    beyond: Mask

    def agree_with(self, got: Floats) -> Mask:
        """Mark where an answer equals the prediction: (count, m, n).

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
    """Return the predictions of all candidates in a format."""
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


NEAREST = 5


@dataclass
class _Agreement:
    """The agreement of one candidate under the cut that suits it best.

    wholly      route -> the widest cut under which every answer is its own
    questions   (route, question) whose answers all differ
    shares      route -> the largest share of its own answers
    """

    wholly: dict[str, ReductionCut] = field(default_factory=dict)
    questions: set[tuple[str, str]] = field(default_factory=set)
    shares: dict[str, float] = field(default_factory=dict)


@default_arithmetic
def identify_outputs(outputs: Mapping[ProbeCase, Floats]) -> tuple[Identification, ...]:
    """Identify the model of each format from a device's answers: float32 carriers (m, n), by case."""
    formats = dict.fromkeys(case.format for case in outputs)
    return tuple(
        identify_format(name, {case: got for case, got in outputs.items() if case.format == name})
        for name in formats
    )


def identify_format(name: str, outputs: Mapping[ProbeCase, Floats]) -> Identification:
    """Return the candidates that agree with the answers to all cases of one format.

    outputs   float32 carriers (m, n), by case: at least one
    """
    case = next(iter(outputs))
    vectors, stored = case.vectors(), case.stored
    found: dict[str, _Agreement] = defaultdict(_Agreement)
    readings = {}
    for case, got in outputs.items():
        # By route: how ties go is a setting of the kernel, not of the cube.
        reading = readings[case.route] = _reading(vectors, got) if name == "hf32" else None
        _compare(found, case.route, predictions(stored.name, reading), got, vectors)
    left = [model for model, agreement in found.items() if len(agreement.wholly) == len(outputs)]
    near = [Near(model, sum(one.shares.values()) / len(outputs)) for model, one in found.items()]
    return Identification(
        format=name,
        routes=tuple(case.route for case in outputs),
        candidates=len(found),
        readings=FrozenMap({at: _words(one) for at, one in readings.items()} if name == "hf32" else {}),
        left=tuple(sorted((_agreeing(model, found[model]) for model in left), key=_assumed)),
        nearest=tuple(sorted(near, key=lambda one: -one.share)[:NEAREST]),
        evidence=tuple(_evidence(vectors, outputs, found)),
        classes=_classes(left, stored),
    )


def _words(reading: Reading) -> str:
    return "as it is" if reading is None else f"in {reading[0]} bits, {reading[1]}"


def _compare(
    found: Mapping[str, _Agreement], route: str, predicted: Predictions, got: Floats, vectors: Vectors
) -> None:
    """Note how every model agrees with the answers to one case, under every cut."""
    same = predicted.agree_with(got)
    shares, rows = same.mean(axis=(1, 2)), np.asarray(same.all(axis=2))
    asked = {question: _rows(vectors, question) for question in dict.fromkeys(vectors.questions)}
    right = {question: np.asarray(rows[:, of_it].all(axis=1)) for question, of_it in asked.items()}
    for at, model in enumerate(predicted.models):
        agreement = found[model]
        agreement.shares[route] = max(agreement.shares.get(route, 0.0), float(shares[at]))
        if rows[at].all():
            agreement.wholly.setdefault(route, predicted.cuts[at])
        agreement.questions |= {(route, question) for question in asked if right[question][at]}


def _rows(vectors: Vectors, question: str) -> list[int]:
    return [at for at, asked in enumerate(vectors.questions) if asked == question]


def _reading(vectors: Vectors, got: Floats) -> Reading:
    """Return the cube's reading of float32, from sums of one product; unrounded where no reading agrees."""
    rows = _rows(vectors, "operand")
    seq = AccumulationModel.parse("seq:RNE")
    # In the first column, of powers of two, every model has these sums exactly.
    for reading in READINGS:
        a, b = read(vectors.a[rows], reading), read(vectors.b[:, :1], reading)
        if np.array_equal(answers(seq, a, b, ReductionCut(DEPTH, 1)), got[rows, :1]):
            return reading
    return None


def _agreeing(model: str, agreement: _Agreement) -> Agreeing:
    cuts = agreement.wholly
    mmad: FrozenMap[str, int] = FrozenMap({route: cut.base_k for route, cut in cuts.items()})
    parts: FrozenMap[str, int] = FrozenMap({route: cut.parts for route, cut in cuts.items()})
    return Agreeing(model, mmad, parts)


def _assumed(agreeing: Agreeing) -> int:
    """Return in how many calls a kernel must cut the reduction for a model to agree."""
    whole = ReductionCut(DEPTH, 1)
    return sum(ReductionCut(agreeing.mmad[route], agreeing.parts[route]) != whole for route in agreeing.mmad)


def _evidence(
    vectors: Vectors, outputs: Mapping[ProbeCase, Floats], found: Mapping[str, _Agreement]
) -> Iterator[Evidence]:
    """Yield for each question and route how many models it alone leaves."""
    for case in outputs:
        for question in dict.fromkeys(vectors.questions):
            agree = sum((case.route, question) in one.questions for one in found.values())
            sums = len(_rows(vectors, question)) * vectors.b.shape[1]
            yield Evidence(case.route, question, sums, agree)


def _classes(left: list[str], stored: DType) -> tuple[tuple[str, ...], ...]:
    """Part models by random sums, whose accumulators are looked at in float32."""
    # Random significands over some binades: nearly every difference of order or rounding shows in their bits.
    rng = np.random.default_rng(2)
    a = np.ldexp(rng.standard_normal((64, DEPTH)), rng.integers(-8, 8, (64, DEPTH)))
    b = np.ldexp(rng.standard_normal((DEPTH, 16)), rng.integers(-2, 3, (DEPTH, 16)))
    a, b = (round_to(x.astype(np.float32), stored) for x in (a, b))
    classes: dict[bytes, list[str]] = {}
    for name in left:
        c = np.zeros((64, 16), np.float32)
        accumulate(model_named(name, stored.min_exponent), a, b, c)
        classes.setdefault(c.tobytes(), []).append(name)
    return tuple(tuple(members) for members in classes.values())
