"""Matrix products: results with cycles, or cycles alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.numerics.accumulation.integers import IntegerSum
from ascendsim.numerics.accumulation.settings import Accumulation, MathSettings
from ascendsim.numerics.formats.dtypes import INT8
from ascendsim.ops.lowering import matmul_formats
from ascendsim.ops.lowering.cube import product_kernel
from ascendsim.ops.lowering.generations import HF32_TIES
from ascendsim.ops.lowering.graph import Graph, GraphBuilder
from ascendsim.ops.lowering.vector import VectorKernels
from ascendsim.ops.options import Options, ProductOptions, options_of
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.hf32 import full_name, stored_name
from ascendsim.ops.problems.matmul import MatmulGemm, MatmulProblem, problem_of
from ascendsim.ops.results import Estimate, MatmulResult
from ascendsim.ops.running import name_of, run_graph, time_graph
from ascendsim.ops.schedules.catalogue import schedule_named
from ascendsim.profile import Profile
from ascendsim.program.places import GmTensor

NOTE = "The tiling is this simulator's own; the product's operators choose their own."


@dataclass(frozen=True)
class _Call:
    """A matrix product with everything resolved; `formats` are those of a, b and c.

    `chosen` says that the plan is not the user's.
    """

    problem: MatmulProblem
    profile: Profile
    compute: str
    formats: tuple[str, str, str]
    model: Accumulation
    plan: Plan
    chosen: bool

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
    cube_math_type: int = 0,
    out_dtype: str | None = None,
    order: str | int = "program",
    **keywords: Unpack[ProductOptions],
) -> MatmulResult:
    """Multiply two matrices, or a batch of pairs, bit for bit as the cube does, and count the cycles.

    Shapes   a (m, k), b (k, n) -> (m, n); stored the other way round where transpose_a, transpose_b say so;
             with a batch in front of all three
    Types    one format for both operands; the result in `out_dtype`, by default the operands'; of int8 always
             int32, with `accumulation` int32:wrap (the default) or int32:saturate
    Order    of execution: "program", "arrival" (as timed) or a seed
    Keywords as `ProductOptions` describes them: product, accumulation, tiling, schedule, l2_start
    Raises   ShapeError, UnsupportedError, ConfigError, CapacityError: all AscendSimError
    Source   operator page of aclnnMatmul (cubeMathType); HF32 of a matrix product rounds ties away
    """
    from ascendsim.ops.operands import Operand

    left, right = Operand.of(a), Operand.of(b)
    problem = problem_of(left.view.shape, right.view.shape, transpose_a=transpose_a, transpose_b=transpose_b)
    options = options_of("matmul", keywords, ProductOptions)
    call = _resolve(problem, (left.dtype, right.dtype), out_dtype, cube_math_type, options)
    tensors = {"a": matmul_formats.carrier(left), "b": matmul_formats.carrier(right)}
    results, made = run_graph(_graph(call), call.profile, options.l2_start, tensors, order)
    output = made["c"] if left.view.shape[:-2] else made["c"][0]
    return MatmulResult(
        **_fields(call),
        kernels=tuple(results),
        output=matmul_formats.stored(output, call.formats[2]),
        order=name_of(order),
    )


def estimate_matmul(
    problem: MatmulProblem,
    dtype: str = "float16",
    *,
    cube_math_type: int = 0,
    out_dtype: str | None = None,
    **keywords: Unpack[ProductOptions],
) -> Estimate:
    """Estimate the cycles of a matrix product without tensors.

    Types    `dtype` is the format of both operands
    Keywords as `ProductOptions` describes them
    Raises   as `matmul`
    """
    if not isinstance(problem, MatmulProblem):
        raise ConfigError(f"estimate_matmul: problem is {problem!r}; it must be MatmulProblem(m, k, n)")
    options = options_of("estimate_matmul", keywords, ProductOptions)
    call = _resolve(problem, (dtype, dtype), out_dtype, cube_math_type, options)
    return Estimate(**_fields(call), kernels=tuple(time_graph(_graph(call), call.profile, options.l2_start)))


def _resolve(
    problem: MatmulProblem,
    formats: tuple[str, str],
    out_dtype: str | None,
    cube_math_type: int,
    options: Options,
) -> _Call:
    """Decide what the cube multiplies and what comes out."""
    if formats[0] != formats[1]:
        raise UnsupportedError(f"matmul: a is {formats[0]} and b {formats[1]}; both must be of one format")
    operands = matmul_formats.operand_format(formats[0])
    compute = matmul_formats.compute_format(operands, cube_math_type, options.profile)
    out = matmul_formats.result_format(operands, out_dtype)
    model = _accumulation(compute, options)
    plan = options.plans(problem, ["product"], compute)["product"]
    chosen = options.tiling is None
    return _Call(problem, options.profile, compute, (operands, operands, out), model, plan, chosen)


def _accumulation(compute: str, options: Options) -> Accumulation:
    """Return how the cube adds up products of a format."""
    if compute != INT8.name:
        return options.model(compute)
    return IntegerSum() if options.accumulation is None else IntegerSum.parse(str(options.accumulation))


def _graph(call: _Call) -> Graph:
    """Return the kernels: conversions of the operands where the cube needs another format, the product."""
    p, profile = call.problem, call.profile
    shapes = {"a": p.stored_a, "b": p.stored_b}
    graph = GraphBuilder({name: GmTensor.of(name, shape, call.formats[0]) for name, shape in shapes.items()})
    on = VectorKernels(graph, profile, call.model)
    for name in shapes:
        if call.formats[0] != call.storage:
            on.convert(name, call.storage)
    c = GmTensor.of("c", (p.batch, p.m, p.n), call.formats[2], "output")
    gemm = MatmulGemm(p, graph.now("a"), graph.now("b"), c, call.compute)
    schedule = schedule_named(call.plan.schedule)(gemm, call.plan.tiling, profile)
    math = MathSettings(call.model, HF32_TIES["matrix product"], matmul_formats.overflow(profile, c.dtype))
    graph.add(product_kernel("matmul", schedule, call.plan, math, p.macs, call.compute))
    graph.holds("c", c, c.shape)
    return graph.build(("c",))


def _fields(call: _Call) -> dict[str, Any]:
    """Return what every result says of the call."""
    return {
        "product": call.profile.product,
        "variant": call.profile.variant,
        "compute_dtype": full_name(call.compute, call.profile),
        "accumulation": str(call.model),
        "notes": (NOTE,) if call.chosen else (),
    }
