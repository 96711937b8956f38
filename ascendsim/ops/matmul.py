"""Matrix products: results with cycles, or cycles alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.numerics.accumulation.settings import MathSettings
from ascendsim.ops.lowering.call import Node, gm_tensor
from ascendsim.ops.lowering.hf32 import as_multiplied, full_name, stored_name
from ascendsim.ops.lowering.matmul_formats import accumulation as accumulation_of
from ascendsim.ops.lowering.matmul_formats import (
    carrier,
    compute_format,
    operand_format,
    overflow,
    result_format,
    stored,
)
from ascendsim.ops.lowering.vector import Named, Vectors, converted
from ascendsim.ops.options import Options, Product
from ascendsim.ops.problems.matmul import MatmulProblem, problem_of
from ascendsim.ops.results import Estimate, MatmulResult
from ascendsim.ops.running import name_of, run_steps, time_steps
from ascendsim.ops.schedules.matmul import MatmulSchedule
from ascendsim.ops.tiling.search.matmul import MatmulTiling, matmul_tiling, require_plan
from ascendsim.program.kernel import Kernel

if TYPE_CHECKING:
    from ascendsim.numerics.accumulation.models import AccumulationModel
    from ascendsim.numerics.accumulation.settings import Accumulation
    from ascendsim.ops.lowering.call import Tensors
    from ascendsim.profile import Profile

NOTE = "The tiling is this simulator's own; the product's operators choose their own."


@dataclass(frozen=True)
class _Call:
    """A matrix product with everything resolved; `formats` are those of a, b and c."""

    problem: MatmulProblem
    profile: Profile
    compute: str
    formats: tuple[str, str, str]
    model: Accumulation
    tiling: MatmulTiling | None

    @property
    def storage(self) -> str:
        """Format in which the cube's operands lie in memory."""
        return stored_name(self.compute)


def matmul(
    a: Any,
    b: Any,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    product: Product = "910B",
    cube_math_type: int = 0,
    accumulation: str | AccumulationModel | None = None,
    tiling: MatmulTiling | None = None,
    out_dtype: str | None = None,
    order: str | int = "program",
    l2_start: str = "warm",
) -> MatmulResult:
    """Multiply two matrices, or a batch of pairs, bit for bit as the cube does, and count the cycles.

    Shapes   a (m, k), b (k, n) -> (m, n); stored the other way round where transpose_a, transpose_b say so;
             with a batch in front of all three
    Types    one format for both operands; the result in `out_dtype`, by default the operands'; of int8 always
             int32, with `accumulation` int32:wrap (the default) or int32:saturate
    Order    of execution: "program", "arrival" (as timed) or a seed
    Raises   ShapeError, UnsupportedError, ConfigError, CapacityError: all AscendSimError
    Source   operator page of aclnnMatmul (cubeMathType); HF32 of a matrix product rounds ties away
    """
    from ascendsim.ops.operands import Operand

    left, right = Operand.of(a), Operand.of(b)
    problem = problem_of(left.view.shape, right.view.shape, transpose_a=transpose_a, transpose_b=transpose_b)
    options = Options(product, accumulation, l2_start=l2_start)
    call = _resolve(problem, (left.dtype, right.dtype), out_dtype, cube_math_type, options, tiling)
    tensors = {"a": carrier(left), "b": carrier(right)}
    results = run_steps(_steps(call), call.profile, l2_start, tensors, order)
    output = tensors["c"] if left.view.shape[:-2] else tensors["c"][0]
    return MatmulResult(
        **_fields(call), kernels=tuple(results), output=stored(output, call.formats[2]), order=name_of(order)
    )


def estimate_matmul(
    problem: MatmulProblem,
    dtype: str = "float16",
    *,
    product: Product = "910B",
    cube_math_type: int = 0,
    accumulation: str | AccumulationModel | None = None,
    tiling: MatmulTiling | None = None,
    out_dtype: str | None = None,
    l2_start: str = "warm",
) -> Estimate:
    """Estimate the cycles of a matrix product without tensors.

    Types    `dtype` is the format of both operands
    Raises   as `matmul`
    """
    if not isinstance(problem, MatmulProblem):
        raise ConfigError(f"estimate_matmul: problem is {problem!r}; it must be MatmulProblem(m, k, n)")
    options = Options(product, accumulation, l2_start=l2_start)
    call = _resolve(problem, (dtype, dtype), out_dtype, cube_math_type, options, tiling)
    return Estimate(**_fields(call), kernels=tuple(time_steps(_steps(call), call.profile, l2_start)))


def _resolve(
    problem: MatmulProblem,
    formats: tuple[str, str],
    out_dtype: str | None,
    cube_math_type: int,
    options: Options,
    tiling: MatmulTiling | None,
) -> _Call:
    """Decide what the cube multiplies and what comes out."""
    if formats[0] != formats[1]:
        raise UnsupportedError(f"matmul: a is {formats[0]} and b {formats[1]}; both must be of one format")
    operands = operand_format(formats[0])
    compute = compute_format(operands, cube_math_type, options.profile)
    out = result_format(operands, out_dtype)
    if tiling is not None:
        require_plan(tiling, options.profile, compute)
    model = accumulation_of(compute, options)
    return _Call(problem, options.profile, compute, (operands, operands, out), model, tiling)


def _steps(call: _Call) -> list[Node]:
    """Return the kernels: conversions of the operands where the cube needs another format, the product."""
    p = call.problem
    vectors = Vectors(call.profile, call.model)
    shapes = {"a": p.stored_a, "b": p.stored_b}
    steps = [
        converted(vectors, Named(name, shape), call.formats[0], call.storage)
        for name, shape in shapes.items()
        if call.formats[0] != call.storage
    ]
    return [*steps, _product(call)]


def _product(call: _Call) -> Node:
    p, profile = call.problem, call.profile
    a = gm_tensor("a", p.stored_a, call.storage, "input")
    b = gm_tensor("b", p.stored_b, call.storage, "input")
    c = gm_tensor("c", (p.batch, p.m, p.n), call.formats[2], "output")
    plan = call.tiling or matmul_tiling(p, profile, call.compute, a.itemsize)
    ties = profile.generation.hf32_ties["matmul"]
    schedule = MatmulSchedule(p, plan, profile, a, b, c, call.compute)
    kernel = Kernel(
        "matmul",
        (schedule.phase(),),
        {tensor.name: tensor for tensor in (a, b, c)},
        MathSettings(call.model, ties, overflow(profile, c.dtype)),
        p.macs,
        call.compute,
        facts={"tiling": plan},
    )

    def bind(tensors: Tensors) -> Tensors:
        return {
            name: as_multiplied(tensors[name].reshape(shape), call.compute, profile, ties)
            for name, shape in (("a", p.stored_a), ("b", p.stored_b))
        }

    return Node(kernel, bind, lambda gm: {"c": gm["c"].reshape(c.shape)})


def _fields(call: _Call) -> dict[str, Any]:
    """Return what every result says of the call."""
    return {
        "product": call.profile.product,
        "variant": call.profile.variant,
        "compute_dtype": full_name(call.compute, call.profile),
        "accumulation": str(call.model),
        "notes": () if call.tiling else (NOTE,),
    }
