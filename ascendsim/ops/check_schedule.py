"""Hold a schedule of the user's own against the definition of the gradient that it makes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ascendsim.errors import ConfigError, ProgramError, shown, whole
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.options.asked import planned_call
from ascendsim.ops.options.call import options_of
from ascendsim.ops.options.keywords import l2_begun
from ascendsim.ops.plan import Plan
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.running import name_of, run_graph
from ascendsim.ops.schedules.base import schedule_named
from ascendsim.program.instruction import shaped
from ascendsim.program.program import NestProgram
from ascendsim.timing.kernel import measure_kernel
from ascendsim.timing.l2 import WARM

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.profile import Profile
    from ascendsim.program.instruction import Cost
    from ascendsim.program.kernel import Kernel
    from ascendsim.program.program import Program
    from ascendsim.timing.l2.account import Start

# Each order is a run, so nobody tries more of them than this; seeds are 32 bits wide.
MOST_ORDERS, MOST_SEED = 10_000, 2**32 - 1


@dataclass(frozen=True)
class ScheduleCheck:
    """The findings about a schedule that passed.

    gradient      the gradient that it makes
    plan          the plan it was run under
    orders        the orders of execution under which its bits were those of the definition
    instructions  of all cores
    cycles        of the cube clock; equal whether equal cores are timed as one or each by itself
    """

    gradient: str
    plan: Plan
    orders: tuple[str, ...]
    instructions: int
    cycles: int


@default_arithmetic
def check_schedule(
    schedule: str | type,
    problem: ConvProblem,
    dtype: str = "float16",
    cube_math_type: int = 0,
    *,
    orders: int = 3,
    seed: int = 0,
    **keywords: Any,
) -> ScheduleCheck:
    """Run a schedule on random tensors and hold it against the ordered definition, bit for bit.

    Problem  a small one: the definition is plain loops
    Orders   the program's, `orders` random legal ones, which show a missing wait, and that of arrival
    Seed     of the tensors
    Keywords as `CallOptions` describes them; unless said otherwise parts of grad_weight are added in one
             order, and L2 is warm
    Raises   ProgramError where bits differ, cores of equal signatures take unequal cycles, or instructions
             cost something else, or move other slices, than its nest says, or one `shape` stands for several
             costs; what `convolution_backward` raises
    """
    kind = schedule_named(schedule)
    if kind.makes not in GRADIENTS:
        raise ConfigError(f"check_schedule: {kind.name} makes {kind.makes}; it checks gradients alone")
    for name, number, most in (("orders", orders, MOST_ORDERS), ("seed", seed, MOST_SEED)):
        if (count := whole(number)) is None or not 0 <= count <= most:
            rule = f"a whole number from 0 to {most}"
            raise ConfigError(f"check_schedule: {name} is {shown(number)}; it must be {rule}")
    given = {"deterministic": True, "l2_start": WARM, **keywords, "schedule": {kind.makes: schedule}}
    options = options_of("check_schedule", given)
    mask = tuple(name == kind.makes for name in GRADIENTS)
    decision, call = planned_call(problem, options, dtype, cube_math_type, mask)
    shapes = problem.grad_output, problem.input, problem.weight
    grad_output, input, weight = _drawn(shapes, dtype, int(seed))
    asked = (mask[0], mask[1], False)
    due = reference_gradients(call, grad_output, input, weight, mask=asked)[kind.makes]
    tensors = dict(zip(INPUTS, (grad_output, input, weight), strict=True))
    graph = options.within(lower(call, decision.wanted))
    tried: list[str] = []
    for order in ("program", *range(int(orders)), "arrival"):
        made = run_graph(graph, options.profile, options.l2_start, tensors, order, timing=False)[1]
        _require_same(kind.name, kind.makes, made[kind.makes], due, name_of(order), tried)
        tried.append(name_of(order))
    [kernel] = [node for node in graph.kernels if node.name == kind.makes]
    works = [work for phase in kernel.phases for work in phase.work]
    programs = [work.build() for work in works]
    for program in programs:
        if isinstance(program, NestProgram):
            program.check_slices()
    _require_shapes(kind.name, programs, options.profile)
    count = sum(map(len, programs))
    begun = l2_begun(options.l2_start, graph.inputs, options.profile)
    cycles = _cycles(kind.name, kernel, options.profile, begun)
    return ScheduleCheck(kind.makes, call.plans[kind.makes], tuple(tried), count, cycles)


def _drawn(shapes: Sequence[tuple[int, ...]], dtype: str, seed: int) -> list[NDArray[np.float32]]:
    """Draw tensors on the grid of a format, of exponents so wide that the order of additions shows."""
    import numpy as np

    from ascendsim.numerics.casts import round_to

    rng = np.random.default_rng(seed)
    drawn = (np.ldexp(rng.standard_normal(shape), rng.integers(-6, 7, shape)) for shape in shapes)
    return [round_to(values.astype(np.float32), dtype) for values in drawn]


def _require_same(name: str, makes: str, got: Any, due: Any, order: str, tried: Sequence[str]) -> None:
    """Refuse other bits than the definition's."""
    import numpy as np

    differing = np.argwhere((got.view(np.uint32) != due.view(np.uint32)) & ~(np.isnan(got) & np.isnan(due)))
    if not len(differing):
        return
    first = tuple(int(place) for place in differing[0])
    if tried:
        why = "an instruction reads or writes what it does not name, so that nothing waits for it"
    else:
        why = "a product is left out, comes twice, or in another order than its order() says"
    raise ProgramError(
        f"schedule {name}: {makes} in {order} order differs from the definition in {len(differing):,} of "
        f"{got.size:,} elements, first at {first}: got {got[first]!s}, due {due[first]!s}; {why}"
    )


def _require_shapes(name: str, programs: Sequence[Program], profile: Profile) -> None:
    """Refuse instructions of equal shapes and unequal costs."""
    known: dict[Hashable, Cost] = {}
    for program in programs:
        for made in program.expanded():
            cost = made.cost(profile)
            first = known.setdefault((made.__class__, made.pipe, made.shape), cost)
            if cost != first:
                raise ProgramError(
                    f"schedule {name}: {shaped(made)} costs {first} and {cost}; instructions of equal shapes "
                    "must cost the same: let `shape` have all that `cost` depends on"
                )


def _cycles(name: str, kernel: Kernel, profile: Profile, l2_start: Start) -> int:
    """Return the cycles of a kernel, whose cores of equal signatures must take equal ones."""
    folded, plain = (
        measure_kernel(kernel, profile, folded=flag, l2_start=l2_start).cycles for flag in (True, False)
    )
    if folded != plain:
        raise ProgramError(
            f"schedule {name}: {folded:,} cycles if cores of equal signatures are timed as one, {plain:,} if "
            "each by itself; its signature() must distinguish them, or be left out"
        )
    return folded
