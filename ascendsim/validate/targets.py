"""The aims: how near estimates are meant to come to measurements, and how near they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.validate.compare import Case, summarise

REPORTED = "report"  # the role of rows that no aim counts


@dataclass(frozen=True)
class Target:
    """A limit for the errors of the rows of some groups of a class; of all groups if none is named.

    groups      what the names of the groups begin with: networks are named with their batch
    statistic   "median", "p90", "p95" or "worst" of the absolute errors, or "bounds": the wrong ones' share
    """

    name: str
    kind: str
    groups: tuple[str, ...]
    statistic: str
    limit: float


@dataclass(frozen=True)
class Reached:
    """The result of an aim over its rows."""

    target: Target
    count: int
    value: float

    @property
    def kept(self) -> bool:
        """Whether the limit is kept."""
        return self.value <= self.target.limit


PUBLISHED, INFERRED = "published tilings", "inferred tilings"
SPLIT, FIRST = "other, A2 generation", "other, first generation"
SPLIT_LAYOUTS, FIRST_LAYOUTS = "TransData, A2 generation", "TransData, first generation"
CALLS = "3-D grad_weight calls, 910B2"
ALEXNET, NETWORKS = "AlexNet, HF32", ("ResNet-50", "YOLOv5s", "InceptionV3")
TARGETS = (
    Target("primitives", "primitives", (), "median", 0.03),
    Target("primitives", "primitives", (), "p95", 0.15),
    Target("matrix products, published tilings", "matmul", (PUBLISHED,), "worst", 0.15),
    Target("pipes of one core, runs r1, r2, r4", "matmul", ("pipes of one core",), "worst", 0.10),
    Target("matrix products, inferred tilings", "matmul", (INFERRED,), "worst", 0.20),
    Target("other matrix products", "matmul", (SPLIT, FIRST), "median", 0.15),
    Target("those of the A2 generation", "matmul", (SPLIT,), "median", 0.15),
    Target("those of the first generation", "matmul", (FIRST,), "median", 0.15),
    Target("gradients of AlexNet in HF32", "convolution", (ALEXNET,), "median", 0.08),
    Target("gradients of AlexNet in HF32", "convolution", (ALEXNET,), "worst", 0.20),
    Target("gradients, first generation", "convolution", NETWORKS, "median", 0.14),
    Target("gradients, first generation", "convolution", NETWORKS, "p90", 0.45),
    Target("changes of layout, A2 generation", "layouts", (SPLIT_LAYOUTS,), "median", 0.20),
    Target("changes of layout, first generation", "layouts", (FIRST_LAYOUTS,), "median", 0.20),
    Target("3-D grad_weight calls, 910B2", "calls", (CALLS,), "worst", 0.35),
    Target("matrix products of this table", "matmul", (PUBLISHED, INFERRED, SPLIT), "bounds", 0.0),
)


@default_arithmetic
def reached(cases: Sequence[Case]) -> list[Reached]:
    """Return what becomes of every target that has a row among the cases."""
    found = []
    for target in TARGETS:
        own = [case for case in cases if case.kind == target.kind and case.role != REPORTED]
        if target.groups:
            own = [case for case in own if case.group.startswith(target.groups)]
        if target.statistic == "bounds":
            own = [case for case in own if case.bound_right is not None]
        if not own:
            continue
        summary = summarise(own)
        # Only cases that tell a bound were kept above, so that none of them is passed over here.
        wrong = 1 - summary.bounds_right / len(own)
        value = wrong if target.statistic == "bounds" else getattr(summary, target.statistic)
        found.append(Reached(target, len(own), value))
    return found
