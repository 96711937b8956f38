"""What a partial plan leaves open, filled in by the rules of the product, or by the search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from ascendsim.errors import CapacityError, ConfigError, UnsupportedError
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.schedules.base import Schedule
from ascendsim.ops.schedules.catalogue import schedule_named
from ascendsim.ops.schedules.wgrad.stream import WgradStream
from ascendsim.ops.tiling.choose import choose
from ascendsim.ops.tiling.fitting import STEPS, fitted
from ascendsim.ops.tiling.grids import dealt_again, on_grid
from ascendsim.ops.tiling.partial import PartialPlan
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.timed import fastest_of_few
from ascendsim.ops.tiling.vendor.stream import tail_along

# How nests that deal shares number their tasks where the plan to start from is of a nest with other axes: as
# operators of the 910B number those of basic blocks, and of the 910_95 those of stream-K.
ORDERS = {"grad_input": "group m batch d n", "grad_weight": "group k batch d m n"}
STREAM_ORDER = "m n d group"


def completed(request: PlanRequest) -> Plan:
    """Return a whole plan with what the user fixes of it.

    Chosen     as without it, for a machine of `block_dim` cores, or of the cells of the grid
    Grid       parts that are not given take the cores that are left: images, rows of an image, m, n. Of base
               blocks alone the grid of the rules, or one chosen again (`grids.py`), whichever takes less
    Sizes      what is not given becomes smaller until every buffer holds its tiles (`fitting.py`)
    used_cores all that get work, unless given

    Raises     CapacityError naming the buffer that is short whatever is left open; ConfigError naming the
               rule that a field breaks
    """
    partial, base = request.fixed, _base(request)
    kind = schedule_named(partial.schedule or base.schedule)
    tiling = replace(_taken_over(base, kind, request), **partial.fields)
    tiling = on_grid(tiling, kind, request)
    # One tile of each operand serves the same pixels: a step that is given alone is that of both.
    given = [partial.fields[step] for step in STEPS if step in partial.fields]
    if kind.makes == "grad_weight" and len(given) == 1:
        tiling = replace(tiling, step_ka=given[0], step_kb=given[0])
    made = Plan(partial.schedule or base.schedule, tiling, base.chosen_by).given_in_part()
    if tiling == base.tiling and kind is schedule_named(base.schedule):
        return made
    if issubclass(kind, WgradStream) and not partial.fields.keys() & {"k_split", "stream_axis"}:
        whole = fitted(replace(tiling, k_split=1, stream_axis=""), kind, request)
        tiling = _streamed(whole, kind, request)
    if partial.fields.get("k_split") == 1 and "stream_axis" not in partial.fields:
        # One part is cut along no axis.
        tiling = replace(tiling, stream_axis="")
    tiling = fitted(tiling, kind, request)
    again = dealt_again(tiling, kind, request)
    if again is not None:
        # What is gained in cores can be lost in loads, and in parts of a sum that are added: both are timed.
        both = tiling, fitted(again, kind, request)
        tiling = fastest_of_few(kind, request.gemm, request.profile, both, request.sums)
    return replace(made, tiling=tiling)


def _taken_over(base: Plan, kind: type[Schedule], request: PlanRequest) -> Tiling:
    """Return the tiling of a plan with what a nest needs that the plan's own does not read."""
    tiling = base.tiling
    if kind.fixed and kind is not schedule_named(base.schedule):
        # Parts of the other nest's reduction are none of this one's.
        own: dict[str, Any] = {**kind.fixed, "k_split": 1}
        tiling = replace(tiling, **own)
    if _lacks_split(kind, tiling):
        # Segments of a sum over all taps are none of what one phase of the stride adds; and operators that
        # split a kernel turn its weights first.
        turned = not request.profile.generation.changes_layouts
        axes = "h" if request.gemm.sliding.dilation[1] > 1 else "hw"
        tiling = replace(tiling, k_split=1, single_core_k=0, transpose_first=turned, kernel_split=axes)
    if _lacks_loop(kind, tiling):
        tiling = replace(tiling, tap_loop="kh" if kind.makes == "grad_input" else "khkw")
    if not _numbers_tasks(kind, tiling):
        tiling = replace(tiling, task_order=_usual_order(kind))
    return tiling


def takes_over(kind: type[Schedule], tiling: Tiling) -> bool:
    """Tell whether a nest can take the tiling of another one as it is, as far as its own fields go."""
    told = not (_lacks_split(kind, tiling) or _lacks_loop(kind, tiling))
    return told and _numbers_tasks(kind, tiling)


