"""The plans of a call: what the user gives of them, the rest chosen.

Open fields of a partial plan are filled in by the rules of the product, or by the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from typing import Any

from ascendsim.errors import CapacityError, ConfigError, UnsupportedError, shown
from ascendsim.ops.plan import GRID, USER, Plan, Tiling, saying_whose
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.schedules.base import Schedule, schedule_named
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from ascendsim.ops.schedules.wgrad.stream import WgradStream
from ascendsim.ops.tiling.choose import choose
from ascendsim.ops.tiling.request import LayerPlans, PartialPlan, PlanRequest, plan_given
from ascendsim.ops.tiling.timed import STEPS, fastest_of_few, fitted, most_cores, unit_of
from ascendsim.ops.tiling.vendor.arch35.wgrad import tail_along

Given = Mapping[str, Any]
# The nest of a tiling that is given without one.
USUAL = {"grad_input": "dgrad", "grad_weight": "wgrad", "matmul": "matmul"}


def plan_of(request: PlanRequest, tiling: Any = None, schedule: Any = None) -> Plan:
    """Return the plan of one gradient of a call: the user's schedule and tiling, where given, else chosen.

    tiling     as `tilings_given` has it: a Plan, a Tiling, a part of a plan, or a strategy
    schedule   a nest by its name, or a class

    Raises   CapacityError if no tile fits into the buffers; ConfigError for a plan of another gradient
    """
    with saying_whose(request.gradient, tiling if isinstance(tiling, Plan | PartialPlan) else None):
        plan = _plan(request, tiling, schedule)
    # The nest of matrix products makes those gradients that are one.
    by_product = schedule_named(plan.schedule).makes == "matmul" and request.as_product is not None
    if not by_product:
        _require_makes(plan.schedule, request.gradient)
    return plan


def _plan(request: PlanRequest, tiling: Any, schedule: Any) -> Plan:
    """Return the plan: the given fields, and the rest chosen."""
    if isinstance(tiling, LayerPlans):
        # A matrix product has no layer, and a file of entries none for it.
        problem = request.problem
        tiling = tiling.of(problem, request.compute_dtype) if isinstance(problem, ConvProblem) else None
    strategy = tiling if isinstance(tiling, str) else "product"
    if isinstance(tiling, Plan):
        return replace(tiling, schedule=schedule or tiling.schedule, chosen_by=USER, instead="")
    # A tiling without a nest is for the usual one: those of the products read fields of their own.
    if isinstance(tiling, Tiling):
        return Plan(schedule or USUAL[request.gradient], tiling, chosen_by=USER)
    partial = isinstance(tiling, PartialPlan)
    # A nest that the user names is one of convolution kernels.
    by_rule = strategy == "product" and not partial and not schedule
    if by_rule and request.as_product:
        return choose(request.as_product, "interface")
    chosen = None if partial else choose(request, strategy)
    if chosen is not None and schedule:
        known = _of_another_kind(chosen, schedule) or _knows(schedule, chosen.tiling)
        # A nest of the user's own may not know what the product's plan says; the search says the least.
        chosen = chosen if known else choose(request, "search")
        if _of_another_kind(chosen, schedule):
            # As a plan with the nest alone given.
            tiling = PartialPlan({})
    if isinstance(tiling, PartialPlan):
        if schedule or tiling.schedule:
            tiling = replace(tiling, schedule=schedule or tiling.schedule)
            _require_makes(tiling.schedule, request.gradient)
        return completed(replace(request, fixed=tiling, group_merge=tiling.fields.get("group_merge", 0)))
    assert chosen is not None
    return replace(chosen, schedule=schedule).given_in_part() if schedule else chosen


def _knows(schedule: str | type, tiling: Tiling) -> bool:
    """Return whether a nest reads all that a tiling sets."""
    return set(tiling.set_fields()) <= schedule_named(schedule).obeyed()


def _of_another_kind(chosen: Plan, asked: str | type) -> bool:
    """Return whether a nest cannot take over the tiling of a plan as it is.

    It says something else by the same sizes (Winograd), numbers its tasks by axes that the plan does not, or
    splits the kernel, which the plan does not.
    """
    one, other = schedule_named(chosen.schedule), schedule_named(asked)
    if one is other:
        return False

    return bool(one.fixed or other.fixed) or not takes_over(other, chosen.tiling)


def tilings_given(tiling: Any, gradients: Sequence[str]) -> dict[str, Any]:
    """Return the user's tilings by gradient; a text is the strategy by which to choose one.

    A mapping is read as plans by gradient, or, with fields of a tiling for keys, as one partial plan.
    Raises   ConfigError where one tiling stands for several gradients, a key is none that is computed, or a
             field has no meaning
    """
    if tiling is None:
        return {}
    # How to choose is said for all gradients at once.
    if isinstance(tiling, str):
        return dict.fromkeys(gradients, tiling)
    if says_fields(tiling):
        tiling = plan_given(tiling)
    # One tiling cannot serve two gradients: m, n and k mean other axes in each.
    if not isinstance(tiling, Mapping):
        if len(gradients) != 1:
            computed = " and ".join(gradients) or "no cube gradient"
            raise ConfigError(
                f"tiling is one {type(tiling).__name__}, but the call computes {computed}; "
                'pass {"grad_input": ..., "grad_weight": ...}'
            )
        return {gradients[0]: tiling}
    _require_keys("tiling", tiling, gradients)
    return {
        gradient: plan_given(plan, f"tiling of {gradient}") if isinstance(plan, Mapping) else plan
        for gradient, plan in tiling.items()
    }


def says_fields(tiling: object) -> bool:
    """Return whether a mapping names fields of one plan, and not plans by gradient."""
    if not isinstance(tiling, Mapping) or not tiling:
        return False
    plans = (Tiling, Plan, PartialPlan, LayerPlans, Mapping)
    return not any(isinstance(plan, plans) for plan in tiling.values()) and not any(
        isinstance(key, str) and (key in USUAL or key.startswith("grad_")) for key in tiling
    )


def schedules_given(schedule: Any, gradients: Sequence[str]) -> dict[str, Any]:
    """Return the user's schedules by gradient; a schedule names its own gradient.

    Raises   ConfigError for an unknown schedule, or one that makes what the call does not compute
    """
    if schedule is None:
        return {}
    if not isinstance(schedule, Mapping):
        made: dict[str, Any] = {}
        for name in schedule if isinstance(schedule, list | tuple) else [schedule]:
            makes = schedule_named(name).makes
            if makes not in gradients:
                raise ConfigError(
                    f"schedule is {shown(name)}, which makes {makes}, but the call computes "
                    f"{' and '.join(gradients) or 'nothing on the cube'}"
                )
            if makes in made:
                raise ConfigError(
                    f"schedule has {shown(made[makes])} and {shown(name)}; both make {makes}: give one"
                )
            made[makes] = name
        return made
    _require_keys("schedule", schedule, gradients)
    for gradient, name in schedule.items():
        _require_makes(name, gradient)
    return dict(schedule)


def _require_makes(schedule: str | type, gradient: str) -> None:
    """Refuse a schedule that makes something else: its loops are over other tensors."""
    makes = schedule_named(schedule).makes
    if makes != gradient:
        raise ConfigError(f"schedule of {gradient} is {shown(schedule)}, which makes {makes}")


def _require_keys(what: str, given: Given, gradients: Sequence[str]) -> None:
    """Refuse keys that no call of this kind has, and gradients that this one does not compute."""
    known = ("matmul",) if "matmul" in gradients else ("grad_input", "grad_weight")
    unknown = set(given) - set(known)
    if unknown:
        raise ConfigError(f"{what} has keys {sorted(unknown, key=repr)}; it takes {' and '.join(known)}")
    # A file of plans may serve several calls; who names a gradient in the call itself wants it obeyed.
    idle = sorted(name for name in given if name not in gradients and not _of_file(given[name]))
    if idle:
        raise ConfigError(
            f"{what} is given for {' and '.join(idle)}, but the call computes "
            f"{' and '.join(gradients) or 'nothing on the cube'}; leave it out, or ask for the gradient "
            "(output_mask)"
        )


def _of_file(plan: Any) -> bool:
    """Return whether a plan was read from a file."""
    return isinstance(plan, LayerPlans) or (isinstance(plan, Plan | PartialPlan) and bool(plan.file))


def on_grid(tiling: Tiling, kind: type[Schedule], request: PlanRequest) -> Tiling:
    """Return the tiling with the parts of the grid that are not given, and base blocks inside its cells."""
    partial = request.fixed
    given = {axis: max(1, partial.fields[axis]) for axis in GRID if axis in partial.fields}
    # Even parts of all pixels stand for those of images and of their tiles; blocks cut themselves.
    if partial.fields.get("pixel_dim"):
        free: dict[str, Any] = {axis: 0 for axis in GRID if axis not in partial.fields}
        return replace(tiling, **free)
    # A grid cuts the reduction of grad_weight itself: parts that are asked for come without one.
    if not given and kind.makes == "grad_weight" and "k_split" in partial.fields and "m_dim" in kind.reads:
        return replace(tiling, batch_dim=0, m_dim=0, n_dim=0, k_dim=0, group_dim=0)
    # Nests that deal shares know parts of the images alone, and number their tasks themselves.
    if not given or "m_dim" not in kind.reads:
        return tiling
    extents, unit = _extents(request.gemm, kind), unit_of(request)
    left = (partial.block_dim or request.profile.cores.cube) // prod(given.values())
    parts = dict(given)
    for axis in extents:
        if axis not in given:
            most = extents[axis] if axis in ("batch_dim", "k_dim") else -(-extents[axis] // unit)
            each = -(-most // max(1, min(most, left)))
            # So many parts as have work: 32 images in 12 parts are eleven of three, and no twelfth.
            parts[axis] = -(-most // each)
            left //= parts[axis]
    # A grid cuts the reduction of grad_weight itself; it knows no groups.
    cut = parts if kind.makes == "grad_input" else {**parts, "k_split": 1, "group_dim": 0}
    for size, axis in (("base_m", "m_dim"), ("base_n", "n_dim")):
        # Blocks that cut a cell evenly: others would leave cells of the grid without a block of their own.
        cell = -(-extents[axis] // parts.get(axis, 1))
        even = -(-cell // -(-cell // getattr(tiling, size)))
        cut[size] = -(-even // unit) * unit
    return replace(tiling, **{name: value for name, value in cut.items() if name not in partial.fields})


def dealt_again(tiling: Tiling, kind: type[Schedule], request: PlanRequest) -> Tiling | None:
    """Return the tiling with the grid whose busiest cell has the fewest base blocks; None: as it is.

    A grid is chosen for base blocks of its own size. Of larger ones it can leave cells with a single block,
    and other cells with none. The reduction of grad_weight is cut in parts only where it was.
    """
    partial = request.fixed
    sized = partial.fields.keys() & {"base_m", "base_n"} and not partial.fields.keys() & {*GRID, "pixel_dim"}
    if not tiling.has_grid or not sized or "m_dim" not in kind.reads:
        return None
    extents = _extents(request.gemm, kind)
    sizes = {"m_dim": tiling.base_m, "n_dim": tiling.base_n}
    # Even parts of all pixels are no parts of images and tiles, and give way to these.
    own = {axis: max(1, getattr(tiling, axis)) for axis in extents}
    whole = isinstance(request.gemm, WgradGemm) and own["batch_dim"] * own["k_dim"] == 1
    # Parts that are added ask for zeros to add them to, by a kernel of its own.
    free = {axis: 1 if whole and axis in ("batch_dim", "k_dim") else size for axis, size in extents.items()}

    def blocks(grid: dict[str, int]) -> int:
        cells = {axis: -(-extents[axis] // parts) for axis, parts in grid.items()}
        return prod(-(-cell // sizes.get(axis, 1)) for axis, cell in cells.items())

    cores = partial.block_dim or request.profile.cores.cube
    found = min(_grids(free, sizes, cores), key=lambda grid: (blocks(grid), prod(grid.values())))
    if not tiling.pixel_dim and blocks(own) <= blocks(found):
        return None
    parts: dict[str, Any] = {"pixel_dim": 0, "group_dim": 0, **dict.fromkeys(GRID, 0), **found}
    return replace(tiling, **parts)


def _grids(extents: dict[str, int], sizes: dict[str, int], cores: int) -> Iterator[dict[str, int]]:
    """Yield the grids of at most `cores` cells; grids that load operands least often come first."""
    if not extents:
        yield {}
        return
    axis, *rest = extents
    most = -(-extents[axis] // sizes.get(axis, 1))
    # Of parts that are equally long at most the fewest: 32 images in 12 parts are eleven of three.
    for each in sorted({-(-most // parts) for parts in range(1, min(most, cores) + 1)}):
        parts = -(-most // each)
        for others in _grids({name: extents[name] for name in rest}, sizes, cores // parts):
            yield {axis: parts, **others}


def _extents(gemm: DgradGemm | WgradGemm, kind: type[Schedule]) -> dict[str, int]:
    """Return the size that each axis of a grid cuts; axes that need no second load of an operand come first.

    Images, rows or fractals of an image, and elements along m and n.
    """
    if isinstance(gemm, DgradGemm):
        return {"batch_dim": gemm.batch, "m_dim": gemm.sliding.pixels, "n_dim": gemm.columns}
    columns = gemm.all_taps.groups * gemm.sliding.c0
    units = kind.image_units(gemm) if issubclass(kind, Wgrad) else gemm.sliding.out_size[0]
    return {"batch_dim": gemm.batch, "k_dim": units, "m_dim": gemm.rows, "n_dim": columns}


# How nests that deal shares number their tasks where the plan to start from is of a nest with other axes: as
# operators of the 910B number those of basic blocks, and of the 910_95 those of stream-K.
ORDERS = {"grad_input": "group m batch d n", "grad_weight": "group k batch d m n"}
STREAM_ORDER = "m n d group"


def completed(request: PlanRequest) -> Plan:
    """Return a whole plan with what the user fixes of it.

    Chosen     as without it, for a machine of `block_dim` cores, or of the cells of the grid
    Grid       parts that are not given take the cores that are left: images, rows of an image, m, n. Of base
               blocks alone the grid of the rules, or one chosen again, whichever takes less
    Sizes      fields that are not given become smaller until every buffer holds its tiles
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
    """Return whether a nest can take the tiling of another one as it is, as far as its own fields go."""
    told = not (_lacks_split(kind, tiling) or _lacks_loop(kind, tiling))
    return told and _numbers_tasks(kind, tiling)


