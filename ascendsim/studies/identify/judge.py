"""The models that agree with every answer of a device, and what would split those that are left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.compiled.accumulate import accumulate
from ascendsim.numerics.formats.casts import round_to
from ascendsim.numerics.formats.dtypes import DType
from ascendsim.studies.identify.candidates import Cut, answers, model_named
from ascendsim.studies.identify.cases import Case
from ascendsim.studies.identify.predictions import READINGS, Predictions, Reading, predictions, read
from ascendsim.studies.identify.records import Agreeing, Evidence, Identification, Near
from ascendsim.studies.identify.vectors import DEPTH, Vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

NEAREST = 5


@dataclass
class _Agreement:
    """How one candidate agrees, each under the cut that suits it best.

    wholly      route -> the widest cut under which every answer is its own
    questions   (route, question) of which every answer is its own
    shares      route -> the largest share of its own answers
    """

    wholly: dict[str, Cut] = field(default_factory=dict)
    questions: set[tuple[str, str]] = field(default_factory=set)
    shares: dict[str, float] = field(default_factory=dict)


@default_arithmetic
def identify_outputs(outputs: Mapping[Case, Floats]) -> tuple[Identification, ...]:
    """Return what answers say, format by format: float32 carriers (m, n), by case."""
    formats = dict.fromkeys(case.format for case in outputs)
    return tuple(
        identify_format(name, {case: got for case, got in outputs.items() if case.format == name})
        for name in formats
    )


def identify_format(name: str, outputs: Mapping[Case, Floats]) -> Identification:
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
    """Return how the cube reads float32, from sums of one product; as it is where no reading agrees."""
    rows = _rows(vectors, "operand")
    seq = AccumulationModel.parse("seq:RNE")
    # In the first column, of powers of two, every model has these sums exactly.
    for reading in READINGS:
        a, b = read(vectors.a[rows], reading), read(vectors.b[:, :1], reading)
        if np.array_equal(answers(seq, a, b, Cut(DEPTH, 1)), got[rows, :1]):
            return reading
    return None


def _agreeing(model: str, agreement: _Agreement) -> Agreeing:
    cuts = agreement.wholly
    mmad: FrozenMap[str, int] = FrozenMap({route: cut.base_k for route, cut in cuts.items()})
    parts: FrozenMap[str, int] = FrozenMap({route: cut.parts for route, cut in cuts.items()})
    return Agreeing(model, mmad, parts)


def _assumed(agreeing: Agreeing) -> int:
    """Return in how many calls a kernel must cut the reduction for a model to agree."""
    whole = Cut(DEPTH, 1)
    return sum(Cut(agreeing.mmad[route], agreeing.parts[route]) != whole for route in agreeing.mmad)


def _evidence(
    vectors: Vectors, outputs: Mapping[Case, Floats], found: Mapping[str, _Agreement]
) -> Iterator[Evidence]:
    """Yield what each question alone leaves, route by route."""
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
