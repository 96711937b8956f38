"""Matrix products: results with cycles, or cycles alone."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from ascendsim.errors import ConfigError, ShapeError, UnsupportedError, shown
from ascendsim.instructions.cube import FRACTAL_ROWS
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.native.process import collector_paused
from ascendsim.numerics.accumulation import Accumulation, AccumulationModel, IntegerSum, MathSettings
from ascendsim.numerics.dtypes import INT8, INT32
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.numerics.dtypes import name_of as name_of_format
from ascendsim.ops.lowering import formats as matmul_formats
from ascendsim.ops.lowering.graph import Graph, GraphBuilder, VectorKernels
from ascendsim.ops.lowering.kernels import product_kernel
from ascendsim.ops.lowering.layouts import one_group, split_groups
from ascendsim.ops.options.call import Options, options_of, order_given, thread_count
from ascendsim.ops.options.keywords import ProductOptions
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import (
    C0_BYTES,
    REGROUPS,
    ConvProblem,
    as_multiplied,
    filling_groups,
    full_name,
    groups_of,
    merged,
    stored_name,
)
from ascendsim.ops.problems.matmul import MatmulGemm, MatmulProblem, problem_of
from ascendsim.ops.results import Estimate, KernelResult
from ascendsim.ops.running import name_of, run_graph, time_graph
from ascendsim.ops.schedules.base import schedule_named
from ascendsim.ops.schedules.matmul import through_ub
from ascendsim.ops.schedules.vector.regroup import Regroup
from ascendsim.ops.schedules.vector.relayout import PixelRelayout, Relayout
from ascendsim.ops.schedules.vector.taps import GradientRelayout, WeightRelayout
from ascendsim.profile import Profile
from ascendsim.program.kernel import Kernel
from ascendsim.program.places import CoreMemory, GmTensor
from ascendsim.rules.typed import cube_math_number
from ascendsim.timing.l2 import l2_note

if TYPE_CHECKING:
    from ascendsim.ops.lowering.call import Tensors
    from ascendsim.ops.operands import Operand

NOTE = "The tiling is this simulator's choice; the product's operators choose their own."
ND_NOTE = (
    "Operands lie row after row (ND), and copies of this product into L1 do not turn rows into fractals: "
    "they go through UB. Matrix products of this kind are not validated (docs/validation.md)."
)
RULE_NOTE = "The tiling follows the rules of the product's operator"


@dataclass(frozen=True, slots=True)
class MatmulResult(Estimate):
    """A matrix product and its cycles; `order`, `timing` and `overflowed` as of a convolution backward."""

    output: Any
    order: str
    timing: bool = True
    overflowed: tuple[str, ...] | None = None


class PlannedProduct(NamedTuple):
    """Everything about a call of `matmul` that does not depend on the values in its matrices.

    said    what every result says of the call
    kernel  the only one, where it makes the product at once and saturates nothing; None: it is not so
    """

    options: Options
    graph: Graph
    said: dict[str, Any]
    kernel: Kernel | None

    @classmethod
    def of(
        cls,
        problem: MatmulProblem,
        formats: tuple[str, str],
        out_dtype: str | None,
        cube_math_type: int,
        options: Options,
    ) -> PlannedProduct:
        """Plan a product of two formats.

        Raises   as `matmul`
        """
        p = problem
        options.require_room(p.stored_a, p.stored_b, (p.batch, p.m, p.n))
        graph, said = _lowered(p, formats, out_dtype, cube_math_type, options)
        c, kernel = graph.outputs["c"].dtype, None
        if c != INT32.name and matmul_formats.vector_overflow(options.profile, c) == "ieee":
            match graph.nodes:
                case (Kernel(phases=(phase,)) as own,) if phase.at_once:
                    kernel = own
        return cls(options, options.within(graph), said, kernel)

    @default_arithmetic
    def run(self, left: Operand, right: Operand, order: str | int, *, timing: bool) -> MatmulResult:
        """Return the result of the call; the matrices are of the shapes and formats of the plan."""
        carriers = {"a": matmul_formats.carrier(left), "b": matmul_formats.carrier(right)}
        thread_count(1, timing=timing)
        results, output, cut = self.made(carriers, order, timing=timing)
        # A single matrix runs as a batch of one.
        output = output if left.view.shape[:-2] else output[0]
        return MatmulResult(
            **self.said,
            kernels=tuple(results),
            output=matmul_formats.stored(output, self.graph.outputs["c"].dtype),
            order=name_of(order),
            timing=timing,
            overflowed=None if timing else tuple(sorted(cut)),
        )

    def made(
        self, carriers: Tensors, order: str | int, *, timing: bool = False
    ) -> tuple[list[KernelResult], Any, set[str]]:
        """Return cycles, if asked for, the carriers (batch, m, n), and kernels that saturated a value.

        carriers   of a and b, which stay as they are
        """
        graph, options, kernel, cut = self.graph, self.options, self.kernel, set[str]()
        if timing or kernel is None or order != "program":
            more: Any = {"timing": timing, "cut": None if timing else cut}
            machine = options.profile, options.l2_start
            results, made = run_graph(graph, *machine, carriers, order, options.engine, **more)
            return results if timing else [], made["c"], cut
        import numpy as np

        c, how = graph.outputs["c"], (kernel.compute_dtype, options.profile, kernel.math.hf32_ties)
        gm = {c.name: np.empty(c.shape, np.float32)}
        for name, tensor in graph.inputs.items():
            gm[tensor.name] = as_multiplied(carriers[name], *how).reshape(tensor.shape)
        with np.errstate(all="ignore"):
            kernel.phases[0].at_once(CoreMemory(gm, kernel.math, {}))  # type: ignore[misc]
        return [], gm[c.name], cut


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
    timing: bool = True,
    **keywords: Unpack[ProductOptions],
) -> MatmulResult:
    """Multiply two matrices, or a batch of pairs, bit for bit as the cube does, and count the cycles.

    Shapes   a (m, k), b (k, n) -> (m, n); stored the other way round where transpose_a, transpose_b say so;
             with a batch in front of all three
    Types    one format for both operands; the result in `out_dtype`, by default the operands'; of int8 always
             int32, with `accumulation` int32:wrap (the default) or int32:saturate
    Order    of execution: "program", "arrival" (as timed) or a seed
    Timing   False: the same bits without cycles; `estimate_matmul` has those
    Keywords as `ProductOptions` describes them: product, accumulation, tiling, schedule, l2_start
    Raises   ShapeError, UnsupportedError, ConfigError, CapacityError: all AscendSimError
    Source   operator page of aclnnMatmul (cubeMathType); HF32 of a matrix product rounds ties away
    """
    from ascendsim.ops.operands import Operand

    order = order_given(order)
    left, right = Operand.of(a, "a"), Operand.of(b, "b")
    problem = problem_of(left.view.shape, right.view.shape, transpose_a=transpose_a, transpose_b=transpose_b)
    options = options_of("matmul", keywords, ProductOptions)
    planned = PlannedProduct.of(problem, (left.dtype, right.dtype), out_dtype, cube_math_type, options)
    return planned.run(left, right, order, timing=timing)


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
    machine = options.profile, options.l2_start, options.engine
    return Estimate(**said, kernels=tuple(time_graph(options.within(graph), *machine)))


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
    model = accumulation_of(compute, options)
    # Chosen once: the kernel keeps it in its facts, and whoever reads the result finds it there.
    plan = options.plans(p, ["matmul"], compute, out)["matmul"]
    shapes = {"a": p.stored_a, "b": p.stored_b}
    graph = GraphBuilder({name: GmTensor.of(name, shape, given) for name, shape in shapes.items()})
    storage = stored_name(compute)
    if given != storage:
        for name in shapes:
            VectorKernels(graph, profile, model).convert(name, storage)
    append_product(graph, "matmul", p, ("a", "b", "c"), plan, (compute, out), (profile, model))
    notes = (*product_notes([(p, plan)], options), l2_note(options.l2_start, "a"))
    said = {
        "product": profile.product,
        "variant": profile.variant,
        "compute_dtype": full_name(compute, profile),
        "accumulation": str(model),
        "notes": notes,
    }
    return graph.build(("c",)), said


def append_product(
    graph: GraphBuilder,
    kernel: str,
    p: MatmulProblem,
    names: tuple[str, str, str],
    plan: Plan,
    formats: tuple[str, str],
    machine: tuple[Profile, Accumulation],
    op_type: str = "",
) -> None:
    """Append the kernel of a product of two tensors of the call, which lie as the product stores them.

    names     of both operands and of the result
    formats   in which the cube multiplies, and that of the result
    """
    (compute, out), (profile, model) = formats, machine
    a = replace(graph.now(names[0]), shape=p.stored_a)
    b = replace(graph.now(names[1]), shape=p.stored_b)
    c = graph.make(names[2], (p.batch, p.m, p.n), out)
    schedule = schedule_named(plan.schedule)(MatmulGemm(p, a, b, c, compute), plan.tiling, profile)
    ties = profile.generation.hf32_ties["matmul"]
    math = MathSettings(model, ties, matmul_formats.overflow(profile, out))
    graph.add(product_kernel(kernel, schedule, plan, math, p.macs, compute, op_type))
    graph.holds(names[2], c, c.shape)


def product_notes(products: Sequence[tuple[MatmulProblem, Plan]], options: Options) -> tuple[str, ...]:
    """Return whose tilings products follow, unless they are the user's, and which copies go through UB."""
    chosen = [note for _, plan in products for note in _notes(plan, named=options.tiling is not None)]
    by_ub = any(through_ub(p, options.profile) for p, _ in products)
    return (*dict.fromkeys(chosen), *([ND_NOTE] if by_ub else []))


