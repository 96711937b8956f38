"""Matrix products: results with cycles, or cycles alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

from ascendsim.arguments import shown
from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.native.collector import collector_paused
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.accumulation.integers import IntegerSum
from ascendsim.numerics.accumulation.settings import Accumulation, MathSettings
from ascendsim.numerics.formats.dtypes import INT8
from ascendsim.numerics.formats.dtypes import name_of as name_of_format
from ascendsim.ops.lowering import matmul_formats
from ascendsim.ops.lowering.cube import product_kernel
from ascendsim.ops.lowering.graph import Graph, GraphBuilder
from ascendsim.ops.lowering.vector import VectorKernels
from ascendsim.ops.options.call import Options, options_of
from ascendsim.ops.options.keywords import ProductOptions, order_given
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.hf32 import full_name, stored_name
from ascendsim.ops.problems.matmul import MatmulGemm, MatmulProblem, problem_of
from ascendsim.ops.results import Estimate
from ascendsim.ops.running import name_of, run_graph, time_graph
from ascendsim.ops.schedules.catalogue import schedule_named
from ascendsim.ops.schedules.matmul import through_ub
from ascendsim.program.places import GmTensor
from ascendsim.rules.typed import cube_math_number

NOTE = "The tiling is this simulator's choice; the product's operators choose their own."
ND_NOTE = (
    "Operands lie row after row (ND), and copies of this product into L1 do not turn rows into fractals: "
    "they go through UB. Such products are not validated (docs/validation.md)."
)
RULE_NOTE = "The tiling follows the rules of the product's operator"


@dataclass(frozen=True, slots=True)
class MatmulResult(Estimate):
    """A matrix product and its cycles; `order` as of a convolution backward."""

    output: Any
    order: str


@default_arithmetic
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

    order = order_given(order)
    left, right = Operand.of(a, "a"), Operand.of(b, "b")
    problem = problem_of(left.view.shape, right.view.shape, transpose_a=transpose_a, transpose_b=transpose_b)
    options = options_of("matmul", keywords, ProductOptions)
    graph, said = _lowered(problem, (left.dtype, right.dtype), out_dtype, cube_math_type, options)
    tensors = {"a": matmul_formats.carrier(left), "b": matmul_formats.carrier(right)}
    results, made = run_graph(graph, options.profile, options.l2_start, tensors, order, options.engine)
    # A single matrix runs as a batch of one.
    output = made["c"] if left.view.shape[:-2] else made["c"][0]
    stored = matmul_formats.stored(output, graph.outputs["c"].dtype)
    return MatmulResult(**said, kernels=tuple(results), output=stored, order=name_of(order))


@default_arithmetic
@collector_paused()
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
        raise ConfigError(f"estimate_matmul: problem is {shown(problem)}; it must be MatmulProblem(m, k, n)")
    options = options_of("estimate_matmul", keywords, ProductOptions)
    formats = (name_of_format(dtype),) * 2
    graph, said = _lowered(problem, formats, out_dtype, cube_math_type, options)
    return Estimate(
        **said, kernels=tuple(time_graph(graph, options.profile, options.l2_start, options.engine))
    )


def _lowered(
    problem: MatmulProblem,
    formats: tuple[str, str],
    out_dtype: str | None,
    cube_math_type: int,
    options: Options,
) -> tuple[Graph, dict[str, Any]]:
    """Return the kernels of a call, and what every result says of it.

    Kernels  conversions of the operands where the cube needs another format, the product
    """
    if formats[0] != formats[1]:
        raise UnsupportedError(f"matmul: a is {formats[0]} and b {formats[1]}; both must be of one format")
    cube_math_type = cube_math_number(cube_math_type)
    p, profile, given = problem, options.profile, matmul_formats.operand_format(formats[0])
    compute = matmul_formats.compute_format(given, cube_math_type, profile)
    out = matmul_formats.result_format(given, out_dtype)
    model = _accumulation(compute, options)
    # Chosen once: the kernel keeps it in its facts, and whoever reads the result finds it there.
    plan = options.plans(p, ["matmul"], compute, out)["matmul"]
    shapes = {"a": p.stored_a, "b": p.stored_b}
    graph = GraphBuilder({name: GmTensor.of(name, shape, given) for name, shape in shapes.items()})
    storage = stored_name(compute)
    if given != storage:
        for name in shapes:
            VectorKernels(graph, profile, model).convert(name, storage)
    c = GmTensor.of("c", (p.batch, p.m, p.n), out, "output")
    gemm = MatmulGemm(p, graph.now("a"), graph.now("b"), c, compute)
    schedule = schedule_named(plan.schedule)(gemm, plan.tiling, profile)
    ties = profile.generation.hf32_ties["matmul"]
    math = MathSettings(model, ties, matmul_formats.overflow(profile, out))
    graph.add(product_kernel("matmul", schedule, plan, math, p.macs, compute))
    graph.holds("c", c, c.shape)
    notes = _notes(plan) if options.tiling is None else ()
    if through_ub(p, profile):
        notes += (ND_NOTE,)
    said = {
        "product": profile.product,
        "variant": profile.variant,
        "compute_dtype": full_name(compute, profile),
        "accumulation": str(model),
        "notes": notes,
    }
    return graph.build(("c",)), said


def _notes(plan: Plan) -> tuple[str, ...]:
    """Return by whose rules the tiling was chosen, and why not by the operator's."""
    if plan.rule:
        return (f"{RULE_NOTE}: {plan.rule}.",)
    return (NOTE, f"Not taken: the {plan.instead}.") if plan.instead else (NOTE,)


def _accumulation(compute: str, options: Options) -> Accumulation:
    """Return how the cube adds up products of a format."""
    # Sums of integers are exact in any order; what their model says is how they leave int32.
    if compute != INT8.name:
        return options.model(compute)
    return IntegerSum() if options.accumulation is None else IntegerSum.parse(str(options.accumulation))
