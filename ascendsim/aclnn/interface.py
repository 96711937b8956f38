"""The first phase: check every argument, and say how much workspace the second phase needs."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.aclnn.handles import AclTensor, Executor, describe
from ascendsim.errors import AclnnError, AscendSimError, CapacityError, ConfigError, UnsupportedError, shown
from ascendsim.frozen import FrozenMap
from ascendsim.instructions.cube import FRACTAL_ROWS
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.lowering.call import INPUTS, Call
from ascendsim.ops.options.keywords import CallOptions, Keywords, TbcOptions
from ascendsim.ops.problems.convolution import filling_groups
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.vendor.operators import operator_plan, product_tiling
from ascendsim.ops.tiling.vendor.workspace import operator_workspace
from ascendsim.profile import is_file_name
from ascendsim.rules import ConvolutionBackwardCall, ConvTbcBackwardCall, Decision, resolve
from ascendsim.rules.typed import CHECK, typed

if TYPE_CHECKING:
    from ascendsim.ops.lowering.graph import Graph
    from ascendsim.ops.options.call import Options
    from ascendsim.ops.options.keywords import Product
    from ascendsim.ops.problems.convolution import ConvProblem
    from ascendsim.ops.problems.views import View
    from ascendsim.profile import Profile


# What the runtime takes for itself beside the kernels.
SYSTEM_BYTES = 16 * 2**20
INNER = 561103  # ACLNN_ERR_INNER_NULLPTR
# Larger calls are accepted by the rules and not planned: choosing how to cut one image, matching depths with
# taps in depth, and numbering the base blocks of a gradient would take minutes and gigabytes. At these limits
# it takes seconds. Bytes and times are held in 64 bits, where a thousand devices' memory has room.
LARGEST = {
    "elements in one tensor": 2**48,
    "pixels in one image": 2**25,
    "pairs of depth and kernel depth": 150_000,
    "tiles of 256 x 256 in a gradient (grad_input: of one image)": 2**20,
}
TILE = 256


def workspace_bytes(
    call: ConvolutionBackwardCall | ConvTbcBackwardCall, decision: Decision, options: Options
) -> int:
    """Return the bytes of all workspaces of an accepted call's kernels, plus 16 MiB.

    Raises   AclnnError 561103 where the product's kernels cannot be made, or the call is too large to plan
    """
    # An empty call writes zeros at most, and a convolution of no elements cannot be lowered.
    if decision.empty:
        return SYSTEM_BYTES
    # The last check of each interface's order: the operators that it calls in turn.
    tbc = isinstance(call, ConvTbcBackwardCall)
    check = "8 (inner operators)" if tbc else "31 (inner operators)"
    try:
        problem = _tbc_problem(call) if isinstance(call, ConvTbcBackwardCall) else _problem(call, decision)
        _require_plannable(problem, check)
        return SYSTEM_BYTES + between_kernels(*_lowered(call, problem, decision, options))
    except AclnnError:
        raise
    except AscendSimError as error:
        raise AclnnError(INNER, check, str(error)) from error
    except MemoryError:
        raise AclnnError(INNER, check, "the call is too large: its kernels do not fit into memory") from None


def between_kernels(graph: Graph, inner: Call) -> int:
    """Return the bytes of all tensors in global memory that are neither inputs nor outputs of a call.

    What one kernel makes for a later one (contiguous copies, permutations, casts, changed layouts, a gradient
    before its cast) and what a kernel keeps for itself. Each has a place of its own: no memory is used twice.
    A kernel under the plan of the product's operator keeps what that operator asks for, where this is known.
    """
    ends = {tensor.name for tensor in (*graph.inputs.values(), *graph.outputs.values())}
    from ascendsim.program.kernel import Kernel

    made: dict[str, int] = {}
    kept = 0
    for node in graph.nodes:
        if not isinstance(node, Kernel):
            # A kernel of the cube reads or writes row after row itself: both names are one tensor in memory.
            if node.source.name in made:
                made[node.target.name] = min(made.pop(node.source.name), node.target.size_bytes)
            continue
        own = sum(tensor.size_bytes for tensor in node.tensors.values() if tensor.role == "workspace")
        asked = asked_by_operator(inner, node.name, node.op_type)
        kept += own if asked is None else asked
        made |= {
            tensor.name: tensor.size_bytes for tensor in node.tensors.values() if tensor.role == "output"
        }
    return kept + sum(size for name, size in made.items() if name not in ends)


def _lowered(
    call: ConvolutionBackwardCall | ConvTbcBackwardCall,
    problem: ConvProblem,
    decision: Decision,
    options: Options,
) -> tuple[Graph, Call]:
    """Return the kernels of a call, which are described and not run, and the convolution that they make.

    Shapes without values are enough.
    """
    views = {name: _view(getattr(call, name)) for name in (*INPUTS, *decision.wanted_gradients)}
    if isinstance(call, ConvTbcBackwardCall):
        from ascendsim.ops.convolution_backward import tbc_call, tbc_graph

        inner = tbc_call(views, call.pad, decision, options)
        return tbc_graph(inner, views, decision), inner
    from ascendsim.ops.lowering.kernels import lower

    inner = options.call(problem, decision, views)
    return lower(inner, decision.wanted), inner


def _view(tensor: Any) -> View:
    """Return where the elements of a typed tensor lie."""
    from ascendsim.ops.problems.views import View

    return View.row_major(tensor.shape) if tensor.strides is None else View(tensor.shape, tensor.strides)


def _problem(call: ConvolutionBackwardCall, decision: Decision) -> ConvProblem:
    from ascendsim.ops.problems.convolution import ConvProblem

    assert call.input is not None
    assert call.weight is not None
    return ConvProblem(
        call.input.shape,
        call.weight.shape,
        call.stride or (),
        call.padding or (),
        call.dilation or (),
        call.transposed,
        decision.output_padding,
        call.groups,
    )


def _tbc_problem(call: ConvTbcBackwardCall) -> ConvProblem:
    """Return the 1-D convolution that a call is once its tensors are permuted."""
    from ascendsim.ops.problems.convolution import ConvProblem

    assert call.input is not None
    assert call.weight is not None
    # (time, batch, channels) to (batch, channels, time), and the weight's (taps, in, out) to (out, in, taps).
    time, batch, channels = call.input.shape
    taps, _, made = call.weight.shape
    return ConvProblem((batch, channels, time), (made, channels, taps), 1, call.pad)


def _require_plannable(problem: ConvProblem, check: str) -> None:
    """Refuse a call whose kernels would take too long to describe.

    Raises   AclnnError 561103
    """
    for (what, most), value in zip(LARGEST.items(), planned_sizes(problem), strict=True):
        if value > most:
            raise AclnnError(
                INNER,
                check,
                f"the call has {value:.3g} {what}; ascendsim plans kernels up to {most:.3g} "
                "(a limit of the simulator, not of the product)",
            )


def planned_sizes(problem: ConvProblem) -> tuple[int, ...]:
    """Return the sizes that `LARGEST` limits, in its order."""
    # Padding can make the small side the larger one.
    sides = problem.big_size, problem.small_size
    pixels = max(height * width for _, height, width in sides)
    depth = max(depth for depth, _, _ in sides)
    tiles = max(_tiles_of_grad_weight(problem), _tiles_of_image(problem))
    elements = max(map(prod, (problem.input, problem.weight, problem.grad_output)))
    return elements, pixels, depth * problem.kernel[0], tiles


def _tiles_of_grad_weight(problem: ConvProblem) -> int:
    taps = prod(problem.kernel[1:])
    return problem.kernel[0] * _tiles(problem, problem.small_channels, problem.big_channels * taps)


def _tiles_of_image(problem: ConvProblem) -> int:
    depth, height, width = problem.input_size
    channels = problem.small_channels if problem.transposed else problem.big_channels
    return depth * _tiles(problem, height * width, channels)


def _tiles(problem: ConvProblem, rows: int, columns: int) -> int:
    """Return the tiles of a matrix product, by its rows and columns for each group.

    Groups of few channels are computed as one.
    """
    at_once = filling_groups(problem.groups, problem.big_channels, problem.small_channels, FRACTAL_ROWS)
    return -(-problem.groups // at_once) * -(-rows // TILE) * -(-columns // TILE)


INVALID = 161002  # ACLNN_ERR_PARAM_INVALID


def convolution_backward_get_workspace_size(
    grad_output: AclTensor | None,
    input: AclTensor | None,
    weight: AclTensor | None,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: Any,
    output_padding: Any,
    groups: Any,
    output_mask: Any,
    cube_math_type: Any,
    grad_input: AclTensor | None,
    grad_weight: AclTensor | None,
    grad_bias: AclTensor | None,
    *,
    product: Product = Keywords.product,
    rules: str | Path = Keywords.rules,
    options: Mapping[str, Any] | None = None,
    strict: bool = False,
) -> tuple[int, Executor]:
    """Check a call of aclnnConvolutionBackward.

    options  order, and those of `CallOptions` that are no arguments of the interface
    strict   whether the executor runs once, unless it is made repeatable (`executor.state.repeatable`)

    Returns  the workspace in bytes (what the kernels declare, and 16 MiB), and the executor to run
    Raises   AclnnError alone, whatever the arguments are
    Source   docs/interface.md; the vendor's page of aclnnConvolutionBackwardGetWorkspaceSize
    """
    given = {
        "grad_output": grad_output,
        "input": input,
        "weight": weight,
        "grad_input": grad_input,
        "grad_weight": grad_weight,
        "grad_bias": grad_bias,
    }
    call = ConvolutionBackwardCall(
        **{name: describe(name, tensor) for name, tensor in given.items()},
        bias_sizes=bias_sizes,
        stride=stride,
        padding=padding,
        dilation=dilation,
        transposed=transposed,
        output_padding=output_padding,
        groups=groups,
        output_mask=output_mask,
        cube_math_type=cube_math_type,
    )
    return first_phase(call, given, product, rules, options, strict=strict)


def conv_tbc_backward_get_workspace_size(
    grad_output: AclTensor | None,
    input: AclTensor | None,
    weight: AclTensor | None,
    bias: AclTensor | None,
    pad: Any,
    cube_math_type: Any,
    grad_input: AclTensor | None,
    grad_weight: AclTensor | None,
    grad_bias: AclTensor | None,
    *,
    product: Product = Keywords.product,
    rules: str | Path = Keywords.rules,
    options: Mapping[str, Any] | None = None,
    strict: bool = False,
) -> tuple[int, Executor]:
    """Check a call of aclnnConvTbcBackward; `grad_output` is what the vendor calls self.

    Options, returns, raises  as `convolution_backward_get_workspace_size`, options those of `TbcOptions`
    """
    given = {
        "grad_output": grad_output,
        "input": input,
        "weight": weight,
        "bias": bias,
        "grad_input": grad_input,
        "grad_weight": grad_weight,
        "grad_bias": grad_bias,
    }
    call = ConvTbcBackwardCall(
        **{name: describe(name, tensor) for name, tensor in given.items()},
        pad=pad,
        cube_math_type=cube_math_type,
    )
    return first_phase(call, given, product, rules, options, strict=strict)


@default_arithmetic
def first_phase(
    call: ConvolutionBackwardCall | ConvTbcBackwardCall,
    tensors: dict[str, AclTensor | None],
    product: Any,
    rules: Any,
    options: Any = None,
    *,
    strict: bool = False,
) -> tuple[int, Executor]:
    """Check, decide, and plan; both interfaces and `ascendsim check` come together here."""
    # A name goes to the rules as it is: they know products without a file of figures, and refuse a
    # call there for a reason of the interface. A file or a Profile must be loaded for its product.
    named = product if isinstance(product, str) and not is_file_name(product) else _profile(product)
    try:
        decision = resolve(call, named, rules)
    except ConfigError as error:
        raise AclnnError(INVALID, CHECK, str(error)) from error
    # Only an accepted call needs figures; see `_profile`.
    profile, checked = _profile(product), typed(call)
    given = _own_options(checked, options)
    size = workspace_bytes(checked, decision, _resolved(checked, decision, profile, rules, given))
    return size, Executor(checked, decision, size, tensors, profile, rules, given, bool(strict))


def _own_options(call: ConvolutionBackwardCall | ConvTbcBackwardCall, options: Any) -> FrozenMap[str, Any]:
    """Return the keywords of the operator that are no arguments of the interface."""
    # What the interface's own arguments say is said once.
    said = ("product", "rules", "output_dtypes", "output_strides")
    listed = TbcOptions if isinstance(call, ConvTbcBackwardCall) else CallOptions
    known = [name for name in listed.__annotations__ if name not in said]
    if options is not None and not isinstance(options, Mapping):
        raise AclnnError(
            INVALID, CHECK, f"options is {shown(options)}; it must be a table such as {{'order': 3}}"
        )
    for name in options or {}:
        if name not in (*known, "order"):
            raise AclnnError(
                INVALID, CHECK, f"options has {shown(name)}; it takes {', '.join((*known, 'order'))}"
            )
    return FrozenMap(options or {})


def _resolved(
    call: ConvolutionBackwardCall | ConvTbcBackwardCall,
    decision: Decision,
    profile: Profile,
    rules: Any,
    given: Mapping[str, Any],
) -> Options:
    """Return the operator's options, whose values are looked at before anything is planned."""
    from ascendsim.numerics.accumulation import AccumulationModel
    from ascendsim.ops.options.call import Options, order_given

    try:
        order_given(given.get("order", "program"))
        options = Options(profile, rules=rules, **{name: given[name] for name in given if name != "order"})
        if isinstance(options.accumulation, str):
            AccumulationModel.parse(options.accumulation)
        options.refuse_strides(call, decision)
        return options
    except AscendSimError as error:
        raise AclnnError(INVALID, CHECK, str(error)) from error


