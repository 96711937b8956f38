"""Matrix products: results with cycles, or cycles alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.numerics.controls import fixpipe_overflow
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.numerics.settings import MathSettings
from ascendsim.ops.call import Step, gm_tensor, is_described, vector_overflow
from ascendsim.ops.generations import HF32_TIES
from ascendsim.ops.hf32 import as_multiplied, full_name, stored_name
from ascendsim.ops.matmul_gemm import MatmulSchedule
from ascendsim.ops.matmul_problem import MatmulProblem, problem_of
from ascendsim.ops.options import Options, Product
from ascendsim.ops.results import Estimate, MatmulResult
from ascendsim.ops.running import name_of, run_steps, time_steps
from ascendsim.ops.tiling.matmul import MatmulTiling, matmul_tiling, require_plan
from ascendsim.ops.vector_steps import Named, Vectors, converted
from ascendsim.program import GmTensor, Kernel

if TYPE_CHECKING:
    from ascendsim.numerics.models import AccumulationModel
    from ascendsim.ops.call import Tensors
    from ascendsim.profile import Profile

CUBE_MATH_TYPES = {0: "keep", 1: "allow lower precision", 2: "float16", 3: "HF32"}
NOTE = "The tiling is this simulator's own; the product's operators choose their own."


@dataclass(frozen=True)
class _Call:
    """A matrix product with everything resolved; `formats` are those of a, b and c."""

    problem: MatmulProblem
    profile: Profile
    compute: str
    formats: tuple[str, str, str]
    model: AccumulationModel
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
    Types    one format for both operands; the result in `out_dtype`, by default the operands'
    Order    of execution: "program", "arrival" (as timed) or a seed
    Raises   ShapeError, UnsupportedError, ConfigError, CapacityError: all AscendSimError
    Source   operator page of aclnnMatmul (cubeMathType); HF32 of a matrix product rounds ties away
    """
    from ascendsim.numerics.casts import encode
    from ascendsim.ops.operands import Operand

    left, right = Operand.of(a), Operand.of(b)
    problem = problem_of(left.view.shape, right.view.shape, transpose_a=transpose_a, transpose_b=transpose_b)
    options = Options(product, accumulation, l2_start=l2_start)
    call = _resolve(problem, (left.dtype, right.dtype), out_dtype, cube_math_type, options, tiling)
    tensors = {"a": left.carrier(), "b": right.carrier()}
    results = run_steps(_steps(call), call.profile, l2_start, tensors, order)
    output = tensors["c"] if left.view.shape[:-2] else tensors["c"][0]
    return MatmulResult(
        **_fields(call), kernels=tuple(results), output=encode(output, call.formats[2]), order=name_of(order)
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
    name = lookup_dtype(dtype).name
    call = _resolve(problem, (name, name), out_dtype, cube_math_type, options, tiling)
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
    compute = compute_format(formats[0], cube_math_type, options.profile)
    out = lookup_dtype(out_dtype or formats[0]).name
    if tiling is not None:
        require_plan(tiling, options.profile, compute)
    return _Call(problem, options.profile, compute, (*formats, out), options.model(compute), tiling)


def compute_format(stored: str, cube_math_type: int, profile: Profile) -> str:
    """Return what the cube multiplies for operands stored in a format.

    Raises   UnsupportedError if cubeMathType is not 0 to 3 or the product's cube cannot do what it asks
    """
    if cube_math_type not in CUBE_MATH_TYPES or isinstance(cube_math_type, bool):
        raise UnsupportedError(
            f"matmul: cube_math_type is {cube_math_type!r}; it must be one of "
            + ", ".join(f"{value} ({name})" for value, name in CUBE_MATH_TYPES.items())
        )
    rates = profile.cube.rates
    lower = "hf32" if "hf32" in rates else "float16"
    wanted = {0: "float32", 1: lower, 2: "float16", 3: "hf32"}[cube_math_type]
    compute = wanted if stored == "float32" else stored
    if compute not in rates:
        raise UnsupportedError(
            f"matmul: {stored} with cube_math_type {cube_math_type} ({CUBE_MATH_TYPES[cube_math_type]}) "
            f"needs {compute} in the cube of {profile.variant}, which multiplies {', '.join(rates)}"
        )
    return compute


def _steps(call: _Call) -> list[Step]:
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


def _product(call: _Call) -> Step:
    p, profile = call.problem, call.profile
    a = gm_tensor("a", p.stored_a, call.storage, "input")
    b = gm_tensor("b", p.stored_b, call.storage, "input")
    c = gm_tensor("c", (p.batch, p.m, p.n), call.formats[2], "output")
    plan = call.tiling or matmul_tiling(p, profile, call.compute, a.itemsize)
    schedule = MatmulSchedule(p, plan, profile, a, b, c, call.compute)
    kernel = Kernel(
        "matmul",
        (schedule.phase(),),
        {tensor.name: tensor for tensor in (a, b, c)},
        MathSettings(call.model, HF32_TIES["matrix product"], _overflow(profile, c)),
        p.macs,
        call.compute,
        facts={"tiling": plan},
    )

    def bind(tensors: Tensors) -> Tensors:
        return {
            name: as_multiplied(
                tensors[name].reshape(shape), call.compute, profile, HF32_TIES["matrix product"]
            )
            for name, shape in (("a", p.stored_a), ("b", p.stored_b))
        }

    return Step(kernel, bind, lambda gm: {"c": gm["c"].reshape(c.shape)})


def _overflow(profile: Profile, c: GmTensor) -> str:
    """Return what a result beyond the largest finite value becomes on its way out."""
    if profile.has_path("L0C", "GM") and is_described(profile):
        return fixpipe_overflow(profile.npu_arch, c.dtype)
    return vector_overflow(profile, c.dtype)


def _fields(call: _Call) -> dict[str, Any]:
    """Return what every result says of the call."""
    return {
        "product": call.profile.product,
        "variant": call.profile.variant,
        "compute_dtype": full_name(call.compute, call.profile),
        "accumulation": str(call.model),
        "notes": () if call.tiling else (NOTE,),
    }
