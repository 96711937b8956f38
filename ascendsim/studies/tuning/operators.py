"""Plans of the nests that the products' operators have, near another one: those that a device can be given.

What a plan of theirs may say, its nest and the product's rules tell (`ops/tiling/complete.py`): each field
that is changed is asked for, the cores that get work and the cut of a last round follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ascendsim.errors import AscendSimError
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.problems.phases import phases_of
from ascendsim.ops.schedules.catalogue import schedule_named
from ascendsim.ops.tiling.choose import choose
from ascendsim.ops.tiling.fitting import FRACTAL
from ascendsim.ops.tiling.given import plan_of
from ascendsim.ops.tiling.partial import PartialPlan
from ascendsim.ops.tiling.request import PlanRequest

# Their nests by gradient, with what a nest has to be told.
NESTS: Mapping[str, tuple[tuple[str, Mapping[str, Any]], ...]] = {
    "grad_input": (
        ("dgrad_shares", {}),
        ("dgrad_shares", {"k_split": 1, "single_core_k": 0}),
        ("dgrad_split", {"kernel_split": "hw"}),
        ("dgrad_split", {"kernel_split": "h"}),
    ),
    "grad_weight": (("wgrad_stream", {}), ("wgrad_shares", {})),
}
# What follows from the rest, and is asked for anew.
FOLLOWS = ("used_cores",)
STREAM_FOLLOWS = (*FOLLOWS, "k_split", "stream_axis")


class OperatorTilings:
    """Plans of the operators' nests for one gradient."""

    def __init__(self, request: PlanRequest) -> None:
        self.gradient, self._request = request.gradient, request

    def starts(self) -> list[Plan]:
        """Return what the product's rules say of each nest that takes the layer, each plan once.

        Of grad_weight the operators have one nest, that of their own plan: the other one runs here, but no
        device can be given it.
        """
        made = (self._plan(nest, fields) for nest, fields in NESTS[self.gradient])
        plans = [plan for plan in dict.fromkeys(made) if plan is not None]
        own = self._own_nest() if self.gradient == "grad_weight" else None
        return [plan for plan in plans if plan.schedule == own] or plans

    def _own_nest(self) -> str | type | None:
        """Return the nest of the plan that the operators' rules make; None where they make none."""
        try:
            return choose(self._request, "shares").schedule
        except AscendSimError:
            return None

    def has(self, plan: Plan) -> bool:
        """Tell whether a plan follows one of the operators' nests."""
        return plan.schedule in {nest for nest, _ in NESTS[self.gradient]}

    def neighbours(self, plan: Plan) -> list[Plan]:
        """Return the plans one step away, each once: blocks, shares, slices, copies, segments."""
        follows = STREAM_FOLLOWS if plan.schedule == "wgrad_stream" else FOLLOWS
        reads = schedule_named(plan.schedule).reads | {"base_m", "base_n", "base_k"}
        known = vars(plan.tiling).items()
        fields = {name: value for name, value in known if name in reads and name not in follows}
        made = (self._plan(str(plan.schedule), changed) for changed in _moves(fields, self.gradient))
        return [near for near in dict.fromkeys(made) if near is not None and near != plan]

    def spelled(self, plan: Plan) -> Plan:
        """Return the plan with blocks and shares no longer than the product, which they stand for as a whole.

        Plans of other nests, or of groups merged otherwise, come back as they are.
        """
        tiling, gemm = plan.tiling, self._request.gemm
        if not self.has(plan) or tiling.group_merge != self._request.merge:
            return plan
        if isinstance(gemm, DgradGemm):
            phases = phases_of(gemm.sliding, tiling.kernel_split) if tiling.kernel_split else ()
            sizes = max([phase.sliding.pixels for phase in phases] or [gemm.sliding.pixels]), gemm.columns
        else:
            sizes = gemm.rows, gemm.all_taps.groups * gemm.sliding.c0
        unit = max(FRACTAL, gemm.sliding.c0)
        m, n = (-(-size // unit) * unit for size in sizes)
        clipped = {
            "base_m": min(tiling.base_m, m),
            "base_n": min(tiling.base_n, n),
            "single_core_m": min(tiling.single_core_m, m),
            "single_core_n": min(tiling.single_core_n, n),
        }
        return replace(plan, tiling=replace(tiling, **clipped))

    def _plan(self, nest: str, fields: Mapping[str, Any]) -> Plan | None:
        """Return the whole plan with these fields; None where there is none."""
        try:
            return self.spelled(plan_of(self._request, PartialPlan(dict(fields), nest)))
        except AscendSimError:
            return None


def _moves(fields: Mapping[str, Any], gradient: str) -> Iterator[dict[str, Any]]:
    """Yield the fields of plans one step away, legal or not."""
    rows, columns = _sizes(fields, "m"), _sizes(fields, "n")
    yield from (_resized(fields, m=size) for size in rows)
    yield from (_resized(fields, n=size) for size in columns)
    quarters = {side: fields[f"base_{side}"] * 3 // 4 // FRACTAL * FRACTAL for side in ("m", "n")}
    if all(quarters.values()):
        yield _resized(fields, m=quarters["m"])
        yield _resized(fields, n=quarters["n"])
        yield _resized(fields, **quarters)
    # Blocks that shrink make tasks for more cores, and leave room for longer slices.
    for part in (2, 4, 8):
        for side in ("n", "m"):
            size = fields[f"base_{side}"] // part // FRACTAL * FRACTAL
            if size:
                yield _resized(_sliced(fields, part * fields["base_k"]), **{side: size})
    # Two sides at once: a block that grows along m has to shrink along n to fit.
    yield from (_resized(fields, m=m, n=n) for m in rows for n in columns)
    for side in ("m", "n"):
        share, base = fields[f"single_core_{side}"], fields[f"base_{side}"]
        for size in (2 * (share or base), (share or base) // 2):
            yield {**fields, f"single_core_{side}": max(base, size)}
    yield from _slices(fields, gradient)
    copies = ("al1_buffers", "bl1_buffers", "al0_buffers", "bl0_buffers", "cl0_buffers")
    for name in copies:
        yield {**fields, name: 1 if fields[name] > 1 else 2}
    # One tile at a time leaves twice the room for each of them.
    longer = {name: 2 * fields[name] for name in ("step_ka", "step_kb")}
    yield {**fields, "al1_buffers": 1, "bl1_buffers": 1, **longer}
    if "transpose_first" in fields:
        yield {**fields, "transpose_first": not fields["transpose_first"]}
    if gradient == "grad_input" and fields.get("k_split", 1) > 1:
        yield {**fields, "k_split": 1, "single_core_k": 0}


def _slices(fields: Mapping[str, Any], gradient: str) -> Iterator[dict[str, Any]]:
    """Yield other slices of the reduction, and other numbers of them in L1."""
    k, steps = fields["base_k"], (fields["step_ka"], fields["step_kb"])
    for size in (2 * k, k // 2, k + FRACTAL, k - FRACTAL, k + FRACTAL // 2, 3 * k):
        if size > 0:
            yield {**fields, "base_k": size}
            yield _sliced(fields, size)
    both = gradient == "grad_weight"  # a tile of each operand serves the same pixels
    factors = ((2, 2), (0.5, 0.5)) if both else ((2, 2), (0.5, 0.5), (2, 1), (1, 2), (0.5, 1), (1, 0.5))
    for a, b in factors:
        yield {**fields, "step_ka": max(1, int(steps[0] * a)), "step_kb": max(1, int(steps[1] * b))}
    for more in (1, -1):
        ka, kb = (max(1, step + more) for step in steps)
        yield {**fields, "step_ka": ka, "step_kb": kb}


def _sliced(fields: Mapping[str, Any], base_k: int) -> dict[str, Any]:
    """Return the fields with other slices, so many of them in L1 that its tiles stay as long."""
    kept = {step: max(1, fields[step] * fields["base_k"] // base_k) for step in ("step_ka", "step_kb")}
    return {**fields, "base_k": base_k, **kept}


def _sizes(fields: Mapping[str, Any], side: str) -> list[int]:
    """Return sizes near that of a block: twice and half, a fractal more or less, and thirds."""
    base = fields[f"base_{side}"]
    near = (2 * base, base // 2, base + FRACTAL, base - FRACTAL, base * 3 // 2, base * 2 // 3)
    whole = (size // FRACTAL * FRACTAL for size in near)
    return [size for size in dict.fromkeys(whole) if size > 0 and size != base]


def _resized(fields: Mapping[str, Any], **sizes: int) -> dict[str, Any]:
    """Return the fields with other blocks; a share of one block stays one, of several as many."""
    found = dict(fields)
    for side, size in sizes.items():
        base, share = fields[f"base_{side}"], fields[f"single_core_{side}"]
        found[f"base_{side}"] = size
        found[f"single_core_{side}"] = size * max(1, share // base) if share else 0
    return found
