"""How near the estimates are meant to come to measurements, and how near they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ascendsim.validate.compare import Case, summarise


@dataclass(frozen=True)
class Target:
    """A limit for the errors of the rows of one class whose ids begin so.

    statistic   "median", "p95" or "worst" of the absolute errors, or "bounds": the share of wrong bounds
    """

    name: str
    kind: str
    prefixes: tuple[str, ...]
    statistic: str
    limit: float


@dataclass(frozen=True)
class Reached:
    """What a target's rows come to."""

    target: Target
    count: int
    value: float

    @property
    def kept(self) -> bool:
        """Whether the limit is kept."""
        return self.value <= self.target.limit


_PUBLISHED = ("pto-gemm-", "ad-mm8192-case0-", "ad-mm8192-case1-")
_INFERRED = ("ad-mm8192-case2-", "ad-mm8192-case4-", "ad-mm8192-case6-")
_SPLIT = ("msi-llm-", "mstt-", "cb-gemm-")

TARGETS = (
    Target("primitives", "primitives", ("",), "median", 0.03),
    Target("primitives", "primitives", ("",), "p95", 0.15),
    Target("matrix products, published tilings", "matmul", _PUBLISHED, "worst", 0.15),
    Target("pipes of one core, runs r1, r2, r4", "matmul", ("cz-r1-", "cz-r2-", "cz-r4-"), "worst", 0.10),
    Target("matrix products, inferred tilings", "matmul", _INFERRED, "worst", 0.20),
    Target("other matrix products", "matmul", (*_SPLIT, "hpm-"), "median", 0.15),
    Target("those of the A2 generation", "matmul", _SPLIT, "median", 0.15),
    Target("those of the first generation", "matmul", ("hpm-",), "median", 0.15),
    Target("matrix products of this table", "matmul", (*_PUBLISHED, *_INFERRED, *_SPLIT), "bounds", 0.0),
)


def reached(cases: Sequence[Case]) -> list[Reached]:
    """Return what becomes of every target that has a row among the cases."""
    found = []
    for target in TARGETS:
        own = [case for case in cases if case.kind == target.kind and case.id.startswith(target.prefixes)]
        if target.statistic == "bounds":
            own = [case for case in own if case.bound_right is not None]
        if not own:
            continue
        summary = summarise(own)
        wrong = 1 - summary.bounds_right / len(own)
        value = wrong if target.statistic == "bounds" else getattr(summary, target.statistic)
        found.append(Reached(target, len(own), value))
    return found
