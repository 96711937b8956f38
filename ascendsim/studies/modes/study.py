"""A whole study of precision as one frozen record."""

from __future__ import annotations

from dataclasses import dataclass

from ascendsim.frozen import cached_property
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.studies.modes.choice import ModeSummary, cheapest, more_exact, nearest, summaries
from ascendsim.studies.modes.records import CaseErrors, Share


@dataclass(frozen=True)
class PrecisionStudy:
    """All cases of a study on one product.

    title    what was asked about
    variant  of the product
    limit    largest error of a gradient with which a mode passes: L2, relative to float64
    models   how many accumulation models were tried
    data     the data of the cases, by their words
    margin   part of a time within which modes are not told apart: the model's own error
    """

    title: str
    variant: str
    limit: float
    models: int
    data: tuple[str, ...]
    cases: tuple[CaseErrors, ...]
    margin: float = 0.0

    @cached_property
    @default_arithmetic
    def rows(self) -> tuple[ModeSummary, ...]:
        """The modes over all cases."""
        return summaries(self.cases)

    @property
    def cheapest(self) -> ModeSummary | None:
        """The cheapest mode that passes."""
        return cheapest(self.rows, self.limit)

    @property
    def more_exact(self) -> tuple[ModeSummary, ...]:
        """The modes more exact than the cheapest, and within the margin of its time; the most exact first."""
        return more_exact(self.rows, self.limit, self.margin)

    @property
    def nearest(self) -> ModeSummary | None:
        """The mode with the smallest error."""
        return nearest(self.rows)

    def verdict_flips(self) -> tuple[tuple[ModeSummary, ModeSummary], ...]:
        """Return (failing, passing) modes that differ in the loss scale alone: a pair for each mode."""
        found: dict[tuple[str, tuple[int, ...]], tuple[ModeSummary, ModeSummary]] = {}
        for bad in self.rows:
            for good in self.rows:
                alike = (bad.dtype, bad.cube_math_types) == (good.dtype, good.cube_math_types)
                judged = bad.worst is not None and not bad.passes(self.limit) and good.passes(self.limit)
                if alike and judged:
                    found.setdefault((bad.dtype, bad.cube_math_types), (bad, good))
        return tuple(found.values())

    def share(self, case: str, tensor: str, dtype: str, loss_scale: float) -> Share | None:
        """Return what a format makes of a tensor of a case."""
        for one in self.cases:
            for share in one.shares if one.name == case else ():
                if (share.tensor, share.format, share.loss_scale) == (tensor, dtype, loss_scale):
                    return share
        return None