def _profile(product: Any) -> Profile:
    """Load the product, which products that the rules refuse need not be."""
    from ascendsim.profile import Profile, load_profile

    if isinstance(product, Profile):
        return product
    try:
        if not isinstance(product, str | Path):
            raise ConfigError(f"product is {type(product).__name__}; it must be a name, a path or a Profile")
        return load_profile(product)
    except ConfigError as error:
        raise AclnnError(INVALID, CHECK, str(error)) from error


# The operators whose host code is public; what older ones ask for is not known.
PUBLIC = ("Conv3DBackpropInputV2", "Conv3DBackpropFilterV2")


def asked_by_operator(call: Call, gradient: str, op_type: str) -> int | None:
    """Return the bytes that an operator asks for beside the tensors of its kernel.

    gradient, op_type   the name of a kernel of the call, and its type
    None                it is another kernel, does not follow the operator's plan, or no formula is known
    """
    plan = call.plans.get(gradient)
    if op_type not in PUBLIC or plan is None or plan.chosen_by != "product":
        return None
    asked = PlanRequest(
        call.problem, gradient, call.compute_dtype, call.profile, deterministic=call.deterministic
    )
    try:
        # float32 gradients of the 910B follow another library.
        if plan != product_tiling(asked):
            return None
        found = operator_plan(asked)
    except (CapacityError, UnsupportedError):
        return None
    arch, fixed = call.profile.npu_arch, call.deterministic
    return operator_workspace(found, asked.layer, asked.machine, gradient, arch, deterministic=fixed)
