"""The plans of one call of `plan_calls.txt`: as the operator says them, and as they run here.

The calls were drawn at random, about the sizes at which the rules of the operators decide; each that is kept
notices a change of some place of the rules, or brings one of their comparisons to its edge.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ascendsim import ConvProblem, MatmulProblem
from ascendsim.errors import AscendSimError
from ascendsim.ops.problems.matmul import MatmulGemm
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.vendor.matmul import operator_tiling
from ascendsim.ops.tiling.vendor.matmul_910b import plan_910b
from ascendsim.ops.tiling.vendor.matmul_950 import Matmul950Sizes, plan_950
from ascendsim.ops.tiling.vendor.matmul_templates import Matmul910Sizes
from ascendsim.ops.tiling.vendor.operators import first_plan, operator_plan, product_plan
from ascendsim.ops.tiling.vendor.workspace import operator_workspace
from ascendsim.profile import Profile, load_profile

Sizes = tuple[int, ...]
PER_AXIS = ("stride", "padding", "dilation")
ITEMSIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "hf32": 4}


def numbers(text: str) -> tuple[int, ...]:
    """Return the sizes of a shape, as 2x3x4."""
    return tuple(int(number) for number in text.split("x"))


def plans_of(call: str) -> list[Any]:
    """Return all plans of a line: product, gradient, format, two shapes, and what else is asked by name."""
    product, gradient, dtype, first, second, *more = call.split()
    own = dict(option.split("=") for option in more)
    if gradient == "matmul":
        return product_plans(load_profile(product), dtype, numbers(first), numbers(second), own)
    axes = {name: numbers(own.pop(name)) for name in PER_AXIS if name in own}
    sizes = {name: int(value) for name, value in own.items()}
    flags = {name: bool(sizes.pop(name, 0)) for name in ("deterministic", "transposed_forward", "transposed")}
    asked = {name: sizes.pop(name) for name in ("blocks", "group_merge") if name in sizes}
    transposed = flags.pop("transposed")
    problem = ConvProblem(numbers(first), numbers(second), transposed=transposed, **axes, **sizes)
    request = PlanRequest(problem, gradient, dtype, load_profile(product), **flags, **asked)
    return [
        kept(lambda: product_plan(request)),
        kept(lambda: operator_plan(request)),
        kept(lambda: operator_plan(request, by_winograd=False)),
        kept(lambda: workspace(request)),
        kept(lambda: first_plan(request, tuned=True)) if "blocks" in asked else None,
    ]


def workspace(request: PlanRequest) -> int:
    """Return the bytes of workspace of the operator's own plan."""
    plan, arch = operator_plan(request), request.profile.npu_arch
    return operator_workspace(
        plan, request.layer, request.machine, request.gradient, arch, deterministic=request.deterministic
    )


def product_plans(
    profile: Profile, dtype: str, left: Sizes, right: Sizes, own: Mapping[str, str]
) -> list[Any]:
    """Return the plans of a matrix product: as the operator says them and as they run here."""
    flags = {name: bool(int(own.get(name, 0))) for name in ("transpose_a", "transpose_b", "shared_a")}
    layout, out = own.get("layout", "ND"), own.get("out")
    problem = MatmulProblem(*left, right[1], int(own.get("batch", 1)), layout=layout, **flags)
    size = ITEMSIZES[dtype]
    sizes = problem.m, problem.k, problem.n, problem.transpose_a, problem.transpose_b
    sizes = (*sizes, size, ITEMSIZES.get(out, size), dtype == "hf32", own.get("bias") == "1")
    cores, l2 = profile.cores.cube, profile.l2.capacity_bytes
    made = None
    if profile.npu_arch == "2201":
        made = kept(lambda: plan_910b(Matmul910Sizes(*sizes, layout == "NZ", cores, l2)))
    elif profile.npu_arch == "3510":
        made = kept(lambda: plan_950(Matmul950Sizes(*sizes, cores, profile.clock.cube_mhz / 1000, l2)))
    return [kept(lambda: operator_tiling(MatmulGemm.of(problem, dtype, out), profile)), made]


def kept(plan: Callable[[], Any]) -> Any:
    """Return a plan, or the name of the error that refuses it."""
    try:
        return plan()
    except AscendSimError as error:
        return type(error).__name__