def _numbers_tasks(kind: type[Schedule], tiling: Tiling) -> bool:
    """Return whether a nest can number its tasks as a tiling says: by its own axes; true if it reads none."""
    order = _usual_order(kind)
    return not order or sorted(tiling.task_order.split()) == sorted(order.split())


def _lacks_split(kind: type[Schedule], tiling: Tiling) -> bool:
    """Return whether a nest splits the kernel by the stride, and a tiling does not say along which axes."""
    return "kernel_split" in kind.reads and not tiling.kernel_split


def _lacks_loop(kind: type[Schedule], tiling: Tiling) -> bool:
    """Return whether a nest takes rows of taps, or single ones, and a tiling does not say which."""
    return "tap_loop" in kind.reads and not tiling.tap_loop


def _usual_order(kind: type[Schedule]) -> str:
    """Return a nest's default order of tasks; "" for a nest that reads no order."""
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
    """Return whether a nest can begin with the tiling of a plan and take the given fields besides."""
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
    count = kind(gemm, tiling, request.profile, request.sums).tasks.count
    extents = {"batch_depth": gemm.batch * gemm.small.shape[2], "height": gemm.sliding.out_size[0]}
    tail = tail_along(extents, count, most_cores(request))
    return replace(tiling, k_split=tail.ways, stream_axis=tail.axis if tail.ways > 1 else "")