def _notes(plan: Plan, *, named: bool) -> tuple[str, ...]:
    """Return by whose rules the tiling was chosen, unless the user named them, and why not by others."""
    who = () if named else (f"{RULE_NOTE}: {plan.rule}." if plan.rule else NOTE,)
    return (*who, f"Not taken: the {plan.instead}.") if plan.instead else who


def accumulation_of(compute: str, options: Options) -> Accumulation:
    """Return the accumulation model of the cube for a format."""
    # Sums of integers are exact in any order; their model only says how they leave int32.
    if compute != INT8.name:
        return options.model(compute)
    return IntegerSum() if options.accumulation is None else IntegerSum.parse(str(options.accumulation))


# The order of its positional arguments.
_FIELDS = (
    *("base_m", "base_n", "base_k", "step_ka", "step_kb", "single_core_m", "single_core_n"),
    *("al1_buffers", "bl1_buffers", "al0_buffers", "bl0_buffers", "cl0_buffers"),
    *("swizzle", "used_cores", "panels", "keep_pieces", "unit_flag"),
)


class MatmulTiling:
    """A call makes a `Tiling`, which replaces it: the same fields, `keep_pieces` is now `reuse_l1`."""

    # No record of its own: it returns a Tiling, so that no other place need know two kinds.
    def __new__(cls, *values: Any, **fields: Any) -> Tiling:  # type: ignore[misc]
        """Return the `Tiling` with the same meaning."""
        warnings.warn(
            "MatmulTiling goes with the next release; use ascendsim.Tiling, where keep_pieces is reuse_l1",
            DeprecationWarning,
            stacklevel=2,
        )
        twice = set(_FIELDS[: len(values)]) & set(fields)
        if len(values) > len(_FIELDS) or twice:
            raise TypeError(f"MatmulTiling() got too many values, or some twice: {sorted(twice)}")
        given = dict(zip(_FIELDS, values, strict=False)) | fields
        if "keep_pieces" in given:
            given["reuse_l1"] = given.pop("keep_pieces")
        return Tiling(**given)


