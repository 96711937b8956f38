"""A case under all modes as one point of the engine of studies, and its answer as text and back."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from ascendsim.errors import AscendSimError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.studies.engine.measure import Answer
from ascendsim.studies.engine.point import code_version
from ascendsim.studies.modes.cases import Case
from ascendsim.studies.modes.measure import Axes, measure
from ascendsim.studies.modes.records import CaseErrors, GradientError, Histogram, ModeError, Share


@dataclass(frozen=True)
class PrecisionPoint:
    """One case on the axes of a study."""

    axes: Axes
    case: Case

    @property
    def label(self) -> str:
        """What the study calls it."""
        return self.case.name

    @property
    def key(self) -> str:
        """A digest of all that the answer depends on: case and values, resolved product, axes and code."""
        axes, case = self.axes, self.case
        machine = axes.profile.product, axes.profile.variant, axes.profile.content.hex()
        varied = axes.dtypes, axes.cube_math_types, axes.models, axes.loss_scales, axes.rules
        asked = case.name, case.problem, case.mask, case.count, case.data
        return sha256(repr((code_version(), "precision", machine, varied, asked)).encode()).hexdigest()


@default_arithmetic
def answer(point: PrecisionPoint) -> Answer:
    """Measure a point; a mistake of the user's is the reason of its answer."""
    try:
        found = measure(point.axes, point.case)
    except AscendSimError as error:
        return Answer(json.dumps({"reason": f"{point.case.name}: {error}"}))
    return Answer(json.dumps(asdict(found), separators=(",", ":")))


@default_arithmetic
def case_errors(text: str) -> CaseErrors:
    """Return what `answer` made the text of."""
    read: dict[str, Any] = json.loads(text)
    modes = tuple(ModeError(**_mode(mode)) for mode in read["modes"])
    shares = tuple(Share(**share) for share in read["shares"])
    histograms = tuple(Histogram(**one | {"counts": tuple(one["counts"])}) for one in read["histograms"])
    return CaseErrors(read["name"], read["count"], modes, shares, histograms)


def _mode(read: dict[str, Any]) -> dict[str, Any]:
    gradients = tuple(
        GradientError(**one | {"failed": tuple(tuple(pair) for pair in one["failed"])})
        for one in read["gradients"]
    )
    return read | {"cube_math_types": tuple(read["cube_math_types"]), "gradients": gradients}