def _numbers_tasks(kind: type[Schedule], tiling: Tiling) -> bool:
    """Tell whether a nest can number its tasks as a tiling says: by its own axes; true if it reads none."""
    order = _usual_order(kind)
    return not order or sorted(tiling.task_order.split()) == sorted(order.split())


def _lacks_split(kind: type[Schedule], tiling: Tiling) -> bool:
    """Tell whether a nest splits the kernel by the stride, and a tiling does not say along which axes."""
    return "kernel_split" in kind.reads and not tiling.kernel_split


def _lacks_loop(kind: type[Schedule], tiling: Tiling) -> bool:
    """Tell whether a nest takes rows of taps, or single ones, and a tiling does not say which."""
    return "tap_loop" in kind.reads and not tiling.tap_loop


def _usual_order(kind: type[Schedule]) -> str:
    """Return how a nest numbers its tasks where no plan of it says; "" for one that reads no order."""
    if "task_order" not in kind.reads:
        return ""
    return STREAM_ORDER if issubclass(kind, WgradStream) else ORDERS[kind.makes]


def _base(request: PlanRequest) -> Plan:
    """Return the plan that is changed: the first of the strategies whose nest knows all that is given."""
    partial, machine = request.fixed, request.profile
    blocks = partial.block_dim
    cores = machine.cores.cube
    if blocks:
        machine = replace(machine, cores=machine.cores._replace(cube=blocks))
    plan = None
    for plan in chain(_by_blocks(request), _choices(replace(request, profile=machine))):
        kind = schedule_named(partial.schedule or plan.schedule)
        if _starts(plan, kind, partial):
            break
    assert plan is not None
    if blocks > cores and not plan.tiling.has_grid:
        raise ConfigError(
            f"tiling: block_dim is {blocks}, but {machine.variant} has {cores} cores, and the plan has no "
            f"grid whose blocks could take turns on them; take at most {cores}, or give a grid"
        )
    return replace(plan, tiling=replace(plan.tiling, used_cores=min(cores, plan.tiling.used_cores)))


def _by_blocks(request: PlanRequest) -> Iterator[Plan]:
    """Yield the plan of a grid of as many blocks as are given, where kernels go by the cells of a grid."""
    blocks = request.fixed.block_dim
    if blocks and request.profile.core_structure == "unified":
        plan = choose(replace(request, blocks=blocks))
        if plan.chosen_by != "search":
            yield plan


def _starts(plan: Plan, kind: type[Schedule], partial: PartialPlan) -> bool:
    """Tell whether a nest can begin with the tiling of a plan and take what is given besides."""
    of = schedule_named(plan.schedule)
    if any(kind.fixed.get(name, value) != value for name, value in partial.fields.items()):
        return False
    # Sizes of a nest that has fixed ones mean nothing to another.
    if of.fixed and of is not kind:
        return False
    return set(plan.tiling.set_fields()) | set(partial.fields) <= kind.obeyed()


def _choices(request: PlanRequest) -> Iterator[Plan]:
    """Yield the plans to start from, the best first; the search, which says the least, comes last."""
    plan, nest = choose(request), request.fixed.schedule
    if plan.chosen_by != "search":
        yield plan
    # The operators' nests have rules of their own, also where a call does not follow them by default.
    other = nest is not None and nest != plan.schedule
    if other or schedule_named(plan.schedule).fixed:
        try:
            shares = choose(request, "shares")
        except (CapacityError, UnsupportedError):
            pass
        else:
            if nest in (None, shares.schedule):
                yield shares
            elif "task_order" in schedule_named(nest).reads:
                yield _read_by(schedule_named(nest), shares)
    yield choose(request, "search")


def _read_by(kind: type[Schedule], plan: Plan) -> Plan:
    """Return a plan of shares without what another nest of shares has not, such as segments of its sum."""
    usual = Tiling(plan.tiling.base_m, plan.tiling.base_n, plan.tiling.base_k)
    unread = {name: getattr(usual, name) for name in plan.tiling.set_fields() if name not in kind.obeyed()}
    return replace(plan, tiling=replace(plan.tiling, **unread))


def _streamed(tiling: Tiling, kind: type[WgradStream], request: PlanRequest) -> Tiling:
    """Return the tiling with its last round cut as the operators cut it."""
    gemm = request.gemm
    units = kind(gemm, tiling, request.profile, request.sums).tasks.units
    extents = {"batch_depth": gemm.batch * gemm.small.shape[2], "height": gemm.sliding.out_size[0]}
    tail = tail_along(extents, len(units), request.profile.cores.cube)
    return replace(tiling, k_split=tail.ways, stream_axis=tail.axis if tail.ways > 1 else "")