def estimate_transdata(
    change: str,
    shape: tuple[int, ...],
    dtype: str,
    profile: Profile,
    *,
    c0: int = 0,
    groups: int = 1,
    l2_start: str = "warm",
) -> KernelResult:
    """Return the cycles of a TransData.

    change   one of `packed.CHANGES`; "FRACTAL_Z->FRACTAL_Z": from one group to `groups`, without its MemSet
    shape    of the tensor row after row: four sizes, with D five
    c0       channels of a group of C0; 0: those of 32 bytes
    Raises   ShapeError if there are more sizes or fewer, or channels do not divide into groups
    """
    graph = GraphBuilder({})
    c0 = c0 or C0_BYTES // lookup_dtype(dtype).itemsize
    kernels = VectorKernels(graph, profile, AccumulationModel("exact"))
    if change == REGROUPS:
        kernels.regroup("weight", regroup_of(shape, dtype, c0, groups))
    else:
        kernels.transdata("transdata", change_of(change, shape, dtype, c0))
    return time_graph(graph.build(()), profile, l2_start, "compiled")[-1]


def change_of(change: str, shape: tuple[int, ...], dtype: str, c0: int) -> Relayout:
    """Return a change of layout by its words, as `estimate_transdata` takes them."""
    plainly = "NCDHW" if "NCDHW" in change else "NCHW"
    if len(shape) != len(plainly):
        raise ShapeError(
            f"TransData {change}: the shape is {shape}; give {len(plainly)} sizes, in the order {plainly}"
        )
    first, channels, *window = shape
    depth, area = (window[0] if plainly == "NCDHW" else 1), prod(window[-2:])
    c1, packs = groups_of(channels, c0), change.startswith(plainly)
    pixels = "C1HWC0" in change
    plain: tuple[int, ...] = (first, channels, depth, area) if pixels else (1, first, channels, depth, area)
    rows = groups_of(first, FRACTAL_ROWS) * FRACTAL_ROWS
    packed: tuple[int, ...] = (1, first, depth, c1, area, c0)
    if not pixels:
        packed = (1, depth, c1, area, c0, rows) if packs else (1, depth, rows, c1, area, c0)
    roles = ("input", "output") if packs else ("output", "input")
    tensors = GmTensor.of("plain", plain, dtype, roles[0]), GmTensor.of("packed", packed, dtype, roles[1])
    if pixels:
        return PixelRelayout(*tensors, channels, packs)
    if packs:
        return WeightRelayout(*tensors, channels, packs, reduces_small=False)
    return GradientRelayout(*tensors, channels, packs)


def regroup_of(shape: tuple[int, ...], dtype: str, c0: int, groups: int) -> Regroup:
    """Return the change of a weight (N, C of a group, H, W) in fractals from one group to `groups` groups."""
    if len(shape) != 4 or shape[0] % groups:
        raise ShapeError(
            f"TransData {REGROUPS}: the shape is {shape}, with {groups} groups; give four sizes, the first "
            "one a multiple of the groups"
        )
    rows, channels, height, width = shape
    problem = ConvProblem((1, channels * groups, height, width), shape, groups=groups)
    merge = filling_groups(groups, channels, rows // groups, c0)
    whole = merged(problem, merge)
    columns = groups_of(whole.small_channels, FRACTAL_ROWS) * FRACTAL_ROWS
    many = (whole.groups, 1, groups_of(whole.big_channels, c0), height, width, c0, columns)
    one = GmTensor.of("one group", one_group(problem, c0, gradient=False), dtype)
    return split_groups(
        one, GmTensor.of("many groups", many, dtype, "output"), problem, reduce_small=False, merge=merge
    )
