"""Whole kernels: measured matrix products and convolution gradients against their estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.errors import DataError, UnsupportedError
from ascendsim.ops.convolution_backward import estimate
from ascendsim.ops.matmul import estimate_matmul, estimate_transdata
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.matmul import MatmulGemm, MatmulProblem
from ascendsim.ops.problems.products import DgradGemm
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.vendor.first import first_dgrad
from ascendsim.ops.tiling.vendor.matmul import vendor_tiling
from ascendsim.ops.tiling.vendor.operators import product_plan
from ascendsim.program.places import core_of
from ascendsim.validate.compare import CaseEstimate
from ascendsim.validate.schema import PLAN, MeasuredRow, refuse_beyond_memory, wrong

if TYPE_CHECKING:
    from ascendsim.ops.results import Estimate as CallEstimate
    from ascendsim.ops.results import KernelResult
    from ascendsim.profile import Profile
    from ascendsim.program.kernel import Core
    from ascendsim.timing.timeline import CoreTimeline, Timeline


def active_us(timeline: Timeline, profile: Profile) -> dict[str, float]:
    """Return `active_cycles` in microseconds."""
    return {pipe: cycles / profile.clock.cube_mhz for pipe, cycles in active_cycles(timeline).items()}


def active_cycles(timeline: Timeline) -> dict[str, float]:
    """Return the cycles in which each pipe had an instruction under way, a mean over the cores with the pipe.

    Of a kernel on cubes the cube cores alone count, as in the profiler's `aic_` columns: vector cores that
    add parts have columns of their own.

    An instruction is under way until its result is visible, which is what the profiler's counters see: an
    isolated copy counts with its latency, copies in flight together do not count twice.
    """
    totals: dict[str, int] = {}
    kinds: dict[str, set[str]] = {}
    cores: set[Core] = set()
    on_cubes = any(work.cores[0].kind == "cube" for phase in timeline.phases for work in phase.cores)
    for phase in timeline.phases:
        for work in phase.cores:
            if on_cubes and work.cores[0].kind != "cube":
                continue
            cores.update(work.cores)
            for pipe, cycles in core_active_cycles(work).items():
                totals[pipe] = totals.get(pipe, 0) + cycles * len(work.cores)
                kinds.setdefault(pipe, set()).add(work.cores[0].kind)
    return {pipe: total / sum(core.kind in kinds[pipe] for core in cores) for pipe, total in totals.items()}


def core_active_cycles(work: CoreTimeline) -> dict[str, int]:
    """Return the active cycles of a program's first core: the union of each pipe's spans, start to done."""
    busy: dict[str, int] = {}
    until: dict[str, int] = {}
    # The spans of a pipe are in the order of their starts, so that one pass finds what was not covered yet.
    for pipe, start, done in zip(work.program.pipes, work.start, work.done, strict=True):
        if core_of(pipe):
            continue
        begin = max(start, until.get(pipe, start))
        if done > begin:
            busy[pipe] = busy.get(pipe, 0) + done - begin
        until[pipe] = max(done, until.get(pipe, done))
    return busy


# Slices of one core beyond which a product on one core is run on two of its rows of tiles and the rest
# follows from the difference: its tiles all have one cost.
MOST_SLICES = 200_000
CONVOLVED = ("float16", "bfloat16", "float32")
CONV_NOTE = "tiling inferred: this simulator's choice"
PRODUCT_NOTE = "tiling inferred: by the rules of the product's operators"


class MatmulRun(NamedTuple):
    """The call that runs a measured matrix product, and its plan."""

    problem: MatmulProblem
    dtype: str
    cube_math_type: int
    tiling: Tiling
    out_dtype: str | None
    l2_start: str


def matmul_us(row: MeasuredRow, profile: Profile, *, planner: Profile | None = None) -> CaseEstimate:
    """Return the microseconds of a product, or those in which one pipe of one core was busy.

    planner   the profile by which the plan is chosen, if it is not the one that is timed

    Raises   AscendSimError if the product cannot run on the chip, or under its plan
    """
    refuse_beyond_memory(row.batch * max(row.m * row.k, row.k * row.n, row.m * row.n))
    dtype, math_type = _operands(row)
    if dtype not in profile.cube.rates and (dtype != "float32" or "hf32" not in profile.cube.rates):
        raise UnsupportedError(f"operands of {row.compute_dtype} are not multiplied on {profile.variant}")
    problem = MatmulProblem(row.m, row.k, row.n, row.batch, row.transpose_a, row.transpose_b, row.layout)
    tiling, note = plan_of(row, problem, planner or profile)
    run = MatmulRun(problem, dtype, math_type, tiling, row.out_dtype or None, row.l2_start)
    if row.pipe:
        return CaseEstimate(_core_us(run, profile, row.tiles_on_core, row.pipe))
    us, busy = _task_us(run, profile)
    return CaseEstimate(us, busy, note)


def plan_of(row: MeasuredRow, problem: MatmulProblem, profile: Profile) -> tuple[Tiling, str]:
    """Return the plan of a row, else one for the number of blocks that ran, and what was inferred for it.

    Raises   DataError if a plan is given in part
    """
    given = given_plan(row)
    if given:
        return Tiling(**given), ""
    dtype, math_type = _operands(row)
    gemm = MatmulGemm.of(problem, "hf32" if math_type else dtype, row.out_dtype or None)
    planned = row.strategy == "operator"
    tiling, what = vendor_tiling(gemm, profile, row.blocks or None, planned=planned)
    return tiling, f"tiling inferred: {what}"


def given_plan(row: MeasuredRow) -> dict[str, Any]:
    """Return the fields of the plan that a row gives; none if it gives no field.

    Raises   DataError if a plan is given in part
    """
    # 0 is an empty cell: where a field of a plan may be 0, that is its default.
    given = {name: value for name in PLAN if (value := getattr(row, name))}
    missing = next((name for name in ("base_m", "base_n", "base_k") if name not in given), None)
    if given and missing:
        raise DataError(wrong(missing, "", f"given where {next(iter(given))} is"))
    return given


def _operands(row: MeasuredRow) -> tuple[str, int]:
    """Return the format of the operands and the `cube_math_type` under which the cube multiplies them."""
    return ("float32", 3) if row.compute_dtype == "hf32" else (row.compute_dtype, 0)


# Tables repeat products: the same layer in each of a step's passes.
@lru_cache(maxsize=256)
def _task_us(run: MatmulRun, profile: Profile) -> tuple[float, dict[str, float]]:
    """Return the task's microseconds and the active microseconds of each pipe."""
    p, t = run.problem, run.tiling
    # What a walk costs the simulator is the number of its Mmads on one core.
    slices = p.batch * -(-p.m // t.base_m) * -(-p.n // t.base_n) * -(-p.k // t.base_k) // t.used_cores
    if t.used_cores == 1 and slices > MOST_SLICES:
        return _by_rows(run, profile)
    kernel = _kernel(run, profile)
    return kernel.time_us, active_us(kernel.timeline, profile)


def _by_rows(run: MatmulRun, profile: Profile) -> tuple[float, dict[str, float]]:
    """Run one and two rows of tiles; each further row costs what the second does."""
    rows = -(-run.problem.m // run.tiling.base_m)
    one, two = (
        _kernel(run._replace(problem=replace(run.problem, m=count * run.tiling.base_m)), profile)
        for count in (1, 2)
    )
    # The first row of tiles also pays for what happens once: the launch, the entry, filling the pipes.
    first, second = active_us(one.timeline, profile), active_us(two.timeline, profile)
    busy = {pipe: first[pipe] + (rows - 1) * (second[pipe] - first[pipe]) for pipe in first}
    return one.time_us + (rows - 1) * (two.time_us - one.time_us), busy


def _core_us(run: MatmulRun, profile: Profile, tiles: int, pipe: str) -> float:
    """Return the busy microseconds of a pipe of a core with the row's number of tiles."""
    taken = _busy_by_tiles(run, profile)
    if tiles not in taken:
        wanted = " or ".join(str(count) for count in sorted(taken))
        raise DataError(f"tiles_on_core is {tiles}; cores of this run take {wanted}")
    return taken[tiles][pipe] / profile.clock.cube_mhz


@lru_cache(maxsize=16)
def _busy_by_tiles(run: MatmulRun, profile: Profile) -> Mapping[int, Mapping[str, int]]:
    """Return the busy cycles of the pipes of a core by how many tiles it wrote."""
    # Cores with as many tiles do the same work; a tile leaves L0C in one Fixpipe.
    # Vector cores may have brought operands into fractals before.
    cores = _kernel(run, profile).timeline.phases[-1].cores
    return {
        sum(instruction.pipe == "FIX" for instruction in core.program.instructions): core_active_cycles(core)
        for core in cores
    }


def _kernel(run: MatmulRun, profile: Profile) -> KernelResult:
    options = run._asdict()
    problem, dtype = options.pop("problem"), options.pop("dtype")
    # The product is the last kernel; casts of its operands come before it.
    return estimate_matmul(problem, dtype, product=profile, engine="compiled", **options).kernels[-1]


def gradient_us(
    row: MeasuredRow, profile: Profile, *, grid_from_row: bool = False, planner: Profile | None = None
) -> CaseEstimate:
    """Return the microseconds of the gradient's own kernel, under the product's rules where they are known.

    grid_from_row   whether its grid has as many blocks as the row says, the rest by the rules
    planner         as in `matmul_us`

    Raises   AscendSimError if the sizes do not fit each other or the product
    """
    mask = row.kernel == "grad_input", row.kernel == "grad_weight", False
    plan = _grid_plan(row, planner or profile) if grid_from_row else None
    plans = {row.kernel: plan} if plan else _plans(row, mask, None, planner)
    result = gradient_call(row, profile, mask, plans=plans)
    # A profiler lists the layout kernels around the gradient as kernels of their own.
    kernel = next(kernel for kernel in result.kernels if kernel.name.startswith(row.kernel))
    note = PRODUCT_NOTE if plan or kernel.kernel.facts["plan"].chosen_by != "search" else CONV_NOTE
    if plan:
        note += f", {row.blocks} blocks as measured"
    return CaseEstimate(kernel.time_us, active_us(kernel.timeline, profile), note)


def gradient_call(
    row: MeasuredRow,
    profile: Profile,
    mask: tuple[bool, bool, bool],
    output_dtypes: tuple[str | None, ...] | None = None,
    plans: Mapping[str, Plan] | None = None,
) -> CallEstimate:
    """Return the estimate of the call that a row of a gradient is from; `plans` are those of its kernels.

    Raises   as `gradient_us`
    """
    problem = _problem(row)
    stored, math_type = stored_format(row, profile)
    return estimate(
        problem,
        stored,
        math_type,
        product=profile,
        output_mask=mask,
        output_dtypes=output_dtypes,
        l2_start=row.l2_start,
        rules="hardware",
        engine="compiled",
        tiling=plans,
    )


# The plans of a profile are chosen once, however often other figures are timed under them.
@lru_cache(maxsize=1024)
def _plans(
    row: MeasuredRow,
    mask: tuple[bool, bool, bool],
    output_dtypes: tuple[str | None, ...] | None,
    planner: Profile | None,
) -> Mapping[str, Plan] | None:
    """Return the plans that a profile has for the call of a row; None without one."""
    return gradient_call(row, planner, mask, output_dtypes).plans if planner else None


def _problem(row: MeasuredRow) -> ConvProblem:
    window = row.stride or 1, row.padding or 0, row.dilation or 1
    problem = ConvProblem(row.input_shape, row.weight_shape, *window, groups=row.groups)
    refuse_beyond_memory(max(prod(problem.input), prod(problem.grad_output)))
    return problem


def stored_format(row: MeasuredRow, profile: Profile) -> tuple[str, int]:
    """Return the format of a row's operands in memory, and cubeMathType."""
    dtype, math_type = _operands(row)
    rates = profile.cube.rates
    if dtype not in CONVOLVED or (dtype != "float32" and dtype not in rates):
        raise UnsupportedError(f"operands of {row.compute_dtype} are not convolved on {profile.variant}")
    # Where the cube has no float32 its operands are cast before.
    return dtype if dtype in rates else "float16", math_type


@lru_cache(maxsize=1024)
def _grid_plan(row: MeasuredRow, profile: Profile) -> Plan | None:
    """Return the product's plan for the blocks that ran; None if they are unknown, or no grid has so many."""
    if not row.blocks:
        return None
    stored, math_type = stored_format(row, profile)
    compute_dtype = "hf32" if math_type else stored
    plan, _ = product_plan(PlanRequest(_problem(row), row.kernel, compute_dtype, profile, blocks=row.blocks))
    return plan


CALL_NOTE = "all kernels of the call, casts of the result excepted"


def call_us(row: MeasuredRow, profile: Profile, *, planner: Profile | None = None) -> CaseEstimate:
    """Return the microseconds of all kernels that a call runs for one gradient, launches included.

    A grad_weight is of float32, whatever its operands are. `planner` is as in `matmul_us`.

    Raises   AscendSimError if the sizes do not fit each other or the product
    """
    weights = row.kernel == "grad_weight_call"
    formats = (None, "float32" if weights else None, None)
    mask = not weights, weights, False
    result = gradient_call(row, profile, mask, formats, _plans(row, mask, formats, planner))
    return CaseEstimate(result.time_us, {}, CALL_NOTE)


def bias_us(row: MeasuredRow, profile: Profile) -> CaseEstimate:
    """Return the microseconds of the sum of a grad_output (N, C, spatial...) over all but its channels.

    Raises   AscendSimError if the shape has no channels
    """
    shape = row.input_shape
    if len(shape) < 3:
        raise DataError(f"input_shape is {'x'.join(map(str, shape))}; give that of grad_output, (N, C, ...)")
    refuse_beyond_memory(prod(shape))
    # Any layer with this grad_output: one channel in, one tap.
    problem = ConvProblem((shape[0], 1, prod(shape[2:])), (shape[1], 1, 1))
    dtype = row.compute_dtype
    result = estimate(
        problem, dtype, product=profile, output_mask=(False, False, True), l2_start=row.l2_start
    )
    kernel = result.kernels[0]
    return CaseEstimate(kernel.time_us, active_us(kernel.timeline, profile))


def transdata_us(row: MeasuredRow, profile: Profile) -> CaseEstimate:
    """Return the microseconds of a TransData between row after row and the cube's layouts, or two of these.

    Raises   AscendSimError if the shape is none of an image or a weight
    """
    refuse_beyond_memory(prod(row.input_shape))
    found = estimate_transdata(
        *(row.change, row.input_shape, row.compute_dtype, profile),
        c0=row.c0,
        groups=row.groups,
        l2_start=row.l2_start,
    )
    return CaseEstimate(found.time_us, active_us(found.timeline, profile), "schedule inferred")


RULES_NOTE = "tiling inferred: as the rules cut a grad_input of the same size"


def forward_us(row: MeasuredRow, profile: Profile, *, planner: Profile | None = None) -> CaseEstimate:
    """Return the microseconds of a convolution's own kernel, under the plan of `forward_plan`.

    planner   as in `matmul_us`

    Raises   AscendSimError if the sizes do not fit each other, the product or the tiling
    """
    result, note = _forward_call(row, profile, _forward_plans(row, planner) if planner else None)
    kernel = next(kernel for kernel in result.kernels if kernel.name == "grad_input")
    return CaseEstimate(kernel.time_us, active_us(kernel.timeline, profile), note)


@lru_cache(maxsize=1024)
def _forward_plans(row: MeasuredRow, planner: Profile) -> Mapping[str, Plan]:
    """Return the plans that a profile has for the convolution of a row."""
    return _forward_call(row, planner, None)[0].plans


def _forward_call(
    row: MeasuredRow, profile: Profile, plans: Mapping[str, Plan] | None
) -> tuple[CallEstimate, str]:
    """Return the call that stands for a convolution, and what was inferred for it."""
    problem = forward_problem(row)
    refuse_beyond_memory(max(prod(problem.input), prod(problem.grad_output)))
    stored, math_type = stored_format(row, profile)
    note = CONV_NOTE
    if plans is None:
        plan, note = forward_plan(row, problem, stored, profile)
        plans = {"grad_input": plan} if plan else None
    result = estimate(
        problem,
        stored,
        math_type,
        product=profile,
        output_mask=(True, False, False),
        l2_start=row.l2_start,
        rules="hardware",
        engine="compiled",
        tiling=plans,
    )
    return result, note


def forward_plan(
    row: MeasuredRow, problem: ConvProblem, stored: str, profile: Profile
) -> tuple[Plan | None, str]:
    """Return the plan that a row is run under, and what was inferred for it.

    No plan leaves it to the simulator's own choice.

    stored   the format of the operands in memory

    Raises   DataError if a plan is given in part
    """
    given = given_plan(row)
    if given:
        return Plan("dgrad", Tiling(**given)), ""
    # Where cube and vector unit are one core the rules deal whole images, whatever a block makes of its own.
    if row.blocks and profile.core_structure == "unified" and row.groups == 1:
        tiling = first_dgrad(DgradGemm.of(problem, stored), profile, row.blocks)
        if tiling:
            return Plan("dgrad", tiling), f"{RULES_NOTE}, {row.blocks} blocks as measured"
    return None, CONV_NOTE


def forward_problem(row: MeasuredRow) -> ConvProblem:
    """Return the transposed convolution whose grad_input is the convolution of a row.

    Raises   DataError if no output comes of the sizes
    """
    batch, _, *big = row.input_shape
    made, _, *kernel = row.weight_shape
    axes = range(len(big))
    stride, dilation = row.stride or (1,) * len(big), row.dilation or (1,) * len(big)
    pads = row.padding or (0,) * len(big)
    both = [2 * pads[at] if len(pads) == len(big) else pads[2 * at] + pads[2 * at + 1] for at in axes]
    # Rows that the last step of the stride leaves over are what output_padding adds the other way round.
    steps = [divmod(big[at] + both[at] - (kernel[at] - 1) * dilation[at] - 1, stride[at]) for at in axes]
    if any(count < 0 for count, _ in steps):
        shapes = "x".join(map(str, row.input_shape)), "x".join(map(str, row.weight_shape))
        raise DataError(f"no output of {shapes[1]} fits in {shapes[0]}; give an input as large as the kernel")
    return ConvProblem(
        (batch, made, *(count + 1 for count, _ in steps)),
        row.weight_shape,
        stride,
        pads,
        dilation,
        True,
        tuple(rest for _, rest in steps),
        row.groups,
    )
